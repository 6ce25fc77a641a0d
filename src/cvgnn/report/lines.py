"""Which settings get a curve, and what the curve is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from cvgnn.experiments.recipes import PAPER_OPTIMIZERS
from cvgnn.report.settings import KEYS, WORDS, Choice, Setting, best, in_words, method, partition, varying

MOST = 8  # curves in a panel: as many as there are colors


@final
@dataclass(frozen=True)
class Line:
    """A curve to be drawn: its name, its setting, and how many settings that was chosen among."""

    label: str
    setting: Setting
    among: int


def lines(settings: Sequence[Setting], names: Sequence[str], by: Choice) -> list[Line]:
    """The curves of a data set: one a method, its best setting; if there is one method only, one a setting.

    Args:
        settings: of the data set.
        names: the options that vary in the whole report.
        by: what is best; where nothing has a result yet, the setting with the most epochs.
    """
    methods = partition(settings, lambda s: method(s, names))
    if len(methods) > 1 or len(settings) == 1:
        chosen = [(method(part[0], names), _best(part, by), len(part)) for part in methods]
    else:
        mine = [name for name in varying(settings) if name not in WORDS]
        chosen = [(in_words(s, mine), s, 1) for s in settings]
    if len(chosen) > MOST:
        kept = sorted(chosen, key=lambda c: -(c[1].mean(KEYS[by]) or 0.0))[:MOST]
        chosen = [c for c in chosen if c in kept]
    return [Line(*c) for c in chosen]


def choices(settings: Sequence[Setting], names: Sequence[str]) -> list[Choice]:
    """The ways of choosing that the report shows: one where there is nothing to choose."""
    return ["validation", "test"] if _chosen(settings, names) else ["validation"]


def colors(labels: Sequence[str]) -> dict[str, int]:
    """A number for each name of a curve, the same wherever it is drawn; the paper's optimizers come first.

    >>> colors(["sgd", "lion", "adam"])
    {'adam': 0, 'sgd': 1, 'lion': 2}
    """
    paper = [label for label in PAPER_OPTIMIZERS if label in labels]
    return {label: number for number, label in enumerate(dict.fromkeys((*paper, *labels)))}


def _chosen(settings: Sequence[Setting], names: Sequence[str]) -> bool:
    """Whether a curve stands for several settings."""
    parts = partition(settings, lambda s: s.dataset)
    return any(line.among > 1 for part in parts for line in lines(part, names, "validation")) or any(
        len(lines(part, names, "validation")) == MOST < len(part) for part in parts
    )


def _best(part: Sequence[Setting], by: Choice) -> Setting:
    found = best(part, by=by)
    return found if found is not None else max(part, key=lambda s: sum(len(run.records) for run in s.runs))
