"""The example of docs/tasks_graphs.md, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "tasks_graphs.md"


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(code, {})
    graphs, accuracy, classes = capsys.readouterr().out.splitlines()
    assert f"    {graphs}\n" in text
    assert float(accuracy.split()[-1]) >= 0.95
    assert f"    {classes}\n" in text
