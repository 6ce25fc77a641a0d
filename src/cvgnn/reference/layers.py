"""The functions between Z and H, and after the last Z: norm, activation, softmax cross entropy; each with its gradient.

Legend (the paper's letters):
    Z      pre-activation [rows, d]
    H      representation, H = sigma(Z) = act(norm(Z)) in hidden layers, H = Z in the last
    f      loss of one node, here softmax cross entropy on the logits
    gamma, beta    the norm's affine parameters [d], "layers.k.norm.weight" and "layers.k.norm.bias"
    mean, var      of each column of Z over all nodes [d]; BatchNorm's statistics
    dQ     derivative of the batch loss by Q, of the shape of Q
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from cvgnn.errors import require
from cvgnn.reference.propagation_matrix import Array

EPS = 1e-5
NORMS = ("none", "layer", "batch")

Statistics = tuple[Array, Array]


def layer_norm(Z: Array, gamma: Array, beta: Array) -> Array:
    """(Z - mean) / sqrt(var + 1e-5) gamma + beta along each row, var biased, as `torch.nn.LayerNorm`.

    >>> layer_norm(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2)).round(3).tolist()
    [[-1.0, 1.0]]
    """
    return _standardized(Z, None)[0] * gamma + beta


def _standardized(Z: Array, statistics: Statistics | None) -> tuple[Array, Array]:
    """(Z - mean) / deviation, and the deviation: of each row (LayerNorm), or of the given statistics (BatchNorm)."""
    mean, var = statistics or (Z.mean(axis=1, keepdims=True), Z.var(axis=1, keepdims=True))
    deviation = np.sqrt(var + EPS)
    return (Z - mean) / deviation, deviation


def _Phi(Z: Array) -> Array:
    """The normal distribution function, by the error function."""
    result: Array = 0.5 * (1.0 + np.vectorize(math.erf, otypes=[np.float64])(Z / math.sqrt(2.0)))
    return result


# Each activation and its slope; that of ReLU is 0 at 0, as in torch.
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "relu": (lambda Z: np.maximum(Z, 0.0), lambda Z: np.where(Z > 0, 1.0, 0.0)),
    "elu": (lambda Z: np.where(Z > 0, Z, np.expm1(np.minimum(Z, 0.0))), lambda Z: np.exp(np.minimum(Z, 0.0))),
    "gelu": (lambda Z: Z * _Phi(Z), lambda Z: _Phi(Z) + Z * np.exp(-(Z**2) / 2) / math.sqrt(2 * math.pi)),
}


def sigma(
    params: Mapping[str, Array], k: int, Z: Array, activation: str = "relu", statistics: Statistics | None = None
) -> Array:
    """H^(k+1) = sigma(Z^(k+1)) of a hidden layer (eq. 6): [norm,] activation; dropout is the caller's.

    Args:
        params: Parameters by name; the norm is off without "layers.k.norm.weight".
        k: The layer.
        Z: Pre-activation [rows, d].
        activation: One of `ACTIVATIONS`.
        statistics: (mean, var) of BatchNorm, [d] each; None is LayerNorm.

    >>> sigma({}, 0, np.array([[-1.0, 2.0]]), "elu").round(3).tolist()
    [[-0.632, 2.0]]
    """
    return ACTIVATIONS[activation][0](_normalized(params, k, Z, statistics))


def _normalized(params: Mapping[str, Array], k: int, Z: Array, statistics: Statistics | None) -> Array:
    name = f"layers.{k}.norm"
    if f"{name}.weight" not in params:
        return Z
    return _standardized(Z, statistics)[0] * params[f"{name}.weight"] + params[f"{name}.bias"]


def sigma_backward(
    params: Mapping[str, Array],
    k: int,
    Z: Array,
    dH: Array,
    activation: str = "relu",
    statistics: Statistics | None = None,
) -> tuple[Array, dict[str, Array]]:
    """dZ^(k+1) from dH^(k+1), and the gradients of layer k's norm, for the arguments of `sigma`."""
    name = f"layers.{k}.norm"
    dY = dH * ACTIVATIONS[activation][1](_normalized(params, k, Z, statistics))
    if f"{name}.weight" not in params:
        return dY, {}
    X, deviation = _standardized(Z, statistics)
    dX = dY * params[f"{name}.weight"]
    grads = {f"{name}.weight": (dY * X).sum(axis=0), f"{name}.bias": dY.sum(axis=0)}
    if statistics is None:  # mean and deviation of a row depend on the row; given ones are constants
        dX = dX - dX.mean(axis=1, keepdims=True) - X * (X * dX).mean(axis=1, keepdims=True)
    return dX / deviation, grads


def softmax_cross_entropy(logits: Array, labels: npt.NDArray[np.int64], smoothing: float = 0.0) -> tuple[float, Array]:
    """The batch loss (1/B) sum_b f(y_b, h_b) and its derivative by the logits.

        f(y, h) = log sum_c exp h[c] - sum_c q[c] h[c],    q = (1 - smoothing) e_y + smoothing / C

    Args:
        logits: One row per entry of the batch [B, C]; a repeated node has repeated rows.
        labels: The class of each row [B].
        smoothing: 0 in the paper, where q = e_y.

    Returns:
        The loss, and its derivative [B, C].

    >>> round(softmax_cross_entropy(np.zeros((1, 2)), np.array([0]))[0], 6)
    0.693147
    """
    B, C = logits.shape
    require(
        bool(((labels >= 0) & (labels < C)).all()), f"labels of the batch must lie in 0..{C - 1}: {labels.tolist()}"
    )
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    q = (1.0 - smoothing) * np.eye(C)[labels] + smoothing / C
    return float(-(q * log_softmax).sum(axis=1).mean()), (np.exp(log_softmax) - q) / B
