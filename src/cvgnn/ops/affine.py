"""`Z = sum_j A_j W_j + b` in ranges of rows that threads share, differentiable by autograd.

A thread reads the rows of its range and multiplies them while they are in its cache. The gradient of a weight is
summed range by range, in the order of the rows.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.matmul import NARROW, input_gradient_into, weight_gradient
from cvgnn.ops.row_input import LayerInput, LazySum, SparseInput, multiply_into, part
from cvgnn.ops.threads import WORTH_SHARING, row_ranges, run_ranges

_WORTH_TURNING = 1 << 20  # multiply-adds from which a transposed narrow product saves more than a function call costs


class Affine(NamedTuple):
    """`Z = sum_j A_j W_j + b`, not computed yet, so that it can be computed row by row with what follows.

    Args:
        terms: pairs of an input `A_j`, `[n, d_j]`, and a weight `W_j`, `[d_j, d]`, or None for `A_j` itself, a tensor.
        bias: `[d]`, or None.
    """

    terms: tuple[tuple[LayerInput, Tensor | None], ...]
    bias: Tensor | None = None


def affine(Z: Affine) -> Tensor:
    """`sum_j A_j W_j + b`, `[n, d]`, differentiable in the weights, the bias and in inputs that are tensors."""
    (A, W), *others = Z.terms
    if W is not None and torch.is_grad_enabled() and use_compiled(W):
        # Autograd's own products are lighter for few rows, and slow for many rows and few columns (`matmul.NARROW`).
        work = A.shape[0] * sum([_row_work(*term) for term in Z.terms])
        if work >= (min(_WORTH_TURNING, WORTH_SHARING) if W.shape[1] <= NARROW else WORTH_SHARING):
            products = Products(Z.terms)
            return _AffineFunction.apply(products, Z.bias, *products.variables)  # type: ignore[no-untyped-call, no-any-return]
    if W is not None and not others and Z.bias is not None:
        A = A.tensor() if isinstance(A, LazySum) else A
        if isinstance(A, Tensor):
            return torch.addmm(Z.bias, A, W)
    each: Iterator[Any] = (A if W is None else A @ W for A, W in Z.terms)
    total: Tensor = functools.reduce(operator.add, each)
    return total if Z.bias is None else total + Z.bias


def _row_work(A: LayerInput, W: Tensor | None) -> int:
    """Multiply-adds of a row of `A W`."""
    if W is None:
        return 0
    return W.numel() if isinstance(A, Tensor) else A.row_work(W.shape[1])


@final
class Products:
    """`sum_j A_j W_j` in ranges of rows that threads share, and its gradients.

    Args:
        terms: pairs of input and weight.
        row_work: multiply-adds of a row beside the products, to decide on threads.
        multiple: ranges start at multiples of this.
    """

    def __init__(
        self, terms: tuple[tuple[LayerInput, Tensor | None], ...], *, row_work: int = 0, multiple: int = 1
    ) -> None:
        self.inputs, self.weights = [A for A, _ in terms], [W for _, W in terms]
        (A, W), *_ = terms
        n, d = self.shape = A.shape[0], A.shape[1] if W is None else W.shape[1]
        for A, W in terms:
            if A.shape != (n, d if W is None else W.shape[0]) or (W is not None and W.shape[1] != d):
                raise CvgnnError(
                    f"a layer multiplies {list(A.shape)} by {None if W is None else list(W.shape)}, but must give "
                    f"{[n, d]}: inputs, weights and batch must fit together"
                )
            row_work += _row_work(A, W)
        self.ranges = row_ranges(n, row_work, multiple=multiple)
        if len(self.ranges) > 1:
            for A in self.inputs:
                if isinstance(A, SparseInput) and not isinstance(A.ids, range):
                    A.arrays  # noqa: B018  # checks the ids once, instead of in every thread
        self._read: list[list[Tensor | SparseInput]] = [[] for _ in self.ranges]

    @property
    def variables(self) -> list[Tensor | None]:
        """What autograd must see: the weights, then the inputs that are not constant rows."""
        return [*self.weights, *(A if isinstance(A, Tensor) else A.variable for A in self.inputs)]

    def forward(self, i: int, first: int, last: int, Z: Tensor, *, add: bool = False) -> None:
        """Rows `first..last-1`, the `i`-th range, into `Z`, which has just these rows, or added to it."""
        for A, W in zip(self.inputs, self.weights, strict=True):
            rows = part(A, first, last) if isinstance(A, Tensor) else A.read(first, last)
            self._read[i].append(rows)
            if W is not None:
                multiply_into(Z, rows, W, add=add)
            else:
                Z.add_(rows) if add else Z.copy_(rows)  # type: ignore[arg-type]
            add = True

    def begin_backward(self, needs: tuple[bool, ...]) -> None:
        """Allocate the gradients of the `variables` that need one."""
        J = len(self.weights)
        self._needs_W, self._needs_A = needs[:J], needs[J:]
        self._dW: list[list[Tensor | None]] = [[None] * len(self.ranges) for _ in self.weights]
        self._dA = [
            torch.empty(self.shape[0], W.shape[0], dtype=W.dtype) if needed and W is not None else None
            for W, needed in zip(self.weights, self._needs_A, strict=True)
        ]

    def backward(self, i: int, first: int, last: int, dZ: Tensor) -> None:
        """The gradients that rows `first..last-1`, the `i`-th range, give."""
        for j, (rows, W, dA) in enumerate(zip(self._read[i], self.weights, self._dA, strict=True)):
            if self._needs_W[j] and isinstance(rows, Tensor):
                self._dW[j][i] = weight_gradient(rows, dZ)
            if dA is not None and W is not None:
                input_gradient_into(part(dA, first, last), dZ, W)

    def gradients(self, dZ: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the `variables`, after all ranges.

        The threads share a sparse input's gradient by columns, so that no two of them write to one place.
        """
        dW: list[Tensor | None] = []
        for j, A in enumerate(self.inputs):
            if self._needs_W[j] and isinstance(A, SparseInput):
                dW.append(A.weight_gradient(dZ))
                continue
            # Autograd copies a gradient unless its reference is the only one.
            (total, *others), self._dW[j] = self._dW[j], []
            for term in others:  # in the order of the rows, whichever thread was first
                if total is not None and term is not None:
                    total.add_(term)
            dW.append(total)
        same = zip(self.weights, self._needs_A, self._dA, strict=True)
        return *dW, *(dZ if W is None and needed else dA for W, needed, dA in same)


