"""Tables of a graph's folder that are not one file of columns: a folder of such files, or a `.npy` array."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa

from cvgnn.data.io.csv_file import CsvFile
from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.npy import DAMAGE, read_header
from cvgnn.data.io.size_checks import FileError, reading
from cvgnn.data.io.table_file import TableFile

_NPY_ENTRIES = 1 << 20


@final
class TableParts(TableFile):
    """A table in many files, as other programs write it: their rows one after another, in the order of their names.

    Args:
        path: the folder.
        parts: the files, which have the same columns.
    """

    def __init__(self, path: Path, parts: Sequence[TableFile]) -> None:
        first = parts[0]
        for part in parts:
            if part.columns != first.columns:
                raise FileError(f"{part.path} has other columns than {first.path.name}; all files there need the same")
            if isinstance(part, CsvFile) and isinstance(first, CsvFile):
                first.attempt = max(first.attempt, part.attempt)
                part.first = first
        super().__init__(path, first.columns)
        self.unnamed = first.unnamed
        self._parts = parts
        self._ends: list[int] = []
        """Rows before the end of each part, as far as they were read."""

    def _batches(
        self, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> Iterator[dict[str, pa.Array]]:
        count, self._ends = 0, []
        for part in self._parts:
            for batch in part._batches(names, numbers, others, mistakes):
                count += len(next(iter(batch.values())))
                yield batch
            self._ends.append(count)
        self.lost_rows += sum(part.lost_rows for part in self._parts)

    def estimate_rows(self) -> int:
        """See `TableFile.estimate_rows`."""
        return sum(part.estimate_rows() for part in self._parts)

    def width(self, name: str) -> int:
        """See `TableFile.width`."""
        return self._parts[0].width(name)

    def places(self, rows: Sequence[int]) -> dict[int, str]:
        """The file of each row, and its place there."""
        found: dict[int, str] = {}
        part_of = {row: bisect.bisect_right(self._ends, row) for row in rows}
        for i, group in itertools.groupby(sorted(rows), key=part_of.__getitem__):
            part, start = self._parts[i], self._ends[i - 1] if i else 0
            places = part.places([row - start for row in group])
            found |= {row + start: f"{part.path.name}, {place}" for row, place in places.items()}
        return found


@final
class NpyTable(TableFile):
    """`edges.npy`, integers `[2, m]` or `[m, 2]`: source and target; or a matrix of features `[N, F]`, whose rows are
    in the order of the nodes: one column of lists, `x`.

    Args:
        path: the file; its header is read here.
    """

    def __init__(self, path: Path) -> None:
        try:
            with reading(path), path.open("rb") as stream:
                header = read_header(stream, path.name, path.stat().st_size)
        except DAMAGE as error:
            raise FileError(f"{path} is damaged, or no .npy file ({error})") from None
        shape, edges = header.shape, path.stem == "edges"
        super().__init__(path, ("source", "target") if edges else ("x",))
        wanted = "integers of shape [2, m] or [m, 2]" if edges else "numbers of shape [N, F]"
        good = len(shape) == 2 and header.dtype.kind in ("iu" if edges else "biuf") and (not edges or 2 in shape)
        self.require(good, f"holds {header.dtype} of shape {list(shape)}; it must hold {wanted}")
        self._edges, self._by_rows = edges, not edges or shape[0] != 2
        self._rows = shape[0 if self._by_rows else 1]
        self._width = 2 if edges else shape[1]

    def _batches(
        self, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> Iterator[dict[str, pa.Array]]:
        step = max(1, _NPY_ENTRIES // max(1, self._width))
        for first in range(0, self._rows, step):
            # Mapped anew for each batch: pages of a mapped file count as memory of the process as long as it is mapped.
            array = np.load(self.path, mmap_mode="r")
            batch = np.array(array[first : first + step] if self._by_rows else array[:, first : first + step].T)
            if self._edges:
                column = {name: pa.array(np.ascontiguousarray(batch[:, i])) for i, name in enumerate(self.columns)}
                yield {name: column[name] for name in (*names, *numbers, *others)}
            else:
                yield {"x": pa.FixedSizeListArray.from_arrays(pa.array(batch.reshape(-1)), self._width)}

    def estimate_rows(self) -> int:
        """See `TableFile.estimate_rows`."""
        return self._rows

    def width(self, name: str) -> int:
        """The number of features."""
        return self._width

    def places(self, rows: Sequence[int]) -> dict[int, str]:
        """The numbers of rows, counted from 0 as in numpy."""
        return {row: f"edge {row}" if self._edges else f"row {row}" for row in rows}
