"""Lemma 1's identity, the moments it needs, and the constants of Theorem 1."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose.bound import (
    diagnose_bound,
    gradient_sizes,
    measure_bound,
    over_the_run,
    verdict,
)
from cvgnn.lab.diagnose.gradient import flat_weights
from cvgnn.lab.diagnose.theory import Constants, StepMoments, TheoryRun, as_in_theory, theorem, with_optimizer
from cvgnn.lab.diagnose.trainers import fresh_trainer, train_until
from cvgnn.optim import OPTIMIZERS
from tests.build import graph_from_dense, random_adjacency

GRAPH = graph_from_dense(random_adjacency(20, mean_degree=5, weighted=False, seed=3))
CONFIG = as_in_theory(TrainConfig(hidden=4, batch_size=3, num_neighbors=1, batches="replacement", nu_min=1e-3, form="paper"))  # fmt: skip


def run(optimizer: str, T: int = 12) -> TheoryRun:
    return TheoryRun(optimizer=optimizer, T=T, seed=0, eta=0.5, points=2)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_lemma_1_holds_to_round_off(optimizer: str) -> None:
    found = measure_bound((GRAPH, CONFIG, 4), run(optimizer))
    assert found is not None
    assert found["seen"]["lemma1"] < 1e-14
    assert found["seen"]["lemma1_of_step"] < 1e-12
    assert found["alpha"] == pytest.approx(0.5 / math.sqrt(12))
    assert len(found["along"]) == 12
    assert [p["t"] for p in found["at_points"]] == [1, 12]
    assert found["at_points"][0]["bias_inf"] < 1e-15  # histories are exact at W_1
    assert found["at_points"][1]["bias_inf"] > 1e-9


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_wrong_moment_breaks_the_identity(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = StepMoments.second
    monkeypatch.setattr(StepMoments, "second", lambda self, G: plain(self, G) * 1.001)
    assert measure_bound((GRAPH, CONFIG, 4), run(optimizer, 4))["seen"]["lemma1_of_step"] > 1e-5


def test_exact_gradients_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of Assumption 3 are of exact and stochastic gradients; those of a batch are larger, if not made small."""
    plain = StepMoments.gradient
    monkeypatch.setattr(StepMoments, "gradient", lambda self, W: 1e-6 * plain(self, W))
    found = measure_bound((GRAPH, CONFIG, 4), run("sgd", 4))
    assert found is not None
    assert found["seen"]["H_F"] ** 2 >= found["mean_squared"]


def test_what_is_no_number_is_not_lost() -> None:
    bad = torch.tensor([math.nan, 1.0])
    assert all(math.isnan(size) for size in gradient_sizes(torch.ones(2), bad, torch.ones(2)).values())
    seen = over_the_run([gradient_sizes(g) | {"nu": float(g[0]), "S_1": float(g[0])} for g in (torch.ones(2), bad)])
    assert list(seen) == ["H_F", "H_inf", "H_1", "nu", "S_1"]
    assert all(math.isnan(number) for number in seen.values())


