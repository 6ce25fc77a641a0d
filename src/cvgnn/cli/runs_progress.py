"""Progress of runs or trials: a bar, the remaining time and a live table on a terminal, else one line for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import MofNCompleteColumn
from rich.table import Table

from cvgnn.cli.output import Output
from cvgnn.cli.progress_bar import BAR, TEXT, ProgressBar
from cvgnn.lab.sweep import Outcome
from cvgnn.lab.sweep.jobs import format_value
from cvgnn.lab.sweep.summary import SeedResults
from cvgnn.training.machine import cores

if TYPE_CHECKING:
    from cvgnn.lab.search.study import Trial


def default_workers(threads: int) -> int:
    """Runs at a time: as many as there are cores for runs of so many threads."""
    return max(1, cores() // threads)


def outcome_line(outcome: Outcome) -> str:
    """A run that has ended, as text."""
    if outcome.result is None:
        return f"{outcome.job.label}  FAILED: {outcome.reason}"
    return f"{outcome.job.label}  {_values(SeedResults([outcome.result]), 'val', 'test')}"


def trial_line(trial: Trial) -> str:
    """A trial that has ended, as text."""
    options = " ".join(f"{name}={format_value(value)}" for name, value in trial.params.items())
    end = _values(trial, "val") if trial.reason is None else f"FAILED: {trial.reason}"
    end = "stopped early" if trial.state == "pruned" else end
    return f"trial {trial.number}  {options}  {end}"


def _values(results: SeedResults, *names: str) -> str:
    """The metric on some splits, which is named unless it is the accuracy."""
    texts = [f"{name} {results.text(name, unit='%')}" for name in names]
    return "  ".join([*([] if results.metric == "accuracy" else [results.metric]), *texts])


@final
class LiveTable:
    """A table on a terminal. If it is higher than the terminal, only the rows around the last change are shown.

    Args:
        header: names of the columns.
        rows: the cells, given the runs that have ended; the number of rows must not change.
    """

    def __init__(self, header: Sequence[str], rows: Callable[[Sequence[Outcome]], list[list[str]]]) -> None:
        self._header, self._make_rows = header, rows
        self.outcomes: list[Outcome] = []
        self._rows = rows([])
        self._last = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._make_rows(self.outcomes)
        changed = [i for i, (old, new) in enumerate(zip(self._rows, rows, strict=True)) if old != new]
        self._rows, self._last = rows, changed[-1] if changed else self._last
        room = max(1, console.height - 6)  # beside the frame, the bar and the caption
        first = max(0, min(self._last - room // 2, len(rows) - room))
        table = Table(caption=f"{len(rows) - room} more rows" if len(rows) > room else None, caption_justify="left")
        for name in self._header:
            table.add_column(name, no_wrap=True)
        for row in rows[first : first + room]:
            table.add_row(*row)
        yield table


@final
class RunsProgress:
    """Shows the progress of many runs or trials.

    Args:
        total: how many there are.
        unit: their name, such as `"runs"`.
        table: shown above the bar.
    """

    def __init__(self, total: int, unit: str, *, table: LiveTable | None = None) -> None:
        output = Output(ignore_write_errors=True)
        self._console, self.print, self.warn = output.console, output.show, output.warn
        self._progress_line = output.progress
        self._total, self._unit, self._table = total, unit, table
        self._done = self._before = 0
        self._start = time.monotonic()
        room = 2 * len(str(total)) + 34  # the count and the bar
        self._bar = ProgressBar(output, total, unit, MofNCompleteColumn(), BAR, TEXT, room=room, above=table)

    def __enter__(self) -> RunsProgress:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__()
        if self._before:
            self._progress_line(f"{self._before} of {self._total} {self._unit} were finished before")

    def advance(self, line: str = "", *, failed: bool = False, before: bool = False) -> None:
        """Count one more that has ended.

        Args:
            line: about it.
            failed: whether it failed; such a line stays above the bar.
            before: whether an earlier command has finished it.
        """
        self._done += 1
        self._before += before
        now = self._done - self._before
        seconds = (time.monotonic() - self._start) / max(1, now) * (self._total - self._done)
        left = f"{timedelta(seconds=int(seconds)) if now else '-:--:--'} left"
        if self._console.is_interactive:
            self._bar.move(self._done, left if self._table is not None else f"{left}  {line}")
            if failed:
                self.print(line)
        elif not before:
            show = self.print if failed else self._progress_line
            show(f"{self._done}/{self._total}  {line}  ({left})")

    def show(self, outcome: Outcome) -> None:
        """Count a run that has ended."""
        if self._table is not None:
            self._table.outcomes.append(outcome)
        self.advance(outcome_line(outcome), failed=outcome.result is None, before=outcome.state == "before")


@final
class TimeProgress:
    """Shows how much of a given time is over, and what happens.

    Args:
        minutes: the time.
    """

    def __init__(self, minutes: float) -> None:
        output = Output(ignore_write_errors=True)
        self.show, self.warn, self.print = output.show, output.warn, output.progress
        self._seconds, self._end = 60.0 * minutes, time.monotonic() + 60.0 * minutes
        self._bar = ProgressBar(output, self._seconds, BAR, TEXT, room=27)

    def __enter__(self) -> TimeProgress:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__()

    def update(self, text: str) -> None:
        """Move the bar to the present, with a text beside it."""
        left = max(0.0, self._end - time.monotonic())
        self._bar.move(self._seconds - left, f"{timedelta(seconds=int(left))} left  {text}")
