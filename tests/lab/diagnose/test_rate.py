"""`E||grad F(W_tau)||^2` against the length of a run."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose import estimates
from cvgnn.lab.diagnose.estimates import Estimate, log_slope
from cvgnn.lab.diagnose.gradient import Objective
from cvgnn.lab.diagnose.rate import (
    OptimizerRate,
    diagnose_rate,
    iterates,
    measure_rate,
    runs_table,
    slopes_table,
    verdict,
)
from cvgnn.lab.diagnose.theory import ETAS, TheoryRun, as_in_theory, default_etas, with_optimizer
from cvgnn.lab.diagnose.trainers import fresh_trainer
from cvgnn.lab.diagnose.workers import measure_all
from tests.build import graph_from_dense, random_adjacency

GRAPH = graph_from_dense(random_adjacency(20, mean_degree=5, weighted=False, seed=3))
CONFIG = as_in_theory(TrainConfig(hidden=4, batch_size=3, num_neighbors=1, batches="replacement"))


def run(T: int, *, optimizer: str = "sgd", eta: float = 1.0, points: int = 16, seed: int = 0) -> TheoryRun:
    return TheoryRun(optimizer=optimizer, T=T, seed=seed, eta=eta, points=points)


def test_one_iterate_from_each_piece_and_every_iterate_alike() -> None:
    seen = np.zeros(41)
    for seed in range(600):
        chosen = iterates(40, 8, seed)
        assert [(t - 1) // 5 for t in chosen] == list(range(8))
        seen[chosen] += 1
    assert seen[0] == 0
    assert np.abs(seen[1:] - 120).max() < 5 * math.sqrt(120)
    assert iterates(7, 8, 0) == [1, 2, 3, 4, 5, 6, 7]


def test_a_run_is_algorithm_1s_and_the_mean_is_over_its_iterates() -> None:
    found = measure_rate((GRAPH, CONFIG), run(6, optimizer="heavy-ball", eta=2.0))
    config = with_optimizer(CONFIG, "heavy-ball", 2.0 / math.sqrt(6))
    trainer = fresh_trainer(GRAPH, config)
    full = Objective(trainer, weight_decay=config.weight_decay)
    squares, losses = [float(full(trainer.model).vector.square().sum())], [full(trainer.model).loss]
    epoch = 1
    while len(squares) < 6:
        for batch in trainer.loader.epoch(epoch):
            trainer.model.train()
            trainer.step(batch)
            squares.append(float(full(trainer.model).vector.square().sum()))
            losses.append(full(trainer.model).loss)
        epoch += 1
    assert found["squared"] == pytest.approx(squares[:6], rel=1e-12)
    assert found["mean"] == pytest.approx(np.mean(squares[:6]))
    assert found["at_tau"] == pytest.approx(squares[found["tau"] - 1], rel=1e-12)
    assert found["lr"] == 2.0 / math.sqrt(6)
    assert (found["first"], found["last"]) == pytest.approx((losses[0], losses[5]), rel=1e-12)
    assert losses[0] != losses[5]


def test_a_run_that_diverges_is_told_and_left_out() -> None:
    found = measure_rate((GRAPH, CONFIG), run(60, eta=1e200))
    assert found["mean"] is None
    assert "diverged" in found["diverged"]
    told = diagnose_rate(GRAPH, CONFIG, optimizers=["sgd"], steps=(20, 40, 60), etas={"sgd": 1e200}, seeds=1)
    assert "choose a smaller eta" in told.verdict
    told.to_json()


def test_the_whole_diagnosis_is_a_function_of_its_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "RESAMPLES", 200)
    options = {"optimizers": ("sgd", "adagrad"), "steps": (4, 8, 16, 32), "seeds": 3, "points": 4}
    one, two = (diagnose_rate(GRAPH, CONFIG, **options) for _ in range(2))  # type: ignore[arg-type]
    assert one == two
    assert one.kind == "rate"
    sgd, adagrad = one.data["courses"]
    assert (sgd["theorem"], adagrad["theorem"]) == (3, 4)
    assert sgd["two_terms"] is None
    assert min(adagrad["two_terms"][:2]) >= 0
    assert sgd["slope"]["low"] <= sgd["slope"]["value"] <= sgd["slope"]["high"]
    means = [value["value"] for value in sgd["means"]]
    assert sgd["slope"]["value"] == pytest.approx(log_slope([4, 8, 16, 32], means))
    assert sgd["slope_upper_half"]["value"] == pytest.approx(log_slope([16, 32], means[2:]))
    assert len(one.data["runs"]) == 24
    assert {figure.key for figure in one.figures} == {"rate", "adagrad"}
    assert one.figures[0].lines[-1].reference
    one.to_json()


@pytest.mark.slow
def test_processes_change_nothing() -> None:
    jobs = [run(5, seed=s) for s in range(2)]
    told: list[float] = []
    here = measure_all(measure_rate, (GRAPH, CONFIG), jobs)
    there = measure_all(
        measure_rate, (GRAPH, CONFIG), jobs, workers=2, progress=lambda activity, share: told.append(share)
    )
    assert here == there
    assert told == [0.0, 0.5, 1.0]


def test_the_etas_keep_the_shortest_runs_learning_rate() -> None:
    assert default_etas(64) == ETAS
    assert default_etas(256)["sgd"] / math.sqrt(256) == pytest.approx(0.8)
    assert default_etas(100)["amsgrad"] / math.sqrt(100) == pytest.approx(0.05)


def course(value: float, half: float, tail: float) -> OptimizerRate:
    T, ones = [4, 16, 64, 256], np.ones((3, 4))
    y = np.array([[float(t) ** value for t in T]] * 3)
    return OptimizerRate(
        name="sgd", theorem=3, eta=1.0, lengths=T, diverged=[], squared=y, at_tau=y, first=2 * ones, last=ones,
        slope=Estimate(value=value, low=value - half, high=value + half), tail=Estimate(value=tail, low=tail, high=tail),
        means=[Estimate(value=v, low=v, high=v) for v in y[0]], local=[value] * 3, two_terms=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "half", "agrees"), [(-0.5, 0.1, True), (-0.45, 0.1, True), (-0.9, 0.1, True), (-0.3, 0.1, False)]
)
def test_minus_a_half_or_steeper_agrees(value: float, half: float, agrees: bool) -> None:
    c = course(value, half, -0.2)
    assert c.finding == ("yes" if agrees else "no")
    words = verdict([c])
    assert ("disagrees" in words) is not agrees
    assert ("lowered F by 50 %" in words) is not agrees
    assert slopes_table([c], 3).rows[0][-1] == c.finding


def test_an_interval_that_tells_nothing_is_no_agreement() -> None:
    """It holds -1/2, and 0: the fall of the theorems, and none."""
    c = course(0.64, 5.0, -0.2)
    assert c.finding == slopes_table([c], 3).rows[0][-1] == "inconclusive"
    assert "sgd: the slope 0.640 [-4.360, 5.640] is inconclusive: its interval holds -1/2 and 0" in verdict([c])
    assert "disagrees" not in verdict([c])
    assert "as Theorems" not in verdict([c])
    tail = Estimate(value=-1.0, low=-3.0, high=1.0)
    assert dataclasses.replace(course(-0.3, 0.1, -0.2), tail=tail).finding == "no"
    assert course(-0.3, 0.1, -0.6).finding == "in the upper half"


def test_why_a_slope_is_shallow() -> None:
    """Only what the runs have done to `F` is told of it."""
    c = course(-0.3, 0.1, -0.2)
    falling = dataclasses.replace(c, last=np.array([[1.5, 1.4, 1.3, 1.2]] * 3))
    assert "lowered F by 40 %; while F(W_1) - F(W_T) still grows with T" in verdict([falling])
    assert verdict([c]).endswith("(the longest run has lowered F by 50 %).")  # as much as the one before
    rising = dataclasses.replace(c, last=3 * np.ones((3, 4)))
    assert verdict([rising]).endswith("(the longest run has raised F by 50 %; a smaller eta may help).")


def test_one_seed_is_not_judged() -> None:
    found = diagnose_rate(GRAPH, CONFIG, optimizers=["sgd", "sgd"], steps=(2, 3, 5), seeds=1)
    assert "one seed gives no interval, so it is not judged" in found.verdict
    assert "disagrees" not in found.verdict
    assert [row[-1] for row in found.tables[0].rows] == ["-"]
    assert "one seed gives no interval;" in found.tables[0].caption
    assert len(found.data["runs"]) == 3  # an optimizer named twice is measured once


def test_two_seeds_have_no_interval() -> None:
    found = diagnose_rate(GRAPH, CONFIG, optimizers=["sgd"], steps=(2, 3, 5), seeds=2)
    assert "2 seeds give no interval, so it is not judged" in found.verdict
    assert {row[4] for row in found.tables[1].rows} == {"-"}
    assert found.figures[0].lines[0].low == ()
    assert "interval" not in found.figures[0].caption


def test_an_iterate_that_two_pieces_share_counts_twice() -> None:
    seed = next(s for s in range(50) if len(set(iterates(7, 5, s))) < 5)
    found = measure_rate((GRAPH, CONFIG), run(7, points=5, seed=seed))
    every = measure_rate((GRAPH, CONFIG), run(7, points=7, seed=seed))["squared"]
    assert found["squared"] == [every[t - 1] for t in found["iterates"]]
    assert found["mean"] == pytest.approx(np.mean(found["squared"]))


def test_gradients_that_are_zero() -> None:
    """A graph of one class, without weight decay: nothing to learn, nothing to divide by."""
    graph, config = dataclasses.replace(GRAPH, y=GRAPH.y.clamp(max=0), num_classes=1), dataclasses.replace(CONFIG, weight_decay=0.0)  # fmt: skip
    found = diagnose_rate(graph, config, optimizers=["sgd", "adagrad"], steps=(2, 3, 5), seeds=3)
    assert "too few gradients above 0 give no interval, so it is not judged" in found.verdict
    found.to_json()


def test_huge_numbers_are_short() -> None:
    c = dataclasses.replace(course(-0.9, 0.1, -0.2), first=np.full((3, 4), 1e99))
    assert runs_table([c]).rows[0][-2:] == ["1.00e+99", "1.000"]


def test_what_no_theorem_covers_is_not_judged() -> None:
    assert "No theorem" in verdict([dataclasses.replace(course(-0.1, 0.01, -0.1), name="adam", theorem=None)])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"optimizers": ("adm",)}, r"unknown optimizer 'adm'"),
        ({"optimizers": ()}, "name at least one optimizer: sgd"),
        ({"steps": (4, 8)}, "at least three lengths of runs in increasing order"),
        ({"steps": (4, 8, 8)}, "in increasing order"),
        ({"steps": (1, 4, 8)}, "steps must be a whole number of at least 2"),
        ({"etas": {"sgd": -1.0}}, "eta of sgd must be a number above 0"),
        ({"points": 0}, "points must be a whole number of at least 1"),
        ({"points": 20_000}, "points must be at most 10000"),
        ({"seeds": 2_000}, "seeds must be at most 1000"),
        ({"steps": (4, 8, 10_000_000)}, "steps must be at most 1000000"),
    ],
)
def test_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(CvgnnError, match=sentence):
        diagnose_rate(GRAPH, CONFIG, **options)  # type: ignore[arg-type]


def test_one_layer_is_refused() -> None:
    with pytest.raises(CvgnnError, match="a network of one layer samples nothing; choose layers of at least 2"):
        diagnose_rate(GRAPH, dataclasses.replace(CONFIG, layers=1))
