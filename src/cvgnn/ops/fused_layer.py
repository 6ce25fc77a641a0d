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
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, final, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cvgnn.errors import CvgnnError
from cvgnn.ops import layer_kernels as kernels
from cvgnn.ops.affine import Affine
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.dropout import NO_DROPOUT, Dropout
from cvgnn.ops.layer_kernels import EPS as EPS
from cvgnn.ops.matmul import NARROW, input_gradient_into, weight_gradient
from cvgnn.ops.row_input import LayerInput, LazyRows, SparseInput, multiply_into, part
from cvgnn.ops.row_sum import Array, Rows, differentiable_sum
from cvgnn.ops.threads import MEMORY_COST, WORTH_SHARING, row_ranges, run_ranges, run_rows

_WORTH_TURNING = 1 << 20  # multiply-adds from which a transposed narrow product saves more than a function call costs
Activation = Literal["relu", "elu", "gelu"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)  # in the order of the kernels' numbers
_NUMPY: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}


class MaskWeights(NamedTuple):
    """`S = sqrt(f) P` beside a sampled matrix `P^ = f P` with the same entries, and its transpose (estimator `cvd`).

    A neighbor is drawn with probability `1/f`, `f = deg / D`. So a mask's variance is multiplied by
    `(f P)^2 / f = f P^2` with the weights of `P^`, and by `P^2` with those of `S`, as in exact aggregation.
    """

    sampled: Rows
    transposed: Rows


class NeighborSum(NamedTuple):
    """`P^ dropout(H) + correction`, or with `mask_weights`, `S`: `P^ H + S (dropout(H) - H) + correction`.

    Args:
        sampled: `P^`, `[m, n]`.
        transposed: `P^` transposed, for the backward pass.
        mask_weights: `S`; it has no effect without dropout. None: the mask has the weights of `P^`.
        correction: what the estimator adds: returns its rows `first..last-1`, a new constant, or None for zero. Called
            from several threads.
        entries: the mean number of table rows that a row of the correction reads, to decide on threads.
    """

    sampled: Rows
    transposed: Rows
    mask_weights: MaskWeights | None = None
    correction: Callable[[int, int], Tensor | None] | None = None
    entries: int = 0


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
    summed: NeighborSum | None = None,
    own: bool = False,
    own_rows: int | None = None,
    lazy: bool = False,
) -> HiddenLayer:
    """`H = act([LayerNorm] Z)` and a sum of rows of `dropout(H)`, differentiable in all that makes `Z` and in `sigma`.

    If an entry of `H` is infinite or NaN, all of `dropout(H)` is NaN: dropout could hide the entry from the loss, while
    the history would keep it.

    Args:
        Z: `[n, d]`.
        sigma: the norm's parameters and the activation.
        drop: what to drop, or None.
        summed: what to sum, or None.
        own: whether the targets' own rows are wanted.
        own_rows: how many of the first rows these are, if not all targets have a row.
        lazy: whether the aggregate may be a `LazySum`, for a layer that only multiplies it.
    """
    if isinstance(Z, Tensor):
        Z = Affine(((Z, None),))
    if Z.like.dtype not in _NUMPY:
        raise CvgnnError(f"a layer computes in torch.float32 or torch.float64, not {Z.like.dtype}")
    if summed is None:
        own_rows = None
    else:
        own_rows = summed.sampled.num_rows if own_rows is None else own_rows
        if drop is None and summed.mask_weights is not None:
            summed = summed._replace(mask_weights=None)
    if not use_compiled(Z.like):
        H, mine, aggregate = _plain_hidden_layer(Z, sigma, drop, summed, own_rows)
        return HiddenLayer(H, mine if own or summed is None else None, aggregate)
    layer = _Layer(Z, sigma, drop, summed, own_rows)
    mine, variable = layer.apply()
    H = torch.from_numpy(layer.h)
    if summed is None:
        return HiddenLayer(H, mine, None)
    lazy_sum = LazySum(variable, layer, summed)
    return HiddenLayer(H, mine if own else None, lazy_sum if lazy else lazy_sum.tensor())


def affine(Z: Affine) -> Tensor:
    """`sum_j A_j W_j + b`, `[n, d]`, differentiable in the weights, the bias and in inputs that are tensors."""
    (A, W), *others = Z.terms
    if W is not None and torch.is_grad_enabled() and use_compiled(W) and W.dtype in _NUMPY:
        # Autograd's own products are lighter for few rows, and slow for many rows and few columns (`matmul.NARROW`).
        worth = min(_WORTH_TURNING, WORTH_SHARING) if W.shape[1] <= NARROW else WORTH_SHARING
        if A.shape[0] * Z.row_work >= worth:
            return _Products(Z).apply()[0]
    if W is not None and not others and Z.bias is not None:
        A = A.tensor() if isinstance(A, LazySum) else A
        if isinstance(A, Tensor):
            return torch.addmm(Z.bias, A, W)
    each: Iterator[Any] = (A if W is None else A @ W for A, W in Z.terms)
    total: Tensor = functools.reduce(operator.add, each)
    return total if Z.bias is None else total + Z.bias


