"""Edges to CSR by a compiled radix sort on all threads: `build_csr`. `cvgnn.data.edges.sorted_csr` is the plain twin.

Every entry becomes a key, the target in its upper 32 bits and the source in its lower. The keys are scattered into
buckets of consecutive targets, small enough for a core's cache, and each bucket is sorted there by counting, one digit
after another. Two passes read the edges; the scatter writes to one stream a bucket, so no write waits for a cache miss
of its own. The result is the sorted set of entries, whatever the number of threads.

Edges are converted to int64 a piece at a time: any integer type, any strides, and no copy of the whole list.
"""

from __future__ import annotations

import numpy as np

from cvgnn.ops.compilation import njit
from cvgnn.ops.row_sum import Array
from cvgnn.ops.sampling_kernels import mix
from cvgnn.ops.threads import num_threads, run_ranges
from cvgnn.utils.progress import ProgressCallback, no_progress

_PIECE = 1 << 18  # edges that are converted together: 4 MB
_ENTRIES_PER_BUCKET = 1 << 15  # its keys and their sorted copy take half of a core's second-level cache
_MOST_BUCKETS = 1 << 11  # streams that the scatter writes; each needs a cache line and a page of its own
_DIGIT = 11  # bits that one pass of the sort counts
_S32 = np.uint64(32)


