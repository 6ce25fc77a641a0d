"""Weighted rows in CSR form, and the kernel that sums rows of a large table: `P H` and the history term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.parallel import COST_OF_MOVING, wide

Array = np.ndarray[Any, np.dtype[Any]]


@final
@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """A sparse matrix `S` by rows: row `i` holds `weight[j]` at column `indices[j]`, `indptr[i] <= j < indptr[i+1]`.

    Args:
        indptr: int32 or int64 `[num_rows + 1]`, of the same dtype as `indices`.
        indices: int32 or int64 `[nnz]`, column of each entry.
        weight: float `[nnz]`, or None where every entry is 1.
        as_arrays: the three as NumPy arrays, where they are at hand.
    """

    indptr: Tensor
    indices: Tensor
    weight: Tensor | None
    as_arrays: tuple[Array, Array, Array] | None = None

    @staticmethod
    def of(indptr: Array, indices: Array, weight: Array) -> Rows:
        """The matrix that compiled code made."""
        tensors = torch.from_numpy(indptr), torch.from_numpy(indices), torch.from_numpy(weight)
        return Rows(*tensors, as_arrays=(indptr, indices, weight))

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        """Indptr, indices and weight for compiled code."""
        if self.as_arrays is not None:
            return self.as_arrays
        assert self.weight is not None
        return self.indptr.numpy(), self.indices.numpy(), self.weight.numpy()

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.indptr.numel() - 1

    def dense(self, num_columns: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """The matrix written out, for tests and tiny graphs; entries at one place add up."""
        out = torch.zeros(self.num_rows, num_columns, dtype=dtype)
        row = torch.repeat_interleave(torch.arange(self.num_rows), self.indptr.diff().long())
        value = torch.ones(row.numel(), dtype=dtype) if self.weight is None else self.weight.to(dtype)
        out.index_put_((row, self.indices.long()), value, accumulate=True)
        return out


def weighted_sum(rows: Rows, table: Tensor) -> Tensor:
    """`S T`: each row the weighted sum of rows of `table`, without gradient.

    Args:
        rows: `S`, `[m, n]`; its weights must have the table's dtype.
        table: `T`, `[n, d]`, float32, float64 or, where `rows.weight` is None or bfloat16, bfloat16.

    Returns:
        `[m, d]`.

    >>> S = Rows(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), torch.tensor([1.0, 0.5]))
    >>> weighted_sum(S, torch.tensor([[1.0, 2.0], [4.0, 8.0]])).tolist()
    [[3.0, 6.0], [0.0, 0.0]]
    """
    # The overload that keeps nothing for a backward pass: half the overhead of F.embedding_bag on small batches.
    with wide(COST_OF_MOVING * rows.indices.numel() * table.shape[1]):
        return torch._embedding_bag_forward_only(
            table.detach(), rows.indices, rows.indptr, False, 0, False, rows.weight, True
        )[0]


class _WeightedSum(torch.autograd.Function):
    """`S T` with the gradient `S^T dOut` for `T`; `S` is constant. A transposed bag beats autograd's scatter."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Rows, transposed: Rows) -> Tensor:
        ctx.transposed = transposed
        return weighted_sum(rows, table)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return weighted_sum(ctx.transposed, grads[0].contiguous()), None, None


def differentiable_sum(rows: Rows, transposed: Rows, table: Tensor) -> Tensor:
    """`S T`, differentiable in `T`.

    Args:
        rows: `S`, `[m, n]`.
        transposed: `S^T`, `[n, m]`, used by the backward pass.
        table: `T`, `[n, d]`.

    Returns:
        `[m, d]`.
    """
    return _WeightedSum.apply(table, rows, transposed)  # type: ignore[no-untyped-call, no-any-return]
