from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from cvgnn.errors import CvgnnError
from cvgnn.reference import (
    SCHEMES,
    P_hat,
    cv_forward_backward,
    dense_P,
    exact_forward,
    neighbor_lists,
    receptive_fields,
)
from cvgnn.reference.gcn import num_layers
from cvgnn.reference.propagation_matrix import Array
from tests.tiny import GRAPHS, PATH, WEIGHTED, all_draws, random_draws, random_params

# The difference quotient rounds by about eps loss / h: 4e-9 at a loss of 20 and h = 1e-6 (measured, and it grows as
# 1/h); a larger h meets the kinks of ReLU.
FD_ATOL = 1e-8
DIMS = {1: [3, 4], 2: [3, 5, 4], 3: [3, 5, 6, 4]}


@dataclass
class Problem:
    """The arguments of `cv_forward_backward`, with stale histories and random draws."""

    params: dict[str, Array]
    P: Array
    P_hats: dict[int, Array]
    Hbar: dict[int, Array]
    X: Array
    y: np.ndarray
    batch: list[int]
    masks: dict[int, Array | None] | None

    def run(self, estimator: str, params: dict[str, Array] | None = None):
        p = self.params if params is None else params
        return cv_forward_backward(p, self.P, self.P_hats, self.Hbar, self.X, self.y, self.batch, self.masks, estimator)


def make_problem(
    K: int,
    *,
    A: list[list[float]] = WEIGHTED,
    scheme: str = "without-replacement",
    D: int = 1,
    norm: bool = True,
    bias: bool = True,
    dropout: bool = False,
    batch: tuple[int, ...] = (0, 3, 0),
    seed: int = 0,
) -> Problem:
    rng = np.random.default_rng([seed, K, norm, bias, dropout])
    N, dims = len(A), DIMS[K]
    P, neighbors = dense_P(A), neighbor_lists(A)
    P_hats = {
        k: P_hat(P, neighbors, range(N), scheme, D, lambda v: random_draws(rng, scheme, len(neighbors[v]), D))
        for k in range(1, K)
    }
    return Problem(
        params=random_params(rng, dims, norm, bias),
        P=P,
        P_hats=P_hats,
        Hbar={k: rng.normal(size=(N, dims[k])) for k in range(1, K)},
        X=rng.normal(size=(N, dims[0])),
        y=rng.integers(dims[-1], size=N),
        batch=list(batch),
        masks={k: (rng.random((N, dims[k])) < 0.6) / 0.6 for k in range(1, K)} if dropout else None,
    )


def finite_differences(problem: Problem, estimator: str, h: float = 1e-6) -> dict[str, Array]:
    result = {}
    for name, W in problem.params.items():
        result[name] = np.zeros_like(W)
        for index in np.ndindex(*W.shape):
            losses = []
            for sign in (1, -1):
                moved = W.copy()
                moved[index] += sign * h
                losses.append(problem.run(estimator, {**problem.params, name: moved})[0])
            result[name][index] = (losses[0] - losses[1]) / (2 * h)
    return result


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("estimator", ["cv", "ns", "exact"])
def test_gradient_is_the_finite_difference(estimator: str, K: int, norm: bool, bias: bool, dropout: bool) -> None:
    problem = make_problem(K, norm=norm, bias=bias, dropout=dropout)
    grads = problem.run(estimator)[1]
    assert list(grads) == list(problem.params)
    for name, expected in finite_differences(problem, estimator).items():
        np.testing.assert_allclose(grads[name], expected, rtol=1e-7, atol=FD_ATOL, err_msg=name)
    assert all(np.abs(G).max() > 1e-6 for G in grads.values())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("estimator", ["cv", "ns"])
def test_gradient_for_every_scheme(scheme: str, estimator: str) -> None:
    problem = make_problem(3, scheme=scheme, D=2, dropout=True, seed=1)
    grads = problem.run(estimator)[1]
    for name, expected in finite_differences(problem, estimator).items():
        np.testing.assert_allclose(grads[name], expected, rtol=1e-7, atol=FD_ATOL, err_msg=name)