def test_steps_are_not_left_out() -> None:
    """A step that is not finite ends a run whatever the config says: what is left would not be Algorithm 1."""
    config = dataclasses.replace(CONFIG, bad_step="skip")
    assert as_in_theory(config).bad_step == "stop"
    assert measure_bound((GRAPH, config, 4), dataclasses.replace(run("sgd"), eta=1e200)) is None


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_moments_are_those_of_table_1(optimizer: str) -> None:
    """`M_t` and `V_t` from the recorded gradients alone, by the formulas of Algorithm 1 and Table 1."""
    trainer = fresh_trainer(GRAPH, dataclasses.replace(with_optimizer(CONFIG, optimizer, 0.1), weight_decay=0.01))
    moments, W = StepMoments(trainer), flat_weights(trainer.model)
    beta1 = 0.0 if optimizer == "sgd" else 0.9
    M, V, V_hat, squares = (torch.zeros_like(W) for _ in range(4))
    for t in train_until(trainer, range(1, 6)):
        G = moments.gradient(W)
        W = flat_weights(trainer.model)
        M = beta1 * M + (1 - beta1) * G
        V_hat, squares = 0.999 * V_hat + 0.001 * G**2, squares + G**2
        V = torch.maximum(V, V_hat)
        expected = {"adam": V_hat, "amsgrad": V, "adagrad": squares / t}.get(optimizer, torch.ones_like(W))
        if optimizer == "adagrad":
            expected = expected + 1e-6
        elif optimizer in ("adam", "amsgrad"):
            expected = expected.clamp_min(1e-6)
        torch.testing.assert_close(moments.first(G), M, rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(moments.second(G), expected, rtol=1e-12, atol=1e-15)


def test_moments_are_read_in_the_papers_form_only() -> None:
    with pytest.raises(CvgnnError, match="paper's form"):
        StepMoments(fresh_trainer(GRAPH, TrainConfig(hidden=4)))


def test_the_constants_are_the_papers() -> None:
    c = Constants(rho=2.0, nu_min=0.5, H_F=3.0, H_inf=0.7, H_1=5.0, beta1=0.9, C=1.5, d=11)
    assert pytest.approx(0.49 * 9 + 2 * 0.49) == c.C_1
    assert pytest.approx(2 * 81 * 0.49) == c.C_2
    assert pytest.approx(2 * 9 / 0.25 + 9 / 0.5 * (4 * 81 + 1) + 1.5 * 5 * 0.7 / 0.25) == c.C_3
    assert pytest.approx(5 * 0.7 / 0.5) == c.C_4
    right = c.theorem1(alpha=0.1, T=7, S_1=2.0, S_2=3.0, gap=1.8)
    assert right == pytest.approx(c.C_1 * 2 + c.C_2 * 3 + c.C_3 * 0.07 + c.C_4 * 0.1 + 1.8)
    slow = (c.C_2 * 0.3 * 11 * 0.7 / 0.25 + c.C_3 * 0.3 * 0.7 + 0.7 / 0.3 * 1.8) / 10  # with H_inf outside, 0.7
    assert c.theorem2(eta=0.3, T=100, gap=1.8) == pytest.approx((c.C_1 * 11 * 0.7 / 0.5 + c.C_4 * 0.7) / 100 + slow)
    assert c.theorem3(eta=0.3, T=100, gap=1.8) == pytest.approx(c.C_4 / 100 + (c.C_3 * 0.3 + 6.0) / 10)
    fast = math.log(100) / 100 * c.C_1 * 11 * 0.7**3 / 0.125 + c.C_4 * 0.7 / 100
    root = math.sqrt(0.7**2 + 0.5**2)  # V_t with AdaGrad's nu_min in it
    assert c.theorem4(eta=0.3, T=100, gap=1.8) == pytest.approx((fast + slow) * root / 0.7)
    tiny = dataclasses.replace(c, nu_min=1e-9)
    papers = math.log(100) / 100 * c.C_1 * 11 * (0.7e9) ** 3
    assert tiny.theorem4(eta=0.3, T=100, gap=1.8) == pytest.approx(papers, rel=1e-3)
    assert theorem(c, "adam", eta=0.3, T=100, gap=1.8) is None
    assert theorem(c, "heavy-ball", eta=0.3, T=100, gap=1.8) == c.theorem3(eta=0.3, T=100, gap=1.8)


@pytest.mark.parametrize("optimizer", ["amsgrad", "adagrad"])
def test_a_bound_from_below_that_is_larger_than_all_gradients(optimizer: str) -> None:
    """`sqrt(V_t)` is `nu_min` then, and not below `H_inf`: the theorem divides Theorem 1 by it, and both agree."""
    config = dataclasses.replace(CONFIG, nu_min=1e3)
    found = diagnose_bound(GRAPH, config, optimizers=[optimizer], steps=8, etas={optimizer: 10.0}, seeds=1)
    (r,) = found.data["results"]
    assert "broken" not in found.verdict
    assert r["rate_right"] > r["rate_left"]
    assert r["rate_left"] == pytest.approx(1e3 * r["theorem1_left"] / (r["alpha"] * 8), rel=1e-6)
    assert r["rate_right"] >= 1e3 * r["theorem1_right"] / (r["alpha"] * 8)


def test_the_whole_diagnosis() -> None:
    found = diagnose_bound(GRAPH, CONFIG, steps=8, seeds=2, points=2, draws=4)
    assert found.kind == "bound"
    assert "Theorem 1's inequality holds in every case" in found.verdict
    assert "round-off" in found.verdict
    assert [r["theorem"] for r in found.data["results"]] == [3, 3, None, 2, 4]
    for r in found.data["results"]:
        assert r["theorem1_left"] <= r["theorem1_right"]
        assert r["constants"]["nu_min"] >= 0.999 * (1.0 if r["theorem"] == 3 else 1e-3)
        assert r["constants"]["rho"] == max(r["rho_hessian"], r["rho_quotient"])
    json.loads(found.to_json())
    assert len(found.figures) == 5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"optimizers": ("adm",)}, r"unknown optimizer 'adm'"),
        ({"steps": 1}, "steps must be a whole number of at least 2"),
        ({"etas": {"sgd": 0.0}}, "eta of sgd must be a number above 0"),
        ({"points": 1}, "points must be a whole number of at least 2"),
        ({"points": 20_000}, "points must be at most 10000, not 20000"),
        ({"draws": 20_000}, "draws must be at most 10000, not 20000"),
        ({"seeds": 2_000}, "seeds must be at most 1000, not 2000"),
        ({"steps": 10_000_000}, "steps must be at most 1000000"),
    ],
)
def test_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(CvgnnError, match=sentence):
        diagnose_bound(GRAPH, CONFIG, **options)  # type: ignore[arg-type]


