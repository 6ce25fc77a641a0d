"""Reads a graph from an `.npz` file, without pickle and without trust in the sizes that the archive declares."""

from __future__ import annotations

import contextlib
import dataclasses
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from cvgnn.data import Graph, RandomSplit
from cvgnn.data.array_converter import checked_csr, from_arrays, split_mask
from cvgnn.data.edge_split import with_edge_labels
from cvgnn.data.io.npy import DAMAGE, StoredMember, read_content, read_header
from cvgnn.data.io.size_checks import check_archive
from cvgnn.data.split import SPLITS
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.ops.threads import run_ranges
from cvgnn.utils.formatting import join_printable
from cvgnn.utils.progress import ProgressReporter

_ENCRYPTED = 1  # bit of a member's flags
_SPARSE = ("x_data", "x_indices", "x_indptr", "x_shape")
KEYS = (
    *("edge_index", "edges", "edge_weight", "x", *_SPARSE, "y"),
    *(f"{part}_{form}" for form in ("ids", "mask") for part in SPLITS),
    *("node_names", "class_names", "num_classes", "edge_label_index", "edge_label", "edge_split"),
    *("graph_ids", "graph_names"),
)


def read_npz(path: Path, *, split: RandomSplit | None = None, directed: bool = False) -> Graph:
    """Read a graph from the arrays of an `.npz` file. Any other key than these is an error.

    Args:
        path: holds `edge_index` `[2, m]` or `edges` `[m, 2]`; `x` `[N, F]`, or its CSR parts `x_data`, `x_indices`,
            `x_indptr`, `x_shape`; `y`, labels as in `from_arrays`; optionally `edge_weight` `[m]`, `train_ids`,
            `val_ids`, `test_ids` (or `train_mask`, ... `[N]`), `node_names` `[N]`, `class_names` `[C]`, `num_classes`;
            for tasks of edges, pairs of nodes `edge_label_index` `[2, M]`, their classes `edge_label` `[M]` and their
            split `edge_split` `[M]`, see `with_edge_labels`; then `y` may be missing. For a set of graphs `graph_ids`
            `[N]` and perhaps `graph_names` `[G]`; `y` and the splits are then of graphs.
        split, directed: as in `read_graph`.
    """
    arrays = _read_arrays(path)
    if (split is not None and split.allow_unlabelled) or "edge_label_index" in arrays:
        y, split = arrays.get("y"), dataclasses.replace(split or RandomSplit(), allow_unlabelled=True)
    else:
        y = _required(arrays, "y")
    train, val, test = (None,) * 3 if y is None else (_ids(arrays, y, part) for part in SPLITS)
    names, num_classes = arrays.get("class_names"), arrays.get("num_classes")
    if names is not None:
        require(names.ndim == 1 and names.dtype.kind in "Uiu", "class_names must be a vector of strings")
    if num_classes is not None:
        whole = num_classes.size == 1 and num_classes.dtype.kind in "iu"
        require(whole, f"num_classes must be one whole number; it is {num_classes.dtype}")
    graph = from_arrays(
        _edge_index(arrays),
        x=_features(arrays),
        y=y,
        train_ids=train,
        val_ids=val,
        test_ids=test,
        split=split,
        edge_weight=arrays.get("edge_weight"),
        num_classes=None if num_classes is None else int(num_classes.reshape(())),
        directed=directed,
        name=path.stem,
        node_names=arrays.get("node_names"),
        class_names=None if names is None else names.astype(str).tolist(),
        graph_ids=arrays.get("graph_ids"),
        graph_names=arrays.get("graph_names"),
    )
    label, parts = arrays.get("edge_label"), arrays.get("edge_split")
    if label is None and parts is None and "edge_label_index" not in arrays:
        return graph
    return with_edge_labels(graph, _required(arrays, "edge_label_index"), label, edge_split=parts)


