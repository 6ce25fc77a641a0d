"""The files of a store: opened only inside its folder, checked against their real size, and mapped."""

from __future__ import annotations

import ast
import contextlib
import errno
import mmap
import os
import reprlib
import stat
import sys
import warnings
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError

_MAGIC = b"\x93NUMPY\x01\x00"
_MAX_NPY_HEADER = 10_000
ALIGNMENT = 64

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80


def shown(value: object) -> str:
    """A value from a file as it may stand in a message: quoted, escaped and short."""
    return _short.repr(value)


class DamagedStore(CvgnnError):
    """A store that cannot be used.

    Args:
        folder: the store.
        what: what is wrong, naming the file.
    """

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(f"store {folder}: {what}; write it again with 'cvgnn convert', or restore it from a copy")
        self.what = what


def damaged(folder: Path, what: str) -> DamagedStore:
    """The error for a store that cannot be used."""
    return DamagedStore(folder, what)


def open_inside(folder: Path, file: str) -> tuple[BinaryIO, int]:
    """A file of the folder and its size: a regular file of a plain name, never reached through a link.

    Args:
        folder: the store.
        file: its name, as a header may claim it.
    """
    if file in ("", ".", "..") or any(c in file for c in "/\\:") or not file.isprintable():
        raise damaged(
            folder, f"the header names the file {shown(file)}; only plain names inside the folder are allowed"
        )
    # O_NONBLOCK: a pipe put in the place of a file must not make us wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(folder / file, flags)
    except FileNotFoundError:
        raise damaged(folder, f"{file} is missing") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise damaged(folder, f"{file} is a symbolic link; a store holds its own files only") from None
        raise CvgnnError(
            f"store {folder}: cannot read {shown(file)} ({error.strerror}); check the path and the permissions"
        ) from None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise damaged(folder, f"{file} is not a regular file")
    return os.fdopen(handle, "rb"), status.st_size


def map_array(folder: Path, file: str, *, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> np.ndarray:
    """The array of a `.npy` file by memory map, after its length and its own header agreed with what is expected.

    Args:
        folder: the store.
        file: name of the file.
        shape, dtype: what it must hold, in C order.
        size: its length in bytes, as the store's header says.
    """
    handle, real_size = open_inside(folder, file)
    with handle:
        if real_size != size:
            raise damaged(folder, f"{file} is {real_size} bytes long where header.json says {size}")
        start = _data_start(folder, file, handle, shape, dtype)
        if start + prod(shape) * dtype.itemsize != real_size:
            raise damaged(
                folder,
                f"{file} is {real_size} bytes long, which is not what {dtype.str} of shape {list(shape)} takes "
                f"({start + prod(shape) * dtype.itemsize} bytes)",
            )
        try:
            buffer = _map(handle.fileno(), real_size)
        except OSError as error:
            raise CvgnnError(f"store {folder}: cannot map {file} into memory ({error.strerror})") from None
    return np.ndarray(shape, dtype, buffer=buffer, offset=start)


def as_tensor(array: np.ndarray) -> Tensor:
    """A tensor over the array's own memory."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _data_start(folder: Path, file: str, handle: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Where the data of a `.npy` file begins; refuses a file that does not say that it holds `shape` and `dtype`."""
    head = handle.read(10)
    if len(head) < 10 or head[:8] != _MAGIC:
        raise damaged(folder, f"{file} is not a .npy file of format 1.0")
    length = int.from_bytes(head[8:], "little")
    text = handle.read(length) if length <= _MAX_NPY_HEADER else b""
    try:
        said = ast.literal_eval(text.decode("latin1").strip()) if len(text) == length else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        said = None
    if not isinstance(said, dict) or set(said) != {"descr", "fortran_order", "shape"}:
        raise damaged(folder, f"{file} has a broken .npy header")
    if "O" in str(said["descr"]):
        raise damaged(folder, f"{file} holds pickled objects, which are never loaded")
    if said["fortran_order"] is not False:
        raise damaged(folder, f"{file} is in Fortran order; a store holds C order only")
    if said["descr"] != dtype.str or said["shape"] != shape:
        raise damaged(
            folder,
            f"{file} holds {shown(said['descr'])} of shape {shown(said['shape'])} where header.json says "
            f"{dtype.str!r} of shape {shape}",
        )
    start = 10 + length
    if start % ALIGNMENT:
        raise damaged(folder, f"the data of {file} begin at byte {start}, which is not a multiple of {ALIGNMENT}")
    return start


def _map(handle: int, size: int) -> mmap.mmap:
    """The whole file, copy-on-write: pages stay the file's until somebody writes, and the file never changes."""
    if sys.platform == "win32":
        return mmap.mmap(handle, size, access=mmap.ACCESS_COPY)
    if not _writable_pages_are_counted():
        # Without MAP_NORESERVE Linux refuses to map more than the machine's memory so. (Python knows it since 3.13.)
        usual = sys.platform == "linux" and os.uname().machine in ("x86_64", "aarch64")
        flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000 if usual else 0)
        with contextlib.suppress(OSError):
            return mmap.mmap(handle, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return mmap.mmap(handle, size, access=mmap.ACCESS_READ)


def _writable_pages_are_counted() -> bool:
    """Whether pages that might be written count as memory taken (a limit on data, or strict overcommit): then the
    store must not use up what the run may have, and its pages are read-only."""
    if sys.platform == "win32":
        return False
    import resource

    if resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY:
        return True
    try:
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    except OSError:
        return False
