"""A graph in one `.npz` file, read without pickle and without trusting what the archive says of itself."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.files.limits import check_archive, told
from cvgnn.files.npy import read_array
from cvgnn.graph import Graph, RandomSplit
from cvgnn.graph.arrays import checked_csr, from_arrays
from cvgnn.graph.names import shown

_SPARSE = ("x_data", "x_indices", "x_indptr", "x_shape")
_SPLITS = ("train", "val", "test")
KEYS = (
    *("edge_index", "edges", "edge_weight", "x", *_SPARSE, "y"),
    *(f"{part}_{form}" for form in ("ids", "mask") for part in _SPLITS),
    *("node_names", "class_names", "num_classes"),
)


def read_npz(path: Path, *, split: RandomSplit | None = None, directed: bool = False) -> Graph:
    """A graph from the arrays of an `.npz` file. Only the keys below may be there.

    Args:
        path: holds `edge_index` `[2, m]` or `edges` `[m, 2]`; `x` `[N, F]`, or its CSR parts `x_data`, `x_indices`,
            `x_indptr`, `x_shape`; `y` `[N]`, integers or strings; and if wanted `edge_weight` `[m]`, `train_ids`,
            `val_ids`, `test_ids` (or `train_mask`, ... `[N]`), `node_names` `[N]`, `class_names` `[C]`, `num_classes`.
        split, directed: as in `read_graph`.
    """
    with told(path):
        arrays = _read_arrays(path)
        ids = [_ids(arrays, part) for part in _SPLITS]
        names = arrays.get("class_names")
        require(
            names is None or (names.ndim == 1 and names.dtype.kind in "Uiu"),
            "class_names must be a vector of strings",
        )
        return from_arrays(
            _edge_index(arrays),
            x=_features(arrays),
            y=_wanted(arrays, "y"),
            train_ids=ids[0],
            val_ids=ids[1],
            test_ids=ids[2],
            split=split,
            edge_weight=arrays.get("edge_weight"),
            num_classes=_number(arrays, "num_classes"),
            directed=directed,
            name=path.stem,
            node_names=arrays.get("node_names"),
            class_names=None if names is None else [str(name) for name in names.tolist()],
        )


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
    return np.ascontiguousarray(edges.T)


def _features(arrays: dict[str, np.ndarray]) -> Any:
    if "x" in arrays:
        surplus = [key for key in _SPARSE if key in arrays]
        require(not surplus, f"give x or its sparse parts, not both; it has x and {', '.join(surplus)}")
        return _float32(arrays["x"], "x")
    if "x_data" not in arrays:
        _wanted(arrays, "x")
    data, indices, indptr, shape = (_wanted(arrays, key) for key in _SPARSE)
    for key, array in zip(_SPARSE[1:], (indices, indptr, shape), strict=True):
        require(array.dtype.kind in "iu" and array.ndim == 1, f"{key} must be a vector of integers")
    require(shape.size == 2 and bool((shape >= 0).all()), f"x_shape must be [N, F]; it is {shape.tolist()[:3]}")
    return checked_csr(_float32(data, "x_data"), indices, indptr, (int(shape[0]), int(shape[1])), "x")


def _ids(arrays: dict[str, np.ndarray], part: str) -> np.ndarray | None:
    ids, mask = arrays.get(f"{part}_ids"), arrays.get(f"{part}_mask")
    require(ids is None or mask is None, f"give {part}_ids or {part}_mask, not both")
    require(
        mask is None or (mask.dtype == np.bool_ and mask.ndim == 1),
        f"{part}_mask must be one boolean per node; it is {None if mask is None else mask.dtype} of "
        f"shape {[] if mask is None else list(mask.shape)}",
    )
    return ids if mask is None else mask


def _number(arrays: dict[str, np.ndarray], key: str) -> int | None:
    if key not in arrays:
        return None
    array = arrays[key]
    require(array.size == 1 and array.dtype.kind in "iu", f"{key} must be one whole number; it is {array.dtype}")
    return int(array.reshape(()))


def _wanted(arrays: dict[str, np.ndarray], key: str) -> np.ndarray:
    require(key in arrays, f"it has no {key}; it has: {', '.join(arrays) or 'nothing'}")
    return arrays[key]


def _float32(array: np.ndarray, key: str) -> np.ndarray:
    require(array.dtype.kind in "biuf", f"{key} must hold numbers, not {array.dtype}")
    with np.errstate(over="ignore"):  # becomes infinite, which is refused with its place
        return array.astype(np.float32, copy=False)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            for member in members:
                key = member.filename.removesuffix(".npy")
                if key == member.filename or key not in KEYS:
                    raise unknown_name("key", key, KEYS)
            require(len({member.filename for member in members}) == len(members), "it holds a key twice")
            check_archive(members)
            arrays = {}
            for member in members:
                key = member.filename.removesuffix(".npy")
                with archive.open(member) as stream:
                    arrays[key] = read_array(stream, key, member.file_size)
            return arrays
    except CvgnnError:
        raise
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise CvgnnError(f"it is damaged, or no .npz file ({shown([error])[:200]})") from None
