"""`cvgnn tune`: the best settings for a graph that can be found in so many minutes."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from cvgnn.cli.argv import parse, require_at_least
from cvgnn.config import GraphSource
from cvgnn.errors import Stopped, require_number
from cvgnn.registry import plugin_options

if TYPE_CHECKING:
    from cvgnn.lab.search.study import Trial
    from cvgnn.training import EpochRecord


@dataclass(frozen=True, kw_only=True)
class TuneCommand:
    """Find good settings for a graph in a given time, by validation accuracy.

    cvgnn tune --graph my_graph.npz --minutes 20 --out runs/tuned
    Starts with the defaults, tries others from a space that fits the graph, and stops those that fall behind. Ends with
    the best settings and the command that trains with them. The same command goes on for as many minutes more.
    Needs Optuna: pip install 'cvgnn[search]'.
    """

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    minutes: float = 10.0
    """How long to try settings; the first one, the defaults, is always trained to its end."""

    set: tuple[str, ...] = ()
    """Options of every run, such as model=gcn; they are not tuned."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/tune")
    """Folder for the study, all trials (search.json) and the best settings (best.toml)."""

    sampler_seed: int | None = None
    """Seed of the choice of settings."""


def tune_command(argv: Sequence[str]) -> int:
    """Parse the options, tune with a progress bar, print the best settings."""
    command = parse(TuneCommand, argv, prog="cvgnn tune")
    require_number("--minutes", command.minutes, "a number above 0", above=0.0)
    require_at_least(command, sampler_seed=0)

    from cvgnn.cli.output import set_result
    from cvgnn.cli.runs_progress import TimeProgress, trial_line
    from cvgnn.lab.search.search_plan import table
    from cvgnn.lab.search.study import ended, require_optuna
    from cvgnn.lab.search.tuner import tune
    from cvgnn.lab.sweep.grid import parse_options
    from cvgnn.training.callbacks import line
    from cvgnn.training.graph_source import load_source

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
        view.show(
            f"best of {len(ended(found.trials)) + pruned} trials, {pruned} of them stopped early (one seed each, in %; "
            f"chosen by validation accuracy):\n{table(found.plan, found.trials)}\ntrain with: {train}"
        )
    view.show(f"written to {command.out}: {', '.join(found.files)}")
    if found.stopped is not None:
        raise Stopped(found.stopped, "stopped; the same command goes on with the trial that was interrupted")
    return 0 if found.config is not None else 1
