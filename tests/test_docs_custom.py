"""docs/custom.md: every Python example in it runs as it stands, and every command parses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cvgnn.cli.main import main
from cvgnn.config import REGISTERED

TEXT = (Path(__file__).parents[1] / "docs" / "custom.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_other_libraries_and_own_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) == 3
    exec(BLOCKS[0], {})
    assert len(capsys.readouterr().out.splitlines()) == 2
    exec(BLOCKS[1], {"__name__": "page"})
    assert 0.6 < float(capsys.readouterr().out) < 0.8


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cvgnn.registry.REGISTERED", {kind: {} for kind in REGISTERED})
    exec(BLOCKS[2], {})
    for command in re.findall(r"^\$ (cvgnn .*)$", TEXT, flags=re.MULTILINE):
        words = [word for word in shlex.split(command)[1:] if word not in ("--plugin", "my_parts")]
        with pytest.raises(SystemExit) as end:
            main([*words, "--help"])
        assert end.value.code == 0
