"""Progress of a long task: a bar on a terminal, else a line every ten seconds; nothing if the task is short."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, final

from cvgnn.utils.formatting import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress

_QUIET_SECONDS = 2.0
_LINE_SECONDS = 10.0

ProgressCallback = Callable[[str, float], None]
"""Called with the current stage of the work, and the share (0..1) of it that is done."""


def no_progress(stage: str, share: float) -> None:
    """A `ProgressCallback` that does nothing."""


@final
class ProgressReporter(AbstractContextManager["ProgressReporter"]):
    """Shows the progress of one task on standard error. Its instances are `ProgressCallback`s for any thread.

    Args:
        task: for example "downloading reddit.zip".
    """

    def __init__(self, task: str) -> None:
        self._task = task
        self._next = time.monotonic() + _QUIET_SECONDS
        if logging.getLogger("cvgnn").level > logging.INFO:  # --quiet
            self._next = math.inf
        self._terminal = sys.stderr.isatty()
        self._bar: Progress | None = None
        self._lock = threading.Lock()

    def __call__(self, stage: str, share: float) -> None:
        """Update: this share (0..1) of the stage is done."""
        text = f"{self._task}: {stage}"
        self._update(text, f"{text}, {100 * share:.0f}% done", share, 1.0)

    def show_bytes(self, done: int, total: int | None) -> None:
        """Update: `done` bytes of `total` have arrived; None if the total is not known."""
        of = "" if total is None else f" of {format_bytes(total)} ({100 * done // max(total, 1)}%)"
        self._update(self._task, f"{self._task}: {format_bytes(done)}{of}", done, total, in_bytes=True)

    def _update(self, text: str, line: str, done: float, total: float | None, *, in_bytes: bool = False) -> None:
        if self._bar is None and time.monotonic() < self._next:
            return
        with self._lock:
            self._show(text, line, done, total, in_bytes=in_bytes)

    def _show(self, text: str, line: str, done: float, total: float | None, *, in_bytes: bool) -> None:
        if not self._terminal:
            if time.monotonic() >= self._next:  # else another thread has just printed
                print(line, file=sys.stderr, flush=True)
                self._next = time.monotonic() + _LINE_SECONDS
            return
        if self._bar is None:
            self._bar = _start_bar(text, total, in_bytes=in_bytes)
        self._bar.update(self._bar.task_ids[0], description=text, completed=done, total=total)

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _start_bar(text: str, total: float | None, *, in_bytes: bool) -> Progress:
    from rich import progress
    from rich.console import Console

    amount: tuple[progress.ProgressColumn, ...] = (progress.TaskProgressColumn(),)
    if in_bytes:
        amount = (progress.DownloadColumn(binary_units=True), progress.TransferSpeedColumn())
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(24), *amount)
    console = Console(highlight=False, stderr=True, force_terminal=True)
    bar = progress.Progress(*columns, progress.TimeRemainingColumn(compact=True), console=console, transient=True)
    bar.add_task(text, total=total)
    bar.start()
    return bar
