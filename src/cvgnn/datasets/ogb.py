"""ogbn-arxiv in OGB's raw layout: gzipped CSV under `raw/` and `split/time/`."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cvgnn.datasets.build import adjacency, assemble, checked_ids
from cvgnn.datasets.catalog import CATALOG
from cvgnn.datasets.raw import read_csv, read_npz
from cvgnn.errors import CvgnnError, require
from cvgnn.graph import Graph

_NAME = "ogbn-arxiv"
_SPLIT = {"train": "train", "val": "valid", "test": "test"}
Arrays = dict[str, npt.NDArray[Any]]


def read_arxiv(folder: Path, *, directed: bool = False, parsed: Path | None = None) -> Graph:
    """ogbn-arxiv with OGB's split by time.

    An edge `(u, v)` of the files says that paper `u` cites paper `v`. By default it joins the two in both directions.
    The paper's released code left the graph directed: there the neighbors of `u` are the papers it cites, and not the
    papers that cite it. (PyG's convention, messages from `u` to `v`, would be the other way round.)

    Args:
        folder: where `raw/` and `split/` are.
        directed: as in the released code; the graph's name then says so.
        parsed: where to keep the parsed arrays for the next time; None to keep nothing.
    """
    arrays = None if parsed is None else _load_parsed(parsed, folder)
    if arrays is None:
        arrays = _parse(folder)
        if parsed is not None:
            _save_parsed(parsed, folder, arrays)
    num_nodes = len(arrays["y"])
    citing, cited = arrays["edges"]
    structure = adjacency(citing, cited, num_nodes, path=folder / "raw" / "edge.csv.gz", directed=directed)
    split = {
        part: checked_ids(arrays[part], num_nodes, str(folder / "split" / "time" / f"{file}.csv.gz"))
        for part, file in _SPLIT.items()
    }
    name = f"{_NAME} (directed)" if directed else _NAME
    y = arrays["y"].astype(np.int64)
    return assemble(structure, x=arrays["x"], y=y, split=split, name=name, folder=folder, directed=directed)


def _parse(folder: Path) -> Arrays:
    """The files as arrays: x float32 `[N, F]`, y int32 `[N]`, edges int32 `[2, E]`, the split's ids int32."""
    raw = folder / "raw"
    counts = {}
    for what in ("node", "edge"):
        path = raw / f"num-{what}-list.csv.gz"
        numbers = read_csv(path, np.int64, most_rows=1)
        require(numbers.size == 1, f"{path} must hold one number, as there is one graph; it holds {numbers.size}")
        counts[what] = int(numbers[0, 0])
    num_nodes, num_edges = counts["node"], counts["edge"]
    edges = read_csv(raw / "edge.csv.gz", np.int32, 2, most_rows=num_edges)
    y = read_csv(raw / "node-label.csv.gz", np.int32, 1, most_rows=num_nodes)
    x = read_csv(raw / "node-feat.csv.gz", np.float32, most_rows=num_nodes)
    for file, table, what in (("edge", edges, "edge"), ("node-label", y, "node"), ("node-feat", x, "node")):
        many = f"more than {counts[what]}" if len(table) > counts[what] else str(len(table))
        require(
            len(table) == counts[what],
            f"{raw / file}.csv.gz has {many} rows, but num-{what}-list.csv.gz says {counts[what]}",
        )
    ids = {
        part: read_csv(folder / "split" / "time" / f"{file}.csv.gz", np.int32, 1, most_rows=num_nodes)[:, 0]
        for part, file in _SPLIT.items()
    }
    return {"x": x, "y": y[:, 0], "edges": np.ascontiguousarray(edges.T), **ids}


def _key(folder: Path) -> str:
    """What the raw files are: names, sizes and times; a parsed copy serves only as long as this stays the same."""
    stats = {file: (folder / file).stat() for file in CATALOG[_NAME].files}
    return json.dumps({"version": 1, **{file: [stat.st_size, stat.st_mtime_ns] for file, stat in stats.items()}})


def _load_parsed(path: Path, folder: Path) -> Arrays | None:
    """The arrays of `_parse` if they were kept; None if not, or if anything about them is odd."""
    names = ("x", "y", "edges", *_SPLIT)
    with suppress(CvgnnError, OSError, UnicodeDecodeError):
        (key,) = read_npz(path, "key")
        if key.tobytes().decode() == _key(folder):
            return dict(zip(names, read_npz(path, *names), strict=True))
    return None


def _save_parsed(path: Path, folder: Path, arrays: Arrays) -> None:
    """Keep the arrays; not being able to is no mistake, the next load only takes longer."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with suppress(OSError):
            key = np.frombuffer(_key(folder).encode(), dtype=np.uint8)
            with temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, key=key, **arrays)
            os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
