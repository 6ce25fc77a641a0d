"""Metrics of predictions: functions of scores and labels. Counts are ours, areas under curves scikit-learn's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Metric(NamedTuple):
    """How a metric is read.

    Args:
        larger_is_better: whether the best epoch has the largest value.
        share: whether it is a share in 0..1, shown in percent.
        slow: computed by scikit-learn, which takes seconds to import and to sort; only where it is asked for.
    """

    larger_is_better: bool = True
    share: bool = True
    slow: bool = False


METRICS = {
    **dict.fromkeys(("accuracy", "balanced_accuracy", "micro_f1", "macro_f1"), Metric()),
    **dict.fromkeys(("roc_auc", "average_precision"), Metric(slow=True)),
    **dict.fromkeys(("mse", "mae"), Metric(larger_is_better=False, share=False)),
    "r2": Metric(share=False),
    **dict.fromkeys(("hits_at_k", "mrr"), Metric()),
}
"""All metrics of all tasks by name: `--metric`, and keys of result.json and metrics.jsonl."""

Function = Callable[[Tensor, Tensor], float | None]


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Share of rows whose largest logit is at their label.

    >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    0.5
    """
    # Counted in integers: a float32 mean would depend on the order of the sum.
    return int((logits.argmax(dim=1) == y).sum()) / y.numel()


class Counts(NamedTuple):
    """What F1 and the like are made of, int64 `[C]`: by class or label, how often it is right, true and predicted."""

    right: Tensor
    true: Tensor
    predicted: Tensor

    @property
    def f1(self) -> Tensor:
        """float64 `[C]`; 0 where a class is neither true nor predicted."""
        # clamp: a class that is neither true nor predicted is 0/0, and 0 by scikit-learn's convention.
        return 2 * self.right.double() / (self.true + self.predicted).clamp(min=1)


def class_counts(logits: Tensor, y: Tensor) -> Counts:
    """Counts by class, of the largest logit."""
    matrix = confusion_matrix(logits, y)
    return Counts(matrix.diagonal(), matrix.sum(dim=1), matrix.sum(dim=0))


def label_counts(logits: Tensor, Y: Tensor) -> Counts:
    """Counts by label, of probabilities above 1/2; `logits` and `Y` are `[n, L]`."""
    # A logit above 0 is a probability above 1/2: the sigmoid is not needed for the decision.
    predicted, true = logits > 0, Y == 1
    return Counts((predicted & true).sum(dim=0), true.sum(dim=0), predicted.sum(dim=0))


def confusion_matrix(logits: Tensor, y: Tensor) -> Tensor:
    """int64 `[C, C]`: how many rows of the class of the row have their largest logit at the column.

    >>> confusion_matrix(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0])).tolist()
    [[1, 1], [0, 0]]
    """
    classes = logits.shape[1]
    # One number for each (true, predicted) pair: bincount counts them in one pass, without a loop over classes.
    return torch.bincount(y * classes + logits.argmax(dim=1), minlength=classes**2).reshape(classes, classes)


def per_class(counts: Counts) -> dict[str, list[float]]:
    """Precision, recall and F1 of each class or label, and the number of its nodes."""
    right = counts.right.double()
    return {
        "precision": (right / counts.predicted.clamp(min=1)).tolist(),
        "recall": (right / counts.true.clamp(min=1)).tolist(),
        "f1": counts.f1.tolist(),
        "nodes": counts.true.tolist(),
    }


def reliability(probabilities: Tensor, y: Tensor, bins: int = 15) -> dict[str, Any]:
    """How far the probability of the predicted class is from the share of right predictions (Guo et al. 2017).

    Args:
        probabilities: `[n, C]`.
        y: int64 `[n]`.
        bins: of equal width; entry `b` has the rows with a confidence in `(b / bins, (b + 1) / bins]`.

    Returns:
        `expected_calibration_error`, `sum_b n_b / n |accuracy_b - confidence_b|`, and for each bin its `nodes`, mean
        `confidence` and `accuracy`, None for an empty one.
    """
    confidence, predicted = probabilities.double().max(dim=1)
    # Bins are open on the left, as in the paper, so a confidence of exactly 1 is in the last; 0 cannot occur,
    # clamp is for rounding.
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1
    nodes = torch.bincount(place, minlength=bins)
    mean, right = (
        torch.bincount(place, weights=values, minlength=bins) / nodes.clamp(min=1)
        for values in (confidence, (predicted == y).double())
    )

    def column(values: Tensor) -> list[float | None]:
        return [value if n else None for value, n in zip(values.tolist(), nodes.tolist(), strict=True)]

    return {
        "expected_calibration_error": float((nodes * (right - mean).abs()).sum() / y.numel()),
        "nodes": nodes.tolist(),
        "confidence": column(mean),
        "accuracy": column(right),
    }


