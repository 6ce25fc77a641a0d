"""Edges as items: random splits of them, a graph without the held-out ones, and labels on pairs of nodes."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgnn.data.edges import to_array
from cvgnn.data.graph import Graph
from cvgnn.errors import require, require_number
from cvgnn.rng import Purpose, numpy_generator

_OF_EDGES = 1  # the coordinate that separates a split of edges from one of nodes with the same seed


class EdgeSplit(NamedTuple):
    """A split of the edges of a graph.

    Args:
        graph: with the training edges only: the graph of `P`. Validation and test edges would leak through it.
        train, val, test: int32 `[2, n]`, `(source, target)`; an undirected edge stands once.
    """

    graph: Graph
    train: Tensor
    val: Tensor
    test: Tensor


def split_edges(graph: Graph, *, val: float = 0.05, test: float = 0.1, seed: int = 0) -> EdgeSplit:
    """Hold out random edges for validation and test; both directions of an undirected edge go together.

    Args:
        graph: its features, labels and names stay as they are.
        val, test: shares of the edges.
        seed: the split is a pure function of it and of the graph.

    >>> from cvgnn.data.edges import from_edges
    >>> ring = from_edges([[0, 1, 2, 3], [1, 2, 3, 0]], x=torch.eye(4), y=[0, 0, 0, 0], train_ids=[0])
    >>> [part.shape[1] for part in split_edges(ring, val=0.25, test=0.25)[1:]]
    [2, 1, 1]
    """
    indptr, source = graph.indptr.numpy(), graph.indices.numpy()
    target = np.repeat(np.arange(graph.num_nodes, dtype=np.int32), np.diff(indptr))
    entry = np.arange(source.size) if graph.directed else np.flatnonzero(source < target)
    parts = [entry[part] for part in random_parts(entry.size, val=val, test=test, seed=seed)]
    held = np.concatenate(parts[1:])
    if not graph.directed:
        held = np.concatenate([held, edge_entries(graph, target[held], source[held])])
    keep = np.ones(source.size, dtype=bool)
    keep[held] = False
    lengths = np.diff(indptr) - np.bincount(target[held], minlength=graph.num_nodes)
    training = dataclasses.replace(
        graph,
        indptr=torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])),
        indices=torch.from_numpy(source[keep]),
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[torch.from_numpy(keep)],
        PX=None, PX_normalization=None,  # of the whole graph's P
        validated=True,  # rows of a valid graph, in the same order
    )  # fmt: skip
    return EdgeSplit(training, *(torch.from_numpy(np.stack([source[part], target[part]])) for part in parts))


def random_parts(count: int, *, val: float, test: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions `0..count-1` of the training, validation and test items, each in random order."""
    for name, share in (("val_edges", val), ("test_edges", test)):
        require_number(name, share, "a number in [0, 1)", at_least=0.0, below=1.0)
    require(val + test < 1, f"val_edges and test_edges must sum to less than 1, not {val} + {test}")
    order = numpy_generator(seed, Purpose.SPLIT, _OF_EDGES).permutation(count)
    num_val, num_test = round(val * count), round(test * count)
    return order[num_val + num_test :], order[:num_val], order[num_val : num_val + num_test]


def edge_entries(graph: Graph, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """int64 `[n]`: the position of each edge `(source, target)` in `graph.indices`, -1 where there is no such edge."""
    indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
    if indices.size == 0:
        return np.full(len(source), -1, dtype=np.int64)
    last = indices.size - 1
    low, end = indptr[target], indptr[target + 1]
    high = end
    # Bisection in all rows at once: as many rounds as the longest row needs, and no memory of the graph's size.
    while (unsure := low < high).any():
        middle = (low + high) // 2
        less = indices[np.minimum(middle, last)] < source
        low, high = np.where(unsure & less, middle + 1, low), np.where(unsure & ~less, middle, high)
    return np.where((low < end) & (indices[np.minimum(low, last)] == source), low, -1)


def with_edge_labels(graph: Graph, edge_label_index: Any, edge_label: Any) -> Graph:
    """The same graph with classes on pairs of nodes, as PyG names them; the pairs need not be edges of the graph.

    Args:
        graph: of the nodes.
        edge_label_index: integers `[2, M]`, pairs `(source, target)`.
        edge_label: integers `[M]`, classes from 0; -1 where unknown.
    """
    given = {"edge_label_index": edge_label_index, "edge_label": edge_label}
    tensors = {}
    for name, values in given.items():
        array = to_array(values, name)
        require(array.dtype.kind in "iu", f"{name} must hold integers, not {array.dtype}")
        tensors[name] = torch.from_numpy(array.astype(np.int64))
    return dataclasses.replace(graph, **tensors, built=True)  # type: ignore[arg-type]
