"""The tables of the report: Table 5 by both protocols, and the tuned settings of Appendix B, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from cvgnn.experiments.recipes import PAPER_DATASETS, PAPER_OPTIMIZERS, paper_accuracy, paper_recipe, paper_runs
from cvgnn.report.charts import count
from cvgnn.report.settings import KEYS, WORDS, Choice, Setting, best, by_dataset, in_words, partition, varying
from cvgnn.sweeps.jobs import shown
from cvgnn.sweeps.tables import percent, ranks

TUNED = ("lr", "num_neighbors", "batch_size")
_MEANS = {
    "val_accuracy": "validation",
    "test_accuracy": "test at best validation",
    "max_test_accuracy": "highest test (paper's protocol)",
}
_RUN_ITSELF = (*TUNED, "threads", "seed", "optimizer")


@final
@dataclass(frozen=True)
class Cell:
    """A text; rank 1 is the best of its row, 2 the second best; `small` stands below in small print; `code` is wide."""

    text: str
    rank: int = 0
    small: str = ""
    code: bool = False


@final
@dataclass(frozen=True)
class Table:
    """A table: its caption, columns and rows. A row of one cell is a heading over those that follow."""

    caption: str
    header: list[str]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)


def table_5(settings: Sequence[Setting]) -> Table | None:
    """The test accuracies of every data set and optimizer, as published, by the paper's protocol and by validation."""
    names = [name for name in varying(settings) if name in WORDS and name != "optimizer"]
    done = [s for s in settings if s.finished]
    columns = _optimizers(done)
    if not columns:
        return None
    table = Table(
        "Test accuracy in %, mean ± standard deviation over runs. Bold: the best of a row; underlined: the second.",
        ["", *columns],
        [],
    )
    for part in partition(done, lambda s: (s.dataset, in_words(s, names))):
        dataset = part[0].dataset
        variant = in_words(part[0], names)
        table.rows.append([Cell(dataset + (f", {variant}" if variant else ""))])
        of = {c: [s for s in part if s.options["optimizer"] == c] for c in columns}
        paper = {c: paper_accuracy(dataset, c) for c in columns if dataset in PAPER_DATASETS and c in PAPER_OPTIMIZERS}
        if paper:
            marks = ranks(paper)
            cells = [Cell(f"{paper[c]:.2f}", marks.get(c, 0)) if c in paper else Cell("-") for c in columns]
            table.rows.append([Cell("published", small="the paper's Table 5"), *cells])
        test = {c: best(of[c], by="test") for c in columns}
        validation = {c: best(of[c], by="validation") for c in columns}
        first = Cell("ours, paper's protocol", small="highest test accuracy over epochs: chosen by test accuracy")
        table.rows.append([first, *_accuracies(test, "max_test_accuracy", paper)])
        first = Cell("ours, validation protocol", small="at the best validation epoch: the number to stand for")
        table.rows.append([first, *_accuracies(validation, "test_accuracy", {})])
        table.notes.extend(_deviations(dataset, part))
    if any(
        len(part) > 1 for part in partition(done, lambda s: (s.dataset, s.options["optimizer"], in_words(s, names)))
    ):
        table.notes.append(
            "Where several settings were run, the paper's protocol takes the one with the highest such accuracy, as "
            "the paper did, and the validation protocol the one with the highest validation accuracy."
        )
    return table


def appendix_b(settings: Sequence[Setting]) -> list[Table]:
    """For each data set on which several settings were run, the best ones of every optimizer, beside the paper's."""
    tables = []
    names = [name for name in varying(settings) if name in WORDS and name != "optimizer"]
    for part in by_dataset([s for s in settings if s.finished]):
        optimizers = _optimizers(part)
        groups = partition(part, lambda s: (s.options["optimizer"], in_words(s, names)))
        mine = [name for name in varying(part) if name not in WORDS]
        if all(len(group) == 1 for group in groups) or not mine:
            continue
        shown_names = list(dict.fromkeys((*(n for n in TUNED if n in mine), *mine)))
        header = ["optimizer", "chosen by", *shown_names, *_MEANS.values(), "runs", "settings tried"]
        caption = f"{part[0].dataset}: the best settings of each optimizer; accuracies in %, mean ± standard deviation."
        table = Table(caption, header, [])
        for optimizer in optimizers:
            for group in (g for g in groups if g[0].options["optimizer"] == optimizer):
                variant = in_words(group[0], names)
                rows = [*_published(part[0].dataset, optimizer, shown_names)]
                rows += [_chosen(group, by, shown_names) for by in KEYS]
                rows[0][0] = Cell(optimizer, rank=1, small=variant)
                table.rows.extend(rows)
        tables.append(table)
    return tables


