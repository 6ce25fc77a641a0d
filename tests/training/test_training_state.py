"""A run that was stopped anywhere, saved, read and gone on with is, to the bit, the run that nobody stopped."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import CvgnnError
from cvgnn.optim import FORMS, OPTIMIZERS
from cvgnn.sampling import loader
from cvgnn.training import EpochRecord, Trainer, restore_trainer, trainer_state
from cvgnn.training.checkpoint import Checkpoints
from cvgnn.training.machine import thread_count
from cvgnn.training.run_folder import as_row, from_row
from cvgnn.training.trainer_builder import build_trainer
from tests.data.store.cases import make_graph

EPOCHS, STEPS = 4, 4
BASE: dict[str, Any] = {
    "hidden": 5, "batch_size": 6, "layers": 2, "norm": "none", "dropout": 0.0, "num_neighbors": 2, "epochs": EPOCHS,
    "lr": 0.02, "weight_decay": 0.01, "seed": 3,
}  # fmt: skip

VARIANTS: dict[str, dict[str, Any]] = {
    "cvd": {},
    "cvd, dropout, half the control, average of the weights": {"dropout": 0.5, "control": 0.5, "ema": 0.9},
    "cv": {"estimator": "cv"},
    "cv, 3 layers, LayerNorm, dropout": {"layers": 3, "norm": "layer", "dropout": 0.5},
    "cv, bfloat16, replacement, tau": {"history_dtype": "bfloat16", "batches": "replacement", "output": "tau"},
    "ns, 3 layers": {"layers": 3, "estimator": "ns", "eval_every": 3},
    "exact, float64": {"estimator": "exact", "kind": "float64"},
    "cv, 3 layers, float64, bfloat16, weighted": {"layers": 3, "kind": "float64 weighted", "history_dtype": "bfloat16"},
    "1 layer": {"layers": 1},
    "sage, BatchNorm, residual": {"model": "sage", "norm": "batch", "norm_every": 4, "residual": True, "dropout": 0.3},
    "gin, jumping knowledge": {"model": "gin", "norm": "layer", "jk": "concat", "activation": "elu"},
    "gcnii": {"model": "gcnii", "layers": 3, "dropout": 0.3},
    "features and histories in bfloat16": {"feature_dtype": "bfloat16", "history_dtype": "bfloat16", "dropout": 0.5},
    "inductive, BatchNorm, dropout": {"inductive": True, "norm": "batch", "norm_every": 3, "dropout": 0.5},
    "sparse features, no bias, clipped": {"kind": "sparse", "bias": False, "clip_norm": 0.1},
}
# Before the first step, within epochs, after the last step of one but before its evaluation, and between epochs.
STOPS: list[tuple[str, int]] = [
    ("step", 0),
    ("step", 1),
    ("step", 4),
    ("epoch", 1),
    ("step", 6),
    ("epoch", 3),
    ("step", 15),
]

Factory = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


@cache
def graph_of(kind: str) -> Graph:
    kinds: dict[str, dict[str, Any]] = {
        "dense": {},
        "sparse": {"sparse": True},
        "float64": {"dtype": torch.float64},
        "float64 weighted": {"dtype": torch.float64, "weighted": True},
    }
    return make_graph(n=60, **kinds[kind])


def build(options: dict[str, Any], *, initialize: bool = True, factory: Factory | None = None) -> Trainer:
    options = {**BASE, **options}
    graph = graph_of(options.pop("kind", "dense"))
    return build_trainer(graph, TrainConfig(**options), initialize=initialize, optimizer_factory=factory)


class Stop(Exception):
    """Raised in the middle of an epoch."""


def run(trainer: Trainer, records: list[EpochRecord], *, eval_every: int, stop: tuple[str, int] | None = None) -> None:
    """Train to the end, or until so many steps or epochs in all are done."""
    kind, number = stop or ("", -1)

    def after_step() -> None:
        if kind == "step" and trainer.iterations == number:
            raise Stop

    if (kind, number) == ("step", 0):
        return
    try:
        for record in trainer.epochs(EPOCHS, eval_every=eval_every, after_step=after_step):
            records.append(record)
            if kind == "epoch" and record.epoch == number:
                return
    except Stop:
        pass


def through_disk(
    trainer: Trainer, records: list[EpochRecord], folder: Path, new: Trainer
) -> tuple[Trainer, list[EpochRecord]]:
    """Save the state, and put it into `new`."""
    tensors, numbers = trainer_state(trainer)
    Checkpoints(folder).save(tensors, {"trainer": numbers, "records": [as_row(r) for r in records]})
    found = Checkpoints(folder).newest()
    assert found is not None
    restore_trainer(new, found.tensors, found.body["trainer"])
    return new, [from_row(row) for row in found.body["records"]]


def bits(tensor: Tensor) -> tuple[object, ...]:
    raw = bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
    return tensor.dtype, tuple(tensor.shape), raw


def everything(trainer: Trainer, records: list[EpochRecord]) -> dict[str, Any]:
    """All that a run has come to, to the bit, without the clock's part; not by way of `trainer_state`."""
    tensors = {f"model {name}": bits(t) for name, t in trainer.model.state_dict().items()}
    tensors |= {f"estimator {name}": bits(t) for name, t in trainer.estimator.state_dict().items()}
    for i, parameter in enumerate(trainer.model.parameters()):
        for key, value in trainer.optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer {i} {key}"] = bits(value) if isinstance(value, Tensor) else (type(value), value)
    kept = [trainer.best.weights, None if trainer.tau is None else trainer.tau.weights]
    for which, weights in zip(("best", "tau"), kept, strict=True):
        tensors |= {f"{which} {name}": bits(t) for name, t in (weights or {}).items()}
    return tensors | {
        "records": [dataclasses.replace(r, train_seconds=0.0, eval_seconds=0.0) for r in records],
        "iterations": trainer.iterations,
        "position": dataclasses.replace(trainer.position, seconds=0.0),
        "best": (trainer.best.epoch, trainer.best.score),
        "tau": None if trainer.tau is None else trainer.tau.tau,
    }


