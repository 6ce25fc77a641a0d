"""Tasks with labels at nodes: one class a node, several labels a node, or numbers."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypedDict, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.split import SPLITS
from cvgnn.errors import CvgnnError, require, require_number
from cvgnn.sampling import Batch, Items, NodeItems
from cvgnn.training.tasks import metrics as m
from cvgnn.training.tasks.base import Metrics, Task

MOST_CLASSES = 100
"""Confusion matrices of more classes are not kept in result.json."""

LossFunction = Callable[..., Tensor]


class LabelOptions(TypedDict, total=False):
    """The arguments of `NodeTask` that other tasks of classes hand on as they are."""

    num_outputs: int | None
    loss: LossFunction | None
    metric: str | None
    class_weight: str | None
    label_smoothing: float
    calibrate: bool


class NodeTask(Task):
    """Labels at nodes: the items are the training nodes, and each has the scores that the network gives it.

    Args:
        graph: has labels and split.
        num_outputs: classes, labels or targets; those of the graph if None.
        loss: a function of scores `[B, C]` and labels `[B]` or `[B, C]`, in place of the task's own.
        metric: see `Task`.
        class_weight: the weight of each class or label in the loss: `"balanced"`, or numbers separated by commas.
        label_smoothing: share of each label that the cross entropy spreads over all classes.
        calibrate: whether `finish` fits a temperature.
    """

    functions: ClassVar[Mapping[str, m.Function]]
    """The metrics: functions of scores `[n, C]` and labels."""
    options: ClassVar[tuple[str, ...]] = ()
    """Which of `class_weight`, `label_smoothing` and `calibrate` it takes."""
    is_cross_entropy: ClassVar[bool] = True
    """Whether its own loss is what `loss="cross-entropy"` names."""

    def __init__(
        self,
        graph: Graph,
        *,
        num_outputs: int | None = None,
        loss: LossFunction | None = None,
        metric: str | None = None,
        class_weight: str | None = None,
        label_smoothing: float = 0.0,
        calibrate: bool = False,
    ) -> None:
        super().__init__(graph, metric=metric)
        self.y = self._labels(graph)  # on the CPU, for metrics
        self.labels = self.y  # on the device of the loss
        self.ids = self._split(graph)
        self.items = self._items(graph)
        self.num_outputs = num_outputs or (self.classes[0] if self.y.dim() == 1 else self.y.shape[1])
        self.out_channels = self.num_outputs
        self.is_elsewhere = num_outputs is not None  # to predict: this graph may have classes that the model lacks
        self.function = loss
        self.label_smoothing = label_smoothing
        self.calibrate = calibrate
        self.weight: Tensor | None = None
        self.has_zero_weight = False
        require_number("label_smoothing", label_smoothing, "a number in [0, 1)", at_least=0.0, below=1.0)
        require(
            not calibrate or "calibrate" in self.options, f"calibrate has no use with task {self.name!r}; leave it out"
        )
        for name, used in (("class_weight", class_weight is not None), ("label_smoothing", label_smoothing > 0)):
            require(not used or name in self.options, f"{name} has no use with task {self.name!r}; leave it out")
            require(not used or loss is None, f"{name} is for the cross entropy, not for your own loss; leave it out")
        if self.ids["train"].numel():
            self._check_labels(self.y)
            if class_weight is not None:
                weight = class_weights(class_weight, self.y[self.ids["train"]], self.num_outputs)
                self.weight = weight.to(graph.x.dtype)
                self.has_zero_weight = not bool(self.weight.all())

    @classmethod
    def from_config(cls, graph: Graph, config: TrainConfig, *, num_outputs: int | None, loss: Any) -> Self:
        """See `Task`."""
        # Otherwise the named loss would be replaced in silence by the task's own.
        own = cls.is_cross_entropy or config.loss != "cross-entropy"
        require(own, f"loss 'cross-entropy' is for classes, not for task {cls.name!r}; leave it out")
        options = {name: getattr(config, name) for name in ("metric", "class_weight", "label_smoothing", "calibrate")}
        return cls(graph, num_outputs=num_outputs, loss=loss, **options, **cls._further(config))

    @classmethod
    def _further(cls, config: TrainConfig) -> dict[str, Any]:
        """Arguments of one task alone."""
        return {}

    def to(self, device: torch.device) -> Self:
        """See `Task`."""
        self.labels = self.labels.to(device)
        self.weight = None if self.weight is None else self.weight.to(device)
        return self

    def sizes(self) -> dict[str, int]:
        """See `Task`."""
        return {split: ids.numel() for split, ids in self.ids.items()}

    def _split(self, graph: Graph) -> dict[str, Tensor]:
        """int64, the items of each split: positions in `y`."""
        return {split: getattr(graph, f"{split}_ids") for split in SPLITS}

    def loss(self, rows: Tensor, batch: Batch, readout: nn.Module | None = None) -> Tensor:
        """See `Task`."""
        scores, labels = self.scores(self._batch_rows(rows, batch), readout), self.labels.index_select(0, batch.ids)
        if labels.dtype != torch.int64:  # a matrix of 0 and 1 has 8 bits an entry until here
            labels = labels.to(scores.dtype)
        return self.criterion(scores, labels, readout) if self.function is None else self.function(scores, labels)

    def _batch_rows(self, rows: Tensor, batch: Batch) -> Tensor:
        """What `scores` takes, of the rows of `r^(K)`."""
        return batch.select(rows)

    def scores(self, rows: Tensor, readout: nn.Module | None) -> Tensor:
        """The head: what loss and metrics take, `[n, C]`, made of the network's outputs for `n` items."""
        return rows if readout is None else readout(rows)

    def _scores_of(self, ids: Tensor, rows: Tensor, readout: nn.Module | None) -> Tensor:
        """The scores of some items, on the CPU, of the network's outputs for all nodes."""
        return self.scores(rows[ids], readout).cpu()

    @abstractmethod
    def criterion(self, scores: Tensor, labels: Tensor, readout: nn.Module | None) -> Tensor:
        """The loss of `[B, C]` scores and their labels."""

    def evaluate(self, rows: Tensor, metrics: Sequence[str], readout: nn.Module | None = None) -> Metrics:
        """See `Task`."""
        ids = {split: ids for split, ids in self.ids.items() if ids.numel()}
        scored = {split: (self._scores_of(items, rows, readout), self.y[items]) for split, items in ids.items()}
        return {
            f"{split}_{name}": self.functions[name](*scored[split]) if split in scored else None
            for name in metrics
            for split in SPLITS
        }

    def _reported(self, rows: Tensor, readout: nn.Module | None) -> tuple[str, Tensor, Tensor]:
        """The last split that has items, with their scores and labels."""
        # Test, else validation, else training items: a graph may have no test split.
        split, ids = next((split, ids) for split, ids in reversed(self.ids.items()) if ids.numel())
        return split, self._scores_of(ids, rows, readout), self.y[ids]

    def _items(self, graph: Graph) -> Items:
        return NodeItems(self.ids["train"])

    def _labels(self, graph: Graph) -> Tensor:
        """The labels in the form that this task has; not checked."""
        return graph.y

    @abstractmethod
    def _check_labels(self, y: Tensor) -> None:
        """Refuse labels that are not of this task."""


