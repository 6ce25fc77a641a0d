"""Which iterate is returned: the earliest best, or one drawn uniformly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from cvgnn.training.outputs import OUTPUTS, BestByValidation, UniformIterate, snapshot


def model_at(value: float) -> nn.Linear:
    """A model whose every weight is `value`."""
    model = nn.Linear(2, 2)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(value)
    return model


def test_names() -> None:
    assert set(OUTPUTS) == {"best", "last", "tau"}


def test_a_snapshot_is_a_copy_without_gradient() -> None:
    model = model_at(1.0)
    kept = snapshot(model)
    with torch.no_grad():
        model.weight.fill_(9.0)
    assert kept.keys() == {"weight", "bias"}
    assert kept["weight"].eq(1.0).all()
    assert not kept["weight"].requires_grad


@pytest.mark.parametrize(
    ("accuracies", "epoch"),
    [
        ([0.5], 1),
        ([0.0, 0.0], 1),
        ([0.1, 0.3, 0.2], 2),
        ([0.3, 0.3, 0.3], 1),
        ([0.1, 0.4, 0.4, 0.2, 0.4], 2),
        ([0.1, 0.2, 0.3], 3),
    ],
)
def test_the_best_is_the_earliest_with_the_highest_validation_accuracy(accuracies: list[float], epoch: int) -> None:
    best = BestByValidation()
    for e, accuracy in enumerate(accuracies, start=1):
        best.offer(e, accuracy, model_at(float(e)))
    assert (best.epoch, best.score) == (epoch, max(accuracies))
    assert best.weights is not None
    assert all(w.eq(epoch).all() for w in best.weights.values())


def test_nothing_offered_nothing_kept() -> None:
    assert (BestByValidation().epoch, BestByValidation().weights) == (None, None)


def test_the_weights_are_those_of_the_best_epoch_after_further_training() -> None:
    best, model = BestByValidation(), model_at(1.0)
    best.offer(1, 0.9, model)
    with torch.no_grad():
        model.weight.fill_(2.0)
    best.offer(2, 0.1, model)
    assert best.weights is not None
    assert best.weights["weight"].eq(1.0).all()


def draw_tau(seed: int, T: int, models: list[nn.Linear]) -> UniformIterate:
    uniform = UniformIterate(seed)
    for t in range(1, T + 1):
        uniform.offer(t, models[t])
    return uniform


@pytest.mark.parametrize("T", [2, 7])
def test_tau_is_uniform(T: int) -> None:
    seeds = 4000
    models = [model_at(float(t)) for t in range(T + 1)]
    drawn = [draw_tau(seed, T, models) for seed in range(seeds)]
    for uniform in drawn:
        assert uniform.weights is not None
        assert all(w.eq(uniform.tau).all() for w in uniform.weights.values())
    counts = np.bincount([uniform.tau for uniform in drawn], minlength=T + 1)
    assert counts[0] == 0
    assert len(counts) == T + 1
    expected = seeds / T
    chi_square = float(((counts[1:] - expected) ** 2 / expected).sum())
    assert chi_square < {2: 10.8, 7: 22.5}[T]  # 0.1 % with T - 1 degrees of freedom; the seeds are fixed


def test_one_iterate_is_always_taken() -> None:
    models = [model_at(0.0), model_at(1.0)]
    assert {draw_tau(seed, 1, models).tau for seed in range(50)} == {1}


def test_tau_is_a_function_of_the_seed() -> None:
    models = [model_at(float(t)) for t in range(101)]
    first = [draw_tau(seed, 100, models).tau for seed in range(30)]
    assert [draw_tau(seed, 100, models).tau for seed in range(30)] == first
    assert len(set(first)) > 15


def test_few_copies_are_made() -> None:
    """About ln T replacements, so that a long run does not copy its weights at every step."""
    changes = []
    for seed in range(40):
        uniform, model = UniformIterate(seed), model_at(0.0)
        taken = []
        for t in range(1, 1001):
            uniform.offer(t, model)
            taken.append(uniform.tau)
        changes.append(len(set(taken)))
    assert 5.5 < np.mean(changes) < 9.5  # the harmonic number of 1000 is 7.49
