"""`(P X)[ids] W` for a sparse `P X`: a weighted sum of rows of `W`, so that nothing dense of width `F` exists."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from numba import njit
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.graph import Rows, SparseFeatures, weighted_sum
from cvgnn.moving import first_outside
from cvgnn.parallel import over_rows

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
        PX: `P X`, `[N, F]`.
        arrays: its indptr, indices and values.
        ids: which rows: int64 `[n]`, or a range of step 1.
    """

    __slots__ = ("PX", "arrays", "ids")

    def __init__(self, PX: SparseFeatures, arrays: tuple[Array, Array, Array], ids: Tensor | range) -> None:
        self.PX = PX
        self.arrays = arrays
        self.ids = ids

    def matmul(self, other: Tensor, /) -> Tensor:
        """`(P X)[ids] W`, `[n, d]`, differentiable in `W`, as a tensor's."""
        return _Product.apply(other, self)  # type: ignore[no-untyped-call, no-any-return]

    def product(self, W: Tensor) -> Tensor:
        """`(P X)[ids] W`, `[n, d]`, without gradient."""
        PX = self.PX
        if W.dim() != 2 or W.shape[0] != PX.num_columns or W.dtype != PX.dtype:
            raise CvgnnError(
                f"a weight matrix for {PX.num_columns} features must be {PX.dtype} of {PX.num_columns} rows, not "
                f"{W.dtype} of shape {list(W.shape)}"
            )
        if isinstance(self.ids, range):  # rows that lie together need no copy, and torch sums many of them faster
            return weighted_sum(self._rows_of(self.ids), W)
        ids, indptr, indices, values = self._arrays()
        bad = first_outside(ids, PX.shape[0])
        if bad >= 0:
            raise CvgnnError(f"ids must lie in 0..{PX.shape[0] - 1}; found {ids[bad]}")
        Z = torch.empty(ids.size, W.shape[1], dtype=W.dtype)
        w, z = W.detach().numpy(), Z.numpy()
        width = self._entries_per_row() * W.shape[1]
        over_rows(lambda a, b: multiply(ids, indptr, indices, values, w, z, a, b), ids.size, width=width)
        return Z

    def transposed_product(self, dZ: Tensor) -> Tensor:
        """`(P X)[ids]^T dZ`, `[F, d]`: the gradient of `W`."""
        ids, indptr, indices, values = self._arrays()
        dW = torch.zeros(self.PX.num_columns, dZ.shape[1], dtype=dZ.dtype)
        dz, dw = dZ.contiguous().numpy(), dW.numpy()
        over_rows(
            lambda a, b: accumulate(ids, indptr, indices, values, dz, dw, a, b),
            dZ.shape[1],
            width=self._entries_per_row() * ids.size,
            multiple=_COLUMNS,
        )
        return dW

    def _rows_of(self, ids: range) -> Rows:
        PX = self.PX
        a, b = int(PX.indptr[ids.start]), int(PX.indptr[ids.stop])
        return Rows((PX.indptr[ids.start : ids.stop + 1] - a).int(), PX.indices[a:b], PX.values[a:b])

    def _arrays(self) -> tuple[Array, Array, Array, Array]:
        ids = np.arange(self.ids.start, self.ids.stop) if isinstance(self.ids, range) else self.ids.numpy()
        return ids, *self.arrays

    def _entries_per_row(self) -> int:
        return self.arrays[2].size // max(1, self.arrays[0].size - 1)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, W: Tensor, rows: SparseInput) -> Tensor:
        ctx.rows = rows
        return rows.product(W)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.rows.transposed_product(grads[0]), None