@final
class Temperature(nn.Module):
    """`rows / temperature`: another temperature makes probabilities more or less certain, and changes no prediction."""

    temperature: Tensor

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.ones(1, dtype=dtype))

    def forward(self, rows: Tensor) -> Tensor:
        """Logits, `[n, C]`."""
        return rows / self.temperature


class NodeClassification(NodeTask):
    """One class a node, by cross entropy. `class_weight="balanced"` gives every class the same total.

    Args:
        graph: `y` is int64 `[N]`.
    """

    name = "node"
    functions: ClassVar[Mapping[str, m.Function]] = {
        "accuracy": m.accuracy,
        "balanced_accuracy": m.balanced_accuracy,
        "micro_f1": lambda z, y: m.micro_f1(m.class_counts(z, y)),
        "macro_f1": lambda z, y: m.macro_f1(m.class_counts(z, y), absent=False),
        "roc_auc": lambda z, y: m.roc_auc(*m.indicators(z.softmax(dim=1), y)),
        "average_precision": lambda z, y: m.average_precision(*m.indicators(z.softmax(dim=1), y)),
    }
    metrics = tuple(functions)
    options: ClassVar[tuple[str, ...]] = ("class_weight", "label_smoothing", "calibrate")

    def make_readout(self, *, seed: int, dtype: torch.dtype) -> nn.Module | None:
        """The temperature, which is 1 until `finish` fits it."""
        return Temperature(dtype) if self.calibrate else None

    def finish(self, rows: Tensor, readout: nn.Module | None = None) -> None:
        """Fit the temperature on the validation nodes."""
        ids = self.ids["val"]
        if isinstance(readout, Temperature) and ids.numel():
            # On validation items: training's are fitted too well to tell how certain the model should be
            # (Guo et al. 2017).
            readout.temperature.fill_(m.best_temperature(rows[ids].cpu(), self.y[ids]))

    def report(self, rows: Tensor, readout: nn.Module | None = None) -> dict[str, Any]:
        """Precision, recall and F1 by class, confusion matrix and calibration, on the test nodes if there are any."""
        split, scores, y = self._reported(rows, readout)
        matrix = m.confusion_matrix(scores, y).tolist() if self.num_outputs <= MOST_CLASSES else None
        temperature = float(readout.temperature) if isinstance(readout, Temperature) else None
        return {
            "per_class": {"split": split, **m.per_class(m.class_counts(scores, y)), "confusion_matrix": matrix},
            "calibration": {"split": split, "temperature": temperature, **m.reliability(scores.softmax(dim=1), y)},
        }

    def criterion(self, scores: Tensor, labels: Tensor, readout: nn.Module | None) -> Tensor:
        """Cross entropy, the mean over the nodes by the weights of their classes; the sum if these are all 0."""
        weight, smoothing = self.weight, self.label_smoothing
        if weight is None or not self.has_zero_weight:
            return cross_entropy(scores, labels, weight, label_smoothing=smoothing)
        total = weight[labels].sum()  # torch's own mean is 0/0 for a batch whose classes all have weight 0
        summed = cross_entropy(scores, labels, weight, label_smoothing=smoothing, reduction="sum")
        return summed / torch.where(total > 0, total, 1.0)

    def predict(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """int64 `[n]`: classes."""
        return self.scores(rows, readout).argmax(dim=1)

    def predict_proba(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """`[n, C]`: class probabilities."""
        return self.scores(rows, readout).softmax(dim=1)

    def prediction_columns(
        self, rows: Tensor, ids: Sequence[int] | None, names: Sequence[str] | None, readout: nn.Module | None = None
    ) -> dict[str, np.ndarray]:
        """`class`, its `probability`, the true `label`, and `p_CLASS` for each class."""
        probabilities = self.predict_proba(rows, readout).cpu()
        highest, classes = (t.numpy() for t in probabilities.max(dim=1))
        return {
            "class": classes if names is None else np.asarray(names)[classes],
            "probability": highest,
            **self._label_column(ids, names),
            **probability_columns(probabilities, names),
        }

    def _label_column(self, ids: Sequence[int] | None, names: Sequence[str] | None) -> dict[str, np.ndarray]:
        y, own = at(self.graph.y, ids), self.graph.class_names
        # -1, unknown, is the last. A graph without any label has no names of its own.
        return {"label": y if own is None and (names is None or (y >= 0).any()) else np.asarray([*(own or ()), ""])[y]}

    def _check_labels(self, y: Tensor) -> None:
        ids, item = self.ids["train"], self.items.kind
        more = "; several labels or numbers a graph are not built" if item == "graph" and y.dim() == 2 else ""
        n = self.graph.num_nodes if item == "node" else len(y)  # a graph has checked the others
        require(
            isinstance(y, Tensor) and y.dtype == torch.int64 and y.shape == (n,),
            f"task {self.name!r} needs y as an int64 vector with one entry for each of the {n} {item}s, training "
            f"{item}s or not; it is {y.dtype} of shape {list(y.shape)}{more}",
        )
        if self.is_elsewhere:
            return
        bad = ((y[ids] < 0) | (y[ids] >= self.num_outputs)).nonzero().flatten().tolist()
        if bad and self.function is None:  # torch's own error, at some step, does not name the node
            node = int(ids[bad[0]])
            raise CvgnnError(
                f"{item} {node} has no label in 0..{self.num_outputs - 1}, the classes of the model (its label is "
                f"{int(y[node])})"
            )


@final
class MultiLabelClassification(NodeTask):
    """Several labels a node, by binary cross entropy, the mean over nodes and labels.

    `class_weight` is the weight of a label's positive nodes; `"balanced"` is negatives / positives among the training
    nodes.

    Args:
        graph: `y` is a 0/1 matrix, int8 `[N, L]`.
    """

    name = "multilabel"
    functions: ClassVar[Mapping[str, m.Function]] = {
        "micro_f1": lambda z, y: m.micro_f1(m.label_counts(z, y)),
        "macro_f1": lambda z, y: m.macro_f1(m.label_counts(z, y), absent=True),
        "roc_auc": m.roc_auc,
        "average_precision": m.average_precision,
    }
    metrics = tuple(functions)
    options = ("class_weight",)

    def report(self, rows: Tensor, readout: nn.Module | None = None) -> dict[str, Any]:
        """Precision, recall and F1 by label, on the test nodes if there are any."""
        split, scores, y = self._reported(rows, readout)
        return {"per_class": {"split": split, **m.per_class(m.label_counts(scores, y)), "confusion_matrix": None}}

    def criterion(self, scores: Tensor, labels: Tensor, readout: nn.Module | None) -> Tensor:
        """Binary cross entropy."""
        return binary_cross_entropy_with_logits(scores, labels, pos_weight=self.weight)

    def predict(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """int8 `[n, L]`: 1 for labels of probability above 1/2."""
        return (rows > 0).to(torch.int8)

    def predict_proba(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """`[n, L]`: the probability of each label."""
        return rows.sigmoid()

    def prediction_columns(
        self, rows: Tensor, ids: Sequence[int] | None, names: Sequence[str] | None, readout: nn.Module | None = None
    ) -> dict[str, np.ndarray]:
        """The predicted `labels` and the true ones, `label`, separated by `|`, and `p_LABEL` for each label."""
        own = self.graph.class_names
        return {
            "labels": joined(self.predict(rows).cpu().numpy(), names),
            "label": joined(at(self.graph.y, ids), own),
            **probability_columns(self.predict_proba(rows).cpu(), names),
        }

    def _check_labels(self, y: Tensor) -> None:
        require(
            y.dim() == 2 and y.dtype == torch.int8,
            f"task 'multilabel' needs y as a matrix of 0 and 1, a column for each label; it is {y.dtype} of shape "
            f"{list(y.shape)}",
        )


@final
class Rescale(nn.Module):
    """`center + scale * rows`: the network learns targets of mean 0 and variance 1, whatever their unit.

    Args:
        center, scale: `[T]`.
    """

    center: Tensor
    scale: Tensor

    def __init__(self, center: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("center", center)
        self.register_buffer("scale", scale)

    def forward(self, rows: Tensor) -> Tensor:
        """The targets in their own unit, `[n, T]`."""
        return torch.addcmul(self.center, rows, self.scale)


@final
class NodeRegression(NodeTask):
    """One or several numbers a node, by the mean squared error in units of their variance over the training nodes.

    Args:
        graph: `y` is floating point `[N, T]`. Classes are taken as the numbers that they are or are named after.
    """

    name = "regression"
    functions: ClassVar[Mapping[str, m.Function]] = {"mse": m.mse, "mae": m.mae, "r2": m.r2}
    metrics = tuple(functions)
    each_epoch = metrics
    is_cross_entropy = False

    @property
    def classes(self) -> tuple[int, tuple[str, ...] | None]:
        """See `Task`: targets. Classes that are taken as numbers are one target, and their names no longer count."""
        return self.y.shape[1], self.graph.class_names if self.graph.y.dim() == 2 else None

    def make_readout(self, *, seed: int, dtype: torch.dtype) -> nn.Module:
        """Mean and standard deviation of the targets over the training nodes."""
        ids = self.graph.train_ids
        center, scale = torch.zeros(self.out_channels, dtype=dtype), torch.ones(self.out_channels, dtype=dtype)
        if ids.numel():
            y = self.y[ids].double()
            center.copy_(y.mean(dim=0))
            # correction=0: the targets are the population here, and one training node must not give NaN.
            deviation = y.std(dim=0, correction=0)
            scale.copy_(torch.where(deviation > 0, deviation, 1.0))  # a target that does not vary is learned as it is
        return Rescale(center, scale)

    def criterion(self, scores: Tensor, labels: Tensor, readout: nn.Module | None) -> Tensor:
        """Mean squared error, in units of the variance."""
        assert isinstance(readout, Rescale)
        # Without the scale, the learning rate and nu_min would depend on whether a target is in metres or
        # millimetres.
        return ((scores - labels) / readout.scale).square().mean()

    def predict(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """`[n, T]`, or `[n]` for one target."""
        found = self.scores(rows, readout)
        return found.squeeze(1) if self.out_channels == 1 else found

    def prediction_columns(
        self, rows: Tensor, ids: Sequence[int] | None, names: Sequence[str] | None, readout: nn.Module | None = None
    ) -> dict[str, np.ndarray]:
        """`prediction` and `label`, the true value, for each target."""
        found, y = self.scores(rows, readout).cpu().numpy(), at(self.y, ids)
        ends = [""] if self.out_channels == 1 else [f"_{name}" for name in names or range(self.out_channels)]
        columns = {f"prediction{end}": found[:, j] for j, end in enumerate(ends)}
        return columns | {f"label{end}": y[:, j] for j, end in enumerate(ends) if y.shape[1] == len(ends)}

    def _labels(self, graph: Graph) -> Tensor:
        y, names = graph.y, graph.class_names
        if y.is_floating_point():
            return y
        values = y.to(torch.float64)
        if names is not None and y.dim() == 1:  # a column of a table: its values were numbered as classes are
            try:
                values = torch.tensor([*map(float, names), math.nan], dtype=torch.float64)[y]  # -1 is the last
            except ValueError:
                raise CvgnnError(
                    f"task 'regression' needs numbers as labels, and this graph has classes such as {names[0]!r}; "
                    "leave task out"
                ) from None
        return values.reshape(len(y), -1)

    def _check_labels(self, y: Tensor) -> None:
        """Every form of labels holds numbers."""


def class_weights(given: str, y: Tensor, count: int) -> Tensor:
    """The weights of classes or labels, `[count]`: numbers that are given, or `"balanced"`. That is the same total for
    every class; for labels, negatives / positives.

    Args:
        given: `"balanced"`, or numbers separated by commas.
        y: of the training items, classes `[n]` or labels `[n, count]`.
        count: of classes or labels.

    >>> class_weights("balanced", torch.tensor([0, 0, 0, 1]), 2).tolist()
    [0.6666666666666666, 2.0]
    """
    if given != "balanced":
        weights = [float(number) for number in given.split(",")]
        require(len(weights) == count, f"class_weight has {len(weights)} numbers, but the graph has {count} classes")
        return torch.tensor(weights, dtype=torch.float64)
    if y.dim() == 1:
        # scikit-learn's 'balanced': n / (C n_c); clamp keeps a class without training items finite, it never
        # enters the loss.
        return len(y) / (count * torch.bincount(y, minlength=count).clamp(min=1).double())
    positives = y.sum(dim=0, dtype=torch.float64)
    return (len(y) - positives) / positives.clamp(min=1)


def at(y: Tensor, ids: Sequence[int] | None) -> np.ndarray:
    """The labels of some nodes, of all if `ids` is None."""
    labels: np.ndarray = y.numpy() if ids is None else y.numpy()[np.asarray(ids, dtype=np.int64)]
    return labels


def probability_columns(probabilities: Tensor, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """A column `p_NAME` for each class or label."""
    every = names or range(probabilities.shape[1])
    return {f"p_{name}": column for name, column in zip(every, probabilities.numpy().T, strict=True)}


def joined(Y: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """The names of the labels in each row of a 0/1 matrix, separated by `|`.

    >>> joined(np.array([[1, 0, 1], [0, 0, 0]]), ["a", "b", "c"]).tolist()
    ['a|c', '']
    """
    if Y.ndim != 2:  # of a graph without labels
        return np.full(len(Y), "")
    known = np.asarray([str(name) for name in names or range(Y.shape[1])])
    return np.asarray(["|".join(known[row == 1]) for row in Y])
