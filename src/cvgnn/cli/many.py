"""What a person sees of many runs: a live table and a bar with the time that remains, or a line for each when piped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import final

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from cvgnn.cli.console import percent
from cvgnn.cli.output import Output
from cvgnn.experiments.machine import cores
from cvgnn.sweeps import Job, Outcome

Rows = Callable[[Sequence[Outcome]], list[list[str]]]
_BAR_WIDTH = 24


def workers_for(jobs: Sequence[Job]) -> int:
    """As many runs at a time as there are cores for the one with the most threads."""
    return max(1, cores() // max((job.config.threads or 1 for job in jobs), default=1))


def line(outcome: Outcome) -> str:
    """An ended run in words."""
    if outcome.result is None:
        return f"{outcome.job.label}  FAILED: {outcome.reason}"
    r = outcome.result
    known = "  (finished before)" if outcome.state == "before" else ""
    return f"{outcome.job.label}  val {percent(r['val_accuracy'])}  test {percent(r['test_accuracy'])}{known}"


@final
class ManyRuns:
    """A view on a sweep.

    Args:
        total: how many runs there are.
        header, rows: of a table that grows with the outcomes, for a terminal; none if not given.
    """

    def __init__(self, total: int, *, header: Sequence[str] = (), rows: Rows | None = None) -> None:
        output = Output(must_go_on=True)
        self._console, self.show_line, self.say = output.console, output.show, output.say
        self._total = total
        self._done = self._before = 0
        self._table = None if rows is None else GrowingTable(header, rows)
        self._start = time.monotonic()
        self._progress: Progress | None = None
        self._live: Live | None = None

    def __enter__(self) -> ManyRuns:
        if self._console.is_interactive:
            columns = (MofNCompleteColumn(), BarColumn(_BAR_WIDTH), TextColumn("{task.description}"))
            self._progress = Progress(TextColumn("runs"), *columns, console=self._console)
            self._progress.add_task("", total=self._total)
            shown = self._progress if self._table is None else Group(self._table, self._progress)
            self._live = Live(shown, console=self._console, transient=self._table is not None, refresh_per_second=4)
            self._live.start()
        return self

    def show(self, outcome: Outcome) -> None:
        """One more run has ended."""
        self._done += 1
        self._before += outcome.state == "before"
        if self._table is not None:
            self._table.outcomes.append(outcome)
        if self._progress is not None:
            text = self._left() + ("" if self._table is not None else f"  {line(outcome)}")
            room = self._console.width - _BAR_WIDTH - 2 * len(str(self._total)) - 10  # beside the count and the bar
            self._progress.update(self._progress.task_ids[0], completed=self._done, description=text[: max(0, room)])
            if outcome.result is None:
                self.show_line(line(outcome))
        elif outcome.state != "before":
            self.show_line(f"{self._done}/{self._total}  {line(outcome)}  ({self._left()})")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        if self._before:
            self.show_line(f"{self._before} of {self._total} runs were finished before")

    def _left(self) -> str:
        now = self._done - self._before
        seconds = (time.monotonic() - self._start) / max(1, now) * (self._total - self._done)
        return f"{timedelta(seconds=int(seconds)) if now else '-:--:--'} left"


@final
class GrowingTable:
    """A table on a terminal; where it is higher than the terminal, the part in which a run ended last.

    Args:
        header, rows: its columns, and its rows for the outcomes so far, which are always of the same number.
    """

    def __init__(self, header: Sequence[str], rows: Rows) -> None:
        self.outcomes: list[Outcome] = []
        self._header, self._make = header, rows
        self._rows = rows([])
        self._last = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._make(list(self.outcomes))
        changed = [i for i, (old, new) in enumerate(zip(self._rows, rows, strict=True)) if old != new]
        self._rows, self._last = rows, changed[-1] if changed else self._last
        room = max(1, console.height - 6)  # the frame, the bar, the line that says what is not shown
        first = max(0, min(self._last - room // 2, len(self._rows) - room))
        hidden = len(self._rows) - room
        table = Table(caption=f"{hidden} more rows" if hidden > 0 else None, caption_justify="left")
        for name in self._header:
            table.add_column(name, no_wrap=True)
        for row in self._rows[first : first + room]:
            table.add_row(*row)
        yield table
