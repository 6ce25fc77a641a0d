"""Compiled: the draws of `synthetic_kernels` as a list, for graphs whose edges do not fit into memory.

Each of a draw's two ends reads three tables that no cache holds. Draws are made many at a time, in three passes, each
of which prefetches what the next one reads.
"""

from __future__ import annotations

import numpy as np

from cvgnn.ops.compilation import njit
from cvgnn.ops.history_write import prefetch
from cvgnn.ops.row_sum import Array
from cvgnn.ops.sampling_kernels import word
from cvgnn.ops.synthetic_kernels import _LOW, _S32, WORDS_PER_DRAW, pick
from cvgnn.ops.threads import run_ranges

_TOGETHER = 64  # draws
_PIECES = 8  # of draws, for the threads to share

Members = tuple[Array, Array, Array]


def list_edges(
    out: Array, key: np.uint64, ranges: list[tuple[int, int]], inside: bool, blocks: Members, members: Members,
    per_class: int,
) -> int:  # fmt: skip
    """Write the draws of some ranges to `out`, int32 `[n, 2]`, in their order, until it is full; returns how many."""
    found = [np.empty((last - first, 2), np.int32) for first, last in ranges]
    counts = [0] * len(ranges)

    def draw(i: int, first: int, last: int) -> None:
        counts[i] = _draw(found[i], key, first, last, inside, blocks, members, per_class)

    run_ranges(draw, ranges)
    done = 0
    for edges, count in zip(found, counts, strict=True):
        end = min(len(out), done + count)
        out[done:end] = edges[: end - done]
        done = end
    return done


@njit(cache=True, nogil=True)
def _draw(out, key, first, last, inside, blocks, members, per_class):  # type: ignore[no-untyped-def]
    """`draw_edge` for `first..last-1`, without those that it passes over; returns how many there are."""
    start, block_keep, block_other = blocks
    node, keep, other = members
    nodes, keeps, others = node.ctypes.data, keep.ctypes.data, other.ctypes.data
    place = np.empty(2 * _TOGETHER, np.int64)  # of both ends, -1 for a draw that is passed over
    low = np.empty(2 * _TOGETHER, np.uint64)
    count = 0
    for base in range(first, last, _TOGETHER):
        size = min(_TOGETHER, last - base)
        for j in range(size):
            at = WORDS_PER_DRAW * (base + j)
            b = pick(word(key, at), 0, start.size - 1, block_keep, block_other)
            own = b
            if not inside:
                b = pick(word(key, at + 2), 0, start.size - 1, block_keep, block_other)
            for end in range(2):
                block = own if end == 0 else b
                bits = word(key, at + 1 + 2 * end)
                a, z = start[block], start[block + 1]
                i = a + np.int64(((bits >> _S32) * np.uint64(z - a)) >> _S32)
                prefetch(keeps + keep.itemsize * i)
                prefetch(others + other.itemsize * i)
                prefetch(nodes + node.itemsize * i)
                place[2 * j + end], low[2 * j + end] = i, bits & _LOW
            if not inside and b // per_class == own // per_class:
                place[2 * j] = -1
        for j in range(2 * size):
            i = place[j]
            if i >= 0 and low[j] >= np.uint64(keep[i]):
                place[j] = other[i]
                prefetch(nodes + node.itemsize * np.int64(other[i]))
        for j in range(size):
            if place[2 * j] < 0:
                continue
            u, v = node[place[2 * j]], node[place[2 * j + 1]]
            if u != v:
                out[count, 0], out[count, 1] = min(u, v), max(u, v)
                count += 1
    return count


def piece_ranges(first: int, size: int) -> list[tuple[int, int]]:
    """The next draws in pieces of `size`, which the threads share."""
    return [(first + i * size, first + (i + 1) * size) for i in range(_PIECES)]
