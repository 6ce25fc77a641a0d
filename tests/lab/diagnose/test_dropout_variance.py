"""Gradients under dropout are those of training steps, and their variance tells `cvd` from `cv`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cvgnn.config import TrainConfig
from cvgnn.lab.diagnose import diagnose_estimator
from cvgnn.lab.diagnose.gradient import batch_gradient
from cvgnn.lab.diagnose.gradient_errors import Resampling, Variant, redrawn_batches, variance_under_dropout
from cvgnn.lab.diagnose.trainers import fresh_trainer, train_until
from cvgnn.training import Trainer
from tests.build import graph_from_dense, random_adjacency

GRAPH = graph_from_dense(random_adjacency(40, mean_degree=12, weighted=False, seed=3))


def trained(**options: object) -> Trainer:
    config = TrainConfig(**{"hidden": 8, "batch_size": 8, "lr": 0.01, "dropout": 0.5, "num_neighbors": 1, **options})
    trainer = fresh_trainer(GRAPH, config)
    for _ in train_until(trainer, [5]):
        pass
    return trainer


def variant(estimator: str) -> Variant:
    fan_out = -1 if estimator == "exact" else 1
    return Variant(estimator=estimator, scheme="without-replacement", fan_out=(fan_out,))


def plan(**options: object) -> Resampling:
    return Resampling(**{"batch": "resampled", "batches": 3, "draws": 3, "batch_size": 8, "seed": 7, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("estimator", ["cvd", "cv", "ns"])
def test_the_gradient_is_that_of_a_training_step(estimator: str) -> None:
    trainer = trained(estimator=estimator)
    batch = next(iter(trainer.loader.epoch(9)))
    found = batch_gradient(trainer.model, batch, trainer.estimator, trainer.task, dropout=True)
    trainer.model.train()
    loss = trainer._loss_and_gradient(batch)
    expected = torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])
    torch.testing.assert_close(found.vector, expected, rtol=1e-12, atol=1e-14)
    assert found.loss == pytest.approx(loss, rel=1e-12)
    without = batch_gradient(trainer.model, batch, trainer.estimator, trainer.task)
    assert not torch.allclose(found.vector, without.vector, rtol=1e-3)


@pytest.mark.parametrize("batch", ["resampled", "fixed"])
def test_the_variance_is_that_of_the_draws(batch: str) -> None:
    trainer, chosen = trained(), variant("cvd")
    drawn = plan(batch=batch, batches=1 if batch == "fixed" else 3)
    weights = [p.detach().clone() for p in trainer.model.parameters()]
    found = variance_under_dropout(trainer, chosen, drawn)
    loader, estimator = chosen.loader(trainer, plan()), chosen.aggregator(trainer)
    variances = []
    for _, batches in redrawn_batches(loader, drawn):
        G = [batch_gradient(trainer.model, b, estimator, trainer.task, dropout=True).vector for b in batches]
        variances.append(float(torch.stack(G).var(dim=0, unbiased=True).sum()))
    assert found.value == pytest.approx(np.mean(variances), rel=1e-12)
    assert all(map(torch.equal, weights, trainer.model.parameters()))


def test_cvd_has_less_variance_than_cv() -> None:
    trainer, often = trained(), plan(batches=6, draws=20)
    found = {name: variance_under_dropout(trainer, variant(name), often).value for name in ("exact", "cvd", "cv", "ns")}
    assert found["exact"] < found["cvd"] < 0.5 * min(found["cv"], found["ns"])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_diagnosis_shows_it(dropout: float) -> None:
    config = TrainConfig(hidden=4, batch_size=8, dropout=dropout)
    found = diagnose_estimator(
        GRAPH, config, steps=[2], fan_outs=[[1], [2]], batches=3, draws=2, test_draws=10, estimators=("cv", "ns")
    )
    captions = [table.caption for table in found.tables if table.caption.startswith("Under dropout 0.5")]
    assert len(captions) == (dropout > 0)
    assert ("Under dropout 0.5" in found.verdict) == ("dropout" in found.data) == (dropout > 0)
    if dropout > 0:
        labels = [each["label"] for each in found.data["dropout"]["variances"]]
        assert labels == ["cvd 1", "cv 1", "ns 1", "exact", "cvd 2", "cv 2", "ns 2"]
        assert found.figures[-1].key == "dropout"
