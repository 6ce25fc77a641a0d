"""Edges as items: random splits of them, a graph without the held-out ones, and labels on pairs of nodes."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgnn.data.edges import to_array
from cvgnn.data.graph import Graph
from cvgnn.data.node_ids import number_labels
from cvgnn.data.split import SPLITS
from cvgnn.errors import CvgnnError, require, require_number
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
    """Hold out edges for validation and test; both directions of an undirected edge go together.

    Args:
        graph: its features, labels and names stay as they are. Its `edge_split` is the split, if it has one: edges that
            it does not name are for training.
        val, test: shares of the edges in a random split.
        seed: the split is a pure function of it and of the graph.

    >>> from cvgnn.data.edges import from_edges
    >>> ring = from_edges([[0, 1, 2, 3], [1, 2, 3, 0]], x=torch.eye(4), y=[0, 0, 0, 0], train_ids=[0])
    >>> [part.shape[1] for part in split_edges(ring, val=0.25, test=0.25)[1:]]
    [2, 1, 1]
    """
    indptr, source = graph.indptr.numpy(), graph.indices.numpy()
    target = np.repeat(np.arange(graph.num_nodes, dtype=np.int32), np.diff(indptr))
    entry = np.arange(source.size) if graph.directed else np.flatnonzero(source < target)
    if graph.edge_split is None:
        parts = [entry[part] for part in random_parts(entry.size, val=val, test=test, seed=seed)]
    else:
        split = _given_split(graph)
        order = numpy_generator(seed, Purpose.SPLIT, _OF_EDGES).permutation(entry)  # each part in random order
        parts = [order[split[order] == part] for part in range(len(SPLITS))]
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


def _given_split(graph: Graph) -> np.ndarray:
    """int8 `[E]`: the part of each entry of `A`, a position in `SPLITS`, by `graph.edge_split`."""
    assert graph.edge_split is not None
    assert graph.edge_label_index is not None
    split, pairs = graph.edge_split.numpy(), graph.edge_label_index.numpy()
    ends = pairs if graph.directed else np.sort(pairs, axis=0)
    entries = edge_entries(graph, *ends)

    def refuse(wrong: np.ndarray, what: str) -> None:
        if wrong.any():
            at = int(wrong.argmax())
            u, v = pairs[:, at] if graph.node_names is None else graph.node_names[pairs[:, at]]
            raise CvgnnError(f"the pair ({u}, {v}) is in split {SPLITS[split[at]]!r}, but {what}")

    refuse((split > 0) & (entries < 0), "it is no edge of the graph; list the edges that are held out as edges, too")
    result = np.zeros(graph.num_edges, dtype=np.int8)
    result[entries[split > 0]] = split[split > 0]
    refuse((split >= 0) & (entries >= 0) & (result[entries] != split), "the same edge is listed in another split")
    return result


def with_edge_labels(graph: Graph, edge_label_index: Any, edge_label: Any = None, *, edge_split: Any = None) -> Graph:
    """The same graph with classes on pairs of nodes, as PyG names them, or a split of its edges, or both.

    Args:
        graph: of the nodes.
        edge_label_index: integers `[2, M]`, pairs `(source, target)`. Task `edge` learns any pairs; task `link` takes
            only their split, and those that it holds out must be edges of the graph.
        edge_label: `[M]`, classes: integers from 0, -1 where unknown, or strings, "" where unknown; None for a split
            alone.
        edge_split: `[M]`, "train", "val", "test" or "", or 0, 1, 2 or -1 for these; None for a random split.

    >>> from cvgnn.data.edges import from_edges
    >>> path = from_edges([[0, 1, 2], [1, 2, 3]], x=torch.eye(4), y=[0, 0, 0, 0], train_ids=[0])
    >>> split = split_edges(with_edge_labels(path, [[2, 1], [3, 0]], edge_split=["val", "test"]))
    >>> split.train.tolist(), split.val.tolist(), split.test.tolist()
    ([[1], [2]], [[2], [3]], [[0], [1]])
    """
    require(edge_label is not None or edge_split is not None, "give edge_label, or edge_split, or both")
    index = _integers("edge_label_index", edge_label_index)
    count, names = index.shape[-1], None
    label = np.full(count, -1) if edge_label is None else to_array(edge_label, "edge_label")
    if label.dtype.kind == "U":
        numbers, names = number_labels(label.reshape(-1).tolist())
        label = np.array(numbers)
    split = None if edge_split is None else to_array(edge_split, "edge_split")
    if split is not None and split.dtype.kind == "U":
        codes = {"": -1} | {part: code for code, part in enumerate(SPLITS)}
        wrong = [part for part in split.reshape(-1).tolist() if part not in codes]
        require(not wrong, f"edge_split holds {(wrong or [''])[0]!r}; it must be train, val, test or empty")
        split = np.array([codes[part] for part in split.reshape(-1).tolist()])
    return dataclasses.replace(
        graph,
        edge_label_index=torch.from_numpy(index),
        edge_label=torch.from_numpy(_integers("edge_label", label)),
        edge_split=None if split is None else torch.from_numpy(_integers("edge_split", split).astype(np.int8)),
        edge_class_names=names,
        built=True,
    )


def _integers(name: str, values: Any) -> np.ndarray:
    array = to_array(values, name)
    require(array.dtype.kind in "iu", f"{name} must hold integers, not {array.dtype}")
    return array.astype(np.int64)
