"""The functions between Z and H: norm and activation, each with its gradient.

Legend (the paper's letters):
    Z      pre-activation [rows, d]
    H      representation, H = sigma(Z) = act(norm(Z)) in hidden layers, H = Z in the last
    gamma, beta    the norm's affine parameters [d], "layers.k.norm.weight" and "layers.k.norm.bias"
    mean, var      of each column of Z over all nodes [d]; BatchNorm's statistics
    dQ     derivative of the batch loss by Q, of the shape of Q
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

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
