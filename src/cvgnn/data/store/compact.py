"""Compact a graph: a store of the rows that training and evaluation can read, for graphs larger than memory.

Layer 0 is exact, so a network with `K` layers that is trained and evaluated at some nodes reads `P X` of the nodes at
most `K - 1` hops away, and rows of `A` of those at most `K - 2` hops away; nothing else. What is kept has the same
order, the same weights in `P` and the same ids for draws as in the whole graph, so training ends with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cvgnn.data import Graph, Propagation, SparseFeatures
from cvgnn.data.propagation import Aggregation, row_sums
from cvgnn.data.split import SPLITS
from cvgnn.data.store.save_graph import plain_names
from cvgnn.data.store.store_writer import StoreWriter
from cvgnn.data.subgraph import blocks_of_nodes, feature_rows, row_entries, within
from cvgnn.errors import require, require_integer, require_known
from cvgnn.ops.row_sum import Rows, row_blocks, weighted_sum
from cvgnn.utils.progress import ProgressCallback

_ENTRIES_PER_BLOCK = 1 << 22  # of A, that are handled together
_ROWS_PER_BLOCK = 1 << 14  # of features


def compact_store(
    graph: Graph,
    path: Path,
    *,
    hops: int = 1,
    splits: Sequence[str] = SPLITS,
    propagate: Aggregation = "symmetric",
    memory: int = 1 << 30,
    progress: ProgressCallback | None = None,
) -> None:
    """Write what a network that samples at `hops` hops reads of a graph to a new store.

    Args:
        graph: the whole, most often mapped from a store.
        path: a folder that does not exist yet, or is empty.
        hops: `K - 1`; a linear input layer counts as one of the `K` layers.
        splits: whose nodes are trained on or evaluated; the others are left out.
        propagate: the normalization of `P X`, which cannot be computed from a part of the graph: `"mean"` for SAGE,
            `"sum"` for GIN.
        memory: bytes for the columns of `X` that are read at a time, where `P X` is computed.
        progress: called with a stage and a share in 0..1.
    """
    require_integer("hops", hops, at_least=0)
    for split in splits:
        require_known("split", split, SPLITS)
    require("train" in splits, "splits must name train; without training nodes there is nothing to train on")
    require(graph.cutout is None, "the graph is compact already; compact the store that it was made from")
    special = graph.graph_ids is not None or graph.edge_label is not None
    require(not special, "only graphs with labels at nodes are compacted, not labelled edges or sets of graphs")
    chosen = {split: getattr(graph, f"{split}_ids").numpy() for split in splits}
    kept, complete = within(graph, np.concatenate(list(chosen.values())), hops)
    ids, indptr = np.flatnonzero(kept), graph.indptr.numpy()
    place = np.cumsum(kept, dtype=np.int32) - np.int32(1)  # of a kept node
    lengths = np.where(complete[ids], indptr[ids + 1] - indptr[ids], 0)
    P = Propagation(graph, normalization=propagate)
    with StoreWriter(path, progress=progress) as writer:
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        writer.write("indptr", offsets)
        indices = writer.array("indices", (int(offsets[-1]),), np.int32)
        weight = None
        if graph.edge_weight is not None:
            weight = writer.array("edge_weight", (int(offsets[-1]),), graph.edge_weight.numpy().dtype)
        for first, last in row_blocks(offsets, _ENTRIES_PER_BLOCK):
            entries = row_entries(indptr, ids[first:last][lengths[first:last] > 0])
            span = slice(offsets[first], offsets[last])
            indices[span] = place[graph.indices.numpy()[entries]]
            if weight is not None and graph.edge_weight is not None:
                weight[span] = graph.edge_weight.numpy()[entries]
            writer.progress("edges", last / len(ids))
        writer.write("y", graph.y.numpy()[ids])
        none = np.empty(0, np.int64)
        for split in SPLITS:
            writer.write(f"{split}_ids", place[chosen.get(split, none)].astype(np.int64))
        # Predictions name the nodes as the whole graph does.
        writer.write("node_names", ids if graph.node_names is None else plain_names(graph.node_names[ids]))
        writer.write("whole_ids", ids.astype(np.int32))
        writer.write("whole_row_sums", row_sums(graph).numpy()[ids])
        _write_rows(writer, "x", graph.x, ids)
        stored = graph.PX is not None and (graph.PX_normalization, graph.PX.dtype) == (propagate, graph.x.dtype)
        if stored and graph.PX is not None:
            _write_rows(writer, "PX", graph.PX, ids)
        elif isinstance(graph.x, SparseFeatures):
            _write_sparse_product(writer, P, graph.x, ids)
        else:
            _write_dense_product(writer, P, graph.x, ids, memory)
        writer.finish(
            {
                "name": graph.name, "num_classes": graph.num_classes, "class_names": graph.class_names,
                "directed": graph.directed, "split": graph.split, "preprocessing": graph.preprocessing,
                "num_features": graph.num_features, "PX_normalization": propagate, "hops": hops,
                "whole_nodes": graph.num_nodes,
            }
        )  # fmt: skip


def _write_rows(writer: StoreWriter, name: str, matrix: Tensor | SparseFeatures, ids: np.ndarray) -> None:
    """`matrix[ids]`, in blocks."""
    if isinstance(matrix, SparseFeatures):
        rows = feature_rows(matrix, torch.from_numpy(ids))
        assert isinstance(rows, SparseFeatures)
        for part in ("indptr", "indices", "values"):
            writer.write(f"{name}_{part}", getattr(rows, part).numpy())
        return
    array = matrix.numpy()
    out = writer.array(name, (len(ids), array.shape[1]), array.dtype)
    for first in range(0, len(ids), _ROWS_PER_BLOCK):
        out[first : first + _ROWS_PER_BLOCK] = array[ids[first : first + _ROWS_PER_BLOCK]]
        writer.progress(f"{name}.npy", min(1.0, (first + _ROWS_PER_BLOCK) / len(ids)))


def _write_dense_product(writer: StoreWriter, P: Propagation, X: Tensor, ids: np.ndarray, memory: int) -> None:
    """`(P X)[ids]`, some columns at a time: each pass reads `X` once and has its columns in memory."""
    indptr = P.indptr.numpy()
    width = max(1, min(X.shape[1], memory // (P.num_nodes * X.itemsize)))
    width = -(-X.shape[1] // -(-X.shape[1] // width))  # as many passes, and as equal
    out = torch.from_numpy(writer.array("PX", (len(ids), X.shape[1]), P.left.numpy().dtype))
    for left in range(0, X.shape[1], width):
        columns = slice(left, left + width)
        scaled = X[:, columns] * P.right[:, None]
        first = 0
        for part in blocks_of_nodes(indptr, ids):
            entries, nodes = row_entries(indptr, part), torch.from_numpy(part)
            starts = torch.from_numpy(
                np.concatenate([[0], np.cumsum(indptr[part + 1] - indptr[part])]).astype(np.int32)
            )
            weight = None if P.edge_weight is None else P.edge_weight[torch.from_numpy(entries)]
            sums = weighted_sum(Rows(starts, torch.from_numpy(P.indices.numpy()[entries]), weight), scaled)
            if P.self_loop:
                sums.add_(scaled[nodes])
            out[first : first + len(part), columns] = sums.mul_(P.left[nodes, None])
            first += len(part)
            writer.progress("P X", (left + (min(left + width, X.shape[1]) - left) * first / len(ids)) / X.shape[1])
        del scaled  # before the next columns: the budget is for one of them


def _write_sparse_product(writer: StoreWriter, P: Propagation, X: SparseFeatures, ids: np.ndarray) -> None:
    indptr = writer.array("PX_indptr", (len(ids) + 1,), np.int64)
    indices, values = writer.stream("PX_indices", np.int32), writer.stream("PX_values", P.left.numpy().dtype)
    done = 0
    for first, last in row_blocks(P.indptr.numpy(), _ENTRIES_PER_BLOCK):
        mine = ids[np.searchsorted(ids, first) : np.searchsorted(ids, last)]
        if not len(mine):
            continue
        offsets, columns, data = map(torch.from_numpy, P.sparse_product_rows(X, first, last))
        block = SparseFeatures(offsets, columns, data, X.num_columns, validated=True)
        rows = feature_rows(block, torch.from_numpy(mine - first))
        assert isinstance(rows, SparseFeatures)
        indptr[done + 1 : done + len(mine) + 1] = indptr[done] + rows.indptr[1:].numpy()
        indices.append(rows.indices.numpy())
        values.append(rows.values.numpy())
        done += len(mine)
        writer.progress("P X", done / len(ids))
