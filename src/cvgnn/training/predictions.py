"""Predictions and embeddings as tables with the user's own node ids and labels, written as CSV, Parquet or npy."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, final

import numpy as np
import torch

from cvgnn.data import Graph
from cvgnn.data.node_ids import as_integers
from cvgnn.data.split import SPLITS
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.training.run import Run
from cvgnn.utils import atomic_files

_ROWS_PER_PIECE = 1 << 16
FORMATS = (".csv", ".parquet", ".npy")


@final
class NodeTable:
    """Named columns with one row per node.

    Args:
        columns: `[n]` arrays by name; a matrix `[n, d]` named `e` becomes the columns `e0`, `e1`, ...
    """

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns: dict[str, np.ndarray] = {}
        self.matrix: np.ndarray | None = None
        for name, values in columns.items():
            if values.ndim == 2:
                self.matrix = values
                self.columns |= {f"{name}{j}": values[:, j] for j in range(values.shape[1])}
            else:
                self.columns[name] = values

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def write(self, file: Path) -> None:
        """Write `.csv`, `.parquet` or `.npy` by the file's ending; the file appears complete or not at all."""
        check_format(file)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_files.replacing(file) as stream:
                if file.suffix == ".csv":
                    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
                    self.write_csv(text)
                    text.detach()  # flushes; without it the wrapper would close the stream
                elif file.suffix == ".parquet":
                    import pyarrow.parquet

                    pyarrow.parquet.write_table(pyarrow.table(self.columns), stream, row_group_size=_ROWS_PER_PIECE)
                elif self.matrix is not None:
                    np.save(stream, self.matrix, allow_pickle=False)
                else:
                    # Not rec.fromarrays(names="a,b"): the name of a class may have a comma.
                    kinds = [(name, column.dtype) for name, column in self.columns.items()]
                    records = np.empty(len(self), dtype=kinds)
                    for name, column in self.columns.items():
                        records[name] = column
                    np.save(stream, records, allow_pickle=False)
        except OSError as error:
            raise CvgnnError(f"cannot write {file}: {error.strerror}") from None

    def write_csv(self, stream: IO[str]) -> None:
        """Write CSV with a header line."""
        # Python's writer and not pyarrow's: it quotes only where needed and prints the shortest form of a float.
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        for first in range(0, len(self), _ROWS_PER_PIECE):  # lists of Python objects take ten times an array's memory
            piece = [column[first : first + _ROWS_PER_PIECE].tolist() for column in self.columns.values()]
            writer.writerows(zip(*piece, strict=True))


def check_format(file: Path, *, overwrite: bool = True) -> None:
    """Refuse a file that cannot be written, before anything is computed.

    Args:
        file: to write.
        overwrite: whether it may exist.
    """
    require(
        file.suffix in FORMATS,
        f"cannot write {str(file)!r}: the ending must be one of {', '.join(FORMATS)}, not {file.suffix!r}",
    )
    require(not file.is_dir(), f"cannot write {file}: it is a folder; name a file in it")
    require(overwrite or not file.exists(), f"{file} exists; choose another name, or replace it with --force")


@torch.no_grad()
def column_names(run: Run) -> list[str]:
    """The columns of `predictions`: `node`, what the task predicts, `split`, and the probabilities, `p_CLASS`."""
    empty = next(run.model.parameters()).new_empty(0, run.task.out_channels)
    nothing = run.task.item_rows(lambda ids: empty, torch.empty(0, dtype=torch.int64))
    names = list(run.task.prediction_columns(nothing, [], run.result["class_names"], run.model.readout))
    probabilities = [name for name in names if name.startswith("p_")]
    return [run.task.items.kind, *names[: len(names) - len(probabilities)], "split", *probabilities]


def check_columns(run: Run, columns: Sequence[str]) -> list[str]:
    """The columns that are chosen, `probabilities` replaced by those of all classes; an unknown one is refused.

    Args:
        run: gives the task and the classes.
        columns: names, in the order wanted; all if there are none.
    """
    known = column_names(run)
    probabilities = known[known.index("split") + 1 :]
    chosen: dict[str, None] = {}  # a set that keeps the order
    for name in columns or known:
        if name == "probabilities" and probabilities:
            chosen |= dict.fromkeys(probabilities)
        elif name in known:
            chosen[name] = None
        else:
            raise unknown_name("column", name, (*known, *(["probabilities"] if probabilities else [])))
    return list(chosen)


@torch.no_grad()
def predictions(run: Run, ids: np.ndarray | None = None, columns: Sequence[str] = ()) -> NodeTable:
    """The predictions for `ids` (all nodes, or graphs of a set, if not given), by exact inference.

    Args:
        run: a finished run.
        ids: int64, node ids, or numbers of graphs.
        columns: of `column_names`, and `probabilities` for one column a class; all if there are none. `label` is the
            true one, -1 or empty where it is unknown, `split` is train, val, test or empty; it is
            empty too where a graph other than the run's has no split of its own.
    """
    chosen, nodes = check_columns(run, columns), _as_list(ids)
    names = run.result["class_names"]  # of the graph it was trained on: another graph may number its classes otherwise
    table = {
        run.task.items.kind: item_names(run, ids),
        **({"split": _splits(run, ids)} if "split" in chosen else {}),  # a pass over all nodes
        **run.task.prediction_columns(run.item_rows(nodes), nodes, names, run.model.readout),
    }
    return NodeTable({name: table[name] for name in chosen})


