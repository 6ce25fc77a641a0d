"""Charts of classes and calibration, from results by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cvgnn
from cvgnn.lab.report.content import build
from cvgnn.lab.report.evaluation_charts import evaluation_charts
from cvgnn.lab.report.run_groups import group_runs
from cvgnn.lab.report.run_reader import collect


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        cvgnn.fit(cvgnn.load("citeseer"), out=folder / str(seed), epochs=2, seed=seed, threads=1)
    return folder


def test_the_charts_show_what_the_results_hold(runs: Path) -> None:
    collected = collect([runs])
    results = [run.result or {} for run in collected.runs]
    classes, reliability = evaluation_charts(group_runs(collected.runs)[0])
    (panel,) = classes.views[0].rows[0].panels
    (curve,) = panel.curves  # type: ignore[union-attr]
    assert len(curve.x) == 6
    each = [result["per_class"]["f1"] for result in results]
    assert curve.mean == pytest.approx([sum(values) / 2 for values in zip(*each, strict=True)], rel=1e-5)
    assert list(curve.low) == pytest.approx([min(values) for values in zip(*each, strict=True)], rel=1e-5)
    points, line = reliability.views[0].rows[0].panels[0].curves  # type: ignore[union-attr]
    known = results[0]["calibration"]
    assert list(points.x) == [c for c in known["confidence"] if c is not None]
    assert list(points.mean) == pytest.approx([a for a in known["accuracy"] if a is not None], rel=1e-5)
    assert line.reference
    assert "evaluated" in [section.key for section in build(collected).sections]


@pytest.mark.parametrize("wrong", [None, [], {"f1": 3}, {"f1": [2.0]}, {"f1": ["x"]}, {"f1": [True, None]}], ids=str)
def test_a_result_from_anybody(runs: Path, wrong: Any) -> None:
    groups, _ = group_runs(collect([runs]).runs)
    for result in groups[0].results:
        result |= {"per_class": wrong, "calibration": wrong}
    assert evaluation_charts(groups) == []
