"""Tasks with labels at nodes, from `fit` to predictions: several labels a node, numbers, metrics, calibration."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import cvgnn
from cvgnn import CvgnnError, TrainConfig
from cvgnn.data import Graph
from cvgnn.data.array_converter import from_arrays
from cvgnn.data.io import read_graph
from cvgnn.data.split import RandomSplit
from cvgnn.data.store import open_store, write_store
from cvgnn.sampling import Batch
from cvgnn.training import MultiLabelClassification, NodeClassification, NodeRegression, Task
from cvgnn.training.predictions import predictions
from cvgnn.training.run import Run
from cvgnn.training.tasks import TASKS, make_task, task_of

N = 80
RNG = np.random.default_rng(0)
EDGES = RNG.integers(0, N, (2, 200))
X = RNG.normal(size=(N, 6)).astype(np.float32)
LABELS = (X[:, :3] > 0).astype(np.int64)
TARGETS = 1000.0 + 50 * X[:, 0].astype(np.float64) - 20 * X[:, 1]
FORMS: dict[str, Any] = {"node": LABELS[:, 0] + LABELS[:, 1], "multilabel": LABELS, "regression": TARGETS}


def graph(task: str, **options: Any) -> Graph:
    return from_arrays(EDGES, x=X, y=options.pop("y", FORMS[task]), split=RandomSplit(seed=1), **options)


def run(task: str, **options: Any) -> Run:
    return cvgnn.fit(graph(task), **{"epochs": 30, "hidden": 16, "lr": 0.02, "dropout": 0.0, "threads": 1, **options})


# Labels.


@pytest.mark.parametrize(
    ("y", "task", "shape"),
    [
        (LABELS, "multilabel", (N, 3)),
        (LABELS.astype(bool), "multilabel", (N, 3)),
        (LABELS.astype(np.float32), "multilabel", (N, 3)),
        (sparse.csr_array(LABELS), "multilabel", (N, 3)),
        (torch.from_numpy(LABELS).to_sparse(), "multilabel", (N, 3)),
        (TARGETS, "regression", (N, 1)),
        (TARGETS.astype(np.float16), "regression", (N, 1)),
        (np.stack([TARGETS, X[:, 0]], axis=1), "regression", (N, 2)),
        (LABELS[:, 0].astype(np.float32), "regression", (N, 1)),
        (LABELS[:, :1].astype(np.float32), "regression", (N, 1)),
        (LABELS[:, 0], "node", (N,)),
        (["b", "a"] * (N // 2), "node", (N,)),
    ],
    ids=str,
)
def test_the_task_is_found_from_the_labels(y: Any, task: str, shape: tuple[int, ...]) -> None:
    made = graph(task, y=y)
    assert task_of(made) == make_task(made, TrainConfig()).name == task
    assert tuple(made.y.shape) == shape
    assert make_task(made, TrainConfig()).out_channels == (2 if task == "node" else shape[1])
    if task == "multilabel":
        assert torch.equal(made.y, torch.from_numpy(LABELS).to(torch.int8))


@pytest.mark.parametrize("task", FORMS)
def test_a_store_and_an_npz_carry_every_form(task: str, tmp_path: Path) -> None:
    first = graph(task)
    write_store(first, tmp_path / "store")
    ids = {f"{part}_ids": getattr(first, f"{part}_ids").numpy() for part in ("train", "val", "test")}
    np.savez(tmp_path / "a.npz", edge_index=EDGES, x=X, y=FORMS[task], **ids)
    for again in (open_store(tmp_path / "store"), read_graph(tmp_path / "a.npz")):
        assert again.y.dtype == first.y.dtype
        assert torch.equal(again.y, first.y)
        assert torch.equal(again.train_ids, first.train_ids)
        assert (again.num_classes, repr(again)[-30:]) == (first.num_classes, repr(first)[-30:])


def test_unknown_labels_are_in_no_split() -> None:
    y, numbers = LABELS.copy(), TARGETS.copy()
    y[5:9], numbers[5:9] = -1, np.nan
    for made in (graph("multilabel", y=y), graph("regression", y=numbers)):
        known = torch.cat([made.train_ids, made.val_ids, made.test_ids])
        assert len(known) == N - 4
        assert not set(range(5, 9)) & set(known.tolist())
        assert np.isfinite(cvgnn.fit(made, epochs=2, threads=1).records[-1].loss)


# Runs.


@pytest.mark.parametrize("task", FORMS)
def test_it_is_learned_and_comes_back(task: str, tmp_path: Path) -> None:
    trained = run(task, epochs=80, model="sage", metric={"node": "macro_f1", "multilabel": "roc_auc"}.get(task))
    first, last = (trained.records[i].metrics[f"val_{trained.task.metric}"] or 0.0 for i in (0, -1))
    assert last < 0.3 * first if task == "regression" else last > max(first + 0.1, 0.7), (first, last)
    result = trained.result
    assert (result["task"], result["metric"]) == (task, trained.task.metric)
    best = [r.metrics[f"val_{trained.task.metric}"] for r in trained.records]
    chosen = (min if task == "regression" else max)(value for value in best if value is not None)
    assert result[f"val_{trained.task.metric}"] == chosen == best[result["best_epoch"] - 1]
    trained.save(tmp_path / "run")
    again = cvgnn.load_run(tmp_path / "run", graph(task))
    assert again.task.name == task
    assert torch.equal(again.predict(), trained.predict())
    assert [r.metrics for r in again.records] == [r.metrics for r in trained.records]
    everything = again.evaluate()
    assert everything["metrics"].keys() == {f"{s}_{m}" for m in TASKS[task].metrics for s in ("train", "val", "test")}
    for name, value in everything["metrics"].items():
        if f"output_{name}" in result:
            assert value == result[f"output_{name}"]
    few = trained.predict([3, 0])
    torch.testing.assert_close(few, trained.predict()[[3, 0]])
    assert few.shape == {"node": (2,), "multilabel": (2, 3), "regression": (2,)}[task]


@pytest.mark.parametrize("task", FORMS)
@pytest.mark.parametrize("estimator", ["cvd", "ns"])
def test_a_stopped_run_goes_on_to_the_same_bits(task: str, estimator: str, tmp_path: Path) -> None:
    options = {"estimator": estimator, "batch_size": 16, "dropout": 0.3, "ema": 0.9, "calibrate": task == "node"}
    calm = run(task, out=tmp_path / "calm", epochs=6, **options)

    class Stop(Exception):
        pass

    def stop(record: cvgnn.training.EpochRecord) -> None:
        if record.epoch == 3:
            raise Stop

    with pytest.raises(Stop):
        run(task, out=tmp_path / "run", epochs=6, checkpoint_epochs=1, on_epoch=stop, **options)
    again = cvgnn.fit(graph(task), resume=tmp_path / "run", epochs=6)
    files = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("calm", "run")]
    assert files[0] == files[1]
    assert [r.metrics for r in again.records] == [r.metrics for r in calm.records]
    assert (again.result["best_epoch"], again.result["output"]) == (calm.result["best_epoch"], "best")


def test_predictions_of_several_labels() -> None:
    trained = cvgnn.fit(graph("multilabel", class_names=["x", "y", "z"]), epochs=2, threads=1)
    columns = predictions(trained).columns
    assert list(columns) == ["node", "labels", "label", "split", "p_x", "p_y", "p_z"]
    expected = ["|".join(np.array(["x", "y", "z"])[row == 1]) for row in LABELS]
    assert columns["label"].tolist() == expected
    wanted = ["|".join(np.array(["x", "y", "z"])[row == 1]) for row in trained.predict().numpy()]
    assert columns["labels"].tolist() == wanted


def test_predictions_of_numbers() -> None:
    y = np.stack([TARGETS, X[:, 0]], axis=1)
    trained = cvgnn.fit(graph("regression", y=y, class_names=["price", "size"]), epochs=2, threads=1)
    columns = predictions(trained, np.array([4, 2])).columns
    assert list(columns) == ["node", "prediction_price", "prediction_size", "label_price", "label_size", "split"]
    np.testing.assert_allclose(columns["label_price"], TARGETS[[4, 2]])
    np.testing.assert_allclose(columns["prediction_size"], trained.predict([4, 2])[:, 1].numpy())
    with pytest.raises(CvgnnError, match="task 'regression' predicts no probabilities; use predict"):
        trained.predict_proba()


def test_the_unit_of_a_target_does_not_matter() -> None:
    """The network learns (y - mean) / deviation, so another unit gives the same network and scaled errors."""
    plain, scaled = (
        cvgnn.fit(graph("regression", y=y), epochs=5, threads=1) for y in (TARGETS, 4096 * TARGETS + 2**20)
    )
    for name, tensor in plain.model.state_dict().items():
        if not name.startswith("readout"):
            torch.testing.assert_close(scaled.model.state_dict()[name], tensor, atol=1e-3, rtol=0)
    assert scaled.result["test_mse"] == pytest.approx(4096**2 * plain.result["test_mse"], rel=1e-2)
    assert scaled.result["test_r2"] == pytest.approx(plain.result["test_r2"], abs=1e-2)


def test_classes_that_are_numbers_can_be_targets(tmp_path: Path) -> None:
    made = graph("node", y=[str(10 * v) for v in FORMS["node"]])
    task = NodeRegression(made)
    assert task.y[:, 0].tolist() == (10.0 * FORMS["node"]).tolist()
    assert task.out_channels == 1
    trained = cvgnn.fit(made, task="regression", epochs=2, threads=1, out=tmp_path / "run")
    assert trained.predict().shape == (N,)
    again = cvgnn.load_run(tmp_path / "run", made)
    assert torch.equal(again.predict(), trained.predict())
    assert again.evaluate()["metrics"]["test_mse"] == trained.result["output_test_mse"]


def test_a_temperature_changes_probabilities_and_no_class(tmp_path: Path) -> None:
    plain, calibrated = (run("node", calibrate=c, out=tmp_path / str(c)) for c in (False, True))
    assert torch.equal(plain.predict(), calibrated.predict())
    T = calibrated.result["calibration"]["temperature"]
    assert plain.result["calibration"]["temperature"] is None
    assert T != 1.0
    torch.testing.assert_close(calibrated.predict_proba(), (plain.outputs() / T).softmax(dim=1))
    again = cvgnn.load_run(tmp_path / "True", graph("node"))
    assert torch.equal(again.predict_proba(), calibrated.predict_proba())
    assert again.evaluate()["calibration"] == calibrated.result["calibration"]
    matrix = json.loads((tmp_path / "True" / "result.json").read_text())["per_class"]["confusion_matrix"]
    assert np.trace(matrix) / np.sum(matrix) == calibrated.result["output_test_accuracy"]


def test_another_graph_s_classes_are_not_compared() -> None:
    trained = cvgnn.fit(graph("node", class_names=["a", "b", "c"]), epochs=1, threads=1)
    other = graph("node", class_names=["a", "c", "b"])
    moved = dataclasses.replace(trained, graph=other, task=NodeClassification(other))
    with pytest.raises(CvgnnError, match="the labels of 'graph' are not those of the run"):
        moved.evaluate()


def test_predictions_need_no_labels_that_the_run_knows(tmp_path: Path) -> None:
    """Another graph may have classes that the model lacks, or none at all; then nothing can be compared."""
    trained = run("node", epochs=2, out=tmp_path / "run")
    for y, said in ((FORMS["node"] + 3 * (X[:, 0] > 0), "are not those of the run"), (None, "'graph' has no label")):
        other = from_arrays(EDGES, x=X, y=y)
        for again in (cvgnn.load_run(tmp_path / "run", other), trained.on(other)):
            assert torch.equal(again.predict(), trained.predict())
            assert predictions(again).columns["class"].tolist() == trained.predict().tolist()
            with pytest.raises(CvgnnError, match=said):
                again.evaluate()


# A task of one's own.


class Signs(Task):
    """Whether the first feature is positive: no labels at all, and a head with a weight."""

    name = "signs"
    metrics = ("accuracy",)

    def __init__(self, graph: Graph, config: TrainConfig | None = None) -> None:
        super().__init__(graph)
        self.items = cvgnn.sampling.NodeItems(graph.train_ids)
        self.out_channels = 5
        self.wanted = (graph.x[:, :1] > 0).float()

    from_config = classmethod(lambda cls, graph, config, **_: cls(graph))  # type: ignore[assignment]

    def make_readout(self, *, seed: int, dtype: torch.dtype) -> torch.nn.Module:
        head = torch.nn.Linear(5, 1, dtype=dtype)
        with torch.no_grad():
            head.weight.fill_(0.1 + seed)
            head.bias.zero_()
        return head

    def sizes(self) -> dict[str, int]:
        return {split: getattr(self.graph, f"{split}_ids").numel() for split in ("train", "val", "test")}

    def loss(self, rows: torch.Tensor, batch: Batch, readout: torch.nn.Module | None = None) -> torch.Tensor:
        assert readout is not None
        logits = readout(batch.select(rows))
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, self.wanted[batch.ids])

    def evaluate(self, rows: torch.Tensor, metrics: Any, readout: Any = None) -> dict[str, float | None]:
        right = (self.predict(rows, readout) == (self.wanted[:, 0] > 0)).double()
        return {f"{s}_accuracy": float(right[getattr(self.graph, f"{s}_ids")].mean()) for s in self.sizes()}

    def predict(self, rows: torch.Tensor, readout: Any = None) -> torch.Tensor:
        return readout(rows)[:, 0] > 0

    def prediction_columns(self, rows: torch.Tensor, ids: Any, names: Any, readout: Any = None) -> dict[str, Any]:
        return {"positive": self.predict(rows, readout).numpy()}


def test_a_task_of_ones_own_with_weights_in_its_head(tmp_path: Path) -> None:
    made = graph("node")
    options = {"epochs": 40, "lr": 0.02, "model": "sage", "dropout": 0.0, "ema": 0.9, "threads": 1}
    trained = cvgnn.fit(made, task=Signs(made), out=tmp_path / "a", **options)
    assert trained.records[-1].metrics["val_accuracy"] > 0.85  # type: ignore[operator]
    weight = trained.model.state_dict()["readout.weight"]
    assert float((weight - 0.1).abs().max()) > 0.01
    again = cvgnn.load_run(tmp_path / "a", made, task=Signs)
    assert torch.equal(again.predict(), trained.predict())
    assert predictions(again).columns["positive"].tolist() == trained.predict().tolist()
    with pytest.raises(CvgnnError, match="the task of this run, 'Signs', was a Python object"):
        cvgnn.load_run(tmp_path / "a", made)
    with pytest.raises(CvgnnError, match="task was made for another graph; make it for this one"):
        cvgnn.fit(from_arrays([[0], [1]], x=np.eye(3), y=[0, 1, 0], train_ids=[0], val_ids=[1]), task=Signs(made))


# What is refused: a sentence that names the argument and the way out.

CLASSES, SEVERAL, NUMBERS = graph("node"), graph("multilabel"), graph("regression")
REFUSED: list[tuple[str, Any, dict[str, Any], str]] = [
    ("node", SEVERAL, {"task": "node"}, r"task 'node' needs y as an int64 vector .* it is torch.int8 of shape \[80, 3\]"),
    ("node", NUMBERS, {"task": "node"}, r"task 'node' needs y as an int64 vector .* it is torch.float64 of shape \[80, 1\]"),
    ("node", CLASSES, {"metric": "mse"}, "unknown metric of task 'node' 'mse'; known: accuracy, .*"),
    ("node", from_arrays(EDGES, x=X, y=[0] * N), {"metric": "roc_auc"}, "metric 'roc_auc' has no value on the validation nodes"),
    ("node", from_arrays(EDGES, x=X, y=FORMS["node"], train_ids=[0]), {"calibrate": True, "output": "last"}, "calibrate needs validation nodes and this graph has none"),
    ("node", from_arrays(EDGES, x=X, y=None), {}, "task 'node' needs labels at nodes, and 'graph' has none"),
    ("node", CLASSES, {"head": "dot"}, "head has no use with task 'node'; leave it out"),
    ("node", CLASSES, {"hits_k": 3}, "hits_k has no use with task 'node'; leave it out"),
    ("node", CLASSES, {"metric": "f1"}, "unknown metric 'f1'; known: .*"),
    ("node", CLASSES, {"class_weight": "1,2"}, "class_weight has 2 numbers, but the graph has 3 classes"),
    ("node", CLASSES, {"class_weight": "1,a,3"}, "class_weight must be 'balanced' or one number of at least 0"),
    ("node", CLASSES, {"class_weight": "-1,2,3"}, "class_weight must be 'balanced' or one number of at least 0"),
    ("node", CLASSES, {"task": "nodes"}, r"unknown task 'nodes'; known: .* \(did you mean 'node'\?\)"),
    ("node", CLASSES, {"calibrate": "yes"}, "calibrate must be True or False, not 'yes'"),
    ("node", CLASSES, {"task": NUMBERS}, "task must be a name or a Task, its class or function"),
    ("node", CLASSES, {"task": Signs(CLASSES), "metric": "accuracy"}, "loss and metric are those of the given task"),
    ("multilabel", CLASSES, {"task": "multilabel"}, r"task 'multilabel' needs y as a matrix of 0 and 1, .* it is torch.int64"),
    ("multilabel", NUMBERS, {"task": "multilabel"}, r"task 'multilabel' needs y as a matrix of 0 and 1, .* it is torch.float64"),
    ("multilabel", SEVERAL, {"label_smoothing": 0.1}, "label_smoothing has no use with task 'multilabel'; leave it out"),
    ("multilabel", SEVERAL, {"calibrate": True}, "calibrate has no use with task 'multilabel'; leave it out"),
    ("multilabel", graph("multilabel", y=0 * LABELS), {"metric": "average_precision"}, "metric 'average_precision' has no value on the"),
    ("multilabel", SEVERAL, {"metric": "accuracy"}, "unknown metric of task 'multilabel' 'accuracy'; known: micro_f1, "),
    ("multilabel", SEVERAL, {"class_weight": "1,2"}, "class_weight has 2 numbers, but the graph has 3 classes"),
    ("multilabel", SEVERAL, {"class_weight": "balanced", "loss": torch.nn.functional.mse_loss}, "class_weight is for the cross entropy"),
    ("multilabel", LABELS * 2, {}, "y is a matrix of integers with 2 at node"),
    ("multilabel", LABELS - 2 * (np.arange(N) == 7)[:, None], {"train_ids": range(N)}, r"train_ids names node 7, which has no label \(-1\)"),
    ("multilabel", np.zeros((N, 0), int), {}, r"the graph has no nodes: y is empty"),
    ("multilabel", LABELS[:40], {}, "x has 80 rows but y has 40 labels"),
    ("regression", SEVERAL, {"task": "regression", "class_weight": "balanced"}, "class_weight has no use with task 'regression'"),
    ("regression", graph("node", y=["b", "a"] * 40), {"task": "regression"}, "task 'regression' needs numbers as labels, and this graph has classes such as 'a'"),
    ("regression", graph("regression", y=np.full(N, 3.5)), {"metric": "r2"}, "metric 'r2' has no value on the validation nodes"),
    ("regression", NUMBERS, {"label_smoothing": 0.1}, "label_smoothing has no use with task 'regression'; leave it out"),
    ("regression", NUMBERS, {"calibrate": True}, "calibrate has no use with task 'regression'; leave it out"),
    ("regression", NUMBERS, {"metric": "roc_auc"}, "unknown metric of task 'regression' 'roc_auc'; known: mse, mae, r2"),
    ("regression", NUMBERS, {"loss": "cross-entropy"}, "loss 'cross-entropy' is for classes, not for task 'regression'"),
    ("regression", np.where(np.arange(N) == 3, np.inf, TARGETS), {}, "y gives node 3 other values than it may have: they are finite"),
    ("regression", np.where(np.arange(N) == 3, np.nan, TARGETS), {"train_ids": range(N)}, r"train_ids names node 3, which has no label \(NaN\)"),
    ("regression", TARGETS.astype(complex), {}, "y must hold numbers or strings, not complex128"),
    ("regression", np.full(N, np.nan), {}, "no node has a label, so there is nothing to split"),
    ("regression", TARGETS.reshape(N, 1, 1), {}, r"y must have one label per node, \[N\], or a row of labels for each"),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "options", "sentence"), [case[1:] for case in REFUSED], ids=[c[3] for c in REFUSED])
def test_refused(labels: Any, options: dict[str, Any], sentence: str) -> None:
    def start() -> None:
        if isinstance(labels, Graph):
            cvgnn.fit(labels, epochs=1, **options)
        else:
            from_arrays(EDGES, x=X, y=labels, **options)

    with pytest.raises(CvgnnError, match=sentence) as caught:
        start()
    assert "\n" not in str(caught.value)


def test_ten_bad_inputs_for_each_task() -> None:
    names = [name for name, *_ in REFUSED]
    assert all(names.count(name) >= 10 for name in FORMS)
    assert MultiLabelClassification.name in names
