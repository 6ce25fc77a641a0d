"""Progress of a run: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from cvgnn.cli.console import TrainProgress
from cvgnn.config import TrainConfig
from cvgnn.data import from_edges
from cvgnn.training import EpochRecord, Metrics
from cvgnn.training.callbacks import format_metric, line

GRAPH = from_edges([[0, 1], [1, 2]], x=torch.eye(3), y=[0, 1, 0], train_ids=[0], val_ids=[1], test_ids=[2], name="p[3]")
RESULT: dict[str, Any] = {
    "epochs": 100,
    "metric": "accuracy",
    "best_epoch": 2,
    "test_accuracy": 0.5,
    "val_accuracy": 0.625,
    "max_test_accuracy": 0.75,
    "output": "best",
    "output_iteration": None,
    "output_test_accuracy": 0.5,
    "iterations": 12,
    "skipped_steps": 0,
    "train_seconds": 1.25,
    "eval_seconds": 0.5,
    "setup_seconds": 0.25,
    "peak_rss_bytes": 3 * 2**20,
}


class Screen(io.StringIO):
    """A stream that is a terminal, or is none."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def accuracies(train: float | None, val: float | None, test: float | None) -> Metrics:
    return {"train_accuracy": train, "val_accuracy": val, "test_accuracy": test}


def record(epoch: int, test: float | None = None) -> EpochRecord:
    metrics = accuracies(None, None, None) if test is None else accuracies(1.0, 0.25, test)
    return EpochRecord(
        epoch=epoch, iterations=epoch, loss=1 / epoch, metrics=metrics, train_seconds=1.0, eval_seconds=1.0
    )


@contextmanager
def running(console: TrainProgress) -> Iterator[TrainProgress]:
    """As a run calls it; the console does not look at the trainer."""
    console.header()
    console.on_start(None, [])
    try:
        yield console
    finally:
        console.on_end(None, None)


def shown(monkeypatch: pytest.MonkeyPatch, records: list[EpochRecord], *, terminal: bool, epochs: int) -> str:
    """Everything written while these records come in."""
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stdout", screen)
    with running(TrainProgress(GRAPH, TrainConfig(epochs=epochs, hidden=32, batch_size=20))) as console:
        for each in records:
            console.on_epoch(None, each)
    return screen.getvalue()


def last_bar(text: str) -> str:
    """The bar as it stands at the end, without escape codes."""
    bars = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part) for part in re.split(r"[\r\n]", text)]
    return [bar for bar in bars if bar.startswith("epoch ")][-1].rstrip()


def test_shares_are_in_percent_and_errors_are_not() -> None:
    shares = [format_metric("val_accuracy", x) for x in (0.0, 1.0, 0.71049, None)]
    assert shares == ["0.00%", "100.00%", "71.05%", "-"]
    assert [format_metric("val_mse", x) for x in (0.0, 1234.567, None)] == ["0", "1235", "-"]


def test_line() -> None:
    assert line(record(4, test=0.5)) == "loss 0.2500  train 100.00%  val 25.00%  test 50.00%"
    assert line(record(4)) == "loss 0.2500"
    nothing = accuracies(0.5, None, None)
    missing = EpochRecord(epoch=1, iterations=1, loss=1.0, metrics=nothing, train_seconds=0, eval_seconds=0)
    assert line(missing) == "loss 1.0000  train 50.00%  val -  test -"


def test_lines_when_piped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")  # lines in a file are not wrapped
    text = shown(monkeypatch, [record(1), record(2, test=0.5)], terminal=False, epochs=2)
    assert text.splitlines() == [
        "Graph(p[3]: 3 nodes, 2 edges, 3 dense features, 2 classes, split 1/1/1)",
        "2 gcn layers of width 32, norm none, dropout 0.5, cvd with 2 neighbors without-replacement, adam (torch's form), lr 0.01, batches of 20, seed 0",
        "epoch 1/2  loss 1.0000",
        "epoch 2/2  loss 0.5000  train 100.00%  val 25.00%  test 50.00%",
    ]


def test_force_color_draws_no_bar_into_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = shown(monkeypatch, [record(1)], terminal=False, epochs=1)
    assert "\x1b" not in text
    assert "epoch 1/1  loss 1.0000\n" in text


