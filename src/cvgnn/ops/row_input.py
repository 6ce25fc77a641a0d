"""Rows that a layer multiplies by its weights: of `P X` or of `X`, dense or sparse, which are constant.

They are read lazily: a thread reads the rows of its own range and multiplies them while they are in its cache.
`rows @ W` gives a tensor, differentiable in `W` any number of times.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops import layer_kernels, sparse_matmul
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.history_write import checked_ids
from cvgnn.ops.matmul import product_into, weight_gradient
from cvgnn.ops.row_sum import Array, Rows, linear_map, weighted_sum
from cvgnn.ops.threads import MEMORY_COST, run_rows

ELEMENTS_PER_CHUNK = 1 << 23
"""The size of a chunk of rows when all nodes are read; it bounds the memory of a converted copy."""

_ROWS_PER_CHUNK = 1 << 14
_COLUMNS = 16  # a cache line of float32: two threads never write to the same line


class LazyRows(ABC):
    """A matrix of `shape` that a layer multiplies by its weights, and that need not be in memory before."""

    shape: tuple[int, int]
    variable: Tensor | None = None
    """What autograd differentiates in, where the rows are not constant."""

    @abstractmethod
    def read(self, first: int, last: int) -> Tensor | SparseInput:
        """Rows `first..last-1`; safe to call from several threads."""

    @abstractmethod
    def matmul(self, other: Tensor, /) -> Tensor:
        """`A W`, as a tensor's."""

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.matmul(other)

    def row_work(self, d: int) -> int:
        """The cost of a row's product with `d` columns of weights, in multiply-adds."""
        return self.shape[1] * d


