"""Test metrics by both protocols, as Table 5 for the paper's settings, and the tuned settings of Appendix B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from cvgnn.lab.recipes import PAPER_OPTIMIZERS, paper_accuracy
from cvgnn.lab.report import run_groups
from cvgnn.lab.report.run_groups import TUNED, Choice, RunGroup, best, levels, partition, position, variant_options
from cvgnn.lab.report.typesetting import option_name
from cvgnn.lab.sweep.jobs import format_value
from cvgnn.lab.sweep.result_tables import mean_note, metrics_of, ranks, top_name
from cvgnn.training.tasks import METRICS


@final
@dataclass(frozen=True)
class Cell:
    """A text; rank 1 is the best of its row (bold), 2 the second best (underlined); `small` is a second, small line."""

    text: str
    rank: int = 0
    small: str = ""


@final
@dataclass(frozen=True)
class AccuracyTable:
    """Test metrics by optimizer. A row is a name and the optimizers' cells; a heading has None instead of cells."""

    caption: str
    optimizers: Sequence[str]
    rows: Sequence[tuple[Cell, Mapping[str, Cell] | None]]
    notes: Sequence[str]


@final
@dataclass(frozen=True)
class AppendixTable:
    """The settings that were tried on a data set, by method; the best of them are shown beside the paper's.

    Args:
        dataset: the graph's name.
        options: the tuned options.
        variants: the options that make another method, besides the optimizer.
        methods: the settings of each method.
    """

    dataset: str
    options: Sequence[str]
    variants: Sequence[str]
    methods: Sequence[Sequence[RunGroup]]


def accuracy_table(groups: Sequence[RunGroup], as_in_paper: bool) -> AccuracyTable | None:
    """The test metrics of every data set and optimizer, by the paper's protocol and by validation.

    Args:
        groups: all settings of the report.
        as_in_paper: whether the table is Table 5, with the published numbers and the settings that are the paper's up
            to its tuned options; the other table has all other settings.
    """
    variants = variant_options(groups)
    finished = [group for group in groups if group.results and group.as_in_paper is as_in_paper]
    columns = _optimizers(finished)
    rows: list[tuple[Cell, Mapping[str, Cell] | None]] = []
    notes: list[str] = []
    several = False
    for part in partition(finished, lambda g: (g.dataset, g.describe(variants))):
        dataset = part[0].dataset
        by_optimizer = {c: [g for g in part if g.optimizer == c] for c in columns}
        several |= any(len(tried) > 1 for tried in by_optimizer.values())
        paper = {c: paper_accuracy(dataset, c) for c in columns} if as_in_paper else {}
        metric = part[0].metric
        heading = (dataset, part[0].describe(variants), metric if metric != "accuracy" else "")
        rows.append((Cell(", ".join(filter(None, heading))), None))
        if paper:
            texts = {c: f"{number:.2f}" for c, number in paper.items()}
            cells = {c: Cell(texts[c], rank) for c, rank in ranks(texts).items()}
            rows.append((Cell("published", small="the paper's Table 5"), cells))
        name = Cell(
            "ours, paper's protocol", small=f"{top_name([metric])} test {metric} over epochs: chosen by test {metric}"
        )
        rows.append((name, _cells(by_optimizer, "test", "top_test", paper)))
        name = Cell("ours, validation protocol", small="at the best validation epoch: the number to stand for")
        rows.append((name, _cells(by_optimizer, "validation", "test", {})))
        notes += _differences(part)
    if several:
        notes.append(
            "Where several settings were run, the paper's protocol takes the one with the best such value, as the "
            "paper did, and the validation protocol the one with the best value on the validation set."
        )
    metrics = metrics_of(finished)
    what = f"Test {next(iter(metrics))}" if len(metrics) == 1 else "The test metric of each data set"
    caption = f"{what}, {mean_note(metrics).replace('seeds', 'runs')}"
    return AccuracyTable(caption, columns, rows, notes) if rows else None


def _cells(
    by_optimizer: Mapping[str, Sequence[RunGroup]], by: Choice, key: str, paper: Mapping[str, float]
) -> dict[str, Cell]:
    """The cells of a row of Table 5, with the difference to the paper's numbers if there are any."""
    chosen = {c: group for c, tried in by_optimizer.items() if (group := best(tried, by=by)) is not None}
    means = {c: mean for c, group in chosen.items() if (mean := group.mean(key)) is not None}
    texts = {column: chosen[column].text(key) for column in means}
    larger = all(METRICS[group.metric].larger_is_better for group in chosen.values())  # all have the same metric
    cells = {}
    for column, rank in ranks(texts, larger_is_better=larger).items():
        small = f"{100 * means[column] - paper[column]:+.2f} to the paper, " if column in paper else ""
        small += run_groups.count(len(chosen[column].results), "run")
        cells[column] = Cell(texts[column], rank, small)
    return cells


def _differences(part: Sequence[RunGroup]) -> list[str]:
    """A sentence on what differs from the paper's experiment besides the tuned options and the seeds."""
    changes = [(group, name, format_value(value)) for group in part for name, value in group.changes_to_paper.items()]
    sentences = []
    for option in dict.fromkeys(name for _, name, _ in changes):
        changed = [group for group, name, _ in changes if name == option]
        values = [format_value(value) for value in levels(changed, option)]
        ours = " or ".join(values) if len(values) < 5 else f"{values[0]} to {values[-1]}"
        paper = [theirs for _, name, theirs in changes if name == option]
        sentences.append(f"{option_name(option)} {ours} instead of {paper[-1]}")
    different = len({group for group, *_ in changes})
    where = "" if different == len(part) else f" in {different} of {len(part)} settings"
    start = f"{part[0].dataset}: other than in the recipes of the paper (cvgnn reproduce --list){where}"
    return [f"{start}: {'; '.join(sentences)}."] if sentences else []


def appendix_b(groups: Sequence[RunGroup]) -> list[AppendixTable]:
    """A table for each data set on which a method was run with several settings."""
    tables = []
    variants = variant_options(groups)
    for part in run_groups.by_dataset(group for group in groups if group.results):
        optimizers, numeric = _optimizers(part), run_groups.numeric_options(part)
        methods = partition(part, lambda g: g.method(variants))
        methods.sort(key=lambda method: optimizers.index(method[0].optimizer))
        if numeric and any(len(method) > 1 for method in methods):
            options = sorted(numeric, key=lambda name: position(name, TUNED))
            tables.append(AppendixTable(part[0].dataset, options, variants, methods))
    return tables


def _optimizers(groups: Sequence[RunGroup]) -> list[str]:
    return sorted(dict.fromkeys(group.optimizer for group in groups), key=lambda name: position(name, PAPER_OPTIMIZERS))
