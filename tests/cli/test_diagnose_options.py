"""`cvgnn diagnose bias-vs-lr | rate | bound` from the shell: what they print and leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cvgnn.cli.main import main

SMALL = ["--hidden", "4", "--batch-size", "40", "--workers", "1"]
COMMANDS = {
    "bias-vs-lr": ["--lrs", "0.001", "0.01", "--runs", "2", "--draws", "4", "--steps", "3", "--burn-in", "1"],
    "rate": ["--optimizers", "sgd", "adagrad", "--steps", "3", "5", "9", "--runs", "2", "--points", "2"],
    "bound": ["--optimizers", "sgd", "amsgrad", "--steps", "4", "--runs", "1", "--points", "2", "--draws", "2"],
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_table_a_verdict_and_a_file(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "d"
    assert main(["diagnose", kind, *COMMANDS[kind], *SMALL, "--seed", "3", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    file = json.loads((out / "diagnosis.json").read_text())
    assert file["kind"] == kind
    assert file["dataset"] == "citeseer"
    assert printed.startswith(file["verdict"])
    assert file["settings"]["seeds"][0] == 3
    assert file["settings"]["config"]["dropout"] == 0.0
    assert file["origin"]["command"].startswith(f"cvgnn diagnose {kind} ")
    for table in file["tables"]:
        assert table["caption"] in printed
    assert all(figure["log_x"] and figure["log_y"] for figure in file["figures"])
    assert any(line["reference"] for figure in file["figures"] for line in figure["lines"])


def test_the_options_of_a_run_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run", tmp_path / "d"
    assert (
        main(["train", "--epochs", "1", "--hidden", "5", "--dropout", "0.3", "--batch-size", "30", "--out", str(run)])
        == 0
    )
    assert main(["diagnose", "rate", "--run", str(run), *COMMANDS["rate"], "--workers", "1", "--out", str(out)]) == 0
    config = json.loads((out / "diagnosis.json").read_text())["settings"]["config"]
    assert (config["hidden"], config["batch_size"], config["dropout"]) == (5, 30, 0.0)
    assert config["batches"] == "replacement"


def left_out(capsys: pytest.CaptureFixture[str]) -> str:
    """What the one sentence about it names; on a busy machine there is progress to be told, too."""
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "ignored" in line]
    return told.removeprefix("cvgnn: ignored, because it has no effect on this measurement: ")


def test_what_has_no_use_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--dropout", "0.5", "--clip_norm=1", "--lr", "3", "--beta2", "0.9", "--beta1", "0.5", "--hidden", "4"]
    rate = ["--optimizers", "heavy-ball", "--steps", "2", "3", "4", "--runs", "1", "--workers", "1"]
    assert main(["diagnose", "rate", *words, *rate, "--out", str(tmp_path)]) == 0
    assert left_out(capsys) == "--lr, --beta2, --dropout, --clip-norm"


@pytest.mark.parametrize("kind", ["bias-vs-lr", "bound"])
def test_what_has_no_use_elsewhere(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--bad-step",
        "skip",
        "--dropout",
        "0.5",
        "--lr",
        "0.1",
        "--epochs",
        "3",
        "--batches",
        "shuffle",
        "--label-smoothing",
        "0.1",
    ]
    assert main(["diagnose", kind, *COMMANDS[kind], *SMALL, *words, "--out", str(tmp_path)]) == 0
    used = {"bias-vs-lr": ["--epochs", "--dropout"], "bound": ["--lr", "--epochs", "--batches", "--dropout"]}
    assert sorted(left_out(capsys).split(", ")) == sorted([*used[kind], "--bad-step", "--label-smoothing"])
    assert json.loads((tmp_path / "diagnosis.json").read_text())["settings"]["config"]["bad_step"] == "stop"


@pytest.mark.parametrize("kind", COMMANDS)
def test_help_teaches(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["diagnose", kind, "--help"])
    assert end.value.code == 0
    assert "a tenth of the training nodes" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rate", "--steps", "4", "two", "8"], "steps must be a whole number"),
        (["rate", "--eta", "0"], "eta of sgd must be a number above 0"),
        (["bound", "--workers", "0"], "workers must be a whole number of at least 1"),
        (["bias-vs-lr", "--estimator", "exact"], "has no bias"),
        (["bias-vs-lr", "--num-neighbors", "-1"], "so there is no bias; choose a smaller num_neighbors"),
        (["rate", "--layers", "1"], "a network of one layer samples nothing"),
        (["bias-vs-lr", "--lrs", "0.1", "0.01"], "in increasing order"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", *words]) != 0
    told = capsys.readouterr().err
    assert sentence in told
    assert "Traceback" not in told
