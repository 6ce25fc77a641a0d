"""Heat maps: the validation accuracy over the two options that vary most, for each data set and method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from cvgnn.experiments.recipes import PAPER_DATASETS, PAPER_OPTIMIZERS, paper_recipe
from cvgnn.report.settings import WORDS, Setting, best, by_dataset, in_words, method, partition, varying
from cvgnn.sweeps.jobs import shown
from cvgnn.sweeps.tables import percent

MOST_MAPS = 6  # of one method, side by side; beyond that a cell is the best over the rest
_FIRST = ("lr", "batch_size", "num_neighbors")


@final
@dataclass(frozen=True)
class Square:
    """A cell: mean validation accuracy, all there is to say, whether it is the best, whether it is the paper's."""

    value: float
    words: str
    best: bool
    paper: bool


@final
@dataclass(frozen=True)
class HeatMap:
    """A map: the method, the options beside the axes, and rows from top to bottom; None where nothing was run."""

    method: str
    title: str
    x_name: str
    x: list[str]
    y_name: str
    y: list[str]
    squares: list[list[Square | None]]


@final
@dataclass(frozen=True)
class Heat:
    """All maps of a data set, on one scale of colors from `low`, or less, to `high`."""

    dataset: str
    caption: str
    low: float
    high: float
    maps: list[HeatMap]


def heat(settings: Sequence[Setting]) -> list[Heat]:
    """The maps of every data set on which a method was run with several values of an option."""
    names = varying(settings)
    found = []
    for part in by_dataset([s for s in settings if s.mean("val_accuracy") is not None]):
        groups = [group for group in partition(part, lambda s: method(s, names)) if len(group) > 1]
        axes = _axes(groups)
        if not axes:
            continue
        maps = [m for group in groups for m in _maps(group, axes, names)]
        values = sorted(square.value for m in maps for row in m.squares for square in row if square is not None)
        low, high = values[len(values) // 4], values[-1]  # a few that failed do not make all others look the same
        low = low if high - low < (high - values[0]) / 2 else values[0]
        words = ["Validation accuracy in % at the best epoch, mean over runs. Framed: the best setting of a method."]
        if part[0].dataset in PAPER_DATASETS:
            words.append("†: the paper's tuned setting.")
        if any(_hidden(group, axes) for group in groups):
            words.append("A cell is the best over the options that are not shown.")
        if any(len(_drawn(group, axes)) < len(group) for group in groups):
            words.append("Combinations with a single setting are not drawn.")
        lightest = f"{100 * low:.1f}{' or less' if low > values[0] else ''}"
        words.append(f"Colors go from {lightest} (light) to {100 * high:.1f} (dark).")
        found.append(Heat(part[0].dataset, " ".join(words), low, high, maps))
    return found


def _axes(groups: Sequence[Sequence[Setting]]) -> list[str]:
    """The numeric options that vary within a method: the most values first, then learning rate and batch size."""
    levels = {
        name: max(len(_levels(g, name)) for g in groups) for g in groups for name in varying(g) if name not in WORDS
    }
    place = {name: _FIRST.index(name) if name in _FIRST else len(_FIRST) for name in levels}
    return sorted(levels, key=lambda name: (-levels[name], place[name]))


def _hidden(part: Sequence[Setting], axes: Sequence[str]) -> bool:
    return len({in_words(s, axes[2:]) for s in part}) > MOST_MAPS


def _drawn(group: Sequence[Setting], axes: Sequence[str]) -> Sequence[Setting]:
    """The settings that get a place: those of a map with several, if there is one."""
    if _hidden(group, axes):
        return group
    parts = partition(group, lambda s: in_words(s, axes[2:]))
    return [s for part in parts if len(part) > 1 for s in part] or group


def _maps(group: Sequence[Setting], axes: Sequence[str], names: Sequence[str]) -> list[HeatMap]:
    """The maps of a method: one for each combination of the options beyond the first two."""
    rest = [] if _hidden(group, axes) else list(axes[2:])
    group = _drawn(group, axes)
    winner, label = best(group, by="validation"), method(group[0], names)
    x_name, y_name = axes[0], axes[1] if len(axes) > 1 else ""
    xs, ys = _levels(group, x_name), _levels(group, y_name) if y_name else [None]
    maps = []
    for part in partition(group, lambda s: in_words(s, rest)):
        squares = [[_square(part, {x_name: x, y_name: y}, winner) for x in xs] for y in ys]
        maps.append(
            HeatMap(
                label,
                in_words(part[0], rest),
                x_name,
                [shown(x) for x in xs],
                y_name,
                [shown(y) if y_name else "" for y in ys],
                squares,
            )
        )
    return maps


def _square(part: Sequence[Setting], at: dict[str, Any], winner: Setting | None) -> Square | None:
    here = [s for s in part if all(s.options[name] == value for name, value in at.items() if name)]
    setting = best(here, by="validation")
    value = None if setting is None else setting.mean("val_accuracy")
    if setting is None or value is None:
        return None
    seeds = ", ".join(str(run.config.seed) for run in setting.finished)
    test = percent(setting.mean("test_accuracy"), setting.deviation("test_accuracy"))
    words = (
        f"{in_words(setting, ['optimizer', *_FIRST])}: validation {percent(value, setting.deviation('val_accuracy'))}, "
        f"test at the best validation epoch {test}; seeds {seeds}"
    )
    return Square(value, words, setting is winner, _is_paper(setting))


def _is_paper(setting: Setting) -> bool:
    optimizer = setting.options["optimizer"]
    if setting.dataset not in PAPER_DATASETS or optimizer not in PAPER_OPTIMIZERS:
        return False
    recipe = paper_recipe(setting.dataset, optimizer).to_dict()
    return all(setting.options[name] == recipe[name] for name in _FIRST)


def _levels(part: Sequence[Setting], name: str) -> list[Any]:
    """The values of an option, from the smallest to the largest."""
    values = {repr(s.options[name]): s.options[name] for s in part}.values()
    return sorted(values, key=lambda v: (v is not None, v if v is not None else 0))
