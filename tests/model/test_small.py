"""Both layers in one compiled call: when it is taken, what it tells, and that it notices what changes beneath it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from cvgnn.errors import CvgnnError
from cvgnn.nn import ControlVariate
from cvgnn.graph import Propagation
from cvgnn.model import GCN, ByHand, exact_hidden, loss_and_gradient, small
from cvgnn.optim import make_optimizer
from cvgnn.sampling import BatchLoader, NeighborSampler, propagate_features
from cvgnn.training import Trainer
from cvgnn.training.guard import gradient_norm
from tests.build import graph_from_dense, random_adjacency, sparse_features

N = 40


def make_trainer(
    *, nodes: int = N, batch_size: int = 7, dtype: torch.dtype = torch.float64, **options: object
) -> Trainer:
    graph = graph_from_dense(random_adjacency(nodes, mean_degree=5, weighted=True, seed=0), features=5)
    x = graph.x.numpy()  # type: ignore[union-attr]
    graph = replace(graph, x=sparse_features(x * (x > 0.3)))
    propagation = Propagation(graph, dtype=dtype)
    features = propagate_features(graph, propagation)
    model = GCN(in_channels=5, hidden_channels=4, out_channels=3, dropout=0.3, dtype=dtype, **options)  # type: ignore[arg-type]
    estimator = ControlVariate(features, model.hidden_widths)
    estimator.initialize(exact_hidden(model, features, propagation))
    sampler = NeighborSampler(propagation, num_neighbors=2, num_layers=2)
    return Trainer(
        model=model,
        estimator=estimator,
        loader=BatchLoader(graph.train_ids, sampler, batch_size=batch_size),
        optimizer=make_optimizer("amsgrad", model.parameters(), lr=0.01),
        labels=graph.y,
    )


def gradients(model: GCN) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_norm_is_that_of_the_gradients(dtype: torch.dtype) -> None:
    trainer = make_trainer(dtype=dtype)
    for batch in trainer.loader.epoch(1):
        loss = trainer._loss_and_gradient(batch)
        assert loss.norm == pytest.approx(gradient_norm(gradients(trainer.model)), rel=1e-6)


def test_more_rows_than_one_part_of_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(nodes=600, batch_size=300)
    batch = next(iter(trainer.loader.epoch(1)))
    assert batch.inputs.numel() > 256
    mine = trainer._loss_and_gradient(batch)
    assert mine.norm is not None
    found = gradients(trainer.model)
    monkeypatch.setattr(small, "LARGEST", 0)
    theirs = loss_and_gradient(trainer.model, batch, trainer.estimator, trainer.labels)
    assert theirs.norm is None
    assert mine.value == pytest.approx(theirs.value, rel=1e-13)
    for a, b in zip(found, gradients(trainer.model), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_a_number_that_only_the_history_would_see_has_no_norm() -> None:
    """An entry of H^(1) that dropout hides from loss and gradient."""
    trainer = make_trainer(norm="none")
    batch = next(iter(trainer.loader.epoch(1)))
    with torch.no_grad():
        trainer.model.layer(0).bias.fill_(math.inf)  # type: ignore[union-attr]
        trainer.model.layer(1).weight.zero_()
    assert trainer._loss_and_gradient(batch).norm is None


def test_squares_that_overflow_have_no_norm() -> None:
    """Although the gradient is finite: whoever needs its norm computes it with more care."""
    trainer = make_trainer(dtype=torch.float32, norm="none")
    with torch.no_grad():
        trainer.model.layer(0).weight.mul_(1e-15)
        trainer.model.layer(1).weight.mul_(1e25)
    loss = trainer._loss_and_gradient(next(iter(trainer.loader.epoch(1))))
    assert math.isfinite(loss.value)
    assert all(bool(g.isfinite().all()) for g in gradients(trainer.model))
    assert loss.norm is None


def test_histories_of_another_graph_are_refused() -> None:
    trainer, other = make_trainer(nodes=80), make_trainer()
    batch = next(iter(trainer.loader.epoch(1)))
    term = other.estimator.history_term(1, batch)
    assert term is not None
    trainer.estimator.history_term = lambda k, batch: term  # type: ignore[method-assign]
    with pytest.raises(CvgnnError, match="the batch reads nodes that the histories do not have"):
        trainer._loss_and_gradient(batch)


def hooked(model: GCN) -> None:
    model.layer(0).weight.register_hook(lambda g: 2 * g)


def frozen(model: GCN) -> None:
    model.layer(1).weight.requires_grad_(False)


def data_replaced(model: GCN) -> None:
    model.layer(0).weight.data = 2 * model.layer(0).weight.data


def parameter_replaced(model: GCN) -> None:
    model.layer(1).weight = torch.nn.Parameter(2 * model.layer(1).weight.detach())


def bias_removed(model: GCN) -> None:
    model.layer(1).bias = None


def layer_replaced(model: GCN) -> None:
    model.layers[0] = copy.deepcopy(model.layer(0))


def gain_replaced(model: GCN) -> None:
    norm = model.layer(0).norm
    assert norm is not None
    norm.weight = torch.nn.Parameter(2 * norm.weight.detach())


CHANGES = [hooked, frozen, data_replaced, parameter_replaced, bias_removed, layer_replaced, gain_replaced]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_model_that_changes_between_steps(change: Callable[[GCN], None]) -> None:
    """What was kept of it does not count any more: the gradient is that of a trainer that sees it for the first time."""
    used, fresh = make_trainer(), make_trainer()
    batch = next(iter(used.loader.epoch(1)))
    used._loss_and_gradient(batch)
    assert used._by_hand is not None
    assert used._by_hand.holds()
    for trainer in (used, fresh):
        change(trainer.model)
    assert not used._by_hand.holds()
    assert used._loss_and_gradient(batch).value == pytest.approx(fresh._loss_and_gradient(batch).value, rel=1e-14)
    for a, b in zip(gradients(used.model), gradients(fresh.model), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def test_a_changed_eps_is_refused_as_it_is_at_the_beginning() -> None:
    trainer = make_trainer()
    batch = next(iter(trainer.loader.epoch(1)))
    trainer._loss_and_gradient(batch)
    trainer.model.layer(0).norm.eps = 0.1  # type: ignore[union-attr]
    with pytest.raises(CvgnnError, match="must be the LayerNorm it was built with"):
        trainer._loss_and_gradient(batch)


def test_a_layer_more() -> None:
    trainer = make_trainer()
    trainer._loss_and_gradient(next(iter(trainer.loader.epoch(1))))
    assert trainer._by_hand is not None
    trainer.model.layers.append(copy.deepcopy(trainer.model.layer(1)))
    assert not trainer._by_hand.holds()


def test_another_model() -> None:
    trainer, other = make_trainer(), make_trainer(seed=1)
    batch = next(iter(trainer.loader.epoch(1)))
    first = trainer._loss_and_gradient(batch)
    trainer.model, trainer.estimator = other.model, other.estimator
    assert trainer._loss_and_gradient(batch).value == other._loss_and_gradient(batch).value != first.value


def test_a_copy_of_a_trainer_trains_its_own_model() -> None:
    trainer = make_trainer()
    batches = list(trainer.loader.epoch(1))
    trainer.step(batches[0])
    before = [p.detach().clone() for p in trainer.model.parameters()]
    twin = copy.deepcopy(trainer)
    losses = [twin.step(batch) for batch in batches[1:]]
    assert all(torch.equal(p, old) for p, old in zip(trainer.model.parameters(), before, strict=True))
    assert [trainer.step(batch) for batch in batches[1:]] == losses
    for p, q in zip(trainer.model.parameters(), twin.model.parameters(), strict=True):
        assert torch.equal(p, q)


def test_gradients_of_one_call_outlive_the_next() -> None:
    """Of the function that keeps nothing; those of a `ByHand` are overwritten."""
    trainer = make_trainer()
    first, second = list(trainer.loader.epoch(1))[:2]
    loss_and_gradient(trainer.model, first, trainer.estimator, trainer.labels)
    kept = [p.grad for p in trainer.model.parameters()]
    before = gradients(trainer.model)
    loss_and_gradient(trainer.model, second, trainer.estimator, trainer.labels)
    assert all(torch.equal(g, old) for g, old in zip(kept, before, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("change", ["narrow", "not contiguous", "mixed"])
def test_what_the_call_cannot_read(change: str) -> None:
    model = make_trainer().model
    assert small.TwoLayers.of([(layer.weight, layer.sigma) for layer in model.in_order]) is not None
    weight = model.layer(1).weight
    weight.data = {
        "narrow": weight.data[:2],
        "not contiguous": weight.data.t().contiguous().t(),
        "mixed": weight.data.float(),
    }[change]
    assert small.TwoLayers.of([(layer.weight, layer.sigma) for layer in model.in_order]) is None
    assert ByHand.of(model) is not None
