"""Reads a graph, or a set of graphs, from a folder of tables, each as CSV or Parquet."""

from __future__ import annotations

import dataclasses
import difflib
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
from cvgnn.data.io.csv_file import CsvFile
from cvgnn.data.io.mistakes import SHOWN, Mistakes
from cvgnn.data.io.preprocessing import Preprocessing, print_table
from cvgnn.data.io.size_checks import FileError
from cvgnn.data.io.suspicions import column_suspicions, log_suspicions
from cvgnn.data.io.table_file import ParquetFile, TableFile, categories, positions
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
    "graph": ("graph_id", "graphid"),
    "label": ("class", "target_class", "y"),
    "split": ("fold", "subset", "set"),
    "source": ("src", "from", "source_id", "u"),
    "target": ("dst", "to", "dest", "destination", "target_id", "v"),
    "weight": ("edge_weight",),
    "edge_label": ("label", "class", "y"),
}
TABLES = ("nodes", "edges", "features", "graphs", "edge_labels")
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
    """Read a graph from a folder of tables, each a `.csv`, `.tsv` (perhaps `.gz` or `.zst`) or `.parquet` file.

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
        self.suspicions: list[str] = []
        self.label_fields: dict[str, Any] = {}  # of labels that are no classes
        self.unread = False  # whether a table could not be read
        self.item_rows: np.ndarray | None = None  # the rows of `items` that count; all if None
        there = [name for name in TABLES if _suffixes(folder, name)]
        wanted = ("nodes", "edges") if there else ("nodes",)  # a folder with neither is told once
        tables = {name: self._open(name) for name in dict.fromkeys([*wanted, *there])}
        if not there:
            self.mistakes.check()
        self.nodes, self.edges, self.graphs = tables["nodes"], tables["edges"], tables.get("graphs")
        self.table = tables.get("features", self.nodes)
        self.items = tables.get("graphs", self.nodes)  # has labels and split
        self.pairs = tables.get("edge_labels", self.edges)  # has labels and split of edges
        self._find_columns(tables)
        self.mistakes.check()

    def graph(self, directed: bool) -> Graph:
        """The graph, checked."""
        nodes, table, mistakes = self.nodes, self.table, self.mistakes
        timed = [] if self.options.split_by is None or not self.training else [self.options.split_by]
        labels = [self.label, self.split_name, *self.options.label_columns]
        own = labels if self.items is nodes else []
        features = [*(self.used if table is nodes else ()), *(timed if self.items is nodes else ())]
        ends, marks = [self.source, self.target], [self.pair_label, self.pair_split]
        columns, cells = self._read(nodes, [self.id, self.graph_name, *own], features)
        other = (columns, cells) if table is nodes else self._read(table, [self.own], self.used)
        items, item_cells = self._read(self.items, [self.item_id, *labels], timed) if self.graphs else (columns, cells)
        in_edges = self.pairs is self.edges
        edge_columns = self._read(self.edges, [*ends, *(marks if in_edges else ())], [self.weight])
        pair_columns = edge_columns[0] if in_edges else self._read(self.pairs, [*ends, *marks], [])[0]
        if self.unread:
            mistakes.check()
        ids, time = self._node_ids(nodes, self.id, columns), item_cells.pop(timed[0]) if timed else None
        if not len(ids):
            mistakes.check()
            nodes.require(False, "has no rows: the graph has no nodes")
        # A row that was lost, or an id that is wrong, would make every edge of its node a mistake too.
        ids_known = self._check_unique(nodes, self.id, ids) and not nodes.lost_rows
        graph_of, graph_names, items = self._graph_of_nodes(columns, items, labels)
        y, class_names = self.labels(items)
        (train, val, test), record = self.split_ids(items, y, time)
        if table is not nodes:
            cells = self._reordered(other, ids, ids_known)
        fitted_on, node_y = train, y
        if graph_of is not None:
            fitted_on, node_y = np.flatnonzero(np.isin(graph_of, train)), y[graph_of]
        if not train.size and not self.needs_labels:
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
        options, several = self.options, self.options.label_columns
        self.source = self._column(edges, "source", required=True)
        self.target = self._column(edges, "target", required=True)
        self.weight = self._column(edges, "weight")
        self._find_pair_columns(edges, separate="edge_labels" in tables)
        of_edges = self.pair_label is not None or self.pair_split is not None
        self.needs_labels = self.training and not self.split.allow_unlabelled and not of_edges
        self.id = self._column(nodes, "id", required=True)
        self.graph_name = self._column(nodes, "graph", required="graphs" in tables)
        self.item = "node" if self.graph_name is None else "graph"
        self.item_id = self._column(self.graphs, "id", required=True)
        self.label = None if several else self._column(self.items, "label", required=self.needs_labels)
        self.split_name = self._column(self.items, "split")
        own = (self.label, self.split_name, *several) if self.items is nodes else ()
        names = (self.id, self.graph_name, *own)
        roles = {"id": self.id, "graph": self.graph_name}
        self._check_roles(nodes, roles | ({"label": self.label, "split": self.split_name} if own else {}))
        self._check_roles(edges, {"source": self.source, "target": self.target, "weight": self.weight})
        # Where edges name their graph, the ids of nodes may count within it.
        self.graph_in: dict[TableFile, str] = {}
        if self.graph_name is not None and edges is not None and self._column(edges, "graph") is not None:
            for table in dict.fromkeys((nodes, edges, self.table, self.pairs)):
                if table is not None and not isinstance(table, NpyTable):
                    self.graph_in[table] = self._column(table, "graph", required=True)
        if self.training and options.split_by is not None:
            in_use = "the split already; leave that out with --ignore" if self.split_name else None
            if in_use is None and options.split_by in names:
                in_use = "the id or a label"
            if in_use is not None and self.items is not None:
                column = options.split_by if self.split_name is None else self.split_name
                self.mistakes.note(f"--split-by: {self.items.path}: column {column[:80]!r} is {in_use}")
        if self.training and nodes is not None and (features is not None or "features" not in tables):
            known = [name for table in (nodes, features, self.graphs) if table is not None for name in table.columns]
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

    def _column(self, table: TableFile | None, role: str, *, required: bool = False, own: bool = True) -> Any:
        """The name of the column with a role: the user's choice unless not `own`, the usual name, or an alias."""
        if table is None:
            return None
        chosen: str | None = getattr(self.options, f"{role}_column") if own else None
        wanted = chosen or ("label" if role == "edge_label" else role)
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
        marks = (self.pair_label, self.pair_split) if self.pairs is edges else ()
        known = {self.source, self.target, self.weight, *marks, self.graph_in.get(edges), *self.options.ignore}
        extra = [name for name in edges.columns if name not in known | edges.unnamed]
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

    def _find_pair_columns(self, edges: TableFile | None, *, separate: bool) -> None:
        """Find the columns of labels and split of edges: in a table of pairs, or in that of the edges."""
        table = self.pairs
        self.pair_label = self._column(table, "edge_label") if separate or self.options.edge_label_column else None
        self.pair_split = self._column(table, "split", own=False) if separate else None
        if table is edges and edges is not None:  # by these names alone: others may mean anything
            there = [name for name in edges.columns if name not in self.options.ignore]
            self.pair_label = self.pair_label or ("label" if "label" in there else None)
            self.pair_split = "split" if "split" in there else None
        elif table is not None:
            for name in (self.source, self.target):
                if name is not None and name not in table.columns:
                    self.mistakes.note(f"{table.path} has no column {name!r}; its columns are: {_has(table)}")
            if self.pair_label is None and self.pair_split is None:
                what = "neither a column 'label' nor a column 'split'"
                self.mistakes.note(f"{table.path} has {what}; its columns are: {_has(table)}")

    def _read(self, table: TableFile, names: Sequence[str | None], cells: Sequence[str | None]) -> Columns:
        """Columns of names and others of a table; nothing, and a mistake, where it cannot be read."""
        wanted = [name for name in dict.fromkeys((*names, self.graph_in.get(table))) if name is not None]
        try:
            return table.read_columns(names=wanted, **self.kinds(table, cells), mistakes=self.mistakes)
        except FileError as error:
            self.mistakes.note(str(error))
            self.unread = True
            return {}, {}

    def _node_ids(self, table: TableFile, column: str, columns: dict[str, pa.Array]) -> pa.Array:
        """A column of node ids; `GRAPH/ID` where ids count within graphs."""
        if table not in self.graph_in:
            return columns[column]
        parts = [columns[name].cast(pa.large_string()) for name in (self.graph_in[table], column)]
        return pc.binary_join_element_wise(*parts, pa.scalar("/", pa.large_string()))

    def kinds(self, table: TableFile, cells: Sequence[str | None]) -> dict[str, Sequence[str]]:
        """Which columns of a table must hold numbers, as arguments of `read_columns` and `read_batches`."""
        must = (*self.options.numeric, self.weight) if self.auto or table is self.edges else self.used
        given = [name for name in cells if name is not None]
        numbers = [name for name in given if name in must and name != self.options.split_by]
        return {"numbers": numbers, "others": [name for name in given if name not in numbers]}

    # Nodes

    def _graph_of_nodes(
        self, columns: dict[str, pa.Array], items: dict[str, pa.Array], labels: Sequence[str | None]
    ) -> tuple[np.ndarray | None, pa.Array | None, dict[str, pa.Array]]:
        """The graph of each node, the ids of the graphs, and the columns of labels and split with a row for each graph;
        None, None and `items` where this is no set of graphs."""
        nodes, mistakes = self.nodes, self.mistakes
        if self.graph_name is None:
            return None, None, items
        names = columns[self.graph_name]
        graph_of: np.ndarray
        if self.graphs is not None:
            known = items[self.item_id]
            self._check_unique(self.graphs, self.item_id, known, "graph")
            graph_of, where = positions(names, known), f"; graphs are listed in {self.graphs.path.name}"
            empty = np.setdiff1d(np.arange(len(known)), graph_of)
            mistakes.cells(self.graphs, empty, self.item_id, lambda row: f"{str(known[row])[:80]!r} has no node")
        else:
            graph_of, where = categories(names)[1], ""
        mistakes.cells(
            nodes, np.flatnonzero(graph_of < 0), self.graph_name,
            lambda row: f"{str(names[row])[:80]!r} is no graph{where}" if names[row].is_valid else "nothing where the "
            "id of the node's graph must be",
        )  # fmt: skip
        if (graph_of < 0).any():
            mistakes.check()
        if self.graphs is not None:
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

        self.mistakes.cells(self.nodes, np.flatnonzero(codes != first), column, what)

    def _check_unique(self, table: TableFile, column: str, ids: pa.Array, item: str = "node") -> bool:
        """Whether each id is there, and once; others are mistakes."""
        first_at = positions(ids, ids)
        wrong = np.flatnonzero(first_at != np.arange(len(ids)))
        before = table.places(sorted({int(first_at[row]) for row in wrong[:SHOWN]} - {-1})) if wrong.size else {}

        def what(row: int) -> str:
            first = int(first_at[row])
            if first < 0:
                return f"nothing where the {item}'s id must be"
            within = table is self.nodes and self.graph_name is not None and not self.graph_in
            hint = "; where ids count within graphs, give the edges a column graph, too" if within else ""
            return f"{str(ids[row])[:80]!r} was listed before, at {before[first]}{hint}"

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
            return np.full(len(next(iter(columns.values()))), -1, dtype=np.int64), None
        labels, codes = self._known_labels(columns[self.label])
        given = self.options.label_kind
        kind = kind_of_cells(labels, _MANY_CLASSES) if given == "auto" else given
        if kind == "class":
            self._refuse_negative(self.items, self.label, labels, codes)
        known = int((codes >= 0).sum())
        if given == "auto" and kind == "class" and len(labels) > max(_MANY_CLASSES, known / 2) and self.training:
            self.mistakes.note(
                f"{self.items.path}, column {self.label!r}: {len(labels)} different labels in {known} rows; a label is "
                "a class, not an id; name another column with --label-column, or say what it holds with --label-kind"
            )
        numbered, class_names = number_labels([*labels, ""])  # code -1, an empty cell, takes the last
        y = np.array(numbered, dtype=np.int64)[codes]
        if kind != "class" and labels:
            _log.info("%s: column %r holds %s", self.items.path.name, self.label, _KINDS[kind])
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
        places = self.item_rows[rows] if table is self.items and self.item_rows is not None else rows
        item = dict(zip(places[:SHOWN].tolist(), rows[:SHOWN].tolist(), strict=True))
        self.mistakes.cells(table, places, column, lambda place: what(item[place]))

    def split_ids(self, columns: dict[str, pa.Array], y: np.ndarray, time: Cells | None) -> tuple[Ids, str]:
        """Training, validation and test ids, and the record of where they came from."""
        nothing = np.empty(0, dtype=np.int64)
        if not (y >= 0).any():
            if self.needs_labels:
                what = f"no {self.item} has a label, so there is nothing to split"
                self.mistakes.note(str(self.items.error(self.label or "label", what)))
            return (nothing, nothing, nothing), "none: no labels"
        if time is not None:
            return self._split_by(time, y)
        if self.split_name is None:
            return self.split.ids(y), self.split.describe()
        part = self._parts(self.items, self.split_name, columns[self.split_name])
        if self.training:
            self._note_cells(
                self.items, np.flatnonzero((part >= 0) & (y < 0)), self.label or "label",
                lambda row: f"nothing, but the {self.item} is in the {SPLITS[part[row]]} split; give its label or "
                "empty split",
            )  # fmt: skip
        else:
            part = np.where(y < 0, -1, part)
        train, val, test = (np.flatnonzero(part == code) for code in range(len(SPLITS)))
        if not train.size:
            if not self.training:  # nobody trains on it, but a graph with labels has training nodes
                how = self.split.describe()
                _log.warning("%s: no row is 'train', so its split is not used but made: %s", self.items.path.name, how)
                return self.split.ids(y), how
            what = f"no row is 'train'; mark the training {self.item}s"
            self.mistakes.note(str(self.items.error(self.split_name, what)))
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
            self.items, labelled[(np.isnan(values) & ~gone)[labelled]], column,
            lambda row: f"{str(as_text(time)[row])[:80]!r} {what}",
        )  # fmt: skip
        if gone[labelled].any():
            count = int(gone[labelled].sum())
            self.suspicions.append(
                f"{count} labelled {self.item}s have no {column!r}; they are in no part of the split"
            )
        labelled = labelled[~gone[labelled]]
        if not labelled.size:
            what = f"no labelled {self.item} has a date or a number to split by"
            self.mistakes.note(str(self.items.error(column, what)))
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
        names = self._node_ids(table, self.own, columns)
        self._check_unique(table, self.own, names)
        order = np.full(len(ids), -1)
        at = self._node_positions(table, self.own, names, ids, ids_known)
        order[at[at >= 0]] = np.flatnonzero(at >= 0)
        for node in np.flatnonzero(order < 0).tolist() if ids_known and not table.lost_rows else ():
            what = f"{table.path} has no row for node {str(ids[node])[:80]!r} of {self.nodes.path.name}"
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
        ends, rows = self._ends(edges, columns, ids, ids_known)
        weight: np.ndarray | None = None
        if self.weight is not None:
            weight = given = cells[self.weight]
            wrong = np.flatnonzero(given <= 0)
            mistakes.cells(edges, wrong, self.weight, lambda row: f"{given[row]:g}; weights must be positive")
            mistakes.cells(edges, np.flatnonzero(np.isnan(given)), self.weight, lambda _: _NO_NUMBER)
            weight = given[rows]
        loops = int((ends[0] == ends[1]).sum())
        if loops:
            _log.info("%s: %d edges lead from a node to itself and are left out", edges.path.name, loops)
        return ends, weight, rows

    def _ends(
        self, table: TableFile, columns: dict[str, pa.Array], ids: pa.Array, ids_known: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of nodes in a table, `[2, m]`, and the row of each; without unknown nodes if they are dropped."""
        drop = self.options.unknown_edges == "drop"
        ends = np.empty((2, len(columns[self.source])), dtype=np.int64)
        for row, name in enumerate((self.source, self.target)):
            names = self._node_ids(table, name, columns)
            ends[row] = self._node_positions(table, name, names, ids, ids_known and not drop)
        known: np.ndarray = np.logical_and(ends[0] >= 0, ends[1] >= 0)
        if not drop or known.all():
            return ends, np.arange(len(known))
        _log.warning("%s: %d of %d edges left out: their nodes are not in %s", table.path.name, (~known).sum(),
                     len(known), self.nodes.path.name)  # fmt: skip
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
        if self.pair_label is None and self.pair_split is None:
            return {}
        table = self.pairs
        ends, rows = self._ends(table, columns, ids, ids_known) if of_edges is None else of_edges
        label, names = np.full(len(rows), -1), None
        if self.pair_label is not None:
            labels, codes = self._known_labels(columns[self.pair_label])
            self._refuse_negative(table, self.pair_label, labels, codes)
            codes = codes[rows]
            used = set(codes.tolist())  # an edge that was left out brings no class
            numbers, names = number_labels([*(label if code in used else "" for code, label in enumerate(labels)), ""])
            label = np.array(numbers, dtype=np.int64)[codes]
        split = None if self.pair_split is None else self._parts(table, self.pair_split, columns[self.pair_split])[rows]
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
            self.mistakes.cells(self.edges, rows[between], self.target, lambda _: what)

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
_PAIRS = "edge_label_index"


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
    unlabelled = "" if role != "label" or close else "; only --task link needs none"
    return f"name it with --{role}-column" + (f" (did you mean {close[0]!r}?)" if close else "") + unlabelled


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
    endings = [*TABLE_CLASSES, *([".npy"] if name in ("edges", "features") else [])]
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