def _edge_index(arrays: dict[str, np.ndarray]) -> np.ndarray:
    require(
        ("edges" in arrays) != ("edge_index" in arrays),
        "give the edges as edge_index [2, m] or as edges [m, 2], one of them; it has "
        + ("both" if "edges" in arrays else "neither"),
    )
    if "edge_index" in arrays:
        return arrays["edge_index"]
    edges = arrays["edges"]
    require(
        edges.ndim == 2 and edges.shape[1] == 2,
        f"edges must have shape [number of edges, 2]; it has {list(edges.shape)}",
    )
    return edges.T


def _features(arrays: dict[str, np.ndarray]) -> Any:
    if "x" in arrays:
        surplus = [key for key in _SPARSE if key in arrays]
        require(not surplus, f"give x or its sparse parts, not both; it has x and {', '.join(surplus)}")
        return _float32(arrays["x"])
    if "x_data" not in arrays:
        _required(arrays, "x")
    data, indices, indptr, shape = (_required(arrays, key) for key in _SPARSE)
    for key, array in zip(_SPARSE[1:], (indices, indptr, shape), strict=True):
        require(array.dtype.kind in "iu" and array.ndim == 1, f"{key} must be a vector of integers")
    require(shape.size == 2 and bool((shape >= 0).all()), f"x_shape must be [N, F]; it is {shape.tolist()[:3]}")
    return checked_csr(_float32(data), indices, indptr, (int(shape[0]), int(shape[1])), "x")


def _ids(arrays: dict[str, np.ndarray], y: np.ndarray, part: str) -> np.ndarray | None:
    num_nodes = (*y.shape, 0)[0]  # a y without dimensions is refused later
    ids, mask = arrays.get(f"{part}_ids"), split_mask(arrays, part, num_nodes)
    require(ids is None or mask is None, f"give {part}_ids or {part}_mask, not both")
    return ids if mask is None else mask


def _required(arrays: dict[str, np.ndarray], key: str) -> np.ndarray:
    require(key in arrays, f"it has no {key}; it has: {', '.join(arrays) or 'nothing'}")
    return arrays[key]


def _float32(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # overflow becomes infinite, which Graph refuses and locates
        return array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    known = {f"{key}.npy": key for key in KEYS}
    try:
        with (
            zipfile.ZipFile(path) as archive,
            ProgressReporter(f"reading {path.name}") as progress,
            contextlib.ExitStack() as files,
        ):
            members = archive.infolist()
            for member in members:
                if member.filename not in known:
                    raise unknown_name("key", member.filename.removesuffix(".npy"), KEYS)
            check_archive(members)
            keys = [known[member.filename] for member in members]
            for key in keys:
                require(keys.count(key) == 1, f"it holds the key {key} twice")
            found = [
                (_open(path, archive, member, files), key, member.file_size)
                for member, key in zip(members, keys, strict=True)
            ]
            # Headers one after another: numpy parses them as Python source, which fails in threads (Python 3.11's ast).
            headers = [read_header(*member) for member in found]
            arrays: dict[str, np.ndarray] = {}

            def read(_: int, first: int, last: int) -> None:
                for i in largest_first[first:last]:
                    arrays[keys[i]] = read_content(found[i][0], keys[i], headers[i], progress)

            # Contents on all threads, because unpacking releases the GIL.
            largest_first = sorted(range(len(keys)), key=lambda i: -members[i].file_size)
            run_ranges(read, [(i, i + 1) for i in range(len(keys))])
    except CvgnnError:
        raise
    except DAMAGE as error:
        raise CvgnnError(f"it is damaged, or no .npz file ({join_printable([error])[:200]})") from None
    return {key: arrays[key] for key in keys}


def _open(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, files: contextlib.ExitStack) -> IO[bytes]:
    """The content of a member; not through zipfile where it is stored as it is."""
    plain = member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size
    if plain and not member.flag_bits & _ENCRYPTED:
        return StoredMember(files.enter_context(path.open("rb", buffering=0)), member)  # type: ignore[return-value]
    return files.enter_context(archive.open(member))
