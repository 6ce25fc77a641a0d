"""A layer in one differentiable operation: products, bias, LayerNorm, activation, dropout and the sampled sum.

    Z = sum_j A_j W_j + b,    H = act([LayerNorm] Z),    S = P^ dropout(H) + correction

torch would make a pass over the matrix, and keep a copy of it, for each of these. Here a row is read once forward and
once backward, and a thread computes all of it for its rows: the rows of a layer depend on each other only through
`P^`, so threads synchronize twice per layer forward (`H` must be complete before it is summed) and once backward. The
gradient of a weight is summed range by range, in the order of the rows.

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
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.matmul import NARROW, input_gradient_into, weight_gradient
from cvgnn.ops.row_input import LayerInput, LazyRows, SparseInput, multiply_into
from cvgnn.ops.row_sum import Array, Rows, differentiable_sum
from cvgnn.ops.threads import MEMORY_COST, WORTH_SHARING, row_ranges, run_ranges, run_rows

EPS = 1e-5
"""LayerNorm's."""

_WORTH_TURNING = 1 << 20  # multiply-adds from which a transposed narrow product saves more than a function call costs

Activation = Literal["relu", "elu", "gelu"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
_KINDS = (*ACTIVATIONS, "identity")  # as the kernels number them; the identity is that of a last layer
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


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


class Affine(NamedTuple):
    """`Z = sum_j A_j W_j + b`, not computed yet, so that it can be computed row by row with what follows.

    Args:
        terms: pairs of an input `A_j`, `[n, d_j]`, and a weight `W_j`, `[d_j, d]`.
        bias: `[d]`, or None.
    """

    terms: tuple[tuple[LayerInput, Tensor], ...]
    bias: Tensor | None = None


class Sigma(NamedTuple):
    """What makes `H` of `Z`: LayerNorm's gain and shift, `[d]` each, or None for no LayerNorm; the activation."""

    gain: Tensor | None = None
    shift: Tensor | None = None
    activation: Activation | Literal["identity"] = "relu"


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


@final
class LazySum(LazyRows):
    """`P^ dropout(H) + correction`, `[m, d]`, whose rows are summed when they are read.

    So a thread sums the rows of its range and multiplies them while they are in its cache, without waiting for others.

    Args:
        variable: the result, which autograd knows as an output of the layer of `H`; not computed yet.
        compute: computes rows `first..last-1` of it; called from several threads.
        entries: the mean number of rows that one sum reads.
    """

    def __init__(self, variable: Tensor, compute: Callable[[int, int], None], entries: int) -> None:
        self.variable: Tensor = variable
        self.shape = variable.shape[0], variable.shape[1]
        self._compute = compute
        self._sum_work = MEMORY_COST * self.shape[1] * entries

    def read(self, first: int, last: int) -> Tensor:
        """See `LazyRows.read`."""
        self._compute(first, last)
        return _part(self.variable.detach(), first, last)

    def row_work(self, d: int) -> int:
        """See `LazyRows.row_work`."""
        return self._sum_work + self.shape[1] * d

    def tensor(self) -> Tensor:
        """All rows, differentiable."""
        run_ranges(lambda _, first, last: self._compute(first, last), row_ranges(self.shape[0], self._sum_work))
        return self.variable

    def matmul(self, other: Tensor, /) -> Tensor:
        """`A W`, differentiable in both."""
        return self.tensor() @ other


def affine(Z: Affine) -> Tensor:
    """`sum_j A_j W_j + b`, `[n, d]`, differentiable in the weights, the bias and in inputs that are tensors."""
    (A, W), *others = Z.terms
    if torch.is_grad_enabled() and use_compiled(W):
        # Autograd's own products are lighter for few rows, and slow for many rows and few columns (`matmul.NARROW`).
        narrow = W.shape[1] <= NARROW
        work = A.shape[0] * sum([_row_work(A, W) for A, W in Z.terms])
        if work >= (min(_WORTH_TURNING, WORTH_SHARING) if narrow else WORTH_SHARING):
            whole = hidden_layer(Z, Sigma(activation="identity"), own=True).own
            assert whole is not None
            return whole
    if isinstance(A, LazySum):
        A = A.tensor()
    if isinstance(A, Tensor) and not others and Z.bias is not None:
        return torch.addmm(Z.bias, A, W)
    total = functools.reduce(torch.add, (A @ W for A, W in Z.terms))
    return total if Z.bias is None else total + Z.bias


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
        lazy: whether the aggregate may be a `LazySum`, for a layer that only multiplies it.
    """
    if (sampled is None) != (transposed is None):
        raise CvgnnError("a sampled sum needs both the matrix and its transpose, for the backward pass")
    mask_weights = None if drop is None else mask_weights
    given, products = (Z, Affine(())) if isinstance(Z, Tensor) else (None, Z)
    like = products.terms[0][1] if given is None else given
    if like.dtype not in _NUMPY:
        raise CvgnnError(f"a layer computes in torch.float32 or torch.float64, not {like.dtype}")
    if not use_compiled(like):
        return _plain_hidden_layer(Z, sigma, drop, sampled, transposed, mask_weights, correction, own)
    layer = _Layer(products.terms, sigma.activation, drop, sampled, transposed, mask_weights, correction, own)
    weights = [W for _, W in products.terms]
    inputs = [A if isinstance(A, Tensor) else A.variable for A, _ in products.terms]
    # Autograd must see every tensor that may need a gradient.
    tensors = (given, products.bias, sigma.gain, sigma.shift, *weights, *inputs)
    H, mine, out = _HiddenFunction.apply(layer, *tensors)  # type: ignore[no-untyped-call]
    if out is None:
        return HiddenLayer(H, mine, None)
    aggregate = LazySum(out, layer.sum_rows, layer.sum_entries)
    return HiddenLayer(H, mine, aggregate if lazy else aggregate.tensor())


def activate_in_place(Z: Tensor, sigma: Sigma) -> Tensor:
    """`Z = act([LayerNorm] Z)`, without gradient and dropout, for exact inference. Returns `Z`."""
    if not use_compiled(Z):
        return Z.copy_(_plain_sigma(Z, sigma))
    rows = Z.detach().numpy()
    nothing = rows[:0, 0]
    gain, shift = (nothing if p is None else p.detach().numpy() for p in (sigma.gain, sigma.shift))
    mean, inverse = np.empty((2, 0 if sigma.gain is None else rows.shape[0]), rows.dtype)
    no_bias, kind = np.zeros(rows.shape[1], rows.dtype), _KINDS.index(sigma.activation)

    def compute(first: int, last: int) -> None:
        kernels.forward(
            rows, no_bias, gain, shift, EPS, kind, np.uint64(0), 0, 1.0, rows, rows[:0], mean, inverse, first, last
        )

    run_rows(compute, rows.shape[0], width=rows.shape[1])
    return Z


def _plain_sigma(Z: Tensor, sigma: Sigma) -> Tensor:
    if sigma.gain is not None:
        Z = F.layer_norm(Z, (Z.shape[1],), sigma.gain, sigma.shift, EPS)
    return activation_function(sigma.activation)(Z)


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """torch's function of that name, as `Sigma` has it."""
    functions: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "elu": F.elu, "gelu": F.gelu}
    return functions.get(name, lambda Z: Z)


