"""Which settings get a curve, and what the curve is called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from cvgnn.experiments.recipes import PAPER_OPTIMIZERS
from cvgnn.report.colors import CURVES, DASHES, number_of
from cvgnn.report.settings import KEYS, WORDS, Choice, Setting, best, in_words, method, partition, varying

MOST = 10  # curves in a panel: two methods for each of the paper's optimizers


@final
@dataclass(frozen=True)
class Line:
    """A curve to be drawn.

    Args:
        label: its name.
        kin: the optimizer, if there are several methods: theirs share a color where there are not colors enough.
        setting: whose runs it shows.
        among: how many settings that was chosen among.
    """

    label: str
    kin: str
    setting: Setting
    among: int


def lines(settings: Sequence[Setting], names: Sequence[str], by: Choice) -> list[Line]:
    """The curves that are drawn of a data set's `candidates`: the best of each optimizer, and the best of the others
    as far as there is room."""
    found = candidates(settings, names, by)
    ranked = sorted(found, key=lambda line: -(line.setting.mean(KEYS[by]) or 0.0))
    firsts = {line.setting.options["optimizer"]: line for line in reversed(ranked)}
    kept = list(dict.fromkeys((*firsts.values(), *ranked)))[: max(MOST, len(firsts))]
    return [line for line in found if line in kept]


def candidates(settings: Sequence[Setting], names: Sequence[str], by: Choice) -> list[Line]:
    """All curves of a data set: one a method, its best setting; if there is one method only, one a setting.

    Args:
        settings: of the data set.
        names: the options that vary in the whole report.
        by: what is best; where nothing has a result yet, the setting with the most epochs.
    """
    methods = partition(settings, lambda s: method(s, names))
    if len(methods) > 1 or len(settings) == 1:
        optimizers = [part[0].options["optimizer"] for part in methods]
        return [Line(method(p[0], names), o, _best(p, by), len(p)) for p, o in zip(methods, optimizers, strict=True)]
    mine = [name for name in varying(settings) if name not in WORDS]
    return [Line(words := in_words(s, mine), words, s, 1) for s in settings]


def choices(settings: Sequence[Setting], names: Sequence[str]) -> list[Choice]:
    """The ways of choosing that the report shows: one where there is nothing to choose."""
    return ["validation", "test"] if _chosen(settings, names) else ["validation"]


def colors(kin: Mapping[str, str]) -> dict[str, int]:
    """A number for the look of each curve, the same wherever it is drawn. Up to eight differ in color and in dash; of
    more, those of an optimizer share a color, and the dash tells them apart. The paper's optimizers come first.

    Args:
        kin: the names of the curves, each with its `Line.kin`.

    >>> colors({"sgd": "sgd", "lion": "lion", "adam": "adam"})
    {'adam': 0, 'sgd': 1, 'lion': 2}
    """
    known = [*PAPER_OPTIMIZERS, *kin.values()]
    labels = sorted(kin, key=lambda label: known.index(kin[label]))
    if len(labels) <= len(CURVES):
        return {label: number for number, label in enumerate(labels)}
    hues = list(dict.fromkeys(kin[label] for label in labels))
    rests = list(dict.fromkeys(label.removeprefix(kin[label]) for label in labels))
    if len(hues) <= len(CURVES) and len(rests) <= len(DASHES):
        return {c: number_of(hues.index(kin[c]), rests.index(c.removeprefix(kin[c]))) for c in labels}
    each = min(math.ceil(len(labels) / len(CURVES)), len(DASHES))
    return {label: number_of(place // each % len(CURVES), place % each) for place, label in enumerate(labels)}


def _chosen(settings: Sequence[Setting], names: Sequence[str]) -> bool:
    """Whether a curve stands for several settings, or some are left out."""
    for part in partition(settings, lambda s: s.dataset):
        found = candidates(part, names, "validation")
        if any(line.among > 1 for line in found) or len(lines(part, names, "validation")) < len(found):
            return True
    return False


def _best(part: Sequence[Setting], by: Choice) -> Setting:
    found = best(part, by=by)
    return found if found is not None else max(part, key=lambda s: sum(len(run.records) for run in s.runs))
