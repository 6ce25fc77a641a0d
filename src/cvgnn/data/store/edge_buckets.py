"""Edges of any number to the rows of `A`: spread over files by target, then sorted file by file.

An entry `A[v, u]` is the integer `v << 32 | u`, its key. A bucket is a range of keys, so one that does not fit into
memory, because of a node with very many neighbors, is cut into smaller ranges in the same way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, final

import numpy as np

from cvgnn.errors import CvgnnError
from cvgnn.ops.id_kernels import group_entries
from cvgnn.utils import atomic_files

MAX_BUCKETS = 256  # files that are open at once
_CHUNK = 1 << 20
_SORT_BYTES = 24  # for each entry while a bucket is sorted: keys, mask, the keys that stay
_WEIGHT_BYTES = 40  # more with weights: two copies, the order, weights that stay


def entry_bytes(weighted: bool) -> int:
    """Bytes of an entry on disk."""
    return 16 if weighted else 8


@final
class EdgeBuckets:
    """Entries of `A` in files, each a range of `2^shift` keys from `low` on.

    Args:
        folder: for the files.
        low, shift: of the ranges.
        count: how many.
        weighted: whether entries have a weight.
    """

    def __init__(self, folder: Path, *, low: int, shift: int, count: int, weighted: bool) -> None:
        self._folder, self._low, self._shift, self.count, self._weighted = folder, low, shift, count, weighted
        self._files: list[tuple[BinaryIO, ...]] = []

    @classmethod
    def plan(cls, folder: Path, num_nodes: int, entries: int, memory: int, *, weighted: bool) -> EdgeBuckets:
        """Buckets of equal numbers of nodes, so many that a bucket of mean size takes half of `memory` to sort."""
        wanted = min(MAX_BUCKETS, -(-2 * entries * _bytes_to_sort(weighted) // max(1, memory)))
        bits = 0
        while -(-num_nodes >> bits) > max(1, wanted):
            bits += 1
        return cls(folder, low=0, shift=32 + bits, count=-(-num_nodes >> bits), weighted=weighted)

    def layout(self) -> dict[str, int | bool]:
        """The arguments, for a manifest."""
        return {"low": self._low, "shift": self._shift, "count": self.count, "weighted": self._weighted}

    def path(self, bucket: int) -> Path:
        """The file of a bucket's keys."""
        return self._folder / f"{bucket}.keys"

    def _weights(self, bucket: int) -> Path:
        return self._folder / f"{bucket}.weights"

    def nodes(self, bucket: int) -> tuple[int, int]:
        """The first target of a bucket and the one after its last; a bucket of `plan` has whole rows."""
        first = self._low + (bucket << self._shift)
        return first >> 32, (first + (1 << self._shift)) >> 32

    def open(self, stack: ExitStack) -> None:
        """Create the files."""
        self._folder.mkdir(exist_ok=True)
        for bucket in range(self.count):
            paths = (self.path(bucket), self._weights(bucket)) if self._weighted else (self.path(bucket),)
            self._files.append(tuple(stack.enter_context(path.open("wb", buffering=0)) for path in paths))

    def add(self, keys: np.ndarray, weight: np.ndarray | None) -> None:
        """Add entries: keys int64 `[n]`, weights float64 `[n]`."""
        keys, weight, starts = group_entries(keys, weight, self._low, self._shift, self.count)
        for files, (a, b) in zip(self._files, itertools.pairwise(starts.tolist()), strict=True):
            if b > a:
                atomic_files.write(files[0], keys[a:b].data)
                if weight is not None:
                    atomic_files.write(files[1], weight[a:b].data)

    def remove(self, bucket: int) -> None:
        """Delete the files of a bucket."""
        self.path(bucket).unlink(missing_ok=True)
        self._weights(bucket).unlink(missing_ok=True)

    def sorted(self, bucket: int, memory: int) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
        """The entries of a bucket, ascending, each once, in one piece or more.

        Args:
            bucket: which.
            memory: bytes to sort in.

        Yields:
            Keys int64, weights float64 or None, and the keys of entries that have two weights.
        """
        size = self.path(bucket).stat().st_size // 8
        if size * _bytes_to_sort(self._weighted) <= memory or size <= _CHUNK // 16:
            keys = np.fromfile(self.path(bucket), np.int64)
            yield _sort(keys, np.fromfile(self._weights(bucket)) if self._weighted else None)
            return
        if not self._shift:
            raise CvgnnError(f"an edge is listed {size} times, more than fit into memory; list it once, or give more")
        bits = min(self._shift, MAX_BUCKETS.bit_length() - 1)
        inner = EdgeBuckets(
            self._folder / f"{bucket}.parts", low=self._low + (bucket << self._shift), shift=self._shift - bits,
            count=1 << bits, weighted=self._weighted,
        )  # fmt: skip
        with ExitStack() as stack:
            inner.open(stack)
            with self.path(bucket).open("rb") as file, self._weights_or_keys(bucket).open("rb") as others:
                while (keys := np.fromfile(file, np.int64, _CHUNK)).size:
                    inner.add(keys, np.fromfile(others, np.float64, _CHUNK) if self._weighted else None)
        for part in range(inner.count):
            yield from inner.sorted(part, memory)
            inner.remove(part)

    def _weights_or_keys(self, bucket: int) -> Path:
        return self._weights(bucket) if self._weighted else self.path(bucket)


def _bytes_to_sort(weighted: bool) -> int:
    return _SORT_BYTES + (_WEIGHT_BYTES if weighted else 0)


def _sort(keys: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    if weight is None:
        keys.sort()
    else:
        order = np.argsort(keys)  # not stable: equal entries must have equal weights
        keys, weight = keys[order], weight[order]
    first = np.ones(keys.size, dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    conflict = np.empty(0, np.int64)
    if weight is not None:
        conflict = np.unique(keys[1:][~first[1:] & (weight[1:] != weight[:-1])])
        weight = weight[first]
    return keys if first.all() else keys[first], weight, conflict
