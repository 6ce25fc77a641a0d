"""The test of unbiasedness: exact on tiny graphs, and right about every scheme on CiteSeer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from cvgnn.datasets import load
from cvgnn.diagnose.statistics import Array
from cvgnn.diagnose.subject import in_float64
from cvgnn.diagnose.ztest import Aggregation, Projections, ZTest, aggregation_test, corrected, z_test
from cvgnn.graph import Propagation
from cvgnn.reference import P_hat_row, dense_P, neighbor_lists
from tests.tiny import TRIANGLE_WITH_TAIL, WEIGHTED, all_draws

R = 100


@pytest.mark.parametrize("A", [TRIANGLE_WITH_TAIL, WEIGHTED])
@pytest.mark.parametrize("scheme", ["without-replacement", "with-replacement", "paper", "released"])
def test_z_is_that_of_all_outcomes(scheme: str, A: list[list[float]]) -> None:
    """Mean, deviation and z of a projection from all matrices P^, against sums over rows, which are independent."""
    P, neighbors, D = dense_P(A), neighbor_lists(A), 1 if A is WEIGHTED else 2
    rng = np.random.default_rng(0)
    a, h = rng.choice([-1.0, 1.0], size=len(P)), rng.normal(size=len(P))
    rows = [
        np.array([a[v] * float((P_hat_row(P, v, N_v, scheme, D, draws) - P[v]) @ h) for draws in all_draws(scheme, len(N_v), D)])
        for v, N_v in enumerate(neighbors)
    ]  # fmt: skip
    values: Array = np.array([sum(chosen) for chosen in itertools.product(*rows)])
    found = z_test(values, np.full(len(values), 1 / len(values)), draws=R, scale=1.0)
    mean, deviation = sum(row.mean() for row in rows), sum(row.var() for row in rows) ** 0.5
    assert found.mean == pytest.approx(mean, abs=1e-10)
    assert found.deviation == pytest.approx(deviation, abs=1e-10)
    assert found.z == pytest.approx(mean / (deviation / R**0.5), abs=1e-8)
    biased = scheme == "released" or (scheme == "paper" and D > 1)  # one draw has no duplicates to remove
    assert (abs(mean) > 1e-12) == biased


def test_z_of_a_sample_is_students_t() -> None:
    values = np.array([1.0, 2.0, 4.0, 5.0])
    found = z_test(values)
    assert found.z == pytest.approx(3.0 / (values.std(ddof=1) / 2))
    assert found.p == pytest.approx(0.046205, abs=1e-6)  # scipy.stats.ttest_1samp


def test_what_does_not_vary() -> None:
    assert z_test(np.full(5, 1e-18), scale=1.0)[2:] == (None, None)  # rounding
    assert z_test(np.full(5, 0.1), scale=1.0)[2:] == (None, 0.0)  # off, always


@pytest.fixture(scope="module")
def citeseer() -> tuple[Propagation, Projections]:
    graph = in_float64(load("citeseer"))
    H = torch.randn(graph.num_nodes, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).relu()
    return Propagation(graph), Projections(H, 0.9 * H, seed=0)


@pytest.mark.parametrize("fan_out", [2, 5])
@pytest.mark.parametrize("scheme", ["without-replacement", "with-replacement", "paper", "released"])
def test_unbiased_schemes_pass_and_the_others_fail(
    citeseer: tuple[Propagation, Projections], scheme: str, fan_out: int
) -> None:
    propagation, projections = citeseer
    found = aggregation_test(propagation, projections, scheme=scheme, fan_out=fan_out, draws=50, seed=0)
    assert found.unbiased == (scheme in ("without-replacement", "with-replacement"))
    assert found.names == projections.names
    assert len(found.names) == 9


def test_all_neighbors_leave_nothing_to_test(citeseer: tuple[Propagation, Projections]) -> None:
    propagation, projections = citeseer
    found = aggregation_test(propagation, projections, scheme="paper", fan_out=-1, draws=10, seed=0)
    assert found.smallest is None
    assert found.unbiased


def test_all_tests_of_a_command_are_corrected_together() -> None:
    def one(*p_values: float | None) -> Aggregation:
        return Aggregation(["a"] * len(p_values), [ZTest(0.0, 1.0, 0.0, p) for p in p_values], list(p_values))

    found = corrected({("paper", 1, 2): one(0.003, None), ("released", 1, 2): one(0.5, 0.001), ("paper", 1, 5): one(1)})
    assert [each.adjusted for each in found.values()] == [[0.009000000000000001, None], [1.0, 0.004], [1.0]]
    assert [each.unbiased for each in found.values()] == [False, False, True]