def build_csr(
    source: Array, target: Array, weight: Array | None, num_nodes: int, *, directed: bool,
    progress: ProgressCallback = no_progress,
) -> tuple[Array, Array, Array | None] | None:  # fmt: skip
    """CSR of `A` by target: symmetric unless `directed`, without self loops, each entry once.

    Args:
        source, target: integers `[m]` of any type.
        weight: float64 `[m]`, or None.
        num_nodes: `N`.
        directed: leave out the reverse entries; else they are added.
        progress: called with the share that is done.

    Returns:
        indptr int64 `[N+1]`, indices int32 `[E]`, weight float64 `[E]` or None. None in place of all where an id is
        outside `0..N-1` or one entry has two weights: the caller, who can say where, is to report it.
    """
    m = source.size
    weights = np.empty(0) if weight is None else weight
    # A range of edges for each thread: its counts say where its entries of each bucket begin.
    share = max(_PIECE, -(-m // num_threads()))
    ranges = [(first, min(m, first + share)) for first in range(0, m, share)]
    per_bucket = max(_ENTRIES_PER_BUCKET, -(-2 * m // _MOST_BUCKETS))
    shift = _bits(min(num_nodes, num_nodes * per_bucket // max(1, 2 * m)))  # a bucket has up to 2^shift targets
    counts = np.zeros((len(ranges), 2, (max(0, num_nodes - 1) >> shift) + 1), np.int64)
    skew = np.zeros(len(ranges), np.uint64)

    def count(i: int, first: int, last: int) -> None:
        for a, b in _pieces(first, last):
            s, t = _int64(source, a, b), _int64(target, a, b)
            if not _count(s, t, num_nodes, shift, counts[i], skew[i : i + 1]):
                raise _Refused
            if i == 0:
                progress("counting entries", (b - first) / (last - first))

    try:
        run_ranges(count, ranges)
    except _Refused:
        return None
    # A list with both directions of every edge has the same sum of hashes as its reverse, and any other list has
    # another one but for a chance of 2^-64: see `cvgnn.data.structure_check`. Then nothing is to be added.
    mirrored = not directed and (weight is not None or int(skew.sum(dtype=np.uint64)) != 0)
    filled = counts.sum(axis=1) if mirrored else counts[:, 0].copy()
    starts = np.concatenate([[0], np.cumsum(filled.sum(axis=0))])
    heads = starts[:-1] + np.cumsum(filled, axis=0) - filled
    keys = np.empty(int(starts[-1]), np.uint64)
    payload = np.empty(keys.size if weight is not None else 0)

    def scatter(i: int, first: int, last: int) -> None:
        for a, b in _pieces(first, last):
            _scatter(
                _int64(source, a, b), _int64(target, a, b), weights[a:b], shift, mirrored, heads[i], keys, payload
            )  # fmt: skip
            if i == 0:
                progress("distributing entries", (b - first) / (last - first))

    run_ranges(scatter, ranges)

    indptr = np.zeros(num_nodes + 1, np.int64)
    indices = np.empty(keys.size, np.int32)
    sizes = np.zeros(starts.size - 1, np.int64)
    parts = ((0, _bits(num_nodes)), (32, shift))  # of a key: the source, and the target within its bucket
    digits = [(low + d, min(_DIGIT, bits - d)) for low, bits in parts for d in range(0, bits, _DIGIT)]
    plan = np.array(digits, np.uint64).reshape(-1, 2)

    def sort(i: int, first: int, last: int) -> None:
        a, b = int(starts[first]), int(starts[last])
        part = payload[a:b] if weight is not None else payload
        sizes[i] = _sort_bucket(keys[a:b], part, plan, indices[a:b], indptr)
        progress("sorting rows", last / sizes.size)

    run_ranges(sort, [(b, b + 1) for b in range(sizes.size)])
    if (sizes < 0).any():
        return None
    np.cumsum(indptr, out=indptr)
    ends = np.cumsum(sizes)
    if ends[-1] == keys.size:
        return indptr, indices, None if weight is None else payload
    # Duplicates have left gaps between the buckets.
    kept: list[Array] = [np.empty(int(ends[-1]), array.dtype) for array in (indices, payload) if array.size]

    def close(i: int, first: int, last: int) -> None:
        arrays: tuple[Array, ...] = (indices, payload)
        for array, out in zip(arrays, kept, strict=False):
            out[ends[i] - sizes[i] : ends[i]] = array[starts[i] : starts[i] + sizes[i]]

    run_ranges(close, [(b, b + 1) for b in range(sizes.size)])
    return indptr, kept[0], kept[1] if weight is not None else None


class _Refused(Exception):
    """An id is outside the graph."""


def _bits(n: int) -> int:
    """The number of bits of the ids `0..n-1`."""
    return max(0, n - 1).bit_length()


def _pieces(first: int, last: int) -> list[tuple[int, int]]:
    return [(a, min(last, a + _PIECE)) for a in range(first, last, _PIECE)]


def _int64(ids: Array, first: int, last: int) -> Array:
    return np.ascontiguousarray(ids[first:last], np.int64)  # ids of uint64 from 2^63 on become negative


@njit(cache=True, nogil=True)
def _count(source, target, n, shift, counts, skew):  # type: ignore[no-untyped-def]
    """Count the entries of each bucket: `counts[0]` those of edges, `counts[1]` of their reverses.

    `skew[0]` grows by the hashes of all edges less those of their reverses.

    Returns:
        whether all ids are inside `0..n-1`.
    """
    for e in range(source.size):
        u, v = source[e], target[e]
        if u < 0 or u >= n or v < 0 or v >= n:
            return False
        if u != v:
            counts[0, v >> shift] += 1
            counts[1, u >> shift] += 1
            skew[0] += mix(np.uint64(v) << _S32 | np.uint64(u)) - mix(np.uint64(u) << _S32 | np.uint64(v))
    return True


@njit(cache=True, nogil=True)
def _scatter(source, target, weight, shift, mirrored, heads, keys, payload):  # type: ignore[no-untyped-def]
    """Write the keys, and weights where there are any, to their buckets, from `heads` on, which move."""
    for e in range(source.size):
        u, v = source[e], target[e]
        if u == v:
            continue
        at = heads[v >> shift]
        heads[v >> shift] = at + 1
        keys[at] = np.uint64(v) << _S32 | np.uint64(u)
        if weight.size > 0:
            payload[at] = weight[e]
        if mirrored:
            at = heads[u >> shift]
            heads[u >> shift] = at + 1
            keys[at] = np.uint64(u) << _S32 | np.uint64(v)
            if weight.size > 0:
                payload[at] = weight[e]


@njit(cache=True, nogil=True)
def _sort_bucket(keys, payload, plan, indices, indptr):  # type: ignore[no-untyped-def]
    """Sort a bucket, merge equal entries, and count those of each target `v` in `indptr[v + 1]`.

    Args:
        keys, payload: of the bucket; `payload` becomes the weights of the entries that are left, or has size 0.
        plan: uint64 `[passes, 2]`: the lowest bit and the number of bits of each digit, least significant first.
        indices: gets the sources of the entries that are left.

    Returns:
        the number of entries that are left; -1 where one has two weights.
    """
    n, weighted = keys.size, payload.size > 0
    old, new = keys, np.empty(n, np.uint64)
    old_weight, new_weight = payload, np.empty(payload.size, payload.dtype)
    for p in range(plan.shape[0]):
        low, mask = plan[p, 0], (np.uint64(1) << plan[p, 1]) - np.uint64(1)
        head = np.zeros(mask + np.uint64(2), np.int64)
        for e in range(n):
            head[np.int64(old[e] >> low & mask) + 1] += 1
        for d in range(1, head.size):
            head[d] += head[d - 1]
        for e in range(n):
            digit = np.int64(old[e] >> low & mask)
            at = head[digit]
            head[digit] = at + 1
            new[at] = old[e]
            if weighted:
                new_weight[at] = old_weight[e]
        old, new = new, old
        old_weight, new_weight = new_weight, old_weight
    left = 0
    for e in range(n):
        if e > 0 and old[e] == old[e - 1]:
            if weighted and old_weight[e] != old_weight[e - 1]:
                return -1
            continue
        indices[left] = np.int32(np.uint32(old[e]))
        if weighted:
            payload[left] = old_weight[e]  # not behind e, so nothing is lost where both are the same memory
        indptr[np.int64(old[e] >> _S32) + 1] += 1
        left += 1
    return left
