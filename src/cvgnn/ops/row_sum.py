"""Weighted rows in CSR form, and the kernel that sums rows of a large table: `P H` and the history term."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from cvgnn.errors import CvgnnError
from cvgnn.ops import layer_kernels
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.bf16_row_sum import sum_bf16_rows
from cvgnn.ops.history_write import first_outside
from cvgnn.ops.threads import MEMORY_COST, run_rows, torch_threads

Array = np.ndarray[Any, np.dtype[Any]]

_FEW = 1 << 14
"""The number of elements up to which calling `embedding_bag` takes longer than the sum itself."""


@final
class Rows:
    """A sparse matrix `S` by rows: row `i` holds `weight[j]` at column `indices[j]`, `indptr[i] <= j < indptr[i+1]`.

    torch reads it as three tensors, compiled code as three arrays of the same memory; each form is made on first use.

    Args:
        indptr: int32 or int64 `[num_rows + 1]`, of the same dtype as `indices`.
        indices: int32 or int64 `[nnz]`, column of each entry.
        weight: float `[nnz]`, or None where every entry is 1.
    """

    def __init__(self, indptr: Tensor, indices: Tensor, weight: Tensor | None) -> None:
        self.tensors = indptr, indices, weight
        self.num_rows, self.num_entries = indptr.numel() - 1, indices.numel()

    @staticmethod
    def of(indptr: Array, indices: Array, weight: Array) -> Rows:
        """The matrix that compiled code made."""
        new = Rows.__new__(Rows)
        new.arrays = indptr, indices, weight
        new.num_rows, new.num_entries = indptr.size - 1, indices.size
        return new

    def with_weight(self, weight: Array) -> Rows:
        """The same entries with other weights."""
        indptr, indices, _ = self.arrays
        return Rows.of(indptr, indices, weight)

    @functools.cached_property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Indptr, indices and weight for torch."""
        indptr, indices, weight = map(torch.from_numpy, self.arrays)
        return indptr, indices, weight

    @functools.cached_property
    def arrays(self) -> tuple[Array, Array, Array]:
        """Indptr, indices and weight for compiled code."""
        indptr, indices, weight = self.tensors
        assert weight is not None
        return indptr.numpy(), indices.numpy(), weight.numpy()

    @property
    def indptr(self) -> Tensor:
        """See `Rows`."""
        return self.tensors[0]

    @property
    def indices(self) -> Tensor:
        """See `Rows`."""
        return self.tensors[1]

    @property
    def weight(self) -> Tensor | None:
        """See `Rows`."""
        return self.tensors[2]

    def between(self, first: int, last: int) -> Rows:
        """Rows `first..last-1`."""
        if last - first == self.num_rows:
            return self
        # Of arrays where there are some: slices of tensors take ten times as long, and let go of the GIL.
        made: Any = vars(self).get("arrays") or self.tensors
        indptr, indices, weight = made
        a, b = int(indptr[first]), int(indptr[last])
        part: Any = indptr[first : last + 1] - a, indices[a:b], None if weight is None else weight[a:b]
        return Rows(*part) if made is vars(self).get("tensors") else Rows.of(*part)

    def to(self, device: torch.device) -> Rows:
        """The same matrix on a device."""
        indptr, indices, weight = self.tensors
        return Rows(indptr.to(device), indices.to(device), None if weight is None else weight.to(device))

    def dense(self, num_columns: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """The matrix written out, for tests and tiny graphs; entries at one place add up."""
        out = torch.zeros(self.num_rows, num_columns, dtype=dtype)
        indptr, indices, weight = self.tensors
        row = torch.repeat_interleave(torch.arange(self.num_rows), indptr.diff().long())
        value = torch.ones(row.numel(), dtype=dtype) if weight is None else weight.to(dtype)
        out.index_put_((row, indices.long()), value, accumulate=True)
        return out


def weighted_sum(rows: Rows, table: Tensor) -> Tensor:
    """`S T`: each row the weighted sum of rows of `table`, in the dtype of the weights, without gradient.

    Args:
        rows: `S`, `[m, n]`; its weights have the table's dtype, unless that is bfloat16.
        table: `T`, `[n, d]`. A bfloat16 row is widened as it is read: weights and sums are not rounded.

    Returns:
        `[m, d]`.

    >>> S = Rows(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), torch.tensor([1.0, 0.5]))
    >>> weighted_sum(S, torch.tensor([[1.0, 2.0], [4.0, 8.0]])).tolist()
    [[3.0, 6.0], [0.0, 0.0]]
    """
    table = table.detach()
    arrays = vars(rows).get("arrays")
    few = rows.num_entries * table.shape[1] <= _FEW and arrays is not None and arrays[2].itemsize == table.itemsize
    if few and use_compiled(table):
        return _compiled_sum(rows, table)
    indptr, indices, weight = rows.tensors
    if table.dtype == torch.bfloat16 and weight is not None and weight.dtype != torch.bfloat16:
        if use_compiled(table):
            return _compiled_sum(rows, table)
        table, indices = table.index_select(0, indices).to(weight.dtype), torch.arange(
            indices.numel(), dtype=indptr.dtype, device=indptr.device
        )  # fmt: skip
    # embedding_bag runs near memory bandwidth on a CPU; a gather and index_add would write every row first.
    with torch_threads(MEMORY_COST * indices.numel() * table.shape[1]):
        return embedding_bag(
            indices, table, indptr, mode="sum", per_sample_weights=weight, include_last_offset=True
        )  # fmt: skip


def _compiled_sum(rows: Rows, table: Tensor) -> Tensor:
    indptr, indices, weight = rows.arrays
    bad = first_outside(indices, table.shape[0])
    if bad >= 0:
        raise CvgnnError(f"indices must lie in 0..{table.shape[0] - 1}; found {indices[bad]}")
    shape = (rows.num_rows, table.shape[1])
    if table.dtype == torch.bfloat16:  # which NumPy does not have
        kernel, out = sum_bf16_rows, np.empty(shape, weight.dtype)
        tables: tuple[Array, ...] = (table.view(torch.uint16).numpy(),)
    else:
        kernel, out = layer_kernels.aggregate, np.zeros(shape, weight.dtype)
        tables = (weight[:0], *[table.numpy()] * 2)
    run_rows(
        lambda first, last: kernel(indptr, indices, weight, *tables, out, first, last),
        shape[0],
        width=shape[1] * -(-indices.size // max(1, shape[0])),
    )
    return torch.from_numpy(out)


Map: TypeAlias = Callable[[Tensor], Tensor]


class _LinearMap(torch.autograd.Function):
    """A linear map and its transpose, each of which is the other's gradient: differentiable any number of times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, apply: Map, transposed: Map) -> Tensor:
        ctx.maps = transposed, apply
        return apply(x.contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return linear_map(grads[0], *ctx.maps), None, None


def linear_map(x: Tensor, apply: Map, transposed: Map) -> Tensor:
    """`apply(x)`, differentiable any number of times; `apply` and its transpose get contiguous tensors."""
    return _LinearMap.apply(x, apply, transposed)  # type: ignore[no-untyped-call, no-any-return]


def differentiable_sum(rows: Rows, transposed: Rows, table: Tensor) -> Tensor:
    """`S T`, differentiable in `T` any number of times.

    Args:
        rows: `S`, `[m, n]`.
        transposed: `S^T`, `[n, m]`, used by the backward pass.
        table: `T`, `[n, d]`.

    Returns:
        `[m, d]`.
    """
    # A sum over the transposed rows beats the scatter that autograd would do.
    return linear_map(table, functools.partial(weighted_sum, rows), functools.partial(weighted_sum, transposed))


def row_blocks(cumulative: Array, budget: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows `[first, last)` of at most `budget` rows and cost, or of one row.

    Args:
        cumulative: int64 `[N + 1]`, rising; row `v` costs `cumulative[v + 1] - cumulative[v]`.
        budget: of one block.

    >>> list(row_blocks(np.array([0, 2, 3, 9, 9]), 3))
    [(0, 2), (2, 3), (3, 4)]
    """
    first, n = 0, cumulative.size - 1
    while first < n:
        reach = int(np.searchsorted(cumulative, cumulative[first] + budget, side="right")) - 1
        last = min(n, first + budget, max(first + 1, reach))
        yield first, last
        first = last
