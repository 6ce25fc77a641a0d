"""Flickr in GraphSAINT's raw layout and Reddit in that of DGL and PyG: SciPy's npz, numpy arrays, JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cvgnn.datasets.build import adjacency, assemble, checked_ids
from cvgnn.datasets.raw import npz_keys, read_json, read_npy, read_npz
from cvgnn.errors import CvgnnError, require
from cvgnn.graph import Graph
from cvgnn.sealed import short

_ROLES = {"train": "tr", "val": "va", "test": "te"}
_NODE_TYPES = {"train": 1, "val": 2, "test": 3}


def read_flickr(folder: Path) -> Graph:
    """Flickr from `adj_full.npz`, `feats.npy`, `class_map.json` and `role.json`.

    Features are taken as they are, as PyG and the paper's code do; GraphSAINT standardises them.

    Args:
        folder: where the four files are.
    """
    x = _features(read_npy(folder / "feats.npy"), folder / "feats.npy")
    num_nodes = len(x)
    rows, columns = _entries(folder / "adj_full.npz", num_nodes)
    structure = adjacency(rows, columns, num_nodes, path=folder / "adj_full.npz")
    del rows, columns
    role = read_json(folder / "role.json")
    split = {}
    for part, key in _ROLES.items():
        where = f"{key!r} in {folder / 'role.json'}"
        require(isinstance(role.get(key), list), f"{where} must be a list of node ids")
        split[part] = checked_ids(_id_array(role[key], where), num_nodes, where)
    y = _class_map(folder / "class_map.json", num_nodes)
    return assemble(structure, x=x, y=y, split=split, name="flickr", folder=folder)


def read_reddit(folder: Path) -> Graph:
    """Reddit from `reddit_data.npz` (features, labels, and 1, 2 or 3 for the part of the split) and `reddit_graph.npz`.

    Args:
        folder: where the two files are.
    """
    # The structure first: what it needs on the way is freed before the features come.
    path = folder / "reddit_data.npz"
    label, node_types = read_npz(path, "label", "node_types")
    num_nodes = label.shape[0] if label.ndim else 0
    for key, array in (("label", label), ("node_types", node_types)):
        require(
            array.shape == (num_nodes,) and array.dtype.kind in "iu",
            f"{key!r} in {path} must be {num_nodes} integers, not {array.dtype} of shape {list(array.shape)}",
        )
    rows, columns = _entries(folder / "reddit_graph.npz", num_nodes)
    structure = adjacency(rows, columns, num_nodes, path=folder / "reddit_graph.npz")
    del rows, columns
    (feature,) = read_npz(path, "feature")
    x = _features(feature, path, "'feature' in ")
    require(len(x) == num_nodes, f"'feature' in {path} has {len(x)} rows for {num_nodes} labels")
    split = {part: np.flatnonzero(node_types == number) for part, number in _NODE_TYPES.items()}
    return assemble(structure, x=x, y=label.astype(np.int64), split=split, name="reddit", folder=folder)


def _features(x: npt.NDArray[Any], path: Path, what: str = "") -> npt.NDArray[np.float32]:
    require(
        x.ndim == 2 and x.dtype.kind in "fiu",
        f"{what}{path} must be a matrix of numbers, not {x.dtype} of shape {list(x.shape)}",
    )
    if x.dtype == np.float32 and x.flags.writeable and x.flags.c_contiguous:
        return x
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinite, which the graph's checks name
        return np.array(x, dtype=np.float32)


def _entries(path: Path, num_nodes: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Row and column of each stored entry of a matrix that `scipy.sparse.save_npz` wrote; values do not matter."""
    keys = npz_keys(path)
    (shape,) = read_npz(path, "shape")
    require(
        shape.tolist() == [num_nodes, num_nodes],
        f"the matrix in {path} has shape {shape.tolist()}; with {num_nodes} nodes it must be {[num_nodes, num_nodes]}",
    )
    if "row" in keys:
        return _narrow(read_npz(path, "row")[0]), _narrow(read_npz(path, "col")[0])
    indptr, columns = read_npz(path, "indptr", "indices")
    require(
        indptr.shape == (num_nodes + 1,)
        and indptr.dtype.kind in "iu"
        and indptr[0] == 0
        and indptr[-1] == columns.size
        and bool((np.diff(indptr.astype(np.int64)) >= 0).all()),
        f"'indptr' in {path} must be {num_nodes + 1} offsets that rise from 0 to {columns.size}; it is not",
    )
    return np.repeat(np.arange(num_nodes, dtype=np.int32), np.diff(indptr)), columns


def _narrow(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """In int32 before the next array is read, unless that would change an id; `adjacency` names such a one."""
    if ids.dtype.kind in "iu" and ids.size and int(ids.max()) < 2**31 and int(ids.min()) >= -(2**31):
        return ids.astype(np.int32, copy=False)
    return ids


def _class_map(path: Path, num_nodes: int) -> npt.NDArray[np.int64]:
    """Labels from `{"node id": class}`; -1 where a node is not named."""
    y = np.full(num_nodes, -1, dtype=np.int64)
    for key, value in read_json(path).items():
        node = int(key) if key.isascii() and key.isdigit() and len(key) < 20 else -1
        if not 0 <= node < num_nodes:
            raise CvgnnError(f"{path} names node {key[:40]!r}, which does not exist; ids lie in 0..{num_nodes - 1}")
        if type(value) is not int or not 0 <= value < 2**31:
            raise CvgnnError(f"the class of node {key!r} in {path} must be a number 0, 1, ..., not {short(value)}")
        y[node] = value
    return y


def _id_array(values: list[Any], where: str) -> npt.NDArray[Any]:
    for value in values:
        if type(value) is not int or abs(value) >= 2**63:
            raise CvgnnError(f"{where} must be a list of node ids; it holds {str(value)[:40]!r}")
    return np.array(values, dtype=np.int64)
