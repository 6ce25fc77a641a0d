"""The command itself: help, errors and exit codes."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cvgnn import __version__
from cvgnn.cli import main as main_module
from cvgnn.cli.main import main
from cvgnn.errors import CvgnnError

ROOT = Path(__file__).resolve().parents[2]
LIGHT = "print([m for m in ('torch', 'numba', 'scipy') if m in sys.modules])"


def shell(*words: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python -m cvgnn WORDS`, or some code, in its own process."""
    program = ["-m", "cvgnn"] if code is None else ["-c", code]
    return subprocess.run([sys.executable, *program, *words], capture_output=True, text=True, timeout=120)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"cvgnn {__version__}\n", "")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", __version__)


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]], ids=str)
def test_help(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"cvgnn {__version__}: ")
    assert "usage: cvgnn COMMAND" in out
    assert err == ""
    assert max(len(line) for line in out.splitlines()) <= 120


@pytest.mark.parametrize("words", [["trian"], ["--nonsense"], ["train.py", "--lr", "1"], [""]], ids=str)
def test_an_unknown_command(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(
        f"cvgnn: unknown command {words[0]!r}; known: train, inspect, predict, evaluate, serve, export, card, reproduce, sweep, search, tune, report, diagnose, convert, partition, datasets"
    )
    assert err.count("\n") == 1


def test_words_come_from_the_shell_if_not_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cvgnn", "--version"])
    monkeypatch.setattr(main_module, "end_process", sys.exit)
    with pytest.raises(SystemExit, match="0"):
        main()
    assert capsys.readouterr().out == f"cvgnn {__version__}\n"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (CvgnnError("hidden must be at least 1, not 0"), 2, "cvgnn: hidden must be at least 1, not 0\n"),
        (KeyboardInterrupt(), 130, "cvgnn: interrupted\n"),
    ],
    ids=["mistake", "interrupt"],
)
def test_errors_are_printed_with_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def dispatch(words: list[str]) -> int:
        raise error

    monkeypatch.setattr(main_module, "_dispatch", dispatch)
    assert main(["train"]) == code
    assert capsys.readouterr() == ("", message)


def test_an_interrupt_below_other_errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As compiled code raises it: a SystemError, by way of an error in between."""

    def dispatch(words: list[str]) -> int:
        error, between = SystemError("returned a result with an exception set"), RuntimeError("in between")
        error.__cause__, between.__context__ = between, KeyboardInterrupt()
        raise error

    monkeypatch.setattr(main_module, "_dispatch", dispatch)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "cvgnn: interrupted\n"


def test_our_own_bugs_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def dispatch(words: list[str]) -> int:
        raise ValueError("a bug")

    monkeypatch.setattr(main_module, "_dispatch", dispatch)
    with pytest.raises(ValueError, match="a bug"):
        main(["train"])


def test_the_command_is_installed_under_its_name() -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="cvgnn")
    assert entry.load() is main


# In processes of their own.


def test_help_and_mistakes_do_not_wait_for_torch() -> None:
    code = f"""
import sys
from cvgnn.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
{LIGHT}
"""
    for words in (["--help"], ["train", "--help"], ["train", "--lr", "-1"], ["train", "--nonsense"]):
        assert shell(*words, code=code).stdout.splitlines()[-1] == "[]", words


def test_an_unknown_data_set() -> None:
    done = shell("train", "--dataset", "corra")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cvgnn: unknown dataset 'corra'; known: citeseer, cora, pubmed, ogbn-arxiv")
    assert done.stderr.endswith("(did you mean 'cora'?)\n")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_leaves_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "cvgnn", "--help"], stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device")
def test_standard_output_on_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cvgnn", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert (done.returncode, done.stderr) == (2, "cvgnn: standard output: No space left on device\n")


def test_interrupt_leaves_a_record_of_every_finished_epoch(tmp_path: Path) -> None:
    # A shell may start its background jobs with SIGINT ignored, and Python respects that: ask for it again.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from cvgnn.cli.main import main; sys.exit(main())"
    )
    out = tmp_path / "run"
    words = ["train", "--epochs", "100000", "--threads", "1", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        metrics = out / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if metrics.exists() and metrics.read_text(encoding="utf-8").count("\n") >= 3:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert re.fullmatch(
        r"cvgnn: options chosen for this graph: .*\n"
        r"cvgnn: stopping after this step; once more to stop at once\n"
        rf"cvgnn: stopped in epoch \d+, \d+ of its \d+ steps done; continue with: cvgnn train --resume {out}\n",
        stderr,
    )
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) >= 3
    assert [row["epoch"] for row in rows] == list(range(1, len(rows) + 1))
    assert sorted(p.name for p in out.iterdir()) == ["checkpoints", "config.json", "metrics.jsonl"]
    shown = [int(number) for number in re.findall(r"^epoch (\d+)/100000", stdout, flags=re.MULTILINE)]
    assert shown[: len(rows) - 1] == list(range(1, len(rows)))


def test_a_misspelled_option_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--epoch", "3"])
    said = capsys.readouterr()
    assert "--epochs" in said.out + said.err
