"""The raw draws of a node, in Python integers: the literal twin of the compiled sampler's hashing."""

from __future__ import annotations

from cvgnn.reference import draw_ranges
from cvgnn.rng import GOLDEN, MASK, mix


def raw_draws(key: int, v: int, scheme: str, deg: int, D: int) -> list[int]:
    """The raw draws of node `v` under a layer's key: draw `i` is uniform on `0..draw_ranges(...)[i]-1`."""
    state = mix(key ^ mix((v + GOLDEN) & MASK))
    bounds = enumerate(draw_ranges(scheme, deg, D), start=1)
    return [(mix((state + i * GOLDEN) & MASK) * bound) >> 64 for i, bound in bounds]
