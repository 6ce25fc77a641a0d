"""A graph from a NetworkX graph."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.graph.arrays import from_arrays
from cvgnn.graph.convert import optional
from cvgnn.graph.edges import Ids
from cvgnn.graph.graph import Graph
from cvgnn.graph.names import name_nodes, number_labels, shown
from cvgnn.graph.split import RandomSplit

_SPLITS = ("train", "val", "test")


def from_networkx(
    G: Any,
    *,
    x: Any = None,
    y: Any = None,
    feature_key: str | None = None,
    label_key: str | None = None,
    split_key: str | None = None,
    weight_key: str | None = "weight",
    train_ids: Ids | None = None,
    val_ids: Ids | None = None,
    test_ids: Ids | None = None,
    split: RandomSplit | None = None,
    num_classes: int | None = None,
    directed: bool = False,
    name: str = "graph",
    class_names: Sequence[str] | None = None,
) -> Graph:
    """A `Graph` from a NetworkX graph; nodes keep their order in `G` and their names as `node_names`.

    Names that are all integers stay integers, others become strings. A `DiGraph` needs `directed=True`, or
    `G.to_undirected()`. Parallel edges count once.

    Args:
        G: `networkx.Graph`, `DiGraph`, `MultiGraph` or `MultiDiGraph`.
        x, y: as in `from_arrays`, rows in the order of `G.nodes`; or
        feature_key, label_key: names of node attributes: a number or a list of numbers, and an integer or a string
            (nothing or None where unknown). Labels other than 0..C-1 are sorted, numbered and kept as `class_names`.
        split_key: name of a node attribute that is "train", "val", "test", or missing.
        weight_key: name of the edge attribute with the weights, on all edges or on none; None ignores weights.
        train_ids, val_ids, test_ids, split, num_classes, directed, name, class_names: as in `from_arrays`; ids are
            places in the order of `G.nodes`.
    """
    networkx = optional("networkx", extra="networkx", purpose="from_networkx")
    require(isinstance(G, networkx.Graph), f"G must be a networkx graph, not {type(G).__name__}")
    require(
        directed or not G.is_directed(),
        f"G is a {type(G).__name__}; give directed=True to keep its directions, or G.to_undirected() to drop them",
    )
    require((x is None) != (feature_key is None), "give either x or feature_key (features for every node)")
    require((y is None) != (label_key is None), "give either y or label_key (a label for every node)")
    require(split_key is None or train_ids is None, "give either split_key or train_ids, not both")
    nodes = list(G)
    require(len(nodes) > 0, "G has no nodes")
    index = {node: i for i, node in enumerate(nodes)}
    edges = [(index[u], index[v]) for u, v in G.edges()]
    weights = None if weight_key is None else _edge_weights(G, weight_key)
    if feature_key is not None:
        x = _feature_rows(G, feature_key)
    if label_key is not None:
        words = [_label_word(G, node, label_key) for node in nodes]
        vocabulary = list(dict.fromkeys(word for word in words if word))
        numbers, found = number_labels(vocabulary)
        number = {"": -1} | dict(zip(vocabulary, numbers, strict=True))
        y, class_names = [number[word] for word in words], class_names if class_names is not None else found
    if split_key is not None:
        given = [G.nodes[node].get(split_key) or "" for node in nodes]
        for node, word in zip(nodes, given, strict=True):
            if word not in ("", *_SPLITS):
                raise CvgnnError(f"node {node!r}: {unknown_name(split_key, word, _SPLITS)}")
        train_ids, val_ids, test_ids = (np.flatnonzero(np.array(given) == part) for part in _SPLITS)
    return from_arrays(
        np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        x=x,
        y=y,
        train_ids=train_ids,
        val_ids=val_ids,
        test_ids=test_ids,
        split=split,
        edge_weight=weights,
        num_classes=num_classes,
        directed=directed,
        name=name,
        node_names=_node_names(nodes),
        class_names=class_names,
    )


def _edge_weights(G: Any, key: str) -> np.ndarray | None:
    edges = [(u, v, weight) for u, v, weight in G.edges(data=key)]
    if all(weight is None for _, _, weight in edges):
        return None
    for u, v, weight in edges:
        require(
            isinstance(weight, numbers.Real) and 0 < float(weight) < math.inf,
            f"edge ({u!r}, {v!r}) has {key} {weight!r}; weights must be positive numbers, on all edges or on none "
            "(weight_key=None ignores them)",
        )
    return np.array([float(weight) for _, _, weight in edges])


def _feature_rows(G: Any, key: str) -> np.ndarray:
    rows: list[np.ndarray] = []
    for node, value in G.nodes(data=key):
        require(value is not None, f"node {node!r} has no attribute {key!r} (its features)")
        try:
            row = np.atleast_1d(np.asarray(value, dtype=np.float32))
        except (TypeError, ValueError):
            raise CvgnnError(f"node {node!r}: {key} must be a number or a list of numbers, not {value!r}") from None
        require(row.ndim == 1, f"node {node!r}: {key} must be a list of numbers; it has shape {list(row.shape)}")
        require(
            not rows or len(row) == len(rows[0]),
            f"node {node!r}: {key} has {len(row)} numbers, but the nodes before it have {len(rows[0]) if rows else 0}",
        )
        rows.append(row)
    return np.stack(rows)


def _label_word(G: Any, node: Any, key: str) -> str:
    value = G.nodes[node].get(key)
    if value is None:
        return ""
    require(
        isinstance(value, str | numbers.Integral) and not isinstance(value, bool),
        f"node {node!r}: {key} must be an integer or a string, not {value!r}",
    )
    word = value if isinstance(value, str) else str(int(value))
    require(
        isinstance(value, str) or int(value) >= 0,
        f"node {node!r}: {key} is {word}; leave it out where the label is unknown, and number classes from 0",
    )
    return word


def _node_names(nodes: list[Any]) -> np.ndarray | None:
    words = [str(int(node)) if isinstance(node, numbers.Integral) else str(node) for node in nodes]
    seen: dict[str, Any] = {}
    for node, word in zip(nodes, words, strict=True):
        other = seen.setdefault(word, node)
        require(
            other is node or other == node,
            f"nodes {other!r} and {node!r} have the same name, {shown([word])}; rename one",
        )
    return name_nodes(words)
