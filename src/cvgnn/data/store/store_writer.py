"""Write a store piece by piece, in a folder beside it that is renamed when everything is on disk."""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Self, final

import numpy as np
from numpy.typing import DTypeLike

from cvgnn.data.store import contents_check
from cvgnn.data.store.header import (
    DTYPES,
    HEADER,
    ArrayEntry,
    DamagedStore,
    GraphFields,
    check_dtype,
    check_fields,
    write_header,
)
from cvgnn.data.store.store_reader import compute_sha256, npy_header, open_store
from cvgnn.errors import CvgnnError, require
from cvgnn.utils import atomic_files
from cvgnn.utils.file_lock import lock_folder
from cvgnn.utils.mapped_memory import allocate
from cvgnn.utils.progress import ProgressCallback, no_progress

_PIECE = 1 << 20
WORK = "work"
_DEFAULTS = {
    "name": "graph", "class_names": None, "directed": False, "split": "given", "PX_normalization": None,
    "preprocessing": None, "hops": None, "whole_nodes": None, "edge_class_names": None,
}  # fmt: skip


@final
class ArrayStream:
    """A `.npy` vector whose length is not known yet, written from front to back."""

    def __init__(self, file: Path, dtype: np.dtype[Any], *, store: Path, keep: int = 0) -> None:
        self.dtype = dtype
        self.shape: tuple[int, ...] = (keep,)
        self._store = store
        self._file: BinaryIO = file.open("r+b" if keep else "xb")
        self._start = self._file.write(npy_header(self.shape, dtype))
        self._file.seek(self._start + keep * dtype.itemsize)
        self._file.truncate()

    def append(self, values: np.ndarray) -> None:
        """Add values, `[n]`, at the end."""
        require(
            values.ndim == 1 and values.dtype == self.dtype,
            f"this stream takes vectors of {self.dtype}; the array is {values.dtype} of shape {list(values.shape)}",
        )
        with report_write_errors(self._store):
            self._file.write(np.ascontiguousarray(values).data)
        self.shape = (self.shape[0] + values.size,)

    def flush(self) -> None:
        """Write what was appended to the file."""
        with report_write_errors(self._store):
            self._file.flush()

    def map(self) -> np.ndarray:
        """The values so far, memory-mapped for reading."""
        self._file.flush()
        return np.memmap(self._file.name, dtype=self.dtype, mode="r+", offset=self._start, shape=self.shape)

    def close(self) -> None:
        """Complete the file; called by the writer."""
        self._file.seek(0)
        self._file.write(npy_header(self.shape, self.dtype))  # as long as the first one
        self._file.close()

    def discard(self) -> None:
        """Close the file in whatever state it is."""
        with suppress(OSError):
            self._file.close()


