"""The losses of the tasks, each with its derivative by the network's outputs.

Legend:
    B, C   entries of the batch; classes, labels or targets
    h_b    outputs of the network for entry b, [C]; a repeated node has repeated rows
    y_b    its label
    f      loss of one entry; the batch loss is its mean
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cvgnn.errors import require
from cvgnn.reference.propagation_matrix import Array

Loss = Callable[[Array, npt.NDArray[np.generic]], tuple[float, Array]]
"""From outputs [B, C] and labels [B] or [B, C] to the loss and its derivative [B, C]."""


def softmax_cross_entropy(
    logits: Array, labels: npt.NDArray[np.generic], smoothing: float = 0.0, weight: Array | None = None
) -> tuple[float, Array]:
    """(1 / sum_b w[y_b]) sum_b f(y_b, h_b), without weights the mean, and its derivative; the sum if all weights are 0.

        f(y, h) = - sum_c w[c] q[c] log softmax(h)[c],    q = (1 - smoothing) e_y + smoothing / C

    Args:
        logits: h [B, C].
        labels: The class of each row [B].
        smoothing: 0 in the paper, where q = e_y.
        weight: w [C]; 1 if not given.

    >>> round(softmax_cross_entropy(np.zeros((1, 2)), np.array([0]))[0], 6)
    0.693147
    """
    C = logits.shape[1]
    classes = labels.astype(np.int64)
    require(
        bool(((classes >= 0) & (classes < C)).all()), f"labels of the batch must lie in 0..{C - 1}: {labels.tolist()}"
    )
    w = np.ones(C) if weight is None else weight
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    wq = w * ((1.0 - smoothing) * np.eye(C)[classes] + smoothing / C)
    total = w[classes].sum() or 1.0
    derivative = np.exp(log_softmax) * wq.sum(axis=1, keepdims=True) - wq
    return float(-(wq * log_softmax).sum() / total), derivative / total


def binary_cross_entropy(
    logits: Array, labels: npt.NDArray[np.generic], weight: Array | None = None
) -> tuple[float, Array]:
    """(1 / (B C)) sum_bc f(y_bc, h_bc) and its derivative.

        f(y, h) = - w y log p - (1 - y) log(1 - p),    p = 1 / (1 + exp(-h))

    Args:
        logits: h [B, C].
        labels: y [B, C], 0 or 1.
        weight: w of each label's positive entries [C]; 1 if not given.

    >>> round(binary_cross_entropy(np.zeros((1, 2)), np.array([[0, 1]]))[0], 6)
    0.693147
    """
    y, w = labels.astype(np.float64), np.ones(logits.shape[1]) if weight is None else weight
    p = 1.0 / (1.0 + np.exp(-logits))
    log_p, log_rest = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
    loss = -(w * y * log_p + (1 - y) * log_rest)
    return float(loss.mean()), ((1 - y) * p - w * y * (1 - p)) / loss.size


def squared_error(outputs: Array, labels: npt.NDArray[np.generic], center: Array, scale: Array) -> tuple[float, Array]:
    """(1 / (B T)) sum_bt ((c_t + s_t h_bt - y_bt) / s_t)^2 and its derivative.

    Args:
        outputs: h [B, T].
        labels: y [B, T].
        center, scale: c and s [T], mean and deviation of the targets over the training nodes.

    >>> squared_error(np.array([[1.0]]), np.array([[4.0]]), center=np.array([2.0]), scale=np.array([4.0]))
    (0.25, array([[1.]]))
    """
    error = (center + scale * outputs - labels.astype(np.float64)) / scale
    return float((error**2).mean()), 2 * error / error.size
