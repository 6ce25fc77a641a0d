"""Charts of the validation metric by option: heat maps of a grid; of a random search, a scatter plot of each option
and all options in parallel coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from cvgnn.lab.recipes import PAPER_DATASETS
from cvgnn.lab.report import run_groups
from cvgnn.lab.report.charts import Chart, ChartView, Curve, Panel, PanelRow, ParallelAxis, ParallelLine, ParallelPanel
from cvgnn.lab.report.colors import CurveStyle, heat_color, text_color
from cvgnn.lab.report.run_groups import TUNED, RunGroup, best, count, levels, numeric_options, partition, seeds
from cvgnn.lab.report.training_charts import curve_styles
from cvgnn.lab.report.typesetting import option_name
from cvgnn.lab.sweep.jobs import format_value
from cvgnn.training.tasks import METRICS

MAX_MAPS = 6  # of one method, side by side; if there were more, a cell is the best over the other options
_MAX_LONE_LEVELS = 8  # values of a lone option in a heat map of one row
_MIN_FILLED = 2 / 3  # the share of cells that a grid fills at least; some of its runs may have failed
_AXIS_ORDER = ("lr", "batch_size", "num_neighbors")
MAX_LINES = 300
"""The most lines of a parallel-coordinates plot: those of the best settings."""

_LOG_FROM = 20  # the ratio of a range's ends from which its axis is logarithmic
_MAX_TICKS = 7
_SCATTER = "A point is a setting: its validation metric at the best epoch, mean over runs. Bar: lowest to highest."
_PARALLEL = "A line is a setting, from option to option to its validation metric: the stronger its color, the better."


@final
@dataclass(frozen=True)
class HeatCell:
    """The mean validation metric of a setting, as text too, its details, and whether it is the method's best and the
    paper's."""

    value: float
    text: str
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
    """All maps of a data set, by method, on one color scale from `worst` (or worse) to `best`."""

    dataset: str
    title: str
    caption: str
    worst: float
    best: float
    methods: dict[str, list[HeatMap]]

    def colors(self, cell: HeatCell) -> tuple[str, str]:
        """The colors of a cell's background and text."""
        background = heat_color(cell.value, self.worst, self.best)
        return background, text_color(background)


def heat_maps(groups: Sequence[RunGroup]) -> list[HeatMapSet]:
    """The maps of every data set on which a method was run with several values of an option."""
    variants = run_groups.variant_options(groups)
    measured = [group for group in groups if group.mean("val") is not None]
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
    metric = part[0].metric
    values = [cell.value for made in maps.values() for m in made for row in m.rows for cell in row if cell]
    values.sort(reverse=not METRICS[metric].larger_is_better)  # from the worst to the best
    light, dark = light_end(values), values[-1]
    lightest = f"{short_metric(metric, light)}{' or worse' if light != values[0] else ''}"
    title = f"validation {metric}" + " in %" * METRICS[metric].share
    sentences = {
        f"{title.capitalize()} at the best epoch, mean over runs. Framed: the best setting of a method.": True,
        "†: the paper's tuned setting.": part[0].dataset in PAPER_DATASETS,
        "A cell is the best over the options that are not shown.": hidden,
        "Combinations with a single setting are not drawn.": single,
        f"Colors go from {lightest} (light) to {short_metric(metric, dark)} (dark).": True,
    }
    caption = " ".join(sentence for sentence, holds in sentences.items() if holds)
    return HeatMapSet(part[0].dataset, title, caption, light, dark, maps)


def light_end(values: Sequence[float]) -> float:
    """Where the scale of colors starts: at the first quartile if a few bad settings would make all others look alike.

    Args:
        values: from the worst to the best.
    """
    quartile = values[len(values) // 4]
    return quartile if abs(values[-1] - quartile) < abs(values[-1] - values[0]) / 2 else values[0]


def short_metric(metric: str, value: float) -> str:
    """A value for a small cell: a share in percent with one digit, else three digits."""
    return f"{100 * value:.1f}" if METRICS[metric].share else f"{value:.3g}"


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
    value = None if group is None else group.mean("val")
    if group is None or value is None:
        return None
    finished = seeds(run for run in group.runs if run.result is not None)
    details = (
        f"{group.describe(['optimizer', *_AXIS_ORDER])}: validation {group.text('val')}, "
        f"test at the best validation epoch {group.text('test')}; seeds {finished}"
    )
    paper = group.recipe is not None and all(group.options[name] == group.recipe[name] for name in TUNED)
    return HeatCell(value, short_metric(group.metric, value), details, group is winner, paper)


@final
@dataclass(frozen=True)
class OptionAxis:
    """The axis of an option: its numbers, or a position for each of its values if one of them is no number.

    Args:
        name: of the option.
        values: all of them, in order.
        may_be_log: whether the axis is logarithmic if the numbers span a wide range.
    """

    name: str
    values: Sequence[Any]
    may_be_log: bool = True

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(_number(value) is not None for value in self.values)

    @property
    def ends(self) -> tuple[float, float]:
        """The positions of the first and the last value."""
        return self.at(self.values[0]), self.at(self.values[-1])

    @property
    def log(self) -> bool:
        """Whether the axis is logarithmic."""
        low, high = self.ends
        return self.may_be_log and self.numeric and 0 < low <= high / _LOG_FROM

    def at(self, value: Any) -> float:
        """The position of a value, before a logarithm is taken."""
        number = _number(value) if self.numeric else None
        return float(self.values.index(value)) if number is None else number

    def share(self, value: Any) -> float:
        """The position of a value between the ends, 0 to 1."""
        low, high, at = (math.log(v) if self.log else v for v in (*self.ends, self.at(value)))
        return round((at - low) / (high - low), 4) if high > low else 0.5

    def ticks(self) -> list[tuple[float, str]]:
        """Positions and texts of all names, or of round numbers inside the range; both ends if fewer than two are."""
        if not self.numeric:
            return [(self.share(value), format_value(value)) for value in self.values]
        low, high = self.ends
        if self.log:
            decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            fine, coarse = (
                [v for d in decades for f in factors if low <= (v := float(f"{f}e{d}")) <= high]
                for factors in ((1, 2, 5), (1,))
            )
            values = fine if len(fine) <= _MAX_TICKS else coarse
        else:
            raw = (high - low) / (_MAX_TICKS - 1) or 1.0
            power = 10.0 ** math.floor(math.log10(raw))
            step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.999 * raw)
            first = math.ceil(low / step - 1e-9)
            values = [round(step * n, 10) for n in range(first, math.floor(high / step + 1e-9) + 1)]
        values = values if len(values) > 1 else sorted({low, high})
        return [(self.share(value), f"{value:.6g}") for value in values]


