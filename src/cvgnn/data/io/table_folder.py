"""Reads a graph from a folder of tables: `nodes`, `edges` and optionally `features`, each as CSV or Parquet."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cvgnn.data import Graph, RandomSplit
from cvgnn.data.array_converter import from_arrays
from cvgnn.data.edges import ConflictingWeights
from cvgnn.data.io.mistakes import SHOWN, Mistakes
from cvgnn.data.io.preprocessing import Cells, Preprocessing, as_text, date_form, parse_dates, print_table, to_numbers
from cvgnn.data.io.size_checks import FileError
from cvgnn.data.io.suspicions import column_suspicions, log_suspicions
from cvgnn.data.io.table_file import GAPS, CsvFile, ParquetFile, TableFile, categories, positions
from cvgnn.data.io.table_parts import NpyTable, TableParts
from cvgnn.data.labels import kind_of_cells, labelled, labels_of_classes, labels_of_columns
from cvgnn.data.node_ids import as_integers, number_labels
from cvgnn.data.split import SPLITS
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import unknown_name
from cvgnn.utils.formatting import join_printable

TABLE_CLASSES = {
    ending + packed: CsvFile for ending in (".csv", ".tsv") for packed in ("", ".gz", ".zst")
} | {".parquet": ParquetFile}  # fmt: skip
ALIASES = {
    "id": ("node_id", "nodeid", "node"),
    "label": ("class", "target_class", "y"),
    "split": ("fold", "subset", "set"),
    "source": ("src", "from", "source_id", "u"),
    "target": ("dst", "to", "dest", "destination", "target_id", "v"),
    "weight": ("edge_weight",),
}
_SPLIT_NAMES = {"training": "train", "validation": "val", "valid": "val", "dev": "val", "testing": "test"}
_MANY_CLASSES = 50
_KINDS = {"labels": "several labels, separated by |", "number": "numbers to predict"}
_log = logging.getLogger(__name__)
_columns_log = logging.getLogger(f"{__name__}.columns")  # cvgnn inspect prints the table itself

Columns = tuple[dict[str, pa.Array], dict[str, Cells]]
Ids = tuple[np.ndarray, np.ndarray, np.ndarray]


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
        preprocessing: fitted before, on the graph that a model was trained on; then labels may be missing, and its
            options hold where `tables` has none. Fitted on the training nodes if not given.
    """
    tables = tables or TableOptions()
    if preprocessing is not None and not tables.given():
        tables = TableOptions(**preprocessing.options)
    return FolderReader(folder, split or RandomSplit(), tables, preprocessing).graph(directed)