def activate_in_place(Z: Tensor, sigma: Sigma) -> Tensor:
    """`Z = act([LayerNorm] Z)`, without gradient and dropout, for exact inference. Returns `Z`."""
    if not use_compiled(Z):
        return Z.copy_(_plain_sigma(Z, sigma))
    rows = Z.detach().numpy()
    layer = (rows, *_parameters(rows, None, *sigma[:2]), ACTIVATIONS.index(sigma.activation), *NO_DROPOUT)
    run_rows(lambda a, b: kernels.forward(*layer, rows, rows[:0], a, b), rows.shape[0], width=rows.shape[1])
    return Z


def _parameters(z: Array, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None) -> tuple[Array, ...]:
    """For the kernels: bias, gain, shift, and room for LayerNorm's statistics, none without LayerNorm."""
    b = np.zeros(z.shape[1], z.dtype) if bias is None else bias.detach().numpy()
    if gain is None or shift is None:
        return b, *_no_norm(z.shape[1], z.dtype), b[:0], b[:0]
    return b, gain.detach().numpy(), shift.detach().numpy(), np.empty(len(z), z.dtype), np.empty(len(z), z.dtype)


@functools.lru_cache(maxsize=16)
def _no_norm(d: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Gain and shift that change nothing."""
    return np.ones(d, dtype), np.zeros(d, dtype)


def _plain_sigma(Z: Tensor, sigma: Sigma) -> Tensor:
    if sigma.gain is not None:
        Z = F.layer_norm(Z, (Z.shape[1],), sigma.gain, sigma.shift, EPS)
    return activation_function(sigma.activation)(Z)


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """torch's function of that name, as `Sigma` has it."""
    functions: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "elu": F.elu, "gelu": F.gelu}
    return functions[name]


