"""`P X` for sparse features on all threads: Gustavson's product, a row at a time. SciPy's product is the twin.

A thread adds the entries of the rows of `X` that a row of `P` names into a dense row of `F` numbers, marks the columns
in a set of bits, and reads them back in ascending order. Rows are added in the order of the row of `P`, in float64, so
a row has the same bits in whatever block, and on however many threads, it is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cvgnn.ops.compilation import njit
from cvgnn.ops.history_write import prefetch
from cvgnn.ops.row_sum import Array, row_blocks
from cvgnn.ops.threads import run_ranges
from cvgnn.utils.progress import ProgressCallback, no_progress

# How many entries of `P` ahead a row of `X` is prefetched, and before it the offset that says where it begins. Without,
# both kernels wait for memory and take three and five times as long at 870,000 nodes.
_NEAR, _FAR = 8, 24
_ENTRIES_PER_BLOCK = 1 << 20  # of `P`, for each of which a block of rows reads a row of `X`


def _count_zeros(context, word):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), codegen


_trailing_zeros: Any = intrinsic(_count_zeros)
"""In compiled code: the position of the lowest bit of a word that is not 0."""


def product_rows(
    P: tuple[Array, Array, Array, Array, Array, bool],
    X: tuple[Array, Array, Array],
    num_columns: int,
    rows: tuple[int, int],
    *,
    needed: Array | None = None,
    progress: ProgressCallback = no_progress,
) -> tuple[Array, Array, Array]:
    """`(P X)[first:last]` in CSR, columns ascending.

    Args:
        P: indptr, indices and weight of `A` (of size 0 for 1 everywhere), `left`, `right`, and whether there are self
            loops.
        X: indptr, indices and values.
        num_columns: `F`.
        rows: `first` and `last`.
        needed: bool `[N]`; a row that is not needed holds a single NaN, so that no result can come from it unseen.
        progress: called with the share that is done.

    Returns:
        indptr int64 `[last - first + 1]`, indices int32, values: sums in float64, rounded to the dtype of `left`.
    """
    (indptr, indices, _, left, _, self_loop), (first, last) = P, rows
    wanted = np.empty(0, np.bool_) if needed is None else needed
    cost = indptr[first : last + 1] - indptr[first]
    blocks = [(first + a, first + b) for a, b in row_blocks(cost, _ENTRIES_PER_BLOCK)]
    offsets = np.zeros(last - first + 1, np.int64)

    # Entries are counted first: the result is allocated once, and nothing is copied.
    def count(i: int, a: int, b: int) -> None:
        _count(indptr, indices, self_loop, *X[:2], num_columns, wanted, a, b, offsets[a - first + 1 :])
        progress("P X, counting entries", (i + 1) / len(blocks))

    def fill(i: int, a: int, b: int) -> None:
        _fill(*P, *X, num_columns, wanted, a, b, offsets[a - first :], *out)
        progress("P X", (i + 1) / len(blocks))

    run_ranges(count, blocks)
    np.cumsum(offsets, out=offsets)
    out = np.empty(int(offsets[-1]), np.int32), np.empty(int(offsets[-1]), left.dtype)
    run_ranges(fill, blocks)
    return offsets, *out


@njit(cache=True, nogil=True)
def _count(indptr, indices, self_loop, x_indptr, x_indices, F, needed, first, last, lengths):  # type: ignore[no-untyped-def]
    """`lengths[i]`: the number of columns of row `first + i` of `P X`."""
    row_of = np.full(F, -1, np.int32)  # the last row that had a column
    starts, columns = x_indptr.ctypes.data, x_indices.ctypes.data
    for v in range(first, last):
        if needed.size > 0 and not needed[v]:
            lengths[v - first] = 1
            continue
        n = 0
        for e in range(indptr[v] - self_loop, indptr[v + 1]):
            u = v if e < indptr[v] else np.int64(indices[e])
            if e + _FAR < indices.size:
                prefetch(starts + 8 * np.int64(indices[e + _FAR]))
                prefetch(columns + 4 * x_indptr[indices[e + _NEAR]])
            for j in range(x_indptr[u], x_indptr[u + 1]):
                c = x_indices[j]
                n += row_of[c] != v  # no branch: it would be guessed wrong for every third entry
                row_of[c] = v
        lengths[v - first] = n


@njit(cache=True, nogil=True, fastmath=False)
def _fill(  # type: ignore[no-untyped-def]
    indptr, indices, weight, left, right, self_loop, x_indptr, x_indices, x_values, F, needed, first, last, offsets,
    out_indices, out_values,
):  # fmt: skip
    """Rows `first..last-1` of `P X`; that of `first` begins at `offsets[0]`."""
    total = np.zeros(F)
    bits = np.zeros((F >> 6) + 1, np.uint64)
    starts, columns, values = x_indptr.ctypes.data, x_indices.ctypes.data, x_values.ctypes.data
    for v in range(first, last):
        at = offsets[v - first]
        if needed.size > 0 and not needed[v]:
            out_indices[at], out_values[at] = 0, np.nan
            continue
        own = self_loop
        row_left = np.float64(left[v])
        for e in range(indptr[v], indptr[v + 1]):
            u = np.int64(indices[e])
            if e + _FAR < indices.size:
                prefetch(starts + 8 * np.int64(indices[e + _FAR]))
                ahead = x_indptr[indices[e + _NEAR]]
                prefetch(columns + 4 * ahead)
                prefetch(values + x_values.itemsize * ahead)
            w = row_left
            if weight.size > 0:
                w *= np.float64(weight[e])
            if own and u > v:  # the self loop's place among the neighbors, as in A + I: sums depend on their order
                own = False
                _add(x_indptr, x_indices, x_values, v, row_left * np.float64(right[v]), total, bits)
            _add(x_indptr, x_indices, x_values, u, w * np.float64(right[u]), total, bits)
        if own:
            _add(x_indptr, x_indices, x_values, v, row_left * np.float64(right[v]), total, bits)
        for word in range(bits.size):
            left_bits = bits[word]
            bits[word] = 0
            while left_bits != 0:
                c = word * 64 + np.int64(_trailing_zeros(left_bits))
                left_bits &= left_bits - np.uint64(1)
                out_indices[at], out_values[at] = c, total[c]
                total[c] = 0.0
                at += 1


@njit(nogil=True, fastmath=False, inline="always")
def _add(indptr, indices, values, u, w, total, bits):  # type: ignore[no-untyped-def]
    """Add `w X[u]`."""
    for j in range(indptr[u], indptr[u + 1]):
        c = indices[j]
        bits[c >> 6] |= np.uint64(1) << np.uint64(c & 63)
        total[c] += w * np.float64(values[j])
