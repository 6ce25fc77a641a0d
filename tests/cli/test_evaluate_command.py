"""`cvgnn evaluate`: what it prints, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cvgnn
from cvgnn.cli.evaluate_command import describe
from cvgnn.cli.main import main
from cvgnn.training.tasks import NodeClassification


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "a"
    assert (
        main(["train", "--epochs", "3", "--threads", "1", "--calibrate", "True", "--quiet", "--out", str(folder)]) == 0
    )
    return folder


def test_every_metric_and_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    result = json.loads((run / "result.json").read_text())
    assert [line.split()[0] for line in lines[1:7]] == list(NodeClassification.metrics)
    assert lines[1].split()[1:] == [f"{100 * result[f'output_{s}_accuracy']:.2f}%" for s in ("train", "val", "test")]
    start = lines.index("confusion matrix, a row for each true class:")
    matrix = np.array([line.split()[1:] for line in lines[start + 2 : start + 8]], dtype=int)
    assert matrix.tolist() == result["per_class"]["confusion_matrix"]
    assert "expected calibration error" in lines[-1]
    assert f"with temperature {result['calibration']['temperature']:.3f}" in lines[-1]


def test_as_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["task"] == "node"
    assert found["metrics"].keys() == {f"{s}_{m}" for m in NodeClassification.metrics for s in ("train", "val", "test")}
    assert found["per_class"]["split"] == found["calibration"]["split"] == "test"
    assert cvgnn.load_run(run).evaluate()["metrics"] == found["metrics"]


def test_numbers_have_no_classes() -> None:
    keys = [f"{split}_{m}" for m in ("mse", "r2") for split in ("train", "val", "test")]
    found = {"item": "node", "metrics": dict(zip(keys, (1234.5, 2.0, None, 0.25, -1.5, None), strict=True))}
    assert describe(found, ["0"]) == [
        "metric  train   val  test",
        "mse      1234     2     -",
        "r2       0.25  -1.5     -",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "no run folder at nowhere; give a folder that cvgnn train --out has written"),
        (["RUN", "--graph", "nowhere.npz"], "nowhere.npz"),
        (["RUN", "--root", "nowhere"], "no raw files of 'citeseer'"),
    ],
)
def test_refused(words: list[str], sentence: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", *(str(run) if word == "RUN" else word for word in words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.startswith("cvgnn: ")
    assert err.count("\n") == 1