@pytest.mark.parametrize("name", GRAPHS)
def test_exact_forward_is_the_obvious_formula(name: str) -> None:
    rng = np.random.default_rng(2)
    P = dense_P(GRAPHS[name])
    X = rng.normal(size=(len(P), 3))
    p = random_params(rng, DIMS[3], norm=False, bias=True)
    H1 = np.maximum(P @ X @ p["layers.0.weight"] + p["layers.0.bias"], 0)
    H2 = np.maximum(P @ H1 @ p["layers.1.weight"] + p["layers.1.bias"], 0)
    expected = P @ H2 @ p["layers.2.weight"] + p["layers.2.bias"]
    H, logits = exact_forward(p, P, X, 3)
    for ours, theirs in zip([*H, logits], [X, H1, H2, expected, expected], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_exact_forward_with_norm() -> None:
    problem = make_problem(2)
    p, S = problem.params, problem.P @ problem.X
    Z = S @ p["layers.0.weight"] + p["layers.0.bias"]
    standard = np.array([(z - z.mean()) / np.sqrt(((z - z.mean()) ** 2).mean() + 1e-5) for z in Z])
    H1 = np.maximum(standard * p["layers.0.norm.weight"] + p["layers.0.norm.bias"], 0)
    expected = problem.P @ H1 @ p["layers.1.weight"] + p["layers.1.bias"]
    np.testing.assert_allclose(exact_forward(p, problem.P, problem.X, 2)[1], expected, rtol=1e-12, atol=1e-12)


def test_exact_estimator_on_all_nodes_is_exact_forward() -> None:
    problem = make_problem(3, batch=tuple(range(6)))
    _, _, H, r = problem.run("exact")
    for ours, theirs in zip(H, exact_forward(problem.params, problem.P, problem.X, 3)[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-13)
    assert all(field.tolist() == list(range(6)) for field in r)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("estimator", ["cv", "ns"])
@pytest.mark.parametrize("dropout", [False, True])
def test_all_neighbors_equals_exact(scheme: str, estimator: str, dropout: bool) -> None:
    problem = make_problem(3, scheme=scheme, D=-1, dropout=dropout)
    loss, grads, H, r = problem.run(estimator)
    exact_loss, exact_grads, exact_H, exact_r = problem.run("exact")
    assert loss == pytest.approx(exact_loss, rel=1e-13)
    for name in grads:
        np.testing.assert_allclose(grads[name], exact_grads[name], rtol=1e-10, atol=1e-13)
    for k in range(4):
        np.testing.assert_array_equal(r[k], exact_r[k])
        np.testing.assert_allclose(H[k], exact_H[k], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_fresh_histories_make_cv_exact_whatever_is_drawn(scheme: str) -> None:
    problem = make_problem(3, scheme=scheme, D=1)
    exact_H, logits = exact_forward(problem.params, problem.P, problem.X, 3)
    problem.Hbar = {k: exact_H[k] for k in (1, 2)}
    _, _, H, r = problem.run("cv")
    np.testing.assert_allclose(H[3][r[3]], logits[r[3]], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scheme", ["without-replacement", "with-replacement"])
@pytest.mark.parametrize("estimator", ["cv", "ns"])
def test_expected_logits_of_two_layers_are_exact(scheme: str, estimator: str) -> None:
    problem = make_problem(2, batch=(2,))
    neighbors = neighbor_lists(WEIGHTED)
    logits = []
    for draws in all_draws(scheme, len(neighbors[2]), 2):
        problem.P_hats = {1: P_hat(problem.P, neighbors, [2], scheme, 2, {2: draws})}
        logits.append(problem.run(estimator)[2][2][2])
    assert np.std(logits, axis=0).max() > 1e-3
    exact = exact_forward(problem.params, problem.P, problem.X, 2)[1][2]
    np.testing.assert_allclose(np.mean(logits, axis=0), exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("estimator", ["cv", "ns", "exact"])
def test_nothing_outside_the_receptive_fields_is_read(estimator: str) -> None:
    problem = make_problem(3, A=PATH, dropout=True, batch=(0,), seed=3)
    loss, grads, H, r = problem.run(estimator)
    assert r[3].tolist() == [0]
    assert len(r[2]) < 4
    for k in (1, 2, 3):
        outside = np.setdiff1d(np.arange(4), r[k])
        assert np.isnan(H[k][outside]).all()
        assert np.isfinite(H[k][r[k]]).all()
        if k < 3:
            assert problem.masks is not None
            problem.masks[k][outside] = np.nan
            problem.P_hats[k][np.setdiff1d(np.arange(4), r[k + 1])] = np.nan
    again = problem.run(estimator)
    assert again[0] == loss
    for name in grads:
        np.testing.assert_array_equal(again[1][name], grads[name])


def test_receptive_fields_by_hand() -> None:
    P, neighbors = dense_P(PATH), neighbor_lists(PATH)
    P_hats = {
        2: P_hat(P, neighbors, [1], "without-replacement", 1, {1: [1]}),  # 1 draws 2
        1: P_hat(P, neighbors, [1, 2], "without-replacement", 1, {1: [1], 2: [1]}),  # 1 draws 2, 2 draws 3
    }
    r = receptive_fields(P_hats, P, [1, 1], 3)
    assert [field.tolist() for field in r] == [[0, 1, 2, 3], [1, 2, 3], [1, 2], [1]]


def test_a_repeated_id_counts_as_often_as_it_stands() -> None:
    problem = make_problem(2, batch=(0, 3, 0))
    loss, grads, _, _ = problem.run("cv")
    parts = []
    for v in (0, 3):
        problem.batch = [v]
        parts.append(problem.run("cv")[:2])
    assert loss == pytest.approx((2 * parts[0][0] + parts[1][0]) / 3, rel=1e-13)
    for name in grads:
        expected = (2 * parts[0][1][name] + parts[1][1][name]) / 3
        np.testing.assert_allclose(grads[name], expected, rtol=1e-11, atol=1e-14)


def test_histories_hold_values_before_dropout() -> None:
    problem = make_problem(2, dropout=True)
    _, _, dropped, r = problem.run("cv")
    problem.masks = None
    _, _, kept, _ = problem.run("cv")
    np.testing.assert_array_equal(dropped[1][r[1]], kept[1][r[1]])
    assert np.abs(dropped[2][r[2]] - kept[2][r[2]]).max() > 1e-3


def test_dropout_acts_on_H_inside_the_difference() -> None:
    problem = make_problem(2, dropout=True, norm=False, bias=False, batch=(2,))
    _, _, H, r = problem.run("cv")
    m, W = problem.masks[1], problem.params["layers.1.weight"]
    S = problem.P[2] @ problem.Hbar[1]
    for u in r[1]:
        S = S + problem.P_hats[1][2, u] * (m[u] * H[1][u] - problem.Hbar[1][u])
    np.testing.assert_allclose(H[2][2], S @ W, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"estimator": "vc"}, "unknown estimator"),
        ({"batch": []}, "at least one"),
        ({"batch": [6]}, r"0\.\.5"),
        ({"batch": [-1]}, r"0\.\.5"),
        ({"masks": {1: np.ones((6, 1))}}, "shape"),
    ],
)
def test_mistakes(change: dict[str, object], sentence: str) -> None:
    problem = make_problem(2)
    arguments = {"batch": problem.batch, "masks": None, "estimator": "cv", **change}
    with pytest.raises(CvgnnError, match=sentence):
        cv_forward_backward(problem.params, problem.P, problem.P_hats, problem.Hbar, problem.X, problem.y, **arguments)


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["layers.1.weight"],
        ["layers.0.weight", "layers.0.norm.weight", "layers.0.norm.bias"],
        ["layers.0.weight", "layers.1.weight", "layers.0.norm.bias"],
        ["layers.0.weight", "layers.0.scale"],
    ],
)
def test_parameter_names_are_checked(names: list[str]) -> None:
    with pytest.raises(CvgnnError):
        num_layers({name: np.ones(1) for name in names})


def test_K_must_agree_with_the_parameters() -> None:
    problem = make_problem(2)
    for K in (1, 3):
        with pytest.raises(CvgnnError, match="2 layers"):
            exact_forward(problem.params, problem.P, problem.X, K)
