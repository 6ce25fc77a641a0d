"""A table of a graph's folder; `csv_file.py` and `columnar_file.py` have the kinds of files."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pyarrow.types as pt

from cvgnn.data.io.cell_values import Cells, is_code, to_numbers, without_gaps
from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.size_checks import FileError, check_memory, reading

_ARROW_ROWS = 1 << 19
_MAX_NAME = 1000  # characters; names are kept in an array as wide as the longest
_MISSING = "nothing where a number must be"
_SNIFFED_ROWS = 1000
_WHOLE = r"^(-?(?:0|[1-9][0-9]*))\.0+$"  # an integer as pandas and Excel write it after a cell was missing
_MAX_FLOAT = float(np.finfo(np.float32).max)
_log = logging.getLogger(__name__)


class OtherTypes(Exception):
    """A cell does not have the type that its column was read with: read the table again, it will choose another."""


class TableFile(ABC):
    """A table with named columns.

    Args:
        path: its file.
        columns: the names of its columns; one without a name gets its number, and is in `unnamed`.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = tuple(name or f"column {i}" for i, name in enumerate(columns, 1))
        # pandas writes its row numbers under no name, and reads them as "Unnamed: 0".
        self.unnamed = {c for c, name in zip(self.columns, columns, strict=True) if not name or "Unnamed: " in name}
        self.twice = [name for name, count in Counter(self.columns).items() if count > 1]
        self.lost_rows = 0
        """Rows that could not be read, or whose names are wrong; they were noted as mistakes."""
        self._text: set[str] = set()  # columns that `read_batches` has found to hold text

    def read_columns(
        self, *, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> tuple[dict[str, pa.Array], dict[str, Cells]]:
        """Read columns of any kind.

        Args:
            names: columns of ids, labels and other names.
            numbers: columns that must hold numbers; other cells are mistakes.
            others: columns of any kind.
            mistakes: gets the rows and cells that cannot be read.

        Returns:
            The names: int64 if all values are integers, else large_string ("007" is no integer), null where the cell
            is empty. And the cells of the other columns, those in `GAPS` missing: float64 where all are numbers, else
            large_string, or a matrix where a cell holds a list of numbers.
        """
        columns = self._load(names, numbers, others, mistakes)
        cells = {n: self._cells(columns.pop(n), n, n in numbers, mistakes) for n in (*numbers, *others)}
        cells |= {n: plain for n in others if (plain := _plain_numbers(cells[n])) is not None}
        return {n: self._names(self._plain_names(columns.pop(n), n, mistakes), n) for n in names}, cells

    def read_batches(
        self, *, names: Sequence[str] = (), numbers: Sequence[str] = (), others: Sequence[str] = (), mistakes: Mistakes
    ) -> Iterator[tuple[dict[str, pa.Array], dict[str, Cells]]]:
        """`read_columns` batch by batch, in bounded memory.

        A batch does not know the column: names that look like integers may be strings here, and are then null where a
        cell is empty. `OtherTypes` means that all batches must be read again: other cells are numbers in all of them,
        or text.
        """
        mistakes.offset = 0
        numeric: set[str] = set()
        for columns in self._batches(names, numbers, others, mistakes):
            rows = len(next(iter(columns.values())))
            cells = {n: self._cells(columns.pop(n), n, n in numbers, mistakes) for n in (*numbers, *others)}
            plain = {n: _plain_numbers(cells[n]) for n in others if n not in self._text}
            self._text |= {n for n, found in plain.items() if found is None}
            if numeric & self._text:
                raise OtherTypes
            numeric |= plain.keys() - self._text
            cells |= {n: plain[n] for n in numeric}
            yield {n: self._plain_names(columns.pop(n), n, mistakes) for n in names}, cells
            mistakes.offset += rows
        mistakes.offset = 0

    @abstractmethod
    def _batches(
        self, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> Iterator[dict[str, pa.Array]]:
        """The columns as they are in the file, batch by batch."""

    @abstractmethod
    def estimate_rows(self) -> int:
        """About how many rows the table has, without reading it."""

    def width(self, name: str) -> int:
        """The length of the lists in a column of lists, by its first row; 0 for other columns."""
        return 0

    def _load(
        self, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> dict[str, pa.Array]:
        """The columns as they are in the file."""
        while True:
            found: dict[str, list[pa.Array]] = {name: [] for name in (*names, *numbers, *others)}
            size = 0
            try:
                for batch in self._batches(names, numbers, others, mistakes):
                    for name, column in batch.items():
                        found[name].append(column)
                        size += column.nbytes
                    with reading(self.path):
                        check_memory(size)  # again what is there already: it is put together below
            except OtherTypes:
                continue
            return {name: _one_array(pa.chunked_array(parts)) if parts else pa.array([], pa.large_string())
                    for name, parts in found.items()}  # fmt: skip

    @abstractmethod
    def places(self, rows: Sequence[int]) -> dict[int, str]:
        """The positions of rows, counted from 0, in the file, for messages."""

    def message(self, place: str, column: str, what: str) -> str:
        """The message about a cell, or about a whole column where `place` is empty."""
        return f"{self.path}, {place}{', ' if place else ''}column {column[:80]!r}: {what}"

    def error(self, column: str, what: str) -> FileError:
        """The error about a whole column."""
        return FileError(self.message("", column, what))

    def require(self, condition: bool, what: str) -> None:
        """Raise an error about the table as a whole unless `condition` holds."""
        if not condition:
            raise FileError(f"{self.path} {what}")

    def _cells(self, column: pa.Array, name: str, number: bool, mistakes: Mistakes) -> Cells:
        kind, length = column.type, len(column)
        if is_list(kind):
            matrix = self._matrix(column, name, mistakes)
            return np.full(length, np.nan) if matrix is None else matrix
        if _is_number(kind) or pt.is_decimal(kind) or pt.is_null(kind):
            return self._finite(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), name, mistakes)
        text, date = pt.is_string(kind) or pt.is_large_string(kind), pt.is_date(kind) or pt.is_timestamp(kind)
        if not (text or (date and not number)):
            wanted = "numbers" if number else "numbers, strings, dates or lists of numbers"
            hint = f"holds {str(kind)[:80]}; it must hold {wanted}; name it in --ignore to leave it out"
            mistakes.note(str(self.error(name, hint)))
            return np.full(length, np.nan)
        if date:
            column = column.cast(pa.timestamp("us"), safe=False)
        column = without_gaps(column.cast(pa.large_string()))
        if not number:
            return column
        values = to_numbers(column)
        bad = np.isnan(values) & column.is_valid().to_numpy(zero_copy_only=False)
        mistakes.cells(self, np.flatnonzero(bad), name, lambda row: f"{column[row].as_py()[:80]!r} is no number")
        return self._finite(np.where(bad, 1.0, values), name, mistakes)  # told once: from here on it is a number

    def _finite(self, values: np.ndarray, name: str, mistakes: Mistakes) -> np.ndarray:
        """The values; those that float32 cannot hold are mistakes."""
        with np.errstate(over="ignore", invalid="ignore"):
            bad = np.flatnonzero(np.abs(values) > _MAX_FLOAT)
        mistakes.cells(self, bad, name, lambda row: f"{np.sign(values[row]) * np.inf} is not a finite number")
        return values

    def _matrix(self, column: pa.Array, name: str, mistakes: Mistakes) -> np.ndarray | None:
        """Lists of numbers as float32 `[rows, width]`; None where some are wrong."""
        if not _is_number(column.type.value_type):
            mistakes.note(str(self.error(name, f"holds {str(column.type)[:80]}; lists must hold numbers")))
            return None
        lengths = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
        width = int(lengths[0]) if len(lengths) else 0
        ragged = np.flatnonzero(lengths != width) if width >= 0 else np.flatnonzero(lengths < 0)

        def what(row: int) -> str:
            return _MISSING if lengths[row] < 0 else f"{lengths[row]} numbers, but the first row has {width}"

        mistakes.cells(self, ragged, name, what)
        if ragged.size:
            return None
        flat = column.flatten()
        gaps = flat.is_null().to_numpy(zero_copy_only=False).reshape(-1, width).any(axis=1)
        mistakes.cells(self, np.flatnonzero(gaps), name, lambda _: _MISSING)
        with np.errstate(over="ignore"):
            matrix = flat.to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, width)
        bad = ~np.isfinite(matrix)
        rows = np.flatnonzero(bad.any(axis=1) & ~gaps)
        mistakes.cells(self, rows, name, lambda row: f"{matrix[row][bad[row]][0]} is not a finite number")
        return None if gaps.any() or rows.size else matrix

    def _plain_names(self, column: pa.Array, name: str, mistakes: Mistakes) -> pa.Array:
        """Names as int64, or as large_string; null where a cell is empty. Each cell for itself."""
        kind = column.type
        if pt.is_floating(kind):  # pandas turns integers into floats when one is missing
            values = column.to_numpy(zero_copy_only=False).astype(np.float64)
            gone = np.isnan(values)
            bad = np.flatnonzero(~gone & ((values != np.floor(values)) | (np.abs(values) > 2**53)))
            mistakes.cells(self, bad, name, lambda row: f"{values[row]} is neither an integer nor a string")
            self.lost_rows += len(bad)
            values[gone] = 0
            return column.cast(pa.large_string()) if bad.size else pa.array(values.astype(np.int64), mask=gone)
        if not any(is_kind(kind) for is_kind in _NAME_KINDS):
            raise self.error(name, f"holds {str(kind)[:80]}; it must hold integers or strings")
        if pt.is_integer(kind) and (integers := _as_int64(column)) is not None:
            return integers
        text = column.cast(pa.large_string())
        lengths = pc.utf8_length(text).fill_null(0).to_numpy(zero_copy_only=False)
        if not lengths.all():
            text = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
        bad, what = np.flatnonzero(lengths > _MAX_NAME), f"characters; at most {_MAX_NAME} are allowed"
        mistakes.cells(self, bad, name, lambda row: f"{lengths[row]} {what}")
        self.lost_rows += len(bad)
        return text

    def _names(self, text: pa.Array, name: str) -> pa.Array:
        """A column of names, as `read_columns` returns them: the whole column decides whether they are integers."""
        if text.type == pa.int64():
            return text
        whole = whole_numbers(text)
        if whole is not None:
            _log.info("%s: column %r holds integers, written as 1.0", self.path.name, name)
            text = whole
        found = to_integers(text)
        return text if found is None else found


def whole_numbers(text: pa.Array) -> pa.Array | None:
    """The text without the .0 that pandas and Excel write after each integer; None if a cell has none."""
    # The first rows are tried first: Arrow looks at the whole column before it refuses it.
    for part in (text[:_SNIFFED_ROWS], text):
        if part.null_count == len(part) or not pc.all(pc.match_substring_regex(part, _WHOLE)).as_py():
            return None
    return pc.replace_substring_regex(text, _WHOLE, r"\1")


def to_integers(text: pa.Array) -> pa.Array | None:
    """int64; None if a cell is no integer in its usual form: "007", "+7", "7 " and "0x7" are other ids than "7"."""
    integers = None if _as_int64(text[:_SNIFFED_ROWS]) is None else _as_int64(text)
    return integers if integers is not None and integers.cast(text.type).equals(text) else None


def categories(column: pa.Array) -> tuple[list[str], np.ndarray]:
    """The different values of a column as text, in order of first appearance; and the code of each row, int64
    `[rows]`, its value's position among them, -1 where the cell is empty."""
    encoded = column if pt.is_dictionary(column.type) else column.cast(pa.large_string()).dictionary_encode()
    return encoded.dictionary.to_pylist(), _filled(encoded.indices)


def positions(column: pa.Array, ids: pa.Array) -> np.ndarray:
    """int64 `[rows]`: the first position of each row's value in `ids`; -1 where it is missing or the cell is empty."""
    if column.type == ids.type == pa.int64() and len(ids) and not column.null_count and not ids.null_count:
        keys, values = ids.to_numpy(), column.to_numpy()
        low, width = int(keys.min()), int(keys.max()) - int(keys.min()) + 1
        if width <= 4 * len(keys) + 1024:  # a table of all ids is ten times faster than hashing
            at = np.full(width, -1, dtype=np.int64)
            at[keys[::-1] - low] = np.arange(len(keys))[::-1]  # the first of equal ones is written last
            inside = (values >= low) & (values < low + width)
            found: np.ndarray = at[values - low] if inside.all() else at[np.where(inside, values - low, 0)]
            return found if inside.all() else np.where(inside, found, -1)
    if column.type != ids.type:
        column, ids = column.cast(pa.large_string()), ids.cast(pa.large_string())
    return _filled(pc.index_in(column, value_set=ids, skip_nulls=True))


def _filled(indices: pa.Array) -> np.ndarray:
    filled: np.ndarray = indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return filled


def _as_int64(column: pa.Array) -> pa.Array | None:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:  # not integers, or beyond 64 bits
        return None


def _plain_numbers(text: Cells) -> np.ndarray | None:
    """The cells as numbers; None where one is no number, too large, or a code such as 007."""
    if isinstance(text, np.ndarray):
        return text
    try:
        found: np.ndarray = text.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    odd = pc.any(is_code(text)).as_py() or bool((np.abs(found) > _MAX_FLOAT).any())
    return None if odd else found


_NAME_KINDS = (pt.is_integer, pt.is_null, pt.is_string, pt.is_large_string, pt.is_boolean)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether cells of this type hold lists."""
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
