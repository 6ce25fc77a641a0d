"""`P X` straight into a store: by columns where `X` is dense, by blocks of rows where it is sparse."""

from __future__ import annotations

import numpy as np
import torch

from cvgnn.errors import require
from cvgnn.graph import Graph, Normalization, Propagation, SparseFeatures
from cvgnn.ops.row_sum import row_blocks
from cvgnn.store import checks, reader
from cvgnn.store.disk import told
from cvgnn.store.reader import Progress
from cvgnn.store.writer import StoreWriter

_ELEMENTS_PER_PIECE = 1 << 25  # of a piece of columns, as in `Propagation.product_into`
_ENTRIES_PER_BLOCK = 1 << 21  # that enter the rows of a block
_ENTRIES_PER_COUNT = 1 << 22


def add_product(
    writer: StoreWriter,
    normalization: Normalization,
    *,
    num_features: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Compute `P X` of what is already in an unfinished store, and write it there.

    Bit for bit what `Propagation.product` or `product_sparse` gives, in memory that does not depend on `F`. Then
    finish with `PX_normalization=normalization`.

    Args:
        writer: holds `indptr`, `indices`, `edge_weight` if there are weights, and `x` or `x_indptr`, ...
        normalization: of `P`.
        num_features: `F`, needed for sparse features.
        progress: called with `"P X"` and the share that is done.
    """
    graph = _graph_so_far(writer, num_features)
    with told(writer.path):  # compiled code relies on these
        checks.check_structure(writer.path, graph)
        checks.check_features(writer.path, "x", graph.x)
    P = Propagation(graph, normalization=normalization)
    if isinstance(graph.x, SparseFeatures):
        _add_sparse(writer, P, graph.x, progress)
    else:
        _add_dense(writer, P, graph.x, progress)


def _graph_so_far(writer: StoreWriter, num_features: int | None) -> Graph:
    """Structure and features of an unfinished store; the other fields are empty."""
    names = ("indptr", "indices", "edge_weight", "x", "x_indptr", "x_indices", "x_values")
    arrays = {name: writer.written(name) for name in names}
    tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items() if array is not None}
    need = ["x_indptr", "x_indices", "x_values"] if "x" not in tensors else []
    for name in ["indptr", "indices", *need]:
        require(name in tensors, f"P X needs the array {name!r}, which was not written yet")
    require(not need or num_features is not None, "P X of sparse features needs num_features")
    x = reader.features(tensors, "x", num_features or 0)
    assert x is not None
    require(
        x.shape[0] == tensors["indptr"].numel() - 1,
        f"x has {x.shape[0]} rows for {tensors['indptr'].numel() - 1} nodes",
    )
    none = torch.empty(0, dtype=torch.int64)
    return Graph(
        indptr=tensors["indptr"], indices=tensors["indices"], edge_weight=tensors.get("edge_weight"), x=x,
        directed=True, y=none, num_classes=1, train_ids=none, val_ids=none, test_ids=none, validated=True,
    )  # fmt: skip


def _add_dense(writer: StoreWriter, P: Propagation, X: torch.Tensor, progress: Progress | None) -> None:
    """By columns: each piece reads `X` and writes `PX` from front to back."""
    out = torch.from_numpy(writer.array("PX", tuple(X.shape), _numpy_dtype(P.dtype)))
    width = max(1, _ELEMENTS_PER_PIECE // P.num_nodes)
    for first in range(0, X.shape[1], width):
        columns = slice(first, first + width)
        P.product_into(out[:, columns], X[:, columns])
        if progress is not None:
            progress("P X", min(1.0, (first + width) / X.shape[1]))


def _add_sparse(writer: StoreWriter, P: Propagation, X: SparseFeatures, progress: Progress | None) -> None:
    """By blocks of rows. Each takes only the rows of `X` that it needs; they keep their order, and so do the entries
    of `P`, so every sum is taken in the order of `Propagation.product_sparse`."""
    indptr = writer.array("PX_indptr", (P.num_nodes + 1,), np.int64)
    indices = writer.stream("PX_indices", np.int32)
    values = writer.stream("PX_values", _numpy_dtype(P.dtype))
    for first, last in row_blocks(_cumulative_cost(P, X), _ENTRIES_PER_BLOCK):
        block = _rows_of_product(P, X, first, last)
        indptr[first + 1 : last + 1] = indptr[first] + block[0][1:]
        indices.append(block[1])
        values.append(block[2])
        if progress is not None:
            progress("P X", last / P.num_nodes)


def _rows_of_product(P: Propagation, X: SparseFeatures, first: int, last: int) -> tuple[np.ndarray, ...]:
    """`(P X)[first:last]` in CSR: the same steps as `Propagation.product_sparse`, on what these rows take."""
    from scipy import sparse

    a, b = int(P.indptr[first]), int(P.indptr[last])
    offsets = P.indptr[first : last + 1].numpy() - a
    neighbors, own = P.indices[a:b].numpy(), np.arange(first, last)
    nodes = np.union1d(neighbors, own)  # the rows of X that enter, ascending
    shape = (last - first, nodes.size)
    weight = np.ones(b - a) if P.edge_weight is None else P.edge_weight[a:b].numpy().astype(np.float64)
    A = sparse.csr_array((weight, np.searchsorted(nodes, neighbors), offsets), shape=shape)
    self_loops = sparse.csr_array(
        (np.ones(own.size), np.searchsorted(nodes, own), np.arange(own.size + 1)), shape=shape
    )
    left = sparse.diags_array(P.left[first:last].numpy().astype(np.float64))
    right = sparse.diags_array(P.right.numpy()[nodes].astype(np.float64))
    starts, lengths = X.indptr.numpy()[nodes], X.indptr.numpy()[nodes + 1] - X.indptr.numpy()[nodes]
    ends = np.cumsum(lengths)
    place = np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])
    features = sparse.csr_array(
        (
            X.values.numpy()[place].astype(np.float64),
            X.indices.numpy()[place],
            np.concatenate([np.zeros(1, dtype=np.int64), ends]),
        ),
        shape=(nodes.size, X.num_columns),
    )
    PX = (left @ (A + self_loops) @ right @ features).tocsr()
    PX.sort_indices()
    return PX.indptr.astype(np.int64), PX.indices.astype(np.int32), PX.data.astype(_numpy_dtype(P.dtype))


def _cumulative_cost(P: Propagation, X: SparseFeatures) -> np.ndarray:
    """int64 `[N + 1]`: entries of `X` and of `P` that the first rows of the product take; the product has no more."""
    indptr = P.indptr.numpy()
    lengths = np.diff(X.indptr.numpy()) + 1
    cost = np.zeros(P.num_nodes + 1, dtype=np.int64)
    for first, last in row_blocks(indptr, _ENTRIES_PER_COUNT):
        a, b = int(indptr[first]), int(indptr[last])
        along = np.zeros(b - a + 1, dtype=np.int64)
        np.cumsum(lengths[P.indices[a:b].numpy()], out=along[1:])
        of_neighbors = along[indptr[first + 1 : last + 1] - a] - along[indptr[first:last] - a]
        cost[first + 1 : last + 1] = of_neighbors + lengths[first:last]
    return np.cumsum(cost)


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[np.floating]:
    return np.dtype(np.float32 if dtype == torch.float32 else np.float64)
