"""`(P X)[ids] W` for a sparse `P X`: a weighted sum of rows of `W`, so that nothing dense of width `F` exists."""

from __future__ import annotations

from typing import Any, TypeAlias, final

import numpy as np
import torch
from numba import njit
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops.history_write import first_outside
from cvgnn.ops.row_sum import Rows, weighted_sum
from cvgnn.ops.threads import run_rows

Array = np.ndarray[Any, np.dtype[Any]]

_COLUMNS = 16  # a cache line of float32: threads that share a gradient's rows take whole ones


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def multiply(ids, indptr, indices, values, W, Z, first, last):  # type: ignore[no-untyped-def]
    """`Z[i] = X[ids[i]] W` for `first <= i < last`, rows of a CSR matrix `X`."""
    for i in range(first, last):
        z = Z[i]
        z[:] = 0
        for e in range(indptr[ids[i]], indptr[ids[i] + 1]):
            x, w = values[e], W[indices[e]]
            for c in range(z.size):
                z[c] += x * w[c]


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def accumulate(ids, indptr, indices, values, dZ, dW, first, last):  # type: ignore[no-untyped-def]
    """`dW += X[ids]^T dZ` in columns `first..last-1`; rows are added in the order of `ids`."""
    for i in range(ids.size):
        dz = dZ[i, first:last]
        for e in range(indptr[ids[i]], indptr[ids[i] + 1]):
            x, dw = values[e], dW[indices[e], first:last]
            for c in range(dz.size):
                dw[c] += x * dz[c]


@final
class SparseInput:
    """Some rows of a sparse `P X`, to be multiplied by a weight matrix.

    Args:
        arrays: `P X`, `[N, F]`, in CSR: indptr int64, indices int32, and values.
        ids: which rows: int64 `[n]`, or a range of step 1.
        num_columns: `F`.
    """

    __slots__ = ("_rows", "arrays", "ids", "num_columns")

    def __init__(self, arrays: tuple[Array, Array, Array], ids: Tensor | range, *, num_columns: int) -> None:
        self.arrays = arrays
        self.ids = ids
        self.num_columns = num_columns
        self._rows: tuple[Array, Array, Array, Array] | None = None

    @property
    def rows(self) -> tuple[Array, Array, Array, Array]:
        """The ids as an array, checked once, because compiled code checks nothing; and the matrix."""
        if self._rows is None:
            self._rows = (self._checked_ids(), *self.arrays)
        return self._rows

    def _checked_ids(self) -> Array:
        num_rows = self.arrays[0].size - 1
        if isinstance(self.ids, range):
            return np.arange(self.ids.start, self.ids.stop)
        ids = self.ids.numpy()
        bad = first_outside(ids, num_rows)
        if bad >= 0:
            raise CvgnnError(f"ids must lie in 0..{num_rows - 1}; found {ids[bad]}")
        return ids

    def matmul(self, other: Tensor, /) -> Tensor:
        """`(P X)[ids] W`, `[n, d]`, differentiable in `W`, as a tensor's."""
        return _Product.apply(other, self)  # type: ignore[no-untyped-call, no-any-return]

    def product(self, W: Tensor) -> Tensor:
        """`(P X)[ids] W`, `[n, d]`, without gradient."""
        F, dtype = self.num_columns, torch.from_numpy(self.arrays[2][:0]).dtype
        if W.dim() != 2 or W.shape[0] != F or W.dtype != dtype:
            raise CvgnnError(
                f"a weight matrix for {F} features must be {dtype} of {F} rows, not {W.dtype} of shape {list(W.shape)}"
            )
        if isinstance(self.ids, range):  # rows that lie together need no copy, and torch sums many of them faster
            return weighted_sum(self._rows_of(self.ids), W)
        ids, indptr, indices, values = self.rows
        Z = torch.empty(ids.size, W.shape[1], dtype=W.dtype)
        w, z = W.detach().numpy(), Z.numpy()
        width = self.entries_per_row * W.shape[1]
        run_rows(lambda a, b: multiply(ids, indptr, indices, values, w, z, a, b), ids.size, width=width)
        return Z

    def transposed_product(self, dZ: Tensor) -> Tensor:
        """`(P X)[ids]^T dZ`, `[F, d]`: the gradient of `W`."""
        ids, indptr, indices, values = self.rows
        dW = torch.zeros(self.num_columns, dZ.shape[1], dtype=dZ.dtype)
        dz, dw = dZ.contiguous().numpy(), dW.numpy()
        run_rows(
            lambda a, b: accumulate(ids, indptr, indices, values, dz, dw, a, b),
            dZ.shape[1],
            width=self.entries_per_row * ids.size,
            multiple=_COLUMNS,
        )
        return dW

    def _rows_of(self, ids: range) -> Rows:
        indptr, indices, values = self.arrays
        a, b = int(indptr[ids.start]), int(indptr[ids.stop])
        return Rows.of((indptr[ids.start : ids.stop + 1] - a).astype(np.int32), indices[a:b], values[a:b])

    @property
    def entries_per_row(self) -> int:
        """How many entries a row of the whole matrix has, about."""
        return self.arrays[2].size // max(1, self.arrays[0].size - 1)


LayerInput: TypeAlias = Tensor | SparseInput
"""Rows that a layer multiplies by its weights."""


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, W: Tensor, rows: SparseInput) -> Tensor:
        ctx.rows = rows
        return rows.product(W)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.rows.transposed_product(grads[0]), None
