"""Diagnoses in a report: found, shown beside runs or alone, hostile ones only as text, damaged ones left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cvgnn.cli.main import main
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose.record import ChartLine, DiagnosisTable, LineChart
from cvgnn.lab.report import build, collect
from cvgnn.lab.report.matplotlib_figures import write_figures
from tests.lab.report.folders import write_diagnosis, write_run
from tests.lab.report.pages import Page

Captured = pytest.CaptureFixture[str]
HOSTILE = "</script><script>alert(1)</script><b onclick='x'>&\"$x_1$"


def page_of(folder: Path, *words: str) -> str:
    assert main(["report", str(folder), "--out", str(folder / "report.html"), *words]) == 0
    return (folder / "report.html").read_text(encoding="utf-8")


def test_diagnoses_alone(tmp_path: Path, capsys: Captured) -> None:
    write_diagnosis(tmp_path / "a" / "estimator")
    write_diagnosis(tmp_path / "a" / "rate", kind="rate", figures=())
    page = page_of(tmp_path)
    assert capsys.readouterr().out.startswith("2 diagnoses of training on citeseer.")
    assert "<title>Diagnosis of training with cvgnn</title>" in page
    assert '<section id="estimator-citeseer"><h2>Bias and variance of the gradient: citeseer</h2>' in page
    assert '<section id="rate-citeseer"><h2>Rate of convergence: citeseer</h2>' in page
    assert '<p class="verdict">It is so.</p>' in page
    assert "<code>cvgnn diagnose estimator</code>" in page
    assert "processor Test CPU" in page
    *_, numbers, origin, settings = Page(page).tables["estimator-citeseer"]
    assert numbers == [["step", "bias2"], ["1", "0.5 ±0.1"], ["10", "-"]]
    machine = "processor Test CPU, cores 2, python 3.11, torch 2.13, cvgnn 0.1.0"
    assert origin[2:] == [["command", "cvgnn diagnose estimator"], ["seconds", "1.5"], ["machine", machine]]
    assert settings[1:] == [["seed", "0"], ["config.lr", "0.1"], ["steps", "1, 10, 100"]]
    assert 'id="origin"' not in page
    report = build(collect([tmp_path]))
    variance, ages = report.sections[0].charts
    assert (variance.key, ages.key) == ("estimator-citeseer-variance", "estimator-citeseer-ages")
    panel = variance.views[0].rows[0].panels[0]
    assert (panel.kind, panel.title, panel.log_x, panel.log_y) == ("plain", "variance of G", True, True)
    assert [(curve.label, curve.style, curve.reference) for curve in panel.curves] == [
        ("cv 2", (0, 0), False), ("ns 2", (1, 1), False), ("1/t", (2, 10), True),
    ]  # fmt: skip
    assert panel.curves[1].low == panel.curves[1].mean


def test_every_graph_is_named_once(tmp_path: Path) -> None:
    for number in range(12):
        write_diagnosis(tmp_path / f"a{number}", dataset="a")
        write_diagnosis(tmp_path / f"b{number}", dataset="b")
    assert build(collect([tmp_path])).summary == "24 diagnoses of training on a, b."
    for number in range(12):
        write_diagnosis(tmp_path / f"c{number}", dataset=f"c{number:02}")
    named = ", ".join(["a", "b", *(f"c{number:02}" for number in range(8))])
    assert build(collect([tmp_path])).summary == f"36 diagnoses of training on {named} and 4 more."


def test_beside_runs_and_inside_a_runs_folder(tmp_path: Path, capsys: Captured) -> None:
    run = write_run(tmp_path / "run")
    write_diagnosis(run / "diagnosis")
    write_diagnosis(tmp_path / "other")
    page = page_of(tmp_path)
    assert "And 2 diagnoses." in capsys.readouterr().out
    assert "<title>Training runs of cvgnn</title>" in page
    assert f"Bias and variance of the gradient: citeseer ({run / 'diagnosis'})" in page  # two of a kind are told apart
    assert 'id="estimator-citeseer-2"' in page
    assert page.index('id="accuracy"') < page.index('id="estimator-citeseer"') < page.index('id="origin"')


def test_damaged_ones_are_left_out(tmp_path: Path, capsys: Captured) -> None:
    write_diagnosis(tmp_path / "good")
    bad = write_diagnosis(tmp_path / "bad") / "diagnosis.json"
    bad.write_text(bad.read_text(encoding="utf-8").replace('"estimator"', '"guess"'), encoding="utf-8")
    page = page_of(tmp_path)
    assert "Left out: " in page
    assert (
        "does not hold a diagnosis: kind must be one of estimator, history, bias-vs-lr, rate, bound, not 'guess'"
        in capsys.readouterr().err
    )
    with pytest.raises(CvgnnError, match=r"none of the 1 diagnoses in .* can be read; the first: .*guess"):
        collect([tmp_path / "bad"])


def test_hostile_texts_are_only_text(tmp_path: Path) -> None:
    line = ChartLine(name=HOSTILE, x=(1, 2), y=(1, 2))
    figure = LineChart(key="a", title=HOSTILE, caption=HOSTILE, x_label=HOSTILE, y_label=HOSTILE, lines=(line,))
    table = DiagnosisTable(caption=HOSTILE, header=(HOSTILE,), rows=((HOSTILE,), ("\x1b[31m",)))
    write_diagnosis(
        tmp_path / "d", dataset=HOSTILE, verdict=HOSTILE, tables=(table,), figures=(figure,),
        settings={HOSTILE: HOSTILE}, origin={HOSTILE: HOSTILE, "command": HOSTILE, "machine": {HOSTILE: HOSTILE}},
    )  # fmt: skip
    page = page_of(tmp_path, "--figures", str(tmp_path / "figures"))
    parsed = Page(page)
    assert parsed.count("script") == 2
    assert not any("onclick" in attributes or tag == "b" for tag, attributes in parsed.found)
    assert "alert(1)</script>" not in page
    assert [path.suffix for path in sorted((tmp_path / "figures").iterdir())] == [".pdf", ".png"]


def test_figures_as_files(tmp_path: Path) -> None:
    write_diagnosis(tmp_path / "d")
    write_diagnosis(tmp_path / "e", dataset="synthetic 20k!")
    files = write_figures(build(collect([tmp_path])), tmp_path / "figures")
    assert [file.name for file in files if file.suffix == ".png"] == [
        "estimator-citeseer-variance.png", "estimator-citeseer-ages.png",
        "estimator-synthetic-20k-variance.png", "estimator-synthetic-20k-ages.png",
    ]  # fmt: skip
    assert all(file.stat().st_size > 1000 for file in files)


def test_many_points_are_thinned(tmp_path: Path) -> None:
    n = 5000
    line = ChartLine(name="a", x=list(range(n)), y=[i % 7 for i in range(n)])
    figure = LineChart(
        key="a", title="", caption="", x_label="", y_label="", lines=(line, ChartLine(name="b", x=(), y=()))
    )
    write_diagnosis(tmp_path, figures=(figure,))
    (chart,) = build(collect([tmp_path])).sections[0].charts
    (curve,) = chart.views[0].rows[0].panels[0].curves
    assert len(curve.x) <= 402
    json.dumps(curve.x)