def compare(
    options: dict[str, Any], tmp_path: Path, stops: list[tuple[str, int]], factory: Factory | None = None
) -> dict[str, Any]:
    """The run without a stop against those with one."""
    every = options.get("eval_every", 1)
    calm, records = build(options, factory=factory), []  # type: ignore[var-annotated]
    run(calm, records, eval_every=every)
    assert calm.loader.steps_per_epoch == STEPS
    expected = everything(calm, records)
    for kind, number in stops:
        trainer, records = build(options, factory=factory), []
        run(trainer, records, eval_every=every, stop=(kind, number))
        assert trainer.iterations == (number if kind == "step" else STEPS * number)
        new = build(options, initialize=False, factory=factory)
        new, records = through_disk(trainer, records, tmp_path / f"{kind} {number}", new)
        del trainer
        run(new, records, eval_every=every)
        found = everything(new, records)
        assert found.keys() == expected.keys()
        assert [name for name in found if found[name] != expected[name]] == [], f"stopped at {kind} {number}"
    return expected


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_stopped_run_ends_as_the_one_that_was_not(optimizer: str, form: str, variant: str, tmp_path: Path) -> None:
    """Each pair of optimizer and variant with some of the stops; all stops occur with each variant."""
    place = (OPTIMIZERS.index(optimizer) + FORMS.index(form)) % len(STOPS)
    stops = [STOPS[place], STOPS[(place + 3) % len(STOPS)]]
    with thread_count(1):
        compare({**VARIANTS[variant], "optimizer": optimizer, "form": form}, tmp_path, stops)