def test_one_layer_is_refused() -> None:
    with pytest.raises(CvgnnError, match="a network of one layer samples nothing"):
        diagnose_bound(GRAPH, dataclasses.replace(CONFIG, layers=1))


def result(name: str, left: float, right: float, rate_left: float, rate_right: float | None) -> dict[str, object]:
    sides = {"theorem1_left": left, "theorem1_right": right, "rate_left": rate_left, "rate_right": rate_right}
    return {"optimizer": name, "lemma1": 0.0, "older": 0.0, **sides}


def test_three_outcomes() -> None:
    words = verdict(
        [
            result("sgd", 1.0, 2.0, 1.0, 5.0),
            result("adam", 3.0, 2.0, 1.0, None),
            result("amsgrad", 1.0, math.nan, 1.0, math.nan),
            result("adagrad", 1.0, 2.0, 1.0, 0.5),
            result("heavy-ball", 0.0, 2.0, 0.0, 1.0),
        ]
    )
    assert "Theorem 1's inequality is broken for adam:" in words
    assert "Theorem 1's inequality is not judged for amsgrad: its sides are not finite." in words
    assert "holds in every case" not in words
    assert "exceed what is measured by factors of: sgd 5." in words
    assert "The bound on E||grad F(W_tau)||^2 is broken for adagrad:" in words
    assert "The bound on E||grad F(W_tau)||^2 is not judged for amsgrad" in words


def test_gradients_that_are_zero() -> None:
    graph, config = dataclasses.replace(GRAPH, y=GRAPH.y.clamp(max=0), num_classes=1), dataclasses.replace(CONFIG, weight_decay=0.0)  # fmt: skip
    found = diagnose_bound(graph, config, optimizers=["sgd", "amsgrad"], steps=3, seeds=1, points=2, draws=2)
    assert found.data["results"][0]["constants"]["C"] == 0.0
    found.to_json()


def test_constants_too_large_for_a_float() -> None:
    c = Constants(rho=1.0, nu_min=1e-200, H_F=1.0, H_inf=1e200, H_1=1.0, beta1=0.9, C=1.0, d=2)
    assert c.C_1 == c.C_3 == c.theorem4(eta=1.0, T=4, gap=1.0) == math.inf


def test_an_optimizer_that_diverges_is_told_and_left_out() -> None:
    etas = {"sgd": 1e200, "adagrad": 0.5}
    found = diagnose_bound(
        GRAPH, CONFIG, optimizers=["sgd", "adagrad"], steps=12, etas=etas, seeds=1, points=2, draws=4
    )
    assert [result["optimizer"] for result in found.data["results"]] == ["adagrad"]
    assert found.settings["diverged"] == ["sgd"]
    assert "Training diverged with sgd: left out" in found.verdict
    json.loads(found.to_json())
    with pytest.raises(CvgnnError, match="training diverged with sgd; choose a smaller eta"):
        diagnose_bound(GRAPH, CONFIG, optimizers=["sgd"], steps=12, etas=etas, seeds=1, points=2, draws=4)
