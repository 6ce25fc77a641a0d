"""Read arrays from raw files. Nothing is unpickled, and every kind of damage is an error that names the file."""

from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvgnn.data.io.npy import DAMAGE, read_array, read_header
from cvgnn.errors import CvgnnError, require
from cvgnn.utils.checked_json import parse_object
from cvgnn.utils.formatting import join_printable
from cvgnn.utils.progress import ProgressReporter

MOST_BYTES = 2**33  # of one array; the largest of Reddit has 0.9 GB
_BLOCK = 2**23
_LONGEST_LINE = 2**20


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn whatever fails inside into an error that names `path`."""
    try:
        yield
    except FileNotFoundError:
        raise CvgnnError(f"the file {path.name} is missing in the folder {path.parent}; put it there") from None
    except (OSError, MemoryError, *DAMAGE) as error:
        if isinstance(error, OSError) and error.errno is not None:  # damaged gzip is an OSError without a number
            raise CvgnnError(f"cannot read {path}: {error.strerror}; check the file and its permissions") from error
        # Behind the semicolon follows advice for the author of a file, who is not the reader here.
        what = str(error).partition(";")[0][:200] or type(error).__name__
        raise CvgnnError(f"{path} is broken ({join_printable([what])}); take it again from its source") from error


def read_npz(path: Path, *keys: str) -> list[npt.NDArray[Any]]:
    """Read the named arrays of an `.npz` file, without pickle.

    Args:
        path: the file.
        keys: the names of the arrays.
    """
    with _open_npz(path) as (archive, members):
        arrays = []
        for key in keys:
            require(key in members, f"no array {key!r}, only {join_printable(list(members)[:20])}")
            size = members[key].file_size
            require(size <= MOST_BYTES, f"{key!r} has {size} bytes when unpacked, more than any array has")
            with archive.open(members[key]) as stream:
                arrays.append(read_array(stream, repr(key), size))
        return arrays


def npz_keys(path: Path) -> list[str]:
    """Return the names of the arrays of an `.npz` file."""
    with _open_npz(path) as (_, members):
        return list(members)


@contextmanager
def _open_npz(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """Open an `.npz` file; yields it and its members by the names of the arrays."""
    with read_errors(path), zipfile.ZipFile(path) as archive:
        yield archive, {info.filename.removesuffix(".npy"): info for info in archive.infolist()}


def read_npy(path: Path) -> npt.NDArray[Any]:
    """Map an `.npy` file into memory, without pickle."""
    with read_errors(path), path.open("rb") as file:
        header = read_header(file, "it", os.fstat(file.fileno()).st_size)
        if not header.num_bytes:  # an empty file cannot be mapped
            return np.empty(header.shape, dtype=header.dtype)
        order: Literal["F", "C"] = "F" if header.fortran_order else "C"
        return np.memmap(file, header.dtype, "r", offset=file.tell(), shape=header.shape, order=order)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    with read_errors(path):
        return parse_object(path.read_bytes())


def read_csv(
    path: Path, dtype: type[np.generic], columns: int | None = None, max_rows: int = 2**40
) -> npt.NDArray[Any]:
    """Read numbers from a `.csv.gz` file without a header, in blocks: the whole text is never in memory.

    Args:
        path: the file.
        dtype: of the numbers.
        columns: number of columns; None for as many as the first row has.
        max_rows: a longer file is refused when this many rows are read, so that it cannot fill the memory.

    Returns:
        `[rows, columns]`.
    """
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    blocks: list[npt.NDArray[Any]] = []
    with read_errors(path), path.open("rb") as raw, ProgressReporter(f"reading {path.name}") as progress:
        if columns is None:
            with gzip.open(path) as text:
                columns = text.readline(_LONGEST_LINE).count(b",") + 1
        names = [str(i) for i in range(columns)]
        # Decimals are rounded to float64 first and then to float32, as pandas and OGB do.
        kind = pa.float64() if np.issubdtype(dtype, np.floating) else pa.from_numpy_dtype(dtype)
        batches = pa_csv.open_csv(
            pa.CompressedInputStream(raw, "gzip"),
            # Errors carry the number of the row only without threads. A row must fit into a block.
            pa_csv.ReadOptions(block_size=_BLOCK, column_names=names, use_threads=False),
            pa_csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            pa_csv.ConvertOptions(column_types=dict.fromkeys(names, kind), null_values=[]),
        )
        rows, size = 0, path.stat().st_size
        for batch in batches:
            progress.show_bytes(raw.tell(), size)
            with np.errstate(over="ignore"):  # becomes infinite, which the checks of the graph refuse
                block = np.stack([column.to_numpy() for column in batch.columns], axis=1)
                blocks.append(block.astype(dtype, copy=False))
            rows += len(block)
            require(rows <= max_rows, f"it has more than {max_rows} rows")
    return np.concatenate(blocks)
