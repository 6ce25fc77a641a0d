"""From `A W` of a hidden layer to the next layer's aggregated input, as one differentiable operation.

Bias, LayerNorm, ReLU, dropout and the sampled sum: torch would make a pass over the matrix, and keep a copy of it, for
each of them. Here a row is read once forward and once backward. CPU tensors only, as all of cvgnn.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops import layer_kernels as kernels
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.threads import run_rows
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

    run_rows(compute, rows.shape[0], width=rows.shape[1])
    return Z


@final
class Pass:
    """A hidden layer on a receptive field of `n` nodes, forward: `H` of `Z`, and the sum for the next layer.

    Each method computes a range of rows, so that threads can share them.

    Args:
        Z: `A W`, `[n, d]`, contiguous; the rows of a range must be there when it is activated.
        sigma: `b` and LayerNorm's parameters.
        drop: what to drop, or None.
        block: holds `P^`, `[m, n]`, and its transpose.
    """

    def __init__(self, Z: Tensor, sigma: Sigma, drop: Dropout | None, block: Block) -> None:
        n = Z.shape[0]
        weight = block.sampled.weight
        if block.transposed.num_rows != n or weight is None or weight.dtype != Z.dtype:
            raise CvgnnError(
                f"the layer computed {n} rows of {Z.dtype}, but its block has {block.transposed.num_rows} sources and "
                f"weights of {None if weight is None else weight.dtype}: sampler, features and model must fit together"
            )
        self.H = torch.empty_like(Z)
        self._block = block
        self._drop = (np.uint64(0), 0, 1.0) if drop is None else (np.uint64(drop.key), drop.threshold, drop.scale)
        self._Z, self._h = Z.numpy(), self.H.numpy()
        self._sent = self._h if drop is None else np.empty_like(self._h)
        self._bias, self._gain, self._shift = _parameters(self._Z, sigma)
        self._mean, self._inverse = np.empty((2, 0 if sigma.gain is None else n), self._Z.dtype)

    def activate(self, first: int, last: int) -> None:
        """`H` and what is propagated of it, for rows `first..last-1` of `Z`."""
        kernels.forward(
            self._Z, self._bias, self._gain, self._shift, EPS, *self._drop,
            self._h, self._sent, self._mean, self._inverse, first, last,
        )  # fmt: skip

    def aggregate(self, correction: Tensor | None, first: int, last: int) -> Tensor:
        """`P^ dropout(H) + correction` for rows `first..last-1` of `P^`, all of `H` being there.

        Args:
            correction: of these rows, `[last - first, d]`, which becomes the result; or None.
        """
        out = self._room(correction, last - first)
        self._add(out, first, last)
        return out

    def aggregate_all(self, correction: Tensor | None) -> Tensor:
        """The same for all rows, shared by the threads."""
        m = self._block.sampled.num_rows
        out = self._room(correction, m)
        entries = self._block.sampled.arrays[1].size
        run_rows(lambda a, b: self._add(out[a:b], a, b), m, width=out.shape[1] * -(-entries // max(m, 1)))
        return out

    def _room(self, correction: Tensor | None, num_rows: int) -> Tensor:
        shape, dtype = (num_rows, self.H.shape[1]), self.H.dtype
        if correction is None:
            return torch.zeros(shape, dtype=dtype)
        if correction.shape != shape or correction.dtype != dtype:
            raise CvgnnError(
                f"the estimator's correction is {correction.dtype} of shape {list(correction.shape)}, the layer needs "
                f"{dtype} of {list(shape)}: give the estimator the model's hidden widths and dtype"
            )
        return correction.contiguous()

    def _add(self, out: Tensor, first: int, last: int) -> None:
        indptr, indices, weight = self._block.sampled.arrays
        kernels.aggregate(indptr[first : last + 1], indices, weight, self._sent, out.numpy(), 0, last - first)


@final
class Back:
    """The same layer backwards, a range of rows at a time.

    Args:
        done: the pass forward.
        d_out: `[m, d]`, the gradient of the aggregate.
    """

    def __init__(self, done: Pass, d_out: Tensor) -> None:
        self._done = done
        self._d_out = d_out.contiguous().numpy()
        n, d = done.H.shape
        self.dZ = torch.empty_like(done.H)
        self._dz = self.dZ.numpy()
        self._sums = np.zeros((max(1, -(-n // kernels.rows_in_part(n))), 3, d), self._dz.dtype)

    def rows(self, first: int, last: int) -> Tensor:
        """The gradient of rows `first..last-1` of `Z`; `first` is a multiple of `kernels.rows_in_part(n)`."""
        done = self._done
        kernels.backward(
            self._d_out, *done._block.transposed.arrays, done._sent, done._Z, done._bias, done._gain, done._mean,
            done._inverse, done._drop[2], self._dz, self._sums, first, last,
        )  # fmt: skip
        return self.dZ[first:last]

    def parameters(self) -> Sigma:
        """The gradients of bias, gain and shift, `[d]` each, after all rows."""
        sums = self._sums
        return Sigma(*map(torch.from_numpy, sums.sum(axis=0) if len(sums) > 1 else sums[0]))


def forward(
    Z: Tensor, sigma: Sigma, drop: Dropout | None, block: Block, correction: Tensor | None
) -> tuple[Tensor, Tensor, Pass]:
    """The aggregate, `H`, and what `backward` needs; see `activate_and_aggregate`."""
    n, d = Z.shape
    done = Pass(Z.detach().contiguous(), sigma, drop, block)
    run_rows(done.activate, n, width=d)
    return done.aggregate_all(correction), done.H, done


def backward(d_out: Tensor, done: Pass) -> tuple[Tensor, Sigma]:
    """The gradient of `Z`, `[n, d]`, and those of bias, gain and shift, `[d]` each, given the aggregate's."""
    back = Back(done, d_out)
    n, d = done.H.shape
    run_rows(back.rows, n, width=d, multiple=kernels.rows_in_part(n))
    return back.dZ, back.parameters()


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
