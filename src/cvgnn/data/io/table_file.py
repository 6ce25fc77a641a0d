"""Reads one table of a graph's folder, a CSV or a Parquet file, with pyarrow."""

from __future__ import annotations

import csv
import io
import logging
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pyarrow.types as pt

from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.preprocessing import Cells, to_numbers
from cvgnn.data.io.size_checks import FileError, check_memory, reading
from cvgnn.errors import CvgnnError
from cvgnn.utils.formatting import join_printable

_BATCH_ROWS = 4096  # of the csv module
_ARROW_ROWS = 1 << 19
_CSV_BLOCK = 1 << 24  # bytes; pyarrow parses parts of it in parallel, and needs a whole row in one part
_CSV_PARTS = 4
BY_CSV_MODULE = 3  # the last attempt of `CsvFile._types_to_try`
_MAX_NAME = 1000  # characters; names are kept in an array as wide as the longest
_MISSING = "nothing where a number must be"
_DELIMITERS = ",;\t|"
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_SNIFFED_ROWS = 1000
_SNIFFED_BYTES = 1 << 20
_WHOLE = r"^(-?(?:0|[1-9][0-9]*))\.0+$"  # an integer as pandas and Excel write it after a cell was missing
GAPS = (
    "", "NA", "N/A", "n/a", "n.a.", "#N/A", "<NA>", "NaN", "nan", "NAN", "null", "NULL", "Null", "#NULL!", "None", "?",
    "-", "--",
)  # fmt: skip
"""What a missing cell may hold."""
_MAX_FLOAT = float(np.finfo(np.float32).max)
_OTHER_FORMATS = {
    b"PK\x03\x04": "an Excel workbook or a zip archive; save it as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel workbook; save it as CSV",
    b"\x1f\x8b": "compressed by gzip; name it {name}.gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; name it {name}.zst",
    b"PAR1": "a Parquet file; name it {stem}.parquet",
    b"<": "HTML or XML, perhaps the page of a failed download; save it as CSV",
    b"{": "JSON; save it as CSV",
    b"[": "JSON; save it as CSV",
}
"""How files begin that are no CSV, and what to do."""
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
        return {n: self._names(self._plain_names(columns.pop(n), n, mistakes), n) for n in names}, cells

    def read_batches(
        self, *, names: Sequence[str] = (), numbers: Sequence[str] = (), others: Sequence[str] = (), mistakes: Mistakes
    ) -> Iterator[tuple[dict[str, pa.Array], dict[str, Cells]]]:
        """`read_columns` batch by batch, in bounded memory.

        A batch does not know the column: names that look like integers may be strings here, and are then null where a
        cell is empty. `OtherTypes` means that all batches must be read again.
        """
        mistakes.offset = 0
        for columns in self._batches(names, numbers, others, mistakes):
            rows = len(next(iter(columns.values())))
            cells = {n: self._cells(columns.pop(n), n, n in numbers, mistakes) for n in (*numbers, *others)}
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
        if _is_list(kind):
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
        column = _without_gaps(column.cast(pa.large_string()))
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


