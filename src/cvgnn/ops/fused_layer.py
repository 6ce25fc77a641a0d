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
import operator
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cvgnn.errors import CvgnnError
from cvgnn.ops import layer_kernels as kernels
from cvgnn.ops.affine import Affine, Products, work_of_row
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.dropout import NO_DROPOUT, Dropout
from cvgnn.ops.layer_kernels import EPS as EPS
from cvgnn.ops.matmul import NARROW
from cvgnn.ops.row_input import LayerInput, LazySum
from cvgnn.ops.row_sum import Array, Rows, differentiable_sum
from cvgnn.ops.threads import MEMORY_COST, WORTH_SHARING, run_rows

_WORTH_TURNING = 1 << 20  # multiply-adds from which a transposed narrow product saves more than a function call costs
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

    With `mask_weights` the sum is `P^ H + S (dropout(H) - H)`. If an entry of `H` is infinite or NaN, all of
    `dropout(H)` is NaN: dropout could hide the entry from the loss, while the history would keep it.

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
    if (like := _like(Z)).dtype not in _NUMPY:
        raise CvgnnError(f"a layer computes in torch.float32 or torch.float64, not {like.dtype}")
    if not use_compiled(like):
        return _plain_hidden_layer(Z, sigma, drop, summed, own, own_rows)
    H, mine, out, sent = _fused(Z, sigma, drop, summed, own, own_rows)
    if summed is None:
        return HiddenLayer(H, mine, None)
    aggregate = LazySum(out, functools.partial(summed.rows, H.numpy(), sent), summed.entries)
    return HiddenLayer(H, mine, aggregate if lazy else aggregate.tensor())


def affine(Z: Affine) -> Tensor:
    """`sum_j A_j W_j + b`, `[n, d]`, differentiable in the weights, the bias and in inputs that are tensors."""
    (A, W), *others = Z.terms
    if W is not None and torch.is_grad_enabled() and use_compiled(W) and W.dtype in _NUMPY:
        # Autograd's own products are lighter for few rows, and slow for many rows and few columns (`matmul.NARROW`).
        worth = min(_WORTH_TURNING, WORTH_SHARING) if W.shape[1] <= NARROW else WORTH_SHARING
        if A.shape[0] * work_of_row(Z.terms) >= worth:
            return _fused(Z, None, None, None, True)[1]  # type: ignore[no-any-return]
    if W is not None and not others and Z.bias is not None:
        A = A.tensor() if isinstance(A, LazySum) else A
        if isinstance(A, Tensor):
            return torch.addmm(Z.bias, A, W)
    each: Iterator[Any] = (A if W is None else A @ W for A, W in Z.terms)
    total: Tensor = functools.reduce(operator.add, each)
    return total if Z.bias is None else total + Z.bias


def _like(Z: Affine) -> Tensor:
    """A tensor with the dtype and the device that `Z` will have."""
    return next(t for t in reversed(Z.terms[0]) if isinstance(t, Tensor))


def _fused(
    Z: Affine, sigma: Sigma | None, drop: Dropout | None, summed: _Sum | None, own: bool, own_rows: int | None = None
) -> Any:
    """`H`, the own rows, the aggregate, which is not computed yet, and `dropout(H)`; `H = Z` without `sigma`."""
    # Ranges consist of complete parts of the kernels' sums, so that results do not depend on the threads. The kernels
    # read and write each entry, too.
    like, n = _like(Z), Z.terms[0][0].shape[0]
    products = Products(Z.terms, row_work=MEMORY_COST * like.shape[1], multiple=kernels.rows_in_part(n))
    z = np.empty(products.shape, _NUMPY[like.dtype])  # NumPy allocates in a quarter of the time that torch takes
    kind = kernels.NONE if sigma is None else ACTIVATIONS.index(sigma.activation)
    # Autograd must see every tensor that may need a gradient.
    variables = (Z.bias, *(Sigma() if sigma is None else sigma)[:2], *products.variables)
    return _LayerFunction.apply((products, z, kind, drop, summed, own, own_rows), *variables)  # type: ignore[no-untyped-call]


def activate_in_place(Z: Tensor, sigma: Sigma) -> Tensor:
    """`Z = act([LayerNorm] Z)`, without gradient and dropout, for exact inference. Returns `Z`."""
    if not use_compiled(Z):
        return Z.copy_(_plain_sigma(Z, sigma))
    rows = Z.detach().numpy()
    layer = (rows, *_parameters(rows, None, *sigma[:2]), ACTIVATIONS.index(sigma.activation), *NO_DROPOUT)
    run_rows(lambda a, b: kernels.forward(*layer, rows, rows[:0], a, b), rows.shape[0], width=rows.shape[1])
    return Z


