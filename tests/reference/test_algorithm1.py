from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cvgnn.errors import CvgnnError
from cvgnn.reference import SCHEMES, ReferenceTrainer, cv_forward_backward, exact_forward, neighbor_lists
from cvgnn.reference.propagation_matrix import Array
from tests.tiny import PATH, WEIGHTED, random_draws, random_params

DIMS = {1: [3, 4], 2: [3, 5, 4], 3: [3, 5, 6, 4]}


class SGD:
    """W - a G; calls `before` first, so that a test can look at the world at that moment."""

    def __init__(self, a: float = 0.1, before: Callable[[list[Array], list[Array]], None] | None = None) -> None:
        self.a, self.before = a, before

    def step(self, W: list[Array], G: list[Array]) -> list[Array]:
        if self.before is not None:
            self.before(W, G)
        return [w - self.a * g for w, g in zip(W, G, strict=True)]


def make_trainer(K: int, A=WEIGHTED, *, D: int = 1, optimizer=None, seed: int = 0, **options) -> ReferenceTrainer:
    rng = np.random.default_rng([seed, K])
    N = len(A)
    params = random_params(rng, DIMS[K], norm=True, bias=True)
    X, y = rng.normal(size=(N, 3)), rng.integers(4, size=N)
    fan_outs = [None] + [D] * (K - 1)
    return ReferenceTrainer(A, X, y, params, K=K, fan_outs=fan_outs, optimizer=optimizer or SGD(), **options)


