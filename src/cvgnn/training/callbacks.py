"""Callbacks of a run. The progress bar, metrics.jsonl, TensorBoard and the checkpointer are callbacks too."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import final

from cvgnn.data.split import SPLITS
from cvgnn.errors import require_integer
from cvgnn.training.tasks import is_share
from cvgnn.training.trainer import EpochRecord, Trainer
from cvgnn.utils.formatting import format_percent


class Callback:
    """Override what you need; the methods of this class do nothing.

    >>> class Losses(Callback):
    ...     def on_epoch(self, trainer, record):
    ...         print(f"epoch {record.epoch}: {record.loss:.1f}")
    """

    def on_start(self, trainer: Trainer, records: Sequence[EpochRecord]) -> None:
        """Called once before the first step.

        Args:
            trainer: model, optimizer and histories at the start, or as a resumed run restored them.
            records: epochs that an earlier process has trained. The list grows by one record per epoch.
        """

    def on_step(self, trainer: Trainer) -> None:
        """Called after each step; `trainer.iterations` counts them. Its time does not count as training time."""

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Called after each epoch and its evaluation."""

    def on_end(self, trainer: Trainer, error: BaseException | None) -> None:
        """Called once at the end, also if training failed.

        Args:
            trainer: in its last state.
            error: the exception that ended the run; None if there was none.
        """


percent = functools.partial(format_percent, unit="%")


def format_metric(key: str, value: float | None) -> str:
    """The value of a metric as text: shares in percent.

    >>> format_metric("val_accuracy", 0.5), format_metric("val_mse", 12.3456), format_metric("val_accuracy", None)
    ('50.00%', '12.35', '-')
    """
    return percent(value) if value is None or is_share(key) else f"{value:.4g}"


def line(record: EpochRecord) -> str:
    """Loss of an epoch, and on each split the metric that selects the best epoch."""
    text = f"loss {record.loss:.4f}"
    if not record.is_evaluated:
        return text
    # The metric that selects the best epoch comes first in a record (Task.epoch_metrics).
    keys = list(record.metrics)[: len(SPLITS)]
    metric = keys[0].partition("_")[2]
    shown = [f"{split} {format_metric(key, record.metrics[key])}" for split, key in zip(SPLITS, keys, strict=True)]
    return "  ".join([text, *([] if metric == "accuracy" else [metric]), *shown])


@final
class EpochPrinter(Callback):
    """Prints a line for every n-th epoch, and for the last.

    Args:
        epochs: of the run.
        every: n.
    """

    def __init__(self, epochs: int, *, every: int = 1) -> None:
        self._epochs = epochs
        self._every = require_integer("verbose", every, at_least=1)

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Print the line."""
        if record.epoch % self._every == 0 or record.epoch == self._epochs:
            print(f"epoch {record.epoch}/{self._epochs}  {line(record)}", flush=True)


@final
class OnEpoch(Callback):
    """Calls a function with each epoch's record."""

    def __init__(self, function: Callable[[EpochRecord], None]) -> None:
        self._function = function

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Call the function."""
        self._function(record)


@contextmanager
def callback_scope(callbacks: Sequence[Callback], trainer: Trainer, records: Sequence[EpochRecord]) -> Iterator[None]:
    """Call `on_start` of each, and at the end `on_end` of each that was started, whatever the others raise."""
    with contextlib.ExitStack() as stack:
        for callback in callbacks:
            # Before on_start, which may fail half-way. The default argument binds this callback, not the loop's last.
            stack.push(lambda kind, error, traceback, callback=callback: callback.on_end(trainer, error))
            callback.on_start(trainer, records)
        yield
