"""`read_graph`: choose the reader by what the path holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cvgnn.data import Graph, RandomSplit
from cvgnn.data.io.dense_features import features_of_run, standardize
from cvgnn.data.io.npz import read_npz
from cvgnn.data.io.pyg_file import read_pt
from cvgnn.data.io.size_checks import reading
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import require

_FORMS = "a graph is a .npz or .pt file, a folder with tables nodes and edges (.csv, .parquet or .arrow), or a store"
_READERS = {".npz": read_npz, ".pt": read_pt}


def read_graph(
    path: str | Path,
    *,
    split: RandomSplit | None = None,
    directed: bool = False,
    tables: TableOptions | None = None,
    preprocessing: dict[str, Any] | None = None,
    predicting: bool = False,
) -> Graph:
    """Read a graph from a file or folder. docs/files.md describes each form with an example.

    Args:
        path: a store (see `cvgnn convert`), a `.npz`, a folder with tables `nodes` and `edges`, or a `.pt`.
        split: the random split where the file has none; `RandomSplit()` if not given. `Graph.split` records it. One
            with `allow_unlabelled` reads a graph without labels, for task `link` or to predict on.
        directed: keep the directions of the edges instead of making the graph undirected. A store has its own.
        tables: names and kinds of columns, for a folder of tables alone; but for `preprocess`, which also holds for the
            dense features of a `.npz` and `.pt`: they are standardised where their scales differ by more than 100.
        preprocessing: how columns become features, as `Graph.preprocessing` of the graph that a model was trained on
            has it. Fitted on the training nodes if not given.
        predicting: whether nobody trains on the graph. Then columns that are no features may be missing.

    Returns:
        The graph, checked. Features are float32, except in a store, which keeps its dtype.
    """
    from cvgnn.data.store import check_indices, is_store, open_store

    path = Path(path)
    with reading(path):
        if not (path.is_dir() and is_store(path)):
            return _read(path, split, directed, tables or TableOptions(), preprocessing, predicting=predicting)
    _refuse_table_options(path, tables)
    graph = features_of_run(open_store(path), preprocessing)
    check_indices(path, graph)  # compiled code relies on them
    require(
        graph.directed or not directed,
        f"{path} is a store of an undirected graph; convert the original again with --directed to keep directions",
    )
    return graph


def _refuse_table_options(path: Path, tables: TableOptions | None, but: str = "") -> None:
    """Refuse options of tables for a graph that is none: they would have no effect."""
    given = [] if tables is None else [name for name in tables.given() if name != but]
    require(not given, f"{path} is no folder of tables, so {', '.join(given)} would do nothing; leave it out")


def _read(
    path: Path,
    split: RandomSplit | None,
    directed: bool,
    tables: TableOptions,
    preprocessing: dict[str, Any] | None,
    *,
    predicting: bool,
) -> Graph:
    require(path.exists(), f"no such file or folder; {_FORMS}")
    if path.is_dir():
        from cvgnn.data.io.preprocessing import Preprocessing  # imports pyarrow
        from cvgnn.data.io.table_folder import read_tables

        fitted = None if preprocessing is None else Preprocessing.from_dict(preprocessing)
        options: dict[str, Any] = {"split": split, "directed": directed, "tables": tables}
        graph = read_tables(path, **options, preprocessing=fitted, predicting=predicting)
        if fitted is None and not predicting:
            from cvgnn.data.io.suspicions import graph_suspicions, log_suspicions

            log_suspicions(graph_suspicions(graph))
        return graph
    suffix = path.suffix
    require(path.is_file(), f"it is neither a file nor a folder; {_FORMS}")
    require(
        suffix not in (".csv", ".parquet", ".arrow", ".feather"),
        f"it is a single table; give the folder that holds nodes{suffix} and edges{suffix}",
    )
    require(suffix in _READERS, f"unknown file type {suffix!r}; {_FORMS}")
    _refuse_table_options(path, tables, "preprocess")
    graph = _READERS[suffix](path, split=split, directed=directed)
    return graph if tables.preprocess == "none" else standardize(graph, preprocessing)
