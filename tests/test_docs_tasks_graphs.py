"""The examples of docs/tasks_graphs.md, run as they stand."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from tests.test_docs_tasks_edges import run_tables

PAGE = Path(__file__).parents[1] / "docs" / "tasks_graphs.md"


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(code, {})
    graphs, accuracy, classes = capsys.readouterr().out.splitlines()
    assert f"    {graphs}\n" in text
    assert float(accuracy.split()[-1]) >= 0.95
    assert f"    {classes}\n" in text


def test_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run_tables(PAGE.read_text(encoding="utf-8"))
    assert "by class, on the test graphs" in capsys.readouterr().out
    rows = list(csv.DictReader(Path("graphs.csv").read_text().splitlines()))
    assert [(row["graph"], row["label"], row["split"]) for row in rows] == [
        ("m4", "base", "test"),
        ("m1", "acid", "train"),
    ]