def _number(value: Any) -> float | None:
    value = value[0] if isinstance(value, tuple | list) and len(value) == 1 else value  # the fan-out of one hop
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def search_charts(groups: Sequence[RunGroup]) -> list[Chart]:
    """A scatter chart and a parallel-coordinates chart of the data sets whose settings are no grid."""
    variants = run_groups.variant_options(groups)
    styles = curve_styles({group.method(variants): group.optimizer for group in groups})
    scatter, parallel = [], []
    for part in run_groups.by_dataset(group for group in groups if group.mean("val") is not None):
        methods = partition(part, lambda g: g.method(variants))
        searched = [method for method in methods if len(method) > 1]
        if is_scattered(searched):
            numeric = [OptionAxis(name, levels(part, name)) for name in axes_of(searched)]
            panels = [_scatter_panel(axis, {m[0].method(variants): m for m in methods}, styles) for axis in numeric]
            scatter.append(PanelRow(part[0].dataset, panels))
            named = [OptionAxis(name, levels(part, name)) for name in ("optimizer", *variants)]
            axes = [*(axis for axis in named if len(axis.values) > 1), *numeric]
            parallel.append(PanelRow(part[0].dataset, [_parallel_panel(part, axes)]))
    if not scatter:
        return []
    title = f"{run_groups.metric_word(groups).capitalize()} by option"
    return [
        Chart("search", title, _SCATTER, "", [ChartView("", scatter)]),
        Chart("parallel", "All options of a setting", f"{_PARALLEL} Thick: the best.", "", [ChartView("", parallel)]),
    ]


def _scatter_panel(axis: OptionAxis, methods: dict[str, list[RunGroup]], styles: dict[str, CurveStyle]) -> Panel:
    curves = []
    for label, method in methods.items():
        ordered = sorted(method, key=lambda g: axis.at(g.options[axis.name]))
        runs = [group.values("val") for group in ordered]
        x = [axis.at(group.options[axis.name]) for group in ordered]
        curves.append(Curve.over_runs(x, runs, label=label, style=styles[label]))
    ticks = [] if axis.numeric else [format_value(value) for value in axis.values]
    group, label = next(iter(methods.values()))[0], option_name(axis.name)
    title = f"validation {group.metric}"
    return Panel(title, group.unit, curves, log_x=axis.log, points=True, x_label=label, x_ticks=ticks)


def _parallel_panel(groups: Sequence[RunGroup], axes: Sequence[OptionAxis]) -> ParallelPanel:
    """The plot of a data set's settings; the last axis is the metric."""
    metric = METRICS[groups[0].metric]
    means = {group: (100 if metric.share else 1) * (group.mean("val") or 0.0) for group in groups}
    ordered = sorted(groups, key=lambda group: means[group], reverse=not metric.larger_is_better)[-MAX_LINES:]
    winner = best(ordered, by="validation")
    values = [means[group] for group in ordered]
    pale, strong = light_end(values), values[-1]
    name = f"validation {groups[0].metric}" + " in %" * metric.share
    result = OptionAxis(name, sorted((values[0], values[-1])), may_be_log=False)
    lines = []
    for group in sorted(ordered, key=lambda g: g is winner):
        at = [axis.share(group.options[axis.name]) for axis in axes] + [result.share(means[group])]
        share = (means[group] - pale) / (strong - pale) if strong != pale else 1.0
        text = f"{group.describe(axis.name for axis in axes)}: {group.text('val', unit=' %')}"
        more = f", {count(len(group.results), 'run')}" if len(group.results) > 1 else ""
        lines.append(ParallelLine(at, round(max(0.0, share), 3), group is winner, text + more))
    return ParallelPanel("", [ParallelAxis(option_name(a.name), a.ticks()) for a in (*axes, result)], lines)
