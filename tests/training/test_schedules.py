"""Learning rates along the epochs, and runs that end early; both as functions of the epoch, so that resuming is exact."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
import torch

from cvgnn.api import fit
from cvgnn.config import CheckpointPlan, GraphSource, TrainConfig
from cvgnn.data.named import load
from cvgnn.errors import CvgnnError
from cvgnn.training import EpochRecord
from cvgnn.training.run import train
from cvgnn.training.run_folder import RunFolder
from cvgnn.training.schedules import make_schedule
from cvgnn.training.trainer_builder import build_trainer
from tests.build import graph_from_dense, random_adjacency

GRAPH = graph_from_dense(random_adjacency(18, mean_degree=4, weighted=False, seed=5))


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_a_schedule_falls_from_one_towards_zero(name: str) -> None:
    factor = make_schedule(name, epochs=10)  # type: ignore[arg-type]
    assert factor is not None
    values = [factor(epoch) for epoch in range(1, 12)]
    assert values[0] == 1.0
    assert all(a > b for a, b in itertools.pairwise(values))
    assert values[10] == pytest.approx(0.0, abs=1e-15)
    assert values[5] == pytest.approx(0.5)


def test_an_unknown_schedule_is_refused() -> None:
    assert make_schedule("constant", epochs=3) is None
    with pytest.raises(CvgnnError, match="unknown schedule 'step'"):
        make_schedule("step", epochs=3)  # type: ignore[arg-type]


def test_the_optimizer_gets_the_rate_of_the_epoch() -> None:
    """Four epochs of SGD at a falling rate are four epochs at the rates written down."""
    options = {"optimizer": "sgd", "lr": 0.5, "batch_size": 4, "dropout": 0.0, "hidden": 4}
    scheduled = build_trainer(GRAPH, TrainConfig(epochs=4, schedule="linear", **options))
    twin = build_trainer(GRAPH, TrainConfig(epochs=4, **options))
    for epoch, rate in enumerate((0.5, 0.375, 0.25, 0.125), start=1):
        twin.optimizer.param_groups[0]["lr"] = rate
        twin.train_epoch(epoch)
        scheduled.train_epoch(epoch)
        assert scheduled.optimizer.param_groups[0]["lr"] == rate
    for mine, theirs in zip(scheduled.model.parameters(), twin.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def accuracies(records: list[EpochRecord]) -> list[float]:
    return [value for r in records if (value := r.metrics["val_accuracy"]) is not None]


def test_patience_ends_a_run_and_changes_nothing_before() -> None:
    options = {"hidden": 4, "batch_size": 4, "lr": 0.05, "optimizer": "sgd", "seed": 3}
    whole = fit(GRAPH, epochs=60, **options)
    early = fit(GRAPH, epochs=60, patience=7, **options)
    done = len(early.records)
    assert done < 60
    assert accuracies(early.records) == accuracies(whole.records)[:done]
    best = early.result["best_epoch"]
    assert done - best == 7
    assert max(accuracies(early.records)[best:]) <= early.result["val_accuracy"]
    assert early.result["epochs"] == done


def test_patience_counts_epochs_and_looks_where_it_is_evaluated() -> None:
    run = fit(GRAPH, epochs=60, patience=7, eval_every=4, hidden=4, batch_size=4, lr=0.05, optimizer="sgd", seed=3)
    done = len(run.records)
    assert done < 60
    assert done % 4 == 0
    assert 7 <= done - run.result["best_epoch"] < 11


def test_patience_needs_validation_nodes() -> None:
    blind = dataclasses.replace(GRAPH, val_ids=GRAPH.val_ids[:0])
    with pytest.raises(CvgnnError, match="patience needs validation nodes"):
        fit(blind, output="last", patience=3)


def test_a_run_that_stopped_early_is_finished_when_resumed(tmp_path: Path) -> None:
    graph, source = load("citeseer"), GraphSource()
    config = TrainConfig(epochs=200, patience=3, hidden=8, schedule="cosine", feature_norm="row", input_dropout=0.5)
    plan = CheckpointPlan(checkpoint_epochs=2)
    first = train(graph, config, folder=RunFolder(tmp_path / "run"), source=source, plan=plan)
    assert len(first.records) < 200
    weights = (tmp_path / "run" / "weights.safetensors").read_bytes()
    again = RunFolder(tmp_path / "run", resume=True)
    second = train(graph, config, folder=again, source=source, plan=plan)
    assert [r.epoch for r in second.records] == [r.epoch for r in first.records]
    assert (tmp_path / "run" / "weights.safetensors").read_bytes() == weights
    longer = TrainConfig(**{**config.to_dict(), "epochs": 300})
    with pytest.raises(CvgnnError, match=r"schedule was .cosine over 200 epochs. and is"):
        train(graph, longer, folder=again, source=source, plan=plan)
