"""What the README shows must run as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch

from cvgnn.cli.main import main

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_there_are_two_examples() -> None:
    assert len(BLOCKS) == 2


def test_one_call(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(BLOCKS[0], names)
    assert 0.6 < float(capsys.readouterr().out) < 0.8
    assert names["classes"].shape == (3,)  # type: ignore[attr-defined]
    assert names["embeddings"].shape == (3327, 64)  # type: ignore[attr-defined]


def test_the_pieces_learn() -> None:
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(BLOCKS[1], names)
    assert float(names["loss"].detach()) < 0.2  # type: ignore[attr-defined]
    cv = names["cv"]
    assert int(cv.history(1).age(step=40).min()) == 0  # type: ignore[attr-defined]


def test_every_command_shown_parses() -> None:
    commands = re.findall(r"^\$ (cvgnn .*?)(?:#.*)?$", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        words = shlex.split(command)[1:]
        with pytest.raises(SystemExit) as done:
            main([*words, "--help"])
        assert done.value.code == 0


@pytest.mark.parametrize("name", ["README.md", "docs/install.md", "Dockerfile"])
def test_the_cpu_build_of_torch_is_the_tested_one(name: str) -> None:
    """How to get it stands in the first lines, with the version of the constraints file."""
    version = re.search(r"^torch==(\S+)$", (README.parent / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert version is not None
    first = "\n".join((README.parent / name).read_text(encoding="utf-8").splitlines()[:12])
    assert f"torch=={version[1]} --index-url https://download.pytorch.org/whl/cpu" in first
