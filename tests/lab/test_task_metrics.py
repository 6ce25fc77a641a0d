"""Sweeps, searches, tuning and reports compare by the metric of the task, and the smallest error is the best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvgnn.cli.main import main
from cvgnn.lab.report import build, collect, render
from cvgnn.lab.search.search_space import check_space, parse_space
from cvgnn.lab.search.study import open_study, ranked
from cvgnn.lab.sweep.pool import read_result
from tests.lab.report.folders import section, write, write_run, write_search, write_sweep
from tests.lab.report.pages import Page

TASKS = {
    # task: (options of the runs, metric, whether larger is better)
    "regression": ([], "mse", False),
    "multilabel": ([], "micro_f1", True),
    "link": (["task=link"], "roc_auc", True),
    "mae": (["metric=mae"], "mae", False),
}
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ring of 40 nodes with numbers, several labels or a class a node."""
    folder, rng = tmp_path_factory.mktemp("graphs"), np.random.default_rng(0)
    x = rng.normal(size=(40, 4)).astype(np.float32)
    edges = np.array([(i, (i + k) % 40) for i in range(40) for k in (1, 3)]).T
    split = {"train_ids": np.arange(20), "val_ids": np.arange(20, 30), "test_ids": np.arange(30, 40)}
    labels = {
        "regression": x[:, 0] * 3,
        "multilabel": (x[:, :3] > 0).astype(np.int8),
        "link": (x[:, 0] > 0).astype(int),
    }
    for name, y in {**labels, "mae": labels["regression"]}.items():
        np.savez(folder / f"{name}.npz", edge_index=edges, x=x, y=y, **split)
    return folder


def run(command: str, task: str, graphs: Path, out: Path, *words: str) -> int:
    settings = ["--set", "epochs=2", "hidden=4", *TASKS[task][0]]
    return main([command, "--graph", str(graphs / f"{task}.npz"), *words, *settings, "--out", str(out)])


