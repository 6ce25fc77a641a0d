"""Checks of structure, splits and labels, block by block: memory does not grow with the number of edges."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from math import prod

import numpy as np

from cvgnn.data.labels import bad_rows, labelled
from cvgnn.errors import CvgnnError, require
from cvgnn.ops.row_sum import row_blocks
from cvgnn.rng import mix

_PIECE = 1 << 16  # entries: a few arrays of this size fit into a core's cache


def check_structure(
    indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray | None, *, directed: bool, suffix: str = ""
) -> None:
    """Refuse an invalid CSR structure; compiled code relies on it.

    Args:
        indptr: integers `[N + 1]`.
        indices: integers `[E]`.
        weight: float `[E]`, or None.
        directed: whether the reverse of an edge may be missing.
        suffix: appended to the names of the arrays in messages.
    """
    n, name = indptr.size - 1, f"indices{suffix}"
    check_offsets(f"indptr{suffix}", indptr, indices.size)
    difference = 0
    for first, last in row_blocks(indptr, _PIECE):
        a, b = int(indptr[first]), int(indptr[last])
        columns = indices[a:b]
        rows = np.repeat(np.arange(first, last, dtype=np.int64), np.diff(indptr[first : last + 1]))
        falls = np.zeros(columns.size, dtype=bool)
        falls[1:] = (columns[1:] <= columns[:-1]) & (rows[1:] == rows[:-1])
        for bad, what in (
            ((columns < 0) | (columns >= n), f"a node outside 0..{n - 1} as neighbor"),
            (columns == rows, "itself as neighbor (P adds the self loops)"),
            (falls, "its neighbors not in ascending order, or one twice"),
        ):
            if bad.any():
                raise CvgnnError(f"{name} gives node {rows[int(bad.argmax())]} {what}")
        if not directed:
            bits = None if weight is None else weight[a:b].astype(np.float64).view(np.uint64)
            difference += _hash_sum(rows, columns, bits) - _hash_sum(columns, rows, bits)
    if weight is not None:
        check_weights(f"edge_weight{suffix}", weight)
    require(
        difference % 2**64 == 0,
        f"{name} lacks the reverse of some edge, or gives it another weight; such a graph is directed",
    )


def check_weights(name: str, weight: np.ndarray) -> None:
    """Refuse edge weights that are not positive and finite."""
    at = first_bad(weight, lambda w: ~(np.isfinite(w) & (w > 0)))
    if at is not None:
        raise CvgnnError(f"{name} has {weight[at]} at entry {at}; weights must be positive and finite")


def check_offsets(name: str, indptr: np.ndarray, total: int, *, ends_only: bool = False) -> None:
    """Refuse CSR offsets that do not rise from 0 to `total`; `ends_only` checks only the first and the last."""
    rises = int(indptr[0]) == 0 and int(indptr[-1]) == total
    require(
        rises and (ends_only or not falls_somewhere(indptr, strictly=False)),
        f"{name} must rise from 0 to the number of entries, {total}; it does not",
    )


def check_split(
    splits: Mapping[str, np.ndarray],
    y: np.ndarray,
    num_classes: int,
    *,
    limit: int | None = None,
    suffix: str = "",
    item: str = "node",
) -> None:
    """Refuse split ids that do not exist, repeat, overlap or have no label, and labels outside the classes.

    Args:
        splits: `train_ids`, `val_ids` and `test_ids`, each in ascending order.
        y: labels, in a form of `cvgnn.data.labels`.
        num_classes: `C`.
        limit: arrays of more entries are checked only at both ends, or not at all.
        suffix: appended to the names of the arrays in messages.
        item: what has a label, node or graph, for messages.
    """
    # A graph without any label is one to predict on: it needs no split.
    empty = splits["train_ids"].size == 0 and bool(labelled(y).any())
    require(not empty, f"the training split is empty: train_ids{suffix} must name at least one {item}")
    for name, ids in splits.items():
        for end in ids[[0, -1]].tolist() if ids.size else ():
            require(0 <= end < len(y), f"{name}{suffix} names {item} {end}; ids lie in 0..{len(y) - 1}")
    small = {name: ids for name, ids in splits.items() if ids.size and (limit is None or ids.size <= limit)}
    for name, ids in small.items():
        ascending = not falls_somewhere(ids, strictly=True)
        require(ascending, f"{name}{suffix} must be in ascending order, each id once; it is not")
    for (name, ids), (other, others) in itertools.combinations(small.items(), 2):
        at = first_bad(ids, lambda part, others=others: _isin_sorted(part, others))  # type: ignore[misc]
        both = f"{item} {ids[at or 0]} is in both {name}{suffix} and {other}{suffix}"
        require(at is None, f"{both}; splits must be disjoint")
    if limit is None or y.size <= limit:
        at = first_bad(y, lambda part: bad_rows(part, num_classes))
        if y.ndim == 1:
            rule = f"classes lie in 0..{num_classes - 1}, and -1 is unknown"
            require(at is None, f"y{suffix} gives {item} {at} the class {y[at or 0]}; {rule}")
        rule = "are finite, and NaN is unknown" if y.dtype.kind == "f" else "are 0 or 1, and a row of -1 is unknown"
        require(at is None, f"y{suffix} gives {item} {at} other values than it may have: they {rule}")
        for name, ids in small.items():
            at = first_bad(ids, lambda part: ~labelled(y[part]))
            sign = "NaN" if y.dtype.kind == "f" else "-1"
            unlabelled = f"{name}{suffix} names {item} {ids[at or 0]}, which has no label ({sign})"
            require(at is None, f"{unlabelled}; leave it out of the split")


def _isin_sorted(values: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    """`np.isin(values, ascending)` without its copy and sort of both."""
    place = np.minimum(np.searchsorted(ascending, values), ascending.size - 1)
    inside: np.ndarray = ascending[place] == values
    return inside


def falls_somewhere(values: np.ndarray, *, strictly: bool) -> bool:
    """Whether an entry is lower than the one before it (`strictly`: lower or equal)."""
    least = 1 if strictly else 0
    return any((np.diff(values[p.start : p.stop + 1]) < least).any() for p in pieces(values.size))


def first_bad(values: np.ndarray, bad: Callable[[np.ndarray], np.ndarray]) -> int | None:
    """The position of the first entry of a vector, or row of a matrix, for which `bad` holds; None without one."""
    for piece in pieces(len(values), width=prod(values.shape[1:])):
        where = bad(values[piece])
        if where.any():
            return int(piece.start + where.argmax())
    return None


def pieces(size: int, width: int = 1) -> Iterator[slice]:
    """Slices of `size` rows, of at most `_PIECE` entries each where a row of `width` entries is not longer itself."""
    rows = max(1, _PIECE // max(1, width))
    return (slice(start, min(size, start + rows)) for start in range(0, size, rows))


def _hash_sum(row: np.ndarray, column: np.ndarray, weight: np.ndarray | None) -> int:
    """The sum, modulo 2^64, of a hash of each entry.

    It compares `A` with its transpose in one pass, without a sort: equal sets of entries have equal sums in any order,
    different sets only with probability 2^-64. The hash is SplitMix64's, see `cvgnn.rng.mix`.
    """
    z = mix(row.astype(np.uint64) << np.uint64(32) | column.astype(np.uint64))
    if weight is not None:
        z = mix(z ^ weight)
    return int(np.add.reduce(z, dtype=np.uint64))
