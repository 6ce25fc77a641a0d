"""A bar, lines, or nothing."""

from __future__ import annotations

import sys

import pytest

from cvgnn.datasets import progress
from cvgnn.datasets.progress import TransferProgress


def test_a_short_transfer_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with TransferProgress("downloading a") as shown:
        shown.show(1, 10)
        shown.show(10, 10)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("total", "line"),
    [(4_000_000, "downloading a: 1.00 MB of 4.00 MB (25%)\n"), (None, "downloading a: 1.00 MB\n")],
)
def test_lines_when_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], total: int | None, line: str
) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    with TransferProgress("downloading a") as shown:
        shown.show(1_000_000, total)
        shown.show(1_100_000, total)  # too soon for another line
    assert capsys.readouterr() == ("", line)


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with TransferProgress("downloading a") as shown:
        shown.show(1_000_000, 4_000_000)
        shown.show(4_000_000, 4_000_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert "downloading a" in err
    assert "4.0/4.0 MB" in err
