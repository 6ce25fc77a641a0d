"""The paper's Table 5: its tuned settings run again, its protocol beside the honest one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, final

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.experiments.recipes import PAPER_DATASETS, PAPER_OPTIMIZERS, paper_accuracy, paper_recipe
from cvgnn.sweeps.jobs import Job, make_jobs
from cvgnn.sweeps.pool import Outcome
from cvgnn.sweeps.summary import Setting, settings
from cvgnn.sweeps.tables import as_json, booktabs, cell, markdown

NOTE = (
    "paper protocol: the maximum over epochs of the test accuracy, averaged over runs (a choice by test accuracy, to "
    "compare with the paper); validation protocol: the test accuracy at the best validation epoch (the number to stand "
    "for). Mean ± standard deviation over runs, in %."
)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What to reproduce.

    Args:
        datasets, optimizers: rows and columns.
        runs: seeds `first .. first + runs - 1`; run i has the same initial weights for every optimizer.
        changes: fields of the config that differ from the recipes, such as `scheme`, `form`, `estimator`, `epochs`.
    """

    datasets: tuple[str, ...]
    optimizers: tuple[str, ...] = PAPER_OPTIMIZERS
    runs: int = 3
    first: int = 0
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def config(self, dataset: str, optimizer: str, run: int) -> TrainConfig:
        """The config of one run."""
        recipe = paper_recipe(dataset, optimizer, run=run)
        return dataclasses.replace(recipe, **{"threads": 1, **self.changes})

    def jobs(self, sources: Mapping[str, GraphSource]) -> list[Job]:
        """All runs, data set by data set; runs of a cell lie together."""
        runs, jobs = range(self.first, self.first + self.runs), []
        for dataset in self.datasets:
            configs = [self.config(dataset, optimizer, run) for optimizer in self.optimizers for run in runs]
            jobs += make_jobs(sources[dataset], configs)
        return jobs

    def listed(self) -> list[list[str]]:
        """The settings of every cell in words; the columns are `SETTINGS`."""
        table = []
        for dataset in self.datasets:
            for optimizer in self.optimizers:
                c = self.config(dataset, optimizer, self.first)
                numbers = (c.lr, c.num_neighbors[0], c.batch_size, c.hidden, c.weight_decay, c.dropout, c.epochs)
                table.append([dataset, optimizer, *(f"{n:g}" for n in numbers), str(self.runs)])
        return table


SETTINGS = (
    "dataset", "optimizer", "lr", "neighbors", "batch size", "hidden", "weight decay", "dropout", "epochs", "runs",
)  # fmt: skip
HEADER = ("dataset", "optimizer", "paper", "paper protocol", "difference", "validation protocol", "s a run")


def rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The table for people: a row for each cell of Table 5 that has a finished run."""
    table = []
    for setting in settings(outcomes):
        if not setting.results:
            continue
        paper = published(setting)
        ours = setting.mean("max_test_accuracy")
        seconds = [sum(r.get(k) or 0.0 for k in ("train_seconds", "eval_seconds")) for r in setting.results]
        table.append(
            [
                setting.dataset,
                setting.options["optimizer"],
                "-" if paper is None else f"{paper:.2f}",
                cell(setting, "max_test_accuracy"),
                "-" if paper is None or ours is None else f"{100 * ours - paper:+.2f}",
                cell(setting, "test_accuracy"),
                f"{sum(seconds) / len(seconds):.1f}",
            ]
        )
    return table


def published(setting: Setting) -> float | None:
    """The cell of Table 5 in percent; None for a data set that the paper does not have."""
    in_paper = setting.dataset in PAPER_DATASETS
    return paper_accuracy(setting.dataset, setting.options["optimizer"]) if in_paper else None


def files(outcomes: Sequence[Outcome], *, command: str, machine: Mapping[str, Any]) -> dict[str, Any]:
    """`table.md`, `table.tex` and the content of `table.json`."""
    cells = settings(outcomes)
    failures = [f"{o.job.label}: {o.reason}" for o in outcomes if o.result is None]
    about = f"Command: `{command}`\n\nMachine: {', '.join(f'{k} {v}' for k, v in machine.items())}."
    text = [f"# Table 5\n\n{NOTE}\n", markdown(HEADER, rows(outcomes)), f"\n{about}"]
    if failures:
        text.append("\nFailed:\n\n" + "\n".join(f"- {failure}" for failure in failures))
    return {
        "table.md": "\n".join(text) + "\n",
        "table.tex": "\n".join(_latex(cells, key, words) for key, words in _PROTOCOLS.items()),
        "table.json": {
            "command": command,
            "machine": dict(machine),
            "note": NOTE,
            "cells": [{"paper": published(s), **as_json(s)} for s in cells],
            "failures": failures,
        },
    }


_PROTOCOLS = {
    "max_test_accuracy": "Maximum over epochs of the test accuracy (\\%), averaged over runs (the paper's protocol)",
    "test_accuracy": "Test accuracy (\\%) at the best validation epoch, averaged over runs",
}


def _latex(cells: Sequence[Setting], key: str, caption: str) -> str:
    table: dict[str, dict[str, float]] = {}
    for setting in cells:
        mean = setting.mean(key)
        if mean is not None:
            table.setdefault(setting.dataset, {})[setting.options["optimizer"]] = 100 * mean
    columns = [o for o in PAPER_OPTIMIZERS if any(o in row for row in table.values())]
    marks = r". \textbf{Bold} indicates the best result for a data set, \underline{underlined} the second best."
    return booktabs(columns, table, caption=caption + marks, label=f"tab:{key.replace('_', '-')}")
