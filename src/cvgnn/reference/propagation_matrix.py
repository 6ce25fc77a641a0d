"""The propagation matrix P and the neighbor lists, from a dense adjacency matrix.

Legend (the paper's letters):
    N      number of nodes
    A      adjacency matrix [N, N], possibly weighted; its diagonal is ignored
    I      identity: the one self loop of weight 1 that every node has in A + I
    D, D~  diagonal matrices of the row sums of A and of A + I
    P      propagation matrix [N, N]: the normalized adjacency matrix
    N_v    neighbors of v, never v itself
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cvgnn.errors import require, require_known

Array = npt.NDArray[np.float64]

NORMALIZATIONS = ("symmetric", "random-walk", "mean", "sum")


def _without_self_loops(A: npt.ArrayLike) -> Array:
    """A copy of A in float64 with a zero diagonal."""
    copy = np.array(A, dtype=np.float64)
    require(
        copy.ndim == 2 and copy.shape[0] == copy.shape[1],
        f"A must be a square matrix, not of shape {copy.shape}",
    )
    require(bool(np.isfinite(copy).all()), "A must be finite; it holds NaN or infinity")
    np.fill_diagonal(copy, 0.0)
    return copy


def dense_P(A: npt.ArrayLike, normalization: str = "symmetric") -> Array:
    """The normalized adjacency matrix P of eq. 1.

        symmetric:    P = D~^-1/2 (A + I) D~^-1/2
        random-walk:  P = D~^-1 (A + I)
        mean:         P = D^-1 A      no self loop; a row of zeros for a node without neighbors
        sum:          P = A           no self loop

    Self loops already in A are merged with the one that A + I adds: the diagonal of A + I is 1, that of A is 0.
    A may be directed (not symmetric); D and D~ hold row sums in any case.

    Args:
        A: Adjacency matrix [N, N], weighted or not.
        normalization: One of `NORMALIZATIONS`.

    Returns:
        P, [N, N].

    >>> dense_P([[0, 1], [1, 0]]).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    >>> dense_P([[0, 1, 3], [1, 0, 0], [0, 0, 0]], "mean").tolist()
    [[0.0, 0.25, 0.75], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    require_known("normalization", normalization, NORMALIZATIONS)
    P = _without_self_loops(A)
    if normalization == "sum":
        return P
    if normalization == "mean":
        d = np.where(P.any(axis=1), P.sum(axis=1), 1.0)
        require(bool((d > 0).all()), "A has a row whose weights do not sum to more than 0; 'sum' takes any weights")
        return P / d[:, None]
    np.fill_diagonal(P, 1.0)
    d = P.sum(axis=1)
    require(bool((d > 0).all()), "A has a row whose weights, with the self loop, do not sum to more than 0")
    return P / np.sqrt(np.outer(d, d)) if normalization == "symmetric" else P / d[:, None]


def neighbor_lists(A: npt.ArrayLike) -> list[list[int]]:
    """N_v = {u != v : A[v, u] != 0} for every v, each list in increasing order.

    Args:
        A: Adjacency matrix [N, N].

    Returns:
        One sorted list of node ids per node.

    >>> neighbor_lists([[1, 2, 0], [2, 0, 0], [0, 0, 0]])
    [[1], [0], []]
    """
    return [np.flatnonzero(row).tolist() for row in _without_self_loops(A)]
