"""What a person sees of a run: a live bar on a terminal, plain lines when piped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from cvgnn.cli.output import Output
from cvgnn.config import TrainConfig
from cvgnn.graph import Graph
from cvgnn.training import Accuracies, EpochRecord


def percent(share: float | None) -> str:
    """An accuracy as people read it.

    >>> percent(0.7105), percent(None)
    ('71.05%', '-')
    """
    return "-" if share is None else f"{100 * share:.2f}%"


def line(record: EpochRecord) -> str:
    """An epoch in words."""
    a = record.accuracies
    text = f"loss {record.loss:.4f}"
    if a is not None:
        text += f"  train {percent(a.train)}  val {percent(a.val)}  test {percent(a.test)}"
    return text


@final
class Console:
    """A view on a run's records; it decides nothing.

    Args:
        graph, config: of the run.
        must_go_on: see `Output`.
    """

    def __init__(self, graph: Graph, config: TrainConfig, *, must_go_on: bool = False) -> None:
        output = Output(must_go_on=must_go_on)
        self._console, self._print, self.say = output.console, output.show, output.say
        self._graph = graph
        self._config = config
        self._progress: Progress | None = None
        self._accuracies: Accuracies | None = None  # the last measured: the bar shows them until the next
        self._task = TaskID(0)

    def __enter__(self) -> Console:
        c = self._config
        self._print(str(self._graph))
        drawn = (
            "all neighbors"
            if c.estimator == "exact"
            else f"{', '.join(map(str, c.num_neighbors))} neighbors {c.scheme}"
        )
        self._print(
            f"{c.layers} layers of width {c.hidden}, {c.estimator} with {drawn}, {c.optimizer} ({c.form}'s form), "
            f"lr {c.lr:g}, batches of {c.batch_size}, seed {c.seed}"
        )
        if self._console.is_interactive:
            self._progress = Progress(
                TextColumn("epoch"),
                MofNCompleteColumn(),
                BarColumn(bar_width=24),
                TextColumn("{task.description}"),
                TimeRemainingColumn(compact=True),
                console=self._console,
            )
            self._task = self._progress.add_task("starting", total=c.epochs)
            self._progress.start()
        return self

    def show(self, record: EpochRecord) -> None:
        """One more epoch is done."""
        if self._progress is not None:
            self._accuracies = record.accuracies or self._accuracies
            text = line(replace(record, accuracies=self._accuracies))
            room = self._console.width - 2 * len(str(self._config.epochs)) - 23  # beside the count and a small bar
            self._progress.update(self._task, completed=record.epoch, description=text[: max(0, room)])
        else:
            self._print(f"epoch {record.epoch}/{self._config.epochs}  {line(record)}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def summary(self, result: dict[str, Any], out: Path | None) -> None:
        """The result in a few lines, with what each number is."""
        show = self._print
        if result["skipped_steps"]:
            show(f"{result['skipped_steps']} steps were skipped: their loss or gradient was infinite or NaN")
        if result["epochs"] < self._config.epochs:
            waited = f"{self._config.patience} epochs without a higher validation accuracy"
            show(f"stopped early, after epoch {result['epochs']}: {waited}")
        if result["best_epoch"] is not None:
            show(
                f"test accuracy {percent(result['test_accuracy'])} at the best validation epoch, "
                f"{result['best_epoch']} (validation {percent(result['val_accuracy'])})"
            )
        highest = percent(result["max_test_accuracy"])
        show(f"highest test accuracy of any epoch {highest} (chosen by test accuracy: the paper's protocol)")
        if result["output"] != "best":
            at = "" if result["output_iteration"] is None else f" (iterate {result['output_iteration']})"
            returned = percent(result["output_test_accuracy"])
            show(f"test accuracy of the returned weights, {result['output']}{at}: {returned}")
        show(
            f"{result['iterations']} iterations: {result['train_seconds']:.2f} s training, "
            f"{result['eval_seconds']:.2f} s evaluation, peak memory {result['peak_rss_bytes'] / 2**20:.0f} MiB"
        )
        if out is not None:
            show(f"written to {out}")
