"""Reads a graph from a folder of tables: `nodes`, `edges` and optionally `features`, each as CSV or Parquet."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cvgnn.data import Graph, RandomSplit
from cvgnn.data.array_converter import from_arrays
from cvgnn.data.edges import ConflictingWeights
from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.preprocessing import Cells, Preprocessing, as_text, date_form, parse_dates, print_table, to_numbers
from cvgnn.data.io.size_checks import FileError
from cvgnn.data.io.table_file import GAPS, CsvFile, ParquetFile, TableFile, categories, positions
from cvgnn.data.node_ids import as_integers, number_labels
from cvgnn.data.split import SPLITS
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import require, unknown_name
from cvgnn.utils.formatting import join_printable

_CLASSES = {
    ending + packed: CsvFile for ending in (".csv", ".tsv") for packed in ("", ".gz", ".zst")
} | {".parquet": ParquetFile}  # fmt: skip
_ALIASES = {
    "id": ("node_id", "nodeid", "node"),
    "label": ("class", "target_class", "y"),
    "split": ("fold", "subset", "set"),
    "source": ("src", "from", "source_id", "u"),
    "target": ("dst", "to", "dest", "destination", "target_id", "v"),
    "weight": ("edge_weight",),
}
_SPLIT_NAMES = {"training": "train", "validation": "val", "valid": "val", "dev": "val", "testing": "test"}
_EDGE_COLUMNS = ("source", "target", "weight")
_MANY_CLASSES = 50
_log = logging.getLogger(__name__)
_columns_log = logging.getLogger(f"{__name__}.columns")  # cvgnn inspect prints the table itself


def read_tables(
    folder: Path,
    *,
    split: RandomSplit | None = None,
    directed: bool = False,
    tables: TableOptions | None = None,
    preprocessing: Preprocessing | None = None,
) -> Graph:
    """Read a graph from a folder of tables, each a `.csv`, `.tsv` (perhaps `.gz` or `.zst`) or `.parquet` file.

    Args:
        folder: `edges` has the columns `source`, `target` and optionally `weight`; `nodes` has `id`, `label` (empty
            where unknown), optionally `split` (train, val, test, or empty), and features in all other columns; or
            `features` has `id` and the features.
        split, directed: as in `read_graph`.
        tables: the names and kinds of columns.
        preprocessing: fitted before, on the graph that a model was trained on; then labels may be missing. Fitted on
            the training nodes if not given.
    """
    return _Reader(folder, split or RandomSplit(), tables or TableOptions(), preprocessing).graph(directed)


class _Reader:
    """Reads the tables of one folder; mistakes are collected and reported together."""

    def __init__(
        self, folder: Path, split: RandomSplit, options: TableOptions, preprocessing: Preprocessing | None
    ) -> None:
        self.folder, self.split, self.options = folder, split, options
        self.fitted = preprocessing
        self.mistakes = Mistakes()
        self._leaks: list[str] | None = None  # columns that tell the label; None where nothing was fitted
        self.nodes, self.edges = _open(folder, "nodes"), _open(folder, "edges")
        self.features = _open(folder, "features") if _found(folder, "features") else None
        nodes = self.nodes
        self.id = self._column(nodes, "id", required=True)
        self.label = self._column(nodes, "label", required=preprocessing is None and not split.allow_unlabelled)
        self.split_name = self._column(nodes, "split")
        named = ("ignore", "numeric", "category", "text")
        known = [*nodes.columns, *(() if self.features is None else self.features.columns)]
        for option in (*named, "split_by"):
            given = getattr(options, option)
            for column in (given,) if isinstance(given, str) else given or ():
                if column not in known and not (option == "ignore" and column in self.edges.columns):
                    raise FileError(
                        f"--{option.replace('_', '-')}: {nodes.path}: {unknown_name('column', column, known)}"
                    )

    def graph(self, directed: bool) -> Graph:
        """The graph, checked."""
        nodes, mistakes, options = self.nodes, self.mistakes, self.options
        names = [name for name in (self.id, self.label, self.split_name) if name is not None]
        table = nodes if self.features is None else self.features
        own = self.id if self.features is None else self._column(table, "id", required=True)
        rest = [c for c in table.columns if c not in (*names, own, *options.ignore, options.split_by)]
        self._check_feature_columns(rest, names)
        auto = options.preprocess == "auto"
        timed = [] if options.split_by is None else [options.split_by]
        here = [] if self.features is not None or not auto else self._wanted(rest)
        columns, cells = nodes.read_columns(
            names=names, numbers=[c for c in here if c in options.numeric],
            others=[*(c for c in here if c not in options.numeric), *timed], mistakes=mistakes,
        )  # fmt: skip
        time = None if options.split_by is None else cells.pop(options.split_by)
        ids = columns[self.id]
        nodes.require(len(ids) > 0 or mistakes.count > 0, "has no rows: the graph has no nodes")
        self._check_unique(nodes, self.id, ids)
        mistakes.check()  # a node that is missing makes its edges mistakes too
        y, class_names = self._labels(columns)
        train, val, test, record = self._split_ids(columns, y, time)
        if not train.size:
            mistakes.check()  # nothing can be fitted
        if self.features is not None:
            cells, order = self._other_table(table, own, ids, rest, auto)
            cells = {name: _reordered(column, order) for name, column in cells.items()}
        if auto:
            x = self._preprocess(table, cells, train, y, len(ids))
        else:
            mistakes.check()
            x = self._plain(table, own, ids, rest)
        edge_index, weight, rows = self._read_edges(ids)
        mistakes.check()
        self._tell(table, len(train))
        try:
            graph = from_arrays(
                edge_index, x=x, y=y, train_ids=train, val_ids=val, test_ids=test, edge_weight=weight,
                directed=directed, name=self.folder.resolve().name, node_names=_node_names(ids),
                class_names=class_names,
            )  # fmt: skip
        except ConflictingWeights as error:
            assert weight is not None
            other, row = sorted(error.listed.tolist())
            first = self.edges.place(int(rows[other]))
            what = f"{weight[row]:g}, but {first} gives the same edge weight {weight[other]:g}; give one"
            raise self.edges.error(int(rows[row]), self.weight or "weight", what) from None
        fitted = None if self.fitted is None else self.fitted.to_dict()
        return dataclasses.replace(graph, split=record, preprocessing=fitted, validated=True)

    # Columns

    def _column(self, table: TableFile, role: str, *, required: bool = False) -> Any:
        """The name of the column with a role: the user's choice, the usual name, or an alias."""
        chosen = getattr(self.options, f"{role}_column")
        if chosen is not None:
            table.require_columns(chosen)
            return chosen
        if role in table.columns:
            return role
        lower = {name.lower(): name for name in table.columns}
        for alias in (role, *_ALIASES[role]):
            if alias in lower and lower[alias] not in self.options.ignore:
                _log.info("%s: column %r is the %s", table.path.name, lower[alias], role)
                return lower[alias]
        if required:
            hint = f"; name it with --{role}-column"
            has = join_printable(table.columns[:50])[:300]
            table.require(False, f"has no column {role!r}; its columns are: {has}{hint}")
        return None

    def _check_feature_columns(self, rest: list[str], names: list[str]) -> None:
        nodes, ignored = self.nodes, self.options.ignore
        if self.features is None:
            nodes.require(len(rest) > 0, "has no features: no column besides id, label and split")
            return
        extra = [c for c in nodes.columns if c not in (*names, *ignored, self.options.split_by)]
        has = join_printable(extra[:3])[:80]
        nodes.require(not extra, f"has features ({has}) and there is {self.features.path.name}; keep one")
        self.features.require(len(rest) > 0, "has no features: no column besides id")

    def _wanted(self, rest: list[str]) -> list[str]:
        """The columns of features to read."""
        if self.fitted is None:
            return rest
        table = self.nodes if self.features is None else self.features
        missing = [name for name in self.fitted.used if name not in table.columns]
        has = join_printable(table.columns[:50])[:300]
        table.require(
            not missing, f"has no column {join_printable(missing[:5])}, which the model uses; its columns are: {has}"
        )
        return self.fitted.used

    # Nodes

    def _check_unique(self, table: TableFile, column: str, ids: pa.Array) -> None:
        first_at = positions(ids, ids)
        wrong = np.flatnonzero(first_at != np.arange(len(ids)))
        before = table.places(sorted({int(first_at[row]) for row in wrong[:20]} - {-1})) if wrong.size else {}

        def what(row: int) -> str:
            first = int(first_at[row])
            if first < 0:
                return "nothing where the node's id must be"
            return f"{str(ids[row])[:80]!r} was listed before, at {before[first]}"

        self.mistakes.cells(table, wrong, column, what)

    def _labels(self, columns: dict[str, pa.Array]) -> tuple[np.ndarray, tuple[str, ...] | None]:
        if self.label is None:
            return np.full(len(columns[self.id]), -1, dtype=np.int64), None
        labels, codes = categories(columns[self.label])
        auto = self.options.preprocess == "auto"
        gaps = [code for code, label in enumerate(labels) if auto and label.strip() in GAPS]
        if gaps:
            found = np.isin(codes, gaps)
            _log.info("%d labels such as %r are read as unknown", found.sum(), labels[gaps[0]])
            codes = np.where(found, -1, codes)
            kept = [code for code in range(len(labels)) if code not in gaps]
            renumber = np.full(len(labels) + 1, -1)
            renumber[kept] = np.arange(len(kept))
            codes, labels = renumber[codes], [labels[code] for code in kept]
        for code, number in enumerate(as_integers(labels) or []):
            if number < 0:
                what = (
                    f"{number} is no class; leave the cell empty where the label is unknown, and number classes from 0"
                )
                self.mistakes.cells(self.nodes, [int(np.argmax(codes == code))], self.label, lambda _, w=what: w)  # type: ignore[misc]
        known = int((codes >= 0).sum())
        if len(labels) > _MANY_CLASSES and self.fitted is None:
            numbers = to_numbers(pa.array(labels, pa.large_string()))
            fractions = not np.isnan(numbers).any() and bool((numbers != np.floor(numbers)).any())
            if fractions or len(labels) > known / 2:
                self.mistakes.note(
                    f"{self.nodes.path}, column {self.label!r}: {len(labels)} different labels in {known} rows; a "
                    "label is a class, not a measured number or an id; name another column with --label-column"
                )
        numbered, class_names = number_labels([*labels, ""])  # code -1, an empty cell, takes the last
        return np.array(numbered, dtype=np.int64)[codes], class_names

    def _split_ids(
        self, columns: dict[str, pa.Array], y: np.ndarray, time: Cells | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
        """Training, validation and test ids, and the record of where they came from."""
        nothing = np.empty(0, dtype=np.int64)
        if not (y >= 0).any() and (self.fitted is not None or self.split.allow_unlabelled):
            return nothing, nothing, nothing, "none: no labels"
        if time is not None:
            require(self.split_name is None, f"split_by makes the split, but {self.nodes.path.name} has one; ignore it")
            return self._split_by(time, y)
        if self.split_name is None:
            return *self.split.ids(y), self.split.describe()
        parts, codes = categories(columns[self.split_name])
        named = [_SPLIT_NAMES.get(part.strip().lower(), part.strip().lower()) for part in parts]
        renamed = {part: name for part, name in zip(parts, named, strict=True) if part != name and name in SPLITS}
        if renamed:
            _log.info("%s: %s", self.nodes.path.name, ", ".join(f"split {p!r} is {n}" for p, n in renamed.items()))
        for code, part in enumerate(named):
            if part not in SPLITS:
                row = int(np.argmax(codes == code))
                error = str(unknown_name("split", parts[code][:80], SPLITS))
                self.mistakes.cells(self.nodes, [row], self.split_name, lambda _, e=error: e)  # type: ignore[misc]
        unlabelled = np.flatnonzero((codes >= 0) & (y < 0))
        if self.fitted is not None:
            codes = np.where(y < 0, -1, codes)
        else:
            self.mistakes.cells(
                self.nodes, unlabelled, self.label or "label",
                lambda row: f"nothing, but the node is in the {parts[codes[row]]} split; give its label or empty split",
            )  # fmt: skip
        train, val, test = (
            np.flatnonzero(np.isin(codes, [c for c, name in enumerate(named) if name == part])) for part in SPLITS
        )
        if not train.size:
            if self.fitted is not None:  # nobody trains on it
                return *self.split.ids(y), self.split.describe()
            self.mistakes.note(
                f"{self.nodes.path}, column {self.split_name!r}: no row is 'train'; mark the training nodes"
            )
        return train, val, test, "given"

    def _split_by(self, time: Cells, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
        column = self.options.split_by or ""
        if isinstance(time, pa.Array):
            form = date_form(time)
            values = to_numbers(time) if form in (None, "ambiguous") else parse_dates(time, form)
        else:
            values = time
        labelled = np.flatnonzero(y >= 0)
        require(labelled.size > 0, "no node has a label, so there is nothing to split")
        bad = labelled[np.isnan(values[labelled])]
        self.mistakes.cells(
            self.nodes, bad, column,
            lambda row: f"{str(as_text(time)[row])[:80]!r} is no date and no number, so it cannot order the split",
        )  # fmt: skip
        order = labelled[np.argsort(values[labelled], kind="stable")]
        first = max(1, round(self.split.train * order.size))
        second = first + round(self.split.val * order.size)
        parts = (np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:]))
        rest = 1 - self.split.train - self.split.val
        return *parts, f"by {column}: fractions {self.split.train:g}/{self.split.val:g}/{rest:g}"

    # Features

    def _other_table(
        self, table: TableFile, own: str, ids: pa.Array, rest: list[str], auto: bool
    ) -> tuple[dict[str, Cells], np.ndarray]:
        """The cells of the table `features`, and the row of each node in it."""
        wanted = self._wanted(rest) if auto else []
        numbers = [c for c in wanted if c in self.options.numeric]
        others = [c for c in wanted if c not in numbers]
        columns, cells = table.read_columns(names=[own], numbers=numbers, others=others, mistakes=self.mistakes)
        self._check_unique(table, own, columns[own])
        at = self._node_positions(table, own, columns[own], ids)
        self.mistakes.check()
        order = np.full(len(ids), -1)
        order[at] = np.arange(len(at))
        for node in np.flatnonzero(order < 0).tolist():
            self.mistakes.note(f"{table.path} has no row for node {str(ids[node])[:80]!r} of {self.nodes.path.name}")
        self.mistakes.check()
        return cells, order

    def _plain(self, table: TableFile, own: str, ids: pa.Array, rest: list[str]) -> np.ndarray:
        """Features that are numbers already, as they are."""
        columns, matrix = table.read(names=[own], numbers=rest, dtype=np.float32)
        if table is self.nodes:
            return matrix
        x = np.empty_like(matrix)
        x[positions(columns[own], ids)] = matrix
        return x

    def _preprocess(
        self, table: TableFile, cells: dict[str, Cells], train: np.ndarray, y: np.ndarray, rows: int
    ) -> np.ndarray:
        def report(column: str, wrong: np.ndarray, what: Any) -> None:
            self.mistakes.cells(table, wrong, column, what)

        if self.fitted is None:
            options = self.options
            kinds = dict.fromkeys(options.numeric, "number") | dict.fromkeys(options.category, "category")
            kinds |= dict.fromkeys(options.text, "text")
            self.fitted = Preprocessing.fit(cells, train, kinds, report)
            self._leaks = equal_to_label(cells, y, train)
            table.require(
                len(self.fitted.used) > 0,
                "has no column that can be a feature: "
                + "; ".join(f"{c['name']}: {c['why']}" for c in self.fitted.columns[:5] if "why" in c),
            )
        return self.fitted.apply(cells, rows, report)

    def _tell(self, table: TableFile, num_train: int) -> None:
        """Log what becomes of each column, where it was decided here."""
        if self._leaks is None or self.fitted is None:
            return
        lines = [("column", "kind", "what it becomes"), *self.fitted.table()]
        _columns_log.info(
            "columns of %s, fitted on %d training nodes:\n%s", table.path.name, num_train, print_table(lines)
        )
        for column in self._leaks:
            hint = "name it in --ignore if it is not known when you predict"
            _log.warning("column %r alone tells the label of every training node; %s", column, hint)

    # Edges

    def _read_edges(self, ids: pa.Array) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Edges `[2, m]`, weights, and the row of each edge in its table."""
        edges, mistakes = self.edges, self.mistakes
        source = self._column(edges, "source", required=True)
        target = self._column(edges, "target", required=True)
        self.weight = self._column(edges, "weight")
        used = (source, target, self.weight, *self.options.ignore)
        for name in edges.columns:
            if name not in used:
                raise FileError(
                    f"{edges.path}: {unknown_name('column', name[:80], _EDGE_COLUMNS)}; --ignore leaves it out"
                )
        weighted = [] if self.weight is None else [self.weight]
        columns, cells = edges.read_columns(names=[source, target], numbers=weighted, others=[], mistakes=mistakes)
        drop = self.options.unknown_edges == "drop"
        ends = np.empty((2, len(columns[source])), dtype=np.int64)
        for row, name in enumerate((source, target)):
            ends[row] = self._node_positions(edges, name, columns[name], ids, drop=drop)
        weight: np.ndarray | None = None
        if self.weight is not None:
            given: np.ndarray = cells[self.weight]
            weight = given
            wrong = np.flatnonzero(given <= 0)
            mistakes.cells(edges, wrong, self.weight, lambda row: f"{given[row]:g}; weights must be positive")
            gaps = np.flatnonzero(np.isnan(given))
            mistakes.cells(edges, gaps, self.weight, lambda _: "nothing where a number must be")
        keep: np.ndarray = np.logical_and(ends[0] >= 0, ends[1] >= 0)
        rows = np.arange(ends.shape[1])
        if not keep.all() and drop:
            _log.warning("%s: %d of %d edges left out: their nodes are not in %s", edges.path.name, (~keep).sum(),
                         len(keep), self.nodes.path.name)  # fmt: skip
            ends, rows, weight = ends[:, keep], rows[keep], None if weight is None else weight[keep]
        return ends, weight, rows

    def _node_positions(
        self, table: TableFile, name: str, column: pa.Array, ids: pa.Array, *, drop: bool = False
    ) -> np.ndarray:
        """The position in `ids` of each row's node; -1, and a mistake unless `drop`, where it is none of them."""
        found = positions(column, ids)
        if not drop and found.size and found.min() < 0:

            def what(row: int) -> str:
                value = column[row].as_py()
                text = "nothing where a node's id must be" if value is None else f"{str(value)[:80]!r} is no node"
                return f"{text}; ids are listed in {self.nodes.path.name}, column {self.id!r}"

            self.mistakes.cells(table, np.flatnonzero(found < 0), name, what)
        return found


