"""Sparse node features: bag-of-words rows that must not be written out as a dense matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

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

    >>> X = SparseFeatures(torch.tensor([0, 1, 1]), torch.tensor([2]), torch.tensor([0.5]), 3)
    >>> X.shape, X.to_dense().tolist()
    ((2, 3), [[0.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor
    num_columns: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "indptr", self.indptr.to(torch.int64))
        object.__setattr__(self, "indices", self.indices.to(torch.int32))
        nnz = self.indices.numel()
        require(self.indptr.dim() == 1 and self.indptr.numel() >= 1, "x.indptr must be a vector of N + 1 offsets")
        require(
            int(self.indptr[0]) == 0 and int(self.indptr[-1]) == nnz and bool((self.indptr.diff() >= 0).all()),
            f"x.indptr must rise from 0 to the number of entries, {nnz}; it does not",
        )
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

    @property
    def shape(self) -> tuple[int, int]:
        """`(N, F)`."""
        return self.indptr.numel() - 1, self.num_columns

    @property
    def dtype(self) -> torch.dtype:
        """Of the values."""
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
        """The matrix written out; repeated columns in one row add up."""
        out = torch.zeros(self.shape, dtype=self.dtype)
        row = torch.repeat_interleave(torch.arange(self.shape[0]), self.indptr.diff())
        return out.index_put_((row, self.indices.long()), self.values, accumulate=True)
