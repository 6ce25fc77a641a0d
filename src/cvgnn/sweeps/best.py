"""The best recipes run over seeds: the test accuracy at the best validation epoch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, final

from cvgnn.config import TrainConfig
from cvgnn.experiments.best_recipes import BEST_DATASETS, best_recipe
from cvgnn.sweeps.jobs import Job
from cvgnn.sweeps.pool import Outcome
from cvgnn.sweeps.reproduce import done
from cvgnn.sweeps.summary import settings
from cvgnn.sweeps.tables import as_json, as_tex, booktabs, cell, markdown, mean_of, tex

NOTE = (
    "test at best validation: the test accuracy of the epoch with the highest validation accuracy (the number to stand "
    "for); highest test: of any epoch, a choice by test accuracy. Mean ± standard deviation over runs, in %."
)
HEADER = ("recipe", "test at best validation", "validation", "highest test", "runs", "s a run")


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class BestPlan:
    """What to run.

    Args:
        datasets: of the recipes.
        runs: seeds `first .. first + runs - 1`.
        changes: fields of the config that differ from the recipes.
    """

    datasets: tuple[str, ...] = BEST_DATASETS
    runs: int = 10
    first: int = 0
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def config(self, dataset: str, run: int) -> TrainConfig:
        """The config of one run."""
        return dataclasses.replace(best_recipe(dataset, run=run), **{"threads": 1, **self.changes})

    def configs(self, dataset: str) -> list[TrainConfig]:
        """All runs on a data set."""
        return [self.config(dataset, run) for run in range(self.first, self.first + self.runs)]

    def listed(self) -> list[list[str]]:
        """The recipes as options of `cvgnn train`."""
        return [[f"{dataset}_best", options(best_recipe(dataset))] for dataset in self.datasets]


def options(config: TrainConfig) -> str:
    """What a config changes of the defaults, as words of the command line.

    >>> options(TrainConfig(lr=0.5, num_neighbors=(5,)))
    '--num-neighbors 5 --lr 0.5'
    """
    defaults = TrainConfig()
    words = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value != getattr(defaults, field.name) and field.name != "seed":
            spelled = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words.append(f"--{field.name.replace('_', '-')} {spelled}")
    return " ".join(words)


LIVE = ("recipe", "test at best validation", "validation", "runs")


def live(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The table while it grows, with what is known so far; the columns are `LIVE`."""
    table = []
    for dataset in dict.fromkeys(job.source.name for job in jobs):
        total = sum(job.source.name == dataset for job in jobs)
        ended = [outcome for outcome in outcomes if outcome.job.source.name == dataset]
        found = settings(ended)
        accuracies = (cell(found[0] if found else None, key) for key in ("test_accuracy", "val_accuracy"))
        table.append([f"{dataset}_best", *accuracies, done(total, ended)])
    return table


def rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The table for people."""
    table = []
    for s in settings(outcomes):
        if s.seconds is not None:
            accuracies = (cell(s, key) for key in ("test_accuracy", "val_accuracy", "max_test_accuracy"))
            table.append([f"{s.dataset}_best", *accuracies, str(len(s.results)), f"{s.seconds:.1f}"])
    return table


def note(outcomes: Sequence[Outcome]) -> str:
    """What the numbers are."""
    return NOTE


def files(
    outcomes: Sequence[Outcome], *, command: str, machine: Mapping[str, Any], missing: Sequence[str] = ()
) -> dict[str, Any]:
    """`table.md`, `table.tex` and the content of `table.json`; see `cvgnn.sweeps.reproduce.files`."""
    cells = settings(outcomes)
    failures = [f"{o.job.label}: {o.reason}" for o in outcomes if o.result is None]
    text = [f"# Best recipes\n\n{NOTE}\n", markdown(HEADER, rows(outcomes))]
    text.append(f"\nCommand: `{command}`\n\nMachine: {', '.join(f'{k} {v}' for k, v in machine.items())}.")
    for heading, reasons in (("Failed", failures), ("Not run", missing)):
        if reasons:
            text.append(f"\n{heading}:\n\n" + "\n".join(f"- {reason}" for reason in reasons))
    means = {s.dataset: mean for s in cells if (mean := mean_of(s, "test_accuracy")) is not None}
    lines = [[tex(name), as_tex(mean)] for name, mean in means.items()]
    caption = r"Test accuracy (\%) at the best validation epoch, mean $\pm$ standard deviation over runs"
    return {
        "table.md": "\n".join(text) + "\n",
        "table.tex": booktabs(["Dataset", "Test"], lines, caption=caption, label="tab:best"),
        "table.json": {
            "command": command,
            "machine": dict(machine),
            "note": NOTE,
            "cells": [as_json(s) for s in cells],
            "failures": failures,
            "not_run": list(missing),
        },
    }
