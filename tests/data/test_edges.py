from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgnn.data import Graph, Propagation, from_edges
from cvgnn.errors import CvgnnError


def build(edges: Any, *, n: int = 4, **more: Any) -> Graph:
    options: dict[str, Any] = {"x": torch.ones(n, 2), "y": [0, 1] * (n // 2), "train_ids": [0]}
    return from_edges(edges, **{**options, **more})


def dense(g: Graph) -> list[list[float]]:
    out = np.zeros((g.num_nodes, g.num_nodes))
    for v in range(g.num_nodes):
        a, b = int(g.indptr[v]), int(g.indptr[v + 1])
        out[v, g.indices[a:b].numpy()] = 1.0 if g.edge_weight is None else g.edge_weight[a:b].numpy()
    return out.tolist()


PATH = [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    "edges",
    [
        [[0, 1], [1, 2]],
        [[0, 1, 1, 2], [1, 0, 2, 1]],
        [[1, 2], [0, 1]],
        [[0, 0, 1, 1, 2, 2], [1, 1, 0, 2, 1, 2]],
        [[3, 0, 1, 3], [3, 1, 2, 3]],
    ],
    ids=["one direction", "both", "reversed", "duplicates and a loop", "loops on an isolated node"],
)
def test_an_edge_counts_once_however_it_is_listed(edges: list[list[int]]) -> None:
    assert dense(build(edges)) == PATH


def test_weights_follow_their_edges() -> None:
    g = build([[0, 2, 1], [1, 1, 2]], edge_weight=[0.5, 2.0, 2.0])
    assert dense(g) == [[0, 0.5, 0, 0], [0.5, 0, 2.0, 0], [0, 2.0, 0, 0], [0, 0, 0, 0]]


def test_directed_keeps_the_directions() -> None:
    g = build([[0, 1], [1, 2]], directed=True)
    assert dense(g) == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert "2 directed edges" in repr(g)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_any_edge_list_gives_the_symmetric_simple_graph(case: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = case
    expected = np.zeros((n, n))
    for u, v in edges:
        if u != v:
            expected[u, v] = expected[v, u] = 1
    array = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    g = from_edges(array, x=torch.ones(n, 1), y=np.zeros(n, int), train_ids=[0])
    assert dense(g) == expected.tolist()
    P = Propagation(g, dtype=torch.float64).dense().numpy()
    d = expected.sum(axis=1) + 1
    np.testing.assert_allclose(P, (expected + np.eye(n)) / np.sqrt(np.outer(d, d)), atol=1e-14)


def test_masks_and_arrays_are_accepted() -> None:
    g = build(
        np.array([[0], [1]], dtype=np.int32),
        train_ids=torch.tensor([False, True, False, False]),
        val_ids=np.array([3, 2], dtype=np.int16),
        y=torch.tensor([0, 1, 2, 0]),
    )
    assert (g.train_ids.tolist(), g.val_ids.tolist(), g.num_classes) == ([1], [2, 3], 3)


@pytest.mark.parametrize(
    ("edges", "more", "message"),
    [
        ([[0, 1], [1, 4]], {}, r"edge 1 of edge_index, \(1, 4\), names a node that does not exist; ids .* 0..3"),
        ([[0, -1], [1, 0]], {}, r"edge 1 of edge_index, \(-1, 0\), names a node that does not exist"),
        ([[0, 1, 2]], {}, r"edge_index must have shape \[2, number of edges\]; it has \[1, 3\]"),
        ([[0.5], [1.0]], {}, "edge_index must hold integers, not float64"),
        ([[0], [1]], {"edge_weight": [0.0]}, "edge_weight has 0.0 at entry 0; weights must be positive and finite"),
        ([[0], [1]], {"edge_weight": [-1.0]}, "edge_weight has -1.0 at entry 0"),
        ([[0], [1]], {"edge_weight": [float("nan")]}, "edge_weight has nan at entry 0"),
        ([[0], [1]], {"edge_weight": [1.0, 2.0]}, r"edge_weight must have one entry per edge, \[1\]; it has shape \[2\]"),
        ([[0, 1], [1, 0]], {"edge_weight": [1.0, 2.0]}, r"edge \(0, 1\) is listed with two weights, 2 and 1"),
        ([[0], [1]], {"x": torch.ones(4)}, r"x must be a matrix \[N, F\]; it has shape \[4\]"),
        ([[0], [1]], {"train_ids": torch.tensor([True, False])}, r"train_ids must be one boolean per node, \[4\]; it is bool of shape \[2\]"),
        ([[0], [1]], {"x": None}, "x must be a matrix of numbers, not NoneType"),
        ([[0], [1]], {"x": [[1.0], [1.0, 2.0]]}, "x must be a matrix of numbers, not list"),
        ([[0], [1]], {"x": torch.eye(4).to_sparse()}, "x is a sparse tensor; give SparseFeatures"),
        ([[0], [1]], {"edge_weight": ["a"]}, "edge_weight must hold numbers"),
        ([[0], [1]], {"num_classes": "3"}, "num_classes must be a whole number of at least 1, not '3'"),
        ([[0], [1]], {"y": [0.5j, 0, 0, 0]}, "y must hold numbers or strings, not complex128"),
    ],
)  # fmt: skip
def test_refused(edges: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
        build(edges, **more)


def test_the_callers_arrays_may_change() -> None:
    y, train = np.array([0, 1, 0, 1]), np.array([0, 2])
    g = build([[0], [1]], y=y, train_ids=train)
    y[:], train[:] = 7, 3
    assert (g.y.tolist(), g.train_ids.tolist()) == ([0, 1, 0, 1], [0, 2])


def test_features_carry_no_gradient() -> None:
    assert not build([[0], [1]], x=torch.ones(4, 2, requires_grad=True)).x.requires_grad  # type: ignore[union-attr]
