"""Sparse node features, for bag-of-words rows that would not fit into memory as a dense matrix."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.data.structure_check import check_offsets
from cvgnn.errors import require


@final
@dataclass(frozen=True, eq=False, slots=True)
class SparseFeatures:
    """A feature matrix `[N, F]` in CSR: row `v` holds `values[j]` at `indices[j]`, `indptr[v] <= j < indptr[v+1]`.

    Args:
        indptr: int64 `[N + 1]`.
        indices: int32 `[nnz]`, columns.
        values: float `[nnz]`.
        num_columns: `F`.
        validated: skip all checks, for arrays that were checked when they were written.

    >>> X = SparseFeatures(torch.tensor([0, 1, 1]), torch.tensor([2]), torch.tensor([0.5]), 3)
    >>> X.shape, X.to_dense().tolist()
    ((2, 3), [[0.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor
    num_columns: int
    validated: InitVar[bool] = False

    def __post_init__(self, validated: bool) -> None:
        if validated:
            return
        object.__setattr__(self, "indptr", self.indptr.to(torch.int64))
        object.__setattr__(self, "indices", self.indices.to(torch.int32))
        nnz = self.indices.numel()
        require(self.indptr.dim() == 1 and self.indptr.numel() >= 1, "x.indptr must be a vector of N + 1 offsets")
        check_offsets("x.indptr", self.indptr.numpy(), nnz)
        require(
            self.values.shape == self.indices.shape and self.indices.dim() == 1,
            f"x.values has shape {tuple(self.values.shape)} but x.indices {tuple(self.indices.shape)}; they must match",
        )
        require(self.values.is_floating_point(), f"x.values must be floating point, not {self.values.dtype}")
        if nnz:
            low, high = int(self.indices.min()), int(self.indices.max())
            require(
                low >= 0 and high < self.num_columns,
                f"x.indices must lie in 0..{self.num_columns - 1}; found {low if low < 0 else high}",
            )

    @staticmethod
    def from_scipy(matrix: Any) -> SparseFeatures:
        """The features in a `scipy.sparse` CSR matrix of floating-point numbers."""
        return SparseFeatures(
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int32)),
            torch.from_numpy(matrix.data),
            matrix.shape[1],
        )

    def to_scipy(self) -> Any:
        """The same matrix as a `scipy.sparse.csr_array` that shares its memory."""
        from scipy import sparse

        return sparse.csr_array((self.values.numpy(), self.indices.numpy(), self.indptr.numpy()), shape=self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        """`(N, F)`."""
        return self.indptr.numel() - 1, self.num_columns

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return self.values.dtype

    def to(self, dtype: torch.dtype) -> SparseFeatures:
        """The same matrix with its values in another dtype."""
        return SparseFeatures(self.indptr, self.indices, self.values.to(dtype), self.num_columns)

    def row_norms(self, order: int) -> Tensor:
        """float64 `[N]`: the 1-norm or the 2-norm of each row's entries."""
        row = torch.repeat_interleave(torch.arange(self.shape[0]), self.indptr.diff())
        sums = torch.bincount(row, weights=self.values.double().abs().pow(order), minlength=self.shape[0])
        return sums.pow(1 / order)

    def to_dense(self) -> Tensor:
        """The dense matrix; repeated columns in one row are summed."""
        return torch.from_numpy(self.to_scipy().toarray())