class RowInput(LazyRows):
    """Constant rows."""

    @abstractmethod
    def dropped(self, drop: Dropout | None) -> RowInput:
        """The rows after dropout; the same without one."""

    @abstractmethod
    def weight_gradient(self, dZ: Tensor) -> Tensor:
        """`A^T dZ`, `[F, d]`."""

    def product(self, W: Tensor) -> Tensor:
        """`A W` without gradient, `[n, d]`, read in chunks of bounded size."""
        step = max(1, min(_ROWS_PER_CHUNK, ELEMENTS_PER_CHUNK // max(1, self.shape[1])))
        Z = torch.empty(self.shape[0], W.shape[1], dtype=W.dtype, device=W.device)
        for first in range(0, self.shape[0], step):
            last = min(self.shape[0], first + step)
            multiply_into(Z[first:last], self.read(first, last), W, add=False)
        return Z

    def tensor(self, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """All rows as a tensor, for layers that do more than multiply them."""
        return self.product(torch.eye(self.shape[1], dtype=dtype, device=device))

    def matmul(self, other: Tensor, /) -> Tensor:
        """`A W`, differentiable in `W`, as a tensor's."""
        if not (torch.is_grad_enabled() and other.requires_grad):
            return self.product(other)
        return linear_map(other, self.product, self.weight_gradient)


LayerInput: TypeAlias = Tensor | LazyRows
"""What a layer multiplies by its weights."""


@final
class DenseRows(RowInput):
    """Rows of a dense matrix that `gather` reads.

    Args:
        gather: gets `first` and `last`; returns a new tensor `[last - first, F]`, which may be overwritten.
        shape: number of rows and of columns.
        drop: dropout of what is read.
    """

    def __init__(
        self, gather: Callable[[int, int], Tensor], shape: tuple[int, int], drop: Dropout | None = None
    ) -> None:
        self.shape = shape
        self._gather = gather
        self._drop = drop

    def dropped(self, drop: Dropout | None) -> DenseRows:
        """See `RowInput.dropped`."""
        return self if drop is None else DenseRows(self._gather, self.shape, drop)

    def read(self, first: int, last: int) -> Tensor:
        """See `LazyRows.read`."""
        A = self._gather(first, last)
        if not isinstance(A, Tensor) or A.shape != (last - first, self.shape[1]):
            shape = list(A.shape) if isinstance(A, Tensor) else type(A).__name__
            raise CvgnnError(
                f"rows {first} to {last - 1} of the features must be a tensor of shape "
                f"{[last - first, self.shape[1]]}, not {shape} (a source of sparse rows sets sparse = True)"
            )
        return A if self._drop is None else drop_dense(A, self._drop, first)

    def weight_gradient(self, dZ: Tensor) -> Tensor:
        """See `RowInput.weight_gradient`."""
        return weight_gradient(self.read(0, self.shape[0]), dZ.contiguous())


def drop_dense(A: Tensor, drop: Dropout, start: int) -> Tensor:
    """`A` after dropout, possibly in place; its first row is row `start` of the mask."""
    if A.dtype == torch.bfloat16:
        return drop_dense(A.float(), drop, start).bfloat16()
    if not use_compiled(A):
        return A * drop.mask((A.shape[0], A.shape[1]), A.dtype, device=A.device, start=start)
    rows, mask = A.numpy(), drop.kernel_arguments
    run_rows(
        lambda first, last: layer_kernels.drop_rows(rows, start, *mask, first, last),
        rows.shape[0],
        width=rows.shape[1],
    )
    return A


@final
class SparseInput(RowInput):
    """Some rows of a sparse matrix; a product with them is a sum of rows of `W`, so nothing dense of width `F` exists.

    Args:
        matrix: `[N, F]`: indptr int64, indices int32.
        ids: which rows: int64 `[n]`, or a range of step 1.
        num_columns: `F`.
    """

    def __init__(self, matrix: Rows, ids: Tensor | range, *, num_columns: int) -> None:
        self.matrix = matrix
        self.ids = ids
        self.shape = len(ids), num_columns
        self._mean_entries = matrix.num_entries // max(1, matrix.num_rows)

    @functools.cached_property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """The ids, checked, because compiled code checks nothing; indptr, indices and values."""
        if isinstance(self.ids, range):
            ids: Array = np.arange(self.ids.start, self.ids.stop)
        else:
            ids = checked_ids(self.ids, self.matrix.num_rows)
        return ids, *self.matrix.arrays

    def row_work(self, d: int) -> int:
        """See `LazyRows.row_work`: as many sums of rows as an average row has entries."""
        return MEMORY_COST * self._mean_entries * d

    def dropped(self, drop: Dropout | None) -> SparseInput:
        """See `RowInput.dropped`. A sparse row drops the same entries as the same row written out."""
        if drop is None:
            return self
        if use_compiled(self.matrix.indptr):
            ids, indptr, indices, values = self.arrays
            most = int((indptr[ids + 1] - indptr[ids]).sum())
            kept = (np.empty(ids.size + 1, np.int64), np.empty(most, np.int32), np.empty(most, values.dtype))
            layer_kernels.kept_entries(ids, indptr, indices, values, *drop.kernel_arguments, *kept)
            end = kept[0][-1]
            matrix = Rows.of(kept[0], kept[1][:end], kept[2][:end])
        else:
            row, entries, indptr_ = self._entries()
            _, indices_, values_ = self._tensors
            number = row if drop.rows is None else drop.rows.to(row.device)[row]
            mask = drop.entries(number, indices_[entries].long()).to(values_.dtype)
            matrix = Rows(indptr_, indices_[entries], values_[entries] * mask)
        return SparseInput(matrix, range(self.shape[0]), num_columns=self.shape[1])

    def read(self, first: int, last: int) -> SparseInput:
        """See `LazyRows.read`."""
        if last - first == self.shape[0]:
            return self
        part = SparseInput(self.matrix, self.ids[first:last], num_columns=self.shape[1])
        if use_compiled(self.matrix.indptr):
            part.arrays = (self.arrays[0][first:last], *self.matrix.arrays)  # ids are checked once, not in every thread
        return part

    def product_into(self, Z: Tensor, W: Tensor, *, add: bool) -> None:
        """`Z = A W`, or `Z += A W`."""
        indptr, indices, values = self._tensors
        if W.dim() != 2 or W.shape[0] != self.shape[1] or W.dtype != values.dtype:
            raise CvgnnError(
                f"a weight matrix for {self.shape[1]} features must be {values.dtype} of {self.shape[1]} rows, "
                f"not {W.dtype} of shape {list(W.shape)}"
            )
        if use_compiled(W) and not isinstance(self.ids, range):
            w, z, arrays = W.detach().numpy(), Z.numpy(), self.arrays
            run_rows(
                lambda a, b: sparse_matmul.multiply(*arrays, w, z, add, a, b),
                self.shape[0],
                width=self._mean_entries * W.shape[1],
            )
            return
        if isinstance(self.ids, range):  # rows that lie together need no copy, and torch sums many of them faster
            a, b = int(indptr[self.ids.start]), int(indptr[self.ids.stop])
            offsets = (indptr[self.ids.start : self.ids.stop + 1] - a).to(indices.dtype)
            rows = Rows(offsets, indices[a:b], values[a:b])
        else:
            _, entries, offsets = self._entries()
            rows = Rows(offsets.to(indices.dtype), indices[entries], values[entries])
        product = weighted_sum(rows, W.contiguous())
        Z.add_(product) if add else Z.copy_(product)

    def weight_gradient(self, dZ: Tensor) -> Tensor:
        """See `RowInput.weight_gradient`."""
        if not use_compiled(dZ):
            row, entries, _ = self._entries()
            _, indices, values = self._tensors
            dW = dZ.new_zeros(self.shape[1], dZ.shape[1])
            return dW.index_add_(0, indices[entries].long(), values[entries, None] * dZ[row])
        arrays, dz = self.arrays, dZ.contiguous().numpy()
        dw = np.zeros((self.shape[1], dZ.shape[1]), dz.dtype)
        run_rows(
            lambda a, b: sparse_matmul.accumulate(*arrays, dz, dw, a, b),
            dZ.shape[1],
            width=self._mean_entries * self.shape[0],
            multiple=_COLUMNS,
        )
        return torch.from_numpy(dw)

    @property
    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        indptr, indices, values = self.matrix.tensors
        assert values is not None
        return indptr, indices, values

    def _entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """In plain torch: the row of each entry, its position in the matrix, and the offset of each row."""
        indptr, ids = self.matrix.indptr, self.ids
        if isinstance(ids, range):
            ids = torch.arange(ids.start, ids.stop, device=indptr.device)
        elif ids.is_cpu:
            self.arrays  # noqa: B018  # checks them: torch would count negative ones from the end
        counts = indptr[ids + 1] - indptr[ids]
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        row = torch.repeat_interleave(torch.arange(len(ids), device=indptr.device), counts)
        return row, torch.arange(row.numel(), device=indptr.device) - offsets[row] + indptr[ids][row], offsets


def multiply_into(Z: Tensor, A: Tensor | SparseInput, W: Tensor, *, add: bool) -> None:
    """`Z = A W`, or `Z += A W`, for rows that `RowInput.read` gave."""
    A.product_into(Z, W, add=add) if isinstance(A, SparseInput) else product_into(Z, A, W, add=add)


def part(T: Tensor, first: int, last: int) -> Tensor:
    """Rows `first..last-1`; without a slice where they are all rows, because a slice takes microseconds."""
    return T if last - first == T.shape[0] else T[first:last]
