"""The paper's Table 5 as a command."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cvgnn.cli.main import main
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.lab.recipes import PAPER_DATASETS, PAPER_OPTIMIZERS, paper_grid, paper_recipe
from cvgnn.lab.reproduction import PaperPlan
from cvgnn.lab.sweep import Job, Outcome, make_jobs

Captured = pytest.CaptureFixture[str]


def test_run_i_has_the_same_seed_for_every_optimizer() -> None:
    plan = PaperPlan(datasets=("citeseer",), runs=2, first=5, changes={"scheme": "released", "epochs": 3})
    configs = plan.configs("citeseer")
    assert [(c.optimizer, c.seed) for c in configs] == [(o, run) for o in PAPER_OPTIMIZERS for run in (5, 6)]
    config = configs[0]
    assert (config.scheme, config.epochs, config.form, config.lr) == ("released", 3, "torch", 0.01)
    assert len(configs) == 5 * 2


def test_as_many_runs_as_the_paper_by_default() -> None:
    assert len(PaperPlan(datasets=("reddit",)).configs("reddit")) == 5
    assert len(PaperPlan(datasets=("flickr",)).configs("flickr")) == 5 * 3


def test_tuned_settings_lie_on_the_grids() -> None:
    for dataset in PAPER_DATASETS:
        grid = paper_grid(dataset)
        for optimizer in PAPER_OPTIMIZERS:
            config = paper_recipe(dataset, optimizer)
            assert config.lr in grid["lr"]
            assert config.num_neighbors in grid["num_neighbors"]
            assert config.batch_size in grid["batch_size"]


def test_the_table(tmp_path: Path, capsys: Captured) -> None:
    words = ["reproduce", "--optimizer", "adam,sgd", "--runs", "2", "--epochs", "5", "--out", str(tmp_path)]
    assert main(words) == 0
    out = capsys.readouterr().out
    content = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    assert [(c["dataset"], c["options"]["optimizer"], c["paper"], c["seeds"]) for c in content["cells"]] == [
        ("citeseer", "adam", 69.0, [0, 1]),
        ("citeseer", "sgd", 70.97, [0, 1]),
    ]
    for cell in content["cells"]:
        mean = sum(cell["max_test_accuracy"]) / 2
        assert cell["max_test_accuracy_mean"] == pytest.approx(mean)
        assert f"{100 * mean:.2f} ± " in out
        assert f"{100 * mean - cell['paper']:+.2f}" in out
        assert all(a >= b for a, b in zip(cell["max_test_accuracy"], cell["test_accuracy"], strict=True))
    assert content["command"] == "cvgnn " + " ".join(words)
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| citeseer | adam " in text
    assert content["command"] in text
    latex = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert latex.count(r"\toprule") == latex.count(r"\textbf{Bold}") == latex.count("experiment (epochs=5)") == 3
    assert main(words) == 0
    assert "4 of 4 runs were finished before" in capsys.readouterr().out


def test_the_list_runs_nothing(tmp_path: Path, capsys: Captured) -> None:
    assert main(["reproduce", "--list", "--dataset", "all", "--out", str(tmp_path / "no")]) == 0
    lines = [line.replace("|", " ").split() for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 6 * 5 + 2 + 6
    assert ["reddit", "sgd", "torch", "0.05", "2", "1000", "128", "0", "0", "30", "1"] in lines
    assert ["cora", "adam", "torch", "0.01", "5", "20", "32", "0.0005", "0.5", "100", "3"] in lines
    assert ["flickr", "0.1,", "0.5,", "0.8", "2,", "5", "1000,", "2000,", "5000"] in lines
    assert not (tmp_path / "no").exists()


def all_done(jobs: Sequence[Job], out: Path, *, on_outcome: Callable[[Outcome], None], **rest: Any) -> list[Outcome]:
    """As `run_all`, with no training."""
    result = dict.fromkeys(("val_accuracy", "test_accuracy", "max_test_accuracy"), 0.5)
    outcomes = [Outcome(job, "done", {"dataset": job.source.name, **result}, None) for job in jobs]
    for outcome in outcomes:
        on_outcome(outcome)
    return outcomes


@pytest.mark.parametrize(
    ("recipe", "row"),
    [
        ("paper", "│ citeseer │ adagrad    │ 68.40 │ 50.00 ± 0.00   │ 50.00 ± 0.00        │ 3/3  │"),
        ("best", "│ citeseer_best │ 50.00 ± 0.00            │ 50.00 ± 0.00 │ 10/10 │"),
    ],
)
def test_a_terminal_shows_the_table_as_it_grows(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, recipe: str, row: str
) -> None:
    monkeypatch.setattr("cvgnn.lab.sweep.run_all", all_done)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("LINES", "24")):
        monkeypatch.setenv(name, value)
    assert main(["reproduce", "--recipe", recipe, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert row in out
    assert out.index(row) < out.index("| citeseer")  # the final table comes after


def test_a_data_set_that_is_not_here_does_not_stop_the_others(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = GraphSource(dataset="citeseer")

    def load(source: GraphSource, configs: Sequence[TrainConfig]) -> list[Job]:
        return make_jobs(here if source.name == "citeseer" else source, configs)

    monkeypatch.setattr("cvgnn.lab.sweep.make_jobs", load)
    monkeypatch.setattr("cvgnn.lab.sweep.run_all", all_done)
    words = ["reproduce", "--optimizer", "sgd", "--root", str(tmp_path), "--out", str(tmp_path / "out"), "--dataset"]
    assert main([*words, "cora,citeseer,flickr"]) == 1
    out, err = capsys.readouterr()
    assert "| citeseer | sgd       | 70.97 | 50.00 ± 0.00 " in out
    assert "not run, because the data is missing: cora, flickr; see above how to get it\n" in out
    assert "cvgnn: not run: flickr: no raw files of 'flickr' in any of " in err
    assert len(json.loads((tmp_path / "out" / "table.json").read_text(encoding="utf-8"))["not_run"]) == 2
    assert main([*words, "citeseer"]) == 0
    capsys.readouterr()
    assert main([*words, "cora,flickr"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "no raw files of 'cora'" in err
    assert "no raw files of 'flickr'" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dataset", "imdb"], "unknown dataset 'imdb'; known: cora, citeseer"),
        (["--optimizer", "adam,rmsprop"], "unknown optimizer 'rmsprop'; known: adam"),
        (["--dataset", ","], "dataset is empty; name at least one of"),
        (["--workers", "0"], "workers must be a whole number of at least 1, not 0"),
        (["--runs", "0"], "runs must be a whole number of at least 1, not 0"),
        (["--scheme", "mine"], "unknown scheme 'mine'; known: "),
    ],
)
def test_errors_have_one_sentence(tmp_path: Path, capsys: Captured, words: list[str], message: str) -> None:
    assert main(["reproduce", *words, "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"cvgnn: {message}")
    assert not (tmp_path / "out").exists()
