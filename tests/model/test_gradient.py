"""The gradient chained by hand against autograd's."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn.functional import cross_entropy

from cvgnn.errors import CvgnnError
from cvgnn.estimator import ControlVariate, Estimator, SampledSum
from cvgnn.graph import Graph, Propagation, SparseFeatures
from cvgnn.model import GCN, exact_hidden, is_plain, loss_and_gradient
from cvgnn.sampling import BatchLoader, NeighborSampler, propagate_features
from tests.build import graph_from_dense, random_adjacency


def multi_margin(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.multi_margin_loss(logits, y)


def setting(
    K: int = 2, *, estimator: str = "cv", sparse: bool = False, mode: str = "shuffle", **model_options: object
) -> tuple[Graph, GCN, Estimator, BatchLoader]:
    graph = graph_from_dense(random_adjacency(40, mean_degree=5, weighted=True, seed=0), features=5)
    if sparse:
        x = csr_array(np.where(graph.x > 0.5, graph.x, 0.0))  # type: ignore[operator]
        features = SparseFeatures(*(torch.from_numpy(part) for part in (x.indptr, x.indices, x.data)), 5)
        graph = dataclasses.replace(graph, x=features, validated=False, built=False)
    propagation = Propagation(graph)
    source = propagate_features(graph, propagation)
    options = {"norm": "layer", "dropout": 0.3, **model_options}
    model = GCN(in_channels=5, hidden_channels=4, out_channels=3, num_layers=K, dtype=torch.float64, **options)  # type: ignore[arg-type]
    sampler = NeighborSampler(propagation, num_neighbors=2, num_layers=K, control=estimator == "cv")
    loader = BatchLoader(graph.train_ids, sampler, batch_size=7, mode=mode)  # type: ignore[arg-type]
    if estimator == "ns":
        return graph, model, SampledSum(source), loader
    cv = ControlVariate(source, model.hidden_widths)
    cv.initialize(exact_hidden(model, source, propagation))
    for history in cv.histories:
        history.values.add_(torch.randn(history.values.shape, generator=torch.Generator().manual_seed(1)))
    return graph, model, cv, loader


@pytest.mark.parametrize("loss", [cross_entropy, multi_margin])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"K": 1},
        {"K": 3},
        {"K": 4, "norm": "none", "bias": False},
        {"bias": False},
        {"norm": "none", "dropout": 0.0},
        {"estimator": "ns"},
        {"sparse": True},
        {"sparse": True, "K": 1},
        {"mode": "replacement", "K": 3},
        {"mode": "replacement", "sparse": True},
    ],
    ids=str,
)
def test_loss_gradient_and_staged_writes_are_autograds(options: dict, loss: object) -> None:
    graph, model, estimator, loader = setting(**options)
    for batch in loader.epoch(1):
        value = loss_and_gradient(model, batch, estimator, graph.y, loss)  # type: ignore[arg-type]
        staged = {k: H.clone() for k, (_, H) in getattr(estimator, "_staged", {}).items()}
        mine = [p.grad for p in model.parameters()]
        expected = loss(batch.select(model(batch, estimator)), graph.y[batch.ids])  # type: ignore[operator]
        torch.testing.assert_close(value, expected.detach(), rtol=0, atol=1e-12)
        for a, b in zip(mine, torch.autograd.grad(expected, list(model.parameters())), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
        for k, (_, H) in getattr(estimator, "_staged", {}).items():
            assert torch.equal(staged[k], H)
        assert set(staged) == set(getattr(estimator, "_staged", {}))


def test_what_autograd_is_needed_for() -> None:
    _, model, _, _ = setting()
    assert is_plain(model)
    handle = model.register_forward_hook(lambda *_: None)
    assert not is_plain(model)
    handle.remove()
    assert is_plain(model)
    model.layer(0).weight.requires_grad_(False)
    assert not is_plain(model)
    model.layer(0).weight.requires_grad_(True)
    model.layer(0).weight.register_hook(lambda g: g)
    assert not is_plain(model)
    _, model, _, _ = setting()
    torch.nn.utils.parametrizations.weight_norm(model.layer(1), "weight")
    assert not is_plain(model)
    assert not is_plain(torch.nn.Linear(2, 2))


def test_a_label_that_is_no_class() -> None:
    graph, model, estimator, loader = setting()
    batch = next(iter(loader.epoch(1)))
    labels = graph.y.clone()
    labels[batch.ids[2]] = 3
    with pytest.raises(CvgnnError, match=r"a label of the batch is outside of 0\.\.2"):
        loss_and_gradient(model, batch, estimator, labels)


def test_a_loss_that_is_not_a_number_is_told() -> None:
    graph, model, estimator, loader = setting()
    with torch.no_grad():
        model.layer(1).weight[0, 0] = float("nan")
    assert bool(loss_and_gradient(model, next(iter(loader.epoch(1))), estimator, graph.y).isnan())
