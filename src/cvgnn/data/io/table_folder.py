"""Reads a graph, or a set of graphs, from a folder of tables, each as CSV, Parquet or Arrow."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from cvgnn.data import Graph, RandomSplit
from cvgnn.data.array_converter import from_arrays
from cvgnn.data.edges import ConflictingWeights
from cvgnn.data.io.cell_values import GAPS, Cells, as_text, date_form, missing, parse_dates, to_numbers
from cvgnn.data.io.mistakes import SHOWN, Mistakes
from cvgnn.data.io.preprocessing import Preprocessing, print_table
from cvgnn.data.io.size_checks import FileError
from cvgnn.data.io.suspicions import column_suspicions, log_suspicions
from cvgnn.data.io.table_file import TableFile, categories, positions
from cvgnn.data.io.table_roles import TableRoles
from cvgnn.data.labels import SEPARATOR, kind_of_cells, labelled, labels_of_classes, labels_of_columns
from cvgnn.data.node_ids import as_integers, number_labels
from cvgnn.data.split import SPLITS
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import unknown_name

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
    predicting: bool = False,
) -> Graph:
    """Read a graph from a folder of tables, each `.csv`, `.tsv` (perhaps `.gz` or `.zst`), `.parquet` or `.arrow`.

    Args:
        folder: `edges` has the columns `source`, `target` and optionally `weight`; `nodes` has `id`, `label` (empty
            where unknown), optionally `split` (train, val, test, or empty), and features in all other columns; or
            `features` has `id` and the features. A column `graph` in `nodes` makes a set of graphs; then the labels are
            in `graphs` (`id`, `label`, perhaps `split`), or the same in all rows of a graph. Labelled pairs are in
            `edge_labels` (`source`, `target`, `label`, perhaps `split`), or `label` and `split` are columns of `edges`.
        split, directed: as in `read_graph`.
        tables: the names and kinds of columns.
        preprocessing: fitted before, on the graph that a model was trained on; then labels may be missing, and its
            options hold where `tables` has none. Fitted on the training nodes if not given.
        predicting: as in `read_graph`.
    """
    tables = tables or TableOptions()
    if preprocessing is not None:
        tables = preprocessing.table_options(tables)
    return FolderReader(folder, split or RandomSplit(), tables, preprocessing, training=not predicting).graph(directed)


class FolderReader:
    """Reads the tables of one folder; mistakes are collected and reported together."""

    def __init__(
        self, folder: Path, split: RandomSplit, options: TableOptions, preprocessing: Any, *, training: bool
    ) -> None:
        self.folder, self.split, self.options = folder, split, options
        self.fitted: Preprocessing | None = preprocessing
        self.training = training and preprocessing is None
        self.auto = options.preprocess == "auto"
        self.mistakes = Mistakes()
        self.label_fields: dict[str, Any] = {}  # of labels that are no classes
        self.unread = False  # whether a table could not be read
        self.item_rows: np.ndarray | None = None  # the rows of `items` that count; all if None
        self.roles = TableRoles(folder, split, options, preprocessing, self.mistakes, training=self.training)
        self.suspicions = self.roles.suspicions
        self.mistakes.check()

    def graph(self, directed: bool) -> Graph:
        """The graph, checked."""
        roles, mistakes = self.roles, self.mistakes
        nodes, table = roles.nodes, roles.table
        timed = [] if self.options.split_by is None or not self.training else [self.options.split_by]
        labels = [roles.label, roles.split_name, *self.options.label_columns]
        own = labels if roles.items is nodes else []
        features = [*(roles.used if table is nodes else ()), *(timed if roles.items is nodes else ())]
        ends, marks = [roles.source, roles.target], [roles.pair_label, roles.pair_split]
        columns, cells = self._read(nodes, [roles.id, roles.graph_name, *own], features)
        other = (columns, cells) if table is nodes else self._read(table, [roles.own], roles.used)
        items, item_cells = columns, cells
        if roles.graphs:
            items, item_cells = self._read(roles.items, [roles.item_id, *labels], timed)
        in_edges = roles.pairs is roles.edges
        edge_columns = self._read(roles.edges, [*ends, *(marks if in_edges else ())], [roles.weight])
        pair_columns = edge_columns[0] if in_edges else self._read(roles.pairs, [*ends, *marks], [])[0]
        if self.unread:
            mistakes.check()
        ids, time = self._node_ids(nodes, roles.id, columns), item_cells.pop(timed[0]) if timed else None
        if not len(ids):
            mistakes.check()
            nodes.require(False, "has no rows: the graph has no nodes")
        # A row that was lost, or an id that is wrong, would make every edge of its node a mistake too.
        ids_known = self._check_unique(nodes, roles.id, ids) and not nodes.lost_rows
        graph_of, graph_names, items = self._graph_of_nodes(columns, items, labels)
        y, class_names = self.labels(items)
        (train, val, test), record = self.split_ids(items, y, time)
        if table is not nodes:
            cells = self._reordered(other, ids, ids_known)
        fitted_on, node_y = train, y
        if graph_of is not None:
            fitted_on, node_y = np.flatnonzero(np.isin(graph_of, train)), y[graph_of]
        if not train.size and not roles.needs_labels:
            fitted_on = np.arange(len(ids))  # without labels at nodes there is no split of them
        x = self._features(cells, fitted_on, node_y, len(ids))
        edge_index, weight, rows = self._edges(*edge_columns, ids, ids_known)
        pairs = self._labelled_pairs(pair_columns, (edge_index, rows) if in_edges else None, ids, ids_known)
        self._check_within_graphs(edge_index, rows, graph_of)
        mistakes.check()
        if graph_of is not None:
            assert x is not None
            order = np.argsort(graph_of, kind="stable")  # the nodes of a graph one after another
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            ids, x, graph_of, edge_index = ids.take(pa.array(order)), x[order], graph_of[order], place[edge_index]
            pairs |= {name: torch.from_numpy(place)[index] for name, index in pairs.items() if name == _PAIRS}
        try:
            graph = from_arrays(
                edge_index, x=x, y=y, train_ids=train, val_ids=val, test_ids=test, edge_weight=weight,
                directed=directed, name=self.folder.resolve().name, node_names=_node_names(ids),
                class_names=class_names, graph_ids=graph_of,
                graph_names=None if graph_names is None else _node_names(graph_names),
            )  # fmt: skip
        except ConflictingWeights as error:
            assert weight is not None
            self.note_conflicts(rows[error.listed], weight[error.listed])
            raise
        self.tell(len(fitted_on))
        fitted = None if self.fitted is None else self.fitted.to_dict()
        more = {**self.label_fields, **pairs}
        return dataclasses.replace(graph, split=record, preprocessing=fitted, validated=True, **more)

    # Columns of names

    def _read(self, table: TableFile, names: Sequence[str | None], cells: Sequence[str | None]) -> Columns:
        """Columns of names and others of a table; nothing, and a mistake, where it cannot be read."""
        wanted = [name for name in dict.fromkeys((*names, self.roles.graph_in.get(table))) if name is not None]
        try:
            return table.read_columns(names=wanted, **self.roles.kinds(table, cells), mistakes=self.mistakes)
        except FileError as error:
            self.mistakes.note(str(error))
            self.unread = True
            return {}, {}

    def _node_ids(self, table: TableFile, column: str, columns: dict[str, pa.Array]) -> pa.Array:
        """A column of node ids; `GRAPH/ID` where ids count within graphs."""
        if table not in self.roles.graph_in:
            return columns[column]
        parts = [columns[name].cast(pa.large_string()) for name in (self.roles.graph_in[table], column)]
        return pc.binary_join_element_wise(*parts, pa.scalar("/", pa.large_string()))

    # Nodes

    def _graph_of_nodes(
        self, columns: dict[str, pa.Array], items: dict[str, pa.Array], labels: Sequence[str | None]
    ) -> tuple[np.ndarray | None, pa.Array | None, dict[str, pa.Array]]:
        """The graph of each node, the ids of the graphs, and the columns of labels and split with a row for each graph;
        None, None and `items` where this is no set of graphs."""
        roles = self.roles
        nodes, mistakes = roles.nodes, self.mistakes
        if roles.graph_name is None:
            return None, None, items
        names = columns[roles.graph_name]
        graph_of: np.ndarray
        if roles.graphs is not None:
            known = items[roles.item_id]
            self._check_unique(roles.graphs, roles.item_id, known, "graph")
            graph_of, where = positions(names, known), f"; graphs are listed in {roles.graphs.path.name}"
            empty = np.setdiff1d(np.arange(len(known)), graph_of)
            mistakes.cells(roles.graphs, empty, roles.item_id, lambda row: f"{str(known[row])[:80]!r} has no node")
        else:
            graph_of, where = categories(names)[1], ""
        mistakes.cells(
            nodes, np.flatnonzero(graph_of < 0), roles.graph_name,
            lambda row: f"{str(names[row])[:80]!r} is no graph{where}" if names[row].is_valid else "nothing where the "
            "id of the node's graph must be",
        )  # fmt: skip
        if (graph_of < 0).any():
            mistakes.check()
        if roles.graphs is not None:
            return graph_of, known, items
        first = self.item_rows = np.unique(graph_of, return_index=True)[1]
        for column in filter(None, labels):
            self._check_same(column, items[column], graph_of)
        rows = pa.array(first)
        return graph_of, names.take(rows), {name: column.take(rows) for name, column in items.items()}

    def _check_same(self, column: str, cells: pa.Array, graph_of: np.ndarray) -> None:
        """A label or split that is not that of the first node of the graph is a mistake."""
        assert self.item_rows is not None
        texts, codes = categories(cells)
        first = codes[self.item_rows][graph_of]

        def what(row: int) -> str:
            mine, other = ([*texts, ""][code][:80] for code in (codes[row], first[row]))
            same = "give all nodes of a graph the same, or write a table graphs"
            return f"{mine!r}, but the first node of its graph has {other!r}; {same}"

        self.mistakes.cells(self.roles.nodes, np.flatnonzero(codes != first), column, what)

    def _check_unique(self, table: TableFile, column: str, ids: pa.Array, item: str = "node") -> bool:
        """Whether each id is there, and once; others are mistakes."""
        first_at = positions(ids, ids)
        wrong = np.flatnonzero(first_at != np.arange(len(ids)))
        before = table.places(sorted({int(first_at[row]) for row in wrong[:SHOWN]} - {-1})) if wrong.size else {}

        def what(row: int) -> str:
            first = int(first_at[row])
            if first < 0:
                return f"nothing where the {item}'s id must be"
            roles = self.roles
            within = table is roles.nodes and roles.graph_name is not None and not roles.graph_in
            hint = "; where ids count within graphs, give the edges a column graph, too" if within else ""
            return f"{str(ids[row])[:80]!r} was listed before, at {before[first]}{hint}"

        self.mistakes.cells(table, wrong, column, what)
        return not wrong.size

    def labels(self, columns: dict[str, pa.Array]) -> tuple[np.ndarray, tuple[str, ...] | None]:
        """The class of each node, -1 where unknown, and the names of the classes; `label_fields` if they are none."""
        roles = self.roles
        if self.options.label_columns:
            self.label_fields = labels_of_columns(
                {c: categories(columns[c]) for c in self.options.label_columns}, self.options.label_kind
            )
            y = self.label_fields["y"].numpy()
            # The reader splits and checks by classes: here one for each different row.
            return np.where(labelled(y), np.unique(y, axis=0, return_inverse=True)[1].reshape(-1), -1), None
        if roles.label is None:
            return np.full(len(next(iter(columns.values()))), -1, dtype=np.int64), None
        labels, codes = self._known_labels(columns[roles.label])
        given = self.options.label_kind
        kind = kind_of_cells(labels, _MANY_CLASSES) if given == "auto" else given
        if kind == "class":
            self._refuse_negative(roles.items, roles.label, labels, codes)
        known = int((codes >= 0).sum())
        if given == "auto" and kind == "class" and len(labels) > max(_MANY_CLASSES, known / 2) and self.training:
            self.mistakes.note(
                f"{roles.items.path}, column {roles.label!r}: {len(labels)} different labels in {known} rows; a label "
                "is a class, not an id; name another column with --label-column, or say what it holds with --label-kind"
            )
        if given == "auto" and kind == "class" and any(SEPARATOR in label for label in labels) and self.training:
            said = f"labels such as {next(x for x in labels if SEPARATOR in x)[:80]!r} are one class each"
            self.suspicions.append(f"{said}; --label-kind labels splits them at {SEPARATOR}")
        numbered, class_names = number_labels([*labels, ""])  # code -1, an empty cell, takes the last
        y = np.array(numbered, dtype=np.int64)[codes]
        if kind != "class" and labels:
            _log.info("%s: column %r holds %s", roles.items.path.name, roles.label, _KINDS[kind])
            self.label_fields = labels_of_classes(y, class_names or [str(c) for c in range(len(labels))], kind)
        return y, class_names

    def _known_labels(self, column: pa.Array) -> tuple[list[str], np.ndarray]:
        """As `categories`, cells that mean a missing value being empty ones."""
        labels, codes = categories(column)
        gaps = [code for code, label in enumerate(labels) if self.auto and label.strip() in GAPS]
        if gaps:
            found = np.isin(codes, gaps)
            _log.info("%d labels such as %r are read as unknown", found.sum(), labels[gaps[0]])
            codes, used = np.where(found, -1, codes), np.isin(np.arange(len(labels)), gaps, invert=True)
            codes, labels = np.append(np.cumsum(used) - 1, -1)[codes], [labels[code] for code in np.flatnonzero(used)]
        return labels, codes

    def _refuse_negative(self, table: TableFile, column: str, labels: Sequence[str], codes: np.ndarray) -> None:
        for code, number in enumerate(as_integers(labels) or []):
            if number < 0:
                what = "is no class; leave the cell empty where the label is unknown, and number classes from 0"
                self._note_value(table, column, codes == code, f"{number} {what}")

    def _note_value(self, table: TableFile, column: str, rows: np.ndarray, what: str) -> None:
        """A mistake in a value, told at its first row; `rows` is a mask."""
        count = int(rows.sum())
        more = f" ({count} rows)" if count > 1 else ""
        self._note_cells(table, np.flatnonzero(rows)[:1], column, lambda _: what + more)

    def _note_cells(self, table: TableFile, rows: np.ndarray, column: str, what: Callable[[int], str]) -> None:
        """A mistake in each of some cells; rows of `items` are those of `item_rows`."""
        places = self.item_rows[rows] if table is self.roles.items and self.item_rows is not None else rows
        item = dict(zip(places[:SHOWN].tolist(), rows[:SHOWN].tolist(), strict=True))
        self.mistakes.cells(table, places, column, lambda place: what(item[place]))

    def split_ids(self, columns: dict[str, pa.Array], y: np.ndarray, time: Cells | None) -> tuple[Ids, str]:
        """Training, validation and test ids, and the record of where they came from."""
        roles = self.roles
        nothing = np.empty(0, dtype=np.int64)
        if not (y >= 0).any():
            if roles.needs_labels:
                what = f"no {roles.item} has a label, so there is nothing to split"
                self.mistakes.note(str(roles.items.error(roles.label or "label", what)))
            return (nothing, nothing, nothing), "none: no labels"
        if time is not None:
            return self._split_by(time, y)
        if roles.split_name is None:
            return self.split.ids(y), self.split.describe()
        part = self._parts(roles.items, roles.split_name, columns[roles.split_name])
        if self.training:
            self._note_cells(
                roles.items, np.flatnonzero((part >= 0) & (y < 0)), roles.label or "label",
                lambda row: f"nothing, but the {roles.item} is in the {SPLITS[part[row]]} split; give its label or "
                "empty split",
            )  # fmt: skip
        else:
            part = np.where(y < 0, -1, part)
        train, val, test = (np.flatnonzero(part == code) for code in range(len(SPLITS)))
        if not train.size:
            if not self.training:  # nobody trains on it, but a graph with labels has training nodes
                how = self.split.describe()
                _log.warning("%s: no row is 'train', so its split is not used but made: %s", roles.items.path.name, how)
                return self.split.ids(y), how
            what = f"no row is 'train'; mark the training {roles.item}s"
            self.mistakes.note(str(roles.items.error(roles.split_name, what)))
        return (train, val, test), "given"

    def _parts(self, table: TableFile, column: str, cells: pa.Array) -> np.ndarray:
        """int8, the part of the split that each row is in: a position in `SPLITS`, -1 for none."""
        parts, codes = categories(cells)
        named = [_SPLIT_NAMES.get(part.strip().lower(), part.strip().lower()) for part in parts]
        renamed = {part: name for part, name in zip(parts, named, strict=True) if part != name and name in SPLITS}
        if renamed:
            _log.info("%s: %s", table.path.name, ", ".join(f"split {p!r} is {n}" for p, n in renamed.items()))
        for code, part in enumerate(named):
            if part not in (*SPLITS, *map(str.lower, GAPS)):
                self._note_value(table, column, codes == code, str(unknown_name("split", parts[code][:80], SPLITS)))
        numbers = [SPLITS.index(part) if part in SPLITS else -1 for part in named]
        found: np.ndarray = np.array([*numbers, -1], dtype=np.int8)[codes]
        return found

    def _split_by(self, time: Cells, y: np.ndarray) -> tuple[Ids, str]:
        roles = self.roles
        column = self.options.split_by or ""
        if self.item_rows is not None:
            rows = self.item_rows
            time = time[rows] if isinstance(time, np.ndarray) else time.take(pa.array(rows))
        form = None if isinstance(time, np.ndarray) else date_form(time)
        values = to_numbers(time) if form in (None, "ambiguous") else parse_dates(time, form)
        labelled, gone = np.flatnonzero(y >= 0), missing(time)
        what = "is no date and no number, so it cannot order the split"
        if form == "ambiguous":
            what = "may be day/month or month/day; write dates as 2024-01-31"
        self._note_cells(
            roles.items, labelled[(np.isnan(values) & ~gone)[labelled]], column,
            lambda row: f"{str(as_text(time)[row])[:80]!r} {what}",
        )  # fmt: skip
        if gone[labelled].any():
            count = int(gone[labelled].sum())
            self.suspicions.append(
                f"{count} labelled {roles.item}s have no {column!r}; they are in no part of the split"
            )
        labelled = labelled[~gone[labelled]]
        if not labelled.size:
            what = f"no labelled {roles.item} has a date or a number to split by"
            self.mistakes.note(str(roles.items.error(column, what)))
        order = labelled[np.argsort(values[labelled], kind="stable")]
        first = max(1, round(self.split.train * order.size))
        second = first + round(self.split.val * order.size)
        parts = (np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:]))
        rest = 1 - self.split.train - self.split.val
        return parts, f"by {column}: fractions {self.split.train:g}/{self.split.val:g}/{rest:g}"

    # Features

    def _reordered(self, other: Columns, ids: pa.Array, ids_known: bool) -> dict[str, Cells]:
        """The cells of the table `features` in the order of the nodes."""
        roles = self.roles
        table, (columns, cells) = roles.table, other
        if roles.own is None:
            rows, n = table.estimate_rows(), len(ids)
            table.require(
                rows == n, f"has {rows} rows for the {n} nodes of {roles.nodes.path.name}; give each node one"
            )
            return cells
        names = self._node_ids(table, roles.own, columns)
        self._check_unique(table, roles.own, names)
        order = np.full(len(ids), -1)
        at = self._node_positions(table, roles.own, names, ids, ids_known)
        order[at[at >= 0]] = np.flatnonzero(at >= 0)
        for node in np.flatnonzero(order < 0).tolist() if ids_known and not table.lost_rows else ():
            what = f"{table.path} has no row for node {str(ids[node])[:80]!r} of {roles.nodes.path.name}"
            self.mistakes.note(what, f" in {table.path.name}")
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
            classes = y if (y >= 0).any() and not self.label_fields else None
            self.suspicions += column_suspicions(cells, fitted, classes, train)
        return self.feature_rows(cells, rows)

    def report(self, column: str, wrong: np.ndarray, what: Any) -> None:
        """Note mistakes in a column of the features."""
        self.mistakes.cells(self.roles.table, wrong, column, what)

    def set_fitted(self, fitted: Preprocessing) -> Preprocessing | None:
        """Keep the fit; None, and a mistake, if no column can be a feature."""
        if fitted.used:
            self.fitted = fitted
            return fitted
        self.mistakes.check()  # a column that is wrong is no feature either
        why = "; ".join(f"{c['name']}: {c['why']}" for c in fitted.columns[:5] if "why" in c)
        self.mistakes.note(f"{self.roles.table.path} has no column that can be a feature: {why}")
        return None

    def feature_rows(self, cells: dict[str, Cells], rows: int) -> np.ndarray:
        """The features of some rows of the table, float32 `[rows, F]`."""
        if self.auto and self.fitted is not None:
            return self.fitted.apply(cells, rows, self.report)
        for name, column in cells.items():
            wrong = np.flatnonzero(np.isnan(column.reshape(rows, -1)).any(axis=1))
            self.report(name, wrong, lambda _: _NO_NUMBER)
        return np.concatenate(
            [np.asarray(cells[n], dtype=np.float32).reshape(rows, -1) for n in self.roles.used], axis=1
        )

    def tell(self, num_train: int) -> None:
        """Log what becomes of each column, where it was decided here, and what looks wrong."""
        if self.training and self.fitted is not None:
            lines = [("column", "kind", "what it becomes"), *self.fitted.table()]
            _columns_log.info(
                "columns of %s, fitted on %d training nodes:\n%s",
                self.roles.table.path.name,
                num_train,
                print_table(lines),
            )
        log_suspicions(self.suspicions)

    # Edges

    def _edges(
        self, columns: dict[str, pa.Array], cells: dict[str, Cells], ids: pa.Array, ids_known: bool
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Edges `[2, m]`, weights, and the row of each edge in its table."""
        roles = self.roles
        edges, mistakes = roles.edges, self.mistakes
        ends, rows = self._ends(edges, columns, ids, ids_known)
        weight: np.ndarray | None = None
        if roles.weight is not None:
            weight = given = cells[roles.weight]
            wrong = np.flatnonzero(given <= 0)
            mistakes.cells(edges, wrong, roles.weight, lambda row: f"{given[row]:g}; weights must be positive")
            mistakes.cells(edges, np.flatnonzero(np.isnan(given)), roles.weight, lambda _: _NO_NUMBER)
            weight = given[rows]
        loops = int(((ends[0] == ends[1]) & (ends[0] >= 0)).sum())  # -1: no node, which is a mistake
        if loops:
            _log.info("%s: %d edges lead from a node to itself and are left out", edges.path.name, loops)
        return ends, weight, rows

    def _ends(
        self, table: TableFile, columns: dict[str, pa.Array], ids: pa.Array, ids_known: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of nodes in a table, `[2, m]`, and the row of each; without unknown nodes if they are dropped."""
        roles = self.roles
        drop = self.options.unknown_edges == "drop"
        ends = np.empty((2, len(columns[roles.source])), dtype=np.int64)
        for row, name in enumerate((roles.source, roles.target)):
            names = self._node_ids(table, name, columns)
            ends[row] = self._node_positions(table, name, names, ids, ids_known and not drop)
        known: np.ndarray = np.logical_and(ends[0] >= 0, ends[1] >= 0)
        if not drop or known.all():
            return ends, np.arange(len(known))
        _log.warning("%s: %d of %d edges left out: their nodes are not in %s", table.path.name, (~known).sum(),
                     len(known), roles.nodes.path.name)  # fmt: skip
        return ends[:, known], np.flatnonzero(known)

    def _labelled_pairs(
        self,
        columns: dict[str, pa.Array],
        of_edges: tuple[np.ndarray, np.ndarray] | None,
        ids: pa.Array,
        ids_known: bool,
    ) -> dict[str, Any]:
        """Fields of a `Graph` for labels and split of pairs; nothing where there are none.

        Args:
            columns: of the table of pairs.
            of_edges: the pairs and their rows, where they are the edges.
            ids, ids_known: of the nodes.
        """
        roles = self.roles
        if roles.pair_label is None and roles.pair_split is None:
            return {}
        table = roles.pairs
        ends, rows = self._ends(table, columns, ids, ids_known) if of_edges is None else of_edges
        label, names = np.full(len(rows), -1), None
        if roles.pair_label is not None:
            labels, codes = self._known_labels(columns[roles.pair_label])
            self._refuse_negative(table, roles.pair_label, labels, codes)
            codes = codes[rows]
            used = set(codes.tolist())  # an edge that was left out brings no class
            numbers, names = number_labels([*(label if code in used else "" for code, label in enumerate(labels)), ""])
            label = np.array(numbers, dtype=np.int64)[codes]
        split = (
            None if roles.pair_split is None else self._parts(table, roles.pair_split, columns[roles.pair_split])[rows]
        )
        return {
            _PAIRS: torch.from_numpy(ends),
            "edge_label": torch.from_numpy(label),
            "edge_split": None if split is None else torch.from_numpy(split),
            "edge_class_names": names,
        }

    def _check_within_graphs(self, ends: np.ndarray, rows: np.ndarray, graph_of: np.ndarray | None) -> None:
        """An edge between two graphs of a set is a mistake."""
        if graph_of is not None:
            between = (graph_of[ends[0]] != graph_of[ends[1]]) & (ends >= 0).all(axis=0)
            what = "the edge leads to a node of another graph; graphs of a set have no edges between them"
            self.mistakes.cells(self.roles.edges, rows[between], self.roles.target, lambda _: what)

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
            return f"{text}{hint}; ids are listed in {self.roles.nodes.path.name}, column {self.roles.id!r}"

        self.mistakes.cells(table, wrong, name, what)
        return found

    def note_conflicts(self, rows: np.ndarray, weights: np.ndarray) -> None:
        """Report edges that are listed with two weights; `rows` and `weights` are `[conflicts, 2]`."""
        roles = self.roles
        places = roles.edges.places(sorted({int(row) for row in rows[:SHOWN, 0]}))
        text = {
            int(row): f"{w[1]:g}, but {places[int(first)]} gives the same edge weight {w[0]:g}; give one"
            for (first, row), w in zip(rows[:SHOWN].tolist(), weights.tolist(), strict=False)
        }
        self.mistakes.cells(roles.edges, rows[:, 1], roles.weight or "weight", text.__getitem__)
        self.mistakes.check()


_NO_NUMBER = "nothing where a number must be"
_PAIRS = "edge_label_index"


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


def _node_names(ids: pa.Array) -> np.ndarray | None:
    """Integers where all ids are, None where they are `0..N-1` in order."""
    if ids.type != pa.int64():
        return np.array(ids.to_pylist())
    names: np.ndarray = ids.to_numpy()
    return None if np.array_equal(names, np.arange(len(names))) else names