def _splits(run: Run, ids: np.ndarray | None) -> np.ndarray:
    graph, result = run.graph, run.result
    split = np.full(len(graph.y), "", dtype="<U5")
    # A random split that was drawn when another graph was read says nothing about the run.
    known = result.get("split", graph.split), result.get("num_nodes", graph.num_nodes)
    for name in () if graph.split.startswith("random") and known != (graph.split, graph.num_nodes) else SPLITS:
        split[getattr(graph, f"{name}_ids").numpy()] = name
    return split if ids is None else split[ids]


def embeddings(run: Run, layer: int, ids: np.ndarray | None = None) -> NodeTable:
    """Node and `H^(layer)` for `ids` (all if not given); npy holds the matrix alone, in the order of the nodes."""
    return NodeTable({"node": node_names(run.graph, ids), "e": run.embed(layer, _as_list(ids)).numpy()})


def node_names(graph: Graph, ids: np.ndarray | None) -> np.ndarray:
    """The user's own ids of the nodes `ids` (of all if not given)."""
    names = np.arange(graph.num_nodes) if graph.node_names is None else graph.node_names
    return names if ids is None else names[ids]


def item_names(run: Run, ids: np.ndarray | None) -> np.ndarray:
    """The user's own ids of the nodes `ids`, or of the graphs `ids` of a set (of all if not given)."""
    if run.task.items.kind == "node":
        return node_names(run.graph, ids)
    names = graph_names(run.graph)
    return names if ids is None else names[ids]


def graph_names(graph: Graph) -> np.ndarray:
    """The user's own ids of the graphs of a set."""
    return np.arange(len(graph.y)) if graph.graph_names is None else graph.graph_names


class UnknownItem(CvgnnError):
    """An id names no node, or no graph of a set."""


@final
class ItemIndex:
    """Finds nodes, or graphs of a set, by the user's own ids as text; sorted once, for any number of searches.

    Args:
        graph: the graph of the nodes.
        item: `"graph"` for the graphs of a set.
    """

    def __init__(self, graph: Graph, *, item: str = "node") -> None:
        own = graph.graph_names if item == "graph" else graph.node_names
        self._item, self._count = item, len(graph.y) if item == "graph" else graph.num_nodes
        self._keys: np.ndarray = np.empty(0, np.int64)
        self._order: np.ndarray | None = None  # nothing is stored of the ids 0..N-1
        if own is not None:
            self._keys = np.asarray(own)
            self._order = np.argsort(self._keys, kind="stable")  # a dict of all names would take more memory

    def positions(self, names: Sequence[str]) -> np.ndarray:
        """The position of each id, -1 where there is none."""
        if self._keys.dtype.kind == "U":
            wanted: np.ndarray = np.asarray(names, dtype=np.str_)
            good = np.ones(len(names), dtype=bool)
        else:
            numbers = [as_integers([name]) for name in names]  # None for another form than str's, such as 007
            good = np.array([number is not None for number in numbers], dtype=bool)
            wanted = np.array([-1 if number is None else number[0] for number in numbers], dtype=np.int64)
        if self._order is None:
            return np.where(good & (wanted >= 0) & (wanted < self._count), wanted, -1)
        last = self._count - 1
        found: np.ndarray = self._order[np.searchsorted(self._keys, wanted, sorter=self._order).clip(max=last)]
        return np.where(good & (self._keys[found] == wanted), found, -1)

    def find(self, names: Sequence[str]) -> np.ndarray:
        """The position of each id; an unknown one is refused."""
        found = self.positions(names)
        missing = np.flatnonzero(found < 0)
        if missing.size:
            kind = f"0..{self._count - 1}" if self._order is None else f"such as {self._keys[0]!s}"
            name = names[int(missing[0])]
            raise UnknownItem(f"{self._item} {name!r} is not in the graph; its {self._item} ids are {kind}")
        return found


def find_nodes(graph: Graph, names: Sequence[str], *, item: str = "node") -> np.ndarray:
    """The positions of nodes given by the user's own ids, in the order given; see `ItemIndex`."""
    return ItemIndex(graph, item=item).find(names)


def read_node_list(nodes: str) -> list[str]:
    """Node ids from `1,2,"an id, with a comma"`, or from a file with one id per line."""
    # As CSV, because an id may hold a comma; in a file every line is one id, commas and quotes included.
    file = Path(nodes)
    if not file.is_file():
        try:
            fields = next(csv.reader([nodes], skipinitialspace=True, strict=True), [])
        except csv.Error as error:
            raise CvgnnError(f"cannot read the node ids {nodes!r}: {error}") from None
        hint = "nodes names no node; give ids separated by commas, or a file with one id per line"
    else:
        try:
            fields = file.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise CvgnnError(f"cannot read the node ids in {file}: {error}") from None
        hint = f"{file} names no node; write one id per line"
    ids = [field.strip() for field in fields if field.strip()]
    require(bool(ids), hint)
    return ids


def _as_list(ids: np.ndarray | None) -> list[int] | None:
    return None if ids is None else ids.tolist()
