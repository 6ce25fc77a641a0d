"""The examples of docs/tasks_edges.md, run as they stand, and its command line."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest

from cvgnn.cli.main import main

PAGE = (Path(__file__).parents[1] / "docs" / "tasks_edges.md").read_text(encoding="utf-8")


def test_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    links, labels = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(links, {})
    said = capsys.readouterr().out
    assert float(re.findall(r"test AUC (\S+),", said)[0]) > 0.75
    same, other = (float(number) for number in re.findall(r"tensor\(\[(\S+), (\S+)\]\)", said)[0])
    assert same > other
    Path("pairs.csv").write_text("source,target\np0,p4\np0,p1\n")
    (command,) = re.findall(r"^cvgnn (predict .*)$", PAGE, flags=re.MULTILINE)
    assert main(command.split()) == 0
    rows = list(csv.DictReader(Path("scores.csv").read_text().splitlines()))
    assert [row["target"] for row in rows] == ["p4", "p1"]
    assert [float(row["probability"]) for row in rows] == pytest.approx([same, other], abs=1e-4)
    exec(labels, {})
    said = capsys.readouterr().out
    assert float(re.findall(r"test accuracy (\S+)", said)[0]) > 0.9
    assert "tensor([1, 0])" in said or "tensor([0, 1])" in said  # one of the two has more


def test_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run_tables(PAGE)
    said = capsys.readouterr().out
    assert "by class, on the test edges" in said
    rows = list(csv.DictReader(Path("classes.csv").read_text().splitlines()))
    assert list(rows[0]) == ["source", "target", "class", "probability", "p_fraud", "p_ok"]
    assert [(row["source"], row["target"]) for row in rows][-1] == ("dan", "ann")


def run_tables(page: str) -> None:
    """Write the tables of a page and run its commands."""
    for name, text in re.findall(r"```csv (\S+)\n(.*?)```", page, flags=re.DOTALL):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    commands = re.findall(r"^\$ cvgnn (.*)$", page, flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert main(shlex.split(command)) == 0