class FolderReader:
    """Reads the tables of one folder; mistakes are collected and reported together."""

    def __init__(
        self, folder: Path, split: RandomSplit, options: TableOptions, preprocessing: Preprocessing | None
    ) -> None:
        self.folder, self.split, self.options = folder, split, options
        self.fitted = preprocessing
        self.training = preprocessing is None and not split.allow_unlabelled
        self.auto = options.preprocess == "auto"
        self.mistakes = Mistakes()
        self.suspicions: list[str] = []
        self.label_fields: dict[str, Any] = {}  # of labels that are no classes
        there = [name for name in ("nodes", "edges", "features") if _suffixes(folder, name)]
        wanted = ("nodes", "edges") if there else ("nodes",)  # a folder with neither is told once
        tables = {name: self._open(name) for name in dict.fromkeys([*wanted, *there])}
        if not there:
            self.mistakes.check()
        self._find_columns(tables)
        self.mistakes.check()
        self.nodes, self.edges, features = tables["nodes"], tables["edges"], tables.get("features")
        self.table = self.nodes if features is None else features

    def graph(self, directed: bool) -> Graph:
        """The graph, checked."""
        nodes, table, mistakes = self.nodes, self.table, self.mistakes
        timed = [] if self.options.split_by is None or not self.training else [self.options.split_by]
        roles = (self.id, self.label, self.split_name, *self.options.label_columns)
        names = [name for name in roles if name is not None]
        node_columns = self._read(nodes, names, [*(self.used if table is nodes else ()), *timed])
        other = node_columns
        if table is not nodes:
            other = self._read(table, [] if self.own is None else [self.own], self.used)
        edge_columns = self._read(self.edges, [self.source, self.target], [] if self.weight is None else [self.weight])
        if node_columns is None or other is None or edge_columns is None:
            mistakes.check()
        assert node_columns is not None
        assert other is not None
        assert edge_columns is not None
        columns, cells = node_columns
        ids, time = columns[self.id], cells.pop(timed[0]) if timed else None
        if not len(ids):
            mistakes.check()
            nodes.require(False, "has no rows: the graph has no nodes")
        # A row that was lost, or an id that is wrong, would make every edge of its node a mistake too.
        ids_known = self._check_unique(nodes, self.id, ids) and not nodes.lost_rows
        y, class_names = self.labels(columns)
        (train, val, test), record = self.split_ids(columns, y, time)
        if table is not nodes:
            cells = self._reordered(other, ids, ids_known)
        x = self._features(cells, train, y, len(ids))
        edge_index, weight, rows = self._edges(*edge_columns, ids, ids_known)
        mistakes.check()
        try:
            graph = from_arrays(
                edge_index, x=x, y=y, train_ids=train, val_ids=val, test_ids=test, edge_weight=weight,
                directed=directed, name=self.folder.resolve().name, node_names=_node_names(ids),
                class_names=class_names,
            )  # fmt: skip
        except ConflictingWeights as error:
            assert weight is not None
            self.note_conflicts(rows[error.listed], weight[error.listed])
            raise
        self.tell(len(train))
        fitted = None if self.fitted is None else self.fitted.to_dict()
        return dataclasses.replace(graph, split=record, preprocessing=fitted, validated=True, **self.label_fields)

    # Columns

    def _open(self, name: str) -> Any:
        """The table of this name; None, and a mistake, if it cannot be opened."""
        folder, found = self.folder, _suffixes(self.folder, name)
        try:
            if not found:
                has = join_printable(sorted(file.name for file in folder.iterdir())[:10])[:200] or "nothing"
                what = f"it has no {name}.csv and no {name}.parquet, and it is not a store; it holds: {has}"
                raise FileError(f"{folder}: {what}")
            both = " and ".join(f"{name}{suffix}" for suffix in found)
            if len(found) > 1:
                raise FileError(f"{folder}: it has both {both}; remove the one that is not meant")
            table = open_table(folder / f"{name}{found[0]}")
        except FileError as error:
            self.mistakes.note(str(error))
            return None
        for column in table.twice:
            self.mistakes.note(f"{table.path} has two columns {column[:80]!r}; give each its own name")
        return table

    def _find_columns(self, tables: dict[str, Any]) -> None:
        """Find the column of each role and of the features; what is missing is a mistake."""
        nodes, edges, features = tables["nodes"], tables["edges"], tables.get("features")
        self.id = self._column(nodes, "id", required=True)
        several = self.options.label_columns
        self.label = None if several else self._column(nodes, "label", required=self.training)
        self.split_name = self._column(nodes, "split")
        self.source = self._column(edges, "source", required=True)
        self.target = self._column(edges, "target", required=True)
        self.weight = self._column(edges, "weight")
        names, options = (self.id, self.label, self.split_name, *several), self.options
        self._check_roles(nodes, {"id": self.id, "label": self.label, "split": self.split_name})
        self._check_roles(edges, {"source": self.source, "target": self.target, "weight": self.weight})
        if self.training and options.split_by is not None:
            in_use = "the split already; leave that out with --ignore" if self.split_name else None
            if in_use is None and options.split_by in names:
                in_use = "the id or a label"
            if in_use is not None and nodes is not None:
                column = options.split_by if self.split_name is None else self.split_name
                self.mistakes.note(f"--split-by: {nodes.path}: column {column[:80]!r} is {in_use}")
        if self.training and nodes is not None and (features is not None or "features" not in tables):
            known = [*nodes.columns, *(() if features is None else features.columns)]
            for option in ("label_columns", "ignore", "numeric", "category", "text", "split_by"):
                given = getattr(options, option)
                for column in (given,) if isinstance(given, str) else given or ():
                    if column not in known and not (option == "ignore" and edges and column in edges.columns):
                        what = unknown_name("column", column, known)
                        self.mistakes.note(f"--{option.replace('_', '-')}: {nodes.path}: {what}")
        if nodes is not None and (features is not None or "features" not in tables):
            self._find_features(nodes, features, names)
        if edges is not None:
            self._check_edge_columns(edges)

    def _check_roles(self, table: TableFile | None, roles: dict[str, str | None]) -> None:
        """A column that has two roles is a mistake."""
        first: dict[str, str] = {}
        for role, column in roles.items():
            if table is None or column is None:
                continue
            other = first.setdefault(column, role)
            if other != role:
                hint = f"name another one with --{other}-column or --{role}-column"
                self.mistakes.note(f"{table.path}: column {column[:80]!r} cannot be both {other} and {role}; {hint}")

    def _find_features(self, nodes: TableFile, features: TableFile | None, names: tuple[Any, ...]) -> None:
        """Set `used`, the columns to read, and `own`, the column of ids in the table that has them."""
        table = features or nodes
        self.own = self.id
        if features is not None:  # the rows of an array have the order of the nodes
            self.own = None if isinstance(features, NpyTable) else self._column(features, "id", required=True)
        no_features = {*names, *self.options.ignore, self.options.split_by}
        if features is not None:
            extra = [name for name in nodes.columns if name not in no_features | nodes.unnamed]
            if extra and self.training:
                has = join_printable(extra[:3])[:80]
                self.mistakes.note(f"{nodes.path} has features ({has}) and there is {features.path.name}; keep one")
            no_features = {self.own, *self.options.ignore}
        self.used = [name for name in table.columns if name not in no_features | table.unnamed]
        if self.fitted is not None:
            self.used = self.fitted.used
            missing = [name for name in self.used if name not in table.columns]
            if missing:
                what = f"has no column {join_printable(missing[:5])}, which the model uses"
                self.mistakes.note(f"{table.path} {what}; its columns are: {_has(table)}")
        elif not self.used and self.id is not None:
            besides = "id, label and split" if features is None else "id"
            self.mistakes.note(f"{table.path} has no features: no column besides {besides}")
        for name in sorted(table.unnamed - no_features):
            self.suspicions.append(f"{table.path.name}: {name} has no name and is left out, as numbers of rows are")

    def _column(self, table: TableFile | None, role: str, *, required: bool = False) -> Any:
        """The name of the column with a role: the user's choice, the usual name, or an alias."""
        if table is None:
            return None
        chosen: str | None = getattr(self.options, f"{role}_column")
        wanted = chosen or role
        if wanted in table.columns and (role != "split" or chosen or role not in self.options.ignore):
            return wanted
        lower = {name.lower(): name for name in table.columns if name not in self.options.ignore}
        for alias in (role, *ALIASES[role]) if chosen is None else ():
            if alias in lower:
                _log.info("%s: column %r is the %s", table.path.name, lower[alias], role)
                return lower[alias]
        if required or (chosen is not None and self.training):
            hint = _hint(table, role, wanted)
            self.mistakes.note(f"{table.path} has no column {wanted!r}; its columns are: {_has(table)}; {hint}")
        return None

    def _check_edge_columns(self, edges: TableFile) -> None:
        """Leave out columns that are neither ends nor weight; a misspelled weight is a mistake."""
        known = (self.source, self.target, self.weight, *self.options.ignore, *edges.unnamed)
        extra = [name for name in edges.columns if name not in known]
        if None in (self.source, self.target):
            return
        for name in extra if self.weight is None else ():
            if difflib.get_close_matches(name.lower(), ["weight"]):
                what = unknown_name("column", name[:80], ("source", "target", "weight"))
                self.mistakes.note(f"{edges.path}: {what}; --ignore leaves it out")
                extra.remove(name)
        if extra and self.training:
            shown = join_printable(extra[:5])[:200]
            self.suspicions.append(f"{edges.path.name}: not used: {shown}; --weight-column names a column of weights")

    def _read(self, table: TableFile, names: Sequence[str], cells: Sequence[str]) -> Columns | None:
        """Columns of names and others of a table; None, and a mistake, where it cannot be read."""
        try:
            return table.read_columns(names=list(names), **self.kinds(table, cells), mistakes=self.mistakes)
        except FileError as error:
            self.mistakes.note(str(error))
            return None

    def kinds(self, table: TableFile, cells: Sequence[str]) -> dict[str, Sequence[str]]:
        """Which columns of a table must hold numbers, as arguments of `read_columns` and `read_batches`."""
        must = (*self.options.numeric, self.weight) if self.auto or table is self.edges else self.used
        numbers = [name for name in cells if name in must and name != self.options.split_by]
        return {"numbers": numbers, "others": [name for name in cells if name not in numbers]}

    # Nodes

    def _check_unique(self, table: TableFile, column: str, ids: pa.Array) -> bool:
        """Whether each id is there, and once; others are mistakes."""
        first_at = positions(ids, ids)
        wrong = np.flatnonzero(first_at != np.arange(len(ids)))
        before = table.places(sorted({int(first_at[row]) for row in wrong[:SHOWN]} - {-1})) if wrong.size else {}

        def what(row: int) -> str:
            first = int(first_at[row])
            if first < 0:
                return "nothing where the node's id must be"
            return f"{str(ids[row])[:80]!r} was listed before, at {before[first]}"

        self.mistakes.cells(table, wrong, column, what)
        return not wrong.size

    def labels(self, columns: dict[str, pa.Array]) -> tuple[np.ndarray, tuple[str, ...] | None]:
        """The class of each node, -1 where unknown, and the names of the classes; `label_fields` if they are none."""
        if self.options.label_columns:
            self.label_fields = labels_of_columns({c: categories(columns[c]) for c in self.options.label_columns})
            y = self.label_fields["y"].numpy()
            # The reader splits and checks by classes: here one for each different row.
            return np.where(labelled(y), np.unique(y, axis=0, return_inverse=True)[1].reshape(-1), -1), None
        if self.label is None:
            return np.full(len(columns[self.id]), -1, dtype=np.int64), None
        labels, codes = categories(columns[self.label])
        gaps = [code for code, label in enumerate(labels) if self.auto and label.strip() in GAPS]
        if gaps:
            found = np.isin(codes, gaps)
            _log.info("%d labels such as %r are read as unknown", found.sum(), labels[gaps[0]])
            codes, used = np.where(found, -1, codes), np.isin(np.arange(len(labels)), gaps, invert=True)
            codes, labels = np.append(np.cumsum(used) - 1, -1)[codes], [labels[code] for code in np.flatnonzero(used)]
        given = self.options.label_kind
        kind = kind_of_cells(labels, _MANY_CLASSES) if given == "auto" else given
        for code, number in enumerate(as_integers(labels) or []):
            if number < 0 and kind == "class":
                what = "is no class; leave the cell empty where the label is unknown, and number classes from 0"
                self._note_value(self.label, codes == code, f"{number} {what}")
        known = int((codes >= 0).sum())
        if given == "auto" and kind == "class" and len(labels) > max(_MANY_CLASSES, known / 2) and self.training:
            self.mistakes.note(
                f"{self.nodes.path}, column {self.label!r}: {len(labels)} different labels in {known} rows; a label is "
                "a class, not an id; name another column with --label-column, or say what it holds with --label-kind"
            )
        numbered, class_names = number_labels([*labels, ""])  # code -1, an empty cell, takes the last
        y = np.array(numbered, dtype=np.int64)[codes]
        if kind != "class" and labels:
            _log.info("%s: column %r holds %s", self.nodes.path.name, self.label, _KINDS[kind])
            self.label_fields = labels_of_classes(y, class_names or [str(c) for c in range(len(labels))], kind)
        return y, class_names

    def _note_value(self, column: str, rows: np.ndarray, what: str) -> None:
        """A mistake in a value of the nodes, told at its first row; `rows` is a mask."""
        count = int(rows.sum())
        more = f" ({count} rows)" if count > 1 else ""
        self.mistakes.cells(self.nodes, [int(np.argmax(rows))], column, lambda _: what + more)

    def split_ids(self, columns: dict[str, pa.Array], y: np.ndarray, time: Cells | None) -> tuple[Ids, str]:
        """Training, validation and test ids, and the record of where they came from."""
        nothing = np.empty(0, dtype=np.int64)
        if not (y >= 0).any():
            if self.training:
                what = "no node has a label, so there is nothing to split"
                self.mistakes.note(str(self.nodes.error(self.label or "label", what)))
            return (nothing, nothing, nothing), "none: no labels"
        if time is not None:
            return self._split_by(time, y)
        if self.split_name is None:
            return self.split.ids(y), self.split.describe()
        parts, codes = categories(columns[self.split_name])
        named = [_SPLIT_NAMES.get(part.strip().lower(), part.strip().lower()) for part in parts]
        renamed = {part: name for part, name in zip(parts, named, strict=True) if part != name and name in SPLITS}
        if renamed:
            _log.info("%s: %s", self.nodes.path.name, ", ".join(f"split {p!r} is {n}" for p, n in renamed.items()))
        for code, part in enumerate(named):
            if part not in (*SPLITS, *map(str.lower, GAPS)):
                self._note_value(self.split_name, codes == code, str(unknown_name("split", parts[code][:80], SPLITS)))
        if self.training:
            self.mistakes.cells(
                self.nodes, np.flatnonzero((codes >= 0) & (y < 0)), self.label or "label",
                lambda row: f"nothing, but the node is in the {parts[codes[row]]} split; give its label or empty split",
            )  # fmt: skip
        else:
            codes = np.where(y < 0, -1, codes)
        train, val, test = (np.flatnonzero(np.isin(codes, np.flatnonzero(np.array(named) == p))) for p in SPLITS)
        if not train.size:
            if not self.training:  # nobody trains on it, but a graph with labels has training nodes
                how = self.split.describe()
                _log.warning("%s: no row is 'train', so its split is not used but made: %s", self.nodes.path.name, how)
                return self.split.ids(y), how
            what = "no row is 'train'; mark the training nodes"
            self.mistakes.note(str(self.nodes.error(self.split_name, what)))
        return (train, val, test), "given"

    def _split_by(self, time: Cells, y: np.ndarray) -> tuple[Ids, str]:
        column = self.options.split_by or ""
        form = None if isinstance(time, np.ndarray) else date_form(time)
        values = to_numbers(time) if form in (None, "ambiguous") else parse_dates(time, form)
        labelled = np.flatnonzero(y >= 0)
        self.mistakes.cells(
            self.nodes, labelled[np.isnan(values[labelled])], column,
            lambda row: f"{str(as_text(time)[row])[:80]!r} is no date and no number, so it cannot order the split",
        )  # fmt: skip
        order = labelled[np.argsort(values[labelled], kind="stable")]
        first = max(1, round(self.split.train * order.size))
        second = first + round(self.split.val * order.size)
        parts = (np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:]))
        rest = 1 - self.split.train - self.split.val
        return parts, f"by {column}: fractions {self.split.train:g}/{self.split.val:g}/{rest:g}"

    # Features

    def _reordered(self, other: Columns, ids: pa.Array, ids_known: bool) -> dict[str, Cells]:
        """The cells of the table `features` in the order of the nodes."""
        table, (columns, cells) = self.table, other
        if self.own is None:
            rows, n = table.estimate_rows(), len(ids)
            table.require(rows == n, f"has {rows} rows for the {n} nodes of {self.nodes.path.name}; give each node one")
            return cells
        self._check_unique(table, self.own, columns[self.own])
        order = np.full(len(ids), -1)
        at = self._node_positions(table, self.own, columns[self.own], ids, ids_known)
        order[at[at >= 0]] = np.flatnonzero(at >= 0)
        for node in np.flatnonzero(order < 0).tolist() if ids_known and not table.lost_rows else ():
            self.mistakes.note(f"{table.path} has no row for node {str(ids[node])[:80]!r} of {self.nodes.path.name}")
        if (order < 0).any():
            self.mistakes.check()  # these nodes have no features to look at
        return {n: c[order] if isinstance(c, np.ndarray) else c.take(pa.array(order)) for n, c in cells.items()}

    def _features(self, cells: dict[str, Cells], train: np.ndarray, y: np.ndarray, rows: int) -> np.ndarray | None:
        """The features, `[rows, F]`; None, and mistakes, where there is nothing to fit."""
        if self.auto and self.fitted is None:
            if not train.size:
                return None
            fitted = self.set_fitted(Preprocessing.fit(cells, train, self.report, self.options))
            if fitted is None:
                return None
            classes = None if self.label_fields else y
            self.suspicions += column_suspicions(cells, fitted, classes, train)
        return self.feature_rows(cells, rows)

    def report(self, column: str, wrong: np.ndarray, what: Any) -> None:
        """Note mistakes in a column of the features."""
        self.mistakes.cells(self.table, wrong, column, what)

    def set_fitted(self, fitted: Preprocessing) -> Preprocessing | None:
        """Keep the fit; None, and a mistake, if no column can be a feature."""
        if fitted.used:
            self.fitted = fitted
            return fitted
        self.mistakes.check()  # a column that is wrong is no feature either
        why = "; ".join(f"{c['name']}: {c['why']}" for c in fitted.columns[:5] if "why" in c)
        self.mistakes.note(f"{self.table.path} has no column that can be a feature: {why}")
        return None

    def feature_rows(self, cells: dict[str, Cells], rows: int) -> np.ndarray:
        """The features of some rows of the table, float32 `[rows, F]`."""
        if self.auto and self.fitted is not None:
            return self.fitted.apply(cells, rows, self.report)
        for name, column in cells.items():
            wrong = np.flatnonzero(np.isnan(column.reshape(rows, -1)).any(axis=1))
            self.report(name, wrong, lambda _: _NO_NUMBER)
        return np.concatenate([np.asarray(cells[n], dtype=np.float32).reshape(rows, -1) for n in self.used], axis=1)

    def tell(self, num_train: int) -> None:
        """Log what becomes of each column, where it was decided here, and what looks wrong."""
        if self.training and self.fitted is not None:
            lines = [("column", "kind", "what it becomes"), *self.fitted.table()]
            _columns_log.info(
                "columns of %s, fitted on %d training nodes:\n%s", self.table.path.name, num_train, print_table(lines)
            )
        log_suspicions(self.suspicions)

    # Edges

    def _edges(
        self, columns: dict[str, pa.Array], cells: dict[str, Cells], ids: pa.Array, ids_known: bool
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Edges `[2, m]`, weights, and the row of each edge in its table."""
        edges, mistakes = self.edges, self.mistakes
        drop = self.options.unknown_edges == "drop"
        ends = np.empty((2, len(columns[self.source])), dtype=np.int64)
        for row, name in enumerate((self.source, self.target)):
            ends[row] = self._node_positions(edges, name, columns[name], ids, ids_known and not drop)
        weight: np.ndarray | None = None
        if self.weight is not None:
            weight = given = cells[self.weight]
            wrong = np.flatnonzero(given <= 0)
            mistakes.cells(edges, wrong, self.weight, lambda row: f"{given[row]:g}; weights must be positive")
            mistakes.cells(edges, np.flatnonzero(np.isnan(given)), self.weight, lambda _: _NO_NUMBER)
        rows = np.arange(ends.shape[1])
        known: np.ndarray = np.logical_and(ends[0] >= 0, ends[1] >= 0)
        if drop and not known.all():
            _log.warning("%s: %d of %d edges left out: their nodes are not in %s", edges.path.name, (~known).sum(),
                         len(known), self.nodes.path.name)  # fmt: skip
            ends, rows, weight = ends[:, known], rows[known], None if weight is None else weight[known]
        loops = int((ends[0] == ends[1]).sum())
        if loops:
            _log.info("%s: %d edges lead from a node to itself and are left out", edges.path.name, loops)
        return ends, weight, rows

    def _node_positions(self, table: TableFile, name: str, column: pa.Array, ids: pa.Array, report: bool) -> np.ndarray:
        """The position in `ids` of each row's node; -1, and a mistake if `report`, where it is none of them."""
        found = positions(column, ids)
        if not report or not found.size or found.min() >= 0:
            return found
        wrong = np.flatnonzero(found < 0)
        shift = _shifted(column.take(pa.array(wrong)), ids)

        @functools.cache
        def spellings() -> dict[str, Any]:
            return {_spelling(value): value for value in ids.to_pylist() if value is not None}

        def what(row: int) -> str:
            value = column[row].as_py()
            text = "nothing where a node's id must be" if value is None else f"{str(value)[:80]!r} is no node"
            near = None if value is None else spellings().get(_spelling(value))
            hint = shift if near is None else f", but {str(near)[:80]!r} is"
            if value == name:
                hint = ", but the name of the column: is the first line there twice?"
            return f"{text}{hint}; ids are listed in {self.nodes.path.name}, column {self.id!r}"

        self.mistakes.cells(table, wrong, name, what)
        return found

    def note_conflicts(self, rows: np.ndarray, weights: np.ndarray) -> None:
        """Report edges that are listed with two weights; `rows` and `weights` are `[conflicts, 2]`."""
        places = self.edges.places(sorted({int(row) for row in rows[:SHOWN, 0]}))
        text = {
            int(row): f"{w[1]:g}, but {places[int(first)]} gives the same edge weight {w[0]:g}; give one"
            for (first, row), w in zip(rows[:SHOWN].tolist(), weights.tolist(), strict=False)
        }
        self.mistakes.cells(self.edges, rows[:, 1], self.weight or "weight", text.__getitem__)
        self.mistakes.check()


_NO_NUMBER = "nothing where a number must be"


def _has(table: TableFile) -> str:
    return join_printable(table.columns[:50])[:300]


def _hint(table: TableFile, role: str, wanted: str) -> str:
    """What may be wrong with a table that lacks a column."""
    lower = {name.lower() for name in table.columns}
    if len(table.columns) == 1:
        return "it has one column only: separate columns by a comma, semicolon, tab or bar"
    if any(name.replace(".", "", 1).lstrip("-").isdigit() for name in table.columns):
        return "its first line looks like a row of data, but it must name the columns"
    if role == "id" and all(lower & {end, *ALIASES[end]} for end in ("source", "target")):
        return "it looks like a table of edges: are the two files swapped?"
    close = difflib.get_close_matches(wanted, table.columns, n=1)
    return f"name it with --{role}-column" + (f" (did you mean {close[0]!r}?)" if close else "")


def _shifted(unknown: pa.Array, ids: pa.Array) -> str:
    """The hint that ids count from 0 in one table and from 1 in the other."""
    if unknown.type == ids.type == pa.int64() and len(ids) and not unknown.null_count:
        values, known = np.unique(unknown.to_numpy()).tolist(), ids.drop_null().to_numpy()
        first, last = int(known.min()), int(known.max())  # Python's integers do not overflow
        if len(values) == 1 and values[0] in (first - 1, last + 1) and first in (0, 1):
            return f" (nodes count from {first}: do the edges count from {1 - first}?)"
    return ""


def _spelling(value: Any) -> str:
    """An id without what people do not see: case, spaces, leading zeros and the .0 of Excel."""
    text = "".join(letter for letter in str(value) if letter.isprintable() and not letter.isspace())
    return text.casefold().removesuffix(".0").lstrip("0")


def _suffixes(folder: Path, name: str) -> list[str]:
    endings = [*TABLE_CLASSES, *([] if name == "nodes" else [".npy"])]
    found = [suffix for suffix in endings if (folder / f"{name}{suffix}").exists()]
    return [*found, ""] if (folder / name).is_dir() else found


def open_table(path: Path) -> TableFile:
    """The table in a file, or in all files of a folder, but for those that begin with . or _ as marks of success do."""
    suffix = next((suffix for suffix in TABLE_CLASSES if path.name.endswith(suffix)), None)
    if suffix is not None:
        return TABLE_CLASSES[suffix](path)
    if not path.is_dir():
        return NpyTable(path)
    files = sorted(file for file in path.iterdir() if file.name[0] not in "._")
    if not files:
        raise FileError(f"{path} is empty; it must hold CSV or Parquet files")
    endings = {next((s for s in TABLE_CLASSES if file.name.endswith(s)), file.name) for file in files}
    if len(endings) > 1 or not endings < TABLE_CLASSES.keys():
        has = join_printable(file.name for file in files[:10])[:200]
        raise FileError(f"{path} must hold files of one kind, CSV or Parquet; it holds: {has}")
    return TableParts(path, [open_table(file) for file in files])


def _node_names(ids: pa.Array) -> np.ndarray | None:
    """Integers where all ids are, None where they are `0..N-1` in order."""
    if ids.type != pa.int64():
        return np.array(ids.to_pylist())
    names: np.ndarray = ids.to_numpy()
    return None if np.array_equal(names, np.arange(len(names))) else names
