"""docs/tasks.md: its tables, commands and Python run as they stand."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from cvgnn.cli.main import main
from cvgnn.training.tasks import METRICS, TASKS

TEXT = (Path(__file__).parents[1] / "docs" / "tasks.md").read_text(encoding="utf-8")
TABLES = re.findall(r"```csv (\S+)\n(.*?)```", TEXT, flags=re.DOTALL)
COMMANDS = re.findall(r"^\$ cvgnn (.*)$", TEXT, flags=re.MULTILINE)


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in TABLES:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    printed = []
    for command in COMMANDS:
        assert main(shlex.split(command)) == 0
        printed.append(capsys.readouterr().out)
    assert [json.loads(Path(f"runs/{run}/result.json").read_text())["task"] for run in "abc"] == [
        "node",
        "multilabel",
        "regression",
    ]
    assert "expected calibration error" in printed[1]
    labels, numbers = (list(csv.DictReader(io.StringIO(printed[i]))) for i in (3, 5))
    assert [row["label"] for row in labels] == ["news|sport", "art"]
    assert labels[0].keys() == {"node", "labels", "label", "split", "p_art", "p_news", "p_sport"}
    assert [float(row["label"]) for row in numbers] == [310.5, 90.0]
    assert all(0 < float(row["prediction"]) < 400 for row in numbers)


def test_the_python(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == "multilabel torch.Size([2, 3]) torch.Size([2, 3])\n"


def test_the_table_of_tasks() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (`.*`) \|$", TEXT, flags=re.MULTILINE)
    assert {name: tuple(re.findall(r"\w+", metrics)) for name, metrics in rows} == {
        name: task.metrics for name, task in TASKS.items() if name in ("node", "multilabel", "regression")
    }
    assert {metric for _, metrics in rows for metric in re.findall(r"\w+", metrics)} <= METRICS.keys()
