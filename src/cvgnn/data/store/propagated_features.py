"""Compute `P X` directly into a store: by columns if `X` is dense, by blocks of rows if it is sparse."""

from __future__ import annotations

import numpy as np
import torch

from cvgnn.data import Graph, Propagation, SparseFeatures
from cvgnn.data.propagation import Aggregation
from cvgnn.data.store import contents_check
from cvgnn.data.store.store_reader import get_features
from cvgnn.data.store.store_writer import StoreWriter, report_write_errors
from cvgnn.errors import require
from cvgnn.ops.row_sum import row_blocks

_ELEMENTS_PER_PIECE = 1 << 25  # of a piece of columns, as in `Propagation.product_into`
_ENTRIES_PER_BLOCK = 1 << 21  # entries of P and X that one block of rows reads
_ENTRIES_PER_COUNT = 1 << 22


def add_product(writer: StoreWriter, normalization: Aggregation, *, num_features: int | None = None) -> None:
    """Compute `P X` of the arrays in an unfinished store, and write it there.

    The result has the same bits as `Propagation.product` or `product_sparse`; the memory does not depend on `F`. Then
    finish with `PX_normalization=normalization`. The writer's `progress` gets the stage `"P X"`.

    Args:
        writer: has `indptr`, `indices`, `edge_weight` if there are weights, and `x` or `x_indptr`, ...
        normalization: of `P`.
        num_features: `F`, needed for sparse features.
    """
    graph = _unfinished_graph(writer, num_features)
    with report_write_errors(writer.path):  # compiled code relies on these
        contents_check.check_structure(writer.path, graph)
    P = Propagation(graph, normalization=normalization)
    if isinstance(graph.x, SparseFeatures):
        _add_sparse(writer, P, graph.x)
    else:
        _add_dense(writer, P, graph.x)


def _unfinished_graph(writer: StoreWriter, num_features: int | None) -> Graph:
    """Structure and features of an unfinished store; the other fields are empty."""
    names = ("indptr", "indices", "edge_weight", "x", "x_indptr", "x_indices", "x_values")
    arrays = {name: writer.written(name) for name in names}
    tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items() if array is not None}
    needed = names[:2] if "x" in tensors else (*names[:2], *names[4:])
    for name in needed:
        require(name in tensors, f"P X needs the array {name!r}, which was not written yet")
    require("x" in tensors or num_features is not None, "P X of sparse features needs num_features")
    x, num_nodes = get_features(tensors, "x", num_features or 0), tensors["indptr"].numel() - 1
    assert x is not None
    require(x.shape[0] == num_nodes, f"x has {x.shape[0]} rows for {num_nodes} nodes")
    none = torch.empty(0, dtype=torch.int64)
    return Graph(
        indptr=tensors["indptr"], indices=tensors["indices"], edge_weight=tensors.get("edge_weight"), x=x,
        directed=True, y=none, num_classes=1, train_ids=none, val_ids=none, test_ids=none, validated=True,
    )  # fmt: skip


def _add_dense(writer: StoreWriter, P: Propagation, X: torch.Tensor) -> None:
    """By columns: each piece reads `X` and writes `PX` from front to back."""
    out = torch.from_numpy(writer.array("PX", tuple(X.shape), P.left.numpy().dtype))
    width = X.shape[1] if P.multiplies_by_lines(X) else max(1, _ELEMENTS_PER_PIECE // P.num_nodes)
    for first in range(0, X.shape[1], width):
        columns = slice(first, first + width)
        P.product_into(out[:, columns], X[:, columns])
        writer.progress("P X", min(1.0, (first + width) / X.shape[1]))


def _add_sparse(writer: StoreWriter, P: Propagation, X: SparseFeatures) -> None:
    indptr = writer.array("PX_indptr", (P.num_nodes + 1,), np.int64)
    indices = writer.stream("PX_indices", np.int32)
    values = writer.stream("PX_values", P.left.numpy().dtype)
    for first, last in row_blocks(_cumulative_cost(P, X), _ENTRIES_PER_BLOCK):
        offsets, columns, data = P.sparse_product_rows(X, first, last)
        indptr[first + 1 : last + 1] = indptr[first] + offsets[1:]
        indices.append(columns)
        values.append(data)
        writer.progress("P X", last / P.num_nodes)


def _cumulative_cost(P: Propagation, X: SparseFeatures) -> np.ndarray:
    """int64 `[N + 1]`: entries of `X` and `P` that the first rows of the product read, a bound on its entries."""
    indptr = P.indptr.numpy()
    lengths = np.diff(X.indptr.numpy()) + 1
    cost = np.zeros(P.num_nodes + 1, dtype=np.int64)
    for first, last in row_blocks(indptr, _ENTRIES_PER_COUNT):
        a, b = int(indptr[first]), int(indptr[last])
        running = np.concatenate([[0], np.cumsum(lengths[P.indices[a:b].numpy()])])
        cost[first + 1 : last + 1] = lengths[first:last] + np.diff(running[indptr[first : last + 1] - a])
    return np.cumsum(cost)
