"""Whole runs through `fit`: what they return, that they repeat, and what cannot change them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.api import fit
from cvgnn.config import TrainConfig
from cvgnn.data import Graph, from_arrays, from_edges
from cvgnn.errors import CvgnnError
from cvgnn.nn import GCN
from cvgnn.optim import make_optimizer
from cvgnn.training import EpochRecord, Evaluator
from cvgnn.training.machine import peak_rss_bytes, thread_count
from cvgnn.training.run import Run, train

N, CLASSES, FEATURES = 90, 3, 12
SMALL: dict[str, Any] = {
    "epochs": 4,
    "hidden": 8,
    "batch_size": 8,
    "num_neighbors": 2,
    "norm": "layer",
    "dropout": 0.5,
    "lr": 0.01,
    "weight_decay": 5e-4,
    "threads": 1,
}


@cache
def communities(*, dtype: torch.dtype = torch.float32, val: bool = True, test: bool = True) -> Graph:
    """Three communities with noisy features; the ids of the splits are scattered."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, CLASSES, size=N)
    same = y[:, None] == y[None, :]
    edges = np.argwhere(np.triu(rng.random((N, N)) < np.where(same, 0.2, 0.02), k=1)).T
    x = rng.normal(size=(N, FEATURES))
    x[np.arange(N), y] += 1.5
    order = rng.permutation(N)
    return from_edges(
        edges,
        x=torch.from_numpy(x).to(dtype),
        y=y,
        train_ids=order[:30],
        val_ids=order[30:50] if val else (),
        test_ids=order[50:85] if test else (),
        name="communities",
    )


def small(graph: Graph | None = None, **options: Any) -> Run:
    return fit(graph or communities(), **(SMALL | options))


def assert_same_weights(a: Run, b: Run) -> None:
    assert a.model.state_dict().keys() == b.model.state_dict().keys()
    for name, tensor in a.model.state_dict().items():
        assert torch.equal(tensor, b.model.state_dict()[name]), name


def differ(a: Run, b: Run) -> bool:
    pairs = zip(a.model.state_dict().values(), b.model.state_dict().values(), strict=True)
    return any(not torch.equal(x, y) for x, y in pairs)


# What a run is.


def test_fit_returns_a_run() -> None:
    graph = communities()
    run = fit(graph, **SMALL | {"num_neighbors": [3]}, optimizer="amsgrad")
    assert isinstance(run, Run)
    assert run.graph is graph
    assert run.config == TrainConfig(**SMALL | {"num_neighbors": (3,)}, optimizer="amsgrad")
    assert isinstance(run.model, GCN)
    assert not run.model.training
    assert [r.epoch for r in run.records] == [1, 2, 3, 4]
    assert run.records[-1].iterations == run.result["iterations"] == 4 * 4  # ceil(30 / 8) batches an epoch
    assert json.loads(json.dumps(run.result, allow_nan=False)) == run.result


def test_fit_and_train_are_the_same() -> None:
    config = TrainConfig(**SMALL, seed=3)
    assert_same_weights(train(communities(), config), small(seed=3))


def test_it_learns() -> None:
    run = small(epochs=15)
    assert run.records[-1].loss < 0.5 * run.records[0].loss
    assert run.result["test_accuracy"] > 0.8


def test_the_result_is_consistent_with_the_records() -> None:
    telling = {"a tie for the best": 0, "the last is not the highest": 0, "the best is not the highest": 0}
    for seed in range(12):
        run = small(epochs=9, seed=seed, lr=0.3)  # too fast, so that accuracies go up and down
        vals = [value for r in run.records if (value := r.metrics["val_accuracy"]) is not None]
        tests = [value for r in run.records if (value := r.metrics["test_accuracy"]) is not None]
        assert len(vals) == len(tests) == 9
        best = int(np.argmax(vals))  # the earliest
        r = run.result
        assert (r["best_epoch"], r["val_accuracy"], r["test_accuracy"]) == (best + 1, vals[best], tests[best])
        assert r["max_test_accuracy"] == max(tests)
        assert (r["output_val_accuracy"], r["output_test_accuracy"]) == (vals[best], tests[best])
        telling["a tie for the best"] += vals.count(max(vals)) > 1
        telling["the last is not the highest"] += tests[-1] < max(tests)
        telling["the best is not the highest"] += tests[best] < max(tests)
    assert all(telling.values()), telling  # or this test shows nothing


