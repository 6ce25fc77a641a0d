"""`sampled_start`: an epoch that needs neither `P X` nor histories. (`test_trainer.py` compares its steps with the
literal ones.)"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import cvgnn
from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.named.synthetic import generate, small_spec
from cvgnn.errors import CvgnnError
from cvgnn.nn import ControlVariate, exact_hidden
from cvgnn.training import Trainer
from cvgnn.training.guard import Guard
from cvgnn.training.trainer_builder import build_trainer

DENSE = generate(small_spec(600))
SPARSE = cvgnn.load("citeseer")
OPTIONS: dict[str, Any] = {"sampled_start": 3, "batch_size": 32, "seed": 2}


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("graph", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("options", [{}, {"layers": 3, "estimator": "cv", "model": "sage"}, {"feature_norm": "l2"}])
def test_p_x_is_computed_after_the_first_epoch(
    graph: Graph, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    original = cvgnn.training.trainer_builder.build_features

    def build(*args: Any, **kwargs: Any) -> Any:
        built.append(trainer.iterations)
        return original(*args, **kwargs)

    monkeypatch.setattr(cvgnn.training.trainer_builder, "build_features", build)
    trainer = build_trainer(graph, TrainConfig(**OPTIONS, **options))
    assert built == []
    steps = trainer.loader.steps_per_epoch
    trainer.train_epoch(1)
    assert built == [steps - 1]  # within the last step
    # Algorithm 1, line 2, at the weights that the start reached.
    assert isinstance(trainer.estimator, ControlVariate)
    hidden = exact_hidden(trainer.model, trainer.estimator.features, trainer.loader.sampler.propagation)
    for history, H in zip(trainer.estimator.histories, hidden, strict=True):
        torch.testing.assert_close(history.values, H, rtol=1e-5, atol=1e-6)
    assert all(torch.isfinite(torch.tensor([trainer.step(b) for b in trainer.loader.epoch(2)])))
    assert built == [steps - 1]


def test_with_all_neighbors_it_is_the_exact_run() -> None:
    graph = cvgnn.data.Graph(**{**vars(DENSE), "x": DENSE.x.double(), "validated": True})  # type: ignore[arg-type]
    options = {"epochs": 3, "estimator": "exact", "dropout": 0.3, "threads": 1}
    start, whole = (cvgnn.fit(graph, sampled_start=D, **options) for D in (-1, 0))
    assert [r.loss for r in start.records] == pytest.approx([r.loss for r in whole.records], rel=1e-10)


def test_a_run_is_resumed_at_any_step() -> None:
    config = TrainConfig(**OPTIONS, layers=3)

    def fresh(**options: Any) -> Trainer:
        return build_trainer(DENSE, config, **options)

    whole, steps = fresh(), fresh().loader.steps_per_epoch
    list(whole.epochs(2))
    assert steps > 3
    for stop in (1, steps - 1, steps, steps + 1):
        first, states = fresh(), []

        def keep(first: Trainer = first, stop: int = stop, states: list[Any] = states) -> None:
            if first.iterations == stop:
                states.append(copy.deepcopy(first.state_dict()))

        list(first.epochs(2, after_step=keep))
        second = fresh(initialize=False)
        second.load_state_dict(states[0])
        list(second.epochs(2))
        assert same(second.model, whole.model), stop
        assert all(
            torch.equal(a, b)
            for a, b in zip(second.estimator.buffers(), whole.estimator.buffers(), strict=True)
        ), stop  # fmt: skip


def test_a_folder_is_resumed_and_read(tmp_path: Path) -> None:
    whole = cvgnn.fit(DENSE, **OPTIONS, epochs=3)
    cvgnn.fit(DENSE, **OPTIONS, epochs=1, out=tmp_path / "run")
    again = cvgnn.fit(DENSE, **OPTIONS, epochs=3, resume=tmp_path / "run")
    assert same(again.model, whole.model)
    assert torch.equal(cvgnn.load_run(tmp_path / "run", DENSE).outputs(), whole.outputs())


def test_histories_are_filled_although_the_last_step_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = build_trainer(DENSE, TrainConfig(**OPTIONS, bad_step="skip"))
    steps, accepts = trainer.loader.steps_per_epoch, Guard.accepts
    seen: list[int] = []

    def refuse_the_last(guard: Guard, *args: Any) -> bool:
        seen.append(1)
        return len(seen) != steps and accepts(guard, *args)

    monkeypatch.setattr(Guard, "accepts", refuse_the_last)
    trainer.train_epoch(1)
    assert trainer.position.skipped == 1
    assert isinstance(trainer.estimator, ControlVariate)
    assert trainer.estimator.history(1).values.abs().sum() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampled_start": -2}, "sampled_start must be"),
        ({"sampled_start": 2.5}, "sampled_start must be"),
        ({"sampled_start": 2, "model": "gcnii"}, "sampled_start does not go with an input layer"),
        ({"sampled_start": 2, "input_layer": True}, "sampled_start does not go with an input layer"),
        ({"sampled_start": 2, "norm": "batch"}, "sampled_start does not go with norm='batch'"),
        ({"sampled_start": 2, "device": "cuda"}, "sampled_start does not go with device='cuda'"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
        TrainConfig(**options)
