"""A training that is looked at goes on as if it were not, and a run's checkpoint is taken up where it stands."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.data.named import load
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose import trainers
from cvgnn.lab.diagnose.gradient_errors import first_batch
from cvgnn.lab.diagnose.trainers import fresh_trainer, in_float64, recorded_settings, train_until, trainer_of_run
from cvgnn.nn import ControlVariate
from cvgnn.training import Trainer
from cvgnn.training.machine import estimate_memory
from cvgnn.training.run import train
from cvgnn.training.run_folder import RunFolder
from cvgnn.training.trainer_builder import build_trainer
from tests.build import graph_from_dense, random_adjacency

GRAPH = graph_from_dense(random_adjacency(24, mean_degree=4, weighted=False, seed=3))  # 12 training nodes
CONFIG = TrainConfig(hidden=4, batch_size=5, epochs=4, schedule="cosine", output="last")  # 3 steps an epoch


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.model.parameters()]


@pytest.mark.parametrize("steps", [(7,), (0, 3, 7), (1, 2, 3, 4, 5, 6, 7)])
def test_stops_do_not_change_the_training(steps: tuple[int, ...]) -> None:
    plain = build_trainer(GRAPH, CONFIG)
    for epoch in (1, 2, 3):
        if epoch < 3:
            plain.train_epoch(epoch)
    first = next(iter(plain.loader.epoch(3)))
    for group in plain.optimizer.param_groups:
        assert plain.schedule is not None
        group["lr"] = CONFIG.lr * plain.schedule(3)
    plain.step(first)

    watched = fresh_trainer(GRAPH, CONFIG)
    assert list(train_until(watched, steps)) == list(steps)
    assert watched.iterations == 7
    assert all(torch.equal(a, b) for a, b in zip(weights(plain), weights(watched), strict=True))
    assert list(train_until(watched, [2, 1])) == [1, 2]  # from here, in the order of time
    assert watched.iterations == 9


def test_wrong_steps() -> None:
    with pytest.raises(CvgnnError, match="steps is empty"):
        list(train_until(fresh_trainer(GRAPH, CONFIG), []))
    with pytest.raises(CvgnnError, match="steps must be a whole number of at least 0, not -1"):
        list(train_until(fresh_trainer(GRAPH, CONFIG), [-1]))


def test_batches_for_measuring_are_no_batches_of_training() -> None:
    loader = fresh_trainer(GRAPH, CONFIG).loader
    trained = [ids.tolist() for epoch in range(1, 30) for ids in loader.epoch_ids(epoch)]
    drawn = [first_batch(loader, b).tolist() for b in range(20)]
    assert all(len(ids) == 5 and ids not in trained for ids in drawn)


def run_in(folder: Path, **options: object) -> tuple[TrainConfig, Path]:
    config = TrainConfig(**{"hidden": 4, "batch_size": 30, "epochs": 2, "seed": 3, **options})
    train(load("citeseer"), config, folder=RunFolder(folder), source=GraphSource())
    return config, folder


@pytest.mark.parametrize(("optimizer", "history_dtype"), [("adam", "float32"), ("amsgrad", "bfloat16")])
def test_a_runs_checkpoint_in_float64(tmp_path: Path, optimizer: str, history_dtype: str) -> None:
    config, folder = run_in(tmp_path / "a", optimizer=optimizer, history_dtype=history_dtype, dropout=0.0)
    trainer = trainer_of_run(folder, load("citeseer"))
    plain = build_trainer(load("citeseer"), config)
    for epoch in (1, 2):
        plain.train_epoch(epoch)
    assert trainer.iterations == plain.iterations == 8
    for a, b in zip(weights(trainer), weights(plain), strict=True):
        assert a.dtype == torch.float64
        assert torch.equal(a, b.double())
    for est in (trainer.estimator, plain.estimator):
        assert isinstance(est, ControlVariate)
    for name, tensor in trainer.estimator.state_dict().items():
        assert torch.equal(tensor, plain.estimator.state_dict()[name].to(tensor.dtype)), name
    plain.train_epoch(3)
    assert list(train_until(trainer, [4])) == [4]
    for a, b in zip(weights(trainer), weights(plain), strict=True):
        torch.testing.assert_close(a, b.double(), rtol=1e-3, atol=1e-5)


def test_what_is_recorded_of_a_run(tmp_path: Path) -> None:
    config, folder = run_in(tmp_path / "a")
    other = dataclasses.replace(config, batch_size=7, seed=9)
    found = recorded_settings(other, folder)
    assert (found["from_run"], found["batch_size"], found["seed"]) == (True, 7, 9)
    assert found["trained_as"] == config.to_dict()
    assert recorded_settings(other, None)["trained_as"] == other.to_dict()


def test_what_does_not_fit_into_memory_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, config = load("citeseer"), TrainConfig(hidden=64)
    doubled = in_float64(graph)
    whole = estimate_memory(doubled, dataclasses.replace(config, estimator="exact", batch_size=120))["a batch"]
    needed = sum(({**estimate_memory(doubled, config), "a batch": whole}).values())
    monkeypatch.setattr(trainers, "available_memory", lambda: needed)
    fresh_trainer(graph, config)
    monkeypatch.setattr(trainers, "available_memory", lambda: needed - 1)
    monkeypatch.setattr(trainers, "build_trainer", lambda *args: pytest.fail("it was built"))
    with pytest.raises(CvgnnError, match=r"iB of memory beside the graph, and .* free; a smaller hidden than 64 takes"):
        fresh_trainer(graph, config)


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    _, folder = run_in(tmp_path / "a")
    with pytest.raises(CvgnnError, match="does not fit the graph"):
        trainer_of_run(folder, GRAPH)
    with pytest.raises(CvgnnError, match=r"config\.json is missing"):
        trainer_of_run(tmp_path / "nothing", GRAPH)
    for checkpoint in (folder / "checkpoints").iterdir():
        checkpoint.rename(tmp_path / checkpoint.name)
    with pytest.raises(CvgnnError, match="holds no checkpoint; train with cvgnn train --out"):
        trainer_of_run(folder, load("citeseer"))


def test_float64_once_is_enough() -> None:
    graph = in_float64(load("citeseer"))
    assert in_float64(graph) is graph
    assert in_float64(GRAPH) is GRAPH


@pytest.mark.parametrize(
    "options", [{"class_weight": "balanced"}, {"loss": "custom:focal"}, {"model": "custom:Mine"}], ids=str
)
def test_what_is_not_measured_is_refused(options: dict[str, str]) -> None:
    """The gradients of a diagnosis are those of the cross entropy and of built-in networks."""
    with pytest.raises(CvgnnError, match=f"diagnose cannot measure {next(iter(options))}"):
        fresh_trainer(GRAPH, dataclasses.replace(CONFIG, **options))
