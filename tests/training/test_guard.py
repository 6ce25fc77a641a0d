"""What is looked at before a step: bad numbers reach neither weights nor histories, and the first one is named."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.nn import ControlVariate
from cvgnn.sampling import Batch
from cvgnn.training import Diverged, Guard, Trainer, trainer_state
from cvgnn.training.guard import first_bad, gradient_norm, weights_are_finite
from cvgnn.training.trainer_builder import build_trainer
from tests.data.store.cases import make_graph

BAD = [math.nan, math.inf, -math.inf]
GRAPHS = {"dense": make_graph(n=60), "sparse": make_graph(n=60, sparse=True)}
OPTIONS: dict[str, Any] = {
    "hidden": 6, "batch_size": 6, "epochs": 3, "layers": 3, "norm": "layer", "dropout": 0.0, "num_neighbors": 2,
    "threads": 1, "optimizer": "amsgrad", "output": "tau",
}  # fmt: skip


def make_trainer(*, graph: str = "dense", most_skipped: int | None = None, **options: Any) -> Trainer:
    trainer = build_trainer(GRAPHS[graph], TrainConfig(**{**OPTIONS, **options}))
    if most_skipped is not None:
        trainer.guard = Guard(skip_bad=trainer.guard.skip_bad, most_skipped=most_skipped)
    return trainer


def begun(**options: Any) -> tuple[Trainer, Batch]:
    """A trainer after two steps, and the batch of its third."""
    trainer = make_trainer(**options)
    batches = list(trainer.loader.epoch(1))
    for batch in batches[:2]:
        trainer.step(batch)
    return trainer, batches[2]


def state_of(trainer: Trainer) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Everything that a checkpoint would hold, to the bit."""
    tensors, numbers = trainer_state(trainer)
    contents = {
        name: bytes(t.clone().contiguous().reshape(-1).view(torch.uint8).numpy()) for name, t in tensors.items()
    }
    return contents, copy.deepcopy(numbers)