@pytest.mark.parametrize("variant", ["cv, 3 layers, LayerNorm, dropout", "cv, bfloat16, replacement, tau"])
def test_two_threads(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them draws a batch ahead, which a stop then throws away."""
    monkeypatch.setattr(loader, "WORTH_DRAWING_AHEAD", 0)
    with thread_count(2):
        compare(VARIANTS[variant], tmp_path, STOPS)


@pytest.mark.parametrize("variant", ["cv, 3 layers, LayerNorm, dropout", "cv, bfloat16, replacement, tau"])
def test_drawing_ahead_changes_nothing(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "WORTH_DRAWING_AHEAD", 0)
    with thread_count(1):
        monkeypatch.setattr(loader, "num_threads", lambda: 2)
        ahead = compare(VARIANTS[variant], tmp_path, STOPS[2:5])
        monkeypatch.setattr(loader, "num_threads", lambda: 1)
        assert compare(VARIANTS[variant], tmp_path, []) == ahead


def test_stopped_after_every_step(tmp_path: Path) -> None:
    options = {**VARIANTS["cv, bfloat16, replacement, tau"], "optimizer": "adagrad", "form": "paper"}
    calm, expected = build(options), []  # type: ignore[var-annotated]
    run(calm, expected, eval_every=1)
    trainer, records = build(options), []  # type: ignore[var-annotated]
    for step in range(1, EPOCHS * STEPS + 1):
        run(trainer, records, eval_every=1, stop=("step", step))
        trainer, records = through_disk(trainer, records, tmp_path, build(options, initialize=False))
    run(trainer, records, eval_every=1)
    assert everything(trainer, records) == everything(calm, expected)


def test_skipped_steps_are_remembered(tmp_path: Path) -> None:
    """A count that a stop forgot would let a run that cannot go on begin again for ever."""

    def spoil(trainer: Trainer) -> Trainer:
        original = trainer._loss_and_gradient
        trainer._loss_and_gradient = lambda batch: math.nan if batch.step in (3, 4, 5, 9) else original(batch)  # type: ignore[method-assign]
        return trainer

    options, calm = {"bad_step": "skip"}, []  # type: ignore[var-annotated]
    undisturbed = spoil(build(options))
    run(undisturbed, calm, eval_every=1)
    assert [r.skipped_steps for r in calm] == [2, 1, 1, 0]
    for stop in [("step", 3), ("step", 4), ("epoch", 1), ("step", 5)]:
        trainer, records = spoil(build(options)), []  # type: ignore[var-annotated]
        run(trainer, records, eval_every=1, stop=stop)
        in_a_row = trainer.position.skipped_in_a_row
        assert in_a_row == {("step", 3): 1, ("step", 4): 2, ("epoch", 1): 2, ("step", 5): 3}[stop]
        new = spoil(build(options, initialize=False))
        new, records = through_disk(trainer, records, tmp_path / str(stop), new)
        assert new.position.skipped_in_a_row == in_a_row
        run(new, records, eval_every=1)
        assert everything(new, records) == everything(undisturbed, calm)


CUSTOM: dict[str, Factory] = {
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p),
    "AdamW": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam, not fused": lambda p: torch.optim.Adam(p, foreach=False),
    "two groups": lambda p: torch.optim.Adam([{"params": q, "lr": 0.01 * (i + 1)} for i, q in enumerate(p)]),
}


@pytest.mark.parametrize("name", CUSTOM)
def test_torchs_other_optimizers(name: str, tmp_path: Path) -> None:
    with thread_count(1):
        compare({"layers": 3}, tmp_path, [("step", 6), ("epoch", 2)], factory=CUSTOM[name])


def test_what_a_checkpoint_holds() -> None:
    trainer = build({"layers": 3, "output": "tau", "optimizer": "adagrad", "form": "paper"})
    records: list[EpochRecord] = []
    run(trainer, records, eval_every=1, stop=("step", 6))
    tensors, numbers = trainer_state(trainer)
    weights = [f"layers.{k}.{name}" for k in range(3) for name in ("weight", "bias")]
    assert tensors.keys() == {
        *(f"{kind}.{name}" for kind in ("model", "best", "tau") for name in weights),
        *(f"estimator.histories.{k}.{name}" for k in (0, 1) for name in ("values", "written")),
        *(f"optimizer.{i}.{name}" for i in range(6) for name in ("M", "V")),
    }
    assert numbers.keys() == {"iterations", "position", "best", "tau", "optimizer"}
    assert numbers["optimizer"] == {f"{i}.t": 6 for i in range(6)}
    assert numbers["position"]["steps"] == 2
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


def test_the_tensors_are_the_trainers_own() -> None:
    """Histories may be most of the memory: nothing is copied."""
    trainer = build({})
    run(trainer, [], eval_every=1, stop=("step", 2))
    tensors, _ = trainer_state(trainer)
    for k, history in enumerate(trainer.estimator.histories):  # type: ignore[attr-defined]
        assert tensors[f"estimator.histories.{k}.values"].data_ptr() == history.values.data_ptr()
    for name, parameter in trainer.model.named_parameters():
        assert tensors[f"model.{name}"].data_ptr() == parameter.data_ptr()
        assert not tensors[f"model.{name}"].requires_grad


def test_a_restored_trainer_shares_nothing_with_the_state() -> None:
    trainer, new = build({"output": "tau"}), build({"output": "tau"}, initialize=False)
    run(trainer, [], eval_every=1, stop=("step", 6))
    tensors, numbers = trainer_state(trainer)
    restore_trainer(new, tensors, numbers)
    before = everything(new, [])
    run(trainer, [], eval_every=1)
    assert everything(new, []) == before
    mine = {t.data_ptr() for t in trainer_state(new)[0].values()}
    assert not mine & {t.data_ptr() for t in tensors.values()}


def test_taking_the_state_changes_nothing() -> None:
    trainer, twin = build({}), build({})
    for each in (trainer, twin):
        run(each, [], eval_every=1, stop=("step", 5))
        if each is trainer:
            trainer_state(trainer)
        run(each, [], eval_every=1)
    assert everything(trainer, []) == everything(twin, [])


class Odd(torch.optim.SGD):
    """Remembers what no checkpoint can hold."""

    thing: object = [1.0]

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["odd"] = self.thing
        return super().step(closure)


@pytest.mark.parametrize("thing", [[1.0], {"a": 1}, (1, 2), object(), b"x", {1}], ids=lambda t: type(t).__name__)
def test_a_state_that_cannot_be_saved_is_refused(thing: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Odd, "thing", thing)
    trainer = build({}, factory=lambda p: Odd(p, lr=0.1))
    trainer_state(trainer)  # nothing is remembered yet
    run(trainer, [], eval_every=1, stop=("step", 1))
    with pytest.raises(
        CvgnnError, match=f"the optimizer keeps 'odd', a {type(thing).__name__}, which a checkpoint cannot hold"
    ):
        trainer_state(trainer)


@pytest.mark.parametrize("thing", [None, True, 3, 0.5, "text"], ids=repr)
def test_numbers_in_an_optimizers_state(thing: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Odd, "thing", thing)
    trainer, new = (build({}, factory=lambda p: Odd(p, lr=0.1)) for _ in range(2))
    run(trainer, [], eval_every=1, stop=("step", 1))
    through_disk(trainer, [], tmp_path, new)
    for p in new.model.parameters():
        found = new.optimizer.state[p]["odd"]
        assert (type(found), found) == (type(thing), thing)


# States that do not fit

OPTIONS: dict[str, Any] = {"layers": 3, "optimizer": "adagrad", "form": "paper", "output": "tau"}


@cache
def saved() -> tuple[dict[str, Tensor], dict[str, Any]]:
    trainer = build(OPTIONS)
    run(trainer, [], eval_every=1, stop=("step", 6))
    tensors, numbers = trainer_state(trainer)
    return {name: t.clone() for name, t in tensors.items()}, numbers


def restored(change: Callable[[dict[str, Tensor], dict[str, Any]], object], **options: Any) -> Trainer:
    tensors, numbers = saved()
    tensors, numbers = dict(tensors), copy.deepcopy(numbers)
    change(tensors, numbers)
    trainer = build({**OPTIONS, **options}, initialize=False)
    restore_trainer(trainer, tensors, numbers)
    return trainer


def test_without_a_change_it_fits() -> None:
    trainer = restored(lambda tensors, numbers: None)
    assert trainer.iterations == 6
    run(trainer, [], eval_every=1)


def put(**changes: Any) -> Callable[[dict[str, Tensor], dict[str, Any]], object]:
    return lambda tensors, numbers: numbers.update(changes)


def position(**changes: Any) -> Callable[[dict[str, Tensor], dict[str, Any]], object]:
    return lambda tensors, numbers: numbers["position"].update(changes)


def tensor(name: str, value: Tensor | None) -> Callable[[dict[str, Tensor], dict[str, Any]], object]:
    return lambda tensors, numbers: tensors.pop(name) if value is None else tensors.update({name: value})


W, V = "model.layers.0.weight", "optimizer.0.V"
REFUSED: dict[str, tuple[Callable[[dict[str, Tensor], dict[str, Any]], object], str]] = {
    "no weight": (tensor(W, None), f"the state lacks {W}"),
    "a weight of another shape": (tensor(W, torch.ones(5, 7)), rf"{W} is torch.float32 \[5, 7\] in the state, torch.float32 \[7, 5\] in this run"),
    "a weight of another dtype": (tensor(W, torch.ones(7, 5).double()), rf"{W} is torch.float64"),
    "a weight that would broadcast": (tensor(W, torch.ones(1, 5)), rf"{W} is torch.float32 \[1, 5\]"),
    "no best weight": (tensor("best.layers.1.bias", None), "the state lacks best.layers.1.bias"),
    "a best weight of another shape": (tensor("best.layers.1.bias", torch.ones(3)), "best.layers.1.bias is"),
    "no tau weight": (tensor("tau.layers.1.bias", None), "the state lacks tau.layers.1.bias"),
    "no history": (tensor("estimator.histories.0.values", None), "the state lacks estimator.histories.0.values"),
    "no ages": (tensor("estimator.histories.1.written", None), "the state lacks estimator.histories.1.written"),
    "a short history": (tensor("estimator.histories.0.values", torch.ones(59, 5)), r"estimator.histories.0.values is torch.float32 \[59, 5\] in the state, torch.float32 \[60, 5\] in this run"),
    "a history of another dtype": (tensor("estimator.histories.0.values", torch.ones(60, 5).bfloat16()), "estimator.histories.0.values is torch.bfloat16"),
    "ages as floats": (tensor("estimator.histories.0.written", torch.ones(60)), "estimator.histories.0.written is torch.float32"),
    "a history too many": (tensor("estimator.histories.2.values", torch.ones(60, 5)), "which this run does not have"),
    "a moment of another shape": (tensor(V, torch.ones(5, 7)), rf"{V} is torch.float32 \[5, 7\] in the state, torch.float32 \[7, 5\] in this run"),
    "a moment of whole numbers": (tensor(V, torch.ones(7, 5).long()), V),
    "no numbers for the optimizer": (put(optimizer=None), "the state holds no numbers of the optimizer"),
    "a list for the optimizer": (put(optimizer=[]), "the state holds no numbers of the optimizer"),
    "no iterations": (put(iterations=None), "the state's iterations is None, not a count"),
    "iterations below 0": (put(iterations=-1), "the state's iterations is -1"),
    "iterations as a float": (put(iterations=6.0), "the state's iterations is 6.0"),
    "iterations as a boolean": (put(iterations=True), "the state's iterations is True"),
    "no position": (put(position=None), "the state's position is incomplete"),
    "a position too short": (put(position={"epoch": 1}), "the state's position is incomplete"),
    "a position too long": (position(more=1), "the state's position is incomplete"),
    "epoch 0": (position(epoch=0), "the state's epoch is 0"),
    "epoch as text": (position(epoch="2"), "the state's epoch is '2'"),
    "steps below 0": (position(steps=-1), "the state's steps is -1"),
    "nodes as a float": (position(nodes=1.0), "the state's nodes is 1.0"),
    "a boolean in a row": (position(skipped_in_a_row=False), "the state's skipped_in_a_row is False"),
    "a loss as text": (position(loss_sum="1"), "the state's loss_sum is '1'"),
    "no seconds": (position(seconds=None), "the state's seconds is None"),
    "a best without score": (put(best={"epoch": 1}), "the state's best score is not a number"),
    "a best score as text": (put(best={"epoch": 1, "score": "1"}), "the state's best score is not a number"),
    "a best of no object": (put(best=[1, 0.5]), "the state's best score is not a number"),
    "a best without epoch": (put(best={"score": 0.5}), "the state's best epoch is None"),
    "no tau": (put(tau=None), "the state's tau is None"),
    "tau as text": (put(tau="1"), "the state's tau is '1'"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_state_that_does_not_fit_is_refused(
    change: Callable[[dict[str, Tensor], dict[str, Any]], object], sentence: str
) -> None:
    with pytest.raises(CvgnnError, match=sentence):
        restored(change)


UNNOTICED: dict[str, Callable[[dict[str, Tensor], dict[str, Any]], object]] = {
    "a moment is missing": tensor(V, None),
    "all moments of a parameter are missing": lambda t, n: [
        t.pop("optimizer.0.M"),
        t.pop(V),
        n["optimizer"].pop("0.t"),
    ],
    "a count is missing": lambda t, n: n["optimizer"].pop("0.t"),
    "a count is text": lambda t, n: n["optimizer"].update({"0.t": "6"}),
    "a moment that the optimizer does not have": tensor("optimizer.0.U", torch.ones(7, 5)),
    "moments of a parameter that is not there": tensor("optimizer.6.V", torch.ones(7, 5)),
    "a count of a parameter that is not there": lambda t, n: n["optimizer"].update({"6.t": 6}),
    "a moment of another dtype": tensor(V, torch.ones(7, 5).double()),
    "a moment that is one number": tensor(V, torch.tensor(1.0)),
    "a weight that the model does not have": tensor("model.layers.3.weight", torch.ones(1)),
    "something else altogether": tensor("other", torch.ones(1)),
    "a loss that is NaN": position(loss_sum=math.nan),
    "seconds below 0": position(seconds=-5.0),
    "more steps than an epoch has": position(steps=STEPS + 1),
    "steps that do not fit the iterations": put(iterations=3),
}


@pytest.mark.parametrize("change", UNNOTICED.values(), ids=UNNOTICED)
def test_a_state_with_a_right_checksum_that_no_run_would_write(
    change: Callable[[dict[str, Tensor], dict[str, Any]], object],
) -> None:
    with pytest.raises(CvgnnError):
        restored(change)


@pytest.mark.parametrize("numbers", [None, [], "x", 1])
def test_a_state_without_numbers(numbers: Any) -> None:
    with pytest.raises(CvgnnError, match="the state has no numbers"):
        restore_trainer(build(OPTIONS, initialize=False), saved()[0], numbers)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": 6}, "model.layers.0.bias is torch.float32|model.layers.0.weight is torch.float32"),
        ({"layers": 2}, "model.layers.1.weight is torch.float32"),
        ({"norm": "layer"}, "the state lacks model.layers.0.norm.weight"),
        ({"estimator": "ns"}, "the state holds 'estimator.histories.0.values', which this run does not have"),
        (
            {"history_dtype": "bfloat16"},
            "estimator.histories.0.values is torch.float32 .* in the state, torch.bfloat16",
        ),
        ({"kind": "float64"}, "torch.float64 .* in this run"),
    ],
    ids=str,
)
def test_a_trainer_of_another_run_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CvgnnError, match=sentence):
        restored(lambda tensors, numbers: None, **options)


def test_tensors_are_read_one_by_one() -> None:
    """A mapping that loads lazily is asked for each of them once, so that nothing is held twice."""
    from collections.abc import Iterator, Mapping

    tensors, numbers = saved()
    asked: list[str] = []

    class Lazy(Mapping[str, Tensor]):
        def __getitem__(self, name: str) -> Tensor:
            asked.append(name)
            return tensors[name]

        def __contains__(self, name: object) -> bool:
            return name in tensors

        def __iter__(self) -> Iterator[str]:
            return iter(tensors)

        def __len__(self) -> int:
            return len(tensors)

    restore_trainer(build(OPTIONS, initialize=False), Lazy(), numbers)
    assert sorted(asked) == sorted(tensors)
