"""The protocol of a task: what is learned. Trainer, evaluator, run folder and predictions know nothing else of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.split import SPLITS
from cvgnn.errors import CvgnnError, require_known
from cvgnn.rng import Purpose, derive
from cvgnn.sampling import Batch, Items
from cvgnn.training.tasks.metrics import METRICS

Metrics = dict[str, float | None]
"""Values by split and metric, such as `val_accuracy`; None where a split has no items, or the metric is undefined."""


class Task(ABC):
    """Items, head, loss, metrics and predictions of one kind of learning.

    The network computes a row for each node; everything that depends on what is learned is here: which nodes a batch
    needs (`items`), what is made of their rows (`make_readout`, `loss`), and what is measured and predicted from the
    rows of all nodes (`evaluate`, `predict`, `prediction_columns`).

    Args:
        graph: of batches, histories and `P`. A task that hides edges gives the graph without them.
        metric: selects the best epoch; the first of `metrics` if not given.

    Attributes:
        name: as in `--task`.
        metrics: names of all that `evaluate` can compute; see `METRICS`.
        each_epoch: those that are computed after every epoch, beside `metric`: they must be cheap.
        of_pairs: whether predictions are for pairs of nodes. Then `predict` and the like get `[2, n, out_channels]`.
        items: the training items; batches are drawn from them.
        out_channels: width of the network's last layer.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]
    each_epoch: ClassVar[tuple[str, ...]] = ()
    of_pairs: ClassVar[bool] = False
    items: Items
    out_channels: int

    def __init__(self, graph: Graph, *, metric: str | None = None) -> None:
        self.graph = graph
        if metric is not None:
            require_known(f"metric of task {self.name!r}", metric, self.metrics)
        self.metric = metric or self.metrics[0]

    @classmethod
    @abstractmethod
    def from_config(cls, graph: Graph, config: TrainConfig, *, num_outputs: int | None, loss: Any) -> Self:
        """The task of a run.

        Args:
            graph: of the run.
            config: has the task's options.
            num_outputs: classes, labels or targets; those of the graph if None.
            loss: a function of the user's own, or None.
        """

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The number of items in each split."""

    def make_readout(self, *, seed: int, dtype: torch.dtype) -> nn.Module | None:
        """The part of the head that has weights or buffers, at `W_1`: a pure function of the seed.

        It becomes `model.readout`, and so is trained, averaged, saved and checkpointed with the network's weights.
        """
        return None

    @abstractmethod
    def loss(self, rows: Tensor, batch: Batch, readout: nn.Module | None = None) -> Tensor:
        """`f`, the mean over the batch's items: a differentiable tensor of shape `[]`.

        Args:
            rows: `[R, out_channels]`, the network's outputs for `r^(K)`.
            batch: `batch.ids` are the items, `batch.place` the rows that each of them reads.
            readout: `model.readout`.
        """

    @abstractmethod
    def evaluate(self, rows: Tensor, metrics: Sequence[str], readout: nn.Module | None = None) -> Metrics:
        """The metrics on each split.

        Args:
            rows: `[N, out_channels]`, the network's outputs for all nodes, by exact inference.
            metrics: names, of `self.metrics`.
            readout: `model.readout`.
        """

    def finish(self, rows: Tensor, readout: nn.Module | None = None) -> None:  # noqa: B027, most have nothing to do
        """Called once after training, with the outputs of the returned weights for all nodes: fit what is fitted on the
        validation items, into the buffers of `readout`."""

    def report(self, rows: Tensor, readout: nn.Module | None = None) -> dict[str, Any]:
        """Further results of the returned weights for result.json, as JSON values, such as a table of the classes."""
        return {}

    def item_rows(self, outputs: Callable[[Tensor | None], Tensor], ids: Tensor | None) -> Tensor:
        """The rows from which `predict` and the like work, one for each item: those of the nodes, unless items are
        other than nodes.

        Args:
            outputs: from node ids `[n]` (None for all nodes) to the network's outputs for them, `[n, out_channels]`.
            ids: int64, of the items; None for all.
        """
        return outputs(ids)

    @abstractmethod
    def predict(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """What is predicted: classes, labels, numbers.

        Args:
            rows: of some items, see `item_rows`.
            readout: `model.readout`.
        """

    def predict_proba(self, rows: Tensor, readout: nn.Module | None = None) -> Tensor:
        """Probabilities of what can be predicted, for tasks that have them."""
        raise CvgnnError(f"task {self.name!r} predicts no probabilities; use predict")

    @abstractmethod
    def prediction_columns(
        self, rows: Tensor, ids: Sequence[int] | None, names: Sequence[str] | None, readout: nn.Module | None = None
    ) -> dict[str, np.ndarray]:
        """Columns of the table of predictions, beside `node` (or `graph`) and `split`.

        Args:
            rows: of `ids`, see `item_rows`.
            ids: of the items; all if None.
            names: of the classes, labels or targets.
            readout: `model.readout`.
        """

    def to(self, device: torch.device) -> Self:
        """Move what the loss reads to a device. Returns itself."""
        return self

    @property
    def classes(self) -> tuple[int, tuple[str, ...] | None]:
        """How many classes, labels or targets the graph has, and their names where they are not numbers from 0."""
        return self.graph.num_classes, self.graph.class_names

    @property
    def split(self) -> str:
        """The origin of the split of the items, for the record of a run."""
        return self.graph.split

    @property
    def larger_is_better(self) -> bool:
        """Whether a larger value of `metric` is better."""
        return METRICS[self.metric].larger_is_better

    @property
    def epoch_metrics(self) -> tuple[str, ...]:
        """The metrics that are computed after each epoch; the one that selects the best epoch comes first."""
        # dict.fromkeys keeps the order and drops repeats.
        return tuple(dict.fromkeys((self.metric, self.metrics[0], *self.each_epoch)))

    @property
    def result_metrics(self) -> tuple[str, ...]:
        """The metrics of the returned weights in result.json: all but the slow ones that were not asked for."""
        return tuple(name for name in self.metrics if not METRICS[name].slow or name in self.epoch_metrics)

    def nothing_measured(self) -> Metrics:
        """The metrics of an epoch that was not evaluated."""
        return dict.fromkeys(metric_keys(self.epoch_metrics))


def draw_weights(layers: Iterable[nn.Linear], seed: int) -> None:
    """Draw the initial weights of the layers of a readout as `torch.nn.Linear` does: a pure function of the seed."""
    # The network's weights have the same seed and no coordinate.
    generator = torch.Generator().manual_seed(derive(seed, Purpose.WEIGHTS, 1) >> 1)
    with torch.no_grad():
        for layer in layers:
            bound = 1.0 / math.sqrt(layer.in_features)
            for parameter in (layer.weight, layer.bias):
                parameter.uniform_(-bound, bound, generator=generator)


def is_share(key: str) -> bool:
    """Whether the value of such a key is a share in 0..1.

    >>> is_share("val_accuracy"), is_share("val_mse")
    (True, False)
    """
    metric = METRICS.get(key.partition("_")[2])
    return metric is not None and metric.share


def metric_keys(metrics: Iterable[str]) -> list[str]:
    """The keys of some metrics in `Metrics`, result.json and metrics.jsonl.

    >>> metric_keys(["accuracy"])
    ['train_accuracy', 'val_accuracy', 'test_accuracy']
    """
    return [f"{split}_{metric}" for metric in metrics for split in SPLITS]


def result_keys(metric: str) -> dict[str, str]:
    """The keys in result.json of what runs are compared by: at the best validation epoch, and of any epoch.

    >>> result_keys("mse")
    {'val': 'val_mse', 'test': 'test_mse', 'top_test': 'min_test_mse'}
    """
    top = "max" if METRICS[metric].larger_is_better else "min"
    return {"val": f"val_{metric}", "test": f"test_{metric}", "top_test": f"{top}_test_{metric}"}
