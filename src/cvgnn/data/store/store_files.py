"""The files of a store: opened only inside its folder, checked against the header, and memory-mapped."""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.utils import atomic_files

_PROBLEMS = {
    errno.ENOENT: "is missing",
    errno.EINVAL: "is not a regular file",
    errno.ELOOP: "is a symbolic link; a store holds its own files only",
}


class DamagedStore(CvgnnError):
    """A store that cannot be used.

    Args:
        folder: the store.
        problem: what is wrong, naming the file.
    """

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(f"store {folder}: {problem}; write it again with 'cvgnn convert', or restore it from a copy")
        self.problem = problem


@contextlib.contextmanager
def report_damage(folder: Path) -> Iterator[None]:
    """Raise errors about the arrays as `DamagedStore`."""
    try:
        yield
    except CvgnnError as error:
        raise DamagedStore(folder, str(error)) from None


def open_file(folder: Path, file: str) -> BinaryIO:
    """Open a regular file of the store for reading, not through a symbolic link.

    Args:
        folder: the store.
        file: a name without folders.
    """
    try:
        return atomic_files.open_regular(folder / file, getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        problem = _PROBLEMS.get(error.errno or 0)
        if problem is not None:
            raise DamagedStore(folder, f"{file} {problem}") from None
        raise CvgnnError(
            f"store {folder}: cannot read {file} ({error.strerror}); check the path and the permissions"
        ) from None


def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The bytes before the data in a `.npy` file of format 1.0, always 128 for the arrays of a store.

    >>> len(npy_header((2**60, 2**60), np.dtype("<U99999")))
    128
    """
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype.str, "fortran_order": False, "shape": shape})
    return header.getvalue()


def as_tensor(array: np.ndarray) -> Tensor:
    """A tensor that shares the memory of an array; the array may be read-only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def map_file(handle: int, size: int) -> mmap.mmap:
    """Map a whole file copy-on-write: writing to the array changes memory, never the file."""
    if sys.platform == "win32":
        return mmap.mmap(handle, size, access=mmap.ACCESS_COPY)
    if not _writable_pages_are_counted():
        # Linux refuses to map more than the machine's memory without MAP_NORESERVE, which Python has since 3.13.
        has_flag = sys.platform == "linux" and os.uname().machine in ("x86_64", "aarch64")
        flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000 if has_flag else 0)
        with contextlib.suppress(OSError):
            return mmap.mmap(handle, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return mmap.mmap(handle, size, access=mmap.ACCESS_READ)


def _writable_pages_are_counted() -> bool:
    """Whether writable pages count as used memory (a limit on data, or strict overcommit).

    The store must not use up what the run needs: its pages are read-only then.
    """
    if sys.platform == "win32":
        return False
    import resource

    if resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY:
        return True
    try:
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    except OSError:
        return False
