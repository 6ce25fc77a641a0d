"""What stands between Z and H, and after the last Z: LayerNorm, ReLU, softmax cross entropy; each with its gradient.

Legend (the paper's letters):
    Z      pre-activation [rows, d]
    H      representation, H = sigma(Z) = ReLU(LayerNorm(Z)) in hidden layers, H = Z in the last
    f      loss of one node, here softmax cross entropy on the logits
    gamma, beta    LayerNorm's affine parameters [d], "layers.k.norm.weight" and "layers.k.norm.bias"
    dQ     derivative of the batch loss by Q, of the shape of Q
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cvgnn.errors import require
from cvgnn.reference.propagation import Array

EPS = 1e-5


def layer_norm(Z: Array, gamma: Array, beta: Array) -> Array:
    """(Z - mean) / sqrt(var + 1e-5) gamma + beta along each row, var biased, as `torch.nn.LayerNorm`.

    >>> layer_norm(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2)).round(3).tolist()
    [[-1.0, 1.0]]
    """
    return _standardized(Z)[0] * gamma + beta


def _standardized(Z: Array) -> tuple[Array, Array]:
    """The standardized rows of Z, and the deviation each row was divided by [rows, 1]."""
    deviation = np.sqrt(Z.var(axis=1, keepdims=True) + EPS)
    return (Z - Z.mean(axis=1, keepdims=True)) / deviation, deviation


def layer_norm_backward(dY: Array, Z: Array, gamma: Array) -> tuple[Array, Array, Array]:
    """The derivatives by Z, gamma and beta of a loss whose derivative by Y = layer_norm(Z) is dY."""
    X, deviation = _standardized(Z)
    dX = dY * gamma
    mean_dX = dX.mean(axis=1, keepdims=True)
    mean_XdX = (X * dX).mean(axis=1, keepdims=True)
    return (dX - mean_dX - X * mean_XdX) / deviation, (dY * X).sum(axis=0), dY.sum(axis=0)


def sigma(params: Mapping[str, Array], k: int, Z: Array) -> Array:
    """H^(k+1) = sigma(Z^(k+1)) of a hidden layer (eq. 6): [LayerNorm,] ReLU; dropout is the caller's."""
    return np.maximum(_normalized(params, k, Z), 0.0)


def _normalized(params: Mapping[str, Array], k: int, Z: Array) -> Array:
    name = f"layers.{k}.norm"
    if f"{name}.weight" not in params:
        return Z
    return layer_norm(Z, params[f"{name}.weight"], params[f"{name}.bias"])


def sigma_backward(params: Mapping[str, Array], k: int, Z: Array, dH: Array) -> tuple[Array, dict[str, Array]]:
    """dZ^(k+1) from dH^(k+1), and the gradients of layer k's norm; ReLU has slope 0 at 0, as in torch."""
    name = f"layers.{k}.norm"
    dY = np.where(_normalized(params, k, Z) > 0, dH, 0.0)
    if f"{name}.weight" not in params:
        return dY, {}
    dZ, dgamma, dbeta = layer_norm_backward(dY, Z, params[f"{name}.weight"])
    return dZ, {f"{name}.weight": dgamma, f"{name}.bias": dbeta}


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
