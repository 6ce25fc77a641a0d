"""`diagnose_estimator`: what it finds on CiteSeer, and what it shows."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.named import load
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose import Diagnosis, diagnose_estimator
from cvgnn.lab.diagnose.error_split import batch_errors, batch_moments
from cvgnn.lab.diagnose.estimator import verdict
from cvgnn.lab.diagnose.gradient_errors import Variant, VariantErrors
from tests.build import graph_from_dense, random_adjacency

TINY = graph_from_dense(random_adjacency(24, mean_degree=4, weighted=False, seed=3))
SMALL = TrainConfig(hidden=4, batch_size=5, estimator="cv")


@pytest.fixture(scope="module")
def citeseer() -> Graph:
    return load("citeseer")


@pytest.fixture(scope="module")
def found(citeseer: Graph) -> Diagnosis:
    """Late enough in training that the histories are worth something."""
    config = TrainConfig(hidden=8, batch_size=20, estimator="cv")
    return diagnose_estimator(citeseer, config, steps=(0, 1, 200), batches=16, draws=2, test_draws=30)


def test_the_control_variate_has_less_variance_late_in_training(found: Diagnosis) -> None:
    """Seed 0; at the first steps there is nothing to gain, because layer 0's gradient goes through P^ transposed."""
    moments = {moment["step"]: {v["label"]: v for v in moment["variants"]} for moment in found.data["moments"]}
    assert list(moments) == [0, 1, 200]
    early, late = (
        moments[step]["ns 2"]["gradient"]["all"]["neighbors"][0]
        / moments[step]["cv 2"]["gradient"]["all"]["neighbors"][0]
        for step in (1, 200)
    )
    assert 0.8 < early < 1.3
    told = {moment["step"]: moment["ns_over_cv"]["cv 2"] for moment in found.data["moments"]}
    assert (told[1][0], told[200][0]) == pytest.approx((early, late))
    assert late > 3
    assert moments[0]["cv 2"]["outputs"]["Z^(2)"]["mse"][0] < 1e-25  # fresh histories make the forward pass exact
    assert moments[0]["cv 2"]["gradient"]["layer 0"]["neighbors"][0] > 1e-6  # and not the backward pass


def test_the_test_of_unbiasedness() -> None:
    schemes = ["without-replacement", "released"]
    found = diagnose_estimator(
        TINY, SMALL, estimators=["ns"], schemes=schemes, steps=(3,), batches=3, draws=2, test_draws=100
    )
    results = {result["scheme"]: result for result in found.data["test"]["results"]}
    assert {name: result["unbiased"] for name, result in results.items()} == dict(
        zip(schemes, (True, False), strict=True)
    )
    assert [row[-1] for row in found.tables[-1].rows] == ["no bias found", "BIASED"]
    assert "P^ is biased in released with 2." in found.verdict
    assert "No bias of P^ is found in without-replacement with 2." in found.verdict
    whole = diagnose_estimator(TINY, SMALL, estimators=["ns"], fan_outs=[[-1]], steps=(0,), batches=3, draws=2, test_draws=10)  # fmt: skip
    assert "No bias of P^ is found in without-replacement with all." in whole.verdict


def test_what_is_shown(found: Diagnosis) -> None:
    json.loads(found.to_json())
    along, dropout, by_layer, outputs, tests = found.tables
    assert dropout.header == ["estimator", "variance", "/ exact"]
    assert [len(table.rows) for table in found.tables] == [3 * 2, 4, 2 * 2, 2 * 2, 1]
    assert all(len(row) == len(table.header) for table in found.tables for row in table.rows)
    assert along.header == ["step", "estimator", "||grad F||", "bias^2", "batch variance", "neighbor variance", "squared error", "cosine", "ns/cv"]  # fmt: skip
    assert by_layer.header[:2] == ["estimator", "layer"]
    assert {row[1] for row in outputs.rows} == {"A^(1)", "Z^(2)"}
    assert [row[-1] for row in tests.rows] == ["no bias found"]
    assert [figure.key for figure in found.figures] == ["variance", "factor", "bias"]
    for figure in found.figures:
        assert all(value > 0 for line in figure.lines for value in (*line.x, *line.y))
    assert re.match(
        r"With a fan-out of 2, the neighbor variance of ns is [\d.]+ \(step \d+\) to [\d.]+ ", found.verdict
    )


def test_fan_outs_and_a_fixed_batch() -> None:
    found = diagnose_estimator(TINY, SMALL, estimators=["cv", "ns", "exact"], fan_outs=[[1], [3]], steps=(4,), batch="fixed", draws=12, test_draws=10)  # fmt: skip
    assert [figure.key for figure in found.figures] == ["fan-out", "dropout"]
    assert [line.name for line in found.figures[0].lines] == ["cv", "ns"]
    assert "batch variance" not in found.tables[0].header
    exact = next(row for row in found.tables[0].rows if row[1] == "exact")
    assert exact[3:7] == ["0", "0", "0", "1"]
    assert found.data["units"] == "draws"


def test_a_batch_of_everybody() -> None:
    config = TrainConfig(hidden=4, batch_size=500)
    found = diagnose_estimator(TINY, config, estimators=["ns"], steps=(2,), batches=3, draws=3, test_draws=10)
    assert "is due to neighbors; the batch is always the same." in found.verdict
    assert found.tables[0].header[4] == "batch variance"
    assert {row[4] for row in found.tables[0].rows} == {"0"}
    assert "the batch's variance" not in {line.name for line in found.figures[0].lines}


