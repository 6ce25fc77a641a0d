"""The documents name files, functions and pages that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *sorted(ROOT.glob("docs/**/*.md"))]
PLACES = [ROOT, ROOT / "src/cvgnn"]
# `data/edges.py` `from_edges`; `data/edges.py`, `from_edges`; `from_edges` in `data/edges.py`; `from_edges` (`data/edges.py`)
PAIRS = (r"`([\w/]+\.py)`,? `(\w[\w.]*)`", r"`(\w[\w.]*)` (?:in |\()`([\w/]+\.py)`")


def find(path: str) -> list[Path]:
    """The file that a document means, relative to the checkout or to the package."""
    return [place / path for place in PLACES if (place / path).is_file()]


def named_functions(text: str) -> Iterator[tuple[str, str]]:
    """Files with the functions that the text says are in them; two files side by side are no such pair."""
    pairs = [*re.findall(PAIRS[0], text), *(pair[::-1] for pair in re.findall(PAIRS[1], text))]
    yield from ((file, name) for file, name in pairs if not name.endswith(".py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_and_links(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    files = set(re.findall(r"`([\w.]+/[\w/]+\.py)`", text))
    assert not [file for file in sorted(files) if "NAME" not in file and not find(file)]
    for file, name in named_functions(text):
        for source in find(file):
            words = set(re.findall(r"\w+", source.read_text(encoding="utf-8")))
            assert set(name.split(".")) <= words, f"{name} is not in {file}"
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)  # code may hold brackets of its own
    links = [link for link in re.findall(r"\]\(([^)\s#]+)", prose) if "://" not in link]
    assert not [link for link in links if not (page.parent / link).exists()]
