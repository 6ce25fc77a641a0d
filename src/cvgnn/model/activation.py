"""A hidden layer's `sigma` after `A W`: bias, LayerNorm, ReLU and dropout as one differentiable operation.

torch would make a pass over the matrix, and keep a copy of it, for each of them; here a row is read once forward and
once backward. CPU tensors only, as all of cvgnn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cvgnn.model import activation_kernels as kernels
from cvgnn.model.dropout import Dropout
from cvgnn.parallel import over_rows

Array = np.ndarray[Any, np.dtype[Any]]

_EPS = 1e-5  # LayerNorm's


def activate(
    Z: Tensor, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None, drop: Dropout | None
) -> tuple[Tensor, Tensor]:
    """`H = ReLU([LayerNorm] (Z + b))` and what is propagated of it, `H` after dropout.

    Args:
        Z: `A W`, `[n, d]`.
        bias: `b`, `[d]`, or None.
        gain, shift: LayerNorm's parameters `[d]`, or None where there is no LayerNorm.
        drop: what to drop, or None.

    Returns:
        `H`, a constant, for the history; what is propagated, differentiable in everything. The same values without
        dropout.
    """
    if drop is None:
        sent = _Activation.apply(Z, bias, gain, shift, None)  # type: ignore[no-untyped-call]
        return sent.detach(), sent
    sent, H = _Activation.apply(Z, bias, gain, shift, drop)  # type: ignore[no-untyped-call]
    return H, sent


def activate_in_place(Z: Tensor, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None) -> Tensor:
    """`Z = ReLU([LayerNorm] (Z + b))`, without gradient and dropout, for evaluation. Returns `Z`."""
    rows = Z.detach().numpy()
    empty = rows[:0]
    mean, inverse = np.empty((2, 0 if gain is None else rows.shape[0]), rows.dtype)
    b, g, s = _parameters(rows, bias, gain, shift)

    def compute(first: int, last: int) -> None:
        kernels.forward(rows, b, g, s, _EPS, np.uint64(0), 0, 1.0, rows, empty, mean, inverse, first, last)

    over_rows(compute, rows.shape[0], width=rows.shape[1])
    return Z


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, Z: Tensor, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None, drop: Dropout | None
    ) -> Tensor | tuple[Tensor, Tensor]:
        rows = Z.detach().contiguous().numpy()
        n, d = rows.shape
        H = torch.empty(n, d, dtype=Z.dtype)
        sent = torch.empty(n, d, dtype=Z.dtype) if drop is not None else H
        b, g, s = _parameters(rows, bias, gain, shift)
        mean, inverse = np.empty((2, 0 if gain is None else n), rows.dtype)
        h, o = H.numpy(), sent.numpy()
        key = np.uint64(0 if drop is None else drop.key)
        threshold, scale = (0, 1.0) if drop is None else (drop.threshold, drop.scale)

        def compute(first: int, last: int) -> None:
            kernels.forward(rows, b, g, s, _EPS, key, threshold, scale, h, o, mean, inverse, first, last)

        over_rows(compute, n, width=d)
        ctx.arrays = (rows, b, g, mean, inverse)
        ctx.scale = scale
        ctx.save_for_backward(sent)
        if drop is None:
            return sent
        ctx.mark_non_differentiable(H)
        return sent, H

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (sent,) = ctx.saved_tensors
        rows, b, g, mean, inverse = ctx.arrays
        scale = ctx.scale
        n, d = rows.shape
        dZ = torch.empty(n, d, dtype=sent.dtype)
        sums = np.zeros((max(1, -(-n // kernels.PART)), 3, d), rows.dtype)
        do, o, dz = grads[0].contiguous().numpy(), sent.detach().numpy(), dZ.numpy()

        def compute(first: int, last: int) -> None:
            kernels.backward(do, o, rows, b, g, mean, inverse, scale, dz, sums, first, last)

        over_rows(compute, n, width=d, multiple=kernels.PART)
        d_bias, d_gain, d_shift = torch.from_numpy(sums.sum(axis=0) if len(sums) > 1 else sums[0])
        needs = ctx.needs_input_grad
        return dZ, d_bias if needs[1] else None, d_gain if needs[2] else None, d_shift if needs[3] else None, None


def _parameters(rows: Array, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None) -> tuple[Array, ...]:
    """The parameters as arrays: no bias is a zero bias, no LayerNorm has an empty gain."""
    nothing = np.empty(0, rows.dtype)
    return (
        np.zeros(rows.shape[1], rows.dtype) if bias is None else bias.detach().numpy(),
        nothing if gain is None else gain.detach().numpy(),
        nothing if shift is None else shift.detach().numpy(),
    )