def best_temperature(logits: Tensor, y: Tensor) -> float:
    """The `T` in 0.01..100 for which the cross entropy of `logits / T` is smallest; it is convex in `1 / T`."""
    from scipy.optimize import minimize_scalar

    # In log T the bounds lie evenly around 1, and a bounded search needs no gradient of the loss.
    z = logits.double()

    def loss(log_t: float) -> float:
        return float(torch.nn.functional.cross_entropy(z / math.exp(log_t), y))

    found = minimize_scalar(loss, bounds=(math.log(0.01), math.log(100.0)), method="bounded", options={"xatol": 1e-6})
    return math.exp(found.x)


def balanced_accuracy(logits: Tensor, y: Tensor) -> float:
    """Mean over the classes in `y` of the share of their rows that are classified correctly."""
    right, true, _ = class_counts(logits, y)
    return float((right[true > 0].double() / true[true > 0]).mean())


def micro_f1(counts: Counts) -> float:
    """F1 of all classes or labels together; of classes it is the accuracy."""
    return 2 * int(counts.right.sum()) / max(int(counts.true.sum() + counts.predicted.sum()), 1)


def macro_f1(counts: Counts, *, absent: bool) -> float:
    """Mean over classes or labels of their F1.

    Args:
        counts: of each.
        absent: whether one that is neither true nor predicted counts, as 0. As scikit-learn has it, labels do and
            classes do not.
    """
    f1 = counts.f1 if absent else counts.f1[counts.true + counts.predicted > 0]
    return float(f1.mean())


def roc_auc(scores: Tensor, Y: Tensor) -> float | None:
    """Area under the ROC curve, mean over the columns of `Y` that hold both 0 and 1; None if none does.

    Args:
        scores: `[n, L]`; only their order within a column counts.
        Y: `[n, L]`, 0 or 1.
    """
    # Imported here: scikit-learn takes 1.6 s, and most runs ask for no area under a curve.
    from sklearn.metrics import roc_auc_score

    columns = _defined(Y)
    return float(roc_auc_score(Y[:, columns].numpy(), scores[:, columns].numpy())) if columns else None


def average_precision(scores: Tensor, Y: Tensor) -> float | None:
    """Average precision, mean over the columns of `Y` that hold both 0 and 1; arguments as in `roc_auc`."""
    from sklearn.metrics import average_precision_score

    columns = _defined(Y)
    return float(average_precision_score(Y[:, columns].numpy(), scores[:, columns].numpy())) if columns else None


def _defined(Y: Tensor) -> list[int]:
    positives = Y.sum(dim=0, dtype=torch.int64)
    return ((positives > 0) & (positives < len(Y))).nonzero().flatten().tolist()


def indicators(probabilities: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Class probabilities and labels as `roc_auc` takes them: one column a class; of two classes only the second."""
    Y = torch.nn.functional.one_hot(y, probabilities.shape[1])
    # Of two classes the second is the positive one: a mean with the first would say little about a rare class.
    return (probabilities[:, 1:], Y[:, 1:]) if probabilities.shape[1] == 2 else (probabilities, Y)


def mse(predicted: Tensor, y: Tensor) -> float:
    """Mean squared error over rows and columns."""
    return float((predicted.double() - y.double()).square().mean())


def mae(predicted: Tensor, y: Tensor) -> float:
    """Mean absolute error over rows and columns."""
    return float((predicted.double() - y.double()).abs().mean())


def r2(predicted: Tensor, y: Tensor) -> float | None:
    """`1 - sum (y - p)^2 / sum (y - mean)^2`, mean over the columns; None if no column of `y` varies."""
    y = y.double()
    # In float64: both sums are differences of large numbers where the targets lie far from 0.
    total = (y - y.mean(dim=0)).square().sum(dim=0)
    rest = (y - predicted.double()).square().sum(dim=0)
    varies = total > 0
    return float((1 - rest[varies] / total[varies]).mean()) if bool(varies.any()) else None
