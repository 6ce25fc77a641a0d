"""The first lines of the README. Its Python and its commands are run and parsed by test_docs.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_first_screen() -> None:
    """One sentence, the picture, three lines to install and run, and then the two make commands."""
    first = "\n".join(README.read_text(encoding="utf-8").splitlines()[:22])
    (picture,) = re.findall(r"^!\[.+\]\((\S+)\)$", first, flags=re.MULTILINE)
    assert (README.parent / picture).is_file()
    assert len(re.findall(r"^\$ (?:pip install|cvgnn train)", first, flags=re.MULTILINE)) == 3
    targets = re.findall(r"^\$ make (\w+)", first, flags=re.MULTILINE)
    assert targets == ["train", "test"]
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}: " in makefile for target in targets)


@pytest.mark.parametrize("name", ["README.md", "docs/install.md", "Dockerfile", "docs/start.md"])
def test_the_cpu_build_of_torch_is_the_tested_one(name: str) -> None:
    """How to get it stands in the first lines, with the version of the constraints file."""
    version = re.search(r"^torch==(\S+)$", (README.parent / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert version is not None
    first = "\n".join((README.parent / name).read_text(encoding="utf-8").splitlines()[:12])
    assert f"torch=={version[1]} --index-url https://download.pytorch.org/whl/cpu" in first
