"""Small batches, where calling torch a hundred times takes longer than the sums: compiled code chains the kernels.

The kernels are those that `cvgnn.model.hidden` and `cvgnn.ops.sparse_matmul` call one by one, so the numbers are
the same; the last layer is `kernels.top`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numba import njit
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.estimator import Estimator
from cvgnn.model.hidden import EPS, Sigma
from cvgnn.ops import layer_kernels as kernels
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.history_write import first_outside
from cvgnn.ops.sparse_matmul import accumulate, multiply
from cvgnn.ops.threads import worth_sharing
from cvgnn.sampling import Batch, LayerInput, SparseInput

Array = np.ndarray[Any, np.dtype[Any]]

Layers = list[tuple[Tensor, Sigma]]
"""The weight of each layer, and its other parameters."""

LARGEST = 1 << 15
"""Multiply-adds of the last layer up to which one compiled call beats torch's dozen (docs/benchmarks/kernels.md)."""


class Loss(NamedTuple):
    """The loss of a batch, and the norm of its gradient where that is known.

    Args:
        value: the mean cross entropy.
        norm: the Euclidean norm of the gradient of all parameters together; None where it was not computed, or if it,
            or something that a history would keep, is not finite.
    """

    value: float
    norm: float | None = None


def last_layer(
    A: Tensor, W: Tensor, bias: Tensor | None, batch: Batch, labels: Tensor, smoothing: float
) -> tuple[float, Tensor]:
    """The loss, and the gradient of the last layer's input `A`; those of its parameters are set. One compiled call."""
    a, w = A.contiguous().numpy(), W.detach().numpy()
    if w.dtype != a.dtype or w.shape[0] != a.shape[1]:
        raise CvgnnError(f"the aggregate is {A.dtype} {list(A.shape)}, the last weight {W.dtype} {list(W.shape)}")
    b = np.zeros(w.shape[1], a.dtype) if bias is None else bias.detach().numpy()
    dW, d_bias, dA = (np.empty(x.shape, x.dtype) for x in (w, b, a))
    ids, place, placed = places(batch)
    mean, bad = kernels.top(a, w, b, labels.numpy(), ids, place, placed, smoothing, dW, d_bias, dA)
    refuse_label(bad, ids, labels, w.shape[1])
    W.grad = torch.from_numpy(dW)
    if bias is not None:
        bias.grad = torch.from_numpy(d_bias)
    return mean, torch.from_numpy(dA)


