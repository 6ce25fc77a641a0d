"""New nodes get the logits that they would have in a graph built with them, and reading stays in their neighborhood."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cvgnn
from cvgnn.data import Propagation
from cvgnn.errors import CvgnnError
from cvgnn.nn import exact_embedding, exact_logits
from cvgnn.training.trainer_builder import build_features, build_propagation
from tests.build import sparse_features

N, NEW, F = 120, 4, 6
# Of the new nodes N..N+3 the first two hang on old ones and on each other, the third on another new one only, the
# fourth on nothing. An edge is listed twice, one in both directions, and there is a self loop.
EDGES = np.array([[0, N, N + 1, N, N + 1, 40, N + 2, 0, N], [N, 7, N, N + 1, 40, N + 1, N + 1, N, N]])


def graphs(*, weighted: bool = False, sparse: bool = False, directed: bool = False) -> tuple[cvgnn.Graph, cvgnn.Graph]:
    """A ring with chords and a hub in float64, and the same with the new nodes, built at once."""
    rng = np.random.default_rng(1)
    old = np.concatenate(
        [[np.arange(N), (np.arange(N) + 1) % N], rng.integers(N, size=(2, 30)), [np.zeros(9, int), np.arange(50, 59)]],
        axis=1,
    )
    X = rng.normal(size=(N + NEW, F)) * (rng.random((N + NEW, F)) < 0.5)
    edges = np.concatenate([old, EDGES], axis=1)
    # One weight for an edge, wherever and in whichever direction it is listed.
    weight = 0.5 + (edges.sum(axis=0) * 7 + np.abs(edges[0] - edges[1])) % 11 / 5 if weighted else None
    y = rng.integers(0, 3, size=N + NEW)

    def build(nodes: int, columns: slice) -> cvgnn.Graph:
        return cvgnn.from_edges(
            edges[:, columns],
            x=sparse_features(X[:nodes]) if sparse else torch.from_numpy(X[:nodes]),
            y=y[:nodes],
            train_ids=np.arange(0, N, 2),
            val_ids=np.arange(1, N, 4),
            edge_weight=None if weight is None else weight[columns],
            directed=directed,
        )

    return build(N, slice(0, old.shape[1])), build(N + NEW, slice(None))


def new_of(bigger: cvgnn.Graph, *, weighted: bool = False) -> tuple[Any, ...]:
    x = bigger.x if isinstance(bigger.x, torch.Tensor) else bigger.x.to_dense()
    weight = 0.5 + (EDGES.sum(axis=0) * 7 + np.abs(EDGES[0] - EDGES[1])) % 11 / 5
    return (x[N:], EDGES, weight) if weighted else (x[N:], EDGES)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gcnii"])
@pytest.mark.parametrize(
    "kind",
    [{}, {"weighted": True}, {"sparse": True}, {"directed": True}, {"weighted": True, "directed": True}],
    ids=str,
)
def test_the_same_as_in_a_graph_with_them(kind: dict[str, bool], model: str, layers: int) -> None:
    graph, bigger = graphs(**kind)
    run = cvgnn.fit(graph, model=model, layers=layers, epochs=1, hidden=5, seed=layers)
    P = build_propagation(bigger, run.config, run.model)
    expected = exact_logits(run.model, build_features(bigger, P, run.config, run.model), P)[N:]
    found = run.outputs_new(*new_of(bigger, weighted=kind.get("weighted", False)))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"normalization": "random-walk", "feature_norm": "row"},
        {"norm": "batch", "residual": True},
        {"norm": "layer", "jk": "concat", "input_layer": True},
        {"feature_norm": "l2", "inductive": True},
    ],
    ids=str,
)
def test_with_options(options: dict[str, Any]) -> None:
    graph, bigger = graphs(weighted=True, sparse=True)
    run = cvgnn.fit(graph, epochs=2, hidden=5, **options)
    P = build_propagation(bigger, run.config, run.model)
    features = build_features(bigger, P, run.config, run.model)
    near, ids = run.around_new(*new_of(bigger, weighted=True))
    torch.testing.assert_close(near.outputs(ids), exact_logits(run.model, features, P)[N:], rtol=0, atol=1e-12)
    hidden = exact_embedding(run.model, features, P, layer=1)[N:]
    torch.testing.assert_close(near.embed(1, ids), hidden, rtol=0, atol=1e-12)


def test_only_the_neighborhood_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 5000
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
    x = np.random.default_rng(0).normal(size=(n, 3))
    graph = cvgnn.from_edges(ring, x=x, y=np.arange(n) % 3, train_ids=np.arange(0, n, 2), val_ids=[1])
    run = cvgnn.fit(graph, epochs=1, hidden=4, layers=3)
    sizes: list[int] = []
    product = Propagation.product

    def counted(self: Propagation, H: torch.Tensor, **options: Any) -> torch.Tensor:
        sizes.append(len(H))
        return product(self, H, **options)

    monkeypatch.setattr(Propagation, "product", counted)
    assert run.predict_new(x[:1], [[n], [2500]]).shape == (1,)
    assert sizes
    assert max(sizes) == 6  # itself, its neighbor, and two nodes on both sides of that


def test_a_stored_product_is_not_used(tmp_path: Path) -> None:
    graph, bigger = graphs()
    P = Propagation(graph)
    stored = dataclasses.replace(graph, PX=P.product(graph.x), PX_normalization="symmetric", validated=True)  # type: ignore[arg-type]
    run = cvgnn.fit(graph, epochs=1, hidden=5, out=tmp_path / "a")
    found = cvgnn.load_run(tmp_path / "a", stored).outputs_new(*new_of(bigger))
    torch.testing.assert_close(found, run.outputs_new(*new_of(bigger)), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("y", "shape"),
    [(np.arange(N) % 3, (NEW,)), (np.eye(3)[np.arange(N) % 3], (NEW, 3)), (np.linspace(0, 1, N), (NEW, 1))],
    ids=["node", "multilabel", "regression"],
)
def test_tasks(y: np.ndarray, shape: tuple[int, ...]) -> None:
    graph, bigger = graphs()
    ids = torch.arange(0, N, 2)
    run = cvgnn.fit(
        cvgnn.from_edges(EDGES[:, :0], x=graph.x, y=y, train_ids=ids, val_ids=ids + 1),
        epochs=2, hidden=5,
    )  # fmt: skip
    found = run.predict_new(*new_of(bigger))
    assert found.reshape(NEW, -1).shape == torch.Size(shape if len(shape) == 2 else (NEW, 1))
    rows = run.outputs_new(*new_of(bigger))
    assert torch.equal(found, run.task.predict(rows, run.model.readout))


def test_a_task_without_labels_at_nodes() -> None:
    graph, bigger = graphs()
    run = cvgnn.fit(graph, epochs=1, hidden=5)
    run.task.items.kind = "edge"
    with pytest.raises(CvgnnError, match="task 'node' has no labels at nodes, so it predicts nothing for new ones"):
        run.predict_new(*new_of(bigger))


ONE = np.zeros((1, F))


@pytest.mark.parametrize(
    ("weighted", "arguments", "said"),
    [
        (False, (np.zeros((1, F + 1)), [[0], [N]]), "x has 7 features a node, but the nodes of the graph 'graph' have"),
        (False, (np.zeros((0, F)), [[], []]), "x has no rows: there is no new node"),
        (False, (np.zeros(F), [[0], [N]]), r"x must be a matrix \[N, F\]"),
        (False, (3.0, [[0], [N]]), "x has no rows"),
        (False, (np.full((1, F), np.nan), [[0], [N]]), "x has a NaN or infinite value"),
        (False, ([["a"] * F], [[0], [N]]), "x must hold numbers"),
        (False, ([[1.0] * F, [1.0]], [[0], [N]]), "x is ragged"),
        (False, (ONE, [[0], [N + 1]]), rf"edge 0 of edge_index, \(0, {N + 1}\), names a node that does not exist"),
        (False, (ONE, [[N, 0], [0, 1]]), r"edge 1, \(0, 1\), is between two nodes of the graph"),
        (False, (ONE, [0, N]), r"edge_index must have shape \[2, number of edges\]"),
        (False, (ONE, [[0.5], [N]]), "edge_index must hold integers"),
        (False, (ONE, [[0], [N]], [2.0]), "the graph's edges have no weights"),
        (True, (ONE, [[0], [N]]), "the graph's edges have weights; give edge_weight"),
        (True, (ONE, [[0], [N]], [1.0, 2.0]), "edge_weight must have one entry per edge"),
        (True, (ONE, [[0], [N]], [-1.0]), "edge_weight has -1.0 at entry 0"),
        (True, (ONE, [[0, N], [N, 0]], [1.0, 2.0]), rf"edge 0, \(0, {N}\), is listed again with another weight"),
    ],
)
def test_mistakes(weighted: bool, arguments: tuple[Any, ...], said: str) -> None:
    graph, _ = graphs(weighted=weighted)
    run = cvgnn.fit(graph, epochs=1, hidden=4)
    with pytest.raises(CvgnnError, match=said):
        run.predict_new(*arguments)
