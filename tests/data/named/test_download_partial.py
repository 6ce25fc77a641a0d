"""What is kept of a broken transfer, and when it is not trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cvgnn.data.named.download import PartialDownload

URL = "http://127.0.0.1/file"


def leave(folder: Path, note: str | None, data: bytes = b"12345") -> Path:
    path = folder / "file.part"
    path.write_bytes(data)
    if note is not None:
        (folder / "file.part.json").write_text(note, encoding="utf-8")
    return path


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    path = leave(tmp_path, json.dumps({"url": URL, "validator": '"a"', "total": 9}))
    part = PartialDownload(path, URL)
    assert (part.size, part.validator, part.total, part.complete) == (5, '"a"', 9, False)


@pytest.mark.parametrize(
    "note",
    [
        None,
        "",
        "not json",
        "[1, 2]",
        "{}",
        json.dumps({"url": "http://other/file", "validator": '"a"', "total": 9}),
        json.dumps({"url": URL, "validator": None, "total": 9}),
        json.dumps({"url": URL, "validator": '"a"', "total": 4}),
    ],
    ids=["none", "empty", "no json", "a list", "nothing", "another url", "no validator", "too long"],
)
def test_what_is_not_sure_is_thrown_away(tmp_path: Path, note: str | None) -> None:
    part = PartialDownload(leave(tmp_path, note), URL)
    assert part.size == 0
    assert part.validator is None
    assert list(tmp_path.iterdir()) == []


def test_from_start_to_finish(tmp_path: Path) -> None:
    part = PartialDownload(tmp_path / "file.part", URL)
    part.start('"a"', 3)
    part.path.write_bytes(b"abc")
    assert part.complete
    part.finish(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
