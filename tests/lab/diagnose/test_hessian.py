"""Hessian-vector products beside the Hessian written out, and the largest eigenvalue beside all of them."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.named import load
from cvgnn.lab.diagnose.gradient import Objective, flat_weights
from cvgnn.lab.diagnose.trainers import fresh_trainer
from cvgnn.training import Trainer
from tests.build import graph_from_dense, random_adjacency

GRAPH = graph_from_dense(random_adjacency(12, mean_degree=4, weighted=True, seed=3))


def built(graph: Graph, *, hidden: int = 4, layers: int = 2, norm: str = "none") -> tuple[Trainer, Objective]:
    trainer = fresh_trainer(graph, TrainConfig(hidden=hidden, layers=layers, norm=norm))
    return trainer, Objective(trainer, weight_decay=0.01)


def written_out(trainer: Trainer) -> torch.Tensor:
    """The Hessian `[d, d]`, by torch from dense matrices."""
    model, P, x = trainer.model, trainer.loader.sampler.propagation.dense(), GRAPH.x
    assert isinstance(x, torch.Tensor)
    shapes = [(p.shape, p.numel()) for p in model.parameters()]

    def F(w: torch.Tensor) -> torch.Tensor:
        parts = iter(p.reshape(s) for p, (s, _) in zip(w.split([n for _, n in shapes]), shapes, strict=True))
        H = x
        for k, layer in enumerate(model.layers):
            H = P @ H @ next(parts) + next(parts)
            if k < model.num_layers - 1:
                if layer.norm is not None:
                    H = torch.nn.functional.layer_norm(H, (H.shape[1],), next(parts), next(parts))
                H = torch.relu(H)
        return cross_entropy(H[GRAPH.train_ids], GRAPH.y[GRAPH.train_ids]) + 0.005 * w @ w

    return torch.autograd.functional.hessian(F, flat_weights(model))  # type: ignore[no-any-return]


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_products_and_the_largest_eigenvalue(layers: int, norm: str) -> None:
    trainer, objective = built(GRAPH, layers=layers, norm=norm)
    dense = written_out(trainer)
    v = torch.randn(len(dense), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert (objective.hessian_product(trainer.model, v) - dense @ v).abs().max() < 1e-12
    largest = float(torch.linalg.eigvalsh(dense).abs().max())
    found = objective.curvature(trainer.model, rounds=3000, tolerance=1e-13)
    assert found.value == pytest.approx(largest, rel=1e-6)
    rough = objective.curvature(trainer.model, rounds=5, tolerance=0.0)
    assert rough.rounds == 5
    assert rough.value <= largest * (1 + 1e-12)


def test_sparse_features_and_the_exact_gradient() -> None:
    """On CiteSeer: the gradient is the exact one, and products are differences of gradients."""
    graph = load("citeseer")
    trainer, objective = built(graph)
    model = trainer.model
    assert (objective.differentiable_gradient(model).detach() - objective(model).vector).abs().max() < 1e-14
    v = torch.randn(flat_weights(model).numel(), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    product, sides = objective.hessian_product(model, v), []
    W = flat_weights(model)
    for sign in (1, -1):
        torch.nn.utils.vector_to_parameters(W + sign * 1e-7 * v, model.parameters())
        sides.append(objective(model).vector)
    assert ((sides[0] - sides[1]) / 2e-7 - product).abs().max() < 1e-6 * product.abs().max()