def _chosen(group: Sequence[Setting], by: Choice, names: Sequence[str]) -> list[Cell]:
    """A row of Appendix B: what a choice takes."""
    words: dict[Choice, str] = {"validation": "validation accuracy", "test": "test accuracy (the paper's way)"}
    found = best(group, by=by)
    if found is None:
        return [Cell(""), Cell(words[by]), *(Cell("-") for _ in (*names, *_MEANS, "runs")), Cell(str(len(group)))]
    tied = sum(found.mean(KEYS[by]) == s.mean(KEYS[by]) for s in group) - 1
    cells = [percent(found.mean(key), found.deviation(key)) for key in _MEANS]
    return [
        Cell(""),
        Cell(words[by], small=f"{tied} more just as good" if tied else ""),
        *(Cell(shown(found.options[name])) for name in names),
        *(Cell(text, rank=int(key == KEYS[by])) for key, text in zip(_MEANS, cells, strict=True)),
        Cell(str(len(found.finished))),
        Cell(str(len(group))),
    ]


def _published(dataset: str, optimizer: str, names: Sequence[str]) -> list[list[Cell]]:
    """The paper's row, if it has one."""
    if dataset not in PAPER_DATASETS or optimizer not in PAPER_OPTIMIZERS:
        return []
    recipe = paper_recipe(dataset, optimizer).to_dict()
    values = [*(shown(recipe[name]) for name in names), "-", "-", f"{paper_accuracy(dataset, optimizer):.2f}"]
    return [[Cell(""), Cell("the paper"), *map(Cell, values), Cell(str(paper_runs(dataset))), Cell("-")]]


def _accuracies(chosen: dict[str, Setting | None], key: str, paper: dict[str, float]) -> list[Cell]:
    """A row of Table 5, with the difference to the paper's numbers if there are any."""
    means = {c: s.mean(key) if s is not None else None for c, s in chosen.items()}
    marks = ranks({c: 100 * mean for c, mean in means.items() if mean is not None})
    cells = []
    for column, setting in chosen.items():
        mean = means[column]
        if setting is None or mean is None:
            cells.append(Cell("-"))
            continue
        small = count(len(setting.finished), "run")
        if column in paper:
            small = f"{100 * mean - paper[column]:+.2f} to the paper, {small}"
        cells.append(Cell(percent(mean, setting.deviation(key)), marks.get(column, 0), small))
    return cells


def _deviations(dataset: str, part: Sequence[Setting]) -> list[str]:
    """What differs from the paper's experiment besides the tuned options and the seeds."""
    if dataset not in PAPER_DATASETS:
        return []
    found: dict[str, set[str]] = {}
    paper: dict[str, str] = {}
    different = 0
    for setting in part:
        changed = False
        if setting.options["optimizer"] in PAPER_OPTIMIZERS:
            recipe = paper_recipe(dataset, setting.options["optimizer"]).to_dict()
            for name, value in setting.options.items():
                if name not in _RUN_ITSELF and value != recipe[name]:
                    found.setdefault(name, set()).add(shown(value))
                    paper[name] = shown(recipe[name])
                    changed = True
            different += changed
    words = [f"{name} {' or '.join(sorted(values))} instead of {paper[name]}" for name, values in found.items()]
    some = "" if different == len(part) else f" in {different} of {len(part)} settings"
    return (
        [f"{dataset}: other than in the recipes of the paper (cvgnn reproduce --list){some}: {'; '.join(words)}."]
        if words
        else []
    )


def _optimizers(settings: Sequence[Setting]) -> list[str]:
    there = dict.fromkeys(s.options["optimizer"] for s in settings)
    return sorted(there, key=lambda o: PAPER_OPTIMIZERS.index(o) if o in PAPER_OPTIMIZERS else len(PAPER_OPTIMIZERS))
