"""A graph in a folder of tables: `nodes`, `edges` and, where the features are many, `features`, as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.files.csv_table import CsvTable
from cvgnn.files.limits import readable, told
from cvgnn.files.parquet_table import ParquetTable
from cvgnn.files.table import Table, Words
from cvgnn.graph import Graph, RandomSplit
from cvgnn.graph.arrays import from_arrays
from cvgnn.graph.names import as_integers, name_nodes, number_labels, shown

_SPLITS = ("train", "val", "test")
_LONGEST_NAME = 1000  # names are kept in an array as wide as the longest
_KINDS = {".csv": CsvTable, ".parquet": ParquetTable}


def holds_tables(folder: Path) -> bool:
    """Whether a folder holds a table of nodes or of edges."""
    return any((folder / f"{name}{suffix}").is_file() for name in ("nodes", "edges") for suffix in _KINDS)


def read_tables(folder: Path, *, split: RandomSplit | None = None, directed: bool = False) -> Graph:
    """A graph from a folder of tables, each a `.csv` or a `.parquet` file.

    Args:
        folder: `edges` has the columns `source`, `target` and, if wanted, `weight`; `nodes` has `id`, `label` (empty
            where unknown), if wanted `split` (train, val, test, or empty), and in all other columns features; or
            `features` has `id` and the features.
        split, directed: as in `read_graph`.
    """
    nodes, edges = _open(folder, "nodes"), _open(folder, "edges")
    features = _open(folder, "features") if any((folder / f"features{suffix}").exists() for suffix in _KINDS) else None
    with readable(folder):
        words, x = _read_nodes(nodes, features)
        names = words["id"].vocabulary
        position = {name: i for i, name in enumerate(names)}
        if features is not None:
            x = _read_features(features, nodes, position)
        y, class_names = _labels(nodes, words["label"])
        ids = _split(nodes, words["split"], y) if "split" in words else (None, None, None)
        edge_index, weight = _read_edges(edges, nodes, position, directed=directed)
    with told(folder):
        return from_arrays(
            edge_index,
            x=x,
            y=y,
            train_ids=ids[0],
            val_ids=ids[1],
            test_ids=ids[2],
            split=split,
            edge_weight=weight,
            directed=directed,
            name=folder.resolve().name,
            node_names=name_nodes(names),
            class_names=class_names,
        )


def _open(folder: Path, name: str) -> Table:
    there = [suffix for suffix in _KINDS if (folder / f"{name}{suffix}").exists()]
    require(len(there) > 0, f"{folder} has no {name}.csv and no {name}.parquet")
    require(len(there) == 1, f"{folder} has both {name}.csv and {name}.parquet; remove the one that is not meant")
    path = folder / f"{name}{there[0]}"
    with readable(path):
        return _KINDS[there[0]](path)


def _read_nodes(nodes: Table, features: Table | None) -> tuple[dict[str, Words], np.ndarray]:
    nodes.need("id", "label")
    rest = [name for name in nodes.columns if name not in ("id", "label", "split")]
    if features is None:
        require(len(rest) > 0, f"{nodes.path} has no features: no column besides id, label and split")
    else:
        require(
            not rest,
            f"{nodes.path} has features ({shown(rest[:3])[:80]}) and there is {features.path.name}; keep one",
        )
    words, x = nodes.read(
        words=[name for name in ("id", "label", "split") if name in nodes.columns], numbers=rest, dtype=np.float32
    )
    require(len(words["id"].codes) > 0, f"{nodes.path} has no rows: the graph has no nodes")
    _refuse_unclear_ids(nodes, words["id"])
    return words, x


def _refuse_unclear_ids(table: Table, ids: Words) -> None:
    """Every row needs an id of its own; then codes are 0, 1, 2, ... because words are numbered as they appear."""
    wrong = np.flatnonzero(ids.codes != np.arange(len(ids.codes)))
    if wrong.size:
        row = int(wrong[0])
        code = int(ids.codes[row])
        if code < 0:
            raise table.error(row, "id", "nothing where the node's id must be")
        raise table.error(row, "id", f"{ids.vocabulary[code][:80]!r} was listed before, at {table.place(code)}")
    for row, name in enumerate(ids.vocabulary):
        if len(name) > _LONGEST_NAME:
            raise table.error(row, "id", f"an id of {len(name)} characters; at most {_LONGEST_NAME} are taken")


def _read_features(features: Table, nodes: Table, position: dict[str, int]) -> np.ndarray:
    features.need("id")
    rest = [name for name in features.columns if name != "id"]
    require(len(rest) > 0, f"{features.path} has no features: no column besides id")
    words, matrix = features.read(words=["id"], numbers=rest, dtype=np.float32)
    _refuse_unclear_ids(features, words["id"])
    rows = _known(features, "id", words["id"], nodes, position)
    if len(rows) < len(position):
        names = set(words["id"].vocabulary)
        missing = next(name for name in position if name not in names)
        raise CvgnnError(f"{features.path} has no row for node {missing[:80]!r} of {nodes.path.name}")
    x = np.empty_like(matrix)
    x[rows] = matrix
    return x


def _labels(nodes: Table, labels: Words) -> tuple[np.ndarray, tuple[str, ...] | None]:
    integers = as_integers(labels.vocabulary) or []
    for code, number in enumerate(integers):
        if number < 0:
            row = int(np.flatnonzero(labels.codes == code)[0])
            what = f"{number} is no class; leave the cell empty where the label is unknown, and number classes from 0"
            raise nodes.error(row, "label", what)
    numbers, class_names = number_labels(labels.vocabulary)
    return np.array([*numbers, -1], dtype=np.int64)[labels.codes], class_names


def _split(nodes: Table, split: Words, y: np.ndarray) -> tuple[np.ndarray, ...]:
    for code, word in enumerate(split.vocabulary):
        if word not in _SPLITS:
            row = int(np.flatnonzero(split.codes == code)[0])
            raise nodes.error(row, "split", str(unknown_name("split", word[:80], _SPLITS)))
    without = np.flatnonzero((split.codes >= 0) & (y < 0))
    if without.size:
        row = int(without[0])
        word = split.vocabulary[int(split.codes[row])]
        raise nodes.error(row, "label", f"nothing, but the node is in the {word} split; give its label or empty split")
    require("train" in split.vocabulary, f"{nodes.path}, column 'split': no row says train; name the training nodes")
    code_of = {word: code for code, word in enumerate(split.vocabulary)}
    return tuple(np.flatnonzero(split.codes == code_of.get(part, -2)) for part in _SPLITS)


def _read_edges(
    edges: Table, nodes: Table, position: dict[str, int], *, directed: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    edges.need("source", "target")
    for name in edges.columns:
        if name not in ("source", "target", "weight"):
            raise CvgnnError(f"{edges.path}: {unknown_name('column', name[:80], ('source', 'target', 'weight'))}")
    weighted = [name for name in edges.columns if name == "weight"]
    words, numbers = edges.read(words=["source", "target"], numbers=weighted, dtype=np.float64)
    ends = [_known(edges, name, words[name], nodes, position) for name in ("source", "target")]
    if not weighted:
        return np.stack(ends), None
    weight = numbers[:, 0]
    bad = np.flatnonzero(weight <= 0)
    if bad.size:
        raise edges.error(int(bad[0]), "weight", f"{weight[bad[0]]:g}; weights must be positive")
    _refuse_two_weights(edges, ends[0], ends[1], weight, directed=directed)
    return np.stack(ends), weight


def _known(table: Table, column: str, words: Words, nodes: Table, position: dict[str, int]) -> np.ndarray:
    """The place of each row's node among the nodes."""
    of_word = np.array([*(position.get(word, -1) for word in words.vocabulary), -1], dtype=np.int64)
    places: np.ndarray = of_word[words.codes]
    unknown = np.flatnonzero(places < 0)
    if unknown.size:
        row = int(unknown[0])
        code = int(words.codes[row])
        what = "nothing where a node's id must be" if code < 0 else f"{words.vocabulary[code][:80]!r} is no node"
        raise table.error(row, column, f"{what}; ids are listed in {nodes.path.name}, column 'id'")
    return places


def _refuse_two_weights(table: Table, source: Any, target: Any, weight: np.ndarray, *, directed: bool) -> None:
    first, second = (source, target) if directed else (np.minimum(source, target), np.maximum(source, target))
    order = np.lexsort((np.arange(len(weight)), second, first))
    same = (first[order][1:] == first[order][:-1]) & (second[order][1:] == second[order][:-1])
    conflict = np.flatnonzero(
        same & (weight[order][1:] != weight[order][:-1]) & (first[order][1:] != second[order][1:])
    )
    if conflict.size:
        row, other = int(order[conflict[0] + 1]), int(order[conflict[0]])
        what = f"{weight[row]:g}, but {table.place(other)} gives the same edge weight {weight[other]:g}; give one"
        raise table.error(row, "weight", what)
