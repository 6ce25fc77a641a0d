"""Which search is at a trial, and whether it is still there: a lock in the search's folder that dies with its process.

A trial belongs to the folder in which its runs lie. So the next search in that folder goes on with it, as soon as the
lock is free, and searches in other folders, on other machines perhaps, leave it alone.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cvgnn.errors import CvgnnError
from cvgnn.locking import held

_FOLDER = "searching"


@contextmanager
def at_work(out: Path) -> Iterator[str]:
    """A name for this process, which is known to be at work while it is.

    Its file stays behind if the process is killed or fails, so that the next one knows whose trials it finds.
    """
    name = secrets.token_hex(8)
    file = out / _FOLDER / name
    with contextlib.ExitStack() as stack:
        with _usable(out):
            file.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(file))
        yield name
        forget(out, name)


def is_gone(out: Path, name: str) -> bool:
    """Whether a search that had this folder has ended without a word; False for one of another folder."""
    file = out / _FOLDER / name
    if re.fullmatch("[0-9a-f]{16}", name) is None or not file.is_file():  # a name comes from a study, which is shared
        return False
    with held(file) as free:
        return free


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, where they are missing."""
    with _usable(folder):
        folder.mkdir(parents=True, exist_ok=True)


def forget(out: Path, name: str) -> None:
    """Remove the file of a search that is gone, when nothing is left of it to go on with."""
    with contextlib.suppress(OSError):
        (out / _FOLDER / name).unlink()


@contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """What the system refuses, as a sentence."""
    try:
        yield
    except OSError as error:
        raise CvgnnError(f"cannot use {folder} as output folder: {error.strerror}; choose another --out") from None
