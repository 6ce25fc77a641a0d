"""Reads new nodes and their edges from two tables, as those of the graph that they come to are read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cvgnn.data import Graph
from cvgnn.data.io.cell_values import to_numbers
from cvgnn.data.io.dense_features import is_of_arrays
from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.preprocessing import Preprocessing
from cvgnn.data.io.table_file import TableFile, positions
from cvgnn.data.io.table_formats import open_file
from cvgnn.data.io.table_roles import ALIASES
from cvgnn.data.table_options import TableOptions
from cvgnn.utils.formatting import join_printable

_log = logging.getLogger(__name__)
_NO_NUMBER = "nothing where a number must be"


class NewNodeTables(NamedTuple):
    """What `Run.predict_new` takes: features `[n, F]`, edges `[2, m]`, weights `[m]` or None; and the nodes' names."""

    x: np.ndarray
    edge_index: np.ndarray
    edge_weight: np.ndarray | None
    names: np.ndarray


def read_new_nodes(
    nodes: Path, edges: Path, graph: Graph, *, options: TableOptions, preprocessing: dict[str, Any] | None
) -> NewNodeTables:
    """Read new nodes from tables. Labels and splits in them are not read.

    Args:
        nodes: `id` and the features: the columns that the model uses, or, where it was not trained on preprocessed
            tables, as many columns of numbers as the graph has features, in their order.
        edges: `source`, `target` and perhaps `weight`; an id is that of a new node or of a node of the graph.
        graph: that the nodes come to.
        options: the names of columns, and what to do with an edge whose node is unknown.
        preprocessing: fitted on the graph that the model was trained on.
    """
    mistakes, (node_table, edge_table) = Mistakes(), [open_file(file, "a table for --new") for file in (nodes, edges)]
    # Columns of arrays have no names; the new ones are taken in their order.
    named = preprocessing is not None and not is_of_arrays(preprocessing)
    fitted = Preprocessing.from_dict(preprocessing) if named else None
    options = options if fitted is None else fitted.table_options(options)
    own = _column(node_table, "id", options, required=True)
    source, target = (_column(edge_table, role, options, required=True) for role in ("source", "target"))
    weight_name = _column(edge_table, "weight", options)
    used = _feature_columns(node_table, own, options, fitted)
    numbers = [] if fitted is None else [name for name in used if name in options.numeric]
    others = [name for name in used if name not in numbers]
    columns, cells = node_table.read_columns(names=[own], numbers=numbers, others=others, mistakes=mistakes)
    ids = columns[own]
    node_table.require(len(ids) > 0 or mistakes.count > 0, "has no rows: there is no new node")
    first_at, known = positions(ids, ids), _find(ids, graph)

    def report(column: str, wrong: np.ndarray, what: Any) -> None:
        mistakes.cells(node_table, wrong, column, what)

    report(own, np.flatnonzero(first_at < 0), lambda _: "nothing where the node's id must be")
    twice = np.flatnonzero((first_at >= 0) & (first_at != np.arange(len(ids))))
    report(own, twice, lambda row: f"{str(ids[row])[:80]!r} is listed twice")
    report(own, np.flatnonzero(known >= 0), lambda row: f"{str(ids[row])[:80]!r} is in the graph already")
    if fitted is not None:
        x = fitted.apply(cells, len(ids), report)
    else:
        x = np.column_stack([_numbers(name, cells[name], report) for name in used])
    weighted = [] if weight_name is None else [weight_name]
    columns, cells = edge_table.read_columns(names=[source, target], numbers=weighted, others=[], mistakes=mistakes)
    edge_index = np.empty((2, len(columns[source])), dtype=np.int64)
    where = f"is neither a node of {nodes.name} nor of the graph {graph.name!r}"
    for end, (name, column) in zip(edge_index, columns.items(), strict=True):
        new, old = positions(column, ids), _find(column, graph)
        end[:] = np.where(new >= 0, graph.num_nodes + new, old)
        unknown = {int(row): f"{str(column[int(row)])[:80]!r} {where}" for row in np.flatnonzero(end < 0)}
        if options.unknown_edges == "error":
            mistakes.cells(edge_table, list(unknown), name, unknown.__getitem__)
    between = np.flatnonzero((edge_index >= 0).all(axis=0) & (edge_index < graph.num_nodes).all(axis=0))
    rule = f"the edge is between two nodes of the graph; one of its nodes must be in {nodes.name}"
    mistakes.cells(edge_table, between, source, lambda _: rule)
    weight: np.ndarray | None = None
    if weight_name is not None:
        weight = given = cells[weight_name]
        mistakes.cells(edge_table, np.flatnonzero(np.isnan(given)), weight_name, lambda _: _NO_NUMBER)
        wrong = np.flatnonzero(given <= 0)
        mistakes.cells(edge_table, wrong, weight_name, lambda row: f"{given[row]:g}; weights must be positive")
    mistakes.check()
    whole = np.flatnonzero((edge_index >= 0).all(axis=0))
    if len(whole) < edge_index.shape[1]:
        count = f"{edge_index.shape[1] - len(whole)} of {edge_index.shape[1]}"
        _log.warning("%s: %s edges left out: one of their nodes %s", edges.name, count, where)
        edge_index, weight = edge_index[:, whole], None if weight is None else weight[whole]
    return NewNodeTables(x, edge_index, weight, np.array(ids.to_pylist()))


def _column(table: TableFile, role: str, options: TableOptions, *, required: bool = False) -> Any:
    """The name of the column with a role: the run's choice, the usual name, or an alias."""
    chosen = getattr(options, f"{role}_column")
    lower = {name.lower(): name for name in table.columns if name not in options.ignore}
    for name in (role, *ALIASES[role]) if chosen is None else (chosen,):
        if name in table.columns or (chosen is None and name in lower):
            return name if name in table.columns else lower[name]
    has = join_printable(table.columns[:50])[:300]
    table.require(not required, f"has no column {chosen or role!r}; its columns are: {has}")
    return None


def _feature_columns(table: TableFile, own: str, options: TableOptions, fitted: Preprocessing | None) -> list[str]:
    has = join_printable(table.columns[:50])[:300]
    if fitted is not None:
        missing = [name for name in fitted.used if name not in table.columns]
        what = f"has no column {join_printable(missing[:5])}, which the model uses; its columns are: {has}"
        table.require(not missing, what)
        return fitted.used
    no_features = {own, *options.ignore, *options.label_columns, options.split_by}
    no_features |= {_column(table, role, options) for role in ("label", "split")}
    used = [name for name in table.columns if name not in no_features]
    table.require(len(used) > 0, f"has no features: no column besides {own!r}")
    return used


def _find(column: pa.Array, graph: Graph) -> np.ndarray:
    """The node of the graph that each cell names, -1 where it names none."""
    if graph.node_names is not None:
        return positions(column, pa.array(graph.node_names))
    if column.type != pa.int64():
        return np.full(len(column), -1)
    # The ids are 0..N-1, so that no table of them is needed.
    value = column.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.where((value >= 0) & (value < graph.num_nodes), value, -1)


def _numbers(name: str, cells: Any, report: Any) -> np.ndarray:
    """The cells as numbers, `[rows]` or `[rows, width]`; a cell that is none is reported."""
    if isinstance(cells, np.ndarray) and cells.ndim == 2:
        return cells
    values: np.ndarray = cells if isinstance(cells, np.ndarray) else to_numbers(cells)
    bad = np.flatnonzero(np.isnan(values))
    text = not isinstance(cells, np.ndarray)
    report(name, bad, lambda row: f"{str(cells[row])[:80]!r} is no number" if text else _NO_NUMBER)
    return values
