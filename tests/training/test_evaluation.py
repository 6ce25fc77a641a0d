"""Accuracies, by hand on written-out graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cvgnn.data import Graph, Propagation, from_edges
from cvgnn.nn import GCN
from cvgnn.sampling import propagate_features
from cvgnn.training import Evaluator, Metrics, NodeClassification
from cvgnn.training.tasks.metrics import accuracy

LOGITS = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 1.0], [1.0, 2.0, 9.0], [7.0, 0.0, 0.0], [0.0, 1.0, 0.5]])
Y = torch.tensor([0, 1, 0, 1, 1])  # right at nodes 0, 1 and 4


@pytest.mark.parametrize(
    ("ids", "share"),
    [([0], 1.0), ([2], 0.0), ([0, 1, 2, 3, 4], 0.6), ([2, 3], 0.0), ([4, 0, 1], 1.0), ([0, 2, 3], 1 / 3)],
)
def test_accuracy_by_hand(ids: list[int], share: float) -> None:
    assert accuracy(LOGITS[ids], Y[ids]) == share


def test_accuracy_is_an_exact_share() -> None:
    """Counted in integers: no rounding of a float32 mean."""
    n = 1_000_003
    y = torch.zeros(n, dtype=torch.int64)
    logits = torch.stack([torch.arange(n) % 3 != 0, torch.arange(n) % 3 == 0], dim=1).float()
    right = n - (n + 2) // 3
    assert accuracy(logits, y) == right / n


def islands(**split: Any) -> Graph:
    """Six nodes without edges: `P` is the identity, so a layer's logits are the features times W."""
    none = torch.zeros(2, 0, dtype=torch.int64)
    x = torch.tensor([[1.0, 0], [0, 1], [1, 0], [0, 1], [2, 1], [1, 3]])
    return from_edges(none, x=x, y=[0, 1, 1, 0, 0, 0], num_classes=2, **split)


def accuracies(train: float | None, val: float | None, test: float | None) -> Metrics:
    return {"train_accuracy": train, "val_accuracy": val, "test_accuracy": test}


def evaluator_and_model(graph: Graph) -> tuple[Evaluator, GCN]:
    propagation = Propagation(graph)
    model = GCN(in_channels=2, hidden_channels=1, out_channels=2, num_layers=1, bias=False)
    model.layer(0).weight.data.copy_(torch.eye(2))
    return Evaluator(NodeClassification(graph), propagate_features(graph, propagation), propagation), model


def test_splits_by_hand() -> None:
    evaluate, model = evaluator_and_model(islands(train_ids=[0, 2], val_ids=[1, 4, 5], test_ids=[3]))
    assert evaluate(model) == accuracies(0.5, 2 / 3, 0.0)


def test_a_split_without_nodes_has_no_accuracy() -> None:
    evaluate, model = evaluator_and_model(islands(train_ids=[0, 1]))
    assert evaluate(model) == accuracies(1.0, None, None)


def test_neighbors_count() -> None:
    """A path 0 - 1: both rows of P X are the mean, so the larger of the two features decides for both."""
    graph = from_edges([[0], [1]], x=torch.tensor([[5.0, 0], [0, 1]]), y=[0, 1], train_ids=[0], test_ids=[1])
    evaluate, model = evaluator_and_model(graph)
    assert evaluate(model) == accuracies(1.0, None, 0.0)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_changes(training: bool) -> None:
    graph = islands(train_ids=[0, 2], val_ids=[1], test_ids=[3])
    propagation = Propagation(graph)
    model = GCN(in_channels=2, hidden_channels=8, out_channels=2, num_layers=3, dropout=0.9)
    model.train(training)
    before = {name: p.clone() for name, p in model.state_dict().items()}
    state = torch.get_rng_state()
    evaluate = Evaluator(NodeClassification(graph), propagate_features(graph, propagation), propagation)
    first, *others = (evaluate(model) for _ in range(3))
    assert others == [first, first]  # dropout takes no part
    assert model.training is training
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
