"""`--json` and `--quiet` reach every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cvgnn.cli.main import main
from cvgnn.cli.output import json_output, set_result
from tests.data.io.broken_files import npz


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json") / "run"
    assert main(["train", "--epochs", "1", "--out", str(folder), "--quiet"]) == 0
    return folder


TINY = ["--epochs", "1", "--hidden", "4"]
CASES: dict[str, tuple[list[str], str]] = {
    "train": (["train", *TINY], "test_accuracy"),
    "predict": (["predict", "RUN", "--nodes", "3,5"], "class"),
    "evaluate": (["evaluate", "RUN"], "metrics"),
    "predict to a file": (["predict", "RUN", "--out", "TMP/p.csv"], "nodes"),
    "reproduce": (["reproduce", "--optimizer", "sgd", "--runs", "1", "--epochs", "1", "--out", "TMP/r"], "cells"),
    "reproduce --list": (["reproduce", "--list"], "best"),
    "sweep": (["sweep", "--grid", "lr=0.1", "--set", "epochs=1", "--out", "TMP/s", "--workers", "1"], "settings"),
    "search": (["search", "--space", "lr=0.1,0.2", "--set", "epochs=1", "--trials", "1", "--out", "TMP/o"], "best"),
    "tune": (["tune", "--set", "epochs=1", "--minutes", "0.001", "--out", "TMP/t"], "train"),
    "report": (["report", "RUN", "--out", "TMP/report.html"], "bytes"),
    "diagnose": (["diagnose", "history", *TINY], "kind"),
    "convert": (["convert", "TMP/graph.npz", "TMP/store"], "entries"),
    "partition": (["partition", "TMP/graph.npz", "TMP/parts", "--shards", "2"], "edge_cut"),
    "inspect": (["inspect", "TMP/graph.npz"], "suspicions"),
    "datasets": (["datasets"], "datasets"),
    "datasets --verify": (["datasets", "--verify", "citeseer"], "counts"),
    "warmup": (["warmup"], "folder"),
    "card": (["card", "RUN"], "card"),
    "export": (["export", "RUN", "--out", "TMP/exported"], "layers"),
    "completion": (["completion", "bash"], "script"),
}


@pytest.mark.parametrize("case", CASES)
def test_every_command_prints_one_json_object(
    case: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, key = CASES[case]
    argv = [word.replace("RUN", str(run)).replace("TMP", str(tmp_path)) for word in argv]
    if case in ("convert", "inspect", "partition"):
        argv[1] = str(npz()(tmp_path))
    assert main([*argv, "--json", "--quiet"]) == 0
    assert key in json.loads(capsys.readouterr().out)


def test_the_cases_are_all_commands() -> None:
    from cvgnn.cli.main import COMMANDS

    # serve does not end by itself: tests/serving/test_application.py ends it, and reads its JSON.
    assert {argv[0] for argv, _ in CASES.values()} | {"serve"} == set(COMMANDS)


def test_an_error_prints_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--epochs", "0", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_nan_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    with json_output():
        set_result({"loss": float("nan"), "rates": (1.0, float("inf"))})
        print("progress")
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"loss": None, "rates": [1.0, None]}
    assert printed.err == "progress\n"


def test_quiet_sweeps_print_results_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "--grid", "lr=0.1,0.2", "--set", "epochs=1", "--workers", "1", "--out", str(tmp_path)]
    assert main([*words, "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("best of 2 settings")