def test_the_rest_of_the_result() -> None:
    run = small(epochs=5, seed=3)
    r = run.result
    assert (r["dataset"], r["epochs"], r["seed"], r["output"]) == ("communities", 5, 3, "best")
    assert r["train_seconds"] == pytest.approx(sum(x.train_seconds for x in run.records), abs=1e-5)
    assert r["eval_seconds"] == pytest.approx(sum(x.eval_seconds for x in run.records), abs=1e-5)
    assert 10**7 < r["peak_rss_bytes"] <= peak_rss_bytes()


# Prediction.


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_shapes(layers: int) -> None:
    run = small(layers=layers)
    assert run.predict().shape == (N,)
    assert run.predict().dtype == torch.int64
    assert run.predict_proba().shape == (N, CLASSES)
    assert run.embed(layers).shape == (N, CLASSES)
    for layer in range(1, layers):
        assert run.embed(layer).shape == (N, 8)
        assert (run.embed(layer) >= 0).all()  # after ReLU


def test_predictions_agree_with_each_other_and_with_the_result() -> None:
    run = small(epochs=6)
    proba = run.predict_proba()
    assert torch.equal(proba.argmax(dim=1), run.predict())
    torch.testing.assert_close(proba.sum(dim=1), torch.ones(N))
    assert (proba > 0).all()
    torch.testing.assert_close(run.embed(2).softmax(dim=1), proba)
    g = run.graph
    for split in ("train", "val", "test"):
        ids = getattr(g, f"{split}_ids")
        share = int((run.predict(ids) == g.y[ids]).sum()) / ids.numel()
        assert share == run.result[f"output_{split}_accuracy"]


def test_predictions_do_not_depend_on_dropout_or_repetition() -> None:
    run = small(dropout=0.9)
    assert torch.equal(run.predict_proba(), run.predict_proba())
    run.model.train()
    assert torch.equal(run.predict_proba(), run.predict_proba())
    assert not run.predict_proba().requires_grad


@pytest.mark.parametrize("ids", [[4, 0, 4, N - 1], torch.tensor([7]), torch.tensor([1, 2], dtype=torch.int32), []])
def test_ids_pick_rows(ids: Any) -> None:
    run = small()
    index = torch.as_tensor(ids, dtype=torch.int64)
    assert torch.equal(run.predict(ids), run.predict()[index])
    assert torch.equal(run.predict_proba(ids), run.predict_proba()[index])
    assert torch.equal(run.embed(1, ids), run.embed()[index])
    assert torch.equal(run.embed(ids=ids), run.embed()[index])


@pytest.mark.parametrize(("ids", "bad"), [([0, N], N), ([-1], -1), (torch.tensor([3, 1000, -5]), 1000)])
def test_a_node_that_does_not_exist_is_refused(ids: Any, bad: int) -> None:
    run = small(epochs=1)
    for method in (run.predict, run.predict_proba, partial(run.embed, 1)):
        with pytest.raises(CvgnnError) as caught:
            method(ids)
        assert str(caught.value) == f"node {bad} does not exist; ids must lie in 0..{N - 1}"


@pytest.mark.parametrize("layer", [0, -1, 3])
def test_a_layer_that_does_not_exist_is_refused(layer: int) -> None:
    with pytest.raises(CvgnnError, match=rf"layer must lie in 1\.\.2 .*, not {layer}"):
        small(epochs=1).embed(layer)


# Optimizers and callbacks.


@pytest.mark.parametrize(
    "factory",
    [
        partial(torch.optim.RMSprop, lr=0.01),
        partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
        lambda params: torch.optim.NAdam(list(params), lr=0.01),
        lambda params: torch.optim.SGD([{"params": list(params), "lr": 0.1}], momentum=0.9, nesterov=True),
    ],
    ids=["RMSprop", "AdamW", "NAdam", "groups"],
)
def test_any_optimizer_of_torch(factory: Any) -> None:
    run = small(epochs=10, make_optimizer=factory)
    assert run.records[-1].loss < run.records[0].loss
    assert_same_weights(run, small(epochs=10, make_optimizer=factory))
    assert differ(run, small(epochs=10))


