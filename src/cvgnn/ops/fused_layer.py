"""A layer in one differentiable operation: products, bias, LayerNorm, activation, dropout and the sampled sum.

    Z = sum_j A_j W_j + b,    H = act([LayerNorm] Z),    S = P^ dropout(H) + correction

torch would make a pass over the matrix, and keep a copy of it, for each of these. Here a row is read once forward and
once backward, and a thread computes all of it for its rows: the rows of a layer depend on each other only through
`P^`, so threads synchronize once per layer forward (`H` must be complete before it is summed; the layer above sums the
rows that it multiplies) and once backward.

Each function is compiled for CPU tensors and has an equal one in plain torch for any device (`cvgnn.ops.backend`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cvgnn.errors import CvgnnError
from cvgnn.ops import layer_kernels as kernels
from cvgnn.ops.affine import Affine, Products, affine, check_backward
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.dropout import NO_DROPOUT, Dropout
from cvgnn.ops.row_input import LayerInput, LazySum, part
from cvgnn.ops.row_sum import Array, Rows, differentiable_sum
from cvgnn.ops.threads import MEMORY_COST, run_ranges, run_rows

EPS = 1e-5
"""LayerNorm's."""

Activation = Literal["relu", "elu", "gelu"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)  # in the order of the kernels' numbers
_NUMPY: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}


class Correction(NamedTuple):
    """What an estimator adds to a sampled sum.

    Args:
        rows: returns its rows `first..last-1`, a new constant, or None for zero; called from several threads.
        entries: the mean number of table rows that one row reads, to decide on threads.
    """

    rows: Callable[[int, int], Tensor | None]
    entries: int = 0


class MaskWeights(NamedTuple):
    """`S = sqrt(f) P` beside a sampled matrix `P^ = f P` with the same entries, and its transpose (estimator `cvd`).

    A neighbor is drawn with probability `1/f`, `f = deg / D`. So a mask's variance is multiplied by
    `(f P)^2 / f = f P^2` with the weights of `P^`, and by `P^2` with those of `S`, as in exact aggregation.
    """

    sampled: Rows
    transposed: Rows


class Sigma(NamedTuple):
    """What makes `H` of `Z`: LayerNorm's gain and shift, `[d]` each, or None for no LayerNorm; the activation."""

    gain: Tensor | None = None
    shift: Tensor | None = None
    activation: Activation = "relu"


class HiddenLayer(NamedTuple):
    """What a hidden layer gives.

    Args:
        H: `[n, d]` before dropout, a constant, for the history.
        own: the first rows of `dropout(H)`, those of the sum's targets, `[m, d]`; all of them where nothing is summed;
            None where it was not requested.
        aggregate: `P^ dropout(H) + correction`, `[m, d]`; None where nothing is summed.
    """

    H: Tensor
    own: Tensor | None
    aggregate: LayerInput | None


def hidden_layer(
    Z: Affine | Tensor,
    sigma: Sigma,
    *,
    drop: Dropout | None = None,
    sampled: Rows | None = None,
    transposed: Rows | None = None,
    mask_weights: MaskWeights | None = None,
    correction: Correction | None = None,
    own: bool = False,
    own_rows: int | None = None,
    lazy: bool = False,
) -> HiddenLayer:
    """`H = act([LayerNorm] Z)` and `P^ dropout(H) + correction`, differentiable in all that makes `Z` and in `sigma`.

    With `mask_weights` the sum is `P^ H + S (dropout(H) - H)`.

    Args:
        Z: `[n, d]`.
        sigma: the norm's parameters and the activation.
        drop: what to drop, or None.
        sampled: `P^`, `[m, n]`; None to sum nothing.
        transposed: `P^` transposed.
        mask_weights: `S`; it has no effect without dropout. None: the mask has the weights of `P^`.
        correction: what the estimator adds to the sum; None for nothing.
        own: whether the targets' own rows are wanted.
        own_rows: how many of the first rows these are, if not all targets have a row.
        lazy: whether the aggregate may be a `LazySum`, for a layer that only multiplies it.
    """
    if (sampled is None) != (transposed is None):
        raise CvgnnError("a sampled sum needs both the matrix and its transpose, for the backward pass")
    summed = None
    if sampled is not None and transposed is not None:
        summed = _Sum(sampled, transposed, None if drop is None else mask_weights, correction)
    if isinstance(Z, Tensor):
        Z = Affine(((Z, None),))
    like = next(t for t in reversed(Z.terms[0]) if isinstance(t, Tensor))
    if like.dtype not in _NUMPY:
        raise CvgnnError(f"a layer computes in torch.float32 or torch.float64, not {like.dtype}")
    if not use_compiled(like):
        return _plain_hidden_layer(Z, sigma, drop, summed, own, own_rows)
    n = Z.terms[0][0].shape[0]
    # Ranges consist of complete parts of the kernels' sums, so that results do not depend on the threads. The kernels
    # read and write each entry, too.
    products = Products(Z.terms, row_work=MEMORY_COST * like.shape[1], multiple=kernels.rows_in_part(n))
    layer = _Layer(products, _NUMPY[like.dtype], sigma.activation, drop, summed, own, own_rows)
    # Autograd must see every tensor that may need a gradient.
    variables = (Z.bias, sigma.gain, sigma.shift, *products.variables)
    H, mine, out = _HiddenFunction.apply(layer, *variables)  # type: ignore[no-untyped-call]
    if summed is None:
        return HiddenLayer(H, mine, None)
    aggregate = LazySum(out, functools.partial(summed.rows, layer.h, layer.sent), summed.entries)
    return HiddenLayer(H, mine, aggregate if lazy else aggregate.tensor())


