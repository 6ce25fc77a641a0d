"""`diagnose_estimator`: what it finds on CiteSeer, and what it shows."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from cvgnn.config import make_config
from cvgnn.datasets import load
from cvgnn.diagnose import Diagnosis, diagnose_estimator
from cvgnn.diagnose.estimator_tables import verdict
from cvgnn.diagnose.measure import Measured, Moment
from cvgnn.diagnose.statistics import Batches, moments
from cvgnn.diagnose.variants import Variant
from cvgnn.errors import CvgnnError
from cvgnn.graph import Graph
from tests.build import graph_from_dense, random_adjacency

TINY = graph_from_dense(random_adjacency(24, mean_degree=4, weighted=False, seed=3))
SMALL = make_config(hidden=4, batch_size=5)


@pytest.fixture(scope="module")
def citeseer() -> Graph:
    return load("citeseer")


@pytest.fixture(scope="module")
def found(citeseer: Graph) -> Diagnosis:
    """Late enough in training that the histories are worth something."""
    config = make_config(hidden=8, batch_size=20)
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
    assert [row[-1] for row in found.tables[-1].rows] == ["not told from unbiased", "BIASED"]
    assert "P^ is biased in released with 2." in found.verdict
    assert "No bias of P^ is found in without-replacement with 2." in found.verdict


def test_what_is_shown(found: Diagnosis) -> None:
    json.loads(found.to_json())
    along, by_layer, outputs, tests = found.tables
    assert [len(table.rows) for table in found.tables] == [3 * 2, 2 * 2, 2 * 2, 1]
    assert all(len(row) == len(table.header) for table in found.tables for row in table.rows)
    assert along.header == ["step", "estimator", "||grad F||", "bias^2", "batch variance", "neighbor variance", "squared error", "cosine", "ns/cv"]  # fmt: skip
    assert by_layer.header[:2] == ["estimator", "layer"]
    assert {row[1] for row in outputs.rows} == {"A^(1)", "Z^(2)"}
    assert [row[-1] for row in tests.rows] == ["not told from unbiased"]
    assert [figure.key for figure in found.figures] == ["variance", "factor", "bias"]
    for figure in found.figures:
        assert all(value > 0 for line in figure.lines for value in (*line.x, *line.y))
    assert re.match(
        r"With a fan-out of 2, the neighbor variance of ns is [\d.]+ \(step \d+\) to [\d.]+ ", found.verdict
    )


def test_fan_outs_and_a_fixed_batch() -> None:
    found = diagnose_estimator(TINY, SMALL, estimators=["cv", "ns", "exact"], fan_outs=[[1], [3]], steps=(4,), batch="fixed", draws=12, test_draws=10)  # fmt: skip
    assert [figure.key for figure in found.figures] == ["fan-out"]
    assert [line.name for line in found.figures[0].lines] == ["cv", "ns"]
    assert "batch variance" not in found.tables[0].header
    exact = next(row for row in found.tables[0].rows if row[1] == "exact")
    assert exact[3:7] == ["0", "0", "0", "1"]
    assert found.data["units"] == "draws"


def test_a_batch_of_everybody() -> None:
    config = make_config(hidden=4, batch_size=500)
    found = diagnose_estimator(TINY, config, estimators=["ns"], steps=(2,), batches=3, draws=3, test_draws=10)
    assert "is due to neighbors; the batch is always the same." in found.verdict
    assert found.figures == []


def test_what_the_verdict_says_of_the_batch() -> None:
    options = {"estimators": ["exact"], "steps": (2,), "draws": 3, "test_draws": 10}
    drawn = diagnose_estimator(TINY, SMALL, batches=3, **options)  # type: ignore[arg-type]
    assert drawn.verdict == "The exact estimator draws no neighbors, so all error is the batch's."
    fixed = diagnose_estimator(TINY, SMALL, batch="fixed", **options)  # type: ignore[arg-type]
    assert "the batch is always the same: there is no error." in fixed.verdict
    zero = np.zeros(1)
    units = Batches([moments(np.array([[1.0], [-1.0]]), zero, zero)] * 3)  # the batches' means are all alike
    variant = Variant(estimator="ns", scheme="paper", fan_out=(2,))
    m = Measured(variant=variant, gradient={"all": units}, gradient_norm2={}, cosines={}, outputs={}, output_norm2={})
    assert verdict([Moment(1, [m])], {}, same_batch=False).endswith("; the batch's part is not told from 0.")


def test_the_same_numbers_again() -> None:
    one, two = (diagnose_estimator(TINY, SMALL, steps=(3,), batches=4, draws=2, test_draws=10) for _ in range(2))
    assert one.to_json() == two.to_json()
    other = diagnose_estimator(
        TINY, make_config(hidden=4, batch_size=5, seed=1), steps=(3,), batches=4, draws=2, test_draws=10
    )
    assert one.data != other.data


def test_one_layer_samples_nothing() -> None:
    with pytest.raises(CvgnnError, match="a network of one layer samples no neighbors"):
        diagnose_estimator(TINY, make_config(layers=1))
