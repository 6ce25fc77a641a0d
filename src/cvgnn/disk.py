"""Files that appear complete or not at all, also after a power failure, and files that are what they seem.

What a run must not lose is written through here, so that the tests can let any of it fail.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def create(path: Path) -> BinaryIO:
    """A new file, open for writing."""
    return path.open("xb", buffering=0)


def write(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write all of `data`."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[file.write(rest) :]


def sync(file: BinaryIO) -> None:
    """Bring what was written to disk."""
    os.fsync(file.fileno())


def rename(old: Path, new: Path) -> None:
    """Give a file or folder another name; a file of that name is replaced."""
    os.replace(old, new)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk."""
    if os.name == "nt":  # where a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_regular(path: Path) -> BinaryIO:
    """A file to be read, if it is one: a pipe or a device in its place would make us wait or read for ever."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return open(handle, "rb")


def write_file(path: Path, data: bytes) -> None:
    """Write a file that has its new content or its old one, whatever happens in between.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     write_file(Path(name) / "a", b"1")
    ...     (Path(name) / "a").read_bytes(), [p.name for p in Path(name).iterdir()]
    (b'1', ['a'])
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with create(partial) as file:
            write(file, data)
            sync(file)
        rename(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    sync_folder(path.parent)


def reason(error: OSError) -> str:
    """What the system said, and what to do about it."""
    what = error.strerror or type(error).__name__
    return f"{what}; free some space" if error.errno in NO_ROOM else f"{what}; check the disk and the folder's rights"
