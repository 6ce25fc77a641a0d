"""The record of a run: a line of JSON for each epoch, written as soon as it is known."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, final

from cvgnn import disk
from cvgnn.errors import CvgnnError, require
from cvgnn.sealed import short
from cvgnn.training.evaluate import Accuracies
from cvgnn.training.trainer import EpochRecord

_ACCURACIES = ("train_accuracy", "val_accuracy", "test_accuracy")


def as_row(record: EpochRecord) -> dict[str, Any]:
    """A record as a flat JSON object; accuracies are null where not measured, a loss without a value is null too."""
    a = record.accuracies
    return {
        "epoch": record.epoch,
        "iterations": record.iterations,
        "loss": record.loss if math.isfinite(record.loss) else None,  # JSON has no NaN
        "train_accuracy": None if a is None else a.train,
        "val_accuracy": None if a is None else a.val,
        "test_accuracy": None if a is None else a.test,
        "train_seconds": round(record.train_seconds, 6),
        "eval_seconds": round(record.eval_seconds, 6),
        "skipped_steps": record.skipped_steps,
    }


def from_row(row: Any) -> EpochRecord:
    """The record that `as_row` made the row of."""
    whole, numbers = ("epoch", "iterations", "skipped_steps"), ("train_seconds", "eval_seconds")
    require(isinstance(row, dict), "a record must be a JSON object")
    for name in (*whole, *numbers, "loss", *_ACCURACIES):
        require(name in row, f"a record lacks {name!r}")
        value = row[name]
        if name in whole:
            right = type(value) is int and value >= 0
        else:
            right = (value is None and name not in numbers) or (type(value) in (int, float) and math.isfinite(value))
        require(right, f"a record's {name} is {short(value)}")
    train, val, test = (row[name] for name in _ACCURACIES)
    return EpochRecord(
        epoch=row["epoch"],
        iterations=row["iterations"],
        loss=math.nan if row["loss"] is None else row["loss"],
        accuracies=None if train is None else Accuracies(train=train, val=val, test=test),
        train_seconds=row["train_seconds"],
        eval_seconds=row["eval_seconds"],
        skipped_steps=row["skipped_steps"],
    )


@final
class Recorder:
    """Writes epochs to a JSONL file, line by line. A full disk does not stop it: what is missing is written later.

    Args:
        path: of the file, made anew; None records nothing.
        earlier: the epochs that an earlier process has done.
        say: told when a line could not be written.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        earlier: Sequence[EpochRecord] = (),
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._path = path
        self._say = say
        self._lines = [_line(record) for record in earlier]
        self._file: BinaryIO | None = None
        self._closed = False
        if path is not None:
            try:
                self._open(path)
            except OSError as error:
                raise CvgnnError(f"cannot write {path}: {disk.reason(error)}") from None

    def write(self, record: EpochRecord) -> None:
        """Append one epoch."""
        line = _line(record)
        self._lines.append(line)
        if self._path is None:
            return
        try:
            if self._file is None:
                self._open(self._path)  # all of them, the missing ones too
            else:
                disk.write(self._file, line)
        except OSError as error:
            self._let_go()
            self._say(f"epoch {record.epoch} is not in {self._path} yet: {disk.reason(error)}; it is kept for later")

    def close(self) -> None:
        """Write what is missing, if it can be written now, and let go of the file."""
        if self._path is not None and self._file is None and not self._closed:
            with contextlib.suppress(OSError):
                self._open(self._path)
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path) -> None:
        disk.write_file(path, b"".join(self._lines))
        self._file = path.open("ab", buffering=0)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _line(record: EpochRecord) -> bytes:
    return (json.dumps(as_row(record)) + "\n").encode()