def test_a_terminal_that_cannot_draw_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    text = shown(monkeypatch, [record(1), record(2)], terminal=True, epochs=2)
    assert "\x1b" not in text
    assert [x for x in text.splitlines() if x.startswith("epoch")] == [
        "epoch 1/2  loss 1.0000",
        "epoch 2/2  loss 0.5000",
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, [record(1, test=0.1), record(2, test=0.5)], terminal=True, epochs=2)
    assert "\x1b[" in text
    bar = last_bar(text)
    assert bar.startswith("epoch 2/2 ━")
    assert "loss 0.5000  train 100.00%  val 25.00%  test 50.00%" in bar


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
def test_the_count_is_seen_at_any_width(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    bar = last_bar(shown(monkeypatch, [record(7, test=0.1), record(100, test=0.5)], terminal=True, epochs=100))
    assert bar.startswith("epoch 100/100 ━")
    assert len(bar) <= columns
    assert "loss 0.0100" in bar
    assert columns < 80 or "train 100.00%  val 25.00%  test 50.00%" in bar


def test_the_bar_keeps_the_last_accuracies(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --eval-every 10 they would be seen a tenth of the time."""
    bar = last_bar(shown(monkeypatch, [record(1, test=0.5), record(2)], terminal=True, epochs=3))
    assert "loss 0.5000  train 100.00%  val 25.00%  test 50.00%" in bar


def test_the_bar_is_closed_on_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(terminal=True)
    monkeypatch.setattr(sys, "stdout", screen)

    def interrupted() -> None:
        with running(TrainProgress(GRAPH, TrainConfig(epochs=3))) as console:
            console.on_epoch(None, record(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")  # the cursor is back


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {},
            [
                "test accuracy 50.00% at the best validation epoch, 2 (validation 62.50%)",
                "highest test accuracy of any epoch 75.00% (chosen by test accuracy: the paper's protocol)",
                "12 iterations: 0.25 s set-up, 1.25 s training, 0.50 s evaluation, peak memory 3.0 MiB",
                "written to runs/[a]",
            ],
        ),
        (
            {"output": "tau", "output_iteration": 5, "output_test_accuracy": 0.125},
            ["test accuracy of the returned weights, tau (iterate 5): 12.50%"],
        ),
        ({"output": "last"}, ["test accuracy of the returned weights, last: 50.00%"]),
        ({"max_test_accuracy": None}, ["highest test accuracy of any epoch - (chosen by"]),
    ],
    ids=["best", "tau", "last", "no-test-nodes"],
)
def test_summary(capsys: pytest.CaptureFixture[str], change: dict[str, Any], expected: list[str]) -> None:
    TrainProgress(GRAPH, TrainConfig()).summary(RESULT | change, Path("runs/[a]"))
    out = capsys.readouterr().out
    for words in expected:
        assert words in out


def test_summary_without_validation_nodes_or_folder(capsys: pytest.CaptureFixture[str]) -> None:
    none = {"best_epoch": None, "val_accuracy": None, "test_accuracy": None, "output": "last"}
    TrainProgress(GRAPH, TrainConfig()).summary(RESULT | none, None)
    out = capsys.readouterr().out
    assert "validation" not in out
    assert "written" not in out


def test_a_real_terminal() -> None:
    """The whole command on a pseudo-terminal of 80 columns: one bar that ends at the last epoch, then the result."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("COLUMNS")
    words = ["train", "--epochs", "4", "--hidden", "8", "--threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cvgnn", *words], stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    written = bytearray()
    try:
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # Linux's way to say that the other side has closed
                break
            if not piece:
                break
            written += piece
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)
    text = written.decode()
    assert "\x1b[" in text
    bar = last_bar(text)
    assert bar.startswith("epoch 4/4 ━")
    assert re.search(r"loss \d\.\d{4}  train \d+\.\d\d%  val \d+\.\d\d%  test \d+\.\d\d%", bar)
    assert "test accuracy " in text[text.rindex("━") :]
    assert "epoch 1/4  loss" not in text  # no lines beside the bar


def test_early_stopping_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with running(TrainProgress(GRAPH, TrainConfig(patience=7))) as console:
        console.summary({**RESULT, "epochs": 9}, None)
    assert "stopped early, after epoch 9: 7 epochs without a better validation accuracy" in capsys.readouterr().out
