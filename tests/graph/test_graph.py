from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from cvgnn.errors import CvgnnError
from cvgnn.graph import Graph, SparseFeatures
from cvgnn.graph import graph as graph_module

NAN, INF = float("nan"), float("inf")


def make(**more: Any) -> Graph:
    """The path 0 - 1 - 2 and the isolated node 3."""
    fields: dict[str, Any] = {
        "indptr": torch.tensor([0, 1, 3, 4, 4]),
        "indices": torch.tensor([1, 0, 2, 1]),
        "x": torch.ones(4, 2),
        "y": torch.tensor([0, 1, 1, -1]),
        "num_classes": 2,
        "train_ids": torch.tensor([2, 0]),
        "val_ids": torch.tensor([1]),
        "test_ids": torch.tensor([], dtype=torch.int64),
    }
    return Graph(**{**fields, **more})


def sparse(value: float) -> SparseFeatures:
    return SparseFeatures(torch.tensor([0, 0, 1, 2, 2]), torch.tensor([1, 0]), torch.tensor([1.0, value]), 2)


def test_what_it_tells() -> None:
    g = make()
    assert (g.num_nodes, g.num_edges, g.num_features, g.degree.tolist()) == (4, 4, 2, [1, 2, 1, 0])
    assert g.train_ids.tolist() == [0, 2]
    assert repr(g) == "Graph(graph: 4 nodes, 2 edges, 2 dense features, 2 classes, split 2/1/0)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        g.y = torch.zeros(4)  # type: ignore[misc]


def test_a_single_node_without_edges() -> None:
    none = torch.tensor([], dtype=torch.int64)
    g = make(indptr=torch.tensor([0, 0]), indices=none, x=torch.ones(1, 2), y=torch.tensor([0]), train_ids=torch.tensor([0]), val_ids=none)  # fmt: skip
    assert g.num_nodes == 1


def test_large_finite_features_pass() -> None:
    big = torch.full((4, 2), 3e38)  # the sum overflows, the entries do not
    assert make(x=big).num_features == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"train_ids": torch.tensor([], dtype=torch.int64)}, "the training split is empty"),
        ({"val_ids": torch.tensor([2])}, "node 2 is in both the train and the val split; splits must be disjoint"),
        ({"test_ids": torch.tensor([1])}, "node 1 is in both the val and the test split"),
        ({"train_ids": torch.tensor([0, 0])}, "train_ids names node 0 twice"),
        ({"train_ids": torch.tensor([4])}, "train_ids must lie in 0..3; found 4"),
        ({"val_ids": torch.tensor([-1])}, "val_ids must lie in 0..3; found -1"),
        ({"train_ids": torch.tensor([True, False])}, "train_ids must be a vector of node ids; it is torch.bool"),
        ({"test_ids": torch.tensor([3])}, r"node 3 of the test split has no label \(-1\)"),
        ({"y": torch.tensor([0, 2, 1, 0])}, r"labels must lie in 0..1 \(or be -1 for unknown\); found 2 at node 1"),
        ({"y": torch.tensor([0, 1, -2, 0])}, "found -2 at node 2"),
        ({"y": torch.tensor([0, 1])}, r"y must have one label per node, \[4\]; it has shape \[2\]"),
        ({"num_classes": 0}, "num_classes must be a whole number of at least 1, not 0"),
        ({"x": torch.tensor([[1, NAN], [1, 1], [1, 1], [1, 1]])}, "x has a NaN or infinite value at node 0, column 1"),
        ({"x": torch.tensor([[1, 1], [1, 1], [INF, 1], [-INF, 1]])}, "NaN or infinite value at node 2, column 0"),
        ({"x": sparse(NAN)}, "x has a NaN or infinite value at node 2, column 0"),
        ({"x": torch.ones(3, 2)}, r"x must have one row per node, \[4, F\]; it has shape \[3, 2\]"),
        ({"x": torch.ones(4, 0)}, "x has no columns"),
        ({"x": torch.ones(4, 2, dtype=torch.int64)}, "x must be float32 or float64, not torch.int64"),
        ({"indices": torch.tensor([1, 0, 4, 1])}, "edges must name nodes in 0..3; found 4"),
        ({"indices": torch.tensor([1, 0, -1, 1])}, "edges must name nodes in 0..3; found -1"),
        ({"indices": torch.tensor([0, 0, 2, 1])}, "indices holds self loops"),
        ({"indices": torch.tensor([1, 2, 0, 1])}, "ascending and without duplicates"),
        ({"indices": torch.tensor([1, 2, 2, 1])}, "ascending and without duplicates"),
        ({"indptr": torch.tensor([0, 1, 3, 4, 5])}, "indptr must rise from 0 to the number of edge entries, 4"),
        ({"indptr": torch.tensor([0, 3, 1, 4, 4])}, "indptr must rise"),
        ({"num_classes": 2.5}, r"num_classes must be a whole number of at least 1, not 2\.5"),
        ({"y": torch.tensor([0.7, 1.2, 1.0, 0.0])}, r"y must be a tensor of integers, not torch\.float32"),
        ({"y": torch.tensor([True, False, True, True])}, r"y must be a tensor of integers, not torch\.bool"),
        ({"indptr": torch.tensor([0, 1.5, 3, 4, 4])}, "indptr must be a tensor of integers"),
        ({"indices": torch.tensor([[1, 0], [2, 1]])}, "indices must be a vector"),
        ({"indices": [1, 0, 2, 1]}, "indices must be a tensor of integers, not list"),
        ({"indices": torch.tensor([2**32 + 1, 0, 2, 1])}, r"edges must name nodes in 0..3; found 4294967297"),
        ({"indices": torch.tensor([1, 0, 2, 0])}, "the edges are not symmetric"),
        ({"edge_weight": torch.tensor([1.0, 2.0, 1.0, 1.0])}, "the edges are not symmetric"),
        ({"PX": torch.ones(3, 2), "PX_normalization": "symmetric"}, "PX must have the shape of x"),
        ({"PX": torch.ones(4, 2)}, "PX_normalization must name the normalization"),
        ({"edge_weight": torch.ones(3)}, r"edge_weight must be floating point of shape \[4\]"),
        ({"edge_weight": torch.tensor([1.0, 1.0, 0.0, 1.0])}, "edge_weight must be positive and finite"),
    ],
)  # fmt: skip
def test_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(CvgnnError, match=said):
        make(**more)


def test_no_nodes() -> None:
    empty = torch.tensor([], dtype=torch.int64)
    with pytest.raises(CvgnnError, match=r"1 to 2147483647 nodes; this one has 0"):
        Graph(indptr=torch.tensor([0]), indices=empty, x=torch.ones(0, 1), y=empty, num_classes=1, train_ids=empty, val_ids=empty, test_ids=empty)  # fmt: skip


def test_directed_structures_need_no_reverse() -> None:
    assert make(indices=torch.tensor([1, 0, 2, 0]), directed=True).num_edges == 4


def test_symmetric_weights_pass() -> None:
    assert make(edge_weight=torch.tensor([2.0, 2.0, 0.5, 0.5])).edge_weight is not None


def test_symmetry_of_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of several pieces wrap around as 64-bit sums do."""
    row = torch.arange(1000, dtype=torch.int32).repeat_interleave(2)
    column = (row + torch.tensor([1, 999], dtype=torch.int32).repeat(1000)) % 1000
    monkeypatch.setattr(graph_module, "_PIECE", 7)
    assert graph_module.symmetric(row, column, None)
    column[5] = 0
    assert not graph_module.symmetric(row, column, None)
