"""The test of unbiasedness: exact on tiny graphs, and right about every scheme on CiteSeer."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cvgnn.data import Propagation, Rows
from cvgnn.data.named import load
from cvgnn.lab.diagnose import ztest
from cvgnn.lab.diagnose.estimates import Array
from cvgnn.lab.diagnose.trainers import FIRST_STEP, in_float64
from cvgnn.lab.diagnose.ztest import Projections, ZTest, aggregation_test, corrected, smallest_p, unbiased, z_test
from cvgnn.reference import P_hat_row, dense_P, neighbor_lists
from cvgnn.sampling import NeighborSampler
from tests.build import graph_from_dense
from tests.tiny import TRIANGLE_WITH_TAIL, WEIGHTED, all_draws

SCHEMES = ["without-replacement", "with-replacement", "paper", "released"]


class Tiny:
    """A tiny graph with representations, histories, their projections, and all outcomes of each row of P^."""

    def __init__(self, A: list[list[float]], scheme: str) -> None:
        self.D = 1 if A is WEIGHTED else 2
        self.propagation, self.P = Propagation(graph_from_dense(A)), dense_P(A)
        rng = np.random.default_rng(0)
        self.H, self.Hbar = rng.normal(size=(len(A), 3)), rng.normal(size=(len(A), 3))
        self.projections = Projections(torch.from_numpy(self.H), torch.from_numpy(self.Hbar), seed=0)
        self.rows = [  # all outcomes of a row are equally likely
            np.array(
                [P_hat_row(self.P, v, N_v, scheme, self.D, draws) for draws in all_draws(scheme, len(N_v), self.D)]
            )
            for v, N_v in enumerate(neighbor_lists(A))
        ]
        self.signs, self.columns = self.projections.a.numpy(), self.projections.h.numpy()

    def values(self, P_hat: Array) -> Array:
        """`sum_v a_v sum_u (P^ - P)[v, u] h_u` of each projection."""
        return np.array([sum(a[v] * ((P_hat - self.P)[v] @ h) for v in range(len(a))) for a, h in zip(self.signs.T, self.columns.T, strict=True)])  # fmt: skip


def test_what_is_projected() -> None:
    """Signs and columns are what their names say: of ones, of `H`, and of `H - Hbar`."""
    tiny = Tiny(TRIANGLE_WITH_TAIL, "paper")
    found = dict(zip(tiny.projections.names, zip(tiny.signs.T, tiny.columns.T, strict=True), strict=True))
    assert len(found) == 9
    np.testing.assert_array_equal(found.pop("row sums"), np.ones((2, 5)))
    for name, matrix in (("H", tiny.H), ("H - Hbar", tiny.H - tiny.Hbar)):
        signs, column = found.pop(f"sum of {name}")
        np.testing.assert_array_equal(signs, np.ones(5))
        np.testing.assert_allclose(column, matrix.sum(axis=1), atol=1e-12)
        for i in (1, 2, 3):
            signs, column = found.pop(f"random {i} of {name}")
            assert set(signs) == {-1.0, 1.0}
            apart = [np.abs(matrix @ direction - column).max() for direction in itertools.product([-1, 1], repeat=3)]
            assert sorted(np.array(apart) < 1e-12)[-2:] == [False, True]  # one direction, of signs
    assert not found


@pytest.mark.parametrize("A", [TRIANGLE_WITH_TAIL, WEIGHTED])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_z_is_that_of_all_outcomes(scheme: str, A: list[list[float]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The test itself, fed with every matrix P^ once: mean, deviation and z by sums over rows, which are independent."""
    tiny = Tiny(A, scheme)
    matrices = [np.stack(chosen) for chosen in itertools.product(*tiny.rows)]
    everyone, R = torch.arange(len(A)), len(matrices)

    class Enumerates:
        def __init__(self, *args: object, num_neighbors: int, scheme: str, **options: object) -> None:
            assert num_neighbors == tiny.D

        def sample(self, ids: torch.Tensor, step: int) -> list[SimpleNamespace]:
            assert torch.equal(ids, everyone)
            return [SimpleNamespace(sources=everyone, sampled=rows_of(matrices[step - FIRST_STEP]))]

    monkeypatch.setattr(ztest, "NeighborSampler", Enumerates)
    found = aggregation_test(tiny.propagation, tiny.projections, scheme=scheme, fan_out=tiny.D, draws=R, seed=0)
    biased = scheme == "released" or (scheme == "paper" and tiny.D > 1)  # one draw has no duplicates to remove
    for test, a, h in zip(found, tiny.signs.T, tiny.columns.T, strict=True):
        terms = [a[v] * ((outcomes - tiny.P[v]) @ h) for v, outcomes in enumerate(tiny.rows)]
        mean, variance = sum(each.mean() for each in terms), sum(each.var() for each in terms)
        deviation = (variance * R / (R - 1)) ** 0.5  # of a sample that holds every outcome once
        assert test.mean == pytest.approx(mean, abs=1e-10)
        assert test.deviation == pytest.approx(deviation, abs=1e-10)
        assert (abs(mean) > 1e-12) == biased
        if deviation == 0:  # the one node that draws has neighbors of equal weight
            assert (test.z, test.p) == (None, None)
        else:
            assert test.z == pytest.approx(mean / (deviation / R**0.5), rel=1e-10, abs=1e-10)
    assert any(test.z is not None for test in found)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_z_of_the_matrices_that_the_sampler_draws(scheme: str) -> None:
    """As shipped, with draws at random: each is one of the outcomes, and the numbers are those of the dense matrices."""
    tiny, R = Tiny(WEIGHTED, scheme), 40
    found = aggregation_test(tiny.propagation, tiny.projections, scheme=scheme, fan_out=tiny.D, draws=R, seed=5)
    sampler = NeighborSampler(tiny.propagation, num_neighbors=tiny.D, num_layers=2, scheme=scheme, control=False, seed=5)  # type: ignore[arg-type]  # fmt: skip
    values = []
    for r in range(R):
        (block,) = sampler.sample(torch.arange(6), FIRST_STEP + r)
        P_hat = np.zeros((6, 6))
        P_hat[:, block.sources.numpy()] = block.sampled.dense(block.sources.numel()).numpy()
        for row, outcomes in zip(P_hat, tiny.rows, strict=True):
            assert np.abs(outcomes - row).max(axis=1).min() < 1e-12
        values.append(tiny.values(P_hat))
    mean, deviation = np.mean(values, axis=0), np.std(values, axis=0, ddof=1)
    np.testing.assert_allclose([test.mean for test in found], mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose([test.deviation for test in found], deviation, rtol=0, atol=1e-10)
    np.testing.assert_allclose([test.z for test in found], mean / (deviation / R**0.5), rtol=1e-10, atol=1e-10)  # type: ignore[arg-type]


def rows_of(matrix: Array) -> Rows:
    """A dense matrix as the sampler gives it."""
    n = len(matrix)
    indices = np.tile(np.arange(n, dtype=np.int32), n)
    return Rows.of(np.arange(0, n * n + 1, n, dtype=np.int32), indices, matrix.reshape(-1).copy())


def test_z_of_a_sample_is_students_t() -> None:
    values = np.array([1.0, 2.0, 4.0, 5.0])
    found = z_test(values)
    assert found.z == pytest.approx(3.0 / (values.std(ddof=1) / 2))
    assert found.p == pytest.approx(0.046205, abs=1e-6)  # scipy.stats.ttest_1samp


def test_what_does_not_vary() -> None:
    assert z_test(np.full(5, 1e-18), scale=1.0)[2:4] == (None, None)  # rounding
    assert z_test(np.full(5, 0.1), scale=1.0)[2:4] == (None, 0.0)  # off, always


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
    assert unbiased(found) == (scheme in ("without-replacement", "with-replacement"))
    assert [test.name for test in found] == projections.names
    assert len(found) == 9


def test_all_neighbors_leave_nothing_to_test(citeseer: tuple[Propagation, Projections]) -> None:
    propagation, projections = citeseer
    found = aggregation_test(propagation, projections, scheme="paper", fan_out=-1, draws=10, seed=0)
    assert smallest_p(found) is None
    assert unbiased(found)


def test_all_tests_of_a_command_are_corrected_together() -> None:
    def one(*p_values: float | None) -> list[ZTest]:
        return [ZTest(0.0, 1.0, 0.0, p) for p in p_values]

    found = corrected({("paper", 1, 2): one(0.003, None), ("released", 1, 2): one(0.5, 0.001), ("paper", 1, 5): one(1)})
    assert [[test.adjusted_p for test in each] for each in found.values()] == [
        [0.009000000000000001, None],
        [1.0, 0.004],
        [1.0],
    ]
    assert [unbiased(each) for each in found.values()] == [False, False, True]