def activate_in_place(Z: Tensor, sigma: Sigma) -> Tensor:
    """`Z = act([LayerNorm] Z)`, without gradient and dropout, for exact inference. Returns `Z`."""
    if not use_compiled(Z):
        return Z.copy_(_plain_sigma(Z, sigma))
    rows = Z.detach().numpy()
    nothing = rows[:0, 0]
    gain, shift = (nothing if p is None else p.detach().numpy() for p in (sigma.gain, sigma.shift))
    mean, inverse = np.empty((2, 0 if sigma.gain is None else rows.shape[0]), rows.dtype)
    no_bias, kind = np.zeros(rows.shape[1], rows.dtype), ACTIVATIONS.index(sigma.activation)

    def compute(first: int, last: int) -> None:
        kernels.forward(rows, no_bias, gain, shift, EPS, kind, *NO_DROPOUT, rows, rows[:0], mean, inverse, first, last)

    run_rows(compute, rows.shape[0], width=rows.shape[1])
    return Z


def _plain_sigma(Z: Tensor, sigma: Sigma) -> Tensor:
    if sigma.gain is not None:
        Z = F.layer_norm(Z, (Z.shape[1],), sigma.gain, sigma.shift, EPS)
    return activation_function(sigma.activation)(Z)


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """torch's function of that name, as `Sigma` has it."""
    functions: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "elu": F.elu, "gelu": F.gelu}
    return functions[name]


def _plain_hidden_layer(
    Z: Affine, sigma: Sigma, drop: Dropout | None, summed: _Sum | None, own: bool, own_rows: int | None
) -> HiddenLayer:
    """The same in public torch operations."""
    H = _plain_sigma(affine(Z), sigma)
    sent = H if drop is None else H * drop.mask((H.shape[0], H.shape[1]), H.dtype, device=H.device)
    if summed is None:
        return HiddenLayer(H.detach(), sent, None)
    sampled, transposed, mask_weights, correction = summed
    aggregate = sampled_sum(sampled, transposed, mask_weights, H, sent)
    added = None if correction is None else correction.rows(0, sampled.num_rows)
    mine = sent[: sampled.num_rows if own_rows is None else own_rows] if own else None
    return HiddenLayer(H.detach(), mine, aggregate if added is None else aggregate + added)


def sampled_sum(sampled: Rows, transposed: Rows, mask: MaskWeights | None, H: Tensor, sent: Tensor) -> Tensor:
    """`P^ sent`, or `(P^ - S) H + S sent` with `S`: what is estimated of `P dropout(H)`, without the correction."""
    if mask is None:
        return differentiable_sum(sampled, transposed, sent)
    pairs = ((sampled, mask.sampled), (transposed, mask.transposed))
    rest, rest_transposed = (Rows(a.indptr, a.indices, a.weight - s.weight) for a, s in pairs)  # type: ignore[operator]
    return differentiable_sum(*mask, sent) + differentiable_sum(rest, rest_transposed, H)


class _Sum(NamedTuple):
    """`P^ H + S (dropout(H) - H) + correction`, `S = P^` without `mask_weights`; see `hidden_layer`."""

    sampled: Rows
    transposed: Rows
    mask_weights: MaskWeights | None
    correction: Correction | None

    @property
    def entries(self) -> int:
        """The mean number of rows that a row of the sum reads."""
        sampled = 1 + self.sampled.num_entries // max(self.sampled.num_rows, 1)
        return sampled + (0 if self.correction is None else self.correction.entries)

    def check(self, n: int, dtype: np.dtype[Any]) -> None:
        """Refuse a matrix that does not fit to `n` rows."""
        sources, weight = self.transposed.num_rows, self.sampled.arrays[2].dtype
        if sources != n or weight != dtype:
            raise CvgnnError(
                f"the layer computed {n} rows of {dtype}, but its block has {sources} sources and weights of "
                f"{weight}: sampler, features and model must fit together"
            )

    def rows(self, H: Array, sent: Array, first: int, last: int) -> Tensor:
        """Rows `first..last-1`; mostly the correction, which reads a history from memory."""
        shape = (last - first, H.shape[1])
        added = None if self.correction is None else self.correction.rows(first, last)
        if added is not None and (added.shape != shape or _NUMPY.get(added.dtype) != H.dtype):
            raise CvgnnError(
                f"the estimator's correction is {added.dtype} of shape {list(added.shape)}, the layer needs "
                f"torch.{H.dtype} of {list(shape)}: give the estimator the model's hidden widths and dtype"
            )
        out = np.zeros(shape, H.dtype) if added is None else added.contiguous().numpy()
        indptr, indices, weight = self.sampled.arrays
        mask_weight = weight[:0] if self.mask_weights is None else self.mask_weights.sampled.arrays[2]
        kernels.aggregate(indptr[first : last + 1], indices, weight, mask_weight, H, sent, out, 0, last - first)
        return torch.from_numpy(out)


