"""Labels in their three forms: one class a node, several labels a node, or numbers.

| form | `y` | unknown |
|---|---|---|
| classes | int64 `[N]` | -1 |
| several labels | int8 `[N, L]`, 0 or 1 | a row of -1 |
| numbers | float32 or float64 `[N, T]` | a row with a NaN |
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from cvgnn.errors import CvgnnError, require


def to_labels(y: np.ndarray) -> np.ndarray:
    """Labels of any numeric type in one of the three forms; `y` itself if it has one already.

    A matrix of 0 and 1 holds several labels a node, also if its type is floating point.

    Args:
        y: integers or floating point numbers `[N]`, or a matrix `[N, L]`.

    >>> [to_labels(np.array(y)).dtype.name for y in ([2, 0], [[0, 1], [1, 0]], [0.5, 2.0])]
    ['int64', 'int8', 'float64']
    """
    require(
        y.ndim in (1, 2) and y.shape[-1] > 0,
        f"y must have one label per node, [N], or a row of labels for each, [N, L]; it has shape {list(y.shape)}",
    )
    floating, rows = y.dtype.kind == "f", y.reshape(len(y), -1)
    require(
        floating or y.dtype.kind in "iu" or (y.dtype == np.bool_ and y.ndim == 2),
        f"y must hold numbers or strings, not {y.dtype}",
    )
    if y.ndim == 1 and not floating:
        return y.astype(np.int64, copy=False)
    unknown = unknown_rows(y)[:, None]
    other = (rows != 0) & (rows != 1) & ~unknown
    if y.ndim == 2 and not other.any():
        return y if y.dtype == np.int8 else np.where(unknown, -1, rows != 0).astype(np.int8)
    if floating:
        return rows.astype(np.float64 if y.dtype.itemsize == 8 else np.float32, copy=False)
    node, label = (int(i) for i in np.argwhere(other)[0])
    raise CvgnnError(
        f"y is a matrix of integers with {y[node, label]} at node {node}, column {label}; several labels a node are 0 "
        "or 1, one class a node is a vector, and numbers to predict are floating point"
    )


def labelled(y: np.ndarray) -> np.ndarray:
    """bool `[N]`: which nodes have a label."""
    return ~unknown_rows(y)


def unknown_rows(y: np.ndarray) -> np.ndarray:
    """bool `[N]`: the nodes without a label, see the table of this module."""
    unknown: np.ndarray = np.isnan(y) if y.dtype.kind == "f" else y < 0
    return unknown.any(axis=1) if y.ndim == 2 else unknown  # type: ignore[return-value]


def unknown_labels(num_nodes: int, *, like: Tensor) -> Tensor:
    """Labels of nodes whose label is unknown, in the form of `like`, see the table of this module."""
    unknown = float("nan") if like.is_floating_point() else -1
    return like.new_full((num_nodes, *like.shape[1:]), unknown)


def bad_rows(y: np.ndarray, num_classes: int) -> np.ndarray:
    """bool `[N]`: the nodes whose label cannot be one, for labels in one of the three forms."""
    if y.ndim == 1:
        bad = (y < -1) | (y >= num_classes)
    elif y.dtype.kind == "f":
        bad = np.isinf(y).any(axis=1)
    else:
        bad = ((y < 0) | (y > 1)).any(axis=1) & (y != -1).any(axis=1)
    result: np.ndarray = bad
    return result


def dense_labels(y: Any) -> Any:
    """Labels as a dense array where they are a sparse matrix of SciPy or torch; anything else as it is."""
    from scipy import sparse

    if sparse.issparse(y):
        return y.toarray()
    return y.to_dense() if isinstance(y, Tensor) and y.is_sparse else y