def _plain_hidden_layer(
    Z: Affine | Tensor, sigma: Sigma, drop: Dropout | None, sampled: Rows | None, transposed: Rows | None,
    mask_weights: MaskWeights | None, correction: Correction | None, own: bool,
) -> HiddenLayer:  # fmt: skip
    """The same in public torch operations."""
    H = _plain_sigma(Z if isinstance(Z, Tensor) else affine(Z), sigma)
    sent = H if drop is None else H * drop.mask((H.shape[0], H.shape[1]), H.dtype, device=H.device)
    if sampled is None or transposed is None:
        return HiddenLayer(H.detach(), sent, None)
    aggregate = sampled_sum(sampled, transposed, mask_weights, H, sent)
    m = sampled.num_rows
    added = None if correction is None else correction.rows(0, m)
    return HiddenLayer(H.detach(), sent[:m] if own else None, aggregate if added is None else aggregate + added)


def sampled_sum(sampled: Rows, transposed: Rows, mask: MaskWeights | None, H: Tensor, sent: Tensor) -> Tensor:
    """`P^ sent`, or `(P^ - S) H + S sent` with `S`: what is estimated of `P dropout(H)`, without the correction."""
    if mask is None:
        return differentiable_sum(sampled, transposed, sent)
    pairs = ((sampled, mask.sampled), (transposed, mask.transposed))
    rest, rest_transposed = (Rows(a.indptr, a.indices, a.weight - s.weight) for a, s in pairs)  # type: ignore[operator]
    return differentiable_sum(*mask, sent) + differentiable_sum(rest, rest_transposed, H)


