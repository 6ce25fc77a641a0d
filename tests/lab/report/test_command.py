"""`cvgnn report`: the page and the figures that it writes, and its errors."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from cvgnn.cli.main import main
from cvgnn.config import GraphSource
from cvgnn.lab.report import build, collect
from cvgnn.lab.report.matplotlib_figures import draw_figures, write_figures
from tests.lab.report.folders import section, write_methods, write_run, write_search, write_sweep
from tests.lab.report.pages import Page

Captured = pytest.CaptureFixture[str]
HOSTILE = "</script><script>alert(1)</script><b onclick='x'>&\"$x_1$"


def made(tmp_path: Path, *argv: object) -> str:
    assert main(["report", *map(str, argv), "--out", str(tmp_path / "out" / "report.html")]) == 0
    return (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_page(tmp_path: Path, capsys: Captured) -> None:
    page = made(tmp_path, write_sweep(tmp_path / "sweep"), "--title", "Mine & yours")
    out, err = capsys.readouterr()
    assert out.startswith("16 runs of 8 settings on citeseer, with adam, sgd.")
    assert "report.html (" in out
    assert err == ""
    elements = Page(page)
    ids = [attributes.get("id") for tag, attributes in elements.found if tag == "section"]
    assert ids == ["accuracy", "accuracies", "loss", "seconds", "appendix-b", "heat", "origin"]
    links = [attributes["href"] for tag, attributes in elements.found if tag == "a"]
    assert links == [f"#{name}" for name in ids]
    data = json.loads(elements.scripts[0])
    assert [(chart["key"], len(chart["views"])) for chart in data["charts"]] == [
        ("accuracy", 2), ("loss", 2), ("seconds", 2),
    ]  # fmt: skip
    assert "<title>Mine &amp; yours</title>" in page
    assert "cvgnn sweep --grid lr=0.01,0.05" in page
    assert "chosen by test accuracy" in page


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page = made(tmp_path, write_sweep(tmp_path / "sweep"))
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\((?!#)", page.replace('"url(#" + this.clip + ")"', ""))
    for _, attributes in Page(page).found:
        assert not {"src", "srcset", "action", "onclick", "onload"} & attributes.keys()
    assert "innerHTML" not in page
    assert "default-src 'none'" in page


def test_hostile_names_are_only_text(tmp_path: Path, capsys: Captured) -> None:
    for seed in (0, 1):
        source = GraphSource(dataset=HOSTILE)
        write_run(tmp_path / f"runs{seed}" / HOSTILE.replace("/", "_"), source=source, seed=seed, lr=0.1 * (seed + 1),
                  result={"command": HOSTILE, "machine": {HOSTILE: HOSTILE}})  # fmt: skip
    page = made(tmp_path, tmp_path, "--title", HOSTILE)
    report = build(collect([tmp_path]))
    write_figures(dataclasses.replace(report, sections=[section(report, "heat")]), tmp_path / "figures")
    elements = Page(page)
    assert elements.count("script") == 2
    assert not any("onclick" in attributes or tag == "b" for tag, attributes in elements.found)
    assert json.loads(elements.scripts[0])["charts"][0]["views"][0]["rows"][0]["name"] == HOSTILE
    assert "alert(1)</script>" not in page
    files = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert "heat-script-script-alert-1-script-b-onclick-x-x-1.pdf" in files


def test_names_that_no_terminal_can_show(tmp_path: Path, capsys: Captured) -> None:
    write_run(tmp_path / "a", name="\ud800\x1b[31m", result={"command": "\ud800", "best_epoch": "x", "threads": 1e300})
    page = made(tmp_path, tmp_path)
    report = build(collect([tmp_path]))
    write_figures(dataclasses.replace(report, sections=[section(report, "loss")]), tmp_path / "figures")
    assert r"on '\ud800\x1b[31m', with adam" in capsys.readouterr().out
    assert "\x1b" not in page


def test_damaged_and_unfinished_runs_are_in_the_page(tmp_path: Path, capsys: Captured) -> None:
    write_run(tmp_path / "runs" / "a", finished=False)
    bad = write_run(tmp_path / "runs" / "b", seed=1)
    (bad / "metrics.jsonl").write_text("?\n", encoding="utf-8")
    page = made(tmp_path, tmp_path / "runs")
    assert "Left out: " in page
    assert "1 run unfinished" in page
    err = capsys.readouterr().err
    assert re.search(r"cvgnn: Left out: .*metrics.jsonl, line 1: .*; the file is damaged\.", err)
    assert 'id="accuracies"' not in page


def test_a_run_without_any_epoch_still_makes_a_page(tmp_path: Path) -> None:
    (write_run(tmp_path / "a", finished=False) / "metrics.jsonl").unlink()
    page = made(tmp_path, tmp_path)
    assert [attributes.get("id") for tag, attributes in Page(page).found if tag == "section"] == ["origin"]


def test_a_run_records_its_command_and_machine(tmp_path: Path, capsys: Captured) -> None:
    argv = ["train", "--defaults", "fixed", "--epochs", "2", "--hidden", "8", "--out", str(tmp_path / "a b")]
    assert main(argv) == 0
    result = json.loads((tmp_path / "a b" / "result.json").read_text(encoding="utf-8"))
    assert result["command"] == f"cvgnn train --defaults fixed --epochs 2 --hidden 8 --out '{tmp_path}/a b'"
    assert result["machine"].keys() >= {"processor", "torch", "cvgnn"}
    page = made(tmp_path, tmp_path / "a b")
    assert result["machine"]["processor"] in page
    assert "cvgnn train --dataset citeseer --epochs 2 --hidden 8 --threads 1" in page


def test_figures_are_written(tmp_path: Path, capsys: Captured) -> None:
    made(tmp_path, write_sweep(tmp_path / "sweep"), "--figures", tmp_path / "figures")
    names = [f"{key}{view}" for key in ("accuracy", "loss", "seconds") for view in ("", "-by-test")] + ["heat-citeseer"]
    files = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert sorted(files) == sorted(f"{name}.{kind}" for name in names for kind in ("pdf", "png"))
    for name, content in files.items():
        assert content.startswith(b"%PDF" if name.endswith("pdf") else b"\x89PNG")
        assert len(content) > 5000
    assert "14 files written to" in capsys.readouterr().out


def test_figures_of_a_random_search(tmp_path: Path) -> None:
    report = build(collect([write_search(tmp_path / "runs")]))
    files = write_figures(dataclasses.replace(report, sections=[section(report, "searched")]), tmp_path / "figures")
    assert [path.name for path in files] == ["search.pdf", "search.png", "parallel.pdf", "parallel.png"]


def test_figures_are_the_same_bytes_again(tmp_path: Path) -> None:
    report = build(collect([write_run(tmp_path / "a")]))
    report = dataclasses.replace(report, sections=[section(report, "loss")])
    one, other = (write_figures(report, tmp_path / name) for name in ("x", "y"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


def test_the_legend_of_many_methods_fits(tmp_path: Path) -> None:
    report = build(collect([write_methods(tmp_path, ("cv", "ns"))]))
    accuracy, loss = section(report, "accuracy"), section(report, "loss").charts[0]
    panel = loss.views[0].rows[0].panels[0]
    long = [dataclasses.replace(c, label=f"{c.label}, scheme=without-replacement, form=torch") for c in panel.curves]
    row = dataclasses.replace(loss.views[0].rows[0], panels=[dataclasses.replace(panel, curves=long)])
    narrow = dataclasses.replace(loss, views=[dataclasses.replace(loss.views[0], rows=[row])])
    sections = [accuracy, dataclasses.replace(accuracy, charts=[narrow])]
    for _, drawing in draw_figures(dataclasses.replace(report, sections=sections)):
        drawing.draw_without_rendering()
        (legend,) = drawing.legends
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= drawing.bbox.width
        assert box.y1 <= drawing.bbox.height
        assert len(legend.get_texts()) == 10
        for ax in drawing.axes:
            assert ax.get_window_extent().height > 1.4 * drawing.dpi  # the drawing grows, not the panels shrink
            assert ax.get_tightbbox().y1 <= box.y0


def test_only_figures_need_matplotlib(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find(name, *rest)
    )
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = write_run(tmp_path / "a")
    made(tmp_path, run)
    capsys.readouterr()
    out = tmp_path / "again.html"
    assert main(["report", str(run), "--out", str(out), "--figures", str(tmp_path / "figures")]) == 2
    assert capsys.readouterr().err == "cvgnn: --figures needs matplotlib; install it with: pip install 'cvgnn[plots]'\n"
    assert not out.exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "give at least one folder with runs, such as: cvgnn report runs/a"),
        (["missing"], "there is no folder missing; give folders"),
        (["empty"], "no runs in empty; give folders"),
        (["run", "--out", "report.pdf"], "--out must be an .html file, not report.pdf"),
        (["run", "--out", "folder.html"], "--out must be a file, but folder.html is a folder"),
        (["run", "--out", "file/report.html"], "cannot write file/report.html: "),
        (["run", "--figures", "file"], "cannot write figures to file: "),
    ],
)
def test_bad_arguments_are_one_line_errors(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, argv: list[str], message: str
) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["report", *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"cvgnn: {message}")
    assert err.count("\n") == 1
