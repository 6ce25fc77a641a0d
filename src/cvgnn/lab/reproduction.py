"""Recipes run over seeds: the paper's Table 5 (its tuned settings, both protocols), and our best recipes."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from cvgnn.config import TrainConfig
from cvgnn.lab import recipes
from cvgnn.lab.recipes import BEST_DATASETS, PAPER_DATASETS, PAPER_OPTIMIZERS, best_recipe, paper_accuracy, paper_recipe
from cvgnn.lab.sweep import result_tables as tables
from cvgnn.lab.sweep.jobs import format_value, non_default, train_argv
from cvgnn.lab.sweep.pool import Outcome
from cvgnn.lab.sweep.result_tables import Columns, column, markdown, marked, tex
from cvgnn.lab.sweep.summary import SweepSetting, group_by_setting

PAPER_NOTE = (
    "paper protocol: the maximum over epochs of the test accuracy, averaged over runs (selected on the test set, to "
    "compare with the paper); validation protocol: the test accuracy at the best validation epoch (the honest number). "
    "Mean ± standard deviation over runs, in %."
)
BEST_NOTE = (
    "test at best validation: the test accuracy of the epoch with the highest validation accuracy (the honest number); "
    "highest test: of any epoch, selected on the test set. Mean ± standard deviation over runs, in %."
)
_PROTOCOLS = {
    "max_test_accuracy": r"Maximum over epochs of the test accuracy (\%), averaged over runs (the paper's protocol)",
    "test_accuracy": r"Test accuracy (\%) at the best validation epoch, averaged over runs",
}
_MARKS = r"\textbf{Bold} indicates the best result for a data set, \underline{underlined} the second best."
_TUNED = ("lr", "num_neighbors", "batch_size")
_OPTIONS = ("optimizer", "form", *_TUNED, "hidden", "weight_decay", "dropout", "epochs")
_DETAILS = ("Dataset", "Optimizer", "Paper", "Paper's protocol", "Difference", "Validation protocol", "Runs", "Seconds")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipePlan(ABC):
    """Recipes to run, and the tables of their accuracies.

    Args:
        datasets: of the recipes.
        runs: seeds `first .. first + runs - 1`; the recipes' own number if None. Run i of every recipe has seed i, so
            runs of one number share their initial weights across optimizers.
        changes: fields of the config that differ from the recipes, such as `scheme` or `epochs`.
    """

    title: ClassVar[str]
    columns: ClassVar[Columns]
    live_names: ClassVar[tuple[str, ...]]  # the columns that are shown while runs are missing

    datasets: tuple[str, ...]
    runs: int | None = None
    first: int = 0
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @abstractmethod
    def recipes(self, dataset: str) -> list[TrainConfig]:
        """The recipes for a data set."""

    def default_runs(self, dataset: str) -> int:
        """Runs of a recipe if `runs` is None."""
        return 10

    @abstractmethod
    def note(self, settings: Sequence[SweepSetting]) -> str:
        """The meaning of the numbers."""

    @abstractmethod
    def latex(self, settings: Sequence[SweepSetting]) -> str:
        """The table in LaTeX."""

    def cell(self, setting: SweepSetting) -> dict[str, Any]:
        """A setting in `table.json`."""
        return tables.as_json(setting)

    def configs(self, dataset: str) -> list[TrainConfig]:
        """All runs on a data set; runs of a recipe are adjacent."""
        seeds = range(self.first, self.first + (self.runs or self.default_runs(dataset)))
        options = {"threads": 1, **self.changes}
        return [dataclasses.replace(r, **options, seed=seed) for r in self.recipes(dataset) for seed in seeds]

    @property
    def live_columns(self) -> Columns:
        """The columns of the table that is shown while runs are missing."""
        return {name: self.columns[name] for name in self.live_names} | {"runs": tables.progress}

    def table(self, settings: Sequence[SweepSetting]) -> str:
        """The table for people: one row for each setting with a finished run."""
        return markdown(list(self.columns), tables.rows(self.columns, [s for s in settings if s.results]))

    def files(
        self, outcomes: Sequence[Outcome], about: Mapping[str, Any], *, missing: Sequence[str] = ()
    ) -> dict[str, Any]:
        """`table.md`, `table.tex` and the content of `table.json`.

        Args:
            outcomes: of all runs.
            about: the `command` and the `machine` behind the numbers.
            missing: what could not be run, each with its reason.
        """
        settings, failed = group_by_setting(outcomes), tables.failures(outcomes)
        note, cells = self.note(settings), [self.cell(s) for s in settings]
        sections = {"": self.table(settings), "Failed": failed, "Not run": missing}
        return {
            "table.md": tables.document(self.title, note, sections, about),
            "table.tex": self.latex([s for s in settings if s.results]),
            "table.json": {**about, "note": note, "cells": cells, "failures": failed, "not_run": list(missing)},
        }


def published(setting: SweepSetting) -> float | None:
    """The accuracy in Table 5, in percent; None for a data set that the paper does not have."""
    known = setting.dataset in PAPER_DATASETS
    return paper_accuracy(setting.dataset, setting.options["optimizer"]) if known else None


def _paper(setting: SweepSetting) -> str:
    number = published(setting)
    return "-" if number is None else f"{number:.2f}"


def _difference(setting: SweepSetting) -> str:
    paper, ours = published(setting), setting.mean("max_test_accuracy")
    return "-" if paper is None or ours is None else f"{100 * ours - paper:+.2f}"


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperPlan(RecipePlan):
    """The paper's Table 5.

    Args:
        datasets, optimizers: rows and columns of the table.
        runs, first, changes: see `RecipePlan`; as many runs as the paper's if `runs` is None.
    """

    title = "Table 5"
    columns: ClassVar[Columns] = {
        "dataset": lambda s: s.dataset,
        "optimizer": lambda s: str(s.options["optimizer"]),
        "paper": _paper,
        "paper protocol": column("max_test_accuracy"),
        "difference": _difference,
        "validation protocol": column("test_accuracy"),
        "s per run": tables.seconds,
    }
    live_names = ("dataset", "optimizer", "paper", "paper protocol", "validation protocol")

    optimizers: tuple[str, ...] = PAPER_OPTIMIZERS

    def recipes(self, dataset: str) -> list[TrainConfig]:
        """Appendix B's settings for each optimizer."""
        return [paper_recipe(dataset, optimizer) for optimizer in self.optimizers]

    def default_runs(self, dataset: str) -> int:
        """As many as the paper's."""
        return recipes.paper_runs(dataset)

    def listing(self) -> str:
        """The settings of every cell, and the grids from which the paper chose them."""
        cells, grids = [], []
        for dataset in self.datasets:
            runs = self.runs or self.default_runs(dataset)
            for config in self.configs(dataset)[::runs]:
                cells.append([dataset, *(format_value(getattr(config, name)) for name in _OPTIONS), str(runs)])
            grid = recipes.paper_grid(dataset)
            grids.append([dataset, *(", ".join(map(format_value, grid[name])) for name in _TUNED)])
        parts = (
            "the paper's tuned settings (Appendix B) with its fixed ones (Table 4); form: of the optimizers, torch's "
            "is the one that reproduces Table 5",
            markdown(("dataset", *_OPTIONS, "runs"), cells),
            "the grids they were chosen from (Table 3), for every optimizer; cvgnn sweep --paper DATASET runs one",
            markdown(("dataset", *_TUNED), grids),
        )
        return "\n\n".join(parts)

    def note(self, settings: Sequence[SweepSetting]) -> str:
        """The meaning of the numbers, and a warning if they are not comparable with the paper's."""
        return f"{PAPER_NOTE} {_warning(settings)}".rstrip()

    def cell(self, setting: SweepSetting) -> dict[str, Any]:
        """A setting in `table.json`, with the paper's accuracy."""
        return {"paper": published(setting), **tables.as_json(setting)}

    def latex(self, settings: Sequence[SweepSetting]) -> str:
        """Table 5 by either protocol, and a table with all numbers of each cell."""
        table: dict[str, dict[str, SweepSetting]] = {}
        for setting in settings:
            table.setdefault(setting.dataset, {})[setting.options["optimizer"]] = setting
        optimizers = [o for o in PAPER_OPTIMIZERS if any(o in row for row in table.values())]
        marks = f"{_MARKS} {tex(_warning(settings))}".rstrip()
        parts = []
        for key, protocol in _PROTOCOLS.items():
            lines = []
            for dataset, row in table.items():
                cells = marked({o: row[o].text(key) if o in row else "-" for o in optimizers})
                lines.append([tex(dataset), *cells.values()])
            caption, label = rf"{protocol}, $\pm$ standard deviation. {marks}", f"tab:{key.replace('_', '-')}"
            parts.append(tables.booktabs(["Dataset", *optimizers], lines, caption=caption, label=label))
        caption = (
            r"Test accuracy (\%) of the paper and of our runs by both protocols, mean $\pm$ standard deviation over "
            rf"runs; seconds per run, training and evaluation. {marks}"
        )
        return "\n".join([*parts, tables.booktabs(_DETAILS, _details(table), caption=caption, label="tab:protocols")])


