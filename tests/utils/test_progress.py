"""A bar, lines, or nothing."""

from __future__ import annotations

import sys

import pytest

from cvgnn.utils import progress as progress
from cvgnn.utils.progress import ProgressReporter


def test_a_short_transfer_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressReporter("downloading a") as shown:
        shown.show_bytes(1, 10)
        shown.show_bytes(10, 10)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("total", "line"),
    [(4 << 20, "downloading a: 1.0 MiB of 4.0 MiB (25%)\n"), (None, "downloading a: 1.0 MiB\n")],
)
def test_lines_when_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], total: int | None, line: str
) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    with ProgressReporter("downloading a") as shown:
        shown.show_bytes(1 << 20, total)
        shown.show_bytes(2 << 20, total)  # too soon for another line
    assert capsys.readouterr() == ("", line)


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ProgressReporter("downloading a") as shown:
        shown.show_bytes(1 << 20, 4 << 20)
        shown.show_bytes(4 << 20, 4 << 20)
    out, err = capsys.readouterr()
    assert out == ""
    assert "downloading a" in err
    assert "4.0/4.0 MiB" in err


def test_stages_in_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with ProgressReporter("writing") as report:
        for now in (1.0, 3.0, 5.0, 14.0):
            report("edges", now / 20)
    assert capsys.readouterr() == ("", "writing: edges, 15% done\nwriting: edges, 70% done\n")


def test_stages_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ProgressReporter("writing") as report:
        report("indices.npy", 0.25)
        report("P X", 0.5)
    out, err = capsys.readouterr()
    assert out == ""
    assert "writing: P X" in err
    assert "50%" in err


def test_no_bar_on_a_terminal_for_a_short_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ProgressReporter("writing") as report:
        report("indices.npy", 0.25)
    assert capsys.readouterr() == ("", "")
