"""Tiny graphs, written out, and random networks on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from cvgnn.reference import draw_ranges
from cvgnn.reference.propagation_matrix import Array

PATH = [
    [0, 1, 0, 0],
    [1, 0, 1, 0],
    [0, 1, 0, 1],
    [0, 0, 1, 0],
]
STAR = [
    [0, 1, 1, 1, 1, 1],
    [1, 0, 0, 0, 0, 0],
    [1, 0, 0, 0, 0, 0],
    [1, 0, 0, 0, 0, 0],
    [1, 0, 0, 0, 0, 0],
    [1, 0, 0, 0, 0, 0],
]
TRIANGLE_WITH_TAIL = [
    [0, 1, 1, 0, 0],
    [1, 0, 1, 0, 0],
    [1, 1, 0, 1, 0],
    [0, 0, 1, 0, 1],
    [0, 0, 0, 1, 0],
]
WITH_ISOLATED = [
    [0, 1, 1, 1, 0],
    [1, 0, 1, 0, 0],
    [1, 1, 0, 1, 0],
    [1, 0, 1, 0, 0],
    [0, 0, 0, 0, 0],
]
WEIGHTED = [
    [0, 0.5, 2, 0, 1.5, 0],
    [0.5, 0, 3, 0.25, 0, 0],
    [2, 3, 0, 1, 0, 0.1],
    [0, 0.25, 1, 0, 4, 0],
    [1.5, 0, 0, 4, 0, 0.7],
    [0, 0, 0.1, 0, 0.7, 0],
]
DIRECTED_WITH_LOOPS = [
    [7, 1, 1, 0],
    [0, 0, 1, 1],
    [0, 0, 3, 0],
    [1, 1, 1, 1],
]
GRAPHS = {
    "path": PATH,
    "star": STAR,
    "triangle-with-tail": TRIANGLE_WITH_TAIL,
    "with-isolated": WITH_ISOLATED,
    "weighted": WEIGHTED,
    "directed-with-loops": DIRECTED_WITH_LOOPS,
}


def all_draws(scheme: str, degree: int, D: int) -> Iterator[tuple[int, ...]]:
    """Every outcome of a node's raw draws; all are equally likely."""
    return itertools.product(*(range(size) for size in draw_ranges(scheme, degree, D)))


def random_draws(rng: np.random.Generator, scheme: str, degree: int, D: int) -> list[int]:
    return [int(rng.integers(size)) for size in draw_ranges(scheme, degree, D)]


def random_params(rng: np.random.Generator, dims: list[int], norm: bool, bias: bool) -> dict[str, Array]:
    params = {}
    for k, (d_in, d_out) in enumerate(itertools.pairwise(dims)):
        params[f"layers.{k}.weight"] = rng.normal(size=(d_in, d_out))
        if bias:
            params[f"layers.{k}.bias"] = rng.normal(size=d_out)
        if norm and k < len(dims) - 2:
            params[f"layers.{k}.norm.weight"] = rng.normal(size=d_out)
            params[f"layers.{k}.norm.bias"] = rng.normal(size=d_out)
    return params
