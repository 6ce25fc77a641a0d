"""Ids of nodes, integers or text, to the nodes' numbers: by a hash table in as many parts as memory needs.

Two ids are equal if their texts are, as in `data/io/table_file.py`: 7 in a column of integers is "7" in one of strings.
A key has 63 bits. Nodes with one key are compared by their ids, and another seed is chosen if these differ, so a known
id never gets a wrong number. An unknown id is taken for one of N nodes with probability N / 2^63.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa

from cvgnn.data.io.table_file import OtherTypes, to_integers, whole_numbers
from cvgnn.data.node_ids import as_integers
from cvgnn.ops.id_kernels import UNKNOWN, IdTable, hash_integers, hash_strings
from cvgnn.rng import mix

_CHUNK = 1 << 20


@final
class IdColumn:
    """Removes the .0 that pandas and Excel write after integers, if every cell of the column has it."""

    def __init__(self) -> None:
        self._whole: bool | None = None

    def __call__(self, batch: pa.Array) -> pa.Array:
        """The next batch of the column; `OtherTypes` if it differs from those before, which must be read again."""
        if batch.type == pa.int64() or batch.null_count == len(batch) or self._whole is False:
            return batch
        whole = whole_numbers(batch)
        before, self._whole = self._whole, whole is not None
        if before and whole is None:
            raise OtherTypes
        return batch if whole is None else whole


@final
class IdMap:
    """The numbers of all nodes by their ids.

    Args:
        memory: bytes that a table may take.
        integers: whether the ids of all nodes are integers.
        ordered: whether they are `0..N-1`, which need no table.
        seed: of the hash.
    """

    def __init__(self, memory: int, *, integers: bool = True, ordered: bool = False, seed: int = 0) -> None:
        self.integers, self.ordered, self.seed = integers, ordered, seed
        self._memory = memory
        self._file: Path | None = None
        self.num_nodes = 0
        self._only: IdTable | None = None

    @property
    def parts(self) -> int:
        """In how many parts the table is made."""
        return max(1, -(-IdTable.num_bytes(self.num_nodes) // max(1, self._memory)))

    def set_nodes(self, file: Path, num_nodes: int) -> None:
        """Take the keys of all nodes from a file of uint64, in their order."""
        self._file, self.num_nodes, self._only = file, num_nodes, None

    def free(self) -> None:
        """Give up the memory of the table; it is made again when it is asked for."""
        self._only = None

    def of_kind(self, ids: pa.Array, *, of_nodes: bool = False) -> pa.Array:
        """Ids as int64 if those of all nodes are integers, else as large_string; null where a cell is empty.

        Args:
            ids: int64 or large_string.
            of_nodes: whether these are the nodes. Then `OtherTypes` if not all are integers, contrary to what was
                assumed.
        """
        if not self.integers:
            return ids.cast(pa.large_string())
        found = ids if ids.type == pa.int64() else to_integers(ids)
        if found is None and of_nodes:
            self.integers = False
            raise OtherTypes
        # Text beside integers names no node, but there may be integers among it.
        return pa.array([_integer(text) for text in ids.to_pylist()], pa.int64()) if found is None else found

    def keys(self, ids: pa.Array) -> np.ndarray:
        """The key of each id of `of_kind`, uint64 `[n]`; if the nodes' ids are `0..N-1`, numbers in their place."""
        if self.integers:
            values = ids.fill_null(-1).to_numpy()
            if self.ordered:
                return np.where((values >= 0) & (values < self.num_nodes), values.view(np.uint64), UNKNOWN)
            keys = hash_integers(values, mix(self.seed))
        else:
            _, offsets, data = ids.buffers()
            starts = np.frombuffer(offsets, np.int64)[ids.offset : ids.offset + len(ids) + 1]
            letters = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
            keys = hash_strings(starts, letters, mix(self.seed))
        if ids.null_count:
            keys[ids.is_null().to_numpy(zero_copy_only=False)] = UNKNOWN
        return keys

    def tables(self) -> Iterator[tuple[IdTable, np.ndarray]]:
        """The table part by part; each with the pairs of nodes that have one key, int64 `[k, 2]`."""
        assert self._file is not None
        parts = self.parts
        for part in range(parts):
            if self._only is not None:
                yield self._only, np.empty((0, 2), np.int64)
                return
            table, twice = IdTable(self.num_nodes, part, parts), []
            with self._file.open("rb") as file:
                for row in range(0, self.num_nodes, _CHUNK):
                    twice.append(table.insert(np.fromfile(file, np.uint64, _CHUNK), row))
            if parts == 1:
                self._only = table
            yield table, np.concatenate([np.empty((0, 2), np.int64), *twice])

    def resolve(self, keys: np.ndarray) -> np.ndarray:
        """The number of each key's node, int64, negative where there is none; for a table in one part."""
        if not self.ordered:
            for table, _ in self.tables():
                table.resolve(keys)
        return keys.view(np.int64)


def _integer(text: str | None) -> int | None:
    found = None if text is None else as_integers([text])
    return found[0] if found else None
