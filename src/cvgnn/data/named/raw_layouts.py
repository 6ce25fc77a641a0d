"""ogbn-arxiv in the raw layout of OGB, Flickr, PPI, Yelp and Amazon in GraphSAINT's, Reddit in that of DGL and PyG."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cvgnn.data import Graph
from cvgnn.data.array_converter import checked_csr
from cvgnn.data.edges import compress
from cvgnn.data.named.catalog import CATALOG
from cvgnn.data.named.raw_files import npz_keys, read_csv, read_json, read_npy, read_npz
from cvgnn.data.split import SPLITS
from cvgnn.errors import CvgnnError, error_context, require
from cvgnn.utils import atomic_files
from cvgnn.utils.checked_json import short

Arrays = dict[str, npt.NDArray[Any]]

_ARXIV_SPLIT = {"train": "train", "val": "valid", "test": "test"}  # file names
_SAINT_SPLIT = {"train": "tr", "val": "va", "test": "te"}  # keys of role.json
_REDDIT_SPLIT = {"train": 1, "val": 2, "test": 3}  # values of node_types


def read_arxiv(folder: Path, *, directed: bool = False, parsed: Path | None = None) -> Graph:
    """Read ogbn-arxiv with OGB's split by time.

    An edge `(u, v)` of the files means that paper `u` cites paper `v`. By default it connects the two in both
    directions. The released code of the paper left the graph directed: the neighbors of `u` are the papers that it
    cites, not the papers that cite it. (In PyG's convention messages go from `u` to `v`, the other way round.)

    Args:
        folder: holds `raw/` and `split/`.
        directed: as in the released code; the name of the graph then ends in "(directed)".
        parsed: file in which the parsed arrays are kept for the next call; None to keep nothing.
    """
    arrays = _parse(folder) if parsed is None else _parse_once(folder, parsed)
    citing, cited = arrays["edges"]
    path = folder / "raw" / "edge.csv.gz"
    structure = adjacency(citing, cited, len(arrays["y"]), path=path, directed=directed)
    return _build_graph(folder, structure, arrays, f"ogbn-arxiv{' (directed)' * directed}", directed=directed)


def read_graphsaint(folder: Path, name: str) -> Graph:
    """Read Flickr, PPI, Yelp or Amazon from `adj_full.npz`, `feats.npy`, `class_map.json` and `role.json`.

    Features stay as they are, as in PyG and the code of the paper; GraphSAINT standardizes them.

    Args:
        folder: holds the four files.
        name: of the graph.
    """
    x = _features(read_npy(folder / "feats.npy"), f"{folder / 'feats.npy'}")
    structure = adjacency(*_entries(folder / "adj_full.npz", len(x)), len(x), path=folder / "adj_full.npz")
    roles, split = read_json(folder / "role.json"), {}
    for part, key in _SAINT_SPLIT.items():
        ids = roles.get(key)
        bad = [v for v in ids if type(v) is not int or abs(v) >= 2**63] if isinstance(ids, list) else [ids]
        if bad:
            raise CvgnnError(f"{key!r} in {folder / 'role.json'} must be a list of node ids, not {short(bad[0])}")
        split[part] = np.array(ids, dtype=np.int64)
    y = _class_map(folder / "class_map.json", len(x))
    return _build_graph(folder, structure, {"x": x, "y": y, **split}, name)


def read_reddit(folder: Path) -> Graph:
    """Read Reddit from `reddit_graph.npz` and `reddit_data.npz` (features, labels, and 1, 2 or 3 for the split).

    Args:
        folder: holds the two files.
    """
    path = folder / "reddit_data.npz"
    label, node_types = read_npz(path, "label", "node_types")
    num_nodes = label.size
    for key, array in (("label", label), ("node_types", node_types)):
        require(
            array.shape == (num_nodes,) and array.dtype.kind in "iu",
            f"{key!r} in {path} must be {num_nodes} integers, not {array.dtype} of shape {list(array.shape)}",
        )
    # The structure comes before the features, so that its temporary arrays are free when the features are read.
    graph_path = folder / "reddit_graph.npz"
    structure = adjacency(*_entries(graph_path, num_nodes), num_nodes, path=graph_path)
    x = _features(read_npz(path, "feature")[0], f"'feature' in {path}")
    require(len(x) == num_nodes, f"'feature' in {path} has {len(x)} rows for {num_nodes} labels")
    split = {part: np.flatnonzero(node_types == number) for part, number in _REDDIT_SPLIT.items()}
    return _build_graph(folder, structure, {"x": x, "y": label, **split}, "reddit")


def adjacency(
    rows: npt.NDArray[Any], columns: npt.NDArray[Any], num_nodes: int, *, path: Path, directed: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """CSR of `A` from its entries: symmetric unless `directed`, without self loops, each entry once.

    Args:
        rows, columns: integers `[E]`; an entry `(v, u)` makes `u` a neighbor of `v`.
        num_nodes: `N`.
        path: the file of the entries, for error messages.
        directed: do not add the reverse entries.

    Returns:
        indptr int64 `[N + 1]`, indices int32 `[E]`.
    """
    require(
        rows.ndim == 1 and rows.shape == columns.shape and rows.dtype.kind in "iu" and columns.dtype.kind in "iu",
        f"the edges in {path} must be two integer vectors of one length, not {rows.dtype} of shape "
        f"{list(rows.shape)} and {columns.dtype} of shape {list(columns.shape)}",
    )
    for ids in (rows, columns):
        # The smallest and the largest id are enough: a mask would take memory for every edge.
        for at in (int(ids.argmin()), int(ids.argmax())) if ids.size else ():
            require(
                0 <= int(ids[at]) < num_nodes,
                f"edge {at} in {path}, ({rows[at]}, {columns[at]}), names a node that does not exist; "
                f"ids must lie in 0..{num_nodes - 1}",
            )
    indptr, indices, _ = compress(columns, rows, None, num_nodes, directed=directed)
    return torch.from_numpy(indptr), torch.from_numpy(indices)


def _build_graph(
    folder: Path, structure: tuple[torch.Tensor, torch.Tensor], arrays: Arrays, name: str, *, directed: bool = False
) -> Graph:
    """Build a `Graph` from a CSR structure and dense features; an error names the folder of the raw files.

    Args:
        folder: of the raw files.
        structure: indptr and indices, as `adjacency` returns them.
        arrays: x float32 `[N, F]`; y integers `[N]`, -1 where unknown, or `[N, L]`, 0 or 1; node ids under "train",
            "val" and "test".
        name: of the graph.
        directed: whether the reverse of an edge may be missing.
    """
    y = arrays["y"].astype(np.int64) if arrays["y"].ndim == 1 else arrays["y"]
    fields: dict[str, Any] = {f"{part}_ids": torch.from_numpy(arrays[part]) for part in SPLITS}
    fields |= {"indptr": structure[0], "indices": structure[1]}
    fields["num_classes"] = int(y.max(initial=0)) + 1 if y.ndim == 1 else y.shape[1]
    with error_context(f"the raw files in {folder} do not fit together: "):
        return Graph(x=torch.from_numpy(arrays["x"]), y=torch.from_numpy(y), name=name, directed=directed, **fields)


def _parse(folder: Path) -> Arrays:
    """Parse the files: x float32 `[N, F]`, y int32 `[N]`, edges int32 `[2, E]`, the node ids of the split int32."""
    raw, split = folder / "raw", folder / "split" / "time"
    num_nodes, num_edges = (
        int(read_csv(raw / f"num-{what}-list.csv.gz", np.int64, 1, max_rows=1)[0, 0]) for what in ("node", "edge")
    )
    edges = read_csv(raw / "edge.csv.gz", np.int32, 2, max_rows=num_edges)
    y = read_csv(raw / "node-label.csv.gz", np.int32, 1, max_rows=num_nodes)
    x = read_csv(raw / "node-feat.csv.gz", np.float32, max_rows=num_nodes)
    for file, table, rows in (("edge", edges, num_edges), ("node-label", y, num_nodes), ("node-feat", x, num_nodes)):
        require(
            len(table) == rows,
            f"{raw / file}.csv.gz has {len(table)} rows, but num-{file.partition('-')[0]}-list.csv.gz says {rows}",
        )
    ids = {
        part: read_csv(split / f"{file}.csv.gz", np.int32, 1, max_rows=num_nodes)[:, 0]
        for part, file in _ARXIV_SPLIT.items()
    }
    return {"x": x, "y": y[:, 0], "edges": np.ascontiguousarray(edges.T), **ids}


def _parse_once(folder: Path, parsed: Path) -> Arrays:
    """Return the arrays of `_parse` from the file `parsed`; if it is missing, damaged or stale, parse and write it."""
    names = ("key", "x", "y", "edges", *_ARXIV_SPLIT)
    with suppress(CvgnnError, OSError):
        stored = dict(zip(names, read_npz(parsed, *names), strict=True))
        if np.array_equal(stored.pop("key"), _key(folder)):
            return stored
    arrays = _parse(folder)
    with suppress(OSError), atomic_files.replacing(parsed) as file:  # without the file the next call takes longer
        np.savez(file, allow_pickle=False, key=_key(folder), **arrays)
    return arrays


def _key(folder: Path) -> npt.NDArray[np.uint8]:
    """Names, sizes and times of the raw files, as JSON; parsed arrays are used only while this stays the same."""
    stats = {file: (folder / file).stat() for file in CATALOG["ogbn-arxiv"].files}
    key = {"version": 1, **{file: [stat.st_size, stat.st_mtime_ns] for file, stat in stats.items()}}
    return np.frombuffer(json.dumps(key).encode(), dtype=np.uint8)


def _features(x: npt.NDArray[Any], where: str) -> npt.NDArray[np.float32]:
    require(
        x.ndim == 2 and x.dtype.kind in "fiu",
        f"{where} must be a matrix of numbers, not {x.dtype} of shape {list(x.shape)}",
    )
    if x.dtype == np.float32 and x.flags.writeable and x.flags.c_contiguous:
        return x
    with np.errstate(over="ignore"):  # becomes infinite, which the checks of the graph refuse
        return np.array(x, dtype=np.float32)


def _entries(path: Path, num_nodes: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Row and column of each stored entry of a matrix that `scipy.sparse.save_npz` wrote, in COO or CSR form."""
    (shape,) = read_npz(path, "shape")
    require(
        shape.tolist() == [num_nodes, num_nodes],
        f"the matrix in {path} has shape {shape.tolist()}; with {num_nodes} nodes it must be {[num_nodes, num_nodes]}",
    )
    if "row" in npz_keys(path):
        return _narrow(read_npz(path, "row")[0]), _narrow(read_npz(path, "col")[0])
    indptr, columns = read_npz(path, "indptr", "indices")
    integers = indptr.dtype.kind in "iu" and columns.dtype.kind in "iu"
    require(integers, f"'indptr' and 'indices' in {path} must be integers, not {indptr.dtype} and {columns.dtype}")
    ones = np.ones(columns.shape, dtype=np.bool_)
    matrix = checked_csr(ones, columns, indptr, (num_nodes, num_nodes), f"the content of {path}").tocoo()
    return matrix.row, matrix.col


def _narrow(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert ids to int32 before the next array takes memory, unless that changes an id; `adjacency` refuses those."""
    if ids.dtype.kind in "iu" and ids.size and int(ids.max()) < 2**31 and int(ids.min()) >= -(2**31):
        return ids.astype(np.int32, copy=False)
    return ids


def _class_map(path: Path, num_nodes: int) -> npt.NDArray[Any]:
    """Read labels from `{"node id": class}` or `{"node id": [0, 1, ...]}`; -1 for a node that is not in the file."""
    classes = read_json(path)
    first = next(iter(classes.values()), 0)
    count = len(first) if isinstance(first, list) else 0
    y = np.full((num_nodes, count) if count else num_nodes, -1, dtype=np.int8 if count else np.int64)
    for key, value in classes.items():
        node = int(key) if key.isascii() and key.isdigit() and len(key) < 20 else -1
        if not 0 <= node < num_nodes:
            raise CvgnnError(f"{path} names node {key[:40]!r}, which does not exist; ids lie in 0..{num_nodes - 1}")
        if count:
            if not isinstance(value, list) or len(value) != count or any(label not in (0, 1) for label in value):
                raise CvgnnError(
                    f"the labels of node {key!r} in {path} must be {count} zeros or ones, not {short(value)}"
                )
        elif type(value) is not int or not 0 <= value < 2**31:
            raise CvgnnError(f"the class of node {key!r} in {path} must be a number 0, 1, ..., not {short(value)}")
        y[node] = value
    return y