def test_the_factory_gets_all_parameters() -> None:
    seen: list[torch.Tensor] = []

    def factory(params: Any) -> torch.optim.Optimizer:
        seen.extend(params)
        return torch.optim.SGD(seen, lr=0.1)

    run = small(make_optimizer=factory)
    assert [id(p) for p in seen] == [id(p) for p in run.trainer.model.parameters()]


def test_the_factory_of_the_same_optimizer_gives_the_same_run() -> None:
    factory = partial(make_optimizer, "adam", lr=0.01, weight_decay=5e-4)
    assert_same_weights(small(make_optimizer=factory), small(optimizer="adam"))


@pytest.mark.parametrize("options", [{}, {"fused": True}], ids=["plain", "fused"])
def test_torchs_own_adam_gives_the_same_run_up_to_round_off(options: dict[str, bool]) -> None:
    theirs = small(make_optimizer=partial(torch.optim.Adam, lr=0.01, weight_decay=5e-4, **options))
    ours = small(optimizer="adam")
    assert [r.metrics for r in theirs.records] == [r.metrics for r in ours.records]
    for name, W in theirs.model.state_dict().items():
        torch.testing.assert_close(ours.model.state_dict()[name], W, rtol=1e-5, atol=1e-6)


def test_on_epoch_is_called_once_an_epoch_with_the_record() -> None:
    seen: list[EpochRecord] = []
    run = small(epochs=5, eval_every=2, on_epoch=seen.append)
    assert seen == run.records
    assert [r.epoch for r in seen] == [1, 2, 3, 4, 5]
    assert [not r.is_evaluated for r in seen] == [True, False, True, False, False]


def test_the_callback_cannot_be_late() -> None:
    """Each record is handed over before the next epoch starts, so that it can be shown or stop the run."""

    class Stop(Exception):
        pass

    seen = []

    def on_epoch(record: EpochRecord) -> None:
        seen.append(record.epoch)
        if record.epoch == 2:
            raise Stop

    with pytest.raises(Stop):
        small(epochs=1000, on_epoch=on_epoch)
    assert seen == [1, 2]


# Threads.


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_threads_are_set_for_the_run_and_restored() -> None:
    seen = []
    for threads in (1, 2, None):
        small(threads=threads, epochs=1, on_epoch=lambda r: seen.append(torch.get_num_threads()))
        assert torch.get_num_threads() == 2
    assert seen[:2] == [1, 2]
    assert seen[2] in (1, 2)  # the run's own choice


