"""How far a transfer or a reading is: a bar on a terminal, a line now and then elsewhere, nothing if it is short."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from rich.progress import Progress

_QUIET_SECONDS = 2.0
_LINE_SECONDS = 10.0


def megabytes(count: int) -> str:
    """A number of bytes as people read it.

    >>> megabytes(1_290_000_000), megabytes(87_654_321), megabytes(1234), megabytes(0)
    ('1.29 GB', '87.7 MB', '1.23 kB', '0 B')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            decimals = 2 if count < 10 * size else 1 if count < 100 * size else 0
            return f"{count / size:,.{decimals}f} {unit}"
    return f"{count} B"


@final
class TransferProgress:
    """A view on one transfer, on standard error.

    Args:
        what: for example "downloading reddit.zip".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + _QUIET_SECONDS
        self._terminal = sys.stderr.isatty()
        self._bar: Progress | None = None

    def __enter__(self) -> TransferProgress:
        return self

    def show(self, done: int, total: int | None) -> None:
        """`done` bytes of `total` have arrived; None if the server does not say how many there are."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        elif time.monotonic() >= self._next:
            if self._terminal:
                self._bar = _bar(self._what, done, total)
            else:
                of = "" if total is None else f" of {megabytes(total)} ({100 * done // max(total, 1)}%)"
                print(f"{self._what}: {megabytes(done)}{of}", file=sys.stderr, flush=True)
                self._next = time.monotonic() + _LINE_SECONDS

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar(what: str, done: int, total: int | None) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(bar_width=24), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(compact=True))
    bar = Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True))
    bar.add_task(what, completed=done, total=total)
    bar.start()
    return bar
