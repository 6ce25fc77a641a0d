"""Compiled parts of streaming ingest: ids to node numbers by a hash table, and edges grouped into buckets.

A key is a hash of an id in 63 bits, with the top bit set. A key that was found becomes the node's number in the same
place, without that bit: what is negative as int64 is not resolved. So a table that does not fit into memory is built
and asked part by part, over keys that lie in a file. A part is chosen by the upper half of a key, a slot by the lower.

`tests/ops/test_id_kernels.py` has the same in plain Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvgnn.ops.compilation import njit
from cvgnn.ops.sampling_kernels import mix
from cvgnn.ops.threads import run_rows

UNKNOWN = np.uint64(1 << 63)
"""Set in a key until it is resolved; alone, the key of no id."""

SLOT_BYTES = 16
_SLOTS_PER_KEY = 1.6
_ONE = np.uint64(1)
_S32, _S31 = np.uint64(32), np.uint64(31)
_LOW, _LOW31 = np.uint64(0xFFFFFFFF), np.uint64(0x7FFFFFFF)
_MOST_TWICE = 64


@njit(cache=True, nogil=True)
def _key(z):  # type: ignore[no-untyped-def]
    key = mix(z) | UNKNOWN
    return key if key != UNKNOWN else key | _ONE  # mix(0) is 0


@njit(cache=True, nogil=True)
def _hash_strings(offsets, data, seed, first, last, keys):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        h = seed
        j, end = offsets[i], offsets[i + 1]
        while j + 8 <= end:  # LLVM makes one load of it
            word = np.uint64(0)
            for b in range(8):
                word |= np.uint64(data[j + b]) << np.uint64(8 * b)
            h = mix(h ^ word)
            j += 8
        word = np.uint64(end - offsets[i])
        while j < end:
            word = (word << np.uint64(8)) | np.uint64(data[j])
            j += 1
        keys[i] = _key(h ^ word)


@njit(cache=True, nogil=True)
def _hash_integers(values, seed, first, last, keys):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        keys[i] = _key(seed ^ np.uint64(values[i]))


@njit(cache=True, nogil=True)
def _place(key, part, parts, slots):  # type: ignore[no-untyped-def]
    """The first slot of a key, -1 if it belongs to another part."""
    if (((key >> _S32) & _LOW31) * np.uint64(parts)) >> _S31 != np.uint64(part):
        return np.int64(-1)
    return np.int64(((key & _LOW) * np.uint64(slots)) >> _S32)


@njit(cache=True, nogil=True)
def _insert(keys, row, part, parts, table, twice):  # type: ignore[no-untyped-def]
    found = 0
    for i in range(keys.size):
        slot = _place(keys[i], part, parts, table.shape[0])
        if slot < 0:
            continue
        while table[slot, 0] != 0 and table[slot, 0] != keys[i]:
            slot = slot + 1 if slot + 1 < table.shape[0] else 0
        if table[slot, 0] == 0:
            table[slot, 0], table[slot, 1] = keys[i], row + i
        elif found < twice.shape[0]:
            twice[found, 0], twice[found, 1] = table[slot, 1], row + i
            found += 1
    return found


@njit(cache=True, nogil=True)
def _resolve(keys, part, parts, table, first, last):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        if keys[i] & UNKNOWN == 0:
            continue
        slot = _place(keys[i], part, parts, table.shape[0])
        if slot < 0:
            continue
        while table[slot, 0] != 0 and table[slot, 0] != keys[i]:
            slot = slot + 1 if slot + 1 < table.shape[0] else 0
        if table[slot, 0] != 0:
            keys[i] = table[slot, 1]


@njit(cache=True, nogil=True)
def _group(keys, weight, low, shift, starts, grouped, grouped_weight):  # type: ignore[no-untyped-def]
    for i in range(keys.size):
        bucket = (keys[i] - low) >> shift
        at = starts[bucket]
        starts[bucket] = at + 1
        grouped[at] = keys[i]
        if weight.size:
            grouped_weight[at] = weight[i]


@njit(cache=True, nogil=True)
def _count(keys, low, shift, counts):  # type: ignore[no-untyped-def]
    for i in range(keys.size):
        counts[(keys[i] - low) >> shift] += 1


def hash_strings(offsets: np.ndarray, data: np.ndarray, seed: int) -> np.ndarray:
    """Keys, uint64 `[n]`, of strings.

    Args:
        offsets: int64 `[n + 1]`.
        data: uint8; string `i` is `data[offsets[i]:offsets[i + 1]]`.
        seed: of the hash.
    """
    keys = np.empty(offsets.size - 1, np.uint64)
    run_rows(lambda a, b: _hash_strings(offsets, data, np.uint64(seed), a, b, keys), keys.size, width=8)
    return keys


def hash_integers(values: np.ndarray, seed: int) -> np.ndarray:
    """Keys, uint64 `[n]`, of integers, int64 `[n]`."""
    keys = np.empty(values.size, np.uint64)
    run_rows(lambda a, b: _hash_integers(values, np.uint64(seed), a, b, keys), keys.size, width=1)
    return keys


class IdTable:
    """A hash table of one part of the nodes, by open addressing: key and number side by side, one cache miss a look.

    Args:
        num_keys: of all nodes.
        part, parts: which part of the nodes.
    """

    def __init__(self, num_keys: int, part: int = 0, parts: int = 1) -> None:
        self._part, self._parts = part, parts
        # Parts differ in size by a few standard deviations of a binomial.
        share = num_keys / parts
        self._table = np.zeros((int(_SLOTS_PER_KEY * (share + 8 * share**0.5)) + 64, 2), np.uint64)

    @staticmethod
    def num_bytes(num_keys: int) -> int:
        """About the size of one table for all nodes."""
        return int(num_keys * _SLOTS_PER_KEY * SLOT_BYTES)

    def insert(self, keys: np.ndarray, row: int) -> np.ndarray:
        """Add the nodes `row..row + n - 1`.

        Args:
            keys: uint64 `[n]`; those of other parts are left out.
            row: the number of the first.

        Returns:
            int64 `[k, 2]`: pairs of nodes with one key, the first 64.
        """
        twice = np.empty((_MOST_TWICE, 2), np.int64)
        return twice[: _insert(keys, row, self._part, self._parts, self._table, twice)]

    def resolve(self, keys: np.ndarray) -> None:
        """Replace the keys, uint64 `[n]`, of this part's nodes by their numbers."""
        table = self._table
        run_rows(lambda a, b: _resolve(keys, self._part, self._parts, table, a, b), keys.size, width=16)


def group_entries(
    keys: np.ndarray, weight: np.ndarray | None, low: int, shift: int, num_buckets: int
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Group entries by `(key - low) >> shift`, by a counting sort.

    Args:
        keys: int64 `[n]`.
        weight: float64 `[n]`, or None.
        low, shift: of the buckets.
        num_buckets: how many there are.

    Returns:
        Keys and weights bucket after bucket, each in the given order; and int64 `[num_buckets + 1]`, where each begins.
    """
    counts = np.zeros(num_buckets, np.int64)
    _count(keys, low, shift, counts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    none = np.empty(0)
    grouped: np.ndarray = np.empty_like(keys)
    weights: Any = none if weight is None else np.empty_like(weight)
    _group(keys, none if weight is None else weight, low, shift, starts[:-1].copy(), grouped, weights)
    return grouped, None if weight is None else weights, starts
