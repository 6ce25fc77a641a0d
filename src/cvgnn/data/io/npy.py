"""Reads arrays in numpy's `.npy` format; the header is checked against the file size before memory is allocated."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import warnings
import zipfile
import zlib
from typing import IO, Any, NamedTuple, final

import numpy as np

from cvgnn.errors import require
from cvgnn.utils.progress import ProgressCallback, no_progress

DAMAGE = (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError)
"""What damaged `.npy` and `.npz` files raise. zipfile raises RuntimeError for an encrypted member, and its subclass
NotImplementedError for an unknown compression."""

# Headers of plain arrays have 118 characters; numpy takes seconds to refuse a crafted one of the 10,000 it allows.
_MAX_HEADER = 512
_BLOCK = 1 << 20  # bytes that are read at a time: a CRC finds them in the cache, and unpacking needs no second array

_LOCAL_HEADER = struct.Struct("<26xHH")  # of a member: fixed fields, the lengths of its name and of its extra field


class Header(NamedTuple):
    """The header of an array: its `shape`, memory order and `dtype`."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]

    @property
    def num_bytes(self) -> int:
        """The size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes], what: str, size: int) -> Header:
    """Read the header of an array of numbers or strings; a `ValueError` if it disagrees with the size of the file.

    Args:
        stream: at its start; afterwards it is at the first byte of the array.
        what: its name, for messages.
        size: of the whole stream in bytes.
    """
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    require(version in readers, f"{what} is written in version {version} of the npy format; known: (1, 0), (2, 0)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns about headers written by Python 2
            shape, fortran_order, dtype = readers[version](stream, max_header_size=_MAX_HEADER)
    except (ValueError, TypeError, SyntaxError, tokenize.TokenError, OverflowError, RecursionError, MemoryError):
        # numpy parses the header as Python source, so the errors are of many kinds and their messages long.
        raise ValueError(f"{what} has a broken .npy header") from None
    kind = "pickled Python objects" if dtype.hasobject else f"{str(dtype)[:80]}, neither numbers nor strings"
    require(
        not dtype.hasobject and dtype.kind in "biufU",
        f"{what} holds {kind}, which are not read; save it as an array of numbers or strings",
    )
    header = Header(shape, fortran_order, dtype)
    require(
        all(length >= 0 for length in shape) and stream.tell() + header.num_bytes == size,
        f"{what} claims to have shape {str(list(shape))[:80]} of {str(dtype)[:80]}, but {size - stream.tell()} bytes "
        "follow: it is damaged",
    )
    return header


@final
class StoredMember(io.RawIOBase):
    """A member of a zip archive that is not compressed, read from the file itself: zipfile would copy it twice.

    Its CRC is checked at its end, as zipfile does: it takes a quarter of a second for a gigabyte.

    Args:
        file: the archive, unbuffered.
        member: its entry in the table of contents.
    """

    def __init__(self, file: io.FileIO, member: zipfile.ZipInfo) -> None:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\3\4":
            raise zipfile.BadZipFile(f"{member.filename} has no header")
        name, extra = _LOCAL_HEADER.unpack(header)
        file.seek(name + extra, io.SEEK_CUR)
        self._file, self._member = file, member
        self._done = self._crc = 0

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes; none at the end, where a wrong CRC is an error."""
        view = memoryview(buffer)[: self._member.file_size - self._done]
        count = self._file.readinto(view) or 0
        self._crc = zlib.crc32(view[:count], self._crc)
        self._done += count
        if self._done == self._member.file_size and self._crc != self._member.CRC:
            raise zipfile.BadZipFile(f"Bad CRC-32 for file {self._member.filename!r}")
        return count

    def tell(self) -> int:
        """The number of bytes that were read."""
        return self._done

    def readable(self) -> bool:
        """True."""
        return True


def read_array(stream: IO[bytes], what: str, size: int) -> np.ndarray:
    """Read an array of numbers or strings.

    Args:
        stream: yields no more than `size` bytes; a member of an archive checks its CRC at the end.
        what: its name, for messages.
        size: of the whole stream in bytes.
    """
    return read_content(stream, what, read_header(stream, what, size))


def read_content(stream: IO[bytes], what: str, header: Header, progress: ProgressCallback = no_progress) -> np.ndarray:
    """The array that follows its header in a stream; `progress` is called with the share that is read."""
    array = np.empty(header.shape, dtype=header.dtype, order="F" if header.fortran_order else "C")
    view = array.reshape(-1, order="A").view(np.uint8).data if header.num_bytes else memoryview(b"")
    filled = 0
    while filled < header.num_bytes:
        count = stream.readinto(view[filled : filled + _BLOCK])  # type: ignore[attr-defined]
        require(count > 0, f"{what} ends too early: the file is damaged")
        filled += count
        progress(what, filled / header.num_bytes)
    require(stream.read(1) == b"", f"{what} is longer than its header says: the file is damaged")
    return array if header.dtype.isnative else array.astype(header.dtype.newbyteorder("="))
