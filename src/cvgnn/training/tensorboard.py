"""A callback that writes a run's metrics as event files for TensorBoard, beside metrics.jsonl."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

from cvgnn.config import TrainConfig
from cvgnn.errors import require
from cvgnn.training.callbacks import Callback
from cvgnn.training.schedules import make_schedule
from cvgnn.training.trainer import EpochRecord, Trainer
from cvgnn.utils import atomic_files
from cvgnn.utils.optional_import import import_optional

_log = logging.getLogger(__name__)


@final
class TensorBoard(Callback):
    """Writes the epochs of a run to a new event file. If that fails, a warning is logged and the run continues.

    A resumed run writes all its epochs again, with `purge_step`, which makes TensorBoard drop those of earlier files.
    So no epoch is missing or there twice, whatever the earlier process left.

    Args:
        folder: created if missing. One folder is one run for TensorBoard.
        config: of the run, for its text and its learning rates.
        options: further hyperparameters for the text.
        resume: whether the folder may hold event files already; if not, one that does is refused.
    """

    def __init__(
        self, folder: Path, config: TrainConfig, *, options: dict[str, Any] | None = None, resume: bool = False
    ) -> None:
        require_tensorboard()
        self._folder = folder
        self._config = config
        self._options = {**(options or {}), **config.to_dict()}
        self._schedule = make_schedule(config.schedule, epochs=config.epochs)
        self._writer: Any = None
        with atomic_files.report_errors(f"cannot write to {folder}"):
            # The folder is created in on_start: it may lie in the run's folder, which must be new or empty until then.
            occupied = folder.exists() and any(name.startswith("events.out.tfevents.") for name in os.listdir(folder))
        require(resume or not occupied, f"{folder} holds the event files of another run; choose another --tensorboard")

    def on_start(self, trainer: Trainer, records: Sequence[EpochRecord]) -> None:
        """Write the hyperparameters, and the epochs that an earlier process has trained."""
        self._try(lambda: self._open(records))

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Write one epoch."""
        if self._writer is not None:
            self._try(lambda: self._write(record, time.time()))

    def on_end(self, trainer: Trainer, error: BaseException | None) -> None:
        """Close the file."""
        if self._writer is not None:
            self._try(self._writer.close)

    def _open(self, records: Sequence[EpochRecord]) -> None:
        from torch.utils.tensorboard import SummaryWriter  # an optional dependency

        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = SummaryWriter(str(self._folder), purge_step=0)
        rows = [f"|{name}|{value}|" for name, value in self._options.items()]
        self._writer.add_text("hyperparameters", "\n".join(["|option|value|", "|-|-|", *rows]), 0)
        # The clock times of earlier epochs are not known: they are laid end to end before now.
        ago = sum(r.train_seconds + r.eval_seconds for r in records)
        for record in records:
            ago -= record.train_seconds + record.eval_seconds
            self._write(record, time.time() - ago)

    def _write(self, record: EpochRecord, when: float) -> None:
        scalars: dict[str, float | None] = {
            "loss": record.loss,
            "seconds/train": record.train_seconds,
            "seconds/eval": record.eval_seconds,
            # Computed and not read from the optimizer, so that the epochs before a resume have it too.
            "learning_rate": self._config.lr * (1.0 if self._schedule is None else self._schedule(record.epoch)),
        }
        for key, value in record.metrics.items():
            split, _, metric = key.partition("_")
            scalars[f"{metric}/{split}"] = value
        for name, scalar in scalars.items():
            if scalar is not None:
                self._writer.add_scalar(name, scalar, record.epoch, walltime=when)
        self._writer.flush()  # the writer has its own thread, whose errors are raised here

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self._writer = None
            reason = atomic_files.describe_error(error)
            _log.warning("no more events are written to %s: %s; the run continues", self._folder, reason)


def require_tensorboard() -> None:
    """An error with the pip command if the package tensorboard is missing."""
    import_optional("tensorboard", extra="tensorboard", purpose="--tensorboard")
