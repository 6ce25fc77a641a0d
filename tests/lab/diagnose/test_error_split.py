"""The split of the squared error against literal enumeration, and the estimates from samples without bias."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose.error_split import (
    ErrorSplit,
    batch_errors,
    batch_moments,
    draw_errors,
    given_batch_errors,
    part,
)
from cvgnn.lab.diagnose.estimates import Array, jackknife, leave_one_out, mean_of
from cvgnn.lab.diagnose.estimator import factor
from cvgnn.reference import P_hat, cv_forward_backward, dense_P, neighbor_lists
from tests.tiny import TRIANGLE_WITH_TAIL, WITH_ISOLATED, all_draws, random_params

RNG = np.random.default_rng(0)


def outcomes(
    A: list[list[int]], batch: tuple[int, ...], *, K: int, D: int, scheme: str, estimator: str
) -> Iterator[Array]:
    """The gradient of every outcome of the neighbor draws, by the reference; all are equally likely."""
    P, neighbors, n = dense_P(A), neighbor_lists(A), len(A)
    rng = np.random.default_rng(5)
    params = random_params(rng, [3, *[4] * (K - 1), 3], norm=False, bias=True)
    X, y = rng.normal(size=(n, 3)), rng.integers(0, 3, size=n)
    Hbar = {k: rng.normal(size=(n, 4)) for k in range(1, K)}
    # Every node draws at every layer, also where the batch does not reach it: such draws only repeat outcomes.
    drawn = [list(all_draws(scheme, len(N_v), D)) for N_v in neighbors]
    for chosen in itertools.product(*(drawn * (K - 1))):
        P_hats = {
            k: P_hat(P, neighbors, range(n), scheme, D, dict(enumerate(chosen[(k - 1) * n : k * n])))
            for k in range(1, K)
        }
        _, grads, _, _ = cv_forward_backward(params, P, P_hats, Hbar, X, y, batch, estimator=estimator)
        yield np.concatenate([g.ravel() for g in grads.values()])


@pytest.mark.parametrize("estimator", ["cv", "ns"])
@pytest.mark.parametrize("scheme", ["without-replacement", "with-replacement", "paper", "released"])
def test_the_split_is_that_of_all_outcomes(scheme: str, estimator: str) -> None:
    """Bias^2, the batch's and the neighbors' part, from all batches and all draws, to 1e-10."""
    A = TRIANGLE_WITH_TAIL
    train, size = (0, 2, 4), 2
    batches = list(itertools.combinations(train, size))
    G = {b: np.array(list(outcomes(A, b, K=2, D=2, scheme=scheme, estimator=estimator))) for b in batches}
    exact = {b: next(outcomes(A, b, K=2, D=-1, scheme=scheme, estimator="exact")) for b in (*batches, train)}
    g = exact[train]

    everything = [(1 / len(batches) / len(G[b]), b, one) for b in batches for one in G[b]]
    mean = sum(p * one for p, _, one in everything)
    given = {b: sum(one for one in G[b]) / len(G[b]) for b in batches}
    bias2 = float(((mean - g) ** 2).sum())
    batch = sum(float(((given[b] - mean) ** 2).sum()) for b in batches) / len(batches)
    neighbors = sum(p * float(((one - given[b]) ** 2).sum()) for p, b, one in everything)
    mse = sum(p * float(((one - g) ** 2).sum()) for p, _, one in everything)

    found = batch_errors(
        [batch_moments(G[b], g, exact[b], np.full(len(G[b]), 1 / len(G[b]))) for b in batches],
        np.full(len(batches), 1 / len(batches)),
    )[0]
    np.testing.assert_allclose(found, (bias2, batch, neighbors, mse), rtol=1e-10, atol=1e-10)
    assert bias2 > 1e-6  # ReLU and softmax make the gradient of an unbiased P^ H biased, too
    assert neighbors > 1e-4


def test_three_layers_too() -> None:
    A = WITH_ISOLATED
    G = np.array(list(outcomes(A, (1,), K=3, D=1, scheme="without-replacement", estimator="ns")))
    g = next(outcomes(A, (1,), K=3, D=-1, scheme="without-replacement", estimator="exact"))
    p = np.full(len(G), 1 / len(G))
    found = ErrorSplit(*batch_errors([batch_moments(G, g, g, p)], np.ones(1))[0])
    assert found.bias2 == pytest.approx(float(((G.mean(axis=0) - g) ** 2).sum()), rel=1e-10)
    assert found.neighbors == pytest.approx(float(G.var(axis=0).sum()), rel=1e-10)
    assert found.batch == pytest.approx(0, abs=1e-12)


def test_estimates_from_samples_are_unbiased() -> None:
    """The mean over all samples of two batches with two draws each is the truth."""
    values = {b: RNG.normal(size=(3, 2)) for b in range(2)}
    own = {b: RNG.normal(size=2) for b in values}  # g_b
    g = (own[0] + own[1]) / 2
    chances = {b: np.array(p) for b, p in enumerate([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]])}
    of_batches = np.array([0.5, 0.5])
    exact = batch_errors([batch_moments(values[b], g, own[b], chances[b]) for b in values], of_batches)[0]
    total = np.zeros(4)
    weight = 0.0
    for batches in itertools.product(values, repeat=2):
        for draws in itertools.product(range(3), repeat=4):
            rows = (values[batches[0]][list(draws[:2])], values[batches[1]][list(draws[2:])])
            p = 0.25 * float(chances[batches[0]][list(draws[:2])].prod() * chances[batches[1]][list(draws[2:])].prod())
            sample = batch_errors([batch_moments(row, g, own[b]) for row, b in zip(rows, batches, strict=True)])
            total += p * sample[0]
            weight += p
    assert weight == pytest.approx(1.0)
    np.testing.assert_allclose(total, exact, rtol=1e-10, atol=1e-12)


def test_draws_of_a_given_batch_are_unbiased() -> None:
    values, chances = RNG.normal(size=(3, 2)), np.array([0.5, 0.3, 0.2])
    zero = np.zeros(2)
    exact = batch_errors([batch_moments(values, zero, zero, chances)], np.ones(1))[0]
    total = np.zeros(4)
    for draws in itertools.product(range(3), repeat=3):
        total += float(chances[list(draws)].prod()) * draw_errors(values[list(draws)])[0]
    np.testing.assert_allclose(total, exact, rtol=1e-10, atol=1e-12)


def test_parts_of_a_vector_add_up() -> None:
    G, g, own = RNG.normal(size=(5, 4, 6)), RNG.normal(size=6), RNG.normal(size=(5, 6))
    whole = batch_errors([batch_moments(G[b], g, own[b]) for b in range(5)])
    halves = [
        batch_errors([batch_moments(G[b][:, part], g[part], own[b][part]) for b in range(5)]) for part in np.s_[:2, 2:]
    ]
    np.testing.assert_allclose(halves[0] + halves[1], whole, rtol=1e-12)
    for left_out in range(5):
        fewer = batch_errors([batch_moments(G[b], g, own[b]) for b in range(5) if b != left_out])
        np.testing.assert_allclose(whole[1 + left_out], fewer[0], rtol=1e-12)


def test_products_and_squares_are_those_of_the_draws() -> None:
    G, g = RNG.normal(size=(4, 6)), RNG.normal(size=6)
    found = batch_moments(G, g, RNG.normal(size=6))
    np.testing.assert_allclose(found.products, G @ g)
    np.testing.assert_allclose(found.squares, (G**2).sum(axis=1))


def test_the_jackknife_of_a_mean_is_students_interval() -> None:
    values = RNG.normal(size=10)
    found = mean_of(values)
    half = 2.262157 * values.std(ddof=1) / 10**0.5  # t with 9 degrees of freedom
    assert found == pytest.approx((values.mean(), values.mean() - half, values.mean() + half), rel=1e-5)
    assert jackknife(leave_one_out(lambda keep: 2.0, 2)) == (2.0, 2.0, 2.0)  # too few units for an interval


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """200 samples of 20 batches with 3 draws each, of normal effects."""
    rng = np.random.default_rng(1)
    hits = {"bias2": 0, "batch": 0, "neighbors": 0}
    truth = {"bias2": 0.25 * 4, "batch": 4.0, "neighbors": 9.0 * 4}
    for _ in range(200):
        own = rng.normal(size=(20, 4))
        G = own[:, None] + 0.5 + 3 * rng.normal(size=(20, 3, 4))
        units = batch_errors([batch_moments(G[b], np.zeros(4), own[b]) for b in range(20)])
        for name, value in truth.items():
            found = part(units, name)
            hits[name] += found.low <= value <= found.high
    assert all(0.9 <= hit / 200 <= 1.0 for hit in hits.values()), hits


def test_the_factor_between_two() -> None:
    noise = RNG.normal(size=(12, 4, 3))
    zero = np.zeros(3)
    large = batch_errors([batch_moments(3 * one, zero, zero) for one in noise])
    small = batch_errors([batch_moments(one, zero, zero) for one in noise])
    found = factor(large, small)
    assert found is not None
    assert found == pytest.approx((9.0, 9.0, 9.0))
    still = batch_errors([batch_moments(0 * one, zero, zero) for one in noise])
    assert factor(large, still) is None


def test_given_batches_are_averaged() -> None:
    splits = np.array([[1.0, 0.0, 2.0, 3.0], [3.0, 0.0, 4.0, 7.0], [2.0, 0.0, 3.0, 5.0]])
    errors = given_batch_errors(splits)
    assert errors[0].tolist() == [2.0, 0.0, 3.0, 5.0]
    assert errors[1].tolist() == [2.5, 0.0, 3.5, 6.0]  # without the first
    assert len(errors) == 4


def test_what_does_not_belong_together_is_refused() -> None:
    one, two = (batch_moments(np.zeros((n, 1)), np.zeros(1), np.zeros(1)) for n in (2, 3))
    with pytest.raises(CvgnnError, match="same number of draws"):
        batch_errors([one, two])
    with pytest.raises(CvgnnError, match="all outcomes of all batches, or a sample"):
        batch_errors([one, one], np.full(2, 0.5))
