"""The sampled propagation matrix P^ (eq. 4), from raw draws given by the caller.

Legend (the paper's letters):
    P      normalized adjacency matrix [N, N]
    P^     sampled propagation matrix [N, N], written P_hat
    N_v    neighbors of v in increasing order, never v itself; deg = |N_v|
    N^_v   sampled neighbors of v
    D      fan-out; -1 takes all neighbors, with P^[v, :] = P[v, :] in every scheme
    c      how many times a neighbor was drawn

A *raw draw* is an integer uniform on {0..range - 1}. Here no random number is made: `draw_ranges` returns
the draws that a node consumes, and the rest is a function of them, so that expectations can be enumerated.
Leaving eq. 4: read literally it has no self loop (v is not in N_v); we keep it, with its exact weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cvgnn.errors import require, require_known
from cvgnn.reference.propagation_matrix import Array

SCHEMES = ("without-replacement", "with-replacement", "paper", "released")

Neighbors = Sequence[Sequence[int]] | Mapping[int, Sequence[int]]
Draws = Callable[[int], Sequence[int]] | Mapping[int, Sequence[int]]


def draw_ranges(scheme: str, degree: int, D: int) -> list[int]:
    """The range of each raw draw that a node consumes; draw i is uniform on {0..range_i - 1}.

    Without replacement the draws feed Robert Floyd's algorithm: draw i has range j + 1, j = deg - D + i.

    Args:
        scheme: One of `SCHEMES`.
        degree: Number of neighbors of the node.
        D: Fan-out, -1 or at least 1.

    Returns:
        The ranges, in the order of consumption.

    >>> draw_ranges("paper", 5, 2), draw_ranges("without-replacement", 5, 2)
    ([5, 5], [4, 5])
    """
    require_known("scheme", scheme, SCHEMES)
    require(D == -1 or D >= 1, f"fan-out D must be -1 (all neighbors) or at least 1, not {D}")
    require(degree >= 0, f"degree must not be negative, not {degree}")
    if D == -1 or degree == 0:
        return []
    if scheme == "without-replacement":
        return [] if degree <= D else [degree - D + i + 1 for i in range(D)]
    return [degree] * D


def num_draws(scheme: str, degree: int, D: int) -> int:
    """How many raw draws a node of this degree consumes.

    >>> num_draws("without-replacement", 3, 5), num_draws("with-replacement", 3, 5)
    (0, 5)
    """
    return len(draw_ranges(scheme, degree, D))


def positions(scheme: str, degree: int, D: int, draws: Sequence[int]) -> dict[int, int]:
    """Which positions of the sorted neighbor list are sampled, and how many times.

    Args:
        scheme: One of `SCHEMES`.
        degree: Number of neighbors.
        D: Fan-out.
        draws: Raw draws, in the number and ranges of `draw_ranges`.

    Returns:
        position -> multiplicity c; c = 1 for all schemes but `with-replacement`.

    >>> positions("with-replacement", 4, 3, [2, 0, 2])
    {2: 2, 0: 1}
    >>> positions("without-replacement", 4, 2, [2, 2])
    {2: 1, 3: 1}
    """
    ranges = draw_ranges(scheme, degree, D)
    require(len(draws) == len(ranges), f"draws must number {len(ranges)}, not {len(draws)}")
    for t, size in zip(draws, ranges, strict=True):
        require(0 <= t < size, f"a raw draw must lie in 0..{size - 1}, not {t}")
    if not ranges:
        return dict.fromkeys(range(degree), 1)
    if scheme == "without-replacement":
        chosen: dict[int, int] = {}
        for t, size in zip(draws, ranges, strict=True):
            chosen[size - 1 if t in chosen else t] = 1
        return chosen
    if scheme == "with-replacement":
        return dict(Counter(draws))
    return dict.fromkeys(draws, 1)


def P_hat_row(P: Array, v: int, neighbors: Sequence[int], scheme: str, D: int, draws: Sequence[int]) -> Array:
    """Row v of P^.

        without-replacement:  P^[v,u] = deg / min(D, deg) P[v,u]     P^[v,v] = P[v,v]
        with-replacement:     P^[v,u] = c deg / D P[v,u]             P^[v,v] = P[v,v]
        paper:                P^[v,u] = deg / D P[v,u]               P^[v,v] = P[v,v]
        released:             P^[v,u] = (deg + 1) / D P[v,u]         P^[v,v] = (deg + 1) / D P[v,v]

    for the sampled u, 0 for all others. D = -1 gives P[v,v] and P[v,u], u in N_v, in every scheme.

    Args:
        P: Normalized adjacency matrix [N, N].
        v: The row.
        neighbors: N_v in increasing order, without v.
        scheme: One of `SCHEMES`.
        D: Fan-out.
        draws: Raw draws of v.

    Returns:
        P^[v, :], shape [N].

    >>> P_hat_row(np.full((3, 3), 0.5), 0, [1, 2], "paper", 1, [1]).tolist()
    [0.5, 0.0, 1.0]
    """
    require(v not in neighbors, f"neighbors of {v} must not hold {v} itself; the self loop is separate")
    increasing = all(a < b for a, b in pairwise(neighbors))
    require(increasing, f"neighbors of {v} must be in increasing order, each once")
    deg = len(neighbors)
    sampled = positions(scheme, deg, D, draws)
    row = np.zeros(P.shape[1])
    row[v] = P[v, v] * ((deg + 1) / D if scheme == "released" and D != -1 else 1.0)
    for position, c in sampled.items():
        u = neighbors[position]
        factor = {
            "without-replacement": deg / min(D, deg),
            "with-replacement": c * deg / D,
            "paper": deg / D,
            "released": (deg + 1) / D,
        }
        row[u] = P[v, u] if D == -1 else factor[scheme] * P[v, u]
    return row


def P_hat(P: Array, neighbors_of: Neighbors, rows: Iterable[int], scheme: str, D: int, draws_of: Draws) -> Array:
    """P^ with only `rows` filled; the other rows are zero and have no meaning.

    Args:
        P: Normalized adjacency matrix [N, N].
        neighbors_of: v -> N_v in increasing order.
        rows: The nodes whose row is wanted: r^(k+1).
        scheme: One of `SCHEMES`.
        D: Fan-out.
        draws_of: v -> raw draws, a mapping or a function; asked only for rows that consume draws.

    Returns:
        P^, [N, N].

    >>> P_hat(np.full((2, 2), 0.5), [[1], [0]], [1], "paper", 2, {1: [0, 0]}).tolist()
    [[0.0, 0.0], [0.25, 0.5]]
    """
    result = np.zeros_like(P)
    for v in rows:
        draws = draws_for(v, len(neighbors_of[v]), scheme, D, draws_of)
        result[v] = P_hat_row(P, v, neighbors_of[v], scheme, D, draws)
    return result


def draws_for(v: int, degree: int, scheme: str, D: int, draws_of: Draws) -> Sequence[int]:
    """The raw draws of node v; `draws_of` is not called for a node that consumes none."""
    if num_draws(scheme, degree, D) == 0:
        return []
    return draws_of(v) if callable(draws_of) else draws_of[v]


class SampledBlock(NamedTuple):
    """A block written out: `sources`, the rows of `P^` over them, its transpose, and `P - P^` over all nodes."""

    sources: list[int]
    sampled: Array
    transposed: Array
    remainder: Array


def sampled_block(
    targets: Sequence[int], P: Array, neighbors: Sequence[Sequence[int]], scheme: str, D: int, draws_of: Draws
) -> SampledBlock:
    """Draw `P^` for the rows `targets` and relabel its columns: targets first, then new nodes in the order drawn.

    The literal twin of `ops.sampling_kernels.sample_block`.
    """
    rows = P_hat(P, neighbors, targets, scheme, D, draws_of)[targets]
    sources = list(targets)
    for v in targets:
        N_v = neighbors[v]
        for p in positions(scheme, len(N_v), D, draws_for(v, len(N_v), scheme, D, draws_of)):
            if N_v[p] not in sources:
                sources.append(N_v[p])
    return SampledBlock(sources, rows[:, sources], rows[:, sources].T, P[targets] - rows)
