"""Reads a CSV file, with pyarrow where it reads it as we do, else with Python's csv module."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cvgnn.data.io.cell_values import GAPS
from cvgnn.data.io.columnar_file import COLUMNAR_FORMATS
from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.size_checks import FileError, reading
from cvgnn.data.io.table_file import OtherTypes, TableFile

_BATCH_ROWS = 4096  # of the csv module
_CSV_BLOCK = 1 << 24  # bytes; pyarrow parses parts of it in parallel, and needs a whole row in one part
_CSV_PARTS = 4
_BY_CSV_MODULE = 4  # the last attempt of `CsvFile._types_to_try`
_DELIMITERS = ",;\t|"
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_SNIFFED_ROWS = 1000
_SNIFFED_BYTES = 1 << 20
_OTHER_FORMATS = {
    b"PK\x03\x04": "an Excel workbook or a zip archive; save it as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel workbook; save it as CSV",
    b"\x1f\x8b": "compressed by gzip; name it {name}.gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; name it {name}.zst",
    **COLUMNAR_FORMATS,
    b"<": "HTML or XML, perhaps the page of a failed download; save it as CSV",
    b"{": "JSON; save it as CSV",
    b"[": "JSON; save it as CSV",
}
"""How files begin that are no CSV, and what to do."""
_log = logging.getLogger(__name__)


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
        self.attempt = 0 if self.encoding == "utf-8-sig" else _BY_CSV_MODULE
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
        whole, floats = pa.int64() in types.values(), any(types[name] == pa.float64() for name in others)

        def try_next(*, last: bool = False) -> OtherTypes:
            later = range(self.first.attempt + 1, len(choices))
            self.first.attempt = later[-1] if last else next(i for i in later if choices[i] != types)
            return OtherTypes()

        for text in self._lines():
            if b'"' in text and not _has_simple_quotes(text, self.delimiter):
                raise try_next(last=True)
            # As integers, names such as 007 would lose their zeros; as numbers, other cells would.
            before = _before_leading_zeros(text) if whole or floats else set()
            if whole and (before or any(odd in text for odd in (b" ", b"+", b"-0"))):
                raise try_next()
            if floats and before.intersection(f'\n\r" {self.delimiter}'.encode()):
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
        must = dict.fromkeys(numbers, pa.float64())
        floats = must | {n: pa.float64() for n in others if _look_like(look.get(n, ()), float)}
        whole = {n: pa.int64() for n in names if _look_like(look.get(n, ()), int)}
        return [text | floats | whole, text | floats, text | must, text, None]

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
            mistakes.note(f"{self.path}, line {line}: {what}", f" in {self.path.name}")

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
                    mistakes.note(message, f" in {path.name}")
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


def _before_leading_zeros(text: bytes) -> set[int]:
    """The bytes that stand before numbers with a leading zero; `text` begins and ends with a line end."""
    data = np.frombuffer(text, np.uint8)
    digit = data - 48  # wraps around: below 10 for digits alone
    leading = (digit[1:-1] == 0) & (digit[2:] < 10)
    leading &= (digit[:-2] > 9) & (data[:-2] != ord("."))
    return set(data[:-2][leading].tolist())


def _look_like(cells: Sequence[str], kind: type) -> bool:
    """Whether most of some cells are numbers, or all of them integers."""
    known = [cell for cell in cells if cell.strip() not in GAPS]
    good = 0
    for cell in known:
        with suppress(ValueError):
            kind(cell)
            good += 1
    return good == len(known) if kind is int else good > len(known) / 2
