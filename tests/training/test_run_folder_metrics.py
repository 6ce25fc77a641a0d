"""The record: a line of JSON an epoch, on disk as soon as it is known."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cvgnn.errors import CvgnnError
from cvgnn.training import EpochRecord, Metrics
from cvgnn.training.run_folder import MetricsLog, as_row, from_row, read_metrics
from tests.logs import logged
from tests.utils.test_atomic_files import FailingDisk, names


def accuracies(train: float | None, val: float | None, test: float | None) -> Metrics:
    return {"train_accuracy": train, "val_accuracy": val, "test_accuracy": test}


def record(epoch: int = 1, *, loss: float = 0.25, metrics: Metrics | None = None) -> EpochRecord:
    return EpochRecord(
        epoch=epoch,
        iterations=6 * epoch,
        loss=loss,
        metrics=metrics or accuracies(None, None, None),
        train_seconds=0.123456789,
        eval_seconds=0.0,
    )


def test_a_row() -> None:
    row = as_row(record(2, metrics=accuracies(1.0, 0.5, None)))
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
    assert as_row(record(metrics=accuracies(0.0, 0.0, 0.0)))["val_accuracy"] == 0.0


@contextmanager
def metrics_log(path: Path, earlier: Sequence[EpochRecord] = ()) -> Iterator[MetricsLog]:
    """The log of a run that ends with the block."""
    log = MetricsLog(path)
    log.on_start(None, earlier)  # type: ignore[arg-type]
    try:
        yield log
    finally:
        log.on_end(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_diverged_is_null_because_json_has_no_nan(loss: float, tmp_path: Path) -> None:
    with metrics_log(tmp_path / "m.jsonl") as recorder:
        recorder.on_epoch(None, record(loss=loss))
    (line,) = (tmp_path / "m.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["loss"] is None


def test_each_line_is_on_disk_before_the_next_epoch(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with metrics_log(path) as recorder:
        for epoch in range(1, 4):
            recorder.on_epoch(None, record(epoch))
            lines = path.read_text(encoding="utf-8").splitlines()
            assert [json.loads(line)["epoch"] for line in lines] == list(range(1, epoch + 1))
    assert path.read_text(encoding="utf-8").endswith("}\n")


def test_lines_survive_an_error_and_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"

    def run() -> None:
        with metrics_log(path) as recorder:
            recorder.on_epoch(None, record(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1


def test_a_float_survives_exactly(tmp_path: Path) -> None:
    loss = 0.1 + 0.2
    with metrics_log(tmp_path / "m") as recorder:
        recorder.on_epoch(None, record(loss=loss))
    assert json.loads((tmp_path / "m").read_text(encoding="utf-8"))["loss"] == loss


def epochs_in(path: Path) -> list[int]:
    """The epochs of a file in which every line is whole."""
    text = path.read_text(encoding="utf-8")
    assert text == "" or text.endswith("}\n")
    return [json.loads(line)["epoch"] for line in text.splitlines()]


# Rows and back


@pytest.mark.parametrize(
    "metrics",
    [None, accuracies(1.0, 0.5, None), accuracies(0.0, None, 0.25)],
    ids=["not evaluated", "no test nodes", "no validation nodes"],
)
@pytest.mark.parametrize("loss", [0.1 + 0.2, 0.0, 1e-300])
def test_a_row_and_back(loss: float, metrics: Metrics | None) -> None:
    there = dataclasses.replace(record(3, loss=loss, metrics=metrics), train_seconds=0.25, skipped_steps=2)
    assert from_row(json.loads(json.dumps(as_row(there)))) == there


def test_seconds_come_back_rounded() -> None:
    assert from_row(as_row(record())).train_seconds == 0.123457


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_without_value_comes_back_as_nan(loss: float) -> None:
    assert math.isnan(from_row(as_row(record(loss=loss))).loss)


ROW = as_row(record(metrics=accuracies(1.0, 0.5, 0.5)))


@pytest.mark.parametrize("row", [None, [], "x", 1, [("epoch", 1)]], ids=repr)
def test_no_row_at_all(row: Any) -> None:
    with pytest.raises(CvgnnError, match="a record must be a JSON object"):
        from_row(row)


@pytest.mark.parametrize("name", ROW)
def test_a_row_that_lacks_something(name: str) -> None:
    with pytest.raises(CvgnnError, match=f"a record lacks '{name}'"):
        from_row({key: value for key, value in ROW.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("epoch", "iterations", "skipped_steps")
            for value in (None, -1, 1.0, True, "1", [])
        ),
        *(
            (name, value)
            for name in ("train_seconds", "eval_seconds")
            for value in (None, True, "1", math.nan, math.inf)
        ),
        *((name, value) for name in ("loss", "val_accuracy") for value in (True, "1", math.nan, -math.inf, [])),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_row_with_a_wrong_value(name: str, value: object) -> None:
    with pytest.raises(CvgnnError, match=f"a record's {name} is "):
        from_row({**ROW, name: value})


# Records of an earlier process


def test_earlier_epochs_stand_before_the_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with metrics_log(path, [record(1), record(2)]) as recorder:
        assert epochs_in(path) == [1, 2]
        recorder.on_epoch(None, record(3))
    assert epochs_in(path) == [1, 2, 3]


def test_what_is_beyond_the_checkpoint_is_dropped(tmp_path: Path) -> None:
    """An earlier process wrote epochs that its last checkpoint does not know of: they are computed again."""
    path = tmp_path / "m.jsonl"
    with metrics_log(path) as recorder:
        for epoch in (1, 2, 3):
            recorder.on_epoch(None, record(epoch))
    path.write_bytes(path.read_bytes() + b'{"epoch": 4, "it')  # and a line that it did not finish
    with metrics_log(path, [record(1)]) as recorder:
        assert epochs_in(path) == [1]
        recorder.on_epoch(None, record(2))
    assert epochs_in(path) == [1, 2]


def test_a_recorder_of_its_own_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text("something old")
    MetricsLog(path).on_start(None, [])
    assert path.read_bytes() == b""


# A disk that fails

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("failing", ["create", "write", "sync", "rename", "sync_folder"])
def test_a_file_that_cannot_be_made_is_told_at_once(
    tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FailingDisk(monkeypatch, lambda n, name: name == failing, FULL)
    with pytest.raises(CvgnnError, match=r"cannot write .*m\.jsonl: No space left on device; free some space"):
        MetricsLog(tmp_path / "m.jsonl").on_start(None, [record(1)])


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match=r"cannot write .*: No such file or directory; check the disk"):
        MetricsLog(tmp_path / "no" / "m.jsonl").on_start(None, [])


def test_what_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with logged() as said, metrics_log(path, [record(1)]) as recorder:
        with pytest.MonkeyPatch.context() as patch:
            FailingDisk(patch, lambda n, name: True, FULL)
            for epoch in (2, 3):
                recorder.on_epoch(None, record(epoch))
        assert said == [
            f"epoch {epoch} is not in {path} yet: No space left on device; free some space; it is written later"
            for epoch in (2, 3)
        ]
        recorder.on_epoch(None, record(4))  # there is space again
        assert epochs_in(path) == [1, 2, 3, 4]
        recorder.on_epoch(None, record(5))
    assert epochs_in(path) == [1, 2, 3, 4, 5]
    assert len(said) == 2
    assert names(tmp_path) == ["m.jsonl"]


@pytest.mark.parametrize("failing", range(1, 12))
def test_one_operation_that_fails_loses_nothing(tmp_path: Path, failing: int) -> None:
    """Whichever it is, of those that bring the line of an epoch to disk."""
    path = tmp_path / "m.jsonl"
    with logged() as said, metrics_log(path, [record(1)]) as recorder:
        with pytest.MonkeyPatch.context() as patch:
            disk = FailingDisk(patch, lambda n, name: n in (1, failing), FULL)
            for epoch in range(2, 6):
                recorder.on_epoch(None, record(epoch))
        assert len(said) == len({1, failing} & set(range(1, len(disk.done) + 1)))
        recorder.on_epoch(None, record(6))
    assert epochs_in(path) == [1, 2, 3, 4, 5, 6]
    assert names(tmp_path) == ["m.jsonl"]


def test_the_last_line_is_tried_again_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with logged() as said, metrics_log(path) as recorder:
        recorder.on_epoch(None, record(1))
        with pytest.MonkeyPatch.context() as patch:
            FailingDisk(patch, lambda n, name: True, FULL)
            recorder.on_epoch(None, record(2))
    assert len(said) == 1
    assert epochs_in(path) == [1, 2]


def test_the_file_read_back(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    assert read_metrics(path) == []
    records = [record(1), record(2, metrics=accuracies(1.0, 0.5, None))]
    with metrics_log(path, records):
        pass
    path.write_bytes(path.read_bytes() + b'{"epoch": 3, "it')  # still being written
    assert [r.epoch for r in read_metrics(path)] == [1, 2]
    assert read_metrics(path)[1].metrics == records[1].metrics
    path.write_text('{"epoch": 1}\n')
    with pytest.raises(CvgnnError, match=r"m\.jsonl, line 1: a record lacks 'iterations'; the file is damaged"):
        read_metrics(path)
