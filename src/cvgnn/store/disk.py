"""What writing a store needs of the disk: room taken beforehand, vectors that grow, and refusals as sentences."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from cvgnn.errors import CvgnnError, require
from cvgnn.store.files import DamagedStore


@final
class ArrayStream:
    """A `.npy` vector that grows: numpy leaves room in the header for the length, which is put in at the end."""

    def __init__(self, file: Path, dtype: np.dtype[Any], *, store: Path) -> None:
        self.store = store
        self.dtype = dtype
        self.length = 0
        self._file: BinaryIO = file.open("xb")
        self._write_header()
        self._start = self._file.tell()

    def append(self, values: np.ndarray) -> None:
        """Add values, `[n]`, at the end."""
        require(
            values.ndim == 1 and values.dtype == self.dtype,
            f"this stream takes vectors of {self.dtype}; the array is {values.dtype} of shape {list(values.shape)}",
        )
        with told(self.store):
            self._file.write(np.ascontiguousarray(values).data)
        self.length += values.size

    def mapped(self) -> np.ndarray:
        """What was appended so far, to be read."""
        self._file.flush()
        return np.memmap(self._file.name, dtype=self.dtype, mode="r+", offset=self._start, shape=(self.length,))

    def close(self) -> None:
        """Put the length into the header. Called by the writer."""
        if not self._file.closed:
            self._file.seek(0)
            self._write_header()
            assert self._file.tell() == self._start
            self._file.close()

    def discard(self) -> None:
        """Let go of the file, whatever state it is in."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _write_header(self) -> None:
        np.lib.format.write_array_header_1_0(
            self._file, {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length,)}
        )


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What the system refuses, or what is wrong with the arrays, as a sentence about the store to be written."""
    try:
        yield
    except DamagedStore as error:
        raise CvgnnError(f"cannot write the store {path}: {error.what}") from None
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise _taken(path) from None
        way_out = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "check the folder"
        raise CvgnnError(
            f"cannot write the store {path}: {error.strerror}; {way_out}, or choose another place"
        ) from None


def refuse_taken(path: Path) -> None:
    """Refuse a place where something is; an empty folder is nothing."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise CvgnnError(f"cannot write the store {path}: it exists and is not a folder; choose another place")
    if path.is_dir() and any(path.iterdir()):
        raise _taken(path)


def allocate(file: Path, size: int) -> None:
    """Take the room of a file now: a full disk is then an error here, not a signal that kills the process later."""
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as handle:
            try:
                os.posix_fallocate(handle.fileno(), 0, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise


def _taken(path: Path) -> CvgnnError:
    return CvgnnError(f"output folder {path} is not empty; choose another, or empty it first")