@pytest.mark.parametrize("batch", ["resampled", "fixed"])
def test_one_moment_has_figures(batch: str) -> None:
    """The variance of each layer's gradient, and the cosines of all batches, or draws."""
    options = {"estimators": ["cv", "exact", "ns"], "steps": (0,), "batch": batch, "batches": 6, "draws": 5, "test_draws": 10}  # fmt: skip
    found = diagnose_estimator(TINY, SMALL, **options)  # type: ignore[arg-type]
    layers, cosine = found.figures
    resampled = batch == "resampled"
    assert (layers.key, [line.name for line in layers.lines]) == ("layers", ["cv 2", "ns 2"] + ["the batch's variance"] * resampled)  # fmt: skip
    (variants,) = (moment["variants"] for moment in found.data["moments"])
    for line, v in zip(layers.lines, (variants[0], variants[2]), strict=False):
        shares = [v["gradient"][f"layer {k}"]["neighbors"][0] / v["gradient_norm2"][f"layer {k}"] for k in (0, 1)]
        kept = [k for k in (0, 1) if shares[k] > 0]  # fresh histories leave the last layer nothing to draw
        assert (list(line.x), list(line.y)) == (kept, [shares[k] for k in kept])
        assert all(low <= y <= high for low, y, high in zip(line.low, line.y, line.high, strict=True))
    assert (cosine.key, [line.name for line in cosine.lines]) == (
        "cosine",
        ["cv 2", "exact", "ns 2", "neither up nor down"],
    )
    assert f"share of the {'batches' if resampled else 'draws'} at or below" in cosine.x_label
    for line, v in zip(cosine.lines, variants, strict=False):
        assert len(line.x) == len(line.y) == (6 if resampled else 5)
        assert list(line.y) == sorted(line.y)
        assert np.mean(line.y) == pytest.approx(v["cosine"]["all"][0])


def test_moments_before_training_diverged_are_kept() -> None:
    config = TrainConfig(hidden=4, batch_size=5, optimizer="sgd", lr=1e80, norm="none", bad_step="skip")
    options = {"estimators": ["ns"], "batches": 3, "draws": 2, "test_draws": 10}
    found = diagnose_estimator(TINY, config, steps=(0, 50), **options)  # type: ignore[arg-type]
    alone = diagnose_estimator(TINY, config, steps=(0,), **options)  # type: ignore[arg-type]
    del alone.data["dropout"]  # measured after the last step alone, and found's diverged
    assert found.data == alone.data  # the test of P^ is of the last moment's representations, too
    assert found.settings["steps"] == [0]
    assert 1 <= found.settings["diverged"] <= 50
    assert alone.settings["diverged"] is None
    assert found.settings["bad_step"] == "stop"
    assert f"Training diverged at step {found.settings['diverged']}: " in found.verdict
    with pytest.raises(CvgnnError, match=r"training diverged at step \d+: .*; choose a smaller lr"):
        diagnose_estimator(TINY, config, steps=(50,), **options)  # type: ignore[arg-type]


def test_gradients_whose_squares_are_no_numbers() -> None:
    """Weights of 1e200 are finite, and nothing that is measured of them is: told as divergence, without a warning."""
    config = TrainConfig(hidden=4, batch_size=500, optimizer="sgd", lr=1e200, norm="none")
    found = diagnose_estimator(TINY, config, estimators=["ns"], steps=(0, 1), batches=3, draws=2, test_draws=10)
    assert found.settings["steps"] == [0]
    assert "Training diverged at step 1: " in found.verdict


def test_what_the_verdict_says_of_the_batch() -> None:
    options = {"estimators": ["exact"], "steps": (2,), "draws": 3, "test_draws": 10}
    drawn = diagnose_estimator(TINY, SMALL, batches=3, **options)  # type: ignore[arg-type]
    assert drawn.verdict == "The exact estimator draws no neighbors, so all error is the batch's."
    fixed = diagnose_estimator(TINY, SMALL, batch="fixed", **options)  # type: ignore[arg-type]
    assert "the batch is always the same: there is no error." in fixed.verdict
    zero = np.zeros(1)
    units = batch_errors([batch_moments(np.array([[1.0], [-1.0]]), zero, zero)] * 3)  # the batches' means are all alike
    variant = Variant(estimator="ns", scheme="paper", fan_out=(2,))
    m = VariantErrors(
        step=1, variant=variant, gradient={"all": units}, gradient_norm2={}, cosines={}, outputs={}, output_norm2={}
    )
    assert verdict([m], {}, same_batch=False).endswith("; the batch's part cannot be distinguished from 0.")


def test_the_same_numbers_again() -> None:
    one, two = (diagnose_estimator(TINY, SMALL, steps=(3,), batches=4, draws=2, test_draws=10) for _ in range(2))
    assert one.to_json() == two.to_json()
    other = diagnose_estimator(
        TINY, TrainConfig(hidden=4, batch_size=5, seed=1), steps=(3,), batches=4, draws=2, test_draws=10
    )
    assert one.data != other.data


def test_one_layer_samples_nothing() -> None:
    with pytest.raises(CvgnnError, match="a network of one layer samples no neighbors"):
        diagnose_estimator(TINY, TrainConfig(layers=1))
