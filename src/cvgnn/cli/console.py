"""Progress and result of a training run: a bar on a terminal, else one line per epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from cvgnn.cli.output import Output
from cvgnn.cli.progress_bar import BAR, TEXT, ProgressBar
from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.training import Callback, EpochRecord, Metrics, Trainer
from cvgnn.training.callbacks import format_metric, line
from cvgnn.training.tasks import METRICS
from cvgnn.utils.formatting import format_bytes


@final
class TrainProgress(Callback):
    """Shows the progress and the result of a run.

    Args:
        graph, config: of the run.
        ignore_write_errors: see `Output`.
    """

    def __init__(self, graph: Graph, config: TrainConfig, *, ignore_write_errors: bool = False) -> None:
        output = Output(ignore_write_errors=ignore_write_errors)
        self._print = output.show
        self._config = config
        self._progress_line = output.progress
        self._graph = graph
        self._metrics: Metrics = {}  # the last ones; the bar shows them until the next evaluation
        columns = ("epoch", MofNCompleteColumn(), BAR, TEXT, TimeRemainingColumn(compact=True))
        room = 2 * len(str(config.epochs)) + 23  # the count, and a small bar
        self._bar = ProgressBar(output, config.epochs, *columns, room=room)

    def header(self) -> None:
        """Print the graph and the settings."""
        c = self._config
        sampled = f"{', '.join(map(str, c.num_neighbors))} neighbors {c.scheme}"
        self._progress_line(str(self._graph))
        self._progress_line(
            f"{c.layers} {c.model} layers of width {c.hidden}, norm {c.norm}, dropout {c.dropout:g}, "
            f"{c.estimator} with {'all neighbors' if c.estimator == 'exact' else sampled}, "
            f"{c.optimizer} ({c.form}'s form), lr {c.lr:g}, "
            f"batches of {c.batch_size}, seed {c.seed}"
        )

    def on_start(self, trainer: Trainer, records: Sequence[EpochRecord]) -> None:
        """Start the bar."""
        self._bar.__enter__()

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Advance the bar, or print a line."""
        if self._bar.is_shown:
            self._metrics = record.metrics if record.is_evaluated else self._metrics
            self._bar.move(record.epoch, line(replace(record, metrics=self._metrics)))
        else:
            self._progress_line(f"epoch {record.epoch}/{self._config.epochs}  {line(record)}")

    def on_end(self, trainer: Trainer, error: BaseException | None) -> None:
        """Stop the bar."""
        self._bar.__exit__()

    def summary(self, result: dict[str, Any], out: Path | None) -> None:
        """Print the result."""
        show, metric = self._print, result["metric"]
        highest, top = ("highest", "max") if METRICS[metric].larger_is_better else ("lowest", "min")

        def value(prefix: str) -> str:
            return format_metric(f"test_{metric}", result[f"{prefix}_{metric}"])

        if result["skipped_steps"]:
            show(f"{result['skipped_steps']} steps were skipped: their loss or gradient was infinite or NaN")
        if result["epochs"] < self._config.epochs:
            waited = f"{self._config.patience} epochs without a better validation {metric}"
            show(f"stopped early, after epoch {result['epochs']}: {waited}")
        if result["best_epoch"] is not None:
            show(
                f"test {metric} {value('test')} at the best validation epoch, "
                f"{result['best_epoch']} (validation {value('val')})"
            )
        chosen = f"(chosen by test {metric}: the paper's protocol)"
        show(f"{highest} test {metric} of any epoch {value(f'{top}_test')} {chosen}")
        if result["output"] != "best":
            at = "" if result["output_iteration"] is None else f" (iterate {result['output_iteration']})"
            show(f"test {metric} of the returned weights, {result['output']}{at}: {value('output_test')}")
        show(
            f"{result['iterations']} iterations: {result['setup_seconds']:.2f} s set-up, "
            f"{result['train_seconds']:.2f} s training, "
            f"{result['eval_seconds']:.2f} s evaluation, peak memory {format_bytes(result['peak_rss_bytes'])}"
        )
        if out is not None:
            show(f"written to {out}")
