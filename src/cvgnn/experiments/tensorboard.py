"""Event files for TensorBoard: a view of a run's record, beside metrics.jsonl and never instead of it.

Only the messages and the framing of TensorBoard's own package are used; files are written by ours, at once and without
a thread, so that a full disk is noticed where it can be told.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, final

from cvgnn import disk
from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError, require
from cvgnn.graph.convert import optional
from cvgnn.training import EpochRecord, make_schedule

_NUMBERED = re.compile(r"events\.out\.tfevents\.(\d{10})\.")


@final
class EventFile:
    """Writes the epochs of a run to a new event file. What cannot be written is said once, and the run goes on.

    A run that goes on writes all its epochs anew, behind a mark that lets TensorBoard forget those of earlier files: so
    no step is there twice or missing, whatever the earlier process left.

    Args:
        folder: made if missing. One folder is one run for TensorBoard.
        config: of the run, for its text and its learning rates.
        options: further hyperparameters for the text.
        resume: whether the folder may hold event files already; if not, one that does is refused.
        say: told when nothing more is written.
    """

    def __init__(
        self,
        folder: Path,
        config: TrainConfig,
        *,
        options: dict[str, Any] | None = None,
        resume: bool = False,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._event = _part("compat.proto.event_pb2")
        self._tensor = _part("compat.proto.tensor_pb2")
        self._framing = _part("summary.writer.record_writer").RecordWriter
        self._folder = folder
        self._config = config
        self._options = {**(options or {}), **config.to_dict()}
        self._say = say
        self._records: list[EpochRecord] = []
        self._file: BinaryIO | None = None
        self._broken = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = any(_NUMBERED.match(name) for name in os.listdir(folder))
        except OSError as error:
            raise CvgnnError(f"cannot write to {folder}: {disk.reason(error)}") from None
        require(resume or not found, f"{folder} holds the event files of another run; choose another --tensorboard")

    def begin(self, earlier: Sequence[EpochRecord]) -> None:
        """Write what is known before the first epoch: hyperparameters, and the epochs that an earlier process has done.

        Args:
            earlier: their records.
        """
        self._records = list(earlier)
        self._try(self._open)

    def write(self, record: EpochRecord) -> None:
        """Append one epoch."""
        self._records.append(record)
        if not self._broken:
            self._try(lambda: self._append(self._epoch(record, time.time())))

    def close(self) -> None:
        """Write what is missing, if it can be written now, and let go of the file."""
        if self._broken:
            with contextlib.suppress(OSError):
                self._open()
        self._let_go()

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self._let_go()
            self._broken = True
            self._say(
                f"no more events are written to {self._folder}: {disk.reason(error)}; the run goes on, and they are "
                "tried once more at its end"
            )

    def _open(self) -> None:
        """A new file with all that is known, whose name sorts behind those of the earlier ones."""
        before = [int(m[1]) for name in os.listdir(self._folder) if (m := _NUMBERED.match(name))]
        number = max([int(time.time()), *(n + 1 for n in before)])
        name = f"events.out.tfevents.{number:010d}.{socket.gethostname()}.{os.getpid()}.cvgnn"
        self._file = disk.create(self._folder / name)
        now = time.time()
        left = sum(r.train_seconds + r.eval_seconds for r in self._records)
        start = self._event.SessionLog(status=self._event.SessionLog.START)
        events = [
            self._event.Event(wall_time=now - left, file_version="brain.Event:2"),
            self._event.Event(wall_time=now - left, step=0, session_log=start),  # forget what earlier files say
            self._text(now - left),
        ]
        for record in self._records:
            left -= record.train_seconds + record.eval_seconds
            events.append(self._epoch(record, now - left))
        self._append(*events)

    def _append(self, *events: Any) -> None:
        assert self._file is not None
        framed = io.BytesIO()
        writer = self._framing(framed)
        for event in events:
            writer.write(event.SerializeToString())
        disk.write(self._file, framed.getvalue())

    def _text(self, when: float) -> Any:
        rows = [f"|{name}|{value}|" for name, value in self._options.items()]
        table = "\n".join(["|option|value|", "|-|-|", *rows])
        summary = self._event.Event(wall_time=when, step=0)
        value = summary.summary.value.add(tag="hyperparameters")
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.CopyFrom(self._tensor.TensorProto(dtype="DT_STRING", string_val=[table.encode()]))
        return summary

    def _epoch(self, record: EpochRecord, when: float) -> Any:
        a, schedule = record.accuracies, make_schedule(self._config.schedule, epochs=self._config.epochs)
        scalars = {
            "loss": record.loss,
            "accuracy/train": None if a is None else a.train,
            "accuracy/val": None if a is None else a.val,
            "accuracy/test": None if a is None else a.test,
            "seconds/train": record.train_seconds,
            "seconds/eval": record.eval_seconds,
            "learning_rate": self._config.lr * (1.0 if schedule is None else schedule(record.epoch)),
        }
        event = self._event.Event(wall_time=when, step=record.epoch)
        for name, scalar in scalars.items():
            if scalar is not None:
                event.summary.value.add(tag=name, simple_value=scalar)
        return event

    def _let_go(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def require_tensorboard() -> None:
    """Refuse, with what to do, where TensorBoard is missing."""
    _part("compat.proto.event_pb2")


def _part(name: str) -> Any:
    return optional(f"tensorboard.{name}", extra="tensorboard", purpose="--tensorboard")
