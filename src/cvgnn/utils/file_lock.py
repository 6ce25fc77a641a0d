"""Locks between processes. The kernel holds them, so a lock ends with the process that holds it."""

from __future__ import annotations

import errno
import logging
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cvgnn.errors import CvgnnError

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_log = logging.getLogger(__name__)

_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_NOTICE_SECONDS = 2.0
_POLL_SECONDS = 0.1


class FolderInUse(CvgnnError):
    """Another process holds the folder."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder; raise `FolderInUse` if another process does. Without locks in the file system, do nothing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name, lock_folder(Path(name)):
    ...     pass
    """
    # A folder cannot be opened on Windows; elsewhere no lock file is left behind.
    path, flags = (folder / ".lock", os.O_RDWR | os.O_CREAT) if sys.platform == "win32" else (folder, os.O_RDONLY)
    descriptor = os.open(path, flags)
    try:
        if _acquire(descriptor) is False:
            raise FolderInUse(
                f"{folder} is in use: another cvgnn process is writing to it; wait for it, stop it, or choose "
                "another folder"
            )
        yield
    finally:
        os.close(descriptor)


@contextmanager
def lock_file(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock file `path`, which is created if it is missing.

    Args:
        path: the file.
        wait: wait while another process, or thread, holds it.

    Returns:
        Whether it is held now. It never is on a file system without locks, as some network file systems are.
    """
    with path.open("ab") as file:  # closing the file releases the lock
        notice_time = time.monotonic() + _NOTICE_SECONDS
        while (acquired := _acquire(file.fileno())) is False and wait:
            if time.monotonic() > notice_time:
                _log.info("waiting for another process that is downloading to %s", path.parent)
                notice_time = math.inf
            time.sleep(_POLL_SECONDS)
        yield bool(acquired)


def _acquire(descriptor: int) -> bool | None:
    """True if the lock was free, False if another holds it, None if there are no locks here."""
    try:
        _try_lock(descriptor)
    except OSError as error:
        return False if error.errno in _TAKEN else None
    return True
