"""Metrics against scikit-learn and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from torch import Tensor

from cvgnn.training import MultiLabelClassification, NodeClassification, NodeRegression
from cvgnn.training.tasks import METRICS
from cvgnn.training.tasks import metrics as m


def random_classes(seed: int, *, n: int = 60, classes: int = 5, found: int = 5) -> tuple[Tensor, Tensor]:
    """Logits, and labels of which only the first `found` classes occur."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(n, classes))), torch.from_numpy(rng.integers(0, found, n))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("classes", "found"), [(2, 2), (5, 5), (5, 3), (7, 1)])
def test_classes(classes: int, found: int, seed: int) -> None:
    logits, y = random_classes(seed, classes=classes, found=found)
    predicted, functions = logits.argmax(dim=1), NodeClassification.functions
    assert functions["accuracy"](logits, y) == sk.accuracy_score(y, predicted)
    recall = sk.recall_score(y, predicted, labels=np.unique(y), average="macro", zero_division=0)
    assert functions["balanced_accuracy"](logits, y) == pytest.approx(recall, abs=1e-14)
    for average in ("micro", "macro"):
        expected = sk.f1_score(y, predicted, average=average, zero_division=0)
        assert functions[f"{average}_f1"](logits, y) == pytest.approx(expected, abs=1e-14)
    p = logits.softmax(dim=1)
    areas = functions["roc_auc"](logits, y), functions["average_precision"](logits, y)
    if found == 1:
        assert areas == (None, None)
        return
    kept = [1] if classes == 2 else range(found)
    each = [[f(y == c, p[:, c]) for c in kept] for f in (sk.roc_auc_score, sk.average_precision_score)]
    assert areas == pytest.approx([np.mean(values) for values in each], abs=1e-14)
    matrix = sk.confusion_matrix(y, predicted, labels=range(classes))
    assert m.confusion_matrix(logits, y).tolist() == matrix.tolist()
    table = m.per_class(m.class_counts(logits, y))
    expected = sk.precision_recall_fscore_support(y, predicted, labels=range(classes), zero_division=0)
    for name, column in zip(("precision", "recall", "f1", "nodes"), expected, strict=True):
        np.testing.assert_allclose(table[name], column, atol=1e-14)


@pytest.mark.parametrize("seed", range(6))
def test_labels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits, Y = rng.normal(size=(50, 4)), (rng.random((50, 4)) < [0.5, 0.1, 0.9, 0.0]).astype(np.int8)
    logits[:, 3] = -1.0  # the last label is neither true nor predicted
    functions = MultiLabelClassification.functions
    tensors = torch.from_numpy(logits), torch.from_numpy(Y)
    for average in ("micro", "macro"):
        expected = sk.f1_score(Y, logits > 0, average=average, zero_division=0)
        assert functions[f"{average}_f1"](*tensors) == pytest.approx(expected, abs=1e-14)
    assert functions["roc_auc"](*tensors) == pytest.approx(sk.roc_auc_score(Y[:, :3], logits[:, :3]), abs=1e-14)
    expected = sk.average_precision_score(Y[:, :3], logits[:, :3])
    assert functions["average_precision"](*tensors) == pytest.approx(expected, abs=1e-14)
    nothing = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.int8)
    assert [functions[name](*nothing) for name in functions] == [0.0, 0.0, None, None]


@pytest.mark.parametrize("targets", [1, 3])
def test_numbers(targets: int) -> None:
    rng = np.random.default_rng(targets)
    p, y = rng.normal(size=(2, 40, targets))
    expected = {"mse": sk.mean_squared_error(y, p), "mae": sk.mean_absolute_error(y, p), "r2": sk.r2_score(y, p)}
    found = {name: f(torch.from_numpy(p), torch.from_numpy(y)) for name, f in NodeRegression.functions.items()}
    assert found == pytest.approx(expected, abs=1e-13)
    constant = torch.ones(4, 1)
    assert m.r2(constant, constant) is None


def test_every_metric_of_a_task_is_described() -> None:
    for task in (NodeClassification, MultiLabelClassification, NodeRegression):
        assert set(task.metrics) <= METRICS.keys()
    assert [name for name, metric in METRICS.items() if not metric.larger_is_better][:2] == ["mse", "mae"]


def test_calibration_by_hand() -> None:
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.5, 0.5]])
    found = m.reliability(p, torch.tensor([0, 1, 1, 0]), bins=2)
    # (1/2, 1] has 0.9 right, 0.8 wrong, 0.7 right; (0, 1/2] has 0.5 right.
    assert found["nodes"] == [1, 3]
    assert found["confidence"] == pytest.approx([0.5, 0.8])
    assert found["accuracy"] == pytest.approx([1.0, 2 / 3])
    assert found["expected_calibration_error"] == pytest.approx((1 * 0.5 + 3 * abs(2 / 3 - 0.8)) / 4)
    assert m.reliability(p[:1], torch.tensor([0]))["confidence"].count(None) == 14


@pytest.mark.parametrize("T", [0.3, 1.0, 4.0])
def test_the_temperature_that_was_used(T: float) -> None:
    """Labels drawn from softmax(z) are calibrated; with logits T z the fitted temperature is T."""
    rng = np.random.default_rng(0)
    z = torch.from_numpy(rng.normal(size=(20_000, 4)) * 2)
    y = sampled(z, rng)
    assert m.best_temperature(T * z, y) == pytest.approx(T, rel=0.05)
    before, after = (m.reliability((T * z / t).softmax(1), y)["expected_calibration_error"] for t in (1.0, T))
    assert after < 0.02
    assert before >= after
    assert T == 1.0 or before > 2 * after


def sampled(z: Tensor, rng: np.random.Generator) -> Tensor:
    """A class for each row, drawn from its softmax."""
    gumbel = -np.log(-np.log(rng.random(z.shape)))
    return torch.from_numpy((z.numpy() + gumbel).argmax(axis=1))


def test_the_best_temperature_is_a_minimum() -> None:
    logits, _ = random_classes(3, n=400)
    y = sampled(logits, np.random.default_rng(3))
    T = m.best_temperature(5 * logits, y)
    losses = [float(torch.nn.functional.cross_entropy(5 * logits / t, y)) for t in (T * 0.99, T, T * 1.01)]
    assert losses[1] == min(losses)
    assert math.isfinite(T)
