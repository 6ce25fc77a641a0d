"""Heat maps: the validation accuracy over the two options that vary most, for each data set and method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from cvgnn.lab.recipes import PAPER_DATASETS
from cvgnn.lab.report import run_groups
from cvgnn.lab.report.colors import heat_color, text_color
from cvgnn.lab.report.run_groups import TUNED, RunGroup, best, levels, numeric_options, partition, seeds
from cvgnn.lab.report.typesetting import option_name
from cvgnn.lab.sweep.jobs import format_value

MAX_MAPS = 6  # of one method, side by side; if there were more, a cell is the best over the other options
_MAX_LONE_LEVELS = 8  # values of a lone option in a heat map of one row
_MIN_FILLED = 2 / 3  # the share of cells that a grid fills at least; some of its runs may have failed
_AXIS_ORDER = ("lr", "batch_size", "num_neighbors")


@final
@dataclass(frozen=True)
class HeatCell:
    """The mean validation accuracy of a setting, its details, and whether it is the method's best and the paper's."""

    value: float
    details: str
    best: bool
    paper: bool


@final
@dataclass(frozen=True)
class HeatMap:
    """A map: the options along the axes with their values, and rows from top to bottom; None where nothing was run."""

    title: str
    x_name: str
    x: list[str]
    y_name: str
    y: list[str]
    rows: list[list[HeatCell | None]]


@final
@dataclass(frozen=True)
class HeatMapSet:
    """All maps of a data set, by method, on one color scale from `low` (or less) to `high`."""

    dataset: str
    caption: str
    low: float
    high: float
    methods: dict[str, list[HeatMap]]

    def colors(self, cell: HeatCell) -> tuple[str, str]:
        """The colors of a cell's background and text."""
        background = heat_color(cell.value, self.low, self.high)
        return background, text_color(background)


def heat_maps(groups: Sequence[RunGroup]) -> list[HeatMapSet]:
    """The maps of every data set on which a method was run with several values of an option."""
    variants = run_groups.variant_options(groups)
    measured = [group for group in groups if group.mean("val_accuracy") is not None]
    return [made for part in run_groups.by_dataset(measured) if (made := _heat_map_set(part, variants)) is not None]


def _heat_map_set(part: Sequence[RunGroup], variants: Sequence[str]) -> HeatMapSet | None:
    methods = [method for method in partition(part, lambda g: g.method(variants)) if len(method) > 1]
    axes = axes_of(methods)
    if not axes or is_scattered(methods):
        return None
    hidden = single = False
    maps = {}
    for method in methods:
        rest, drawn = list(axes[2:]), method
        combinations = partition(method, lambda g: g.describe(axes[2:]))
        if len(combinations) > MAX_MAPS:
            rest, hidden = [], True
        else:
            drawn = [group for c in combinations if len(c) > 1 for group in c] or method
            single |= len(drawn) < len(method)
        maps[method[0].method(variants)] = _maps(drawn, axes, rest)
    values = sorted(cell.value for made in maps.values() for m in made for row in m.rows for cell in row if cell)
    # The scale starts at the first quartile where a few failed settings would make all others look the same.
    low, high = values[len(values) // 4], values[-1]
    low = low if high - low < (high - values[0]) / 2 else values[0]
    lightest = f"{100 * low:.1f}{' or less' if low > values[0] else ''}"
    sentences = {
        "Validation accuracy in % at the best epoch, mean over runs. Framed: the best setting of a method.": True,
        "†: the paper's tuned setting.": part[0].dataset in PAPER_DATASETS,
        "A cell is the best over the options that are not shown.": hidden,
        "Combinations with a single setting are not drawn.": single,
        f"Colors go from {lightest} (light) to {100 * high:.1f} (dark).": True,
    }
    caption = " ".join(sentence for sentence, holds in sentences.items() if holds)
    return HeatMapSet(part[0].dataset, caption, low, high, maps)


def axes_of(methods: Sequence[Sequence[RunGroup]]) -> list[str]:
    """The numeric options that vary within a method: the most values first, then in the order of `_AXIS_ORDER`."""
    names = dict.fromkeys(name for method in methods for name in numeric_options(method))
    most = {name: max(len(levels(method, name)) for method in methods) for name in names}
    return sorted(names, key=lambda name: (-most[name], run_groups.position(name, _AXIS_ORDER)))


def is_scattered(methods: Sequence[Sequence[RunGroup]]) -> bool:
    """Whether the settings are no grid, as those of a random search: a heat map would be mostly empty, or one long row.

    Args:
        methods: the settings of each method on a data set.
    """
    axes = axes_of(methods)[:2]
    if len(axes) == 1:
        return max(len(levels(method, axes[0])) for method in methods) > _MAX_LONE_LEVELS
    places = [math.prod(len(levels(method, name)) for name in axes) for method in methods]
    taken = [len({repr([g.options[name] for name in axes]) for g in method}) for method in methods]
    return bool(axes) and sum(taken) < _MIN_FILLED * sum(places)


def _maps(groups: Sequence[RunGroup], axes: Sequence[str], rest: Sequence[str]) -> list[HeatMap]:
    """The maps of a method: one for each combination of the options in `rest`."""
    winner = best(groups, by="validation")
    x_name, y_name = axes[0], axes[1] if len(axes) > 1 else ""
    xs, ys = levels(groups, x_name), levels(groups, y_name)
    maps = []
    for part in partition(groups, lambda g: g.describe(rest)):
        rows = [[_cell(part, {x_name: x, y_name: y}, winner) for x in xs] for y in ys]
        y_ticks = [format_value(y) if y_name else "" for y in ys]
        x_ticks, names = [format_value(x) for x in xs], (option_name(x_name), option_name(y_name))
        maps.append(HeatMap(part[0].describe(rest), names[0], x_ticks, names[1], y_ticks, rows))
    return maps


def _cell(part: Sequence[RunGroup], place: dict[str, Any], winner: RunGroup | None) -> HeatCell | None:
    here = [g for g in part if all(g.options[name] == value for name, value in place.items() if name)]
    group = best(here, by="validation")
    value = None if group is None else group.mean("val_accuracy")
    if group is None or value is None:
        return None
    finished = seeds(run for run in group.runs if run.result is not None)
    details = (
        f"{group.describe(['optimizer', *_AXIS_ORDER])}: validation {group.percent('val_accuracy')}, "
        f"test at the best validation epoch {group.percent('test_accuracy')}; seeds {finished}"
    )
    paper = group.recipe is not None and all(group.options[name] == group.recipe[name] for name in TUNED)
    return HeatCell(value, details, group is winner, paper)