def _parameters(z: Array, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None) -> tuple[Array, ...]:
    """For the kernels: bias, gain, shift, and room for LayerNorm's statistics; no bias is 0, no LayerNorm is empty."""
    mean, inverse = np.empty((2, 0 if gain is None else len(z)), z.dtype)
    b = np.zeros(z.shape[1], z.dtype) if bias is None else bias.detach().numpy()
    return b, *(b[:0] if p is None else p.detach().numpy() for p in (gain, shift)), mean, inverse


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
    sent = dropped(H, drop)
    if summed is None:
        return HiddenLayer(H.detach(), sent, None)
    sampled, transposed, mask_weights, correction = summed
    aggregate = sampled_sum(sampled, transposed, mask_weights, H, sent)
    added = None if correction is None else correction.rows(0, sampled.num_rows)
    mine = sent[: sampled.num_rows if own_rows is None else own_rows] if own else None
    return HiddenLayer(H.detach(), mine, aggregate if added is None else aggregate + added)


def dropped(H: Tensor, drop: Dropout | None) -> Tensor:
    """`dropout(H)` in public torch operations, NaN if an entry of `H` is not finite; see `hidden_layer`."""
    sent = H if drop is None else H * drop.mask((H.shape[0], H.shape[1]), H.dtype, device=H.device)
    return torch.where(H.isfinite().all(), sent, torch.nan)


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


class _LayerFunction(torch.autograd.Function):
    """`_fused` for autograd. The graph keeps `layer`, the kernels' arguments, for the backward pass."""

    @staticmethod
    def forward(ctx: Any, given: tuple[Any, ...], *variables: Tensor | None) -> tuple[Any, ...]:
        products, z, kind, drop, summed, own, own_rows = given
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*variables)
        (n, d), h = z.shape, z if kind == kernels.NONE else np.empty_like(z)
        if summed is not None:
            summed.check(n, z.dtype)
        sent = h if drop is None else np.empty_like(h)
        layer = (z, *_parameters(z, *variables[:3]), kind, *(NO_DROPOUT if drop is None else drop.kernel_arguments))
        checksums = [0.0] * len(products.ranges)

        def activate(i: int, first: int, last: int) -> None:
            checksums[i] = kernels.forward(*layer, h, sent, first, last)

        products.forward(torch.from_numpy(z), activate)
        if kind != kernels.NONE and not np.isfinite(checksums).all() and not np.isfinite(h).all():
            sent = np.full_like(h, np.nan)  # see `hidden_layer`
        ctx.products, ctx.summed, ctx.h, ctx.sent, ctx.layer = products, summed, h, sent, layer
        H = torch.from_numpy(h)
        ctx.mark_non_differentiable(H)
        if summed is None:
            return H, torch.from_numpy(sent), None, sent
        m = summed.sampled.num_rows
        mine = torch.from_numpy(sent[: m if own_rows is None else own_rows]) if own else None
        return H, mine, torch.from_numpy(np.empty((m, d), h.dtype)), sent

    @staticmethod
    def backward(ctx: Any, _: None, d_own: Tensor | None, d_out: Tensor | None, __: None) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # torch raises an error if one of them was changed
        if torch.is_grad_enabled():  # create_graph=True
            raise CvgnnError(
                "a fused layer has one derivative; for a second one compute within cvgnn.ops.backend.plain()"
            )
        z, bias, *_ = ctx.layer
        n, d = z.shape
        dz, mask_weight = np.empty_like(z), bias[:0]
        sums = np.zeros((max(1, -(-n // kernels.rows_in_part(n))), 3, d), z.dtype)
        own, out = (z[:0] if gradient is None else gradient.contiguous().numpy() for gradient in (d_own, d_out))
        transposed: tuple[Array, ...] = (np.zeros(n + 1, np.int32), np.empty(0, np.int32), bias[:0])
        if ctx.summed is not None and d_out is not None:
            transposed = ctx.summed.transposed.arrays
            if ctx.summed.mask_weights is not None:
                mask_weight = ctx.summed.mask_weights.transposed.arrays[2]

        def fill(_: int, first: int, last: int) -> None:
            kernels.backward(out, *transposed, mask_weight, own, ctx.h, ctx.sent, *ctx.layer, dz, sums, first, last)

        _, *needs = ctx.needs_input_grad
        gradients = tuple(ctx.products.backward(torch.from_numpy(dz), fill, needs[3:]))
        total = sums.sum(axis=0)
        return None, *(torch.from_numpy(total[i]) if needs[i] else None for i in range(3)), *gradients