@final
class CsvFile(TableFile):
    """A CSV file: quotes where needed, the column names in its first line; empty lines are skipped.

    The delimiter is the comma, semicolon, tab or bar that gives the first line most fields. The text is UTF-8, or
    UTF-16 if it begins with that mark, else Windows-1252. A file whose name ends in .gz or .zst is unpacked while it is
    read.

    pyarrow reads it. Python's csv module, some thirty times slower, reads a file that pyarrow refuses or would
    understand otherwise: it finds the line of an error, and it is strict about quotes.

    Args:
        path: its file; the first line is read here.
    """

    def __init__(self, path: Path) -> None:
        self._compression = _COMPRESSIONS.get(path.suffix)
        self.path = path
        self.first: CsvFile = self
        """The file of the same table whose first rows choose the types, and that counts the `attempt`."""
        with reading(path), self._binary() as stream:
            start = self._read(stream, _SNIFFED_BYTES)
        for magic, what in _OTHER_FORMATS.items():
            if start.startswith(magic):
                raise FileError(f"{path} is no CSV file but {what.format(name=path.name, stem=path.stem)}")
        self.encoding, bad_line = _encoding(start)
        self.attempt = 0 if self.encoding == "utf-8-sig" else BY_CSV_MODULE
        if b"\0" in start and not self.encoding.startswith("utf-16"):
            raise FileError(f"{path} is no CSV file: it holds zero bytes, as binary files do")
        first = start.decode(self.encoding, "replace").lstrip("\ufeff\r\n").partition("\n")[0].partition("\r")[0]
        if first[:4] == "sep=":
            raise FileError(f"{path}, line 1: {first[:20]!r} is a note of Excel's; remove the line")
        fields = {d: len(next(csv.reader([first], delimiter=d, skipinitialspace=True), ())) for d in _DELIMITERS}
        self.delimiter = max(fields, key=fields.__getitem__)
        self._header_lines, self._header = next(self._csv_rows(), (0, []))
        self._header_lines += sum(name.count("\n") for name in self._header)
        if not any(name.strip() for name in self._header):
            raise FileError(f"{path} is empty; its first line must name the columns")
        super().__init__(path, [name.strip() for name in self._header])
        if bad_line:
            _log.warning("%s is not UTF-8 (line %d); it is read as Windows-1252", path, bad_line)

    def _batches(
        self, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> Iterator[dict[str, pa.Array]]:
        choices = self._types_to_try(names, numbers, others)
        types = choices[self.first.attempt]
        if types is None:
            yield from self._csv_module_batches((*names, *numbers, *others), mistakes)
            return
        whole = pa.int64() in types.values()

        def try_next(*, last: bool = False) -> OtherTypes:
            later = range(self.first.attempt + 1, len(choices))
            self.first.attempt = later[-1] if last else next(i for i in later if choices[i] != types)
            return OtherTypes()

        for text in self._lines():
            if b'"' in text and not _has_simple_quotes(text, self.delimiter):
                raise try_next(last=True)
            if whole and not _has_plain_integers(text):
                raise try_next()
            try:
                table = self._arrow_table(text, types)
            except pa.ArrowInvalid:  # a cell of another kind, or a row of another length, which the csv module finds
                raise try_next() from None
            columns = {name: table.column(name).combine_chunks() for name in types}
            # The csv module skips these spaces too.
            trimmed = {n: pc.utf8_ltrim(columns[n], " ") for n in names if types[n] != pa.int64() and b" " in text}
            columns |= trimmed
            if any(types[n] != pa.int64() and pc.any(pc.equal(columns[n], n)).as_py() for n in names):
                raise try_next(last=True)  # the names of the columns again, which the csv module finds
            yield columns

    def _csv_module_batches(self, wanted: Sequence[str], mistakes: Mistakes) -> Iterator[dict[str, pa.Array]]:
        rows, before = self._rows(mistakes), mistakes.count
        while part := [row for _, row in islice(rows, _BATCH_ROWS)]:
            cells = dict(zip(self.columns, zip(*part, strict=True), strict=True))
            yield {name: pa.array(cells[name], pa.large_string()) for name in wanted}
        self.lost_rows += mistakes.count - before

    def estimate_rows(self) -> int:
        """See `TableFile.estimate_rows`."""
        size = self.path.stat().st_size
        with reading(self.path), self._binary() as stream:
            text = self._read(stream, _SNIFFED_BYTES)
        if len(text) < _SNIFFED_BYTES:
            return text.count(b"\n")
        if self._compression is not None:
            size = size * len(text) // len(pa.compress(text, self._compression, asbytes=True))
        return size * text.count(b"\n") // len(text)

    def places(self, rows: Sequence[int]) -> dict[int, str]:
        """The lines of rows, counted from 1; found by reading again, which only an error message needs."""
        wanted, found = set(rows), {row: f"row {row + 1}" for row in rows}
        for row, (line, _) in enumerate(islice(self._rows(Mistakes()), max(rows, default=-1) + 1)):
            if row in wanted:
                found[row] = f"line {line}"
        return found

    def _types_to_try(
        self, names: Sequence[str], numbers: Sequence[str], others: Sequence[str]
    ) -> list[dict[str, pa.DataType] | None]:
        """Types for pyarrow's parser, the fastest first; None for the csv module."""
        sample = [row for _, row in islice(self.first._rows(Mistakes()), _SNIFFED_ROWS)]
        look = dict(zip(self.columns, zip(*sample, strict=True), strict=True)) if sample else {}
        text = dict.fromkeys((*names, *numbers, *others), pa.large_string())
        floats = {n: pa.float64() for n in (*numbers, *others) if n in numbers or _look_like(look.get(n, ()), float)}
        whole = {n: pa.int64() for n in names if _look_like(look.get(n, ()), int)}
        return [text | floats | whole, text | floats, text, None]

    def _binary(self) -> IO[bytes]:
        if self._compression is None:
            return self.path.open("rb")
        stream: IO[bytes] = pa.CompressedInputStream(pa.OSFile(str(self.path)), self._compression)
        return stream

    def _read(self, stream: IO[bytes], size: int) -> bytes:
        """The next bytes; fewer at the end of the file alone."""
        try:
            return stream.read(size)
        except OSError:
            if self._compression is None:
                raise
            raise FileError(
                f"{self.path} is damaged, or not compressed as its name says ({self.path.suffix})"
            ) from None

    def _lines(self) -> Iterator[bytes]:
        """The text below the header in blocks of whole lines; each begins and ends with a line end."""
        with reading(self.path), self._binary() as stream:
            header, rest = self._header_lines, b"\n"
            while block := self._read(stream, _CSV_BLOCK):
                text, _, tail = (rest + (_after_lines(block, header) if header else block)).rpartition(b"\n")
                header, rest = 0, b"\n" + tail
                if text:
                    yield text + b"\n"
            if len(rest) > 1:  # the last line may lack its own line end
                yield rest + b"\n"

    def _arrow_table(self, text: bytes, types: dict[str, pa.DataType]) -> pa.Table:
        part = max(len(text) // _CSV_PARTS, 1 << 16)
        options = pa.csv.ReadOptions(block_size=part, column_names=self.columns)
        convert = pa.csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=list(GAPS))
        parse = pa.csv.ParseOptions(delimiter=self.delimiter)
        source = pa.BufferReader(text)
        return pa.csv.read_csv(source, read_options=options, convert_options=convert, parse_options=parse)

    def _rows(self, mistakes: Mistakes) -> Iterator[tuple[int, list[str]]]:
        """The rows below the header with the first line of each; one of another length is a mistake."""
        width = len(self._header)
        for line, row in self._csv_rows(mistakes):
            if line <= self._header_lines:
                continue
            if len(row) == width and row != self._header:
                yield line, row
                continue
            what = f"{len(row)} fields, but the first line names {width} columns"
            if row == self._header:
                what = "the names of the columns again; remove the line"
            elif len(row) > width:
                what += f"; a cell that holds {self.delimiter!r} needs quotes"
            mistakes.note(f"{self.path}, line {line}: {what}")

    def _csv_rows(self, mistakes: Mistakes | None = None) -> Iterator[tuple[int, list[str]]]:
        """The rows of the file with the line each begins on, counted from 1; the column names come first.

        After a mistake in quotes, which is an error without `mistakes`, reading goes on with the next line.
        """
        path = self.path
        with reading(path), self._binary() as binary, io.TextIOWrapper(binary, self.encoding, newline="") as file:
            lines = _Lines(file)
            reader = csv.reader(lines, delimiter=self.delimiter, strict=True, skipinitialspace=self.delimiter != "\t")
            while True:
                line = lines.begin_row()
                try:
                    row = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    if "field limit" in str(error) and len(lines.row) == 1:
                        yield line, lines.row[0].rstrip("\r\n").split(self.delimiter)
                        continue
                    open_quote = "unexpected end" in str(error) or len(lines.row) > 1
                    what = "a quote is not closed; write one within quotes twice" if open_quote else str(error)
                    message = f"{path}, line {line}: {what}"
                    if mistakes is None:
                        raise FileError(message) from None
                    mistakes.note(message)
                    lines.keep_first_only()
                except UnicodeDecodeError:
                    raise FileError(f"{path} is not UTF-8 text (after line {line - 1}); save it as UTF-8") from None
                else:
                    if row:
                        yield line, row


class _Lines(Iterator[str]):
    """The lines of a text; those of the current row can be read again."""

    def __init__(self, text: Iterator[str]) -> None:
        self._text = text
        self._again: list[str] = []
        self.row: list[str] = []
        """The lines of the current row."""
        self._count = 0

    def __next__(self) -> str:
        line = self._again.pop() if self._again else next(self._text)
        self.row.append(line)
        self._count += 1
        return line

    def begin_row(self) -> int:
        """The number of the next line, counted from 1."""
        self.row.clear()
        return self._count + 1

    def keep_first_only(self) -> None:
        """Let the lines of the current row, but for the first, be read again."""
        self._again.extend(reversed(self.row[1:]))
        self._count -= len(self.row) - 1


@final
class ParquetFile(TableFile):
    """A Parquet file. Names may be strings, integers, booleans or categories; numbers may also be lists of numbers.

    Args:
        path: its file; the list of columns is read here.
    """

    def __init__(self, path: Path) -> None:
        with reading(path):
            path.open("rb").close()  # pyarrow's message for a file that cannot be opened is longer than the system's
        with _parquet_errors(path):
            # Pages are read one after another: a group of rows may be larger than memory.
            self._file = pa.parquet.ParquetFile(path, buffer_size=1 << 22)
            self._schema = self._file.schema_arrow
        super().__init__(path, self._schema.names)

    def _load(
        self, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> dict[str, pa.Array]:
        wanted, rows = [*names, *numbers, *others], self.estimate_rows()
        with reading(self.path), _parquet_errors(self.path):
            # Repeated values take no room in the file, but they do in memory.
            check_memory(rows * 8 * len(wanted))
            check_memory(rows * 4 * sum(map(self.width, wanted)))
        return super()._load(names, numbers, others, mistakes)

    def _batches(
        self, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> Iterator[dict[str, pa.Array]]:
        wanted, count = [*names, *numbers, *others], 0
        with reading(self.path), _parquet_errors(self.path):
            # Group by group: one call for all groups keeps buffers of each, 8 MiB a batch, until its end.
            for group in range(self._file.num_row_groups):
                for batch in self._file.iter_batches(_ARROW_ROWS, row_groups=[group], columns=wanted):
                    columns = {name: batch.column(name) for name in wanted}
                    count += batch.num_rows
                    for name, column in columns.items():
                        if pt.is_dictionary(column.type):
                            columns[name] = column.cast(column.type.value_type)
                    if batch.num_rows:
                        yield columns
        rows = self.estimate_rows()
        self.require(count == rows, f"is damaged: {count} of {rows} rows are there")

    def estimate_rows(self) -> int:
        """See `TableFile.estimate_rows`."""
        rows: int = self._file.metadata.num_rows
        return rows

    def places(self, rows: Sequence[int]) -> dict[int, str]:
        """The numbers of rows, counted from 1."""
        return {row: f"row {row + 1}" for row in rows}

    def width(self, name: str) -> int:
        """See `TableFile.width`."""
        if not _is_list(self._schema.field(name).type):
            return 0
        first = next(self._file.iter_batches(batch_size=1, columns=[name]), None)
        return 0 if first is None or not first.num_rows else len(first.column(0)[0].as_py() or ())


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


def _encoding(start: bytes) -> tuple[str, int]:
    """The encoding of a text, by its first bytes; and the first line that is not UTF-8, 0 if there is none."""
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16", 0
    if start[1:20:2].strip(b"\0") == b"" and len(start) > 3:  # letters of two bytes, without the mark
        return "utf-16-le", 0
    try:
        # The piece may end within a character of up to four bytes.
        start[:-4].decode("utf-8") if len(start) == _SNIFFED_BYTES else start.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(start) < _SNIFFED_BYTES or error.start < len(start) - 8:
            return "cp1252", start[: error.start].count(b"\n") + 1
    return "utf-8-sig", 0


def _after_lines(block: bytes, count: int) -> bytes:
    found = re.match(rb"(?:[^\r\n]*(?:\r\n|\r|\n)){%d}" % count, block)
    return b"" if found is None else block[found.end() :]


def _has_simple_quotes(text: bytes, delimiter: str) -> bool:
    """Whether quotes come in pairs, each around a whole cell of one line; `text` begins and ends with a line end."""
    data = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    opening, closing = quotes[: len(quotes) // 2 * 2 : 2], quotes[1::2]
    limits = np.frombuffer(b"\n\r" + delimiter.encode(), np.uint8)
    around = np.isin(data[opening - 1], limits) & np.isin(data[closing + 1], limits) & (data[opening + 1] != 32)
    ends = np.flatnonzero((data == 10) | (data == 13))
    one_line = np.searchsorted(ends, opening) == np.searchsorted(ends, closing)
    return len(quotes) % 2 == 0 and bool((around & one_line).all())


def _has_plain_integers(text: bytes) -> bool:
    """Whether no number has a sign "+", a leading zero or spaces; `text` begins and ends with a line end."""
    if any(odd in text for odd in (b" ", b"+", b"-0")):
        return False
    digit = np.frombuffer(text, np.uint8) - 48  # wraps around: below 10 for digits alone
    leading = (digit[1:-1] == 0) & (digit[2:] < 10)
    return not (leading & (digit[:-2] > 9) & (digit[:-2] != 254)).any()  # 254 is the decimal point


def _look_like(cells: Sequence[str], kind: type) -> bool:
    """Whether most of some cells are numbers, or all of them integers."""
    known = [cell for cell in cells if cell.strip() not in GAPS]
    good = 0
    for cell in known:
        with suppress(ValueError):
            kind(cell)
            good += 1
    return good == len(known) if kind is int else good > len(known) / 2


def _without_gaps(text: pa.Array) -> pa.Array:
    """Null where a cell is missing; spaces around a value do not count."""
    text = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.is_in(text, pa.array(GAPS, pa.large_string())), pa.scalar(None, text.type), text)


_NAME_KINDS = (pt.is_integer, pt.is_null, pt.is_string, pt.is_large_string, pt.is_boolean)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged Parquet file into an error that names the file."""
    try:
        yield
    except (CvgnnError, MemoryError):
        raise
    except Exception as error:  # they are of many kinds, built-in ones too
        reason = join_printable([(str(error).strip() or type(error).__name__).splitlines()[0][:200]])
        raise FileError(f"{path} is damaged, or no Parquet file ({reason})") from None