def equal_to_label(cells: dict[str, Cells], y: np.ndarray, train: np.ndarray) -> list[str]:
    """Columns with few values of which each occurs with one label only, as a copy of the label does."""
    found = []
    labels = y[train]
    classes = np.unique(labels)
    for name, column in cells.items():
        if len(train) < 10 or len(classes) < 2 or (isinstance(column, np.ndarray) and column.ndim == 2):
            continue
        if isinstance(column, np.ndarray):
            values, codes = np.unique(column[train], return_inverse=True)
            count = len(values)
        else:
            encoded = column.take(pa.array(train)).dictionary_encode("encode")
            codes, count = encoded.indices.to_numpy(zero_copy_only=False), len(encoded.dictionary)
        if count == len(classes) and len(np.unique(codes.astype(np.int64) * (labels.max() + 1) + labels)) == count:
            found.append(name)
    return found


def _found(folder: Path, name: str) -> list[str]:
    return [suffix for suffix in _CLASSES if (folder / f"{name}{suffix}").exists()]


def _open(folder: Path, name: str) -> TableFile:
    found = _found(folder, name)
    require(len(found) > 0, f"it has no {name}.csv and no {name}.parquet, and it is not a store")
    both = " and ".join(f"{name}{suffix}" for suffix in found)
    require(len(found) == 1, f"it has both {both}; remove the one that is not meant")
    return _CLASSES[found[0]](folder / f"{name}{found[0]}")


def _reordered(cells: Cells, order: np.ndarray) -> Cells:
    return cells[order] if isinstance(cells, np.ndarray) else cells.take(pa.array(order))


def _node_names(ids: pa.Array) -> np.ndarray | None:
    """Integers where all ids are, None where they are `0..N-1` in order."""
    if ids.type != pa.int64():
        return np.array(ids.to_pylist())
    names: np.ndarray = ids.to_numpy()
    return None if np.array_equal(names, np.arange(len(names))) else names
