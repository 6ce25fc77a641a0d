"""Tables whose files keep the type of each column: Parquet, and Arrow's own format, which Feather is too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, final

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pyarrow.types as pt

from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.size_checks import FileError, check_memory, reading
from cvgnn.data.io.table_file import TableFile, is_list
from cvgnn.errors import CvgnnError
from cvgnn.utils.formatting import join_printable

COLUMNAR_FORMATS = {
    b"PAR1": "a Parquet file; name it {stem}.parquet",
    b"ARROW1": "an Arrow file; name it {stem}.arrow",
    b"FEA1": "a Feather file of version 1, which pandas wrote until 2020; write it again",
}
"""How these files begin, and what to do with one that has another ending."""

_BATCH_ROWS = 1 << 19
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class ColumnarFile(TableFile):
    """A file of typed columns. Names may be strings, integers, booleans or categories; numbers may also be lists of
    numbers.

    Args:
        path: its file; the list of columns is read here.
    """

    kind: ClassVar[str]
    _magic: ClassVar[bytes]

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path), path.open("rb") as stream:
            start = stream.read(8)
        for magic, what in COLUMNAR_FORMATS.items():
            if start.startswith(magic) and magic != self._magic:
                raise FileError(f"{path} is no {self.kind} file but {what.format(stem=path.stem)}")
        with self._errors():
            self._schema, self._rows = self._open()
        super().__init__(path, self._schema.names)

    @abstractmethod
    def _open(self) -> tuple[pa.Schema, int | None]:
        """The columns, and the number of rows; None if only reading tells."""

    @abstractmethod
    def _record_batches(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """The columns in batches; where the format allows, of at most so many rows."""

    def _load(
        self, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> dict[str, pa.Array]:
        wanted, rows = [*names, *numbers, *others], self._rows or 0
        with self._errors():
            # Repeated values take no room in the file, but they do in memory.
            check_memory(rows * 8 * len(wanted))
            check_memory(rows * 4 * sum(map(self.width, wanted)))
        return super()._load(names, numbers, others, mistakes)

    def _batches(
        self, names: Sequence[str], numbers: Sequence[str], others: Sequence[str], mistakes: Mistakes
    ) -> Iterator[dict[str, pa.Array]]:
        wanted, count = [*names, *numbers, *others], 0
        with self._errors():
            for batch in self._record_batches(wanted, _BATCH_ROWS):
                count += batch.num_rows
                for first in range(0, batch.num_rows, _BATCH_ROWS):
                    part = batch.slice(first, _BATCH_ROWS)
                    yield {name: _plain(part.column(name)) for name in wanted}
        self.require(self._rows in (None, count), f"is damaged: {count} of {self._rows} rows are there")

    def places(self, rows: Sequence[int]) -> dict[int, str]:
        """The numbers of rows, counted from 1."""
        return {row: f"row {row + 1}" for row in rows}

    def width(self, name: str) -> int:
        """See `TableFile.width`."""
        if not is_list(self._schema.field(name).type):
            return 0
        with self._errors():
            first = next(self._record_batches([name], 1), None)
            return 0 if first is None or not first.num_rows else len(first.column(0)[0].as_py() or ())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what pyarrow raises for a damaged file into an error that names the file."""
        with reading(self.path):
            try:
                yield
            except (CvgnnError, MemoryError):
                raise
            except Exception as error:  # they are of many kinds, built-in ones too
                reason = join_printable([(str(error).strip() or type(error).__name__).splitlines()[0][:200]])
                raise FileError(f"{self.path} is damaged, or no {self.kind} file ({reason})") from None


@final
class ParquetFile(ColumnarFile):
    """A Parquet file."""

    kind = "Parquet"
    _magic = b"PAR1"

    def _open(self) -> tuple[pa.Schema, int]:
        # Pages are read one after another: a group of rows may be larger than memory.
        self._file = pa.parquet.ParquetFile(self.path, buffer_size=1 << 22)
        return self._file.schema_arrow, self._file.metadata.num_rows

    def _record_batches(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        # Group by group: one call for all groups keeps buffers of each, 8 MiB a batch, until its end.
        for group in range(self._file.num_row_groups):
            yield from self._file.iter_batches(rows, row_groups=[group], columns=names)

    def estimate_rows(self) -> int:
        """See `TableFile.estimate_rows`."""
        return self._rows or 0


@final
class ArrowFile(ColumnarFile):
    """A file in Arrow's format for files, which Feather has since version 2, or in its format for streams."""

    kind = "Arrow"
    _magic = b"ARROW1"

    def _open(self) -> tuple[pa.Schema, int | None]:
        with pa.OSFile(str(self.path)) as source:
            self._streamed = source.read(len(self._magic)) != self._magic
            source.seek(0)
            if not self._streamed:
                file = pa.ipc.open_file(source)
                return file.schema, file.count_rows()
            schema = pa.ipc.open_stream(source).schema
            source.seek(max(0, source.size() - len(_END_OF_STREAM)))
            # pyarrow takes the end of a file for the end of its stream, so rows that were cut off would not be missed.
            whole = source.read() == _END_OF_STREAM
            self.require(whole, "is cut off: the mark at the end of a stream is missing; write it again and close it")
            return schema, None

    def _record_batches(self, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        options = pa.ipc.IpcReadOptions(included_fields=[self._schema.get_field_index(name) for name in names])
        with pa.OSFile(str(self.path)) as source:
            if self._streamed:
                batches: Iterator[pa.RecordBatch] = iter(pa.ipc.open_stream(source, options=options))
            else:
                file = pa.ipc.open_file(source, options=options)
                batches = map(file.get_batch, range(file.num_record_batches))
            try:
                for batch in batches:
                    batch.validate(full=True)  # offsets in a damaged file would lead out of its buffers
                    yield batch
            except MemoryError:
                # pyarrow asks for the bytes that a buffer's length states before it reads them. A damaged length is
                # refused by the system at once, so nothing was touched.
                raise FileError(
                    f"{self.path} is damaged, or one batch of its rows is larger than memory; write smaller batches"
                ) from None

    def estimate_rows(self) -> int:
        """See `TableFile.estimate_rows`."""
        if self._rows is not None:
            return self._rows
        with self._errors(), pa.OSFile(str(self.path)) as source:
            first = next(iter(pa.ipc.open_stream(source)), None)
            return 0 if first is None else first.num_rows * source.size() // max(1, source.tell())


def _plain(column: pa.Array) -> pa.Array:
    """Without dictionaries and views, which the readers of cells do not know."""
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.large_string()) if pt.is_string_view(column.type) else column
