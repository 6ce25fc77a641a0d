"""The record: a line of JSON an epoch, on disk as soon as it is known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cvgnn.training import Accuracies, EpochRecord, Recorder
from cvgnn.training.recorder import as_row


def record(epoch: int = 1, *, loss: float = 0.25, accuracies: Accuracies | None = None) -> EpochRecord:
    return EpochRecord(
        epoch=epoch, iterations=6 * epoch, loss=loss, accuracies=accuracies, train_seconds=0.123456789, eval_seconds=0.0
    )


def test_a_row() -> None:
    row = as_row(record(2, accuracies=Accuracies(train=1.0, val=0.5, test=None)))
    assert row == {
        "epoch": 2,
        "iterations": 12,
        "loss": 0.25,
        "train_accuracy": 1.0,
        "val_accuracy": 0.5,
        "test_accuracy": None,
        "train_seconds": 0.123457,
        "eval_seconds": 0.0,
        "skipped_steps": 0,
    }


def test_an_epoch_without_evaluation_has_nulls() -> None:
    row = as_row(record())
    assert [row[f"{split}_accuracy"] for split in ("train", "val", "test")] == [None, None, None]
    assert as_row(record(accuracies=Accuracies(train=0.0, val=0.0, test=0.0)))["val_accuracy"] == 0.0


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_diverged_is_null_because_json_has_no_nan(loss: float, tmp_path: Path) -> None:
    with Recorder(tmp_path / "m.jsonl") as recorder:
        recorder.write(record(loss=loss))
    (line,) = (tmp_path / "m.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["loss"] is None


def test_each_line_is_on_disk_before_the_next_epoch(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with Recorder(path) as recorder:
        for epoch in range(1, 4):
            recorder.write(record(epoch))
            lines = path.read_text(encoding="utf-8").splitlines()
            assert [json.loads(line)["epoch"] for line in lines] == list(range(1, epoch + 1))
    assert path.read_text(encoding="utf-8").endswith("}\n")


def test_lines_survive_an_error_and_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"

    def run() -> None:
        with Recorder(path) as recorder:
            recorder.write(record(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1


def test_a_float_survives_exactly(tmp_path: Path) -> None:
    loss = 0.1 + 0.2
    with Recorder(tmp_path / "m") as recorder:
        recorder.write(record(loss=loss))
    assert json.loads((tmp_path / "m").read_text(encoding="utf-8"))["loss"] == loss


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Recorder(None) as recorder:
        recorder.write(record())
    assert list(tmp_path.iterdir()) == []