def drawer(A, scheme: str, D: int, seed: int) -> Callable[[int, int], list[int]]:
    """draws(k, v) as a pure function of (seed, k, v)."""
    neighbors = neighbor_lists(A)
    return lambda k, v: random_draws(np.random.default_rng([seed, k, v]), scheme, len(neighbors[v]), D)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_histories_start_from_an_exact_forward_pass(K: int) -> None:
    trainer = make_trainer(K)
    H, _ = exact_forward(trainer.params, trainer.P, trainer.X, K)
    assert sorted(trainer.Hbar) == list(range(1, K))
    for k in range(1, K):
        np.testing.assert_array_equal(trainer.Hbar[k], H[k])
        assert (trainer.Hbar[k] >= 0).all()  # with sigma


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("estimator", ["cv", "ns"])
def test_a_step_is_forward_gradient_optimizer_then_histories(scheme: str, estimator: str) -> None:
    seen = {}

    def before(W: list[Array], G: list[Array]) -> None:
        seen["Hbar"] = {k: H.copy() for k, H in trainer.Hbar.items()}
        seen["W"], seen["G"] = [w.copy() for w in W], [g.copy() for g in G]

    trainer = make_trainer(3, PATH, scheme=scheme, estimator=estimator, optimizer=SGD(0.3, before))
    moved = {1: 0.0, 2: 0.0}
    for t in range(5):
        params = {name: W.copy() for name, W in trainer.params.items()}
        Hbar = {k: H.copy() for k, H in trainer.Hbar.items()}
        draws, batch = drawer(PATH, scheme, 1, t), [t % 4]
        trainer.step(batch, draws)
        # At the moment of the optimizer's step the histories were still the old ones, and W was W_t.
        for k in Hbar:
            np.testing.assert_array_equal(seen["Hbar"][k], Hbar[k])
        for w, old in zip(seen["W"], params.values(), strict=True):
            np.testing.assert_array_equal(w, old)
        # Loss and gradient are those at W_t with the old histories.
        P_hats = trainer.sample(batch, draws)
        loss, grads, H, r = cv_forward_backward(
            params, trainer.P, P_hats, Hbar, trainer.X, trainer.y, batch, None, estimator
        )
        assert trainer.loss == loss
        for name, g in zip(params, seen["G"], strict=True):
            np.testing.assert_array_equal(g, grads[name])
            np.testing.assert_array_equal(trainer.params[name], params[name] - 0.3 * g)
        # Histories: H of this forward pass (at W_t) in r^(k), untouched elsewhere.
        for k in (1, 2):
            np.testing.assert_array_equal(trainer.fields[k], r[k])
            outside = np.setdiff1d(np.arange(4), r[k])
            np.testing.assert_array_equal(trainer.Hbar[k][r[k]], H[k][r[k]])
            np.testing.assert_array_equal(trainer.Hbar[k][outside], Hbar[k][outside])
            moved[k] = max(moved[k], np.abs(trainer.Hbar[k] - Hbar[k]).max())
    assert min(moved.values()) > 1e-3  # else the lines above would show nothing


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("normalization", ["symmetric", "random-walk"])
@pytest.mark.parametrize("estimator", ["cv", "ns"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_neighbors_train_as_exact(scheme: str, estimator: str, normalization: str, K: int) -> None:
    rng = np.random.default_rng(5)
    sampled = make_trainer(K, D=-1, scheme=scheme, estimator=estimator, normalization=normalization)
    exact = make_trainer(K, estimator="exact", normalization=normalization)
    for _ in range(6):
        batch = rng.integers(6, size=3).tolist()
        masks = {k: (rng.random((6, DIMS[K][k])) < 0.5) / 0.5 for k in range(1, K)}
        sampled.step(batch, {}, masks)
        exact.step(batch, {}, masks)
        assert sampled.loss == pytest.approx(exact.loss, rel=1e-11)
    for name, W in exact.params.items():
        np.testing.assert_allclose(sampled.params[name], W, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_draws_are_asked_only_for_the_field_above(scheme: str) -> None:
    trainer = make_trainer(3, scheme=scheme, D=1)
    plain, asked = drawer(WEIGHTED, scheme, 1, 7), []

    def draws(k: int, v: int) -> list[int]:
        asked.append((k, v))
        return plain(k, v)

    trainer.step([0, 4, 0], draws)
    expected = [(k, v) for k in (2, 1) for v in trainer.fields[k + 1].tolist()]
    assert asked == expected


def test_draws_as_a_mapping_and_as_a_function_agree() -> None:
    draws = drawer(WEIGHTED, "paper", 2, 0)
    table = {k: {v: draws(k, v) for v in range(6)} for k in (1, 2)}
    first, second = (make_trainer(3, scheme="paper", D=2) for _ in range(2))
    first.step([1, 2], draws)
    second.step([1, 2], table)
    for name, W in first.params.items():
        np.testing.assert_array_equal(second.params[name], W)


def test_different_fan_outs_per_layer() -> None:
    trainer = make_trainer(3, scheme="without-replacement")
    trainer.fan_outs = [None, 1, -1]
    trainer.step([5], drawer(WEIGHTED, "without-replacement", 1, 0))
    assert trainer.fields[2].tolist() == [2, 4, 5]  # 5 and all its neighbors


def test_the_callers_arrays_are_not_changed() -> None:
    rng = np.random.default_rng(0)
    params = random_params(rng, DIMS[2], norm=True, bias=True)
    before = {name: W.copy() for name, W in params.items()}

    class InPlace:
        def step(self, W: list[Array], G: list[Array]) -> list[Array]:
            for w, g in zip(W, G, strict=True):
                w -= g
            return W

    X, y = rng.normal(size=(6, 3)), np.zeros(6, dtype=int)
    trainer = ReferenceTrainer(WEIGHTED, X, y, params, K=2, fan_outs=[None, -1], optimizer=InPlace())
    trainer.step([0], {})
    for name, W in before.items():
        np.testing.assert_array_equal(params[name], W)


def test_mistakes() -> None:
    with pytest.raises(CvgnnError, match="unknown estimator"):
        make_trainer(2, estimator="gas")
    with pytest.raises(CvgnnError, match="did you mean 'released'"):
        make_trainer(2, scheme="release").step([0], {})
    trainer = make_trainer(2)
    trainer.fan_outs = [None, None]
    with pytest.raises(CvgnnError, match=r"fan_outs\[1\] is None"):
        trainer.step([0], {})
    with pytest.raises(CvgnnError, match="2 entries"):
        ReferenceTrainer(WEIGHTED, trainer.X, trainer.y, trainer.params, K=2, fan_outs=[1], optimizer=SGD())
