"""Tables in Parquet files, read with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import numpy as np

from cvgnn.errors import CvgnnError, require
from cvgnn.files.limits import check_memory, told
from cvgnn.files.table import Table, Words
from cvgnn.graph.convert import optional
from cvgnn.graph.names import shown

_ROWS_AT_ONCE = 4096


@final
class ParquetTable(Table):
    """A Parquet file. Words may be strings, integers, booleans or categories; numbers may also be lists of numbers.

    Args:
        path: its file; the list of columns is read here.
    """

    def __init__(self, path: Path) -> None:
        self._arrow = optional("pyarrow", extra="parquet", purpose=f"reading {path}")
        parquet = optional("pyarrow.parquet", extra="parquet", purpose=f"reading {path}")
        self._compute = optional("pyarrow.compute", extra="parquet", purpose=f"reading {path}")
        path.open("rb").close()  # what the system refuses is told as such
        with _sound(path):
            self._file = parquet.ParquetFile(path)
            self._schema = self._file.schema_arrow
        super().__init__(path, self._schema.names)

    def read(
        self, *, words: Sequence[str], numbers: Sequence[str], dtype: type[np.floating]
    ) -> tuple[dict[str, Words], np.ndarray]:
        """See `Table.read`."""
        rows = self._file.metadata.num_rows
        with told(self.path):
            # Repeated values take no room in the file, but they do in memory.
            check_memory(rows * (8 * len(words) + np.dtype(dtype).itemsize * len(numbers)))
        with _sound(self.path):
            found = {name: self._words(self._file.read(columns=[name]).column(0), name) for name in words}
            for column in (column for column in found.values() if len(column.codes) != rows):
                raise CvgnnError(f"{self.path} is damaged: {len(column.codes)} of {rows} rows are there")
            return found, self._numbers(numbers, rows, dtype)

    def place(self, row: int) -> str:
        """The number of a row, counted from 1."""
        return f"row {row + 1}"

    def _words(self, column: Any, name: str) -> Words:
        types = self._arrow.types
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if types.is_null(column.type):
            return Words([], np.full(len(column), -1, dtype=np.int64))
        if types.is_floating(column.type):  # what pandas makes of integers when one is missing
            column = self._whole(column.to_numpy(), name)
        known = (types.is_string, types.is_large_string, types.is_integer, types.is_boolean)
        require(
            any(test(column.type) for test in known),
            f"{self.path}, column {name[:80]!r} holds {str(column.type)[:80]}; it must hold integers or strings",
        )
        encoded = column.cast(self._arrow.large_string()).combine_chunks().dictionary_encode()
        codes = encoded.indices.cast(self._arrow.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return _without_empty(encoded.dictionary.to_pylist(), codes)

    def _whole(self, values: np.ndarray, name: str) -> Any:
        values = values.astype(np.float64)
        missing = np.isnan(values)
        fraction = np.flatnonzero(~missing & ((values != np.floor(values)) | (np.abs(values) > 2**53)))
        if fraction.size:
            raise self.error(int(fraction[0]), name, f"{values[fraction[0]]} is neither an integer nor a string")
        integers = np.where(missing, 0, values).astype(np.int64)
        return self._arrow.chunked_array([self._arrow.array(integers, mask=missing)])

    def _numbers(self, names: Sequence[str], rows: int, dtype: type[np.floating]) -> np.ndarray:
        widths = [self._width(name) for name in names]
        starts = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        with told(self.path):
            check_memory(rows * int(starts[-1]) * np.dtype(dtype).itemsize)
        matrix = np.empty((rows, int(starts[-1])), dtype=dtype)
        first = 0
        if names:
            for batch in self._file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(names)):
                last = first + batch.num_rows
                for at, name in enumerate(names):
                    block = self._block(batch.column(batch.schema.get_field_index(name)), name, widths[at], first)
                    with np.errstate(over="ignore"):
                        matrix[first:last, starts[at] : starts[at + 1]] = block
                first = last
        require(first == rows or not names, f"{self.path} is damaged: {first} of {rows} rows are there")
        self.check_finite(matrix, np.repeat(np.array(names, dtype=object), widths).tolist())
        return matrix

    def _width(self, name: str) -> int:
        """How many numbers a cell of a column holds: 1, or the length of the first row's list."""
        kind, types = self._schema.field(name).type, self._arrow.types
        lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        numeric = kind.value_type if lists else kind
        require(
            types.is_integer(numeric) or types.is_floating(numeric) or types.is_boolean(numeric),
            f"{self.path}, column {name[:80]!r} holds {str(kind)[:80]}; it must hold numbers",
        )
        if not lists:
            return 1
        first = next(self._file.iter_batches(batch_size=1, columns=[name]), None)
        return 0 if first is None or not first.num_rows else len(first.column(0)[0].as_py() or ())

    def _block(self, column: Any, name: str, width: int, first: int) -> np.ndarray:
        """Some rows of a column as a matrix `[rows, width]`; `first` is the number of the first of them."""
        types = self._arrow.types
        self._refuse_missing(column, name, first)
        if not types.is_primitive(column.type):
            lengths = self._compute.list_value_length(column).to_numpy(zero_copy_only=False)
            ragged = np.flatnonzero(lengths != width)
            if ragged.size:
                what = f"{lengths[ragged[0]]} numbers, but the first row has {width}"
                raise self.error(first + int(ragged[0]), name, what)
            column = column.flatten()
            if column.null_count:
                at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise self.error(first + at // width, name, "nothing where a number must be")
        values: np.ndarray = column.to_numpy(zero_copy_only=False)
        return values.reshape(-1, width)

    def _refuse_missing(self, column: Any, name: str, first: int) -> None:
        if column.null_count:
            at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise self.error(first + at, name, "nothing where a number must be")


def _without_empty(vocabulary: list[str], codes: np.ndarray) -> Words:
    """The empty string is no word: its code becomes -1."""
    if "" not in vocabulary:
        return Words(vocabulary, codes)
    at = vocabulary.index("")
    codes = np.where(codes == at, -1, np.where(codes > at, codes - 1, codes))
    return Words(vocabulary[:at] + vocabulary[at + 1 :], codes)


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    """What pyarrow says of a damaged file, in a sentence."""
    try:
        yield
    except (CvgnnError, MemoryError):
        raise
    except Exception as error:  # they are of many kinds, built-in ones too
        reason = shown([(str(error).strip() or type(error).__name__).splitlines()[0][:200]])
        raise CvgnnError(f"{path} is damaged, or no Parquet file ({reason})") from None
