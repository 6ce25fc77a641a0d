"""From a path to a graph, by what is there."""

from __future__ import annotations

from pathlib import Path

from cvgnn.errors import CvgnnError, require
from cvgnn.files.limits import told
from cvgnn.files.npz import read_npz
from cvgnn.files.pt import read_pt
from cvgnn.files.tables import holds_tables, read_tables
from cvgnn.graph import Graph, RandomSplit

FORMS = "a .npz or .pt file, a folder with nodes and edges as .csv or .parquet, or a store"


def read_graph(path: str | Path, *, split: RandomSplit | None = None, directed: bool = False) -> Graph:
    """The graph in a file or folder. docs/files.md describes each form with an example.

    Args:
        path: a store (see `cvgnn convert`), a `.npz`, a folder with `nodes` and `edges` as CSV or Parquet, or a `.pt`.
        split: how to split at random where the file brings no split; `RandomSplit()` if not given. `Graph.split` tells
            what was done.
        directed: keep the directions of the edges instead of making the graph undirected. A store has its own.

    Returns:
        The graph, checked. Features are float32, except in a store, which keeps what it was given.
    """
    path = Path(path)
    with told(path):
        exists, folder, regular = path.exists(), path.is_dir(), path.is_file()
    if not exists:
        raise CvgnnError(f"there is no file or folder {path}; a graph is {FORMS}")
    if folder:
        return _read_folder(path, split=split, directed=directed)
    require(regular, f"{path} is neither a file nor a folder; a graph is {FORMS}")
    if path.suffix == ".npz":
        return read_npz(path, split=split, directed=directed)
    if path.suffix == ".pt":
        return read_pt(path, split=split, directed=directed)
    if path.suffix in (".csv", ".parquet"):
        raise CvgnnError(f"{path} is one table; name the folder that holds nodes{path.suffix} and edges{path.suffix}")
    raise CvgnnError(f"{path} has no form that is known here: a graph is {FORMS}")


def _read_folder(path: Path, *, split: RandomSplit | None, directed: bool) -> Graph:
    from cvgnn.store import check_indices, is_store, open_store

    with told(path):
        store, tables = is_store(path), holds_tables(path)
    if store:
        graph = open_store(path)
        check_indices(path, graph)  # compiled code relies on them
        require(
            graph.directed or not directed,
            f"{path} is a store of an undirected graph; convert the original again with --directed to keep directions",
        )
        return graph
    require(tables, f"the folder {path} holds no graph: neither nodes and edges as .csv or .parquet, nor a store")
    return read_tables(path, split=split, directed=directed)