def _plain_hidden_layer(
    Z: Affine, sigma: Sigma, drop: Dropout | None, summed: NeighborSum | None, own_rows: int | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same in public torch operations."""
    H = _plain_sigma(affine(Z), sigma)
    sent = dropped(H, drop)
    if summed is None:
        return H.detach(), sent, None
    aggregate = sampled_sum(summed.sampled, summed.transposed, summed.mask_weights, H, sent)
    added = None if summed.correction is None else summed.correction(0, summed.sampled.num_rows)
    return H.detach(), sent[:own_rows], aggregate if added is None else aggregate + added


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


class _Products:
    """`Z = sum_j A_j W_j + b` at one step, compiled: its forward pass, and what the backward pass needs of it.

    Args:
        Z: what to compute.
        sigma: parameters that are differentiated together with those of `Z`.
    """

    def __init__(self, Z: Affine, sigma: Sigma | None = None) -> None:
        n, d = Z.shape
        self.terms = Z.terms
        self.z = np.empty((n, d), _NUMPY[Z.like.dtype])  # NumPy allocates in a quarter of the time that torch takes
        # Autograd must see every tensor that may need a gradient.
        inputs, weights = zip(*Z.terms, strict=True)
        variables = [A if isinstance(A, Tensor) else A.variable for A in inputs]
        self.variables = Z.bias, *(sigma or Sigma())[:2], *weights, *variables
        # Ranges consist of complete parts of the kernels' sums, so that results do not depend on the threads. The
        # kernels read and write each entry, too.
        self.ranges = row_ranges(n, MEMORY_COST * d + Z.row_work, multiple=kernels.rows_in_part(n))
        self.read: list[list[Tensor | SparseInput]] = [[] for _ in self.ranges]

    def apply(self) -> tuple[Tensor, Tensor]:
        """What `forward` returns, differentiable."""
        return _LayerFunction.apply(self, *self.variables)  # type: ignore[no-any-return, no-untyped-call]

    def forward(self, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`Z`."""
        Z = torch.from_numpy(self.z)
        self.multiply(lambda _, first, last: None if bias is None else part(Z, first, last).add_(bias))
        return Z, None

    def backward(self, d_own: Tensor | None, d_out: Tensor | None, needs: Sequence[bool]) -> Iterator[Tensor | None]:
        """The gradients of the `variables` that need one."""
        assert d_own is not None
        dZ = d_own.contiguous()
        yield from (dZ.sum(dim=0) if needs[0] else None, None, None)
        yield from self.gradients(dZ, needs[3:], lambda first, last: None)

    def multiply(self, finish: Callable[[int, int, int], object]) -> None:
        """Compute `z`, and call `finish` for each range of its rows while they are in the thread's cache."""
        Z = torch.from_numpy(self.z)

        def compute(i: int, first: int, last: int) -> None:
            to = part(Z, first, last)
            for j, (A, W) in enumerate(self.terms):
                rows = part(A, first, last) if isinstance(A, Tensor) else A.read(first, last)
                self.read[i].append(rows)
                if W is not None:
                    multiply_into(to, rows, W, add=j > 0)
                else:
                    to.add_(rows) if j else to.copy_(rows)  # type: ignore[arg-type]
            finish(i, first, last)

        run_ranges(compute, self.ranges)

    def gradients(
        self, dZ: Tensor, needs: Sequence[bool], start: Callable[[int, int], object]
    ) -> Iterator[Tensor | None]:
        """The gradients of weights and inputs that need one.

        Args:
            dZ: `[n, d]`.
            needs: for each weight, then for each input.
            start: called before a range of rows of `dZ` is read; computes it.
        """
        terms = self.terms
        of_weights, of_inputs = needs[: len(terms)], needs[len(terms) :]
        parts: list[list[Tensor]] = [[dZ] * len(self.ranges) for _ in terms]
        # The gradient of a term without weight is dZ itself.
        d_inputs = [
            None if not needed else dZ if W is None else dZ.new_empty(len(dZ), len(W))
            for (_, W), needed in zip(terms, of_inputs, strict=True)
        ]

        def compute(i: int, first: int, last: int) -> None:
            start(first, last)
            d_rows = part(dZ, first, last)
            for j, (rows, (_, W), dA) in enumerate(zip(self.read[i], terms, d_inputs, strict=True)):
                if W is not None and of_weights[j] and isinstance(rows, Tensor):
                    parts[j][i] = weight_gradient(rows, d_rows, W.dtype)
                if W is not None and dA is not None:
                    input_gradient_into(part(dA, first, last), d_rows, W)

        # The lowest layer is the last that a backward pass computes, unless a sparse product follows.
        run_ranges(compute, self.ranges, last=not any(of_inputs) and isinstance(self.read[0][0], Tensor))
        for (A, _), needed, each in zip(terms, of_weights, parts, strict=True):
            if needed and isinstance(A, SparseInput):
                # The threads share it by columns, so that no two of them write to one place.
                yield A.weight_gradient(dZ)
            else:
                # In the order of the rows, whichever thread was first. Autograd copies what others refer to, too.
                yield functools.reduce(Tensor.add_, [each.pop(0) for _ in self.ranges]) if needed else None
        yield from d_inputs


@final
class _Layer(_Products):
    """`H = sigma(Z)`, `dropout(H)`, and a sum whose rows are computed later.

    Args:
        Z, sigma, drop, summed: see `hidden_layer`.
        own_rows: how many of the first rows of `dropout(H)` are wanted; None for all.
    """

    def __init__(
        self, Z: Affine, sigma: Sigma, drop: Dropout | None, summed: NeighborSum | None, own_rows: int | None
    ) -> None:
        super().__init__(Z, sigma)
        self.kind, self.drop, self.summed, self.own_rows = ACTIVATIONS.index(sigma.activation), drop, summed, own_rows
        if summed is not None:
            n, sources, weight = len(self.z), summed.transposed.num_rows, summed.sampled.arrays[2].dtype
            if sources != n or weight != self.z.dtype:
                raise CvgnnError(
                    f"the layer computed {n} rows of {self.z.dtype}, but its block has {sources} sources and weights "
                    f"of {weight}: sampler, features and model must fit together"
                )

    def forward(self, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The own rows, and the sum, whose entries are not computed yet, if there is one."""
        z = self.z
        self.h = h = np.empty_like(z)
        self.sent = sent = h if self.drop is None else np.empty_like(h)
        drop = NO_DROPOUT if self.drop is None else self.drop.kernel_arguments
        self.arguments = arguments = (z, *_parameters(z, bias, gain, shift), self.kind, *drop)
        checksums = [0.0] * len(self.ranges)

        def finish(i: int, first: int, last: int) -> None:
            checksums[i] = kernels.forward(*arguments, h, sent, first, last)

        self.multiply(finish)
        if not math.isfinite(sum(checksums)) and not np.isfinite(h).all():
            self.sent = np.full_like(h, np.nan)  # see `hidden_layer`
        own = torch.from_numpy(self.sent[: self.own_rows])
        return own, None if self.summed is None else own.new_empty(self.summed.sampled.num_rows, own.shape[1])

    def backward(self, d_own: Tensor | None, d_out: Tensor | None, needs: Sequence[bool]) -> Iterator[Tensor | None]:
        """The gradients of the `variables` that need one, from those of `dropout(H)` and of the sum."""
        n, d = self.z.shape
        none = self.z[:0]
        own, out = (none if gradient is None else gradient.contiguous().numpy() for gradient in (d_own, d_out))
        transposed: tuple[Array, ...] = (np.zeros(n + 1, np.int32), np.empty(0, np.int32), none[:, 0], none[:, 0])
        if self.summed is not None and d_out is not None:
            mask = self.summed.mask_weights
            transposed = _entries(self.summed.transposed, mask and mask.transposed)
        # Products with bfloat16 rows round dZ. Where nothing else reads it, the kernel does, which saves a pass.
        alone = not any(needs[3 + len(self.terms) :])
        rounded = alone and all(isinstance(A, Tensor) and A.dtype == torch.bfloat16 for A in self.read[0])
        dz = np.empty((n, d), np.uint16 if rounded else none.dtype)
        dZ = torch.from_numpy(dz).view(torch.bfloat16) if rounded else torch.from_numpy(dz)
        sums = np.zeros((-(-n // kernels.rows_in_part(n)) or 1, 3, d), none.dtype)
        arguments = out, *transposed, own, self.h, self.sent, *self.arguments, dz, sums
        products = [*self.gradients(dZ, needs[3:], lambda first, last: kernels.backward(*arguments, first, last))]
        total = torch.from_numpy(np.add.reduce(sums))
        yield from (total[i] if needs[i] else None for i in range(3))
        yield from products


def _entries(rows: Rows, mask_weights: Rows | None) -> tuple[Array, ...]:
    """A matrix for the kernels, and the weights of the mask, which are empty if they are not its own."""
    weight = rows.arrays[2]
    return *rows.arrays, weight[:0] if mask_weights is None else mask_weights.arrays[2]


class _LayerFunction(torch.autograd.Function):
    """A layer for autograd, which keeps it for the backward pass."""

    @staticmethod
    def forward(ctx: Any, layer: _Products, *variables: Tensor | None) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*variables)
        ctx.layer = layer
        return layer.forward(*variables[:3])

    @staticmethod
    def backward(ctx: Any, d_own: Tensor | None, d_out: Tensor | None) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # torch raises an error if one of them was changed
        if torch.is_grad_enabled():  # create_graph=True
            raise CvgnnError(
                "a fused layer has one derivative; for a second one compute within cvgnn.ops.backend.plain()"
            )
        return None, *ctx.layer.backward(d_own, d_out, ctx.needs_input_grad[1:])


@final
class LazySum(LazyRows):
    """`P^ dropout(H) + correction`, `[m, d]`, whose rows are summed when they are read.

    So a thread sums the rows of its range and multiplies them while they are in its cache, without waiting for others.

    Args:
        variable: what autograd knows as an output of the layer of `H`; its entries are not computed.
        layer: has computed `H`.
        summed: what is summed.
    """

    def __init__(self, variable: Tensor, layer: _Layer, summed: NeighborSum) -> None:
        self.variable: Tensor = variable
        self.shape = variable.shape[0], variable.shape[1]
        self._h, self._sent, self._correction = layer.h, layer.sent, summed.correction
        self._matrix = _entries(summed.sampled, summed.mask_weights and summed.mask_weights.sampled)
        # The mean number of rows that a row of the sum reads.
        entries = 1 + summed.sampled.num_entries // max(1, self.shape[0]) + summed.entries
        self._sum_work = MEMORY_COST * self.shape[1] * entries

    def read(self, first: int, last: int) -> Tensor:
        """See `LazyRows.read`. Most of it is the correction, which reads a history from memory."""
        shape, dtype = (last - first, self.shape[1]), self._h.dtype
        added = None if self._correction is None else self._correction(first, last)
        if added is not None and (added.shape != shape or _NUMPY.get(added.dtype) != dtype):
            raise CvgnnError(
                f"the estimator's correction is {added.dtype} of shape {list(added.shape)}, the layer needs "
                f"torch.{dtype} of {list(shape)}: give the estimator the model's hidden widths and dtype"
            )
        out = np.zeros(shape, dtype) if added is None else added.contiguous().numpy()
        indptr, *entries = self._matrix
        kernels.aggregate(indptr[first : last + 1], *entries, self._h, self._sent, out, 0, last - first)
        return torch.from_numpy(out)

    def row_work(self, d: int) -> int:
        """See `LazyRows.row_work`."""
        return self._sum_work + self.shape[1] * d

    def tensor(self) -> Tensor:
        """All rows, differentiable."""
        out = self.variable.detach()  # autograd must not see a change when two layers ask for it

        def compute(_: int, first: int, last: int) -> None:
            part(out, first, last).copy_(self.read(first, last))

        run_ranges(compute, row_ranges(self.shape[0], self._sum_work))
        return self.variable

    def matmul(self, other: Tensor, /) -> Tensor:
        """`A W`, differentiable in both."""
        return self.tensor() @ other
