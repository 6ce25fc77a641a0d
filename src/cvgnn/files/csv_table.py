"""Tables in CSV files, read row by row with Python's own csv module."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

import numpy as np

from cvgnn.errors import CvgnnError, require
from cvgnn.files.table import Table, Words


@final
class CsvTable(Table):
    """A CSV file in UTF-8: commas, quotes where needed, the column names in its first line; empty lines are skipped.

    Args:
        path: its file; the first line is read here.
    """

    def __init__(self, path: Path) -> None:
        first = next(_lines(path), None)
        if first is None:
            raise CvgnnError(f"{path} is empty; its first line must name the columns")
        super().__init__(path, [name.strip() for name in first[1]])

    def read(
        self, *, words: Sequence[str], numbers: Sequence[str], dtype: type[np.floating]
    ) -> tuple[dict[str, Words], np.ndarray]:
        """See `Table.read`."""
        # The empty word comes first in every vocabulary, so that subtracting 1 from the codes makes it -1.
        slots: list[tuple[int, array[int], dict[str, int]]] = [
            (self.columns.index(name), array("q"), {"": 0}) for name in words
        ]
        places = [self.columns.index(name) for name in numbers]
        values = array("f" if dtype is np.float32 else "d")
        rows = 0
        for line, row in self._rows():
            for at, codes, vocabulary in slots:
                codes.append(vocabulary.setdefault(row[at], len(vocabulary)))
            try:
                values.extend([float(row[at]) for at in places])
            except ValueError:
                self._refuse_number(line, row, places)
            rows += 1
        found = {
            name: Words(list(vocabulary)[1:], np.array(codes, dtype=np.int64) - 1)
            for name, (_, codes, vocabulary) in zip(words, slots, strict=True)
        }
        matrix = np.frombuffer(values, dtype=dtype) if len(values) else np.empty(0, dtype=dtype)
        matrix = matrix.reshape(rows, len(places))
        self.check_finite(matrix, numbers)
        return found, matrix

    def place(self, row: int) -> str:
        """The line of a row, counted from 1; found by reading again, which only an error message needs."""
        for number, (line, _) in enumerate(self._rows()):
            if number == row:
                return f"line {line}"
        return f"row {row + 1}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        lines = _lines(self.path)
        next(lines)
        for line, row in lines:
            require(
                len(row) == len(self.columns),
                f"{self.path}, line {line}: {len(row)} fields, but the first line names {len(self.columns)} columns",
            )
            yield line, row

    def _refuse_number(self, line: int, row: list[str], places: Sequence[int]) -> None:
        for at in places:
            try:
                float(row[at])
            except ValueError:
                what = f"{row[at][:80]!r} is no number" if row[at] else "nothing where a number must be"
                raise CvgnnError(f"{self.path}, line {line}, column {self.columns[at][:80]!r}: {what}") from None


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a file with the line each ends on, counted from 1; the column names come first."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True, skipinitialspace=True)
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise CvgnnError(f"{path}, line {max(1, reader.line_num)}: {error}") from None
        except UnicodeDecodeError:
            raise CvgnnError(f"{path} is not UTF-8 text (after line {reader.line_num}); save it as UTF-8") from None