class _AffineFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, products: Products, bias: Tensor | None, *variables: Tensor | None) -> Tensor:
        ctx.products = products
        ctx.save_for_backward(*variables)
        if bias is None:
            W = next(W for W in products.weights if W is not None)
            Z = torch.empty(products.shape, dtype=W.dtype)
        else:  # here, because each small torch operation in a thread makes the others wait for the GIL
            Z = bias.expand(products.shape).clone(memory_format=torch.contiguous_format)

        def compute(i: int, first: int, last: int) -> None:
            products.forward(i, first, last, part(Z, first, last), add=bias is not None)

        run_ranges(compute, products.ranges)
        return Z

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        needs = check_backward(ctx)
        products, dZ = ctx.products, grads[0].contiguous()
        products.begin_backward(needs[2:])
        run_ranges(lambda i, a, b: products.backward(i, a, b, part(dZ, a, b)), products.ranges)
        return None, dZ.sum(dim=0) if needs[1] else None, *products.gradients(dZ)


def check_backward(ctx: Any) -> tuple[bool, ...]:
    """Which inputs need a gradient; refuses a second derivative, and saved tensors that were changed in place."""
    _ = ctx.saved_tensors  # torch raises an error if one of them was changed
    if torch.is_grad_enabled():  # create_graph=True
        raise CvgnnError("a fused layer has one derivative; for a second one compute within cvgnn.ops.backend.plain()")
    return tuple(ctx.needs_input_grad)