@final
class StoreWriter:
    """Writes a store array by array, in memory that does not depend on their sizes; after a failure nothing is left.

    Args:
        path: the store: a folder that does not exist yet, or is empty. Its parents are made.
        progress: called with a stage (a file's name, `P X` or `checksums`) and a share in 0..1.
        resume: go on in the folder that a process that was killed has left; `keep` says which arrays are complete.
            One writer at a time.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "tiny"
    >>> with StoreWriter(folder) as writer:
    ...     writer.write("indptr", np.array([0, 1, 2]))
    ...     writer.write("indices", np.array([1, 0], dtype=np.int32))
    ...     writer.array("x", (2, 3), np.float32)[:] = 1.0
    ...     writer.write("y", np.array([0, 1]))
    ...     for name, ids in {"train_ids": [0], "val_ids": [1], "test_ids": []}.items():
    ...         writer.write(name, np.array(ids, dtype=np.int64))
    ...     writer.finish({"name": "tiny", "num_classes": 2})
    >>> open_store(folder)
    Graph(tiny: 2 nodes, 1 edges, 3 dense features, 2 classes, split 1/1/0)
    >>> shutil.rmtree(folder.parent)
    """

    def __init__(self, path: Path, *, progress: ProgressCallback | None = None, resume: bool = False) -> None:
        self.path = Path(os.path.abspath(path))
        self._resume = resume
        self.progress = progress or no_progress
        self._folder: Path | None = None
        self._cleanup = ExitStack()  # runs unless `finish` is reached
        self._arrays: dict[str, np.memmap[Any, Any] | ArrayStream] = {}

    def __enter__(self) -> Self:
        with ExitStack() as cleanup, report_write_errors(self.path):
            _check_output(self.path)
            for parent in reversed(self.path.parents):
                if not parent.exists():
                    parent.mkdir(exist_ok=True)
                    cleanup.callback(_remove_if_empty, parent)
            token = "" if self._resume else f".{secrets.token_hex(4)}"
            folder = self.path.parent / f".{self.path.name}{token}.partial"
            folder.mkdir(exist_ok=self._resume)
            if self._resume:
                cleanup.enter_context(lock_folder(folder))
                (folder / HEADER).unlink(missing_ok=True)
                (folder / WORK).mkdir(exist_ok=True)
            cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
            self._folder, self._cleanup = folder, cleanup.pop_all()
        return self

    @property
    def work(self) -> Path:
        """A folder for other files, until the store is complete; only with `resume`."""
        return self._required_folder() / WORK

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Remove everything unless `finish` was reached; with `resume`, not after an interruption by the user."""
        for array in self._arrays.values():
            if isinstance(array, ArrayStream):
                array.discard()
        self._arrays.clear()
        if self._resume and error is not None and not isinstance(error, Exception):
            self._cleanup.pop_all()
        self._folder = None
        self._cleanup.close()

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> np.memmap[Any, Any]:
        """Create an array of a known shape, all zeros, to be filled in any order. Its disk space is allocated now.

        Args:
            name: `indptr`, `indices`, `x`, ...; see docs/store.md.
            shape: of the whole array.
            dtype: one that the array may have.
        """
        file = self._new_file(name, dtype)
        with report_write_errors(self.path):
            array: np.memmap[Any, Any] = np.lib.format.open_memmap(file, mode="w+", dtype=np.dtype(dtype), shape=shape)
            with file.open("r+b") as handle:
                allocate(handle.fileno(), array.offset + prod(shape) * array.itemsize)
        self._arrays[name] = array
        return array

    def stream(self, name: str, dtype: DTypeLike, *, keep: int = 0) -> ArrayStream:
        """Create a vector of unknown length, written from front to back with `append`.

        Args:
            name, dtype: as for `array`.
            keep: entries that are there already, with `resume`.
        """
        file = self._new_file(name, dtype, keep=keep > 0)
        with report_write_errors(self.path):
            stream = ArrayStream(file, np.dtype(dtype), store=self.path, keep=keep)
        self._arrays[name] = stream
        return stream

    def keep(self, name: str) -> np.memmap[Any, Any]:
        """Take an array that is complete in the folder, with `resume`."""
        array: np.memmap[Any, Any] = np.lib.format.open_memmap(self._required_folder() / f"{name}.npy", mode="r+")
        self._arrays[name] = array
        return array

    def write(self, name: str, array: np.ndarray) -> None:
        """Copy a whole array, which may itself be memory-mapped, in bounded pieces."""
        out = self.array(name, array.shape, array.dtype)
        rows = max(1, _PIECE // max(1, prod(array.shape[1:])))
        for first in range(0, array.shape[0], rows):
            out[first : first + rows] = array[first : first + rows]
            self.progress(f"{name}.npy", min(1.0, (first + rows) / array.shape[0]))

    def written(self, name: str) -> np.ndarray | None:
        """An array of this store in its current state, memory-mapped; None if it was not created."""
        array = self._arrays.get(name)
        with report_write_errors(self.path):
            return array.map() if isinstance(array, ArrayStream) else array

    def finish(self, fields: Mapping[str, Any]) -> None:
        """Check all arrays, compute their checksums, flush them to disk, and give the folder its name.

        Args:
            fields: `num_classes`; `num_features` for sparse features; and, where they differ from those of a
                `cvgnn.Graph`, `name`, `class_names`, `directed`, `split`, `PX_normalization`, `preprocessing`,
                `edge_class_names`. The rest follows from the arrays.
        """
        folder = self._required_folder()
        with report_write_errors(self.path):
            # In this order whatever the order of writing: equal graphs have equal headers.
            arrays = {name: self._arrays[name] for name in DTYPES if name in self._arrays}
            layout = {name: (array.shape, array.dtype) for name, array in arrays.items()}
            graph = _graph_fields(fields, {name: shape for name, (shape, _) in layout.items()})
            for stream in self._arrays.values():
                if isinstance(stream, ArrayStream):
                    stream.close()
            self._arrays.clear()  # fsync below also writes the mapped pages
            total, before, entries = sum(file.stat().st_size for file in folder.iterdir()), 0, {}
            for name, (shape, dtype) in layout.items():
                file = folder / f"{name}.npy"
                size = file.stat().st_size
                with file.open("rb") as handle:
                    digest = compute_sha256(handle, self.progress, "checksums", before, total)
                    atomic_files.sync(handle)
                entries[name] = ArrayEntry(file=file.name, shape=shape, dtype=dtype.str, bytes=size, sha256=digest)
                before += size
            write_header(folder, graph, entries)
            contents_check.check_all(self.path, open_store(folder))
            if self._resume:
                shutil.rmtree(self.work)
            atomic_files.sync_folder(folder)
            atomic_files.rename(folder, self.path)  # replaces an empty folder, refuses any other
            self._folder = None
            self._cleanup.pop_all()
            atomic_files.sync_folder(self.path.parent)

    def _new_file(self, name: str, dtype: DTypeLike, *, keep: bool = False) -> Path:
        check_dtype(name, np.dtype(dtype).str)
        require(self._resume or name not in self._arrays, f"the array {name!r} is already in this store")
        if self._resume and not keep:
            self.forget(name)
        return self._required_folder() / f"{name}.npy"

    def forget(self, name: str) -> None:
        """Remove an array, if it is there: it is not wanted, or will be written again."""
        array = self._arrays.pop(name, None)
        if isinstance(array, ArrayStream):
            array.discard()
        (self._required_folder() / f"{name}.npy").unlink(missing_ok=True)

    def _required_folder(self) -> Path:
        if self._folder is None:
            raise CvgnnError("this StoreWriter is not open; use it in a 'with' statement, and finish once")
        return self._folder


def release_pages(array: np.ndarray) -> None:
    """Give up the pages of a mapped file that are in memory; what was written to them stays in the file."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Raise errors of the system and of the arrays as a `CvgnnError` about the store that is being written."""
    try:
        yield
    except DamagedStore as error:
        raise CvgnnError(f"cannot write the store {path}: {error.problem}") from None
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise CvgnnError(f"output folder {path} is not empty; choose another, or empty it first") from None
        reason = atomic_files.describe_error(error)
        raise CvgnnError(f"cannot write the store {path}: {reason}, or choose another folder") from None


def _check_output(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise CvgnnError(f"cannot write the store {path}: it exists and is not a folder; choose another path")
    if path.is_dir() and any(path.iterdir()):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _graph_fields(fields: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> GraphFields:
    for name in ("indptr", "indices"):
        require(name in shapes, f"the array {name!r} was not written; a store needs it")
    derived: dict[str, Any] = {
        "num_nodes": shapes["indptr"][0] - 1,
        "num_edges": shapes["indices"][0],
        "features": "dense" if "x" in shapes else "sparse",
        "weighted": "edge_weight" in shapes,
        "named": "node_names" in shapes,
    }
    if "x" in shapes:
        derived["num_features"] = shapes["x"][-1]
    values = {**_DEFAULTS, **derived, **fields}  # `open_store` compares the fields with the arrays
    values = {key: value.item() if isinstance(value, np.generic) else value for key, value in values.items()}
    return check_fields(GraphFields, values, "fields")