@pytest.mark.usefixtures("two_threads")
def test_threads_are_restored_after_an_error() -> None:
    def fail(record: EpochRecord) -> None:
        assert torch.get_num_threads() == 1
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        small(threads=1, on_epoch=fail)
    assert torch.get_num_threads() == 2
    with pytest.raises(KeyboardInterrupt), thread_count(1):
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("estimator", ["cv", "ns", "exact"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_number_of_threads_does_not_change_the_weights(layers: int, estimator: str) -> None:
    one, two = (
        small(threads=threads, layers=layers, estimator=estimator, norm="none", output="last") for threads in (1, 2)
    )
    assert_same_weights(one, two)


@pytest.mark.usefixtures("two_threads")
def test_with_layer_norm_threads_change_the_rounding_alone() -> None:
    """torch sums the gradient of LayerNorm's own weights in as many parts as there are threads."""
    one, two = (small(threads=threads, layers=3, output="last") for threads in (1, 2))
    for name, tensor in one.model.state_dict().items():
        torch.testing.assert_close(tensor, two.model.state_dict()[name], rtol=0, atol=1e-5)


# Splits and outputs.


def test_best_needs_validation_nodes() -> None:
    graph = communities(val=False)
    with pytest.raises(CvgnnError, match="output 'best' needs validation nodes and this graph has none; use output"):
        fit(graph, **SMALL)


@pytest.mark.parametrize("output", ["last", "tau"])
def test_without_validation_nodes_the_other_outputs_are_fine(output: str) -> None:
    run = small(communities(val=False), output=output)
    r = run.result
    assert (r["best_epoch"], r["val_accuracy"], r["test_accuracy"], r["output_val_accuracy"]) == (None,) * 4
    assert r["max_test_accuracy"] is not None
    assert r["output_test_accuracy"] is not None


def test_without_test_nodes() -> None:
    run = small(communities(test=False))
    r = run.result
    assert (r["test_accuracy"], r["max_test_accuracy"], r["output_test_accuracy"]) == (None, None, None)
    assert r["val_accuracy"] == max(x.metrics["val_accuracy"] or 0 for x in run.records)


def test_last_returns_the_last_weights() -> None:
    run = small(output="last", epochs=3)
    last = run.records[-1].metrics
    assert last["val_accuracy"] is not None
    assert run.result["output_val_accuracy"] == last["val_accuracy"]
    assert run.result["output_test_accuracy"] == last["test_accuracy"]
    assert run.result["output_iteration"] is None
    longer = small(output="last", epochs=4)
    assert differ(run, longer)


def test_best_returns_the_weights_of_the_best_epoch() -> None:
    runs = [small(output="best", epochs=8, seed=seed) for seed in range(4)]
    for seed, run in enumerate(runs):
        assert_same_weights(run, small(output="last", epochs=run.result["best_epoch"], seed=seed))
    assert any(run.result["best_epoch"] < 8 for run in runs)  # or this test shows nothing


def test_tau_is_an_iterate_of_the_run() -> None:
    """One batch is an epoch here, so W_1 is the start and W_(t+1) the weights after epoch t."""
    seen = set()
    for seed in range(12):
        run = small(output="tau", epochs=3, batch_size=30, seed=seed)
        tau = run.result["output_iteration"]
        assert 1 <= tau <= 4
        seen.add(tau)
        if tau > 1:
            assert_same_weights(run, small(output="last", epochs=tau - 1, batch_size=30, seed=seed))
        else:
            start = GCN(in_channels=FEATURES, hidden_channels=8, out_channels=CLASSES, norm=run.config.norm, seed=seed)
            assert all(torch.equal(w, start.state_dict()[name]) for name, w in run.model.state_dict().items())
    assert len(seen) > 2


# Seeds, and what must not matter.

METHODS: list[dict[str, Any]] = [
    {"estimator": "cv"},
    {"estimator": "ns", "scheme": "with-replacement"},
    {"estimator": "exact"},
    {"batches": "replacement", "output": "tau"},
    {"layers": 3, "num_neighbors": (2, 1), "history_dtype": "bfloat16"},
    {"layers": 1},
    {"feature_dtype": "bfloat16", "input_dropout": 0.2},
    {"form": "paper", "optimizer": "adagrad", "norm": "none", "bias": False},
]


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_the_same_seed_gives_the_same_weights(options: dict[str, Any]) -> None:
    first = small(**options, seed=7)
    torch.manual_seed(123)  # no global state is read
    np.random.seed(321)  # noqa: NPY002
    again = small(**options, seed=7)
    assert_same_weights(first, again)
    assert [r.loss for r in first.records] == [r.loss for r in again.records]
    assert differ(first, small(**options, seed=8))


def test_no_global_random_state_is_moved() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    small()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("estimator", ["cv", "ns", "exact"])
def test_evaluation_does_not_change_training(estimator: str) -> None:
    runs = [small(estimator=estimator, eval_every=n, epochs=5, output="last") for n in (1, 2, 5)]
    assert_same_weights(runs[0], runs[1])
    assert_same_weights(runs[0], runs[2])
    assert [r.loss for r in runs[0].records] == [r.loss for r in runs[2].records]
    assert [r.is_evaluated for r in runs[2].records] == [False] * 4 + [True]


def test_a_run_is_the_start_of_a_longer_one() -> None:
    short, long = small(epochs=2, output="last"), small(epochs=5, output="last")
    assert [r.loss for r in short.records] == [r.loss for r in long.records[:2]]


@pytest.mark.parametrize(
    "change",
    [
        {"estimator": "ns"},
        {"estimator": "exact"},
        {"scheme": "released"},
        {"scheme": "paper"},
        {"scheme": "with-replacement"},
        {"num_neighbors": 1},
        {"optimizer": "sgd"},
        {"form": "paper"},
        {"lr": 0.02},
        {"beta1": 0.5},
        {"beta2": 0.9},
        {"nu_min": 1e-2},
        {"weight_decay": 0.0},
        {"batch_size": 9},
        {"batches": "replacement"},
        {"epochs": 5},
        {"hidden": 9},
        {"layers": 3},
        {"norm": "none"},
        {"bias": False},
        {"dropout": 0.0},
        {"normalization": "random-walk"},
        {"history_dtype": "bfloat16"},
        {"feature_dtype": "bfloat16"},
        {"output": "tau"},
        {"seed": 1},
    ],
    ids=str,
)
def test_every_option_reaches_the_run(change: dict[str, Any]) -> None:
    """A knob that is not connected would leave the weights as they are."""
    base, changed = small(output="last"), small(**({"output": "last"} | change))
    shapes = [[w.shape for w in run.model.state_dict().values()] for run in (base, changed)]
    assert shapes[0] != shapes[1] or differ(base, changed)


def test_fan_out_is_of_no_use_to_exact() -> None:
    assert_same_weights(small(estimator="exact", num_neighbors=1), small(estimator="exact", num_neighbors=-1))


def test_cv_with_all_neighbors_is_exact() -> None:
    graph = communities(dtype=torch.float64)
    cv, exact = (small(graph, estimator=e, num_neighbors=-1, output="last", dropout=0.0) for e in ("cv", "exact"))
    for name, tensor in cv.model.state_dict().items():
        torch.testing.assert_close(tensor, exact.model.state_dict()[name], rtol=0, atol=1e-9)


# Types.


@pytest.mark.parametrize("estimator", ["cv", "ns", "exact"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_decide_the_type_of_everything(dtype: torch.dtype, estimator: str) -> None:
    run = small(communities(dtype=dtype), estimator=estimator)
    assert {p.dtype for p in run.trainer.model.parameters()} == {dtype}
    assert run.embed().dtype == run.predict_proba().dtype == run.propagation.dtype == dtype
    assert np.isfinite(run.records[-1].loss)


# What is refused, before any work.


def test_mistakes_are_told_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_work(*args: object, **kwargs: object) -> None:
        pytest.fail("work was done")

    monkeypatch.setattr("cvgnn.training.run.Propagation", no_work)
    for options, sentence in [
        ({"lr": -1.0}, r"lr must be a number above 0, not -1\.0"),
        ({"num_neighbors": 0}, "num_neighbors must be whole numbers of at least 1, .*, not 0"),
        ({"learning_rate": 0.1}, "unknown option 'learning_rate'; known: estimator, "),
        ({"optimizer": "sgd", "beta2": 0.5}, r"beta2 has no use in sgd in the torch form, got 0\.5"),
        ({"form": "paper", "nu_min": 1e-30}, "nu_min must be .*, got 1e-30"),
    ]:
        with pytest.raises(CvgnnError, match=sentence):
            fit(communities(), **options)


def test_the_evaluation_of_the_output_is_that_of_the_returned_model() -> None:
    run = small(output="tau", seed=4)
    metrics = Evaluator(run.task, run.features, run.propagation)(run.model)
    assert metrics == {
        f"{split}_accuracy": run.result[f"output_{split}_accuracy"] for split in ("train", "val", "test")
    }


@pytest.mark.parametrize(("factor", "warned"), [(1000.0, True), (10.0, False)])
def test_columns_of_very_different_scale_are_a_warning(
    factor: float, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2)) * [1.0, factor]
    graph = from_arrays([[0, 1], [1, 2]], x=x, y=[0, 1] * 10)
    with caplog.at_level("WARNING", "cvgnn"):
        train(graph, TrainConfig(epochs=1))
    assert ("columns differ in scale by a factor of" in caplog.text) == warned
