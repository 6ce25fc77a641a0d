"""The best recipes: their options, their listing, and their runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cvgnn.cli.main import main
from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.lab.recipes import BEST_DATASETS, best_recipe, citeseer_best, cora_best, pubmed_best
from cvgnn.lab.reproduction import BestPlan

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("dataset", BEST_DATASETS)
def test_a_best_recipe_is_the_papers_method(dataset: str) -> None:
    """Two layers of the control variate with an unbiased draw, no more."""
    config = best_recipe(dataset, run=3)
    assert (config.estimator, config.layers, config.scheme, config.seed) == ("cv", 2, "without-replacement", 3)
    assert config.output == "best"


def test_the_recipes_by_name() -> None:
    assert [cora_best(1), citeseer_best(2), pubmed_best()] == [
        best_recipe("cora", run=1), best_recipe("citeseer", run=2), best_recipe("pubmed"),
    ]  # fmt: skip
    with pytest.raises(CvgnnError, match="unknown dataset with a best recipe 'reddit'"):
        best_recipe("reddit")


def test_listed_options_make_the_recipe(capsys: Captured) -> None:
    """What --list prints is what cvgnn train takes."""
    from cvgnn.cli.argv import parse
    from cvgnn.cli.options import TrainCommand

    assert main(["reproduce", "--list"]) == 0
    printed = capsys.readouterr().out
    for line in BestPlan().listing().splitlines():
        assert line in printed
        name, _, options = line.partition(": ")
        command = parse(TrainCommand, options.split(), prog="cvgnn train")
        assert command.config == best_recipe(name.removesuffix("_best"))
        assert command.config != TrainConfig()


def test_reproduce_the_best(tmp_path: Path, capsys: Captured) -> None:
    words = ["reproduce", "--recipe", "best", "--runs", "2", "--epochs", "3", "--out", str(tmp_path)]
    assert main(words) == 0
    assert "| citeseer_best |" in capsys.readouterr().out
    table = json.loads((tmp_path / "table.json").read_text())
    (cell,) = table["cells"]
    assert cell["seeds"] == [0, 1]
    assert cell["options"]["epochs"] == 3
    assert table["failures"] == []
    assert "citeseer_best" in (tmp_path / "table.md").read_text()
    assert r"\begin{table}" in (tmp_path / "table.tex").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recipe", "worst"], "unknown recipe 'worst'"),
        (["--recipe", "best", "--dataset", "reddit"], "unknown dataset 'reddit'"),
        (["--recipe", "best", "--optimizer", "sgd"], "a best recipe has its own optimizer; leave --optimizer sgd out"),
    ],
)
def test_mistakes(words: list[str], message: str, capsys: Captured) -> None:
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err
