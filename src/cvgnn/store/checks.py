"""The contents of a store: small arrays whenever it is opened, everything when it is written, in bounded pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cvgnn.graph import Graph, SparseFeatures
from cvgnn.ops.row_sum import row_blocks
from cvgnn.store.files import damaged

# An array of at most this many entries is looked through when a store is opened; of a larger one, both ends.
SMALL = 1 << 20
_NO_LIMIT = 1 << 62
_PIECE = 1 << 16  # entries: what fits a core's cache


def check_small(folder: Path, graph: Graph) -> None:
    """What `open_store` checks of the contents: offsets, splits and labels, each only as far as it is small.

    Args:
        folder: where the graph is, for messages.
        graph: over mapped arrays.
    """
    _check_offsets(folder, "indptr", graph.indptr.numpy(), graph.num_edges, limit=SMALL)
    for form, matrix in (("x", graph.x), ("PX", graph.PX)):
        if isinstance(matrix, SparseFeatures):
            _check_offsets(folder, f"{form}_indptr", matrix.indptr.numpy(), matrix.indices.numel(), limit=SMALL)
    _check_split(folder, graph, limit=SMALL)


def check_indices(folder: Path, graph: Graph) -> None:
    """Everything that compiled code relies on, all of it, in bounded memory: each index array is read once.

    Offsets, neighbors and weights as in `Graph.check_structure`, columns of sparse features, splits and labels. Not
    read: features.

    Args:
        folder: where the graph is, for messages.
        graph: over mapped arrays.
    """
    check_structure(folder, graph)
    for form, matrix in (("x", graph.x), ("PX", graph.PX)):
        check_features(folder, form, matrix)
    _check_split(folder, graph, limit=_NO_LIMIT)


def check_all(folder: Path, graph: Graph) -> None:
    """What `StoreWriter.finish` checks: everything that `cvgnn.Graph` does, reading each array once in pieces."""
    check_indices(folder, graph)
    for form, matrix in (("x", graph.x), ("PX", graph.PX)):
        if matrix is not None:
            values = matrix.values if isinstance(matrix, SparseFeatures) else matrix
            _check_finite(folder, form, values.numpy())


def check_structure(folder: Path, graph: Graph) -> None:
    """`Graph.check_structure` in pieces: the same rules, in memory that does not grow with the number of edges."""
    n, indices = graph.num_nodes, graph.indices.numpy()
    indptr = graph.indptr.numpy()
    _check_offsets(folder, "indptr", indptr, graph.num_edges, limit=_NO_LIMIT)
    weight = None if graph.edge_weight is None else graph.edge_weight.numpy()
    forth, back = 0, 0
    for first, last in row_blocks(indptr, _PIECE):
        a, b = int(indptr[first]), int(indptr[last])
        columns = indices[a:b]
        rows = np.repeat(np.arange(first, last, dtype=np.int64), np.diff(indptr[first : last + 1]))
        outside = (columns < 0) | (columns >= n)
        falls = np.zeros(columns.size, dtype=bool)
        falls[1:] = (columns[1:] <= columns[:-1]) & (rows[1:] == rows[:-1])
        for bad, words in (
            (outside, f"a node outside 0..{n - 1} as neighbor"),
            (columns == rows, "itself as neighbor (P adds the self loops)"),
            (falls, "its neighbors not in ascending order, or one twice"),
        ):
            if bad.any():
                raise damaged(folder, f"indices.npy gives node {rows[int(bad.argmax())]} {words}")
        if not graph.directed:
            bits = None if weight is None else weight[a:b].astype(np.float64).view(np.uint64)
            forth += _hash_sum(rows, columns, bits)
            back += _hash_sum(columns, rows, bits)
    if weight is not None:
        for piece in _pieces(weight.size):
            good = np.isfinite(weight[piece]) & (weight[piece] > 0)
            if not good.all():
                at = piece.start + int(good.argmin())
                raise damaged(
                    folder, f"edge_weight.npy has {weight[at]} at entry {at}; weights must be positive and finite"
                )
    if forth % 2**64 != back % 2**64:
        raise damaged(
            folder, "indices.npy lacks the reverse of some edge, or gives it another weight; such a graph is directed"
        )


def check_features(folder: Path, form: str, matrix: object) -> None:
    """Refuse offsets or columns of sparse features that no matrix has; compiled code relies on them."""
    if not isinstance(matrix, SparseFeatures):
        return
    _check_offsets(folder, f"{form}_indptr", matrix.indptr.numpy(), matrix.indices.numel(), limit=_NO_LIMIT)
    columns = matrix.indices.numpy()
    for piece in _pieces(columns.size):
        bad = (columns[piece] < 0) | (columns[piece] >= matrix.num_columns)
        if bad.any():
            at = piece.start + int(bad.argmax())
            raise damaged(
                folder,
                f"{form}_indices.npy has {columns[at]} at entry {at}; columns lie in 0..{matrix.num_columns - 1}",
            )


def _hash_sum(row: np.ndarray, column: np.ndarray, weight: np.ndarray | None) -> int:
    """The sum, modulo 2^64, of a hash (SplitMix64's) of each entry: equal for equal sets of entries, in whatever order,
    and for others with a chance of 2^-64."""
    z = row.astype(np.uint64)
    z <<= np.uint64(32)
    z |= column.astype(np.uint64)
    _mix(z)
    if weight is not None:
        z ^= weight
        _mix(z)
    return int(np.add.reduce(z, dtype=np.uint64))


def _mix(z: np.ndarray) -> None:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)


def _check_offsets(folder: Path, name: str, indptr: np.ndarray, total: int, *, limit: int) -> None:
    rises = int(indptr[0]) == 0 and int(indptr[-1]) == total
    if indptr.size <= limit:
        for piece in _pieces(indptr.size):
            rises = rises and bool((np.diff(indptr[piece.start : piece.stop + 1]) >= 0).all())
    if not rises:
        raise damaged(folder, f"{name}.npy must rise from 0 to the number of entries, {total}; it does not")


def _check_split(folder: Path, graph: Graph, *, limit: int) -> None:
    n = graph.num_nodes
    splits = {
        "train_ids": graph.train_ids.numpy(),
        "val_ids": graph.val_ids.numpy(),
        "test_ids": graph.test_ids.numpy(),
    }
    if splits["train_ids"].size == 0:
        raise damaged(folder, "train_ids.npy is empty; a graph needs at least one training node")
    for name, ids in splits.items():
        if ids.size == 0:
            continue
        for end in (int(ids[0]), int(ids[-1])):
            if not 0 <= end < n:
                raise damaged(folder, f"{name}.npy names node {end}; ids lie in 0..{n - 1}")
        if ids.size <= limit:
            for piece in _pieces(ids.size):
                if not (np.diff(ids[piece.start : piece.stop + 1]) > 0).all():
                    raise damaged(folder, f"{name}.npy must be in ascending order, each id once; it is not")
    small = {name: ids for name, ids in splits.items() if ids.size <= limit}
    for (name, ids), (other, others) in itertools.combinations(small.items(), 2):
        if others.size:
            _check_disjoint(folder, name, ids, other, others)
    y = graph.y.numpy()
    if y.size <= limit:
        for piece in _pieces(y.size):
            bad = (y[piece] < -1) | (y[piece] >= graph.num_classes)
            if bad.any():
                at = piece.start + int(bad.argmax())
                raise damaged(
                    folder, f"y.npy gives node {at} the class {y[at]}; classes lie in 0..{graph.num_classes - 1}"
                )
        for name, ids in small.items():
            for piece in _pieces(ids.size):
                if (y[ids[piece]] < 0).any():
                    at = int(ids[piece][(y[ids[piece]] < 0).argmax()])
                    raise damaged(folder, f"{name}.npy names node {at}, which has no label (-1)")


def _check_disjoint(folder: Path, name: str, ids: np.ndarray, other: str, others: np.ndarray) -> None:
    """Both ascending."""
    for piece in _pieces(ids.size):
        place = np.minimum(np.searchsorted(others, ids[piece]), others.size - 1)
        twice = others[place] == ids[piece]
        if twice.any():
            raise damaged(folder, f"node {ids[piece][int(twice.argmax())]} is in both {name}.npy and {other}.npy")


def _check_finite(folder: Path, form: str, values: np.ndarray) -> None:
    rows = max(1, _PIECE // (values.shape[1] if values.ndim == 2 else 1))
    for first in range(0, values.shape[0], rows):
        good = np.isfinite(values[first : first + rows])
        if not good.all():
            at = first + int(np.argwhere(~good)[0, 0])
            where = f"node {at}" if values.ndim == 2 else f"entry {at}"
            raise damaged(folder, f"{form} has a NaN or infinite value at {where}")


def _pieces(size: int) -> Iterator[slice]:
    return (slice(start, min(size, start + _PIECE)) for start in range(0, size, _PIECE))
