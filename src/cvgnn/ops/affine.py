"""`Z = sum_j A_j W_j + b`, what a layer computes of its inputs, before anything of it is computed."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops.row_input import LayerInput

Terms: TypeAlias = tuple[tuple[LayerInput, Tensor | None], ...]


class Affine(NamedTuple):
    """`Z = sum_j A_j W_j + b`, not computed yet, so that it can be computed row by row with what follows.

    Args:
        terms: pairs of an input `A_j`, `[n, d_j]`, and a weight `W_j`, `[d_j, d]`, or None for `A_j` itself, a tensor.
        bias: `[d]`, or None.
    """

    terms: Terms
    bias: Tensor | None = None

    @property
    def like(self) -> Tensor:
        """A tensor with the dtype and the device of `Z`."""
        A, W = self.terms[0]
        return A if W is None else W  # type: ignore[return-value]

    @property
    def shape(self) -> tuple[int, int]:
        """`[n, d]`, if all terms have it."""
        (A, W), *_ = self.terms
        n, d = A.shape[0], A.shape[1] if W is None else W.shape[1]
        for A, W in self.terms:
            if A.shape != (n, d if W is None else W.shape[0]) or (W is not None and W.shape[1] != d):
                raise CvgnnError(
                    f"a layer multiplies {list(A.shape)} by {None if W is None else list(W.shape)}, but must give "
                    f"{[n, d]}: inputs, weights and batch must fit together"
                )
        return n, d

    @property
    def row_work(self) -> int:
        """Multiply-adds of a row of all products."""
        products = [(A, W) for A, W in self.terms if W is not None]
        return sum([W.numel() if isinstance(A, Tensor) else A.row_work(W.shape[1]) for A, W in products])