def parameters(*gradients: Any, dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    """Parameters with those gradients; None for none."""
    made = []
    for gradient in gradients:
        value = torch.as_tensor([0.0] if gradient is None else gradient, dtype=dtype)
        made.append(nn.Parameter(torch.zeros_like(value)))
        made[-1].grad = None if gradient is None else value.clone()
    return made


# Guard by itself


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_loss_that_is_not_finite(bad: float) -> None:
    assert Guard().accepts(0.5, parameters([1.0]))
    assert not Guard().accepts(bad, parameters([1.0]))
    assert not Guard(clip_norm=1.0).accepts(bad, parameters([1.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bad", BAD, ids=str)
def test_one_entry_of_a_gradient_that_is_not_finite(bad: float, dtype: torch.dtype) -> None:
    for clip_norm in (None, 0.1):
        for place in range(5):
            values = [[1.0, 2.0, 3.0], [4.0, 5.0]]
            values[place // 3][place % 3] = bad
            given = parameters(*values, dtype=dtype)
            before = [p.grad.clone() for p in given if p.grad is not None]
            assert not Guard(clip_norm=clip_norm).accepts(0.5, given)
            for p, gradient in zip(given, before, strict=True):  # and nothing was clipped
                assert p.grad is not None
                torch.testing.assert_close(p.grad, gradient, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("largest", [1e19, 1e25, 3.4e38])
def test_squares_that_overflow_are_no_bad_gradient(largest: float) -> None:
    given = parameters([largest, -largest], [[1.0]], [0.0])
    assert Guard().accepts(0.5, given)
    assert gradient_norm([p.grad for p in given if p.grad is not None]) == pytest.approx(
        math.sqrt(2) * largest, rel=1e-6
    )
    assert Guard(clip_norm=1.0).accepts(0.5, given)
    clipped = torch.cat([p.grad.flatten() for p in given if p.grad is not None])
    assert clipped.double().norm().item() == pytest.approx(1.0, rel=1e-5)


def test_squares_that_overflow_in_float64() -> None:
    assert Guard().accepts(0.5, parameters([1e200, -1e200], dtype=torch.float64))


def test_no_gradients_at_all() -> None:
    assert Guard().accepts(0.5, [])
    assert Guard(clip_norm=1.0).accepts(0.5, parameters(None))
    assert gradient_norm([]) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("clip_norm", [0.01, 1.0, 5.0, 1e3])
def test_clipping_is_torchs(clip_norm: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 7), (7,), (), (7, 3)]
    values = [100 * torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    mine, theirs = parameters(*values, None, dtype=dtype), parameters(*values, None, dtype=dtype)
    assert Guard(clip_norm=clip_norm).accepts(0.5, mine)
    norm = nn.utils.clip_grad_norm_(theirs, clip_norm)
    assert float(norm) > 1.0
    assert gradient_norm(values) == pytest.approx(float(norm), rel=1e-6)
    for a, b in zip(mine, theirs, strict=True):
        if a.grad is None:
            assert b.grad is None
        else:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-6, atol=0)
    clipped = gradient_norm([p.grad for p in mine if p.grad is not None])
    assert clipped == pytest.approx(min(clip_norm, float(norm)), rel=1e-6)


@pytest.mark.parametrize("clip_norm", [None, 5.0, 5.1, 1e30])
def test_what_is_below_the_limit_is_left_as_it_is(clip_norm: float | None) -> None:
    given = parameters([3.0], [[4.0]])
    gradients = [p.grad for p in given]
    assert Guard(clip_norm=clip_norm).accepts(0.5, given)
    assert [p.grad is g for p, g in zip(given, gradients, strict=True)] == [True, True]
    assert [p.grad.item() for p in given if p.grad is not None] == [3.0, 4.0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"clip_norm": 0.0}, "clip_norm must be a number above 0, not 0.0"),
        ({"clip_norm": -1.0}, "clip_norm must be a number above 0, not -1.0"),
        ({"clip_norm": math.nan}, "clip_norm must be a number above 0, not nan"),
        ({"clip_norm": math.inf}, "clip_norm must be a number above 0, not inf"),
        ({"clip_norm": True}, "clip_norm must be a number above 0, not True"),
        ({"clip_norm": "1"}, "clip_norm must be a number above 0, not '1'"),
        ({"most_skipped": 0}, "most_skipped must be a whole number of at least 1, not 0"),
        ({"most_skipped": 1.5}, "most_skipped must be a whole number of at least 1, not 1.5"),
    ],
    ids=str,
)
def test_refused_rules(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CvgnnError, match=sentence):
        Guard(**options)


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_finite_weights(bad: float) -> None:
    model = make_trainer().model
    assert weights_are_finite(model)
    for parameter in model.parameters():
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter.view(-1)[-1] = bad
        assert not weights_are_finite(model)
        with torch.no_grad():
            parameter.copy_(before)
    assert weights_are_finite(model)


def test_clipping_in_training_is_a_step_with_torchs_clipped_gradient() -> None:
    """With SGD, whose step shows the gradient's length."""
    mine, theirs = (make_trainer(optimizer="sgd", lr=1.0, clip_norm=c) for c in (0.05, None))
    start = mine.output("last")
    batch = next(iter(mine.loader.epoch(1)))
    mine.step(batch)
    loss = theirs._loss_and_gradient(batch)
    assert math.isfinite(loss)
    assert float(nn.utils.clip_grad_norm_(theirs.model.parameters(), 0.05)) > 0.1
    theirs.optimizer.step()
    for name, weight in theirs.output("last").items():
        torch.testing.assert_close(mine.output("last")[name], weight, rtol=1e-5, atol=1e-7)
        assert not torch.equal(weight, start[name])


# Diverged


def test_the_sentence() -> None:
    error = Diverged(7, "H^(1) has 2 of 8 entries that are infinite or NaN", [3, 1, 4])
    assert (error.step, error.ids) == (7, [3, 1, 4])
    assert error.what == "H^(1) has 2 of 8 entries that are infinite or NaN"
    assert str(error) == (
        "training diverged at step 7 on a batch of 3 nodes (3, 1, 4): H^(1) has 2 of 8 entries that are infinite or "
        "NaN; try a smaller lr, clip_norm=1, or bad_step='skip'"
    )
    assert isinstance(error, CvgnnError)


def test_a_long_batch_is_shortened() -> None:
    assert "on a batch of 9 nodes (0, 1, 2, 3, 4, 5, 6, 7, ...):" in str(Diverged(1, "x", list(range(9))))
    assert "on a batch of 8 nodes (0, 1, 2, 3, 4, 5, 6, 7):" in str(Diverged(1, "x", list(range(8))))
    assert str(Diverged(1, "x", [])).startswith("training diverged at step 1: x;")


# The first bad tensor


def refused(trainer: Trainer, batch: Batch) -> str:
    """What the step says, having changed nothing."""
    before = state_of(trainer)
    with pytest.raises(Diverged) as caught:
        trainer.step(batch)
    assert state_of(trainer) == before
    assert (caught.value.step, caught.value.ids) == (batch.step, batch.ids.tolist())
    return caught.value.what


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_bad_dense_features(bad: float) -> None:
    trainer, batch = begun()
    PX: Tensor = trainer.estimator.features.PX  # type: ignore[attr-defined]
    PX[batch.inputs[1], 2] = bad
    rows = len(batch.inputs)
    assert refused(trainer, batch) == (
        f"P X on the batch (the features) has 1 of {rows * 7} entries that are infinite or NaN"
    )


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_bad_sparse_features(bad: float) -> None:
    trainer, batch = begun(graph="sparse")
    PX = trainer.estimator.features.PX  # type: ignore[attr-defined]
    PX.values[PX.indptr[batch.inputs[1]]] = bad
    what = refused(trainer, batch)
    assert what.startswith("P X on the batch (the features), summed over each row, has 1 of ")


@pytest.mark.parametrize(
    "graph",
    [
        "dense",
        "sparse",
    ],
)
def test_bad_features_elsewhere_are_not_blamed(graph: str) -> None:
    trainer, batch = begun(graph=graph)
    elsewhere = next(v for v in range(60) if v not in batch.inputs.tolist())
    PX = trainer.estimator.features.PX  # type: ignore[attr-defined]
    if graph == "dense":
        PX[elsewhere] = math.nan
    else:
        PX.values[PX.indptr[elsewhere]] = math.nan
    with torch.no_grad():
        trainer.model.layer(2).weight[0, 0] = math.nan
    assert refused(trainer, batch).startswith("the weight layers.2.weight, before this step, has 1 of ")


WEIGHTS = [name for name, _ in make_trainer().model.named_parameters()]


@pytest.mark.parametrize("bad", [math.nan, math.inf], ids=str)
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_bad_weight(name: str, bad: float) -> None:
    trainer, batch = begun()
    weight = dict(trainer.model.named_parameters())[name]
    with torch.no_grad():
        weight.view(-1)[0] = bad
    assert refused(trainer, batch) == (
        f"the weight {name}, before this step, has 1 of {weight.numel()} entries that are infinite or NaN"
    )


@pytest.mark.parametrize("norm", ["layer", "none"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_every_depth_is_looked_through(layers: int, norm: str) -> None:
    trainer, batch = begun(layers=layers, norm=norm, estimator="ns", bias=False)
    last = trainer.model.layer(layers - 1).weight
    with torch.no_grad():
        last[0, 0] = math.nan
    assert refused(trainer, batch).startswith(f"the weight layers.{layers - 1}.weight, before this step, has 1 of ")


@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_bad_history_row(k: int, bad: float, storage: str) -> None:
    trainer, batch = begun(history_dtype=storage)
    estimator, remainder = trainer.estimator, batch.block(k).remainder
    assert isinstance(estimator, ControlVariate)
    assert remainder is not None
    assert remainder.weight is not None
    used = int(remainder.indices[remainder.weight.abs().argmax()])
    estimator.history(k).values[used] = bad
    what = refused(trainer, batch)
    assert what.startswith(f"the history term of H^({k}) has ")
    assert what.endswith("entries that are infinite or NaN")


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_bad_gradient(name: str) -> None:
    """Of a model with a hook, which autograd differentiates."""
    trainer, batch = begun()
    weight = dict(trainer.model.named_parameters())[name]
    weight.register_hook(lambda gradient: gradient * math.nan)
    n = weight.numel()
    assert refused(trainer, batch) == f"the gradient of {name} has {n} of {n} entries that are infinite or NaN"


def test_the_last_gradient_is_the_first_that_was_computed() -> None:
    trainer, batch = begun()
    for parameter in trainer.model.parameters():
        parameter.register_hook(lambda gradient: gradient * math.inf)
    assert refused(trainer, batch).startswith("the gradient of layers.2.bias has ")


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_bad_loss(bad: float) -> None:
    trainer, batch = begun()
    trainer.task.function = lambda Z, y: cross_entropy(Z, y) * bad
    assert refused(trainer, batch) == f"the loss is {bad}, although the logits are finite"


@pytest.mark.parametrize("norm", ["layer", "none"])
def test_an_overflow_is_found_where_it_happens(norm: str) -> None:
    trainer, batch = begun(norm=norm, estimator="ns")
    PX: Tensor = trainer.estimator.features.PX  # type: ignore[attr-defined]
    PX.abs_().mul_(1e30)
    with torch.no_grad():
        trainer.model.layer(0).weight.fill_(1e10)
    n = len(batch.inputs) * 6
    assert refused(trainer, batch) == f"A W of layer^(1), has {n} of {n} entries that are infinite or NaN"


def test_an_overflow_of_the_logits() -> None:
    trainer, batch = begun(estimator="ns")
    with torch.no_grad():
        trainer.model.layer(1).norm.weight.fill_(1e30)  # type: ignore[union-attr]
        trainer.model.layer(2).weight.fill_(1e30)
    assert refused(trainer, batch).startswith("the logits, Z^(3), has ")


def test_nothing_is_wrong() -> None:
    trainer, batch = begun()
    trainer._loss_and_gradient(batch)
    assert first_bad(trainer.model, batch, trainer.estimator, 0.5) == "a loss or a gradient is infinite or NaN"


def test_after_a_refused_step_training_can_go_on() -> None:
    """The step that was refused leaves nothing behind that a later one would see."""
    calm, disturbed = make_trainer(), make_trainer()
    for batch in calm.loader.epoch(1):
        calm.step(batch)
    for number, batch in enumerate(disturbed.loader.epoch(1)):
        if number == 2:
            disturbed.task.function = lambda Z, y: cross_entropy(Z, y) * math.inf
            refused(disturbed, batch)
            disturbed.task.function = None
        disturbed.step(batch)
    assert state_of(calm) == state_of(disturbed)


def test_what_dropout_hides_does_not_reach_the_histories() -> None:
    trainer = make_trainer(layers=2, hidden=1, dropout=0.5, norm="none", bias=False)
    estimator = trainer.estimator
    assert isinstance(estimator, ControlVariate)
    PX: Tensor = estimator.features.PX  # type: ignore[attr-defined]
    PX.abs_().mul_(1e-20)
    batch = next(iter(trainer.loader.epoch(1)))
    for node in batch.inputs.tolist():
        with torch.no_grad():
            trainer.model.layer(0).weight.fill_(1e20)
        before = PX[node].clone()
        PX[node] = 1e20  # finite, and so is the weight; their product is not
        with contextlib.suppress(Diverged):
            trainer.step(batch)
        PX[node] = before
        assert bool(estimator.history(1).values.isfinite().all())


# Skipping


def bad_at(trainer: Trainer, steps: set[int]) -> None:
    """Let the loss of those steps be infinite, in the order in which they are asked for."""
    calls = 0

    def loss(Z: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return cross_entropy(Z, y) * (math.inf if calls in steps else 1.0)

    trainer.task.function = loss


def test_a_skipped_step_changes_nothing_but_the_count() -> None:
    trainer, batch = begun(bad_step="skip", output="last")
    trainer.task.function = lambda Z, y: cross_entropy(Z, y) * math.nan
    (tensors, numbers), t = state_of(trainer), trainer.iterations
    assert math.isnan(float(trainer.step(batch)))
    assert trainer.position.skipped == trainer.position.skipped_in_a_row == 1
    assert trainer.iterations == t + 1
    after, new_numbers = state_of(trainer)
    assert after == tensors  # weights, moments, histories and their ages
    assert numbers["optimizer"] == new_numbers["optimizer"]


def test_skipped_steps_are_counted_and_the_run_goes_on() -> None:
    trainer = make_trainer(bad_step="skip")
    bad_at(trainer, {2, 5, 6, 12})
    records = list(trainer.epochs(3))
    assert trainer.loader.steps_per_epoch == 4
    assert [r.skipped_steps for r in records] == [1, 2, 1]
    assert [r.iterations for r in records] == [4, 8, 12]
    assert all(math.isfinite(r.loss) for r in records)
    assert trainer.position.skipped_in_a_row == 1
    assert trainer.position.skipped == 0  # of the fourth epoch
    assert weights_are_finite(trainer.model)


def test_a_run_with_skipped_steps_is_one_without_those_batches() -> None:
    trainer, twin = make_trainer(bad_step="skip"), make_trainer(bad_step="skip")
    bad_at(trainer, {2, 3})
    bad_at(twin, set())  # autograd's path for both
    losses = []
    for number, batch in enumerate(twin.loader.epoch(1), start=1):
        if number not in (2, 3):
            losses.append((float(twin.step(batch)), batch.ids.numel()))
    mean = trainer.train_epoch(1)
    assert mean == pytest.approx(sum(a * b for a, b in losses) / sum(b for _, b in losses), rel=1e-12)
    mine, theirs = state_of(trainer)[0], state_of(twin)[0]
    for name in mine.keys() & theirs.keys():
        assert mine[name] == theirs[name] or name.startswith("tau."), name


def test_an_epoch_without_a_step_has_no_loss() -> None:
    trainer = make_trainer(bad_step="skip")
    bad_at(trainer, {5, 6, 7, 8})
    records = list(trainer.epochs(3))
    assert [math.isnan(r.loss) for r in records] == [False, True, False]
    assert [r.skipped_steps for r in records] == [0, 4, 0]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_too_many_in_a_row_stop_the_run(most: int) -> None:
    """Whether an epoch ends between them or not."""
    trainer = make_trainer(bad_step="skip", most_skipped=most)
    bad_at(trainer, set(range(3, 30)))
    with pytest.raises(Diverged, match=rf"at step {2 + most} .*and the {most - 1} steps before were skipped\)"):
        list(trainer.epochs(10))
    assert trainer.iterations == 1 + most


def test_a_good_step_between_begins_the_count_anew() -> None:
    trainer = make_trainer(bad_step="skip", most_skipped=3)
    bad_at(trainer, {1, 2, 4, 5, 7, 8, 10, 11})
    records = list(trainer.epochs(3))
    assert sum(r.skipped_steps for r in records) == 8


def test_twenty_in_a_row_are_the_most() -> None:
    trainer = make_trainer(bad_step="skip")
    assert trainer.guard.most_skipped == 20
    bad_at(trainer, set(range(1, 100)))
    with pytest.raises(Diverged, match=r"at step 20 .*\(and the 19 steps before were skipped\)"):
        list(trainer.epochs(10))


def test_without_skipping_the_first_bad_step_stops_the_run() -> None:
    trainer = make_trainer()
    bad_at(trainer, {6})
    epochs = trainer.epochs(3)
    assert next(epochs).epoch == 1
    with pytest.raises(Diverged, match="at step 6 on a batch of 6 nodes"):
        next(epochs)
    assert (trainer.iterations, trainer.position.epoch, trainer.position.steps) == (5, 2, 1)


# The weights


def spoil_at(trainer: Trainer, steps: set[int]) -> None:
    """Let the optimizer leave an infinite weight at those of its steps, whatever the gradient."""
    step: Callable[[], Any] = trainer.optimizer.step
    calls = 0

    def spoiled() -> None:
        nonlocal calls
        calls += 1
        step()
        if calls in steps:
            with torch.no_grad():
                trainer.model.layer(1).weight[0, 0] = math.inf

    trainer.optimizer.step = spoiled  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("bad_step", ["stop", "skip"])
def test_the_weights_are_looked_at_after_the_last_step_of_an_epoch(bad_step: str) -> None:
    """No later step would."""
    trainer = make_trainer(bad_step=bad_step)
    spoil_at(trainer, {8})
    with pytest.raises(
        Diverged, match="diverged at step 8: the last step of the epoch left weights that are infinite or NaN;"
    ) as caught:
        list(trainer.epochs(3))
    assert caught.value.ids == []
    assert trainer.best.epoch == 1  # they were not evaluated
    assert all(bool(w.isfinite().all()) for w in trainer.output("best").values())


def test_bad_weights_are_found_by_the_next_step() -> None:
    trainer = make_trainer()
    spoil_at(trainer, {6})
    with pytest.raises(Diverged, match=r"at step 7 .*: the weight layers\.1\.weight, before this step, has 1 of 36"):
        list(trainer.epochs(3))
