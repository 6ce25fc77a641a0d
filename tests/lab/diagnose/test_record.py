"""`diagnosis.json`: what is written can be read, and what is not a diagnosis is refused in a sentence."""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose import record
from cvgnn.lab.diagnose.record import KINDS, ChartLine, Diagnosis, LineChart, read_diagnosis
from tests.lab.report.folders import write_diagnosis


def test_there_and_back(tmp_path: Path) -> None:
    found = read_diagnosis(write_diagnosis(tmp_path) / "diagnosis.json")
    assert (found.kind, found.dataset, found.verdict) == ("estimator", "citeseer", "It is so.")
    assert found.tables[0].rows == [["1", "0.5 ±0.1"], ["10", "-"]]
    cv, ns, reference = found.figures[0].lines
    assert (cv.x, cv.low) == ([1, 10, 100], [0.4, 0.04, -0.001])
    assert ns.x == [1, 10]  # a logarithmic axis has no place for 0
    assert reference.reference
    assert found.figures[1].lines[0].y == [0.5, 0.05, 0.005]
    assert found.data == {"all": [1, 2]}


def change(where: str, value: Any) -> Any:
    """A change of the stored object at a path of keys."""

    def apply(stored: Any) -> None:
        *path, last = [int(key) if key.isdigit() else key for key in where.split(".")]
        for key in path:
            stored = stored[key]
        stored[last] = value

    return apply


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("kind", "other", "kind must be one of estimator, history, bias-vs-lr, rate, bound, not 'other'"),
        ("kind", ["estimator"], r"kind is \['estimator'\]"),
        ("dataset", 3, "dataset is 3"),
        ("verdict", "x" * 5001, "verdict is 'x"),
        ("settings", [], r"settings is \[\]"),
        ("origin", None, "origin is None"),
        ("tables", {}, r"tables must be a list of at most 100 items, not \{\}"),
        ("tables", [{}] * 101, "tables must be a list of at most 100 items"),
        ("tables.0", "x", "tables holds 'x'"),
        ("tables.0.header", [], "a table must have a header"),
        ("tables.0.rows", None, "rows must be a list of at most 5000 items, not None"),
        ("tables.0.rows.0", ["1"], "its rows must be as long as that"),
        ("tables.0.rows.0.1", 5, "rows is 5"),
        ("figures.0.key", "../up", r"a figure's key must be at most 40 letters, digits and hyphens, not '\.\./up'"),
        ("figures.1.key", "variance", "two of its figures have the same key"),
        ("figures.0.log_x", "yes", "log_x is 'yes'"),
        ("figures.0.lines.0.x", [1], "x and y of a line, and low and high if given, must have the same length"),
        ("figures.0.lines.0.high", [], "x and y of a line, and low and high if given, must have the same length"),
        ("figures.0.lines.0.y.1", "0.1", "y of a line holds '0.1'"),
        ("figures.0.lines.0.y.1", True, "y of a line holds True"),
        ("figures.0.lines.0.y.1", 1e101, r"y of a line holds 1e\+101"),
        ("figures.0.lines.0.x", {}, r"x must be a list of at most 200000 items, not \{\}"),
    ],
)
def test_what_is_no_diagnosis(tmp_path: Path, where: str, value: Any, message: str) -> None:
    file = write_diagnosis(tmp_path) / "diagnosis.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    change(where, value)(stored)
    file.write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(CvgnnError, match=rf"diagnosis\.json does not hold a diagnosis: .*{message}"):
        read_diagnosis(file)


def test_too_many_points(tmp_path: Path) -> None:
    file = write_diagnosis(tmp_path) / "diagnosis.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    many = {"x": [1] * 150_000, "y": [1] * 150_000, "low": [], "high": []}
    for i in (0, 1):
        stored["figures"][0]["lines"][i] |= many
    file.write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(CvgnnError, match=r"its figures have 3\d{5} points; at most 200000 are drawn"):
        read_diagnosis(file)


@pytest.mark.parametrize("text", ["", "[]", '{"kind": NaN}', "{" * 1000])
def test_what_is_no_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "diagnosis.json").write_text(text, encoding="utf-8")
    with pytest.raises(CvgnnError, match=r"diagnosis\.json is not .*; the file is damaged"):
        read_diagnosis(tmp_path / "diagnosis.json")


def test_what_is_no_number_is_written_as_null_and_not_drawn(tmp_path: Path) -> None:
    lines = [
        ChartLine(name="a", x=[1.0, 2.0, 3.0, 4.0], y=[1.0, math.inf, 1e101, math.nan]),
        ChartLine(name="b", x=[1.0, 2.0], y=[1.0, 2.0], low=[math.nan, 1.0], high=[math.nan, 3.0]),
        ChartLine(name="c", x=[1.0], y=[1.0], low=[math.nan], high=[math.nan]),
    ]
    figure = LineChart(key="f", title="", caption="", x_label="", y_label="", lines=lines)
    data = {"all": [math.nan, {"x": (-math.inf, np.float64("nan"), 1e300, 3)}]}
    written = Diagnosis(kind="bound", dataset="d", settings={}, verdict="", tables=[], figures=[figure], data=data)
    found = read_diagnosis(written.write(tmp_path))
    assert found.data == {"all": [None, {"x": [None, None, 1e300, 3]}]}
    assert [(line.x, line.y, line.low) for line in found.figures[0].lines] == [
        ([1.0], [1.0], []), ([2.0], [2.0], [1.0]), ([1.0], [1.0], []),
    ]  # fmt: skip


def test_every_text_is_used_and_every_chart_has_its_text() -> None:
    """`texts.toml` beside the calls in the sources; a chart that names no text would fail as a `KeyError` in its test."""
    folder = Path(record.__file__).parent
    texts = tomllib.loads((folder / "texts.toml").read_text(encoding="utf-8"))
    sources = "".join(file.read_text(encoding="utf-8") for file in folder.glob("*.py"))
    wanted = set(re.findall(r'(?:caption|line_chart)\(\s*"([\w-]+)", "([\w-]+)"', sources))
    assert wanted == {(kind, name) for kind, parts in texts.items() for part in parts.values() for name in part}
    assert set(texts) == set(KINDS)
    for parts in texts.values():
        for chart in parts["charts"].values():
            assert {"title", "caption", "x_label", "y_label"} <= set(chart) <= {f.name for f in fields(LineChart)}
