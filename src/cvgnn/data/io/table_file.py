"""Reads one table of a graph's folder, a CSV or a Parquet file, with pyarrow in batches of rows."""

from __future__ import annotations

import csv
import io
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.preprocessing import Cells, to_numbers
from cvgnn.data.io.size_checks import FileError, check_memory, reading
from cvgnn.errors import CvgnnError
from cvgnn.utils.formatting import join_printable

Columns = tuple[dict[str, pa.Array], np.ndarray]

_BATCH_ROWS = 4096
_BATCH_CELLS = 1 << 21
_CSV_BLOCK = 1 << 24  # bytes; pyarrow needs a whole row in one block
_MAX_NAME = 1000  # characters; names are kept in an array as wide as the longest
_MISSING = "nothing where a number must be"
_DELIMITERS = ",;\t|"
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_SNIFFED_ROWS = 1000
_SNIFFED_BYTES = 1 << 20
GAPS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "null", "NULL", "Null", "None", "?")
"""What a missing cell may hold."""
_MAX_FLOAT = float(np.finfo(np.float32).max)
_log = logging.getLogger(__name__)


class TableFile(ABC):
    """A table with named columns.

    Args:
        path: its file.
        columns: the names of its columns, each once.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        for name, count in Counter(columns).items():
            self.require(count == 1, f"has two columns {name[:80]!r}; give each its own name")

    @abstractmethod
    def read(self, *, names: Sequence[str], numbers: Sequence[str], dtype: type[np.floating]) -> Columns:
        """Read columns.

        Args:
            names: columns of ids, labels and other names.
            numbers: columns of numbers; every cell must hold one, and a finite one.
            dtype: of the numbers.

        Returns:
            The columns of names: int64 if all values are integers in their usual form ("007" is not), else
            large_string, null where the cell is empty; and the numbers `[rows, columns]` (more columns if a cell holds
            a list of numbers).
        """

    @abstractmethod
    def read_columns(
        self, *, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> tuple[dict[str, pa.Array], dict[str, Cells]]:
        """Read columns of any kind.

        Args:
            names: columns of ids, labels and other names.
            numbers: columns that must hold numbers; other cells are mistakes.
            others: columns of any kind.
            mistakes: gets the cells that cannot be read.

        Returns:
            The names as `read` returns them; and the cells of the other columns, those in `GAPS` missing: float64 where
            all are numbers, else large_string, or a matrix where a cell holds a list of numbers.
        """

    @abstractmethod
    def places(self, rows: Sequence[int]) -> dict[int, str]:
        """The positions of rows, counted from 0, in the file, for messages."""

    def place(self, row: int) -> str:
        """The position of row `row`, counted from 0, in the file, for messages."""
        return self.places([row])[row]

    def error(self, row: int | None, column: str, what: str) -> FileError:
        """The error for a cell, or for a whole column where `row` is None."""
        place = "" if row is None else f"{self.place(row)}, "
        return FileError(f"{self.path}, {place}column {column[:80]!r}: {what}")

    def require(self, condition: bool, what: str) -> None:
        """Raise an error about the table as a whole unless `condition` holds."""
        if not condition:
            raise FileError(f"{self.path} {what}")

    def require_columns(self, *columns: str) -> None:
        """Refuse a table without these columns."""
        has = join_printable(self.columns[:50])[:300]
        for column in columns:
            self.require(column in self.columns, f"has no column {column!r}; its columns are: {has}")

    def _collect(
        self, batches: Iterable[pa.RecordBatch], names: Sequence[str], widths: dict[str, int], matrix: np.ndarray
    ) -> Columns:
        """The columns of all batches; `matrix` has at least as many rows as they have, and is filled from the top."""
        chunks: dict[str, list[pa.Array]] = {name: [] for name in names}
        rows = 0
        for batch in batches:
            for name, collected in chunks.items():
                collected.append(self._names(batch.column(name), name, rows))
            left = 0
            for name, width in widths.items():
                block = self._block(batch.column(name), name, width, rows)
                with np.errstate(over="ignore"):  # overflow becomes infinite, which is refused below
                    matrix[rows : rows + len(block), left : left + width] = block
                left += width
            rows += batch.num_rows
        matrix = matrix[:rows]
        with np.errstate(invalid="ignore", over="ignore"):  # a sum is finite only if every entry is (or on overflow)
            finite = np.isfinite(matrix.sum())
        bad = np.empty((0, 2), dtype=int) if finite else np.argwhere(~np.isfinite(matrix))
        if len(bad):
            row, at = bad[0]
            name = np.repeat(list(widths), list(widths.values()))[at]
            raise self.error(int(row), str(name), f"{matrix[row, at]} is not a finite number")
        return {name: _joined(collected) for name, collected in chunks.items()}, matrix

    def _block(self, column: Any, name: str, width: int, first: int) -> np.ndarray:
        """Some rows of a column as a matrix `[rows, width]`; `first` is the number of the first of them."""
        if column.null_count:
            raise self.error(first + _first(column.is_null()), name, _MISSING)
        if not pa.types.is_primitive(column.type):
            lengths = pc.list_value_length(column)
            ragged = pc.not_equal(lengths, width)
            if pc.any(ragged).as_py():
                row = _first(ragged)
                raise self.error(first + row, name, f"{lengths[row]} numbers, but the first row has {width}")
            column = column.flatten()
            if column.null_count:
                raise self.error(first + _first(column.is_null()) // width, name, _MISSING)
        values: np.ndarray = column.to_numpy(zero_copy_only=False)
        return values.reshape(-1, width)

    def _names(self, column: Any, name: str, first: int) -> pa.Array:
        """Some rows of a column of names, as `read` returns them."""
        types = pa.types
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if types.is_floating(column.type):  # pandas turns integers into floats when one is missing
            column = self._whole(column.to_numpy(zero_copy_only=False).astype(np.float64), name, first)
        kinds = (types.is_integer, types.is_null, types.is_string, types.is_large_string, types.is_boolean)
        if not any(is_kind(column.type) for is_kind in kinds):
            raise self.error(None, name, f"holds {str(column.type)[:80]}; it must hold integers or strings")
        if types.is_integer(column.type) and (integers := _as_int64(column)) is not None:
            return integers
        text = column.cast(pa.large_string())
        text = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
        lengths = pc.utf8_length(text)
        if (pc.max(lengths).as_py() or 0) > _MAX_NAME:
            row = _first(pc.greater(lengths, _MAX_NAME))
            raise self.error(first + row, name, f"{lengths[row]} characters; at most {_MAX_NAME} are allowed")
        # Arrow parses the whole column before it refuses it, so some cells are tried first.
        integers = None if _as_int64(text[:_SNIFFED_ROWS]) is None else _as_int64(text)
        # "007", "+7", "7 " and "0x7" are other ids than "7", so the integers must give the same text.
        return integers if integers is not None and integers.cast(text.type).equals(text) else text

    def _floats_of(self, text: pa.Array, name: str, mistakes: Mistakes) -> np.ndarray:
        """A column of text that must hold numbers; NaN where the cell is missing or wrong."""
        found = to_numbers(text)
        bad = np.flatnonzero(np.isnan(found) & ~text.is_null().to_numpy(zero_copy_only=False))
        mistakes.cells(self, bad, name, lambda row: f"{text[row].as_py()[:80]!r} is no number")
        # Each is told once: from here on it counts as a number.
        return self._finite(np.where(np.isin(np.arange(len(found)), bad), 1.0, found), name, mistakes)

    def _finite(self, values: np.ndarray, name: str, mistakes: Mistakes) -> np.ndarray:
        """The values; those that float32 cannot hold are mistakes."""
        with np.errstate(over="ignore", invalid="ignore"):
            bad = np.flatnonzero(np.abs(values) > _MAX_FLOAT)
        mistakes.cells(self, bad, name, lambda row: f"{np.sign(values[row]) * np.inf} is not a finite number")
        return values

    def _whole(self, values: np.ndarray, name: str, first: int) -> pa.Array:
        missing = np.isnan(values)
        bad = np.flatnonzero(~missing & ((values != np.floor(values)) | (np.abs(values) > 2**53)))
        if bad.size:
            raise self.error(first + int(bad[0]), name, f"{values[bad[0]]} is neither an integer nor a string")
        return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)


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
        with reading(path), self._binary() as stream:
            start = self._read(stream, _SNIFFED_BYTES)
        self.encoding = _encoding(start)
        first = start.decode(self.encoding, "replace").lstrip("\r\n").partition("\n")[0].partition("\r")[0]
        fields = {d: len(next(csv.reader([first], delimiter=d, skipinitialspace=True), ())) for d in _DELIMITERS}
        self.delimiter = max(fields, key=fields.__getitem__)
        self._header_lines, header = next(self._csv_rows(), (0, None))
        if header is None:
            raise FileError(f"{path} is empty; its first line must name the columns")
        super().__init__(path, [name.strip() for name in header])
        if self.encoding == "cp1252":
            _log.warning("%s is not UTF-8; it is read as Windows-1252", path)

    def read(self, *, names: Sequence[str], numbers: Sequence[str], dtype: type[np.floating]) -> Columns:
        """See `TableFile.read`."""
        lines, quoted = self._scan()
        widths = dict.fromkeys(numbers, 1)
        text = [name for name in self.columns if name not in numbers]
        # An upper bound of the rows: pages that are never touched take no memory.
        matrix = np.empty((lines, len(numbers)), dtype=dtype)
        if not quoted:
            try:
                return self._collect(self._arrow_batches(text), names, widths, matrix)
            except pa.ArrowInvalid:
                pass  # the csv module finds the line, or reads a number that only Python accepts, such as 1_000
        return self._collect(self._python_batches(text), names, widths, matrix)

    def read_columns(
        self, *, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> tuple[dict[str, pa.Array], dict[str, Cells]]:
        """See `TableFile.read_columns`."""
        _, quoted = self._scan()
        sample = [row for _, row in islice(self._rows(skip=True), _SNIFFED_ROWS)]
        look = dict(zip(self.columns, zip(*sample, strict=True), strict=True)) if sample else {}
        floats = {*numbers, *(name for name in others if _look_like(look.get(name, ()), float))}
        kinds = [{name: pa.large_string() for name in names}]
        whole = [name for name in names if _look_like(look.get(name, ()), int)]
        if whole and not quoted and self._has_plain_integers():
            kinds.insert(0, kinds[0] | dict.fromkeys(whole, pa.int64()))
        for kind in [] if quoted else kinds:
            types = kind | {name: pa.float64() if name in floats else pa.large_string() for name in (*numbers, *others)}
            try:
                table = self._arrow_table(types)
            except pa.ArrowInvalid:
                continue  # a cell of another kind, or a row of another length: the csv module finds it
            columns = {name: table.column(name).combine_chunks() for name in types}
            break
        else:
            types = dict.fromkeys((*names, *numbers, *others), pa.large_string())
            columns = self._python_table(mistakes)
        found: dict[str, Cells] = {}
        for name in (*numbers, *others):
            column = columns.pop(name)
            if types[name] == pa.float64():
                found[name] = self._finite(column.to_numpy(zero_copy_only=False), name, mistakes)
                continue
            text = _without_gaps(column)
            found[name] = self._floats_of(text, name, mistakes) if name in numbers else text
        return {name: self._names(_trimmed(columns[name]), name, 0) for name in names}, found

    def places(self, rows: Sequence[int]) -> dict[int, str]:
        """The lines of rows, counted from 1; found by reading again, which only an error message needs."""
        wanted, found = set(rows), {row: f"row {row + 1}" for row in rows}
        for row, (line, _) in enumerate(islice(self._rows(skip=True), max(rows, default=-1) + 1)):
            if row in wanted:
                found[row] = f"line {line}"
        return found

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

    def _scan(self) -> tuple[int, bool]:
        """An upper bound of the number of rows, and whether only the csv module reads the file as we do: it has quotes
        below the header, or is not UTF-8."""
        lines, quoted, size = 1, self.encoding != "utf-8-sig", 0
        with reading(self.path), self._binary() as stream:
            header = self._header_lines
            while block := self._read(stream, _CSV_BLOCK):
                size += len(block)
                check_memory(size if self._compression else 0)  # a small file may unpack to more than memory holds
                lines += block.count(b"\n") + block.count(b"\r")
                quoted = quoted or b'"' in _after_lines(block, header)
                header = 0
        return lines, quoted

    def _has_plain_integers(self) -> bool:
        """Whether the file has nothing that pyarrow would read as an integer without its being one in its usual form:
        "007", "-0", "+7", or spaces."""
        with reading(self.path), self._binary() as stream:
            header, before = self._header_lines, b"\n"
            while block := self._read(stream, _CSV_BLOCK):
                text = before + _after_lines(block, header)
                if any(odd in text for odd in (b" ", b"+", b"-0")):
                    return False
                digit = np.frombuffer(text, np.uint8) - 48  # wraps around: below 10 for digits alone
                after = (digit[1:-1] == 0) & (digit[2:] < 10)
                if (after & (digit[:-2] > 9) & (digit[:-2] != 254)).any():  # 254 is the decimal point
                    return False
                header, before = 0, block[-2:]
        return True

    def _arrow_table(self, types: dict[str, pa.DataType]) -> pa.Table:
        options = pa.csv.ReadOptions(block_size=_CSV_BLOCK, skip_rows=self._header_lines, column_names=self.columns)
        convert = pa.csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=list(GAPS))
        parse = pa.csv.ParseOptions(delimiter=self.delimiter)
        with reading(self.path), self._binary() as stream:
            return pa.csv.read_csv(stream, read_options=options, convert_options=convert, parse_options=parse)

    def _python_table(self, mistakes: Mistakes) -> dict[str, pa.Array]:
        rows, chunks = self._rows(mistakes), []
        while part := [row for _, row in islice(rows, _BATCH_ROWS)]:
            arrays = [pa.array(cells, pa.large_string()) for cells in zip(*part, strict=True)]
            chunks.append(pa.RecordBatch.from_arrays(arrays, names=self.columns))
        schema = pa.schema([(name, pa.large_string()) for name in self.columns])
        table = pa.Table.from_batches(chunks, schema)
        return {name: table.column(name).combine_chunks() for name in self.columns}

    def _arrow_batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # Numbers are parsed as float64 and rounded once more to the dtype asked for, as Python's float() and numpy do.
        types = {name: pa.large_string() if name in names else pa.float64() for name in self.columns}
        options = pa.csv.ReadOptions(block_size=_CSV_BLOCK, skip_rows=self._header_lines, column_names=self.columns)
        convert = pa.csv.ConvertOptions(column_types=types, null_values=[""])
        parse = pa.csv.ParseOptions(delimiter=self.delimiter)
        with self._binary() as stream:
            for batch in pa.csv.open_csv(stream, read_options=options, convert_options=convert, parse_options=parse):
                columns = zip(self.columns, batch.columns, strict=True)
                # The csv module skips spaces at the start of a cell; of numbers, pyarrow does so too.
                arrays = [pc.utf8_ltrim(column, " ") if name in names else column for name, column in columns]
                yield pa.RecordBatch.from_arrays(arrays, names=self.columns)

    def _python_batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows, first = self._rows(), 0
        while part := [row for _, row in islice(rows, _BATCH_ROWS)]:
            columns = zip(self.columns, zip(*part, strict=True), strict=True)
            arrays = [
                pa.array(cells, pa.large_string()) if name in names else self._floats(cells, name, first)
                for name, cells in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=self.columns)
            first += len(part)

    def _floats(self, cells: Sequence[str], name: str, first: int) -> pa.Array:
        numbers = np.empty(len(cells))
        for i, cell in enumerate(cells):
            try:
                numbers[i] = float(cell)
            except ValueError:
                raise self.error(first + i, name, f"{cell[:80]!r} is no number" if cell else _MISSING) from None
        return pa.array(numbers)

    def _rows(self, mistakes: Mistakes | None = None, *, skip: bool = False) -> Iterator[tuple[int, list[str]]]:
        """The rows below the header; one of another length is noted among the mistakes, skipped or an error."""
        for line, row in islice(self._csv_rows(), 1, None):
            if len(row) == len(self.columns):
                yield line, row
                continue
            if skip:
                continue
            what = f"{len(row)} fields, but the first line names {len(self.columns)} columns"
            message = f"{self.path}, line {line}: {what}"
            if mistakes is None:
                raise FileError(message)
            mistakes.note(message)

    def _csv_rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows of the file with the line each ends on, counted from 1; the column names come first."""
        path = self.path
        with reading(path), self._binary() as binary, io.TextIOWrapper(binary, self.encoding, newline="") as file:
            reader = csv.reader(file, delimiter=self.delimiter, strict=True, skipinitialspace=self.delimiter != "\t")
            try:
                for row in reader:
                    if row:
                        yield reader.line_num, row
            except csv.Error as error:
                raise FileError(f"{path}, line {max(1, reader.line_num)}: {error}") from None
            except UnicodeDecodeError:
                raise FileError(f"{path} is not UTF-8 text (after line {reader.line_num}); save it as UTF-8") from None


