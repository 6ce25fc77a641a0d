"""One process at a time in a folder; the lock is the kernel's, so it dies with its holder."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cvgnn.errors import CvgnnError

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(file: IO[bytes] | int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_NOTICE_SECONDS = 2.0
_POLL_SECONDS = 0.1


class FolderInUse(CvgnnError):
    """Another process holds the folder."""


@contextmanager
def only_user(folder: Path) -> Iterator[None]:
    """Hold a run's folder, or say at once that another process does. No file is left behind where folders can be
    locked, which is everywhere but on Windows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name, only_user(Path(name)):
    ...     pass
    """
    with _handle(folder) as file:
        try:
            _try_lock(file)
        except OSError as error:
            if error.errno in _TAKEN:
                raise FolderInUse(
                    f"{folder} is in use: another cvgnn process is writing to it; wait for it, stop it, or choose "
                    "another folder"
                ) from None
        yield


@contextmanager
def _handle(folder: Path) -> Iterator[IO[bytes] | int]:
    if sys.platform == "win32":
        with (folder / ".lock").open("ab") as file:
            yield file
    else:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Hold the lock file `path` if nobody does; made if missing.

    Returns:
        Whether it is held now; it never is where the file system offers no locks.
    """
    with path.open("ab") as file:
        try:
            _try_lock(file)
        except OSError:
            yield False
        else:
            yield True


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock file `path`; waits while another process, or thread, holds it.

    Returns:
        Whether there is a lock: some network file systems offer none, and then temporary names must be unique.
    """
    with path.open("ab") as file:
        yield _acquire(file, path)  # closing the file releases the lock


def _acquire(file: IO[bytes], path: Path) -> bool:
    notice: float | None = time.monotonic() + _NOTICE_SECONDS
    while True:
        try:
            _try_lock(file)
        except OSError as error:
            if error.errno not in _TAKEN:
                return False
        else:
            return True
        if notice is not None and time.monotonic() > notice:
            print(f"waiting for another process that is downloading to {path.parent}", file=sys.stderr)
            notice = None
        time.sleep(_POLL_SECONDS)
