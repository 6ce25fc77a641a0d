"""A set of graphs as one `Graph` without edges between them, for graph classification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from cvgnn.data.array_converter import GraphOptions, from_arrays
from cvgnn.data.edges import to_array
from cvgnn.data.graph import Graph
from cvgnn.errors import error_context, require


def from_graphs(
    graphs: Sequence[Any], y: Any = None, *, directed: bool = False, **options: Unpack[GraphOptions]
) -> Graph:
    """Build one `Graph` from many, side by side; `graph_ids` says which nodes belong to which.

    Args:
        graphs: for each a dict, or a PyG `Data`, with `edge_index` integers `[2, m]`, nodes counted from 0, `x`
            `[n, F]`, and optionally `edge_weight` `[m]` (in all graphs or in none) and `y`, its class.
        y: `[G]`, the class of each graph, integers from 0 (-1 where unknown) or strings; instead of `y` in each.
        directed: keep the directions of the edges.
        options: `train_ids`, `val_ids`, `test_ids` (numbers of graphs), `split`, `num_classes`, `name`, `class_names`,
            as in `from_arrays`. Without `train_ids` the split is random, by graph.

    >>> triangle, edge = {"edge_index": [[0, 1, 2], [1, 2, 0]]}, {"edge_index": [[0], [1]]}
    >>> from_graphs([{**triangle, "x": np.ones((3, 1))}, {**edge, "x": np.ones((2, 1))}], y=["ring", "path"])
    Graph(graph: 2 graphs, 5 nodes, 4 edges, 1 dense features, 2 classes, split 1/0/1)
    """
    require(
        not isinstance(graphs, Mapping | str) and len(graphs) > 0,
        "graphs must be a list of graphs, each a dict or a PyG Data with edge_index and x; it has none",
    )
    found = [_arrays(graph, i, labelled=y is None) for i, graph in enumerate(graphs)]
    for i, (_, x, weight, _) in enumerate(found):
        width, first = x.shape[1], found[0][1].shape[1]
        require(width == first, f"graph {i} has {width} features, but graph 0 has {first}; give all graphs the same")
        given = "has" if weight is not None else "has no"
        require((weight is None) == (found[0][2] is None), f"graph {i} {given} edge_weight, unlike graph 0")
    sizes = np.array([len(x) for _, x, _, _ in found])
    first_node = np.cumsum(sizes) - sizes
    weights = [weight for _, _, weight, _ in found if weight is not None]
    return from_arrays(
        np.concatenate([edges + start for (edges, *_), start in zip(found, first_node, strict=True)], axis=1),
        x=np.concatenate([x for _, x, _, _ in found]),
        y=np.array([label for *_, label in found]) if y is None else y,
        edge_weight=np.concatenate(weights) if weights else None,
        directed=directed,
        graph_ids=np.repeat(np.arange(len(found)), sizes),
        **options,
    )


def _arrays(graph: Any, i: int, *, labelled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, Any]:
    """`edge_index`, `x`, `edge_weight` and `y` of a graph, with the shapes that they must have."""
    fields = graph if isinstance(graph, Mapping) else graph.to_dict() if hasattr(graph, "to_dict") else {}
    for name in ("edge_index", "x", *(["y"] if labelled else [])):
        require(fields.get(name) is not None, f"graph {i} has no {name}; give a dict or a PyG Data that has it")
    with error_context(f"graph {i}: "):
        x, weight = to_array(fields["x"], "x"), fields.get("edge_weight")
        require(
            x.ndim == 2 and len(x) > 0 and x.dtype.kind in "biuf",
            f"x must be a matrix of numbers with a row for each node; it is {x.dtype} of shape {list(x.shape)}",
        )
        edges = to_array(fields["edge_index"], "edge_index")
        edges = edges.reshape(2, 0).astype(np.int64) if edges.size == 0 else edges
        require(
            edges.ndim == 2 and len(edges) == 2 and edges.dtype.kind in "iu",
            f"edge_index must be integers of shape [2, m]; it is {edges.dtype} of shape {list(edges.shape)}",
        )
        # Checked here: shifted by the nodes before, a wrong id could name a node of another graph.
        outside = edges[(edges < 0) | (edges >= len(x))].tolist()
        require(not outside, f"edge_index names node {(outside or [0])[0]}; its nodes are 0..{len(x) - 1}")
        weight = None if weight is None else to_array(weight, "edge_weight").reshape(-1)
        label = np.asarray(to_array(fields["y"], "y")).reshape(-1) if labelled else np.zeros(1)
        require(label.size == 1, f"y must be the class of the graph, one number or string; it has {label.size}")
    return edges, x, weight, label[0]
