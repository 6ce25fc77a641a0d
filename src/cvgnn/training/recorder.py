"""The record of a run: a line of JSON for each epoch, written as soon as it is known."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any, final

from cvgnn.training.trainer import EpochRecord


def as_row(record: EpochRecord) -> dict[str, Any]:
    """A record as a flat JSON object; accuracies are null where not measured, a loss that diverged is null too."""
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
    }


@final
class Recorder:
    """Appends epochs to a JSONL file, line by line, flushed.

    Args:
        path: of the file, made anew; None records nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("w", encoding="utf-8")

    def write(self, record: EpochRecord) -> None:
        """Append one epoch."""
        if self._file is not None:
            self._file.write(json.dumps(as_row(record)) + "\n")
            self._file.flush()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
