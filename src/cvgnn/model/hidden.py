"""From `A W` of a hidden layer to the next layer's aggregated input, as one differentiable operation.

Bias, LayerNorm, ReLU, dropout and the sampled sum: torch would make a pass over the matrix, and keep a copy of it, for
each of them. Here a row is read once forward and once backward. CPU tensors only, as all of cvgnn.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.model import kernels
from cvgnn.model.dropout import Dropout
from cvgnn.parallel import over_rows
from cvgnn.sampling import Block

Array = np.ndarray[Any, np.dtype[Any]]

EPS = 1e-5
"""LayerNorm's."""


class Sigma(NamedTuple):
    """The parameters between `A W` and ReLU, each `[d]`: the bias, and LayerNorm's gain and shift; None for none."""

    bias: Tensor | None
    gain: Tensor | None
    shift: Tensor | None


def activate_and_aggregate(
    Z: Tensor,
    sigma: Sigma,
    *,
    drop: Dropout | None,
    block: Block,
    correction: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """`H = ReLU([LayerNorm] (Z + b))` and `P^ dropout(H) + correction`.

    Args:
        Z: `A W`, `[n, d]`.
        sigma: `b` and LayerNorm's parameters.
        drop: what to drop, or None.
        block: holds `P^`, `[m, n]`, and its transpose.
        correction: a constant `[m, d]`, which becomes the result; or None.

    Returns:
        `H` `[n, d]`, a constant, for the history; the aggregate `[m, d]`, differentiable in `Z` and the parameters.
    """
    out, H = _Hidden.apply(Z, *sigma, drop, block, correction)  # type: ignore[no-untyped-call]
    return H, out


def activate_in_place(Z: Tensor, sigma: Sigma) -> Tensor:
    """`Z = ReLU([LayerNorm] (Z + b))`, without gradient and dropout, for evaluation. Returns `Z`."""
    rows = Z.detach().numpy()
    empty = rows[:0]
    mean, inverse = np.empty((2, 0 if sigma.gain is None else rows.shape[0]), rows.dtype)
    b, g, s = _parameters(rows, sigma)

    def compute(first: int, last: int) -> None:
        kernels.forward(rows, b, g, s, EPS, np.uint64(0), 0, 1.0, rows, empty, mean, inverse, first, last)

    over_rows(compute, rows.shape[0], width=rows.shape[1])
    return Z


class Pass(NamedTuple):
    """What `backward` needs to know of a pass forward."""

    transposed: tuple[Array, Array, Array]
    sent: Array
    Z: Array
    bias: Array
    gain: Array
    mean: Array
    inverse: Array
    scale: float


def forward(
    Z: Tensor, sigma: Sigma, drop: Dropout | None, block: Block, correction: Tensor | None
) -> tuple[Tensor, Tensor, Pass]:
    """The aggregate, `H`, and what `backward` needs; see `activate_and_aggregate`."""
    _check(Z, block, correction)
    rows = Z.detach().contiguous().numpy()
    n, d = rows.shape
    b, g, s = _parameters(rows, sigma)
    mean, inverse = np.empty((2, 0 if sigma.gain is None else n), rows.dtype)
    H = torch.empty(n, d, dtype=Z.dtype)
    h = H.numpy()
    sent = h if drop is None else np.empty((n, d), rows.dtype)
    key = np.uint64(0 if drop is None else drop.key)
    threshold, scale = (0, 1.0) if drop is None else (drop.threshold, drop.scale)
    over_rows(
        lambda first, last: kernels.forward(
            rows, b, g, s, EPS, key, threshold, scale, h, sent, mean, inverse, first, last
        ),
        n,
        width=d,
    )
    indptr, indices, weight = block.sampled.arrays
    m = indptr.size - 1
    result = torch.zeros(m, d, dtype=Z.dtype) if correction is None else correction.contiguous()
    out = result.numpy()
    over_rows(
        lambda first, last: kernels.aggregate(indptr, indices, weight, sent, out, first, last),
        m,
        width=d * -(-indices.size // max(m, 1)),
    )
    return result, H, Pass(block.transposed.arrays, sent, rows, b, g, mean, inverse, scale)


def _check(Z: Tensor, block: Block, correction: Tensor | None) -> None:
    """Refuse what compiled code, which checks nothing, must not see."""
    n, d = Z.shape
    weight = block.sampled.weight
    if block.transposed.num_rows != n or weight is None or weight.dtype != Z.dtype:
        raise CvgnnError(
            f"the layer computed {n} rows of {Z.dtype}, but its block has {block.transposed.num_rows} sources and "
            f"weights of {None if weight is None else weight.dtype}: sampler, features and model must fit together"
        )
    m = block.sampled.num_rows
    if correction is not None and (correction.shape != (m, d) or correction.dtype != Z.dtype):
        raise CvgnnError(
            f"the estimator's correction is {correction.dtype} of shape {list(correction.shape)}, the layer needs "
            f"{Z.dtype} of {[m, d]}: give the estimator the model's hidden widths and dtype"
        )


def backward(d_out: Tensor, done: Pass) -> tuple[Tensor, Sigma]:
    """The gradient of `Z`, `[n, d]`, and those of bias, gain and shift, `[d]` each, given the aggregate's."""
    (indptr, indices, weight), sent, rows, b, g, mean, inverse, scale = done
    n, d = rows.shape
    dZ = torch.empty(n, d, dtype=d_out.dtype)
    sums = np.zeros((max(1, -(-n // kernels.PART)), 3, d), rows.dtype)
    da, dz = d_out.contiguous().numpy(), dZ.numpy()
    over_rows(
        lambda first, last: kernels.backward(
            da, indptr, indices, weight, sent, rows, b, g, mean, inverse, scale, dz, sums, first, last
        ),
        n,
        width=d,
        multiple=kernels.PART,
    )
    return dZ, Sigma(*map(torch.from_numpy, sums.sum(axis=0) if len(sums) > 1 else sums[0]))


class _Hidden(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Z: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
        bias, gain, shift, drop, block, correction = args
        out, H, ctx.done = forward(Z, Sigma(bias, gain, shift), drop, block, correction)
        ctx.mark_non_differentiable(H)
        return out, H

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dZ, sigma = backward(grads[0], ctx.done)
        parameters = (sigma[i] if ctx.needs_input_grad[i + 1] else None for i in range(3))
        return dZ, *parameters, None, None, None


def _parameters(rows: Array, sigma: Sigma) -> tuple[Array, Array, Array]:
    """The parameters as arrays: no bias is a zero bias, no LayerNorm has an empty gain."""
    bias, gain, shift = sigma
    nothing = np.empty(0, rows.dtype)
    return (
        np.zeros(rows.shape[1], rows.dtype) if bias is None else bias.detach().numpy(),
        nothing if gain is None else gain.detach().numpy(),
        nothing if shift is None else shift.detach().numpy(),
    )
