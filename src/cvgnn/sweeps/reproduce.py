"""The paper's Table 5: its tuned settings run again, its protocol beside the honest one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, final

from cvgnn.config import TrainConfig
from cvgnn.experiments.recipes import (
    PAPER_DATASETS,
    PAPER_OPTIMIZERS,
    paper_accuracy,
    paper_grid,
    paper_recipe,
    paper_runs,
)
from cvgnn.sweeps.jobs import Job, shown
from cvgnn.sweeps.pool import Outcome
from cvgnn.sweeps.summary import Setting, settings
from cvgnn.sweeps.tables import Mean, as_json, booktabs, cell, markdown, marked, mean_of, tex

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
        runs: seeds `first .. first + runs - 1`; run i has the same initial weights for every optimizer. The paper's
            number for each data set if not given.
        changes: fields of the config that differ from the recipes, such as `scheme`, `form`, `estimator`, `epochs`.
    """

    datasets: tuple[str, ...]
    optimizers: tuple[str, ...] = PAPER_OPTIMIZERS
    runs: int | None = None
    first: int = 0
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def runs_of(self, dataset: str) -> int:
        """How many runs a cell has."""
        return paper_runs(dataset) if self.runs is None else self.runs

    def config(self, dataset: str, optimizer: str, run: int) -> TrainConfig:
        """The config of one run."""
        recipe = paper_recipe(dataset, optimizer, run=run)
        return dataclasses.replace(recipe, **{"threads": 1, **self.changes})

    def configs(self, dataset: str) -> list[TrainConfig]:
        """All runs on a data set; runs of a cell lie together."""
        runs = range(self.first, self.first + self.runs_of(dataset))
        return [self.config(dataset, optimizer, run) for optimizer in self.optimizers for run in runs]

    def listed(self) -> str:
        """The settings of every cell and the grids that they were chosen from, in words."""
        table, grids = [], []
        for dataset in self.datasets:
            for optimizer in self.optimizers:
                c = self.config(dataset, optimizer, self.first)
                numbers = (c.lr, c.num_neighbors[0], c.batch_size, c.hidden, c.weight_decay, c.dropout, c.epochs)
                runs = str(self.runs_of(dataset))
                table.append([dataset, optimizer, c.form, *(f"{n:g}" for n in numbers), runs])
            grid = paper_grid(dataset)
            names = ("lr", "num_neighbors", "batch_size")
            grids.append([dataset, *(", ".join(map(shown, grid[name])) for name in names)])
        header = ("dataset", "lr", "neighbors", "batch size")
        parts = (
            "the paper's tuned settings (Appendix B) with its fixed ones (Table 4); form: of the optimizers, torch's "
            "is the one that reproduces Table 5",
            markdown(_SETTINGS, table),
            "the grids that they were chosen from (Table 3), for every optimizer; cvgnn sweep --paper DATASET runs one",
            markdown(header, grids),
        )
        return "\n\n".join(parts)


_SETTINGS = (
    "dataset", "optimizer", "form", "lr", "neighbors", "batch size", "hidden", "weight decay", "dropout", "epochs",
    "runs",
)  # fmt: skip
HEADER = ("dataset", "optimizer", "paper", "paper protocol", "difference", "validation protocol", "s a run")
LIVE = ("dataset", "optimizer", "paper", "paper protocol", "validation", "runs")


