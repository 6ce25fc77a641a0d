"""Writing a store piece by piece: into a folder beside it, which gets the store's name when all of it is on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, Self, final

import numpy as np
from numpy.typing import DTypeLike

from cvgnn.disk import sync_folder
from cvgnn.errors import require, unknown_name
from cvgnn.store import checks, layout
from cvgnn.store.disk import ArrayStream, allocate, refuse_taken, told
from cvgnn.store.header import HEADER, ArrayEntry, GraphFields, header_text
from cvgnn.store.reader import open_store, sha256_of

_PIECE = 1 << 20
_DEFAULTS: dict[str, Any] = {
    "name": "graph", "class_names": None, "directed": False, "split": "given", "PX_normalization": None
}  # fmt: skip


@final
class StoreWriter:
    """Writes a store array by array, in memory that does not depend on their sizes; it appears whole or not at all.

    Args:
        path: the store: a folder that does not exist yet, or is empty. Its parents are made.
        progress: called with a file's name and a share in 0..1 while `write` copies and `finish` reads it back.

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

    def __init__(self, path: Path, *, progress: Callable[[str, float], None] | None = None) -> None:
        self.path = Path(os.path.abspath(path))
        self._tell = progress or (lambda stage, share: None)
        self._folder: Path | None = None
        self._made: list[Path] = []
        self._entries: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self._open: dict[str, np.memmap[Any, Any] | ArrayStream] = {}

    def __enter__(self) -> Self:
        try:
            with told(self.path):
                refuse_taken(self.path)
                for parent in reversed(self.path.parents):
                    if not parent.exists():
                        parent.mkdir(exist_ok=True)
                        self._made.append(parent)
                folder = self.path.parent / f".{self.path.name}.{secrets.token_hex(4)}.partial"
                folder.mkdir()
                self._folder = folder
        except BaseException:
            self._remove_parents()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove everything unless `finish` was reached."""
        for stream in self._open.values():
            if isinstance(stream, ArrayStream):
                stream.discard()
        self._open.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._remove_parents()
            self._folder = None

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> np.memmap[Any, Any]:
        """A new array of a known shape, all zeros, to be written in any order. Its place on disk is taken at once.

        Args:
            name: `indptr`, `indices`, `x`, ...; see docs/store.md.
            shape: of the whole.
            dtype: one that the array may have.
        """
        file, of = self._new(name, dtype)
        with told(self.path):
            array: np.memmap[Any, Any] = np.lib.format.open_memmap(file, mode="w+", dtype=of, shape=shape)
            allocate(file, array.offset + prod(shape) * of.itemsize)
        self._entries[name] = (tuple(shape), of)
        self._open[name] = array
        return array

    def stream(self, name: str, dtype: DTypeLike) -> ArrayStream:
        """A new vector of a length that nobody knows yet, written from front to back with `append`."""
        file, of = self._new(name, dtype)
        with told(self.path):
            stream = ArrayStream(file, of, store=self.path)
        self._open[name] = stream
        return stream

    def write(self, name: str, array: np.ndarray) -> None:
        """Copy a whole array, which may itself be a memory map, in bounded pieces."""
        out = self.array(name, array.shape, array.dtype)
        rows = max(1, _PIECE // max(1, prod(array.shape[1:])))
        for first in range(0, array.shape[0], rows):
            out[first : first + rows] = array[first : first + rows]
            self._tell(f"{name}.npy", min(1.0, (first + rows) / array.shape[0]))

    def written(self, name: str) -> np.ndarray | None:
        """An array of this store as it stands, mapped; None if it was not begun."""
        array = self._open.get(name)
        return array.mapped() if isinstance(array, ArrayStream) else array

    def finish(self, fields: Mapping[str, Any]) -> None:
        """Check all that was written, note its checksums, bring it to disk, and give the folder its name.

        Args:
            fields: `num_classes`; `num_features` for sparse features; and, where they differ from those of a
                `cvgnn.Graph`, `name`, `class_names`, `directed`, `split`, `PX_normalization`. The rest follows from
                the arrays.
        """
        folder = self._required_folder()
        with told(self.path):
            for name, stream in self._open.items():
                if isinstance(stream, ArrayStream):
                    self._entries[name] = ((stream.length,), stream.dtype)
                    stream.close()
            self._open.clear()  # what is still in mapped pages reaches the disk with the file's fsync
            graph = self._graph_fields(fields)
            total, before, entries = sum(file.stat().st_size for file in folder.iterdir()), 0, {}
            for name, (shape, dtype) in self._entries.items():
                file = folder / f"{name}.npy"
                size = file.stat().st_size
                with file.open("rb") as handle:
                    digest = sha256_of(handle, self._tell, "checksums", before, total)
                    os.fsync(handle.fileno())
                entries[name] = ArrayEntry(file=file.name, shape=shape, dtype=dtype.str, bytes=size, sha256=digest)
                before += size
            with (folder / HEADER).open("x", encoding="utf-8") as text:
                text.write(header_text(graph, entries))
                text.flush()
                os.fsync(text.fileno())
            checks.check_all(self.path, open_store(folder))
            sync_folder(folder)
            os.rename(folder, self.path)  # replaces an empty folder, refuses any other
            self._folder = None
            sync_folder(self.path.parent)

    def _new(self, name: str, dtype: DTypeLike) -> tuple[Path, np.dtype[Any]]:
        of = np.dtype(dtype)
        require(layout.may_be(name, of.str), f"{name} must have dtype {layout.allowed(name)}, not {of.str!r}")
        require(name not in self._entries and name not in self._open, f"the array {name!r} is already in this store")
        return self._required_folder() / f"{name}.npy", of

    def _required_folder(self) -> Path:
        require(self._folder is not None, "this StoreWriter is not open; use it in a 'with' statement, and finish once")
        assert self._folder is not None
        return self._folder

    def _remove_parents(self) -> None:
        with contextlib.suppress(OSError):  # one that is not empty any more stays
            for parent in reversed(self._made):
                parent.rmdir()

    def _graph_fields(self, fields: Mapping[str, Any]) -> GraphFields:
        shapes = {name: shape for name, (shape, _) in self._entries.items()}
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
        known = [field.name for field in dataclasses.fields(GraphFields)]
        for key, value in fields.items():
            if key not in known:
                raise unknown_name("field", key, known)
            agrees = key not in derived or derived[key] == value
            require(agrees, f"field {key!r} is {value!r}, but the arrays say {derived.get(key)!r}")
        values = {**_DEFAULTS, **fields, **derived}
        for key in known:
            require(key in values, f"the field {key!r} is missing; a store needs it")
        values = {key: value.item() if isinstance(value, np.generic) else value for key, value in values.items()}
        names = values["class_names"]
        return GraphFields(**{**values, "class_names": None if names is None else tuple(names)})
