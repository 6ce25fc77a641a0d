"""The exact gradient, beside float64 autograd on dense matrices, and that measuring changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.named import load
from cvgnn.lab.diagnose import Objective, batch_gradient
from cvgnn.lab.diagnose.trainers import in_float64
from cvgnn.nn import GCN
from cvgnn.training.trainer_builder import build_trainer


def by_autograd(model: GCN, P: torch.Tensor, graph: Graph, weight_decay: float) -> torch.Tensor:
    """`grad F` by torch alone, from `P` written out."""
    x = graph.x if isinstance(graph.x, torch.Tensor) else graph.x.to_dense()
    parameters = list(model.parameters())
    H = x
    for k, layer in enumerate(model.layers):
        H = P @ H @ layer.weight
        H = H if layer.bias is None else H + layer.bias
        if k < model.num_layers - 1:
            H = torch.relu(H if layer.norm is None else layer.norm(H))
    F = cross_entropy(H[graph.train_ids], graph.y[graph.train_ids])
    F = F + 0.5 * weight_decay * sum((p * p).sum() for p in parameters)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(F, parameters)])


@pytest.mark.parametrize("norm", ["layer", "none"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("weight_decay", [0.0, 5e-4])
def test_the_exact_gradient_is_autograds(norm: str, layers: int, weight_decay: float) -> None:
    graph = in_float64(load("citeseer"))
    config = TrainConfig(norm=norm, layers=layers, hidden=16)
    trainer = build_trainer(graph, config)
    model, P = trainer.model, trainer.loader.sampler.propagation
    full = Objective(trainer, weight_decay=weight_decay)
    before = [p.grad for p in model.parameters()]
    found = full(model)
    expected = by_autograd(model, P.dense(), graph, weight_decay)
    assert found.vector.dtype == torch.float64
    assert float((found.vector - expected).abs().max()) < 1e-10 * float(expected.abs().max())
    assert model.training
    assert [p.grad for p in model.parameters()] == before


def test_measuring_leaves_histories_and_grads_alone() -> None:
    graph = load("citeseer")
    trainer = build_trainer(graph, TrainConfig(hidden=16, batch_size=20))
    trainer.train_epoch(1)
    state = {name: tensor.clone() for name, tensor in trainer.estimator.state_dict().items()}
    grads = [p.grad.clone() for p in trainer.model.parameters() if p.grad is not None]
    batch = trainer.loader.batch(graph.train_ids[:5], step=99)
    one = batch_gradient(trainer.model, batch, trainer.estimator, trainer.task)
    two = batch_gradient(trainer.model, batch, trainer.estimator, trainer.task)
    assert torch.equal(one.vector, two.vector)
    assert trainer.estimator.staged() == []
    assert all(torch.equal(tensor, trainer.estimator.state_dict()[name]) for name, tensor in state.items())
    kept = [p.grad for p in trainer.model.parameters()]
    assert all(b is not None and torch.equal(a, b) for a, b in zip(grads, kept, strict=True))
