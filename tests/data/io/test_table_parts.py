"""Tables in several files, and arrays as tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvgnn.data.io import read_graph
from cvgnn.errors import CvgnnError

NODES = "id,f,label\n" + "".join(f"{i},{i * i % 7}.5,{i % 2}\n" for i in range(10))
EDGES = "source,target\n0,1\n1,2\n"


def make(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, content) if isinstance(content, np.ndarray) else path.write_text(content)
    return folder


def test_a_folder_is_read_like_one_file(tmp_path: Path) -> None:
    lines = NODES.splitlines(keepends=True)
    parts = {f"nodes/{i}.csv": lines[0] + "".join(lines[a:b]) for i, (a, b) in enumerate([(1, 4), (4, 11)])}
    one = read_graph(make(tmp_path / "one", {"nodes.csv": NODES, "edges.csv": EDGES}))
    many = read_graph(make(tmp_path / "many", {**parts, "nodes/_SUCCESS": "", "edges/a.csv": EDGES}))
    assert many.x.tolist() == one.x.tolist()  # type: ignore[union-attr]
    assert many.indices.tolist() == one.indices.tolist() == [1, 0, 2, 1]


def test_types_hold_for_all_files(tmp_path: Path) -> None:
    """An id that is a word in the last file makes all of them text."""
    parts = {"nodes/0.csv": "id,f,label\n7,1.50,a\n8,2,b\n", "nodes/1.csv": "id,f,label\nx,3,a\n"}
    graph = read_graph(make(tmp_path, {**parts, "edges.csv": "source,target\n7,x\n"}))
    assert graph.node_names is not None
    assert graph.node_names.tolist() == ["7", "8", "x"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "other columns": ({"edges/0.csv": EDGES, "edges/1.csv": "a,b\n0,1\n"}, "1.csv has other columns than 0.csv"),
    "other kinds": ({"edges/0.csv": EDGES, "edges/1.parquet": ""}, "edges must hold files of one kind"),
    "a file and a folder": ({"edges/0.csv": EDGES, "edges.csv": EDGES}, "it has both edges.csv and edges;"),
    "nothing": ({"edges/.hidden": ""}, "edges is empty; it must hold files of a table: CSV, Parquet or Arrow"),
    "a mistake": (
        {"edges/0.csv": EDGES, "edges/1.csv": "source,target\n0,1\n0,77\n"},
        "edges, 1.csv, line 3, column 'target': '77' is no node",
    ),
    "no edges": ({"edges.npy": np.zeros((3, 4), int)}, "edges.npy holds int64 of shape [3, 4]; it must hold integers"),
    "fractions": ({"edges.npy": np.zeros((2, 4))}, "edges.npy holds float64 of shape [2, 4]; it must hold integers"),
    "outside": ({"edges.npy": np.array([[0, 1], [1, 10]])}, "edge 1, column 'target': '10' is no node"),
    "damaged": ({"edges.npy": "no array"}, "edges.npy is damaged, or no .npy file"),
    "few features": (
        {"edges.csv": EDGES, "nodes.csv": re.sub(",[0-9.]*,", ",", NODES.replace("f,", "")), "features.npy": np.eye(9)},
        "features.npy has 9 rows for the 10 nodes of nodes.csv",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_mistakes(what: str, tmp_path: Path) -> None:
    files, message = BAD[what]
    with pytest.raises(CvgnnError, match=re.escape(message)):
        read_graph(make(tmp_path, {"nodes.csv": NODES, **files}))
