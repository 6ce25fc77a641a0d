"""Answers to requests about a finished run, as JSON values, without HTTP. No request changes anything."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
import torch

from cvgnn._version import __version__
from cvgnn.data.io.cell_values import without_gaps
from cvgnn.data.io.dense_features import is_of_arrays
from cvgnn.data.io.preprocessing import Preprocessing
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.training.neighborhood import neighborhood_entries
from cvgnn.training.pair_predictions import pair_predictions
from cvgnn.training.predictions import ItemIndex, NodeTable, column_names, embeddings, node_names, predictions
from cvgnn.training.run import Run
from cvgnn.utils.checked_json import short
from cvgnn.utils.formatting import format_bytes
from cvgnn.utils.free_memory import available_memory

_log = logging.getLogger(__name__)
_SHARE = 0.25  # of the free memory that the outputs of all nodes may take
_LARGEST = float(np.finfo(np.float32).max)
_DRAWN = 24  # neighbors on the page
_LONGEST_ID = 1000  # characters


@final
@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request may ask for.

    Args:
        body: bytes.
        ids: nodes, graphs or pairs.
        new_nodes: of a request for new nodes.
        neighbors: of all new nodes of a request together.
        entries: of the adjacency matrix that a request may read: that of a hub's neighborhood may be the whole graph.
    """

    body: int = 1 << 22
    ids: int = 1000
    new_nodes: int = 100
    neighbors: int = 10_000
    entries: int = 1 << 25


