"""Atomic file writes: after a failure, also of power, a file has its old content or its new one.

Everything that a run must not lose is written through these functions, so that tests can make each one fail.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from cvgnn.errors import CvgnnError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def create(path: Path) -> BinaryIO:
    """Create a file and open it for writing."""
    return path.open("xb", buffering=0)


def write(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write all of `data`; an unbuffered file may take several calls."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[file.write(rest) :]


def sync(file: BinaryIO) -> None:
    """Flush a file to disk (fsync)."""
    os.fsync(file.fileno())


def write_new(path: Path, text: str) -> None:
    """Create a file, on disk when this returns: for a new folder, which gets its name when all files are there."""
    with create(path) as file:
        write(file, text.encode())
        sync(file)


def rename(old: Path, new: Path) -> None:
    """Rename a file or folder; an existing file of the new name is replaced."""
    os.replace(old, new)


def sync_folder(folder: Path) -> None:
    """Flush the file names of a folder to disk (fsync)."""
    if os.name == "nt":  # a folder cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_regular(path: Path, flags: int = 0) -> BinaryIO:
    """Open a regular file for reading; an `OSError` (EINVAL) for a pipe or device, where reads may never end.

    Args:
        path: the file.
        flags: more flags for `os.open`.
    """
    # O_NONBLOCK: opening a pipe must not wait for a writer.
    flags |= os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return open(handle, "rb")


def read_bytes(file: Path, most: int) -> bytes:
    """The content of a regular file; `ValueError` if it has more than `most` bytes."""
    with open_regular(file) as opened:
        # The size first: read(n) allocates n bytes, however short the file is, and read() has no bound.
        if os.fstat(opened.fileno()).st_size > most:
            raise ValueError(f"is longer than {most} bytes")
        return opened.read()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when the block ends; if the block fails, `path` stays as it was.

    The order makes it safe (T. Y. Pillai and others, "All File Systems Are Not Created Equal", OSDI 2014): the data is
    on disk before the name is, and the name before anybody relies on it.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with io.BufferedWriter(create(partial)) as file:
            yield file
            file.flush()
            sync(file)
        rename(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    sync_folder(path.parent)


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     write_file(Path(name) / "a", b"1")
    ...     (Path(name) / "a").read_bytes(), [p.name for p in Path(name).iterdir()]
    (b'1', ['a'])
    """
    with replacing(path) as file:
        write(file, data)


def describe_error(error: OSError, advice: str = "check the disk and the folder's permissions") -> str:
    """The system's error message and what to do about it."""
    message = error.strerror or str(error) or type(error).__name__
    return f"{message}; {'free some space' if error.errno in _DISK_FULL else advice}"


@contextlib.contextmanager
def report_errors(what: str, advice: str = "check the disk and the folder's permissions") -> Iterator[None]:
    """Raise an `OSError` of the block as a `CvgnnError`: what failed, the system's message, and what to do.

    >>> with report_errors("cannot use a", "choose another folder"):
    ...     open("/no/such/file")
    Traceback (most recent call last):
    cvgnn.errors.CvgnnError: cannot use a: No such file or directory; choose another folder
    """
    try:
        yield
    except OSError as error:
        raise CvgnnError(f"{what}: {describe_error(error, advice)}") from None