@final
class ParquetFile(TableFile):
    """A Parquet file. Names may be strings, integers, booleans or categories; numbers may also be lists of numbers.

    Args:
        path: its file; the list of columns is read here.
    """

    def __init__(self, path: Path) -> None:
        path.open("rb").close()  # pyarrow's message for a file that cannot be opened is longer than the system's
        with _parquet_errors(path):
            self._file = pa.parquet.ParquetFile(path)
            self._schema = self._file.schema_arrow
        super().__init__(path, self._schema.names)

    def read(self, *, names: Sequence[str], numbers: Sequence[str], dtype: type[np.floating]) -> Columns:
        """See `TableFile.read`."""
        rows, size = self._file.metadata.num_rows, np.dtype(dtype).itemsize
        with reading(self.path), _parquet_errors(self.path):
            # Repeated values take no room in the file, but they do in memory.
            check_memory(rows * (8 * len(names) + size * len(numbers)))
            widths = {name: self._width(name) for name in numbers}
            width = sum(widths.values())
            check_memory(rows * width * size)
            matrix = np.empty((rows, width), dtype=dtype)
            batch_rows = max(_BATCH_ROWS, _BATCH_CELLS // (len(names) + width))
            batches = self._file.iter_batches(batch_size=batch_rows, columns=[*names, *numbers])
            columns, matrix = self._collect(batches, names, widths, matrix)
            for column in (*columns.values(), matrix):
                self.require(len(column) == rows, f"is damaged: {len(column)} of {rows} rows are there")
            return columns, matrix

    def places(self, rows: Sequence[int]) -> dict[int, str]:
        """The numbers of rows, counted from 1."""
        return {row: f"row {row + 1}" for row in rows}

    def read_columns(
        self, *, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> tuple[dict[str, pa.Array], dict[str, Cells]]:
        """See `TableFile.read_columns`."""
        rows = self._file.metadata.num_rows
        with reading(self.path), _parquet_errors(self.path):
            check_memory(rows * 8 * (len(names) + len(numbers) + len(others)))
            widths = {name: self._width(name) for name in others if _is_list(self._schema.field(name).type)}
            check_memory(rows * 4 * sum(widths.values()))
            table = self._file.read(columns=[*names, *numbers, *others])
            self.require(table.num_rows == rows, f"is damaged: {table.num_rows} of {rows} rows are there")
            found: dict[str, Cells] = {}
            for name in (*numbers, *others):
                column = _one_array(table.column(name))
                if name in widths:
                    found[name] = self._block(column, name, widths[name], 0).astype(np.float32)
                    for row in np.flatnonzero(~np.isfinite(found[name]).all(axis=1)).tolist():
                        value = _first_infinite(found[name][row])
                        mistakes.note(str(self.error(row, name, f"{value} is not a finite number")))
                else:
                    found[name] = self._cells(column, name, name in numbers, mistakes)
            columns = {name: self._names(_one_array(table.column(name)), name, 0) for name in names}
        return columns, found

    def _cells(self, column: Any, name: str, number: bool, mistakes: Mistakes) -> Cells:
        types = pa.types
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        kind = column.type
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
            return self._finite(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), name, mistakes)
        if types.is_null(kind):
            return np.full(len(column), np.nan)
        if number and not (types.is_string(kind) or types.is_large_string(kind)):
            raise self.error(None, name, f"holds {str(kind)[:80]}; it must hold numbers")
        if types.is_date(kind) or types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us"), safe=False)
        elif not (types.is_string(kind) or types.is_large_string(kind)):
            hint = "it must hold numbers, strings, dates or lists of numbers; name it in --ignore to leave it out"
            raise self.error(None, name, f"holds {str(kind)[:80]}; {hint}")
        text = _without_gaps(column.cast(pa.large_string()))
        return self._floats_of(text, name, mistakes) if number else text

    def _width(self, name: str) -> int:
        """How many numbers a cell of a column holds: 1, or the length of the first row's list."""
        kind, types = self._schema.field(name).type, pa.types
        lists = _is_list(kind)
        numeric = kind.value_type if lists else kind
        if not (types.is_integer(numeric) or types.is_floating(numeric) or types.is_boolean(numeric)):
            raise self.error(None, name, f"holds {str(kind)[:80]}; it must hold numbers")
        if not lists:
            return 1
        first = next(self._file.iter_batches(batch_size=1, columns=[name]), None)
        return 0 if first is None or not first.num_rows else len(first.column(0)[0].as_py() or ())


def categories(column: pa.Array) -> tuple[list[str], np.ndarray]:
    """The different values of a column as text, in order of first appearance; and the code of each row, int64
    `[rows]`, its value's position among them, -1 where the cell is empty."""
    encoded = column.cast(pa.large_string()).dictionary_encode()
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


def _joined(chunks: list[pa.Array]) -> pa.Array:
    kind = pa.int64() if chunks and all(chunk.type == pa.int64() for chunk in chunks) else pa.large_string()
    return pa.chunked_array([chunk.cast(kind) for chunk in chunks], kind).combine_chunks()


def _first(condition: pa.Array) -> int:
    """The position of the first true entry."""
    return int(pc.index(condition, True).as_py())


def _encoding(start: bytes) -> str:
    """The encoding of a text, by its first bytes."""
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    try:
        # The piece may end within a character of up to four bytes.
        start[:-4].decode("utf-8") if len(start) == _SNIFFED_BYTES else start.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(start) < _SNIFFED_BYTES or error.start < len(start) - 8:
            return "cp1252"
    return "utf-8-sig"


def _after_lines(block: bytes, count: int) -> bytes:
    for _ in range(count):
        block = block.partition(b"\n")[2]
    return block


def _look_like(cells: Sequence[str], kind: type) -> bool:
    """Whether most of some cells are numbers, or all of them integers."""
    known = [cell for cell in cells if cell.strip() not in GAPS]
    good = 0
    for cell in known:
        try:
            kind(cell)
        except ValueError:
            continue
        good += 1
    return good == len(known) if kind is int else good > len(known) / 2


def _trimmed(column: pa.Array) -> pa.Array:
    """Without spaces at the start of a cell, which the csv module skips too."""
    return column if column.type == pa.int64() else pc.utf8_ltrim(column, " ")


def _without_gaps(text: pa.Array) -> pa.Array:
    """Null where a cell is missing; spaces around a value do not count."""
    text = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.is_in(text, pa.array(GAPS, pa.large_string())), pa.scalar(None, text.type), text)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _first_infinite(row: np.ndarray) -> float:
    return float(row[~np.isfinite(row)][0])


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