def live(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The table while it grows: a row for each cell, with what is known so far; the columns are `LIVE`."""
    table = []
    for cell_of, (total, ended) in _by_cell(jobs, outcomes).items():
        found = settings(ended)
        known = found[0] if found else None
        paper = _published(*cell_of)
        protocols = (cell(known, key) for key in ("max_test_accuracy", "test_accuracy"))
        table.append([*cell_of, "-" if paper is None else f"{paper:.2f}", *protocols, done(total, ended)])
    return table


def done(total: int, ended: Sequence[Outcome]) -> str:
    """How many runs of a cell have ended, and how many of them badly."""
    failed = sum(outcome.result is None for outcome in ended)
    return f"{len(ended)}/{total}" + (f" ({failed} failed)" if failed else "")


def _by_cell(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> dict[tuple[str, str], tuple[int, list[Outcome]]]:
    """The number of runs of each data set and optimizer, and those that have ended."""
    cells: dict[tuple[str, str], tuple[int, list[Outcome]]] = {}
    for job in jobs:
        total, ended = cells.get(_cell(job), (0, []))
        cells[_cell(job)] = (total + 1, ended)
    for outcome in outcomes:
        cells[_cell(outcome.job)][1].append(outcome)
    return cells


def _cell(job: Job) -> tuple[str, str]:
    return str(job.source.name), job.config.optimizer


def rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The table for people: a row for each cell of Table 5 that has a finished run."""
    table = []
    for setting in settings(outcomes):
        if setting.seconds is None:
            continue
        paper = published(setting)
        table.append(
            [
                setting.dataset,
                setting.options["optimizer"],
                "-" if paper is None else f"{paper:.2f}",
                cell(setting, "max_test_accuracy"),
                _difference(setting),
                cell(setting, "test_accuracy"),
                f"{setting.seconds:.1f}",
            ]
        )
    return table


def _difference(setting: Setting) -> str:
    paper, ours = published(setting), setting.mean("max_test_accuracy")
    return "-" if paper is None or ours is None else f"{100 * ours - paper:+.2f}"


def published(setting: Setting) -> float | None:
    """The cell of Table 5 in percent; None for a data set that the paper does not have."""
    return _published(setting.dataset, setting.options["optimizer"])


def _published(dataset: str, optimizer: str) -> float | None:
    return paper_accuracy(dataset, optimizer) if dataset in PAPER_DATASETS else None


def note(outcomes: Sequence[Outcome]) -> str:
    """What the numbers are, and whether they may be compared with the paper's."""
    changes = _changes(settings(outcomes))
    return NOTE if not changes else f"{NOTE} {_warning(changes)}"


def _warning(changes: Sequence[str]) -> str:
    words = ", ".join(changes)
    return f"Not the paper's experiment ({words}): its numbers and the differences from them are no reproduction."


def _changes(cells: Sequence[Setting]) -> list[str]:
    """The options in which cells of Table 5 are not what the paper ran; its draw is told apart by `scheme`."""
    found: dict[str, None] = {}
    for setting in cells:
        if published(setting) is None:
            continue
        recipe = paper_recipe(setting.dataset, setting.options["optimizer"]).to_dict()
        for name, value in setting.options.items():
            papers = ("paper", "released") if name == "scheme" else ()
            if name != "threads" and value != recipe[name] and value not in papers:
                found[f"{name}={shown(value)}"] = None
    return list(found)


def files(
    outcomes: Sequence[Outcome], *, command: str, machine: Mapping[str, Any], missing: Sequence[str] = ()
) -> dict[str, Any]:
    """`table.md`, `table.tex` and the content of `table.json`.

    Args:
        outcomes: of all runs.
        command, machine: where they come from.
        missing: what was asked for and could not be run, each with its reason.
    """
    cells = settings(outcomes)
    failures = [f"{o.job.label}: {o.reason}" for o in outcomes if o.result is None]
    about = f"Command: `{command}`\n\nMachine: {', '.join(f'{k} {v}' for k, v in machine.items())}."
    text = [f"# Table 5\n\n{note(outcomes)}\n", markdown(HEADER, rows(outcomes)), f"\n{about}"]
    for heading, lines in (("Failed", failures), ("Not run", missing)):
        if lines:
            text.append(f"\n{heading}:\n\n" + "\n".join(f"- {line}" for line in lines))
    return {
        "table.md": "\n".join(text) + "\n",
        "table.tex": _latex(cells),
        "table.json": {
            "command": command,
            "machine": dict(machine),
            "note": note(outcomes),
            "cells": [{"paper": published(s), **as_json(s)} for s in cells],
            "failures": failures,
            "not_run": list(missing),
        },
    }


_PROTOCOLS = {
    "max_test_accuracy": r"Maximum over epochs of the test accuracy (\%), averaged over runs (the paper's protocol)",
    "test_accuracy": r"Test accuracy (\%) at the best validation epoch, averaged over runs",
}
_MARKS = r"\textbf{Bold} indicates the best result for a data set, \underline{underlined} the second best."


def _latex(cells: Sequence[Setting]) -> str:
    """Table 5 by either protocol, and a table with all that is known of each cell."""
    table: dict[str, dict[str, Setting]] = {}
    for setting in cells:
        if setting.results:
            table.setdefault(setting.dataset, {})[setting.options["optimizer"]] = setting
    optimizers = [o for o in PAPER_OPTIMIZERS if any(o in row for row in table.values())]
    changes = _changes(cells)
    warning = f" {tex(_warning(changes))}" if changes else ""
    tables = []
    for key, words in _PROTOCOLS.items():
        lines = []
        for dataset, row in table.items():
            found = _marked(row, key)
            lines.append([tex(dataset), *(found.get(o, "--") for o in optimizers)])
        caption = rf"{words}, $\pm$ standard deviation. {_MARKS}{warning}"
        tables.append(booktabs(["Dataset", *optimizers], lines, caption=caption, label=f"tab:{key.replace('_', '-')}"))
    caption = (
        r"Test accuracy (\%) of the paper and of our runs by both protocols, mean $\pm$ standard deviation over runs; "
        rf"seconds of a run, training and evaluation. {_MARKS}{warning}"
    )
    header = (
        "Dataset",
        "Optimizer",
        "Paper",
        "Paper's protocol",
        "Difference",
        "Validation protocol",
        "Runs",
        "Seconds",
    )
    return "\n".join([*tables, booktabs(header, _details(table), caption=caption, label="tab:protocols")])


def _details(table: Mapping[str, Mapping[str, Setting]]) -> list[list[str]]:
    """A line for each cell, a rule between data sets."""
    lines: list[list[str]] = []
    for dataset, row in table.items():
        lines += [[]] if lines else []
        numbers = {o: (number, None) for o, s in row.items() if (number := published(s)) is not None}
        columns = [marked(numbers), _marked(row, "max_test_accuracy"), _marked(row, "test_accuracy")]
        for i, (optimizer, s) in enumerate(row.items()):
            paper, ours, honest = (column.get(optimizer, "--") for column in columns)
            difference = "--" if optimizer not in numbers else f"${_difference(s)}$"
            names = ["" if i else tex(dataset), tex(optimizer)]
            lines.append([*names, paper, ours, difference, honest, str(len(s.results)), f"{s.seconds:.1f}"])
    return lines


def _marked(row: Mapping[str, Setting], key: str) -> dict[str, str]:
    means: dict[str, Mean] = {o: mean for o, s in row.items() if (mean := mean_of(s, key)) is not None}
    return marked(means)
