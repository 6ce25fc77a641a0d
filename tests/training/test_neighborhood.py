"""A few nodes cost their neighborhood, and get what a pass over the whole graph gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import cvgnn
from cvgnn.data import Propagation
from cvgnn.nn import exact_embedding, exact_logits
from cvgnn.training.neighborhood import neighborhood
from tests.build import sparse_features

N = 400


def ring(*, weighted: bool = False, sparse: bool = False, directed: bool = False) -> cvgnn.Graph:
    """A ring with a few chords: a node's neighborhood is a small part of it."""
    rng = np.random.default_rng(1)
    source = np.concatenate([np.arange(N), np.arange(0, N, 40)])
    target = np.concatenate([(np.arange(N) + 1) % N, (np.arange(0, N, 40) + 7) % N])
    X = rng.normal(size=(N, 6)) * (rng.random((N, 6)) < 0.5)
    return cvgnn.from_edges(
        np.stack([source, target]),
        x=sparse_features(X) if sparse else torch.from_numpy(X),
        y=rng.integers(0, 3, size=N),
        train_ids=np.arange(0, N, 2),
        val_ids=np.arange(1, N, 4),
        edge_weight=rng.uniform(0.5, 2.0, size=len(source)) if weighted else None,
        directed=directed,
    )


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        ({}, {}),
        ({"weighted": True}, {"layers": 3}),
        ({"sparse": True}, {"feature_norm": "row"}),
        ({"directed": True, "sparse": True}, {"model": "sage", "residual": True}),
        ({}, {"model": "gcnii", "jk": "concat"}),
        ({"weighted": True}, {"model": "gin", "norm": "batch", "input_layer": True}),
    ],
    ids=str,
)
def test_the_same_as_from_all_nodes(graph: dict[str, Any], options: dict[str, Any]) -> None:
    run = cvgnn.fit(ring(**graph), epochs=2, hidden=4, batch_size=50, **options)
    ids = [7, 399, 0, 7]
    near = neighborhood(run.graph, run.propagation, torch.tensor(ids), run.model.num_layers)
    assert near is not None
    assert near.graph.num_nodes < 60
    expected = exact_logits(run.model, run.features, run.propagation)[ids].softmax(dim=1)
    torch.testing.assert_close(run.predict_proba(ids), expected, rtol=0, atol=1e-12)
    hidden = exact_embedding(run.model, run.features, run.propagation, layer=1)[ids]
    torch.testing.assert_close(run.embed(1, ids), hidden, rtol=0, atol=1e-12)


def test_many_nodes_are_a_pass_over_the_graph() -> None:
    graph = ring()
    assert neighborhood(graph, Propagation(graph), torch.arange(200), 2) is None


def test_a_loaded_run_reads_few_features(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ring()
    trained = cvgnn.fit(graph, epochs=2, hidden=4, out=tmp_path / "a")
    sizes: list[int] = []
    product = Propagation.product

    def counted(self: Propagation, H: torch.Tensor, **options: Any) -> torch.Tensor:
        sizes.append(len(H))
        return product(self, H, **options)

    monkeypatch.setattr(Propagation, "product", counted)
    run = cvgnn.load_run(tmp_path / "a", graph)
    torch.testing.assert_close(run.predict_proba([5]), trained.predict_proba()[[5]], rtol=0, atol=1e-12)
    assert max(sizes[:2]) < 10  # P X and P H of the neighborhood
    assert run.predict([]).shape == (0,)
