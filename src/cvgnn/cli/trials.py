"""What a person sees of a search: a bar over its trials, or a line for each when piped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cvgnn.cli.output import Output
from cvgnn.sweeps.jobs import shown
from cvgnn.sweeps.summary import highest
from cvgnn.sweeps.tables import percent
from cvgnn.sweeps.trials import Trial


def line(trial: Trial) -> str:
    """An ended trial in words."""
    words = " ".join(f"{name}={shown(value)}" for name, value in trial.params.items())
    accuracy = percent(trial.mean("val_accuracy"), trial.deviation("val_accuracy"))
    ending = f"val {accuracy}%" if trial.reason is None else f"FAILED: {trial.reason}"
    return f"trial {trial.number}  {words}  {ending}"


@final
class TrialsView:
    """A view on a search.

    Args:
        total: how many trials the study is to have.
    """

    def __init__(self, total: int) -> None:
        output = Output(must_go_on=True)
        self._console, self.show_line, self.say = output.console, output.show, output.say
        self._total = total
        self._ended: list[Trial] = []
        self._progress: Progress | None = None

    @contextmanager
    def running(self, before: Sequence[Trial]) -> Iterator[None]:
        """While the search runs; the study had these trials before."""
        self._ended = list(before)
        if before:
            self.show_line(f"the study has {len(before)} of {self._total} trials{self._best()}")
        if not self._console.is_interactive:
            yield
            return
        columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(TextColumn("trials"), *columns, console=self._console) as self._progress:
            self._progress.add_task("", total=self._total, completed=len(before))
            yield

    def show(self, trial: Trial) -> None:
        """One more trial has ended."""
        self._ended.append(trial)
        if self._progress is None:
            self.show_line(f"{len(self._ended)}/{self._total}  {line(trial)}{self._best()}")
            return
        task = self._progress.task_ids[0]
        self._progress.update(task, completed=len(self._ended), description=(line(trial) + self._best())[:80])
        if trial.reason is not None:
            self.show_line(line(trial))

    def _best(self) -> str:
        best = highest(self._ended, by="validation")
        return "" if best is None else f"  (best: trial {best.number}, {percent(best.mean('val_accuracy'))}%)"
