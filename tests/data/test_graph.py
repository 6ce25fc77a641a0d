from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.data import Graph, SparseFeatures, structure_check
from cvgnn.errors import CvgnnError

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


def test_sizes_and_repr() -> None:
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
    ("more", "message"),
    [
        ({"train_ids": torch.tensor([], dtype=torch.int64)}, "the training split is empty"),
        ({"val_ids": torch.tensor([2])}, "node 2 is in both train_ids and val_ids; splits must be disjoint"),
        ({"test_ids": torch.tensor([1])}, "node 1 is in both val_ids and test_ids"),
        ({"train_ids": torch.tensor([0, 0])}, "train_ids names node 0 twice"),
        ({"train_ids": torch.tensor([4])}, "train_ids must lie in 0..3; found 4"),
        ({"val_ids": torch.tensor([-1])}, "val_ids must lie in 0..3; found -1"),
        ({"train_ids": torch.tensor([True, False])}, "train_ids must be a tensor of integers, one-dimensional; it is torch.bool"),
        ({"test_ids": torch.tensor([3])}, r"test_ids names node 3, which has no label \(-1\)"),
        ({"y": torch.tensor([0, 2, 1, 0])}, r"y gives node 1 the class 2; classes lie in 0..1, and -1 is unknown"),
        ({"y": torch.tensor([0, 1, -2, 0])}, "y gives node 2 the class -2"),
        ({"y": torch.tensor([0, 1])}, r"y must have one label per node, \[4\]; it has shape \[2\]"),
        ({"num_classes": 0}, "num_classes must be a whole number of at least 1, not 0"),
        ({"x": torch.tensor([[1, NAN], [1, 1], [1, 1], [1, 1]])}, "x has a NaN or infinite value at node 0, column 1"),
        ({"x": torch.tensor([[1, 1], [1, 1], [INF, 1], [-INF, 1]])}, "NaN or infinite value at node 2, column 0"),
        ({"x": sparse(NAN)}, "x has a NaN or infinite value at node 2, column 0"),
        ({"x": torch.ones(3, 2)}, r"x must have one row per node, \[4, F\]; it has shape \[3, 2\]"),
        ({"x": torch.ones(4, 0)}, "x has no columns"),
        ({"x": torch.ones(4, 2, dtype=torch.int64)}, "x must be float32 or float64, not torch.int64"),
        ({"indices": torch.tensor([1, 0, 4, 1])}, "indices gives node 1 a node outside 0..3 as neighbor"),
        ({"indices": torch.tensor([1, 0, -1, 1])}, "indices gives node 1 a node outside 0..3 as neighbor"),
        ({"indices": torch.tensor([0, 0, 2, 1])}, "indices gives node 0 itself as neighbor"),
        ({"indices": torch.tensor([1, 2, 0, 1])}, "indices gives node 1 its neighbors not in ascending order, or one twice"),
        ({"indices": torch.tensor([1, 2, 2, 1])}, "indices gives node 1 its neighbors not in ascending order, or one twice"),
        ({"indptr": torch.tensor([0, 1, 3, 4, 5])}, "indptr must rise from 0 to the number of entries, 4"),
        ({"indptr": torch.tensor([0, 3, 1, 4, 4])}, "indptr must rise"),
        ({"num_classes": 2.5}, r"num_classes must be a whole number of at least 1, not 2\.5"),
        ({"y": torch.tensor([0.7, 1.2, 1.0, 0.0])}, "y has 1 columns, but num_classes is 2"),
        ({"y": torch.tensor([True, False, True, True])}, "y must hold numbers or strings, not bool"),
        ({"y": [0, 1, 1, 0]}, "y must be a tensor, not list"),
        ({"y": torch.tensor([[0, 1], [1, 0], [2, 0], [0, 0]])}, "y is a matrix of integers with 2 at node 2, column 0"),
        ({"y": torch.tensor([[0, 1], [-1, -1], [1, 0], [0, 0]]), "train_ids": torch.tensor([1]), "val_ids": torch.tensor([0])}, r"train_ids names node 1, which has no label \(-1\)"),
        ({"y": torch.tensor([0.5, torch.nan, 1, 2]), "num_classes": 1, "train_ids": torch.tensor([1]), "val_ids": torch.tensor([0])}, r"train_ids names node 1, which has no label \(NaN\)"),
        ({"y": torch.tensor([0.5, torch.inf, 1, 2]), "num_classes": 1}, "y gives node 1 other values than it may have: they are finite, and NaN is unknown"),
        ({"indptr": torch.tensor([0, 1.5, 3, 4, 4])}, "indptr must be a tensor of integers"),
        ({"indices": torch.tensor([[1, 0], [2, 1]])}, r"indices must be a tensor of integers, one-dimensional; it is torch\.int64 of shape \[2, 2\]"),
        ({"indices": [1, 0, 2, 1]}, "indices must be a tensor of integers, one-dimensional; it is list"),
        ({"indices": torch.tensor([2**32 + 1, 0, 2, 1])}, "indices gives node 0 a node outside 0..3 as neighbor"),
        ({"indices": torch.tensor([1, 0, 2, 0])}, "indices lacks the reverse of some edge, or gives it another weight"),
        ({"edge_weight": torch.tensor([1.0, 2.0, 1.0, 1.0])}, "indices lacks the reverse of some edge, or gives it another weight"),
        ({"PX": torch.ones(3, 2), "PX_normalization": "symmetric"}, "PX must have the shape of x"),
        ({"PX": torch.ones(4, 2)}, "PX_normalization must name the normalization"),
        ({"edge_weight": torch.ones(3)}, r"edge_weight must be floating point of shape \[4\]"),
        ({"edge_weight": torch.tensor([1.0, 1.0, 0.0, 1.0])}, "edge_weight has 0.0 at entry 2; weights must be positive and finite"),
    ],
)  # fmt: skip
def test_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
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
    indices = (torch.arange(1000)[:, None] + torch.tensor([1, 999])) % 1000
    indices = indices.sort(dim=1).values.flatten().numpy()
    monkeypatch.setattr(structure_check, "_PIECE", 7)
    indptr = np.arange(0, 2001, 2)
    structure_check.check_structure(indptr, indices, None, directed=False)
    indices[5] = 9
    with pytest.raises(CvgnnError, match="lacks the reverse"):
        structure_check.check_structure(indptr, indices, None, directed=False)