@final
class TwoLayers:
    """A network of two layers, its parameters as arrays, and room for their gradients, which every call overwrites.

    Args:
        layers: contiguous, of one dtype, float32 or float64.
    """

    def __init__(self, layers: Layers) -> None:
        (W, sigma), (W_top, last) = layers
        d, C = W_top.shape
        self._shape = W.shape
        self._num_top = W_top.numel()
        given = (W, *sigma, W_top, last.bias)
        normed = 0 if sigma.gain is None else d
        shapes = (W.shape, (d,), (normed,), (normed,), W_top.shape, (C,))
        values = [torch.zeros(s, dtype=W.dtype) if p is None else p for p, s in zip(given, shapes, strict=True)]
        gradients = [torch.empty_like(value) for value in values]
        self._parameters = [(p, p.data_ptr(), g) for p, g in zip(given, gradients, strict=True) if p is not None]
        self._arrays = [t.detach().numpy() for t in (*values, *gradients)]
        self._dtype = self._arrays[0].dtype
        self._nothing = (np.zeros(1, np.int32), np.empty(0, np.int32), np.empty(0, self._dtype))

    @staticmethod
    def of(layers: Layers) -> TwoLayers | None:
        """The network, if it has two layers that fit together and that compiled code can read."""
        if len(layers) != 2:
            return None
        (W, sigma), (W_top, last) = layers
        parameters = [p for p in (W, *sigma, W_top, last.bias) if p is not None]
        one_kind = all(p.dtype == W.dtype and p.is_contiguous() and p.is_cpu for p in parameters)
        wide = all(p is None or p.shape == W.shape[1:] for p in sigma)
        fits = W.shape[1] == W_top.shape[0] and wide and (last.bias is None or last.bias.shape == W_top.shape[1:])
        known = W.dtype in (torch.float32, torch.float64)
        return TwoLayers(layers) if one_kind and fits and known else None

    def holds(self) -> bool:
        """Whether the parameters are still where they were."""
        return all(p.data_ptr() == address for p, address, _ in self._parameters)

    def loss_and_gradient(
        self, A: LayerInput, drop: Dropout | None, estimator: Estimator, batch: Batch, labels: Tensor, smoothing: float
    ) -> Loss | None:
        """See `cvgnn.model.gradient.loss_and_gradient`; None, with nothing done, where one call would not do.

        Args:
            A: `(P X)[r^(1)]` after dropout.
            drop: what to drop of `H^(1)`, or None.
            estimator: gives the history term, and stages `H^(1)`.
            batch: the step's ids, receptive fields and sampled matrices.
            labels: int64 `[N]`.
            smoothing: share of each label that is spread over all classes.
        """
        F, d = self._shape
        if not isinstance(A, SparseInput) or A.num_columns != F or A.arrays[2].dtype != self._dtype:
            return None
        block = batch.blocks[0]
        sampled, transposed = block.sampled.arrays, block.transposed.arrays
        rows = A.rows
        n, m = rows[0].size, sampled[0].size - 1
        if (
            m * self._num_top > LARGEST
            or worth_sharing(n, A.entries_per_row * d)
            or transposed[0].size != n + 1
            or sampled[2].dtype != self._dtype
        ):
            return None
        term = estimator.history_term(1, batch)
        if term is not None:
            aggregate = np.zeros((m, d), self._dtype)
            remainder, table = term[0].arrays, term[1]
        else:
            correction = estimator.correction(1, batch)
            if correction is None:
                aggregate = np.zeros((m, d), self._dtype)
            elif correction.shape == (m, d) and correction.dtype == self._parameters[0][0].dtype:
                aggregate = correction.contiguous().numpy()
            else:
                return None
            remainder, table = self._nothing, aggregate
        if table.shape[1] != d or table.dtype != self._dtype or remainder[0].size not in (1, m + 1):
            return None
        H = np.empty((n, d), self._dtype)
        key, threshold, scale = (0, 0, 1.0) if drop is None else (drop.key, drop.threshold, drop.scale)
        ids, place, placed = places(batch)
        mean, bad, squares = _two_layers(
            *rows, *sampled, *transposed, *remainder, table, aggregate, np.uint64(key), threshold, scale,
            labels.numpy(), ids, place, placed, smoothing, H, *self._arrays,
        )  # fmt: skip
        if bad == _NO_HISTORY:
            raise CvgnnError("the batch reads nodes that the histories do not have: sample the graph they are of")
        refuse_label(bad, ids, labels, self._num_top // d)
        for p, _, gradient in self._parameters:
            if p.grad is not gradient:
                p.grad = gradient
        estimator.keep(1, batch, torch.from_numpy(H))
        return Loss(mean, math.sqrt(squares) if math.isfinite(squares) else None)


_NO_HISTORY = -2


@njit(cache=True, nogil=True, error_model="numpy")
def _two_layers(  # type: ignore[no-untyped-def]
    rows, x_indptr, x_indices, x_values, indptr, indices, weight, t_indptr, t_indices, t_weight,
    r_indptr, r_indices, r_weight, history, A, key, threshold, scale, labels, ids, place, placed, smoothing, H,
    W, bias, gain, shift, W_top, b_top, dW, d_bias, d_gain, d_shift, dW_top, db_top,
):  # fmt: skip
    """Forward and back; arguments as in the kernels that are called.

    Args:
        r_indptr, r_indices, r_weight, history: `P - P^` and `Hbar`; no rows for no history term.
        A: `[m, d]`, what is added to the aggregate besides, and becomes it.

    Returns:
        The loss, the position of a bad label or -1, and the sum of the squares of all gradients: not finite if an entry
        of theirs or of `H` is not.
    """
    n, d = H.shape
    if first_outside(r_indices, history.shape[0]) >= 0:
        return np.nan, _NO_HISTORY, np.nan
    Z, sent = np.empty((n, d), W.dtype), np.empty((n, d), W.dtype) if threshold > 0 else H
    mean, inverse = np.empty(n, W.dtype), np.empty(n, W.dtype)
    dA, dZ = np.empty(A.shape, W.dtype), np.empty((n, d), W.dtype)
    sums = np.zeros((max(1, -(-n // kernels.rows_in_part(n))), 3, d), W.dtype)
    multiply(rows, x_indptr, x_indices, x_values, W, Z, 0, n)
    kernels.forward(Z, bias, gain, shift, EPS, key, threshold, scale, H, sent, mean, inverse, 0, n)
    kernels.aggregate(r_indptr, r_indices, r_weight, history, A, 0, r_indptr.size - 1)
    kernels.aggregate(indptr, indices, weight, sent, A, 0, A.shape[0])
    loss, bad = kernels.top(A, W_top, b_top, labels, ids, place, placed, smoothing, dW_top, db_top, dA)
    if bad >= 0:
        return loss, bad, np.nan
    kernels.backward(dA, t_indptr, t_indices, t_weight, sent, Z, bias, gain, mean, inverse, scale, dZ, sums, 0, n)
    for part in range(1, sums.shape[0]):
        sums[0] += sums[part]
    d_bias[:], d_gain[:], d_shift[:] = sums[0, 0], sums[0, 1, : gain.size], sums[0, 2, : gain.size]
    dW[:] = 0
    accumulate(rows, x_indptr, x_indices, x_values, dZ, dW, 0, d)
    squares = _squares(dW) + _squares(dW_top) + _squares(sums[0]) + _squares(db_top.reshape(1, -1))
    return loss, bad, squares + (0.0 if np.isfinite(_squares(H)) else np.nan)


@njit(cache=True, nogil=True, fastmath=kernels.FAST, error_model="numpy")
def _squares(values):  # type: ignore[no-untyped-def]
    """The sum of squares of a matrix: a row in its own dtype, rows in float64."""
    total = 0.0
    for i in range(values.shape[0]):
        row, t = values[i], values.dtype.type(0)
        for c in range(row.size):
            t += row[c] * row[c]
        total += t
    return total


def refuse_label(bad: int, ids: Array, labels: Tensor, num_classes: int) -> None:
    """Say which node of a batch has a label that is no class, where `bad` is its position; nothing if it is -1."""
    if bad >= 0:
        raise CvgnnError(
            f"node {ids[bad]} has no label in 0..{num_classes - 1}, the classes the model knows (labels has "
            f"{labels.numel()} entries)"
        )


def places(batch: Batch) -> tuple[Array, Array, bool]:
    """The batch's ids, the row of each, and whether that is another than its own."""
    ids = batch.ids.numpy()
    return (ids, ids, False) if batch.place is None else (ids, batch.place.numpy(), True)
