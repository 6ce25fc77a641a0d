"""Dropout on the rows of `P X` that layer 0 reads; a sparse row drops the same entries as the same row written out."""

from __future__ import annotations

import numpy as np
import torch

from cvgnn.model import kernels
from cvgnn.model.dropout import Dropout
from cvgnn.parallel import over_rows
from cvgnn.sampling import LayerInput, SparseInput


def dropped(A: LayerInput, drop: Dropout | None) -> LayerInput:
    """`A` after dropout; `A` itself without one.

    Args:
        A: `(P X)[r^(1)]`, a constant. A dense one, which `FeatureSource.rows` has made for this step, is overwritten.
        drop: what to drop, or None.
    """
    if drop is None:
        return A
    key, threshold, scale = np.uint64(drop.key), drop.threshold, drop.scale
    if isinstance(A, SparseInput):
        ids, indptr, indices, values = A.rows
        most = int((indptr[ids + 1] - indptr[ids]).sum())
        kept = (np.empty(ids.size + 1, np.int64), np.empty(most, np.int32), np.empty(most, values.dtype))
        kernels.kept_entries(ids, indptr, indices, values, key, threshold, scale, *kept)
        end = kept[0][-1]
        return SparseInput((kept[0], kept[1][:end], kept[2][:end]), range(ids.size), num_columns=A.num_columns)
    if A.dtype == torch.bfloat16:
        return dropped(A.float(), drop).to(A.dtype)  # type: ignore[union-attr]
    rows = A.numpy()
    over_rows(
        lambda first, last: kernels.drop_rows(rows, key, threshold, scale, first, last),
        rows.shape[0],
        width=rows.shape[1],
    )
    return A