def _details(table: Mapping[str, Mapping[str, SweepSetting]]) -> list[list[str]]:
    """One row for each cell of Table 5, and a rule between data sets."""
    lines: list[list[str]] = []
    for dataset, row in table.items():
        lines += [[]] if lines else []
        paper = marked({o: _paper(s) for o, s in row.items()})
        ours, honest = (marked({o: s.text(key) for o, s in row.items()}) for key in _PROTOCOLS)
        for i, (o, s) in enumerate(row.items()):
            difference = _difference(s)
            difference = "--" if difference == "-" else f"${difference}$"
            names = ["" if i else tex(dataset), tex(o)]
            lines.append([*names, paper[o], ours[o], difference, honest[o], str(len(s.results)), tables.seconds(s)])
    return lines


def _warning(settings: Sequence[SweepSetting]) -> str:
    """A sentence with the options that differ from the paper's experiment; empty if none does."""
    changes: dict[str, None] = {}
    for setting in settings:
        if published(setting) is None:
            continue
        recipe = paper_recipe(setting.dataset, setting.options["optimizer"]).to_dict()
        for name, value in setting.options.items():
            # The paper's own draw and its code's are no change, though the recipe has the unbiased draw.
            papers = ("paper", "released") if name == "scheme" else ()
            if name != "threads" and value != recipe[name] and value not in papers:
                changes[f"{name}={format_value(value)}"] = None
    if not changes:
        return ""
    return (
        f"Not the paper's experiment ({', '.join(changes)}): its numbers and the differences from them are no "
        "reproduction."
    )


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class BestPlan(RecipePlan):
    """Our best recipes."""

    title = "Best recipes"
    columns: ClassVar[Columns] = {
        "recipe": lambda s: f"{s.dataset}_best",
        "test at best validation": column("test_accuracy"),
        "validation": column("val_accuracy"),
        "highest test": column("max_test_accuracy"),
        "runs": lambda s: str(len(s.results)),
        "s per run": tables.seconds,
    }
    live_names = ("recipe", "test at best validation", "validation")

    datasets: tuple[str, ...] = BEST_DATASETS

    def recipes(self, dataset: str) -> list[TrainConfig]:
        """The best recipe."""
        return [best_recipe(dataset)]

    def listing(self) -> str:
        """The recipes as options of `cvgnn train`."""
        return "\n".join(f"{dataset}_best: {train_options(best_recipe(dataset))}" for dataset in self.datasets)

    def note(self, settings: Sequence[SweepSetting]) -> str:
        """The meaning of the numbers."""
        return BEST_NOTE

    def latex(self, settings: Sequence[SweepSetting]) -> str:
        """The test accuracy at the best validation epoch."""
        lines = [[tex(s.dataset), tables.as_tex(s.text("test_accuracy"))] for s in settings]
        caption = r"Test accuracy (\%) at the best validation epoch, mean $\pm$ standard deviation over runs"
        return tables.booktabs(["Dataset", "Test"], lines, caption=caption, label="tab:best")


def train_options(config: TrainConfig) -> str:
    """The options of `cvgnn train` that make a config, without the defaults and the seed.

    >>> train_options(TrainConfig(lr=0.5, num_neighbors=(5,)))
    '--num-neighbors 5 --lr 0.5'
    """
    return " ".join(train_argv({name: v for name, v in non_default(config).items() if name != "seed"}))
