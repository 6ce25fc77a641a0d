"""What a person sees of many runs: a bar with the time that remains, or a line for each when piped."""

from __future__ import annotations

import time
from types import TracebackType
from typing import final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cvgnn.cli.console import percent
from cvgnn.cli.output import Output
from cvgnn.sweeps import Outcome


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
    """

    def __init__(self, total: int) -> None:
        output = Output(must_go_on=True)
        self._console, self.show_line, self.say = output.console, output.show, output.say
        self._total = total
        self._done = self._before = 0
        self._start = time.monotonic()
        self._progress: Progress | None = None

    def __enter__(self) -> ManyRuns:
        if self._console.is_interactive:
            columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
            self._progress = Progress(TextColumn("runs"), *columns, console=self._console)
            self._progress.add_task("", total=self._total)
            self._progress.start()
        return self

    def show(self, outcome: Outcome) -> None:
        """One more run has ended."""
        self._done += 1
        self._before += outcome.state == "before"
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=self._done, description=line(outcome)[:80])
            if outcome.result is None:
                self.show_line(line(outcome))
        elif outcome.state != "before":
            self.show_line(f"{self._done}/{self._total}  {line(outcome)}  ({self._left()} left)")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()
        if self._before:
            self.show_line(f"{self._before} of {self._total} runs were finished before")

    def _left(self) -> str:
        now = self._done - self._before
        seconds = (time.monotonic() - self._start) / max(1, now) * (self._total - self._done)
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
