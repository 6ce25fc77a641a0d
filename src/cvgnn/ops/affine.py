"""`Z = sum_j A_j W_j + b`: its products and their gradients, in ranges of rows that threads share.

A thread reads the rows of its range and multiplies them while they are in its cache. The gradient of a weight is
summed range by range, in the order of the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, final

from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops.matmul import input_gradient_into, weight_gradient
from cvgnn.ops.row_input import LayerInput, SparseInput, multiply_into, part
from cvgnn.ops.threads import row_ranges, run_ranges

Terms: TypeAlias = tuple[tuple[LayerInput, Tensor | None], ...]


class Affine(NamedTuple):
    """`Z = sum_j A_j W_j + b`, not computed yet, so that it can be computed row by row with what follows.

    Args:
        terms: pairs of an input `A_j`, `[n, d_j]`, and a weight `W_j`, `[d_j, d]`, or None for `A_j` itself, a tensor.
        bias: `[d]`, or None.
    """

    terms: Terms
    bias: Tensor | None = None


def work_of_row(terms: Terms) -> int:
    """Multiply-adds of a row of all products."""
    products = [(A, W) for A, W in terms if W is not None]
    return sum([W.numel() if isinstance(A, Tensor) else A.row_work(W.shape[1]) for A, W in products])


@final
class Products:
    """`sum_j A_j W_j` in ranges of rows that threads share, and its gradients.

    Args:
        terms: pairs of input and weight.
        row_work: multiply-adds of a row beside the products, to decide on threads.
        multiple: ranges start at multiples of this.
    """

    def __init__(self, terms: Terms, *, row_work: int = 0, multiple: int = 1) -> None:
        self.inputs, self.weights = [A for A, _ in terms], [W for _, W in terms]
        (A, W), *_ = terms
        n, d = self.shape = A.shape[0], A.shape[1] if W is None else W.shape[1]
        for A, W in terms:
            if A.shape != (n, d if W is None else W.shape[0]) or (W is not None and W.shape[1] != d):
                raise CvgnnError(
                    f"a layer multiplies {list(A.shape)} by {None if W is None else list(W.shape)}, but must give "
                    f"{[n, d]}: inputs, weights and batch must fit together"
                )
        self.ranges = row_ranges(n, row_work + work_of_row(terms), multiple=multiple)
        self._read: list[list[Tensor | SparseInput]] = [[] for _ in self.ranges]

    @property
    def variables(self) -> list[Tensor | None]:
        """What autograd must see: the weights, then the inputs that are not constant rows."""
        return [*self.weights, *(A if isinstance(A, Tensor) else A.variable for A in self.inputs)]

    def forward(self, Z: Tensor, finish: Callable[[int, int, int], None]) -> None:
        """Fill `Z`; `finish(i, first, last)` gets the `i`-th range while a thread has it in its cache."""

        def compute(i: int, first: int, last: int) -> None:
            to = part(Z, first, last)
            for j, (A, W) in enumerate(zip(self.inputs, self.weights, strict=True)):
                rows = part(A, first, last) if isinstance(A, Tensor) else A.read(first, last)
                self._read[i].append(rows)
                if W is not None:
                    multiply_into(to, rows, W, add=j > 0)
                else:
                    to.add_(rows) if j else to.copy_(rows)  # type: ignore[arg-type]
            finish(i, first, last)

        run_ranges(compute, self.ranges)

    def backward(
        self, dZ: Tensor, fill: Callable[[int, int, int], None], needs: tuple[bool, ...]
    ) -> Iterator[Tensor | None]:
        """The gradients of the `variables`, where they are needed; `fill(i, first, last)` computes a range of `dZ`."""
        J = len(self.weights)
        d_weights: list[list[Tensor]] = [[dZ] * len(self.ranges) for _ in self.weights]
        # The gradient of a term without weight is dZ itself.
        d_inputs = [
            None if not needed else dZ if W is None else dZ.new_empty(len(dZ), len(W))
            for W, needed in zip(self.weights, needs[J:], strict=True)
        ]

        def compute(i: int, first: int, last: int) -> None:
            fill(i, first, last)
            d_rows = part(dZ, first, last)
            for j, (rows, W, dA) in enumerate(zip(self._read[i], self.weights, d_inputs, strict=True)):
                if needs[j] and isinstance(rows, Tensor):
                    d_weights[j][i] = weight_gradient(rows, d_rows)
                if dA is not None and W is not None:
                    input_gradient_into(part(dA, first, last), d_rows, W)

        run_ranges(compute, self.ranges)
        for A, needed, parts in zip(self.inputs, needs, d_weights, strict=False):
            if needed and isinstance(A, SparseInput):
                # The threads share it by columns, so that no two of them write to one place.
                yield A.weight_gradient(dZ)
            else:
                # In the order of the rows, whichever thread was first. Autograd copies what others refer to, too.
                yield functools.reduce(Tensor.add_, [parts.pop(0) for _ in self.ranges]) if needed else None
        yield from d_inputs
