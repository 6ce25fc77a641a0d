"""The literal twin of `kernels.sample_block`: the same draws, relabelling and transpose in plain Python.

Legend: `v` a target node, `deg` its number of neighbors, `D` the fan-out (-1 = all), `P` the dense propagation matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cvgnn.reference import draw_ranges, positions
from cvgnn.reference.propagation import Array
from cvgnn.rng import GOLDEN, MASK, mix


class LiteralBlock(NamedTuple):
    """A block written out: `sources`, the rows of `P^` over them, its transpose, and `P - P^` over all nodes."""

    sources: list[int]
    sampled: Array
    transposed: Array
    remainder: Array


def raw_draws(key: int, v: int, scheme: str, deg: int, D: int) -> list[int]:
    """The raw draws of node `v` under a layer's key: draw `i` is uniform on `0..draw_ranges(...)[i]-1`.

    >>> raw_draws(7, 3, "with-replacement", deg=4, D=3) == raw_draws(7, 3, "with-replacement", deg=4, D=3)
    True
    """
    state = mix(key ^ mix((v + GOLDEN) & MASK))
    return [
        (mix((state + (i + 1) * GOLDEN) & MASK) * bound) >> 64 for i, bound in enumerate(draw_ranges(scheme, deg, D))
    ]


def sample_block(
    targets: list[int], P: Array, neighbors: list[list[int]], scheme: str, D: int, key: int
) -> LiteralBlock:
    """Draw `P^` for the rows `targets` and relabel its columns: targets first, then new nodes in the order drawn."""
    sources = list(targets)
    P_hat = np.zeros((len(targets), len(P)))
    for i, v in enumerate(targets):
        deg = len(neighbors[v])
        draws = raw_draws(key, v, scheme, deg, D)
        drawn = positions(scheme, deg, D, draws)
        everything = D == -1 or (scheme == "without-replacement" and deg <= D)
        scale = 1.0 if everything else (deg + 1 if scheme == "released" else deg) / D
        P_hat[i, v] = P[v, v] * ((deg + 1) / D if scheme == "released" and D != -1 else 1.0)
        for p, multiplicity in drawn.items():
            u = neighbors[v][p]
            P_hat[i, u] = multiplicity * scale * P[v, u]
            if u not in sources:
                sources.append(u)
    return LiteralBlock(sources, P_hat[:, sources], P_hat[:, sources].T, P[targets] - P_hat)
