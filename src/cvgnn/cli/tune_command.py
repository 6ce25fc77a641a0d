"""`cvgnn tune`: the best settings for a graph that can be found in so many minutes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cvgnn.cli.options import TuneCommand
from cvgnn.cli.output import set_result
from cvgnn.cli.runs_progress import TimeProgress, trial_line
from cvgnn.errors import Stopped
from cvgnn.lab.search.search_plan import table
from cvgnn.lab.search.study import Trial, ended, require_optuna
from cvgnn.lab.search.tuner import tune
from cvgnn.lab.sweep.grid import parse_options
from cvgnn.lab.sweep.result_tables import choice_text
from cvgnn.registry import plugin_options
from cvgnn.training import EpochRecord
from cvgnn.training.callbacks import line
from cvgnn.training.graph_source import load_source


def tune_command(command: TuneCommand, argv: Sequence[str]) -> int:
    """Tune with a progress bar, print the best settings."""
    require_optuna("cvgnn tune")
    options = parse_options(command.set, several="cvgnn search --space")
    view = TimeProgress(command.minutes)

    def show_trial(trial: Trial) -> None:
        view.print(trial_line(trial))

    def show_epoch(record: EpochRecord) -> None:
        view.update(f"epoch {record.epoch}  {line(record)}")

    with view:
        found = tune(
            load_source(command.source, task=str(options.get("task", "auto"))),
            command.out,
            minutes=command.minutes,
            options=options,
            source=command.source,
            sampler_seed=command.sampler_seed,
            command=shlex.join(["cvgnn", "tune", *argv, *plugin_options()]),
            on_trial=show_trial,
            on_epoch=show_epoch,
            warn=view.warn,
        )
    train = shlex.join(["cvgnn", "train", "--settings", str(command.out / "best.toml"), "--out", "DIR"])
    set_result({**found.files["search.json"], "train": train if found.config else None})
    if found.config is not None:
        pruned = sum(trial.state == "pruned" for trial in found.trials)
        how = f"{pruned} of them stopped early (one seed each; {choice_text('validation', [found.plan.metric])})"
        view.show(f"best of {len(ended(found.trials)) + pruned} trials, {how}:\n{table(found.plan, found.trials)}")
        view.show(f"train with: {train}")
    view.show(f"written to {command.out}: {', '.join(found.files)}")
    if found.stopped is not None:
        raise Stopped(found.stopped, "stopped; the same command goes on with the trial that was interrupted")
    return 0 if found.config is not None else 1
