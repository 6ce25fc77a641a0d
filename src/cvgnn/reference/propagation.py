"""The propagation matrix P and the neighbor lists, from a dense adjacency matrix.

Legend (the paper's letters):
    N      number of nodes
    A      adjacency matrix [N, N], possibly weighted; its diagonal is ignored
    I      identity: the one self loop of weight 1 that every node has in A + I
    D~     diagonal matrix of the row sums of A + I
    P      normalized adjacency matrix [N, N]
    N_v    neighbors of v, never v itself
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cvgnn.errors import require, unknown_name

Array = npt.NDArray[np.float64]

NORMALIZATIONS = ("symmetric", "random-walk")


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

    Self loops already in A are merged with the one that A + I adds: the diagonal of A + I is 1.
    A may be directed (not symmetric); D~ holds row sums in any case.

    Args:
        A: Adjacency matrix [N, N], weighted or not.
        normalization: `"symmetric"` or `"random-walk"`.

    Returns:
        P, [N, N].

    >>> dense_P([[0, 1], [1, 0]]).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    A_plus_I = _without_self_loops(A)
    np.fill_diagonal(A_plus_I, 1.0)
    d = A_plus_I.sum(axis=1)
    require(bool((d > 0).all()), "A has a row whose weights, with the self loop, do not sum to more than 0")
    if normalization == "symmetric":
        P: Array = A_plus_I / np.sqrt(np.outer(d, d))
    elif normalization == "random-walk":
        P = A_plus_I / d[:, None]
    else:
        raise unknown_name("normalization", normalization, NORMALIZATIONS)
    return P


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
