"""What every data set reader returns: a graph in plain numpy arrays, without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class GraphArrays:
    """An undirected graph with sparse features, labels and a split; node ids are 0..num_nodes-1.

    Args:
        name: The data set's name.
        num_nodes: N.
        edges: int32 [m, 2]; each undirected edge once as (u, v) with u < v, unique, in lexicographic order.
        x_indptr: int64 [N + 1]; row v of the features is the slice x_indptr[v]:x_indptr[v + 1] (CSR).
        x_indices: int32 [nnz]; feature columns, ascending within a row.
        x_values: float32 [nnz]; the feature values at `x_indices`.
        num_features: The number of feature columns.
        y: int64 [N]; classes 0..num_classes-1.
        num_classes: The number of classes.
        train_ids: int64, ascending; node ids of the training set.
        val_ids: int64, ascending; node ids of the validation set.
        test_ids: int64, ascending; node ids of the test set.
    """

    name: str
    num_nodes: int
    edges: npt.NDArray[np.int32]
    x_indptr: npt.NDArray[np.int64]
    x_indices: npt.NDArray[np.int32]
    x_values: npt.NDArray[np.float32]
    num_features: int
    y: npt.NDArray[np.int64]
    num_classes: int
    train_ids: npt.NDArray[np.int64]
    val_ids: npt.NDArray[np.int64]
    test_ids: npt.NDArray[np.int64]
