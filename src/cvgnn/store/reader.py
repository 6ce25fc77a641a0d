"""From a folder back to a `Graph`: opened by memory map, in milliseconds whatever its size."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.graph import Graph, SparseFeatures
from cvgnn.store import checks, layout
from cvgnn.store.files import as_tensor, damaged, map_array, open_inside
from cvgnn.store.header import FORMAT, HEADER, VERSION, StoreHeader, read_header

Progress = Callable[[str, float], None]

_BYTES_PER_READ = 1 << 22


def is_store(path: Path) -> bool:
    """Whether `path` is a folder with a `header.json`; `open_store` says whether it is a sound one."""
    return os.path.isfile(Path(path) / HEADER)


def open_store(path: Path) -> Graph:
    """The graph of a store, its arrays mapped from the files: nothing is read but headers and small arrays.

    Checked here: the header and its checksum, the existence, length, dtype and shape of every file, both ends of all
    offsets and splits, and all of offsets, splits and labels that have at most 2^20 entries. Left to `verify_store`:
    the SHA-256 of every file. Left to training: `check_indices`, which reads offsets, edges, columns of sparse
    features, splits and labels once, in bounded memory (`graph.check_structure()` is its part for the edges).

    Args:
        path: the folder.

    Returns:
        A graph whose tensors lie over the files. Writing to one changes memory, never the file.
    """
    folder = Path(path)
    header = _checked_header(folder)
    fields = header.graph
    arrays = {name: _mapped(folder, header, name) for name in header.arrays}
    tensors = {name: as_tensor(array) for name, array in arrays.items() if name != "node_names"}
    x = features(tensors, "x", fields.num_features)
    assert x is not None  # `layout.check` asks for it
    graph = Graph(
        indptr=tensors["indptr"],
        indices=tensors["indices"],
        edge_weight=tensors.get("edge_weight"),
        x=x,
        y=tensors["y"],
        num_classes=fields.num_classes,
        train_ids=tensors["train_ids"],
        val_ids=tensors["val_ids"],
        test_ids=tensors["test_ids"],
        directed=fields.directed,
        name=fields.name,
        node_names=arrays.get("node_names"),
        class_names=fields.class_names,
        split=fields.split,
        PX=features(tensors, "PX", fields.num_features),
        PX_normalization=fields.PX_normalization,
        validated=True,
    )
    checks.check_small(folder, graph)
    return graph


def verify_store(path: Path, progress: Progress | None = None) -> None:
    """Read every file of a store and compare its SHA-256; `CvgnnError` names the first damaged one.

    Args:
        path: the folder.
        progress: called with a file's name and the share of all bytes read so far.
    """
    folder = Path(path)
    open_store(folder)
    entries = _checked_header(folder).arrays.values()
    total, before = sum(entry.bytes for entry in entries), 0
    for entry in entries:
        file, _ = open_inside(folder, entry.file)
        try:
            with file:
                digest = sha256_of(file, progress, entry.file, before, total)
        except OSError as error:
            raise damaged(folder, f"{entry.file} cannot be read ({error.strerror})") from None
        if digest != entry.sha256:
            raise damaged(folder, f"{entry.file} is damaged: its SHA-256 is {digest}, not {entry.sha256}")
        before += entry.bytes


def describe_store(path: Path) -> dict[str, Any]:
    """What the header of a store says: the graph's fields, the sizes of the split, and every array.

    Args:
        path: the folder.

    Returns:
        `format`, `version`, `cvgnn`, the fields of the graph, `split_sizes` (train, val, test), `bytes` (of all
        arrays), and `arrays` with `file`, `shape`, `dtype`, `bytes`, `sha256` of each.
    """
    header = _checked_header(Path(path))
    arrays = {name: dataclasses.asdict(entry) for name, entry in header.arrays.items()}
    return {
        "format": FORMAT,
        "version": VERSION,
        "cvgnn": header.cvgnn,
        **dataclasses.asdict(header.graph),
        "split_sizes": tuple(arrays[f"{split}_ids"]["shape"][0] for split in ("train", "val", "test")),
        "bytes": sum(entry.bytes for entry in header.arrays.values()),
        "arrays": arrays,
    }


def sha256_of(file: BinaryIO, progress: Progress | None, stage: str, before: int, total: int) -> str:
    """SHA-256 of a file in bounded pieces; `progress` gets `stage` and the share of `total` bytes read so far.

    Args:
        file: open at its beginning.
        progress: see above.
        stage: what to call it.
        before, total: bytes that were read before this file, and that will have been read in the end.
    """
    digest, done = hashlib.sha256(), before
    while piece := file.read(_BYTES_PER_READ):
        digest.update(piece)
        done += len(piece)
        if progress is not None:
            progress(stage, done / total)
    return digest.hexdigest()


def _checked_header(folder: Path) -> StoreHeader:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        raise CvgnnError(f"there is no store at {folder}; check the path, or make one with 'cvgnn convert'") from None
    except NotADirectoryError:
        raise CvgnnError(f"{folder} is not a store: it is a file, and a store is a folder with {HEADER}") from None
    except OSError as error:
        raise CvgnnError(f"cannot read the folder {folder} ({error.strerror}); check its permissions") from None
    if HEADER not in names:
        state = f"it has no {HEADER}" if names else "it is an empty folder"
        raise CvgnnError(f"{folder} is not a store: {state}; make one with 'cvgnn convert'")
    header = read_header(folder)
    layout.check(folder, header)
    return header


def _mapped(folder: Path, header: StoreHeader, name: str) -> np.ndarray:
    entry = header.arrays[name]
    return map_array(folder, entry.file, shape=entry.shape, dtype=layout.dtype_of(entry.dtype), size=entry.bytes)


def features(tensors: dict[str, Tensor], form: str, num_columns: int) -> Tensor | SparseFeatures | None:
    """The dense or sparse matrix among a store's tensors.

    Args:
        tensors: by name.
        form: `"x"` or `"PX"`.
        num_columns: `F`.
    """
    if f"{form}_indptr" not in tensors:
        return tensors.get(form)
    # Past the constructor, which reads every entry: like `Graph(validated=True)`, for arrays checked when written.
    matrix = object.__new__(SparseFeatures)
    parts = [tensors[f"{form}_{part}"] for part in ("indptr", "indices", "values")]
    for field, value in zip(("indptr", "indices", "values", "num_columns"), [*parts, num_columns], strict=True):
        object.__setattr__(matrix, field, value)
    return matrix
