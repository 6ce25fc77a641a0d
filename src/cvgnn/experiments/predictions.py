"""Predictions and embeddings as tables with the user's own node ids and labels, written as CSV, Parquet or npy."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, final

import numpy as np

from cvgnn.errors import CvgnnError, require
from cvgnn.experiments.run import Run
from cvgnn.graph import Graph

_ROWS_PER_PIECE = 1 << 16
FORMATS = (".csv", ".parquet", ".npy")


@final
class Table:
    """Named columns of one length.

    Args:
        columns: `[n]` or, for embeddings, `[n, d]` arrays by name.
    """

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = {
            name: column
            for key, values in columns.items()
            for name, column in (
                [(key, values)] if values.ndim == 1 else [(f"{key}{j}", values[:, j]) for j in range(values.shape[1])]
            )
        }
        self.matrix = next((values for values in columns.values() if values.ndim == 2), None)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def pieces(self) -> Iterator[list[list[Any]]]:
        """The columns as Python lists, a bounded number of rows at a time."""
        for first in range(0, len(self), _ROWS_PER_PIECE):
            yield [column[first : first + _ROWS_PER_PIECE].tolist() for column in self.columns.values()]

    def write(self, file: Path) -> None:
        """Write `.csv`, `.parquet` or `.npy` by the file's ending; the file appears complete or not at all."""
        check_format(file)
        partial = file.with_name(file.name + ".partial")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            {".csv": self._csv_file, ".parquet": self._parquet, ".npy": self._npy}[file.suffix](partial)
            partial.replace(file)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise CvgnnError(f"cannot write {file}: {error.strerror}") from None

    def write_csv(self, stream: IO[str]) -> None:
        """Write CSV with a header line."""
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        for piece in self.pieces():
            writer.writerows(zip(*piece, strict=True))

    def _csv_file(self, file: Path) -> None:
        with file.open("w", encoding="utf-8", newline="") as stream:
            self.write_csv(stream)

    def _parquet(self, file: Path) -> None:
        arrow, parquet = _pyarrow()
        names = list(self.columns)
        with parquet.ParquetWriter(file, arrow.table({n: c[:0] for n, c in self.columns.items()}).schema) as writer:
            for first in range(0, len(self), _ROWS_PER_PIECE):
                rows = slice(first, first + _ROWS_PER_PIECE)
                writer.write_table(arrow.table({name: self.columns[name][rows] for name in names}))

    def _npy(self, file: Path) -> None:
        if self.matrix is not None:
            array = self.matrix
        else:
            array = np.empty(len(self), dtype=[(name, column.dtype) for name, column in self.columns.items()])
            for name, column in self.columns.items():
                array[name] = column
        with file.open("wb") as stream:
            np.save(stream, array, allow_pickle=False)


def check_format(file: Path) -> None:
    """Refuse a file ending that we cannot write, before anything is computed."""
    require(
        file.suffix in FORMATS,
        f"cannot write {str(file)!r}: the ending must be one of {', '.join(FORMATS)}, not {file.suffix!r}",
    )
    require(not file.is_dir(), f"cannot write {file}: it is a folder; name a file in it")
    if file.suffix == ".parquet":
        _pyarrow()


def predictions(run: Run, ids: np.ndarray | None = None) -> Table:
    """Node, class and its probability for `ids` (all nodes if not given), by exact inference."""
    probabilities, classes = (t.numpy() for t in run.predict_proba(_as_list(ids)).max(dim=1))
    names = run.result["class_names"]  # of the graph it was trained on: another graph may number its own otherwise
    return Table(
        {
            "node": node_names(run.graph, ids),
            "class": classes if names is None else np.asarray(names)[classes],
            "probability": probabilities,
        }
    )


def embeddings(run: Run, layer: int, ids: np.ndarray | None = None) -> Table:
    """Node and `H^(layer)` for `ids` (all if not given); npy keeps the matrix alone, in the order of the nodes."""
    return Table({"node": node_names(run.graph, ids), "e": run.embed(layer, _as_list(ids)).numpy()})


def node_names(graph: Graph, ids: np.ndarray | None) -> np.ndarray:
    """The user's own ids of the nodes `ids` (of all if not given)."""
    names = np.arange(graph.num_nodes) if graph.node_names is None else graph.node_names
    return names if ids is None else names[ids]


def find_nodes(graph: Graph, wanted: Sequence[str]) -> np.ndarray:
    """The positions of nodes given by the user's own ids, in the order given.

    Args:
        graph: whose nodes.
        wanted: ids as words.
    """
    names = node_names(graph, None)
    words = names if names.dtype.kind == "U" else names.astype(np.str_)
    order = np.argsort(words, kind="stable")
    asked = np.asarray(wanted, dtype=np.str_)
    place = np.searchsorted(words, asked, sorter=order).clip(max=len(words) - 1)
    found: np.ndarray = order[place]
    missing = np.flatnonzero(words[found] != asked)
    if missing.size:
        kind = f"0..{graph.num_nodes - 1}" if graph.node_names is None else f"such as {names[0]!s}"
        raise CvgnnError(f"node {wanted[int(missing[0])]!r} is not in the graph; its node ids are {kind}")
    return found


def read_node_list(words: str) -> list[str]:
    """Node ids from `1,2,"an id, with a comma"`, or from a file with one id a line, each line an id as it stands."""
    file = Path(words)
    if not file.is_file():
        try:
            ids = [word.strip() for word in next(csv.reader([words], skipinitialspace=True, strict=True), [])]
        except csv.Error as error:
            raise CvgnnError(f"cannot read the node ids {words!r}: {error}") from None
        require(any(ids), "nodes names no node; give ids separated by commas, or a file with one id a line")
        return [word for word in ids if word]
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CvgnnError(f"cannot read the node ids in {file}: {error}") from None
    ids = [line.strip() for line in lines if line.strip()]
    require(bool(ids), f"{file} names no node; write one id a line")
    return ids


def _as_list(ids: np.ndarray | None) -> list[int] | None:
    return None if ids is None else ids.tolist()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CvgnnError("Parquet needs the package pyarrow: pip install 'cvgnn[parquet]'") from None
    return pyarrow, pyarrow.parquet
