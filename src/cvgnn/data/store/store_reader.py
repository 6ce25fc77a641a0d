"""Open a store as a `Graph` by memory map: in milliseconds, whatever its size."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import mmap
import os
import sys
import warnings
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from cvgnn.data import Graph, SparseFeatures
from cvgnn.data.graph import Cutout
from cvgnn.data.store import contents_check
from cvgnn.data.store.header import FORMAT, VERSION, ArrayEntry, DamagedStore, open_file, read_header
from cvgnn.errors import CvgnnError
from cvgnn.utils.checked_json import short
from cvgnn.utils.progress import ProgressCallback, no_progress

COMMON_FIELDS = (
    "name", "num_classes", "class_names", "directed", "split", "PX_normalization", "preprocessing", "edge_class_names",
)  # fmt: skip
"""Fields of the header that are fields of `Graph`."""
COMMON_ARRAYS = (
    "indptr", "indices", "edge_weight", "y", "train_ids", "val_ids", "test_ids", "edge_label_index", "edge_label",
    "edge_split", "graph_ids",
)  # fmt: skip
"""Arrays of a store that are fields of `Graph`; `edge_weight` and the last four may be missing."""
NAMES = ("node_names", "graph_names")
"""Arrays of the user's own ids; they may be missing."""

_BYTES_PER_READ = 1 << 22


def open_store(path: Path) -> Graph:
    """Open a store with its arrays mapped from the files; only headers and small arrays are read.

    Checked here: the header and its checksum, the existence, length, dtype and shape of every file, both ends of all
    offsets and splits, and all of offsets, splits and labels that have at most 2^20 entries. Left to `verify_store`:
    the SHA-256 of every file. Left to training: `check_indices`, which reads offsets, edges, columns of sparse
    features, splits and labels once, in bounded memory (`graph.check_structure()` is its part for the edges).

    Args:
        path: the folder.

    Returns:
        A graph whose tensors share the memory of the files. Writing to one changes memory, never the file.
    """
    folder = Path(path)
    header = read_header(folder)
    arrays = {name: map_array(folder, entry) for name, entry in header.arrays.items()}
    tensors = {name: as_tensor(array) for name, array in arrays.items() if name not in NAMES}
    fields: dict[str, Any] = {name: getattr(header.graph, name) for name in COMMON_FIELDS}
    fields |= {name: tensors.get(name) for name in COMMON_ARRAYS}
    fields |= {form: get_features(tensors, form, header.graph.num_features) for form in ("x", "PX")}
    fields |= {name: arrays.get(name) for name in NAMES}
    cutout = None
    if (hops := header.graph.hops) is not None:
        cutout = Cutout(ids=tensors["whole_ids"], row_sums=tensors["whole_row_sums"], hops=hops,
                        num_nodes=header.graph.whole_nodes or header.graph.num_nodes)  # fmt: skip
    graph = Graph(**fields, cutout=cutout, validated=True)
    contents_check.check_small(folder, graph)
    return graph


def verify_store(path: Path, progress: ProgressCallback | None = None) -> None:
    """Read every file of a store and compare its SHA-256; a `CvgnnError` names the first damaged one.

    Args:
        path: the folder.
        progress: called with a file's name and the share of all bytes read so far.
    """
    folder = Path(path)
    open_store(folder)
    entries = read_header(folder).arrays.values()
    total, before = sum(entry.bytes for entry in entries), 0
    for entry in entries:
        try:
            with open_file(folder, entry.file) as file:
                digest = compute_sha256(file, progress or no_progress, entry.file, before, total)
        except OSError as error:
            raise DamagedStore(folder, f"{entry.file} cannot be read ({error.strerror})") from None
        if digest != entry.sha256:
            raise DamagedStore(folder, f"{entry.file} is damaged: its SHA-256 is {digest}, not {entry.sha256}")
        before += entry.bytes


def describe_store(path: Path) -> dict[str, Any]:
    """The header of a store as a dictionary.

    Args:
        path: the folder.

    Returns:
        `format`, `version`, `cvgnn`, the fields of the graph, `split_sizes` (train, val, test), `bytes` (of all
        arrays), and `arrays` with `file`, `shape`, `dtype`, `bytes`, `sha256` of each.
    """
    header = read_header(Path(path))
    return {
        "format": FORMAT,
        "version": VERSION,
        "cvgnn": header.cvgnn,
        **dataclasses.asdict(header.graph),
        "split_sizes": tuple(header.arrays[f"{split}_ids"].shape[0] for split in ("train", "val", "test")),
        "bytes": sum(entry.bytes for entry in header.arrays.values()),
        "arrays": {name: dataclasses.asdict(entry) for name, entry in header.arrays.items()},
    }


def compute_sha256(file: BinaryIO, progress: ProgressCallback, stage: str, before: int, total: int) -> str:
    """SHA-256 of a file, read in bounded pieces.

    Args:
        file: open at its beginning.
        progress: called with `stage` and the share of `total` bytes read so far.
        stage: first argument of `progress`.
        before, total: bytes of the files before this one, and of all files.
    """
    digest, done = hashlib.sha256(), before
    while piece := file.read(_BYTES_PER_READ):
        digest.update(piece)
        done += len(piece)
        progress(stage, done / total)
    return digest.hexdigest()


def get_features(tensors: dict[str, Tensor], form: str, num_columns: int) -> Tensor | SparseFeatures | None:
    """The dense or sparse matrix `form` from the tensors of a store; None if it is not there.

    Args:
        tensors: by name.
        form: `"x"` or `"PX"`.
        num_columns: `F`.
    """
    if f"{form}_indptr" not in tensors:
        return tensors.get(form)
    # Checking would read every entry: these arrays were checked when they were written.
    indptr, indices, values = (tensors[f"{form}_{field}"] for field in ("indptr", "indices", "values"))
    return SparseFeatures(indptr, indices, values, num_columns, validated=True)


def map_array(folder: Path, entry: ArrayEntry) -> np.ndarray:
    """Memory-map an array, if its file is exactly what the header of the store describes."""
    file, shape, dtype = entry.file, entry.shape, np.dtype(entry.dtype)
    # The .npy header follows from shape and dtype, so we compare bytes and parse nothing. NumPy aligns the data to 64
    # bytes, as torch aligns its own memory: a matrix product then gives the same bits as from memory.
    expected = npy_header(shape, dtype)
    array_size = len(expected) + prod(shape) * dtype.itemsize
    with open_file(folder, file) as handle:
        size, start = os.fstat(handle.fileno()).st_size, handle.read(len(expected))
        if not size == entry.bytes == array_size:
            raise DamagedStore(
                folder,
                f"{file} is {size} bytes long; header.json says {entry.bytes}, and {dtype.str} of shape {list(shape)} "
                f"takes {array_size}",
            )
        if start != expected:
            raise DamagedStore(
                folder,
                f"{file} is not a .npy file of {dtype.str!r} with shape {shape} in C order, as header.json says; it "
                f"starts with {short(start.rstrip())}",
            )
        try:
            return np.ndarray(shape, dtype, buffer=map_file(handle.fileno(), size), offset=len(expected))
        except OSError as error:
            raise CvgnnError(f"store {folder}: cannot map {file} into memory ({error.strerror})") from None


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
