from __future__ import annotations

import numpy as np
import pytest

from cvgnn.errors import CvgnnError
from cvgnn.reference import dense_P, neighbor_lists
from tests.tiny import DIRECTED_WITH_LOOPS, GRAPHS, WITH_ISOLATED


@pytest.mark.parametrize("name", GRAPHS)
def test_P_is_the_literal_product_of_matrices(name: str) -> None:
    A = np.array(GRAPHS[name], dtype=float)
    A_plus_I = A - np.diag(np.diag(A)) + np.eye(len(A))
    D = np.diag(A_plus_I.sum(axis=1))
    root = np.linalg.inv(np.sqrt(D))
    np.testing.assert_allclose(dense_P(A), root @ A_plus_I @ root, rtol=1e-14, atol=0)
    np.testing.assert_allclose(dense_P(A, "random-walk"), np.linalg.inv(D) @ A_plus_I, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", GRAPHS)
def test_mean_and_sum_have_no_self_loop(name: str) -> None:
    A = np.array(GRAPHS[name], dtype=float)
    A -= np.diag(np.diag(A))
    np.testing.assert_array_equal(dense_P(GRAPHS[name], "sum"), A)
    mean = dense_P(GRAPHS[name], "mean")
    for v, row in enumerate(A):
        np.testing.assert_allclose(mean[v], row / row.sum() if row.any() else 0 * row, rtol=1e-15)


def test_path_by_hand() -> None:
    P = dense_P([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    s = 1 / np.sqrt(6)
    np.testing.assert_allclose(P, [[1 / 2, s, 0], [s, 1 / 3, s], [0, s, 1 / 2]], rtol=1e-15)


def test_isolated_node_has_only_its_self_loop() -> None:
    for normalization in ("symmetric", "random-walk"):
        assert dense_P(WITH_ISOLATED, normalization)[4].tolist() == [0, 0, 0, 0, 1]


def test_self_loops_are_merged_and_A_is_not_changed() -> None:
    A = np.array(DIRECTED_WITH_LOOPS, dtype=float)
    before = A.copy()
    no_loops = A - np.diag(np.diag(A))
    for normalization in ("symmetric", "random-walk"):
        np.testing.assert_array_equal(dense_P(A, normalization), dense_P(no_loops, normalization))
    np.testing.assert_array_equal(A, before)


def test_random_walk_rows_sum_to_one() -> None:
    for A in GRAPHS.values():
        np.testing.assert_allclose(dense_P(A, "random-walk").sum(axis=1), 1, rtol=1e-14)


def test_neighbors_are_out_neighbors_sorted_without_self() -> None:
    assert neighbor_lists(DIRECTED_WITH_LOOPS) == [[1, 2], [2, 3], [], [0, 1, 2]]


@pytest.mark.parametrize(
    ("A", "normalization", "sentence"),
    [
        ([[0, 1], [1, 0]], "symetric", "did you mean 'symmetric'"),
        ([[0, 1, 0], [1, 0, 0]], "symmetric", "square"),
        ([[0, -2], [-2, 0]], "symmetric", "sum to more than 0"),
        ([[0, np.nan], [1, 0]], "symmetric", "finite"),
        ([[0, -2], [-2, 0]], "mean", "'sum' takes any weights"),
    ],
)
def test_mistakes(A: list[list[float]], normalization: str, sentence: str) -> None:
    with pytest.raises(CvgnnError, match=sentence):
        dense_P(A, normalization)
