from __future__ import annotations

from collections import Counter
from math import comb

import numpy as np
import pytest

from cvgnn.errors import CvgnnError
from cvgnn.reference import (
    SCHEMES,
    P_hat,
    P_hat_row,
    dense_P,
    draw_ranges,
    neighbor_lists,
    num_draws,
    positions,
)
from cvgnn.reference.propagation_matrix import Array
from tests.tiny import GRAPHS, WEIGHTED, all_draws

UNBIASED = ("without-replacement", "with-replacement")
NORMALIZATIONS = ("symmetric", "random-walk", "mean", "sum")


def expected_P_hat(P: Array, neighbors: list[list[int]], scheme: str, D: int) -> Array:
    """E[P^] by enumeration of every node's draws."""
    rows = []
    for v, N_v in enumerate(neighbors):
        outcomes = [P_hat_row(P, v, N_v, scheme, D, draws) for draws in all_draws(scheme, len(N_v), D)]
        rows.append(np.mean(outcomes, axis=0))
    return np.array(rows)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("D", [1, 2, 3])
@pytest.mark.parametrize("scheme", UNBIASED)
@pytest.mark.parametrize("name", GRAPHS)
def test_unbiased_schemes(name: str, scheme: str, D: int, normalization: str) -> None:
    P = dense_P(GRAPHS[name], normalization)
    error = np.abs(expected_P_hat(P, neighbor_lists(GRAPHS[name]), scheme, D) - P).max()
    assert error < 1e-12


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("D", [1, 2, 3])
@pytest.mark.parametrize("scheme", ["paper", "released"])
@pytest.mark.parametrize("name", GRAPHS)
def test_biased_schemes_have_exactly_the_stated_factors(name: str, scheme: str, D: int, normalization: str) -> None:
    P = dense_P(GRAPHS[name], normalization)
    neighbors = neighbor_lists(GRAPHS[name])
    factor = np.zeros_like(P)
    for v, N_v in enumerate(neighbors):
        deg = len(N_v)
        scale = deg if scheme == "paper" else deg + 1
        factor[v, v] = 1 if scheme == "paper" else (deg + 1) / D
        if deg:
            factor[v, N_v] = scale / D * (1 - (1 - 1 / deg) ** D)
    np.testing.assert_allclose(expected_P_hat(P, neighbors, scheme, D), factor * P, rtol=1e-12, atol=0)


@pytest.mark.parametrize("D", [1, 2, 3, 4])
@pytest.mark.parametrize("degree", [2, 3, 4, 5, 6])
def test_floyd_subsets_are_uniform(degree: int, D: int) -> None:
    outcomes = list(all_draws("without-replacement", degree, D))
    subsets = Counter(frozenset(positions("without-replacement", degree, D, draws)) for draws in outcomes)
    assert all(len(subset) == min(D, degree) for subset in subsets)
    assert len(subsets) == comb(degree, min(D, degree))
    assert set(subsets.values()) == {len(outcomes) // len(subsets)}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", GRAPHS)
def test_all_neighbors_is_exact_and_draws_nothing(scheme: str, name: str) -> None:
    P = dense_P(GRAPHS[name])
    neighbors = neighbor_lists(GRAPHS[name])
    assert all(num_draws(scheme, len(N_v), -1) == 0 for N_v in neighbors)
    np.testing.assert_array_equal(P_hat(P, neighbors, range(len(P)), scheme, -1, {}), P)


@pytest.mark.parametrize(
    ("scheme", "degree", "D", "ranges"),
    [
        ("without-replacement", 0, 2, []),
        ("without-replacement", 2, 2, []),
        ("without-replacement", 1, 2, []),
        ("without-replacement", 7, 3, [5, 6, 7]),
        ("with-replacement", 0, 2, []),
        ("with-replacement", 1, 3, [1, 1, 1]),
        ("paper", 4, 2, [4, 4]),
        ("released", 4, 2, [4, 4]),
        ("released", 4, -1, []),
    ],
)
def test_draw_ranges(scheme: str, degree: int, D: int, ranges: list[int]) -> None:
    assert draw_ranges(scheme, degree, D) == ranges
    assert num_draws(scheme, degree, D) == len(ranges)


@pytest.mark.parametrize(
    ("scheme", "draws", "row"),
    [
        # Node 0 of degree 3 with neighbors 1, 2, 4 and P[0, :] = [10, 1, 2, 9, 3].
        ("without-replacement", [1, 1], [10, 0, 3, 0, 4.5]),  # 1 is taken, so the second draw chooses j = 2
        ("without-replacement", [1, 0], [10, 1.5, 3, 0, 0]),
        ("with-replacement", [2, 2], [10, 0, 0, 0, 9]),
        ("with-replacement", [0, 1], [10, 1.5, 3, 0, 0]),
        ("paper", [2, 2], [10, 0, 0, 0, 4.5]),
        ("paper", [0, 1], [10, 1.5, 3, 0, 0]),
        ("released", [2, 2], [20, 0, 0, 0, 6]),
        ("released", [0, 1], [20, 2, 4, 0, 0]),
    ],
)
def test_row_by_hand(scheme: str, draws: list[int], row: list[float]) -> None:
    P = np.tile([10.0, 1, 2, 9, 3], (5, 1))
    assert P_hat_row(P, 0, [1, 2, 4], scheme, 2, draws).tolist() == row


def test_node_without_neighbors() -> None:
    for scheme in SCHEMES:
        expected = 1 / 4 if scheme == "released" else 1.0
        assert P_hat_row(np.eye(2), 1, [], scheme, 4, []).tolist() == [0, expected]


def test_only_the_rows_asked_for_are_filled_and_drawn() -> None:
    P, neighbors = dense_P(WEIGHTED), neighbor_lists(WEIGHTED)
    asked = []

    def draws_of(v: int) -> list[int]:
        asked.append(v)
        return [0, 0]

    result = P_hat(P, neighbors, [2, 5], "without-replacement", 2, draws_of)
    assert asked == [2]  # node 5 has two neighbors: nothing to draw
    assert np.flatnonzero(result.any(axis=1)).tolist() == [2, 5]
    np.testing.assert_array_equal(result[5], P[5])


@pytest.mark.parametrize(
    ("scheme", "D", "neighbors", "draws", "sentence"),
    [
        ("papper", 1, [1], [0], "did you mean 'paper'"),
        ("paper", 0, [1], [], "-1"),
        ("paper", 2, [1], [0], "number 2"),
        ("paper", 1, [1, 2], [2], r"0\.\.1"),
        ("without-replacement", 1, [1, 2], [-1], r"0\.\.1"),
        ("paper", 1, [0, 1], [0], "itself"),
        ("paper", 1, [2, 1], [0], "increasing"),
    ],
)
def test_mistakes(scheme: str, D: int, neighbors: list[int], draws: list[int], sentence: str) -> None:
    with pytest.raises(CvgnnError, match=sentence):
        P_hat_row(np.eye(3), 0, neighbors, scheme, D, draws)