@final
@dataclass(eq=False)
class _Layer:
    """A layer on `n` nodes, forward and backward; keeps what the backward pass needs.

    Args:
        products: `Z`, without its bias.
        dtype: what is computed in.
        activation, drop, own, own_rows: see `hidden_layer`.
        summed: what is summed of `H`, or None.
    """

    products: Products
    dtype: type[np.floating[Any]]
    activation: str
    drop: Dropout | None
    summed: _Sum | None
    own: bool
    own_rows: int | None

    def forward(
        self, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """`H`, the own rows, and the aggregate, which is not computed yet."""
        drop, products, (n, d) = self.drop, self.products, self.products.shape
        if self.summed is not None:
            self.summed.check(n, np.dtype(self.dtype))
        self.kind = ACTIVATIONS.index(self.activation)
        self.mask = NO_DROPOUT if drop is None else drop.kernel_arguments
        self.Z = np.empty((n, d), self.dtype)  # NumPy allocates in a quarter of the time that torch takes
        Z = torch.from_numpy(self.Z)
        h = self.h = np.empty_like(self.Z)
        H = torch.from_numpy(h)
        self.sent = h if drop is None else np.empty_like(h)
        self.bias = np.zeros(d, h.dtype) if bias is None else bias.detach().numpy()
        self.gain = self.shift = self.mean = self.inverse = self.bias[:0]
        if gain is not None and shift is not None:
            self.gain, self.shift = gain.detach().numpy(), shift.detach().numpy()
            self.mean, self.inverse = np.empty((2, n), h.dtype)

        def activate(i: int, first: int, last: int) -> None:
            products.forward(i, first, last, part(Z, first, last))
            kernels.forward(
                self.Z, self.bias, self.gain, self.shift, EPS, self.kind, *self.mask,
                h, self.sent, self.mean, self.inverse, first, last,
            )  # fmt: skip

        run_ranges(activate, products.ranges)
        if self.summed is None:
            return H, torch.from_numpy(self.sent), None
        m = self.summed.sampled.num_rows
        mine = self.sent[: m if self.own_rows is None else self.own_rows]
        return H, torch.from_numpy(mine) if self.own else None, torch.from_numpy(np.empty((m, d), h.dtype))

    def backward(
        self, d_own: Tensor | None, d_out: Tensor | None, needs: tuple[bool, ...]
    ) -> tuple[Array, tuple[Tensor | None, ...]]:
        """The gradients of bias, gain and shift, `[3, d]`, and of the products' variables."""
        n, d = self.Z.shape
        dz, products = np.empty_like(self.Z), self.products
        dZ = torch.from_numpy(dz)
        sums = np.zeros((max(1, -(-n // kernels.rows_in_part(n))), 3, d), self.Z.dtype)
        own = self.Z[:0] if d_own is None else d_own.contiguous().numpy()
        out = self.Z[:0] if d_out is None else d_out.contiguous().numpy()
        transposed: tuple[Array, ...] = (np.zeros(n + 1, np.int32), np.empty(0, np.int32), self.bias[:0])
        mask_weight = self.bias[:0]
        if self.summed is not None and d_out is not None:
            transposed = self.summed.transposed.arrays
            if self.summed.mask_weights is not None:
                mask_weight = self.summed.mask_weights.transposed.arrays[2]
        products.begin_backward(needs)

        def compute(i: int, first: int, last: int) -> None:
            kernels.backward(
                out, *transposed, mask_weight, own, self.h, self.sent, self.Z, self.bias, self.gain, self.shift,
                self.kind, *self.mask, self.mean, self.inverse, dz, sums, first, last,
            )  # fmt: skip
            products.backward(i, first, last, part(dZ, first, last))

        run_ranges(compute, products.ranges)
        total: Array = sums.sum(axis=0) if len(sums) > 1 else sums[0]
        return total, products.gradients(dZ)


class _HiddenFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: _Layer, *variables: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
        ctx.layer = layer
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*variables)
        H, own, aggregate = layer.forward(*variables[:3])
        ctx.mark_non_differentiable(H)
        return H, own, aggregate

    @staticmethod
    def backward(ctx: Any, _: None, d_own: Tensor | None, d_out: Tensor | None) -> tuple[Tensor | None, ...]:
        needs = check_backward(ctx)
        parameters, others = ctx.layer.backward(d_own, d_out, needs[4:])
        return None, *(torch.from_numpy(parameters[i]) if needs[i + 1] else None for i in range(3)), *others
