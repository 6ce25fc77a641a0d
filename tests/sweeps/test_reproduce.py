"""The paper's Table 5 as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cvgnn.cli.main import main
from cvgnn.experiments.recipes import PAPER_DATASETS, PAPER_OPTIMIZERS, paper_grid, paper_recipe
from cvgnn.sweeps.reproduce import Plan
from cvgnn.sweeps.tables import booktabs, ranks

Captured = pytest.CaptureFixture[str]


def test_run_i_has_the_same_seed_for_every_optimizer() -> None:
    plan = Plan(datasets=("citeseer",), runs=2, first=5, changes={"scheme": "released", "epochs": 3})
    seeds = {o: [plan.config("citeseer", o, run).seed for run in (5, 6)] for o in PAPER_OPTIMIZERS}
    assert set(map(tuple, seeds.values())) == {(5, 6)}
    config = plan.config("citeseer", "adam", 5)
    assert (config.scheme, config.epochs, config.form, config.lr) == ("released", 3, "torch", 0.01)


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
    assert latex.count(r"\toprule") == latex.count(r"\textbf{Bold}") == 2
    assert main(words) == 0
    assert "4 of 4 runs were finished before" in capsys.readouterr().out


def test_the_list_runs_nothing(tmp_path: Path, capsys: Captured) -> None:
    assert main(["reproduce", "--list", "--dataset", "all", "--out", str(tmp_path / "no")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("|") for line in lines) == 2 + 6 * 5
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--dataset", "imdb"], "unknown dataset 'imdb'; known: cora, citeseer"),
        (["--optimizer", "adam,rmsprop"], "unknown optimizer 'rmsprop'; known: adam"),
        (["--dataset", ","], "dataset is empty; name at least one of"),
        (["--runs", "0"], "runs must be a whole number of at least 1, not 0"),
        (["--scheme", "mine"], "unknown scheme 'mine'; known: "),
    ],
)
def test_mistakes_are_told_in_a_sentence(tmp_path: Path, capsys: Captured, words: list[str], sentence: str) -> None:
    assert main(["reproduce", *words, "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"cvgnn: {sentence}")
    assert not (tmp_path / "out").exists()


def test_best_bold_and_second_underlined() -> None:
    assert ranks({"a": 1.0}) == {"a": 1}
    table = booktabs(
        ["a", "b_", "c"], {"x%": {"a": 70.0, "b_": 71.004, "c": 69.0}, "y": {"a": 1.0}}, caption="C", label="l"
    )
    assert r"Dataset & a & b\_ & c\\" in table
    assert r"x\% & \underline{70.00} & \textbf{71.00} & 69.00\\" in table
    assert r"y & \textbf{1.00} & -- & --\\" in table
