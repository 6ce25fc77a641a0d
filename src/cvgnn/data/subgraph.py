"""Parts of a graph: rows of its CSR arrays, and the subgraph that some nodes induce."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from cvgnn.data.graph import IDS, Graph
from cvgnn.data.sparse_features import SparseFeatures
from cvgnn.ops.row_sum import row_blocks

_ENTRIES_PER_BLOCK = 1 << 22  # of A, that are handled together


def induced_subgraph(graph: Graph, ids: Tensor) -> Graph:
    """Some nodes and the edges among them, renumbered in their order; nothing in it depends on the other nodes.

    `node_names` are the user's own node ids, or the node ids in `graph`. A `P X` is not taken over: its rows are sums
    over all neighbors.

    Args:
        graph: the whole.
        ids: int64, ascending.

    >>> from cvgnn.data.edges import from_edges
    >>> g = from_edges([[0, 1, 2], [1, 2, 3]], x=torch.eye(4), y=[0, 1, 1, 0], train_ids=[0, 2, 3], val_ids=[1])
    >>> part = induced_subgraph(g, g.train_ids)
    >>> part.indices.tolist(), part.train_ids.tolist(), part.node_names.tolist()
    ([2, 1], [0, 1, 2], [0, 2, 3])
    """
    nodes = ids.numpy()
    place = np.full(graph.num_nodes, -1, dtype=np.int32)
    place[nodes] = np.arange(len(nodes), dtype=np.int32)
    indptr = graph.indptr.numpy()
    entries = row_entries(indptr, nodes)
    columns = place[graph.indices.numpy()[entries]]
    inside = columns >= 0
    row = np.repeat(np.arange(len(nodes)), indptr[nodes + 1] - indptr[nodes])[inside]
    split = (torch.from_numpy(place[getattr(graph, name).numpy()].astype(np.int64)) for name in IDS)
    train, val, test = (places[places >= 0] for places in split)
    return dataclasses.replace(
        graph,
        indptr=offsets(row, len(nodes)),
        indices=torch.from_numpy(columns[inside]),
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[torch.from_numpy(entries[inside])],
        x=feature_rows(graph.x, ids),
        y=graph.y[ids],
        node_names=nodes if graph.node_names is None else graph.node_names[nodes],
        PX=None,
        PX_normalization=None,
        edge_label_index=None,
        edge_label=None,
        edge_split=None,
        train_ids=train,
        val_ids=val,
        test_ids=test,
        validated=True,  # a part of a valid graph
    )


def row_entries(indptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Positions in a CSR matrix's `indices` of some rows, one row after another."""
    lengths = indptr[rows + 1] - indptr[rows]
    before = np.cumsum(lengths) - lengths
    positions: np.ndarray = np.arange(lengths.sum()) + np.repeat(indptr[rows] - before, lengths)
    return positions


def within(graph: Graph, nodes: np.ndarray, hops: int) -> tuple[np.ndarray, np.ndarray]:
    """Which nodes are at most `hops` hops from `nodes`, and which are closer: two masks `[N]`; in bounded memory.

    >>> from cvgnn.data.edges import from_edges
    >>> path = from_edges([[0, 1, 2], [1, 2, 3]], x=torch.eye(4), y=[0, 0, 0, 0], train_ids=[0])
    >>> within(path, np.array([0]), 2)[0].tolist()
    [True, True, True, False]
    """
    indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
    kept = np.zeros(graph.num_nodes, dtype=bool)
    kept[nodes] = True
    complete = np.zeros_like(kept)
    frontier = np.flatnonzero(kept)
    for _ in range(hops):
        complete[frontier] = True
        reached = np.zeros_like(kept)
        for part in blocks_of_nodes(indptr, frontier):
            reached[indices[row_entries(indptr, part)]] = True
        reached &= ~kept
        kept |= reached
        frontier = np.flatnonzero(reached)
    return kept, complete


def blocks_of_nodes(indptr: np.ndarray, nodes: np.ndarray) -> Iterator[np.ndarray]:
    """The nodes in parts whose rows of `A` have a bounded number of entries."""
    cumulative = np.concatenate([[0], np.cumsum(indptr[nodes + 1] - indptr[nodes])])
    for first, last in row_blocks(cumulative, _ENTRIES_PER_BLOCK):
        yield nodes[first:last]


def offsets(row: np.ndarray, num_rows: int) -> Tensor:
    """int64 `[num_rows + 1]`, the CSR offsets of entries in ascending rows."""
    return torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(row, minlength=num_rows))]))


def feature_rows(x: Tensor | SparseFeatures, ids: Tensor) -> Tensor | SparseFeatures:
    """`x[ids]`, dense or sparse as `x` is."""
    if not isinstance(x, SparseFeatures):
        return x[ids]
    indptr, rows = x.indptr.numpy(), ids.numpy()
    entries = torch.from_numpy(row_entries(indptr, rows))
    starts = torch.from_numpy(np.concatenate([[0], np.cumsum(indptr[rows + 1] - indptr[rows])]))
    return dataclasses.replace(x, indptr=starts, indices=x.indices[entries], values=x.values[entries])