def found(file: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return value


def best_value(values: list[float], task: str) -> float:
    return max(values) if TASKS[task][2] else min(values)


@pytest.mark.parametrize("task", TASKS)
def test_a_sweep(task: str, graphs: Path, tmp_path: Path, capsys: Captured) -> None:
    metric = TASKS[task][1]
    assert run("sweep", task, graphs, tmp_path / "out", "--grid", "lr=0.01,0.1,1.0", "--workers", "1") == 0
    printed = capsys.readouterr().out
    assert f"best of 3 settings for each optimizer, chosen by validation {metric}:" in printed
    assert f"{task} lr=0.01  {metric}  val " in printed
    table = found(tmp_path / "out" / "table.json")
    values = [setting[f"val_{metric}_mean"] for setting in table["settings"]]
    assert len(values) == 3
    assert [setting["metric"] for setting in table["settings"]] == [metric] * 3
    (chosen,) = table["chosen"]["validation"]
    assert chosen[f"val_{metric}_mean"] == best_value(values, task)
    top = f"{'max' if TASKS[task][2] else 'min'}_test_{metric}_mean"
    tests = [setting[top] for setting in table["settings"]]
    assert table["chosen"]["test"][0][top] == best_value(tests, task)
    assert run("sweep", task, graphs, tmp_path / "out", "--grid", "lr=0.01,0.1,1.0") == 0
    assert "3 of 3 runs were finished before" in capsys.readouterr().out

    report = build(collect([tmp_path / "out"]))
    panels = section(report, "accuracy").charts[0].views[0].rows[0].panels
    assert [panel.title for panel in panels] == [f"{split} {metric}" for split in ("training", "validation", "test")]
    assert {panel.kind for panel in panels} == {"percent" if TASKS[task][2] else "number"}  # type: ignore[union-attr]
    cells = section(report, "heat").heat_maps[0].methods["adam"][0].rows[0]
    assert [cell.value for cell in cells if cell is not None and cell.best] == [best_value(values, task)]
    page = Page(render(report, title="", command=""))
    assert [row[0] for row in page.tables["accuracies"][0] if len(row) == 1] == [f"{task}, {metric}"]


@pytest.mark.parametrize("task", ["regression", "multilabel", "link"])
def test_a_search(task: str, graphs: Path, tmp_path: Path, capsys: Captured) -> None:
    pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")
    metric, words = TASKS[task][1], ["--space", "lr=0.001..1.0:log", "--trials", "3", "--sampler-seed", "1"]
    assert run("search", task, graphs, tmp_path, *words, "--workers", "1") == 0
    assert f"chosen by validation {metric}, test {metric} had no part in it):" in capsys.readouterr().out
    search = found(tmp_path / "search.json")
    values = [trial[f"val_{metric}_mean"] for trial in search["trials"]]
    assert len(values) == 3
    assert search["best"][f"val_{metric}_mean"] == best_value(values, task)
    assert f"validation {metric} " in (tmp_path / "best.toml").read_text(encoding="utf-8").splitlines()[0]
    with open_study("search", str(tmp_path / "journal.log"), space=parse_space(["lr=0.001..1.0:log"])) as study:
        assert study.study.best_value == best_value(values, task)


@pytest.mark.parametrize("task", ["regression", "multilabel", "link"])
def test_tuning(task: str, graphs: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")
    metric = TASKS[task][1]
    assert run("tune", task, graphs, tmp_path, "--minutes", "0.01", "--sampler-seed", "1") == 0
    search = found(tmp_path / "search.json")
    values = [trial[f"val_{metric}_mean"] for trial in search["trials"] if trial["state"] == "complete"]
    assert search["best"][f"val_{metric}_mean"] == best_value(values, task)
    assert main(["train", "--settings", str(tmp_path / "best.toml"), "--out", str(tmp_path / "run")]) == 0
    assert found(tmp_path / "run" / "result.json")[f"val_{metric}"] == best_value(values, task)


def test_a_trial_with_a_large_error_is_pruned_and_ranked_last(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")
    space = parse_space(["lr=0.001..1.0:log"])
    with open_study("s", str(tmp_path / "j"), space=space, maximize=False) as study:
        study.check({"a": 1}, {}, warn=pytest.fail)
        study.prune_by_median(first_trials=1, first_epochs=1)
        for value in (0.5, 0.1):
            trial = study.ask("me")
            assert not study.falls_behind(trial.number, value, 2)
            study.complete(trial.number, [{"metric": "mse", "val_mse": value}])
        bad = study.ask("me")
        assert study.falls_behind(bad.number, 9.0, 2)
        assert [trial.number for trial in ranked(study.trials())] == [1, 0]
    with (
        open_study("s", str(tmp_path / "j"), space=space) as study,
        pytest.raises(ValueError, match=r"was begun for a metric of the other direction; give another --study"),
    ):
        study.check({"a": 1}, {}, warn=pytest.fail)


@pytest.mark.parametrize("name", ["task", "metric"])
def test_one_metric_in_a_search(name: str) -> None:
    pytest.importorskip("optuna", reason="needs Optuna: pip install 'cvgnn[search]'")
    with pytest.raises(ValueError, match=f"a search compares by one metric; leave {name} out, and give --set {name}="):
        check_space(parse_space([f"{name}=a,b"]), {})


def test_metrics_side_by_side(graphs: Path, tmp_path: Path, capsys: Captured) -> None:
    """Each metric of a sweep has its own best setting, and in the report its own row of charts."""
    assert run("sweep", "regression", graphs, tmp_path, "--grid", "metric=mse,r2", "lr=0.01,1.0") == 0
    assert "chosen by the validation metric:" in capsys.readouterr().out
    table = found(tmp_path / "table.json")
    assert sorted(setting["metric"] for setting in table["chosen"]["validation"]) == ["mse", "r2"]
    report = build(collect([tmp_path]))
    rows = section(report, "accuracy").charts[0].views[0].rows
    assert [row.name for row in rows] == ["regression (mse)", "regression (r2)"]


def test_results_without_a_metric_are_accuracies(tmp_path: Path) -> None:
    """As runs before there were other tasks have left them."""
    old = {"val_accuracy": 0.5, "test_accuracy": 0.5, "max_test_accuracy": 0.5}
    write(tmp_path / "result.json", old)
    assert read_result(tmp_path) == old
    write(tmp_path / "result.json", {**old, "metric": "mse"})
    assert read_result(tmp_path) is None
    (run,) = collect([write_run(tmp_path / "run")]).runs
    assert "metric" not in (run.result or {})
    assert run.metric == "accuracy"


@pytest.mark.parametrize("value", ["nonsense", 3, None])
def test_an_unknown_metric_is_a_damaged_file(tmp_path: Path, value: object) -> None:
    write_run(tmp_path / "good")
    write_run(tmp_path / "bad", seed=1, result={"metric": value})
    assert "result.json: metric is " in collect([tmp_path]).skipped[0]


def test_the_best_of_a_regression_report_is_the_smallest(tmp_path: Path) -> None:
    """A grid and a search as for accuracies, whose values are now errors: what was best is worst."""
    for out in (write_sweep(tmp_path / "sweep"), write_search(tmp_path / "search" / "runs", name="other")):
        for file in out.rglob("*.json*"):
            text = file.read_text(encoding="utf-8").replace("max_test_accuracy", "min_test_mse")
            text = text.replace('"best_epoch"', '"metric": "mse", "best_epoch"').replace("_accuracy", "_mse")
            file.write_text(text, encoding="utf-8")
    report = build(collect([tmp_path]))
    heat = section(report, "heat").heat_maps[0]
    cells = [cell for row in heat.methods["adam"][0].rows for cell in row if cell is not None]
    assert [cell.value for cell in cells if cell.best] == [min(cell.value for cell in cells)]
    assert (heat.worst, heat.best) == (max(cell.value for cell in cells), min(cell.value for cell in cells))
    assert heat.title == "validation mse"
    plot = section(report, "searched").charts[1].views[0].rows[0].panels[0]
    assert [line.best for line in plot.lines] == [False] * 11 + [True]  # type: ignore[union-attr]
    assert plot.lines[-1].at[-1] == 0.0  # type: ignore[union-attr]
    assert plot.lines[-1].label.endswith(": 0.4")  # type: ignore[union-attr]
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html"), "--figures", str(tmp_path)]) == 0
    tables = Page(render(report, title="", command="")).tables
    assert "lowest test (paper's protocol)" in tables["appendix-b"][0][0]
