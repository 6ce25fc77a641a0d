"""Which table and which column of a graph's folder has which role, and what is wrong with them."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from cvgnn.data import RandomSplit
from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.preprocessing import Preprocessing
from cvgnn.data.io.size_checks import FileError
from cvgnn.data.io.table_file import TableFile
from cvgnn.data.io.table_formats import open_table, suffixes_of
from cvgnn.data.io.table_parts import NpyTable
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import unknown_name
from cvgnn.utils.formatting import join_printable

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
_log = logging.getLogger(__name__)


@final
class TableRoles:
    """The tables of a folder, and the names of their columns: None where there is none.

    Args:
        folder, split, options, preprocessing, training: as in `FolderReader`.
        mistakes: gets what is wrong.
    """

    def __init__(
        self,
        folder: Path,
        split: RandomSplit,
        options: TableOptions,
        preprocessing: Preprocessing | None,
        mistakes: Mistakes,
        *,
        training: bool,
    ) -> None:
        self.folder, self.split, self.options, self.mistakes = folder, split, options, mistakes
        self.fitted, self.training = preprocessing, training
        self.suspicions: list[str] = []
        there = [name for name in TABLES if suffixes_of(folder, name)]
        wanted = ("nodes", "edges") if there else ("nodes",)  # a folder with neither is told once
        tables = {name: self._open(name) for name in dict.fromkeys([*wanted, *there])}
        if not there:
            mistakes.check()
        self.nodes, self.edges, self.graphs = tables["nodes"], tables["edges"], tables.get("graphs")
        self.table = tables.get("features", self.nodes)
        """It has the features."""
        self.items = tables.get("graphs", self.nodes)
        """It has labels and split."""
        self.pairs = tables.get("edge_labels", self.edges)
        """It has labels and split of edges."""
        self._find_columns(tables)

    def _open(self, name: str) -> Any:
        """The table of this name; None, and a mistake, if it cannot be opened."""
        folder, found = self.folder, suffixes_of(self.folder, name)
        try:
            if not found:
                has = join_printable(sorted(file.name for file in folder.iterdir())[:10])[:200] or "nothing"
                what = f"it has no {name}.csv and no {name}.parquet, and it is not a store; rename yours; it holds"
                raise FileError(f"{folder}: {what}: {has}")
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

    def kinds(self, table: TableFile, cells: Sequence[str | None]) -> dict[str, Sequence[str]]:
        """Which columns of a table must hold numbers, as arguments of `read_columns` and `read_batches`."""
        must = (
            (*self.options.numeric, self.weight)
            if self.options.preprocess == "auto" or table is self.edges
            else self.used
        )
        given = [name for name in cells if name is not None]
        numbers = [name for name in given if name in must and name != self.options.split_by]
        return {"numbers": numbers, "others": [name for name in given if name not in numbers]}


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
