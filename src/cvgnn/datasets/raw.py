"""Raw files into arrays, with a sentence for each way in which a file can be broken; nothing is ever unpickled."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvgnn.datasets.progress import TransferProgress
from cvgnn.errors import CvgnnError, require
from cvgnn.files.npy import read_array, read_header
from cvgnn.graph.names import shown
from cvgnn.sealed import parse_json

MOST_BYTES = 2**33  # of one array; Reddit's largest has 0.9 GB
_BLOCK = 2**23
_LONGEST_LINE = 2**20
# RuntimeError is what zipfile raises for an encrypted member, and, as NotImplementedError, for an unknown compression.
_BROKEN = (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What goes wrong inside is told as a sentence about `path`."""
    try:
        yield
    except CvgnnError:
        raise
    except FileNotFoundError:
        raise CvgnnError(f"the file {path.name} is missing in the folder {path.parent}") from None
    except OSError as error:  # gzip's BadGzipFile is one, without a number
        if error.errno is None:
            raise CvgnnError(f"{path} is broken ({error}); take it again from its source") from error
        raise CvgnnError(f"cannot read {path}: {error.strerror}; check the file and its permissions") from error
    except _BROKEN as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CvgnnError(f"{path} is broken ({shown([said[:200]])}); take it again from its source") from error


def read_npz(path: Path, *keys: str) -> list[npt.NDArray[Any]]:
    """The named arrays of an `.npz` file, without pickle.

    Args:
        path: the file.
        keys: the names of the arrays.
    """
    with _opened(path) as (archive, members):
        absent = [key for key in keys if key not in members]
        has = shown(list(members)[:20])[:300]
        require(not absent, f"{path} has no array {', '.join(map(repr, absent))}; it has {has}")
        arrays = []
        for key in keys:
            info = members[key]
            require(
                info.file_size <= MOST_BYTES,
                f"{info.filename!r} in {path} claims {info.file_size} bytes when unpacked, more than any array has",
            )
            with archive.open(info) as stream, _told(path):
                arrays.append(read_array(stream, repr(key), info.file_size))
        return arrays


def npz_keys(path: Path) -> list[str]:
    """The names of the arrays of an `.npz` file."""
    with _opened(path) as (_, members):
        return list(members)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """An `.npz` file, and its members by the names of the arrays."""
    with reading(path), path.open("rb") as file:
        require(file.read(2) == b"PK", f"{path} is not an .npz file; take it again from its source")
        with zipfile.ZipFile(file) as archive:
            yield archive, {info.filename.removesuffix(".npy"): info for info in archive.infolist()}


def read_npy(path: Path) -> npt.NDArray[Any]:
    """An `.npy` file as a memory map, without pickle."""
    with reading(path), path.open("rb") as file:
        with _told(path):
            header = read_header(file, "it", os.fstat(file.fileno()).st_size)
        if not header.num_bytes:  # an empty file cannot be mapped
            return np.empty(header.shape, dtype=header.dtype)
        order: Literal["F", "C"] = "F" if header.fortran_order else "C"
        return np.memmap(file, header.dtype, "r", offset=file.tell(), shape=header.shape, order=order)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What is wrong with an array, without the advice for a file that one has made oneself."""
    try:
        yield
    except CvgnnError as error:
        what = str(error).partition(";")[0]
        raise CvgnnError(f"{path} is broken ({what}); take it again from its source") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object."""
    with reading(path):
        value = parse_json(path.read_bytes())
        require(isinstance(value, dict), f"{path} must hold a JSON object, not a {type(value).__name__}")
        return dict(value)


def read_csv(
    path: Path, dtype: type[np.generic], columns: int | None = None, most_rows: int = 2**40
) -> npt.NDArray[Any]:
    """Numbers from a `.csv.gz` file without a header, by blocks: the text is never in memory as a whole.

    Args:
        path: the file.
        dtype: of the numbers.
        columns: how many a row must have; None for as many as the first row has.
        most_rows: reading stops soon after these, as nobody wants more: the table is then longer than that.

    Returns:
        `[rows, columns]`.
    """
    blocks: list[npt.NDArray[Any]] = []
    rows = 0
    what = f"reading {path.name}"
    with reading(path), path.open("rb") as raw, gzip.GzipFile(fileobj=raw) as file, TransferProgress(what) as progress:
        size = path.stat().st_size
        for lines in _lines(file, path):
            progress.show(raw.tell(), size)
            try:
                # loadtxt passes over empty lines.
                block = None if any(not line.strip() for line in lines) else _numbers(lines, dtype)
            except (ValueError, OverflowError):
                block = None
            if block is None or block.shape[1] != (columns or block.shape[1]):
                raise _bad_row(path, lines, rows, dtype, columns)
            columns = block.shape[1]
            rows += len(lines)
            blocks.append(block)
            if rows > most_rows:
                break
    require(bool(blocks), f"{path} is empty")
    return np.concatenate(blocks)


def _numbers(lines: list[str], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.loadtxt(lines, dtype=dtype, delimiter=",", comments=None, ndmin=2)


def _lines(file: gzip.GzipFile, path: Path) -> Iterator[list[str]]:
    rest = b""
    while data := file.read(_BLOCK):
        whole, newline, rest = (rest + data).rpartition(b"\n")
        require(len(rest) <= _LONGEST_LINE, f"{path} has a line of more than {_LONGEST_LINE} bytes; it is no table")
        if newline:
            yield whole.decode("ascii").split("\n")
    if rest:
        yield [rest.decode("ascii")]


def _bad_row(path: Path, lines: list[str], rows: int, dtype: type[np.generic], columns: int | None) -> CvgnnError:
    """Name the first row that is not `columns` numbers."""
    kind = int if np.issubdtype(dtype, np.integer) else float
    for row, line in enumerate(lines, start=rows + 1):
        fields = line.split(",")
        columns = columns or len(fields)
        if len(fields) != columns:
            return CvgnnError(f"row {row} of {path} has {len(fields)} columns, not {columns}")
        for field in fields:
            try:
                kind(field)
            except ValueError:
                word = "an integer" if kind is int else "a number"
                return CvgnnError(f"row {row} of {path} holds {field.strip()[:40]!r}, which is not {word}")
    return CvgnnError(f"{path} holds a number too large for {np.dtype(dtype).name}, after row {rows}")