@final
class Predictor:
    """Predictions and embeddings of a run, for requests.

    Where they fit into a quarter of the free memory, the outputs of all nodes are computed here, once, and a request
    looks its rows up. Else each request computes its nodes' neighborhood.

    Args:
        run: finished.
        preprocessing: how the run's tables became features; None if it was trained on other data.
        limits: of a request.
    """

    def __init__(self, run: Run, *, preprocessing: dict[str, Any] | None = None, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.kind = "pair" if run.task.of_pairs else run.task.items.kind
        self.takes_new = self.kind == "node" and run.graph.cutout is None
        named = preprocessing is not None and not is_of_arrays(preprocessing)
        self.fitted = Preprocessing.from_dict(preprocessing) if named else None
        widths = [*run.model.hidden_widths, run.model.out_channels]
        needed, free = run.graph.num_nodes * (sum(widths) + 2 * max(widths)) * run.graph.x.dtype.itemsize, 0
        if run.graph.cutout is None:
            free = available_memory() or 0
        if needed <= _SHARE * free:
            run = run.with_outputs()
        else:
            _log.warning(
                "the outputs of all nodes (%s) are not computed ahead: each request computes its own neighborhood",
                format_bytes(needed),
            )
        self.run = run
        self._nodes = ItemIndex(run.graph)
        self._items = ItemIndex(run.graph, item="graph") if self.kind == "graph" else self._nodes
        self.columns = [] if self.kind == "pair" else column_names(run)
        hidden = {"split", *(name for name in self.columns if name == "label" or name.startswith("label_"))}
        self._shown = [name for name in self.columns if name not in hidden]
        self._warm_up()

    @property
    def items(self) -> str:
        """The name of the list of ids in a request: nodes, graphs or pairs."""
        return f"{self.kind}s"

    def describe(self) -> dict[str, Any]:
        """What the run is, and what a request may ask for."""
        run, fitted = self.run, self.fitted
        used = [] if fitted is None else [column for column in fitted.columns if column["kind"] != "dropped"]
        columns = None if fitted is None else {column["name"]: column["kind"] for column in used}
        return {
            "version": __version__,
            "dataset": run.result.get("dataset", run.graph.name),
            "task": run.task.name,
            "items": self.items,
            "classes": run.result.get("class_names"),
            "num_nodes": run.graph.num_nodes,
            "num_features": run.graph.num_features,
            "columns": columns,
            "prediction_columns": self.columns,
            "layers": run.model.num_layers,
            "new_nodes": self.takes_new,
            "edge_weights": run.graph.edge_weight is not None,
            "limits": vars(self.limits),
        }

    def predict(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """`{"nodes": [ids], "columns": [names]}` (`graphs`, `pairs` by the task) to `{"predictions": [a row each]}`."""
        _check_names(body, [self.items], [] if self.kind == "pair" else ["columns"])
        given = self._list(body, self.items, self.limits.ids)
        if self.kind == "pair":
            texts = [self._texts(pair, "a pair") for pair in given]
            require(all(len(pair) == 2 for pair in texts), "each of pairs must be two node ids, such as [3, 14]")
            pairs = self._nodes.find([text for pair in texts for text in pair]).reshape(-1, 2)
            self._check_work(np.unique(pairs))
            return _rows(pair_predictions(self.run, pairs))
        ids = self._items.find(self._texts(given, self.items))
        if self.kind == "node":
            self._check_work(ids)
        return _rows(predictions(self.run, ids, self._columns(body)))

    def predict_new(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """`{"nodes": [{"id", "features" or "columns", "neighbors", "weights"}]}` to rows as `predict` gives them."""
        if not self.takes_new:
            why = "the graph is a part of one" if self.kind == "node" else f"its task is {self.run.task.name!r}"
            raise CvgnnError(f"this run predicts nothing for new nodes: {why}")
        _check_names(body, ["nodes"], ["columns"])
        nodes = self._list(body, "nodes", self.limits.new_nodes)
        features = "features" if self.fitted is None else "columns"
        for i, node in enumerate(nodes):
            require(isinstance(node, dict), f"nodes[{i}] must be an object, not {short(node)}")
            _check_names(node, [features], ["id", "neighbors", "weights"], where=f"nodes[{i}]")
        names = self._texts([node.get("id", f"new{i}") for i, node in enumerate(nodes)], "nodes")
        place = {name: i for i, name in enumerate(names)}
        require(len(place) == len(names), "two of the new nodes have the same id; give each its own")
        known = np.flatnonzero(self._nodes.positions(names) >= 0)
        require(
            not known.size,
            f"{names[int(known[0])]!r} is in the graph already; ask for it by its id" if known.size else "",
        )
        edges, weight = self._edges(nodes, place)
        x = self._features(nodes) if self.fitted is None else self._cells(nodes, names)
        columns = self._columns(body)
        near, places = self.run.around_new(x, edges, weight, names=np.array(names))
        return _rows(predictions(near, places.numpy(), columns))

    def embed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """`{"nodes": [ids], "layer": k}` to `{"nodes": [ids], "layer": k, "embeddings": [a list of numbers each]}`."""
        _check_names(body, ["nodes"], ["layer"])
        layer = body.get("layer", 1)
        require(type(layer) is int, f"layer must be a whole number, not {short(layer)}")
        ids = self._nodes.find(self._texts(self._list(body, "nodes", self.limits.ids), "nodes"))
        self._check_work(ids)
        table = embeddings(self.run, layer, ids)
        assert table.matrix is not None
        return {"nodes": table.columns["node"].tolist(), "layer": layer, "embeddings": table.matrix.tolist()}

    def neighborhood(self, name: str) -> dict[str, Any]:
        """A node's prediction, those of its neighbors (those with the most edges first), and the edges among these."""
        graph, node = self.run.graph, int(self._nodes.find([name])[0])
        indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
        around = indices[indptr[node] : indptr[node + 1]].astype(np.int64)
        degree = indptr[around + 1] - indptr[around]
        ids = np.concatenate([[node], around[np.argsort(-degree, kind="stable")[:_DRAWN]]])
        self._check_work(ids)
        edges = [
            (i, int(j))
            for i, u in enumerate(ids)
            for j in np.flatnonzero(np.isin(ids, indices[indptr[u] : indptr[u + 1]]))
            if j != i and (i < j or graph.directed)
        ]
        columns = [column for column in self._shown if not column.startswith("p_")]
        found = [name for name in ("label", "split") if name in self.columns]
        shown = _rows(predictions(self.run, ids, [*columns, *found]))["predictions"]
        (row,) = _rows(predictions(self.run, ids[:1], self._shown))["predictions"]
        return {
            "node": row["node"],
            "degree": len(around),
            "rows": shown,
            "edges": edges,
            "probabilities": {key[2:]: value for key, value in row.items() if key.startswith("p_")},
        }

    def example(self) -> str:
        """An id to try."""
        return str(node_names(self.run.graph, np.zeros(1, np.int64))[0])

    def _warm_up(self) -> None:
        """Compile the kernels and touch the memory that requests use; the first one does not wait for it."""
        first = torch.zeros(1, dtype=torch.int64)
        if self.run.graph.cutout is None and self.kind != "graph":
            self.run.outputs(first)
        if self.takes_new:
            weight = None if self.run.graph.edge_weight is None else [1.0]
            columns = np.zeros((1, self.run.graph.num_features), np.float32)
            self.run.around_new(columns, [[0], [self.run.graph.num_nodes]], weight)[0].outputs()

    def _columns(self, body: Mapping[str, Any]) -> list[str]:
        names = body.get("columns", self._shown)
        good = isinstance(names, list) and all(isinstance(name, str) for name in names) and names
        require(bool(good), f"columns must be a list of names, not {short(names)}")
        require(len(names) <= len(self.columns), f"columns has {len(names)} names; there are {len(self.columns)}")
        return list(names)

    def _list(self, body: Mapping[str, Any], name: str, most: int) -> list[Any]:
        values = body[name]
        require(
            isinstance(values, list) and bool(values), f"{name} must be a list that is not empty, not {short(values)}"
        )
        require(len(values) <= most, f"{name} has {len(values)} entries; a request may have {most}")
        return values  # type: ignore[no-any-return]

    def _texts(self, values: Any, what: str) -> list[str]:
        """Ids as text: strings as they are, whole numbers as `str` writes them."""
        require(isinstance(values, list), f"{what} must be a list of ids, not {short(values)}")
        for value in values:
            # numpy cuts a NUL at the end off, so such an id would be taken for another.
            good = type(value) is int or (isinstance(value, str) and "\0" not in value and len(value) <= _LONGEST_ID)
            require(good, f"an id is a text or a whole number, not {short(value)}")
        return [str(value) for value in values]

    def _check_work(self, ids: np.ndarray) -> None:
        if self.run.known is None:
            graph = self.run.task.graph
            # From a quarter of the edges on a neighborhood is no longer cut out, and all nodes may not fit into memory.
            most = self.limits.entries if graph.cutout is not None else graph.num_edges // 4
            self._require_few(ids, self.run.model.num_layers, min(most, self.limits.entries))

    def _require_few(self, ids: np.ndarray, hops: int, most: int) -> None:
        few = hops < 1 or neighborhood_entries(self.run.task.graph, ids, hops, most=most) <= most
        require(few, f"within {hops} hops of these nodes there are more than {most} edges; ask for fewer nodes")

    def _edges(self, nodes: Sequence[Any], place: Mapping[str, int]) -> tuple[np.ndarray, list[float] | None]:
        """The edges of new nodes, from their neighbors to them, `[2, m]`, and the weights."""
        N, weighted = self.run.graph.num_nodes, self.run.graph.edge_weight is not None
        source: list[str] = []
        target: list[int] = []
        weights: list[float] = []
        for i, node in enumerate(nodes):
            neighbors = self._texts(node.get("neighbors", []), f"nodes[{i}].neighbors")
            source += neighbors
            target += [N + i] * len(neighbors)
            require(
                len(source) <= self.limits.neighbors, f"a request may name {self.limits.neighbors} neighbors in all"
            )
            given = node.get("weights")
            require(given is None or weighted, f"nodes[{i}].weights: the graph's edges have no weights; leave them out")
            if weighted:
                weights += _numbers(given, f"nodes[{i}].weights", len(neighbors))
        old = self._nodes.positions(source)
        for k, name in enumerate(source):
            old[k] = N + place[name] if name in place else old[k]
        self._nodes.find([source[k] for k in np.flatnonzero(old < 0)])  # refuses the first
        self._require_few(np.unique(old[old < N]), self.run.model.num_layers - 1, self.limits.entries)
        return np.stack([old, np.array(target, np.int64)]), weights if weighted else None

    def _features(self, nodes: Sequence[Any]) -> np.ndarray:
        """Rows of features: each a list of numbers, or an object from column numbers to values that are not 0."""
        F = self.run.graph.num_features
        x = np.zeros((len(nodes), F))
        for i, node in enumerate(nodes):
            given, what = node["features"], f"nodes[{i}].features"
            if isinstance(given, dict):
                places = [int(key) if key.isascii() and key.isdigit() and len(key) < 10 else -1 for key in given]
                require(all(0 <= j < F for j in places), f"{what}: the names of columns are 0..{F - 1}")
                x[i, places] = _numbers(list(given.values()), what, len(given))
            else:
                x[i] = _numbers(given, what, F)
        return x

    def _cells(self, nodes: Sequence[Any], names: Sequence[str]) -> np.ndarray:
        """Features from the columns of the run's tables, as the run's own preprocessing makes them."""
        fitted = self.fitted
        assert fitted is not None
        known = [column["name"] for column in fitted.columns]
        for i, node in enumerate(nodes):
            require(isinstance(node["columns"], dict), f"nodes[{i}].columns must be an object, a value for each column")
            for name in node["columns"]:
                if name not in known:
                    raise unknown_name(f"column in nodes[{i}].columns", short(name), known)
            for name in fitted.used:
                require(
                    name in node["columns"], f"nodes[{i}].columns lacks {name!r}, which the model uses; null if unknown"
                )

        def report(column: str, rows: np.ndarray, what: Any) -> None:
            if len(rows):
                raise CvgnnError(f"new node {names[int(rows[0])]!r}, column {column!r}: {what(int(rows[0]))}")

        cells: dict[str, Any] = {}
        for column in fitted.columns:
            name = column["name"]
            values = [node["columns"].get(name) for node in nodes]
            if column["kind"] == "vector":
                cells[name] = np.array([_numbers(value, f"column {name!r}", column["width"]) for value in values])
            elif column["kind"] != "dropped":
                cells[name] = without_gaps(pa.array([_cell(value, name) for value in values], pa.large_string()))
        return fitted.apply(cells, len(nodes), report)


def _cell(value: Any, name: str) -> str | None:
    """A JSON value as the cell of a table."""
    good = value is None or isinstance(value, str | int | float)
    require(good, f"column {name!r} holds a text, a number, true, false or null, not {short(value)}")
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _numbers(values: Any, what: str, count: int) -> list[float]:
    good = isinstance(values, list) and len(values) == count and all(type(v) in (int, float) for v in values)
    require(good, f"{what} must be a list of {count} numbers")
    for value in values:
        require(abs(value) <= _LARGEST, f"{what}: {short(value)} is larger than a float32")
    return [float(value) for value in values]


def _check_names(
    body: Mapping[str, Any], needed: Sequence[str], known: Sequence[str], where: str = "the request"
) -> None:
    for name in body:
        if name not in needed and name not in known:
            raise unknown_name(f"name in {where}", name[:80], [*needed, *known])
    for name in needed:
        require(name in body, f"{where} lacks {name!r}; it may have {', '.join([*needed, *known])}")


def _rows(table: NodeTable) -> dict[str, Any]:
    """A table as one object for each row."""
    columns = {name: column.tolist() for name, column in table.columns.items()}
    for name, column in table.columns.items():
        bad = column.dtype.kind == "f" and name != "label" and not name.startswith("label_")
        require(not bad or bool(np.isfinite(column).all()), "the result is not finite: these features are too large")
        if column.dtype.kind == "f":  # an unknown target is NaN
            columns[name] = [value if np.isfinite(value) else None for value in columns[name]]
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}