def _row_work(A: LayerInput, W: Tensor) -> int:
    """Multiply-adds of a row of `A W`."""
    return W.numel() if isinstance(A, Tensor) else A.row_work(W.shape[1])


def _part(T: Tensor, first: int, last: int) -> Tensor:
    """Rows `first..last-1`; without a slice where they are all rows, because a slice takes microseconds."""
    return T if last - first == T.shape[0] else T[first:last]


@final
class _Products:
    """`Z = sum_j A_j W_j` in ranges of rows that threads share, and its gradients; no terms where `Z` is given.

    Args:
        terms: pairs of input and weight.
        shape: of `Z`.
    """

    def __init__(self, terms: tuple[tuple[LayerInput, Tensor], ...], shape: tuple[int, int]) -> None:
        self.inputs, self.weights = [A for A, _ in terms], [W for _, W in terms]
        self.num_rows, d = shape
        work = MEMORY_COST * d  # the kernels read and write each entry, too
        for A, W in terms:
            if A.shape != (shape[0], W.shape[0]) or W.shape[1] != d:
                raise CvgnnError(
                    f"a layer multiplies {list(A.shape)} by {list(W.shape)}, but must give {list(shape)}: inputs, "
                    "weights and batch must fit together"
                )
            work += _row_work(A, W)
        # Ranges consist of complete parts of the kernels' sums, so that results do not depend on the threads.
        self.ranges = row_ranges(shape[0], work, multiple=kernels.rows_in_part(shape[0]))
        if len(self.ranges) > 1:
            for A in self.inputs:
                if isinstance(A, SparseInput) and not isinstance(A.ids, range):
                    A.arrays  # noqa: B018  # checks the ids once, instead of in every thread
        self._read: list[list[Tensor | SparseInput]] = [[] for _ in self.ranges]

    def forward(self, i: int, first: int, last: int, Z: Tensor) -> None:
        """Rows `first..last-1`, the `i`-th range, into `Z`, which has just these rows."""
        for j, (A, W) in enumerate(zip(self.inputs, self.weights, strict=True)):
            rows = _part(A, first, last) if isinstance(A, Tensor) else A.read(first, last)
            self._read[i].append(rows)
            multiply_into(Z, rows, W, add=j > 0)

    def begin_backward(self, needs: tuple[bool, ...]) -> None:
        """Allocate the gradients of the weights and inputs that need one."""
        J = len(self.weights)
        self._needs_W, self._needs_A = needs[:J], needs[J:]
        self._dW: list[list[Tensor]] = [[W] * len(self.ranges) for W in self.weights]
        self._dA = [
            torch.empty(self.num_rows, W.shape[0], dtype=W.dtype) if needed else None
            for W, needed in zip(self.weights, self._needs_A, strict=True)
        ]

    def backward(self, i: int, first: int, last: int, dZ: Tensor) -> None:
        """The gradients that rows `first..last-1`, the `i`-th range, give."""
        for j, rows in enumerate(self._read[i]):
            if self._needs_W[j] and isinstance(rows, Tensor):
                self._dW[j][i] = weight_gradient(rows, dZ)
            dA = self._dA[j]
            if dA is not None:
                input_gradient_into(_part(dA, first, last), dZ, self.weights[j])

    def gradients(self, dZ: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of weights and inputs, after all ranges.

        The threads share a sparse input's gradient by columns, so that no two of them write to one place.
        """
        dW: list[Tensor | None] = []
        for j, A in enumerate(self.inputs):
            if not self._needs_W[j]:
                dW.append(None)
            elif isinstance(A, SparseInput):
                dW.append(A.weight_gradient(dZ))
            else:
                # Autograd copies a gradient unless its reference is the only one.
                (total, *others), self._dW[j] = self._dW[j], []
                for term in others:  # in the order of the rows, whichever thread was first
                    total.add_(term)
                dW.append(total)
        return *dW, *self._dA


@final
@dataclass(eq=False)
class _Layer:
    """A layer on `n` nodes, forward and backward; keeps what the backward pass needs.

    Args:
        terms: those of `Z`; none where it is given as a tensor.
        activation, drop, sampled, transposed, mask_weights, correction, own: see `hidden_layer`.
    """

    terms: tuple[tuple[LayerInput, Tensor], ...]
    activation: str
    drop: Dropout | None
    sampled: Rows | None
    transposed: Rows | None
    mask_weights: MaskWeights | None
    correction: Correction | None
    own: bool

    def forward(
        self, given: Tensor | None, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """`H`, the own rows, the aggregate."""
        drop = self.drop
        self.kind = _KINDS.index(self.activation)
        self.mask = (np.uint64(0), 0, 1.0) if drop is None else (np.uint64(drop.key), drop.threshold, drop.scale)
        if given is None:
            (A, W), *_ = self.terms
            # NumPy allocates in a quarter of the time that torch takes.
            self.Z = np.empty((A.shape[0], W.shape[1]), _NUMPY[W.dtype])
            Z = torch.from_numpy(self.Z)
        else:
            Z = given.detach().contiguous()
            self.Z = Z.numpy()
        n, d = self.Z.shape
        products = self.products = _Products(self.terms, (n, d))
        self._check(n)
        h = self.h = np.empty_like(self.Z)
        H = torch.from_numpy(h)
        self.sent = h if drop is None else np.empty_like(h)
        self.bias = np.zeros(d, h.dtype) if bias is None else bias.detach().numpy()
        self.gain = self.shift = self.mean = self.inverse = self.bias[:0]
        if gain is not None and shift is not None:
            self.gain, self.shift = gain.detach().numpy(), shift.detach().numpy()
            self.mean, self.inverse = np.empty((2, n), h.dtype)

        def activate(i: int, first: int, last: int) -> None:
            products.forward(i, first, last, _part(Z, first, last))
            kernels.forward(
                self.Z, self.bias, self.gain, self.shift, EPS, self.kind, *self.mask,
                h, self.sent, self.mean, self.inverse, first, last,
            )  # fmt: skip

        run_ranges(activate, products.ranges)
        if self.sampled is None:
            return H, torch.from_numpy(self.sent), None
        own = torch.from_numpy(self.sent[: self.sampled.num_rows]) if self.own else None
        self.out = np.empty((self.sampled.num_rows, d), h.dtype)
        return H, own, torch.from_numpy(self.out)

    def sum_rows(self, first: int, last: int) -> None:
        """Rows `first..last-1` of `P^ sent + correction`; mostly the correction, which reads a history from memory."""
        assert self.sampled is not None
        out = self.out[first:last]
        rows = self._correction(first, last)
        out[...] = 0 if rows is None else rows
        if self.mask_weights is None:
            kernels.aggregate(*self.sampled.arrays, self.sent, self.out, first, last)
        else:
            mask_weight = self.mask_weights.sampled.arrays[2]
            kernels.aggregate_separated(*self.sampled.arrays, mask_weight, self.h, self.sent, self.out, first, last)

    @property
    def sum_entries(self) -> int:
        """The mean number of rows that a row of the sum reads."""
        assert self.sampled is not None
        sampled = 1 + self.sampled.num_entries // max(self.sampled.num_rows, 1)
        return sampled + (0 if self.correction is None else self.correction.entries)

    def _correction(self, first: int, last: int) -> Array | None:
        """What the estimator adds to rows `first..last-1` of the sum."""
        rows = None if self.correction is None else self.correction.rows(first, last)
        shape, dtype = self.out[first:last].shape, self.Z.dtype
        if rows is not None and (rows.shape != shape or _NUMPY.get(rows.dtype) != dtype):
            raise CvgnnError(
                f"the estimator's correction is {rows.dtype} of shape {list(rows.shape)}, the layer needs "
                f"torch.{dtype} of {list(shape)}: give the estimator the model's hidden widths and dtype"
            )
        return None if rows is None else rows.numpy()

    def _check(self, n: int) -> None:
        if self.sampled is None or self.transposed is None:
            return
        sources, weight = self.transposed.num_rows, self.sampled.arrays[2].dtype
        if sources != n or weight != self.Z.dtype:
            raise CvgnnError(
                f"the layer computed {n} rows of {self.Z.dtype}, but its block has {sources} sources and weights of "
                f"{weight}: sampler, features and model must fit together"
            )

    def backward(
        self, d_own: Tensor | None, d_out: Tensor | None, needs: tuple[bool, ...]
    ) -> tuple[Tensor, Array, tuple[Tensor | None, ...]]:
        """The gradients of `Z`, of bias, gain and shift, `[3, d]`, and of the products' tensors."""
        n, d = self.Z.shape
        dz, products = np.empty_like(self.Z), self.products
        dZ = torch.from_numpy(dz)
        sums = np.zeros((max(1, -(-n // kernels.rows_in_part(n))), 3, d), self.Z.dtype)
        own = self.Z[:0] if d_own is None else d_own.contiguous().numpy()
        out = self.Z[:0] if d_out is None else d_out.contiguous().numpy()
        if self.transposed is None or d_out is None:
            transposed: tuple[Array, Array, Array] = (np.zeros(n + 1, np.int32), np.empty(0, np.int32), self.bias[:0])
        else:
            transposed = self.transposed.arrays
        mask_weight = self.bias[:0]
        if self.mask_weights is not None and d_out is not None:
            mask_weight = self.mask_weights.transposed.arrays[2]
        products.begin_backward(needs)

        def compute(i: int, first: int, last: int) -> None:
            kernels.backward(
                out, *transposed, mask_weight, own, self.h, self.sent, self.Z, self.bias, self.gain, self.shift,
                self.kind, *self.mask, self.mean, self.inverse, dz, sums, first, last,
            )  # fmt: skip
            products.backward(i, first, last, _part(dZ, first, last))

        run_ranges(compute, products.ranges)
        total: Array = sums.sum(axis=0) if len(sums) > 1 else sums[0]
        return dZ, total, products.gradients(dZ)


class _HiddenFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: _Layer, *tensors: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
        ctx.layer = layer
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        H, own, aggregate = layer.forward(*tensors[:4])
        ctx.mark_non_differentiable(H)
        return H, own, aggregate

    @staticmethod
    def backward(ctx: Any, _: None, d_own: Tensor | None, d_out: Tensor | None) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # torch raises an error if one of them was changed in place
        if torch.is_grad_enabled():  # create_graph=True
            raise CvgnnError(
                "a fused layer has one derivative; for a second one compute within cvgnn.ops.backend.plain()"
            )
        needs = ctx.needs_input_grad
        dZ, parameters, others = ctx.layer.backward(d_own, d_out, needs[5:])
        small = [torch.from_numpy(parameters[i]) if needs[i + 2] else None for i in range(3)]
        return None, dZ if needs[1] else None, *small, *others
