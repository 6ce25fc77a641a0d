"""Graphs and parts in float64 for tests: everything the composition root builds, small."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from cvgnn.data import Graph, SparseFeatures, from_edges


def graph_from_dense(
    A: ArrayLike, *, features: int = 3, classes: int = 3, seed: int = 0, directed: bool = False
) -> Graph:
    """A float64 graph with random features and labels; every second node is a training node."""
    A = np.asarray(A, dtype=np.float64)
    n = len(A)
    rng = np.random.default_rng(seed)
    target, source = np.nonzero(A)
    weight = A[target, source]
    return from_edges(
        np.stack([source, target]),
        x=torch.from_numpy(rng.normal(size=(n, features))),
        y=rng.integers(0, classes, size=n),
        num_classes=classes,
        train_ids=np.arange(0, n, 2),
        val_ids=np.arange(1, n, 2),
        edge_weight=None if (weight == 1).all() else weight,
        directed=directed,
    )


def sparse_features(X: np.ndarray) -> SparseFeatures:
    """The nonzero entries of a matrix."""
    row, column = np.nonzero(X)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(X)))])
    return SparseFeatures(
        torch.from_numpy(indptr), torch.from_numpy(column), torch.from_numpy(X[row, column]), X.shape[1]
    )


def random_adjacency(n: int, *, mean_degree: float, weighted: bool, seed: int) -> np.ndarray:
    """A random symmetric adjacency with a hub (node 0) and an isolated node (the last)."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < mean_degree / n, k=1)
    upper[0, 1 : n // 2] = True
    upper[:, -1] = False
    A = upper * (rng.uniform(0.2, 3.0, size=(n, n)) if weighted else 1.0)
    return A + A.T
