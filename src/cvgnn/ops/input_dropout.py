"""Dropout on the rows of `P X` that layer 0 reads; a sparse row drops the same entries as the same row written out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cvgnn.ops import layer_kernels as kernels
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.sparse_matmul import LayerInput, SparseInput
from cvgnn.ops.threads import run_rows


def dropped(A: LayerInput, drop: Dropout | None) -> LayerInput:
    """`A` after dropout; `A` itself without one.

    Args:
        A: `(P X)[r^(1)]`, a constant. A dense one, which `FeatureSource.rows` has made for this step, is overwritten.
        drop: what to drop, or None.
    """
    return dropped_sparse(A, drop) if isinstance(A, SparseInput) else dropped_dense(A, drop)


def dropped_sparse(A: SparseInput, drop: Dropout | None) -> SparseInput:
    """See `dropped`."""
    if drop is None:
        return A
    ids, indptr, indices, values = A.rows
    most = int((indptr[ids + 1] - indptr[ids]).sum())
    kept = (np.empty(ids.size + 1, np.int64), np.empty(most, np.int32), np.empty(most, values.dtype))
    kernels.kept_entries(ids, indptr, indices, values, np.uint64(drop.key), drop.threshold, drop.scale, *kept)
    end = kept[0][-1]
    return SparseInput((kept[0], kept[1][:end], kept[2][:end]), range(ids.size), num_columns=A.num_columns)


def dropped_dense(A: Tensor, drop: Dropout | None, start: int = 0) -> Tensor:
    """See `dropped`; `A` holds the rows of `(P X)[r^(1)]` from `start` on."""
    if drop is None:
        return A
    if A.dtype == torch.bfloat16:
        return dropped_dense(A.float(), drop, start).bfloat16()
    rows, key = A.numpy(), np.uint64(drop.key)
    run_rows(
        lambda first, last: kernels.drop_rows(rows, start, key, drop.threshold, drop.scale, first, last),
        rows.shape[0],
        width=rows.shape[1],
    )
    return A
