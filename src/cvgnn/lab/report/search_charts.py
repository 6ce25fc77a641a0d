"""The charts of a random search: validation accuracy over each option, and all options in parallel coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cvgnn.lab.report import run_groups
from cvgnn.lab.report.charts import Chart, ChartView, Curve, Panel, PanelRow, ParallelAxis, ParallelLine, ParallelPanel
from cvgnn.lab.report.colors import CurveStyle
from cvgnn.lab.report.heat_maps import axes_of, is_scattered
from cvgnn.lab.report.run_groups import RunGroup, best, count, levels, partition
from cvgnn.lab.report.training_charts import curve_styles
from cvgnn.lab.report.typesetting import option_name
from cvgnn.lab.sweep.jobs import format_value

MAX_LINES = 300
"""The most lines of a parallel-coordinates plot: those of the best settings."""

_LOG_FROM = 20  # the ratio of a range's ends from which its axis is logarithmic
_MAX_TICKS = 7
_VALUE = "val_accuracy"
_SCATTER = "A point is a setting: its validation accuracy at the best epoch, mean over runs. Bar: lowest to highest."
_PARALLEL = "A line is a setting, from option to option to its validation accuracy: the stronger its color, the better."


@final
@dataclass(frozen=True)
class OptionAxis:
    """The axis of an option: its numbers, or a position for each of its values if one of them is no number."""

    name: str
    values: Sequence[Any]

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(_number(value) is not None for value in self.values)

    @property
    def log(self) -> bool:
        """Whether the axis is logarithmic."""
        low, high = _number(self.values[0]), _number(self.values[-1])
        return self.numeric and low is not None and high is not None and low > 0 and high >= _LOG_FROM * low

    def at(self, value: Any) -> float:
        """The position of a value, before a logarithm is taken."""
        number = _number(value) if self.numeric else None
        return float(self.values.index(value)) if number is None else number


def _number(value: Any) -> float | None:
    value = value[0] if isinstance(value, tuple | list) and len(value) == 1 else value  # the fan-out of one hop
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def search_charts(groups: Sequence[RunGroup]) -> list[Chart]:
    """A scatter chart and a parallel-coordinates chart of the data sets whose settings are no grid."""
    variants = run_groups.variant_options(groups)
    styles = curve_styles({group.method(variants): group.optimizer for group in groups})
    scatter, parallel = [], []
    for part in run_groups.by_dataset(group for group in groups if group.mean(_VALUE) is not None):
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
    return [
        Chart("search", "Accuracy by option", _SCATTER, "", [ChartView("", scatter)]),
        Chart("parallel", "All options of a setting", f"{_PARALLEL} Thick: the best.", "", [ChartView("", parallel)]),
    ]


def _scatter_panel(axis: OptionAxis, methods: dict[str, list[RunGroup]], styles: dict[str, CurveStyle]) -> Panel:
    curves = []
    for label, method in methods.items():
        ordered = sorted(method, key=lambda g: axis.at(g.options[axis.name]))
        runs = [[float(result[_VALUE]) for result in group.results] for group in ordered]
        curves.append(
            Curve(
                x=[axis.at(group.options[axis.name]) for group in ordered],
                mean=[float(np.mean(values)) for values in runs],
                low=[min(values) for values in runs],
                high=[max(values) for values in runs],
                runs=[len(values) for values in runs],
                label=label,
                style=styles[label],
            )
        )
    ticks = [] if axis.numeric else [format_value(value) for value in axis.values]
    label = option_name(axis.name)
    return Panel("validation accuracy", "accuracy", curves, log_x=axis.log, points=True, x_label=label, x_ticks=ticks)


def _parallel_panel(groups: Sequence[RunGroup], axes: Sequence[OptionAxis]) -> ParallelPanel:
    """The plot of a data set's settings; the last axis is the accuracy in percent."""
    means = {group: 100 * (group.mean(_VALUE) or 0.0) for group in groups}
    ordered = sorted(groups, key=lambda group: means[group])[-MAX_LINES:]
    winner, middle = best(ordered, by="validation"), means[ordered[len(ordered) // 4]]
    low, high = means[ordered[0]], max(means.values())
    # A few failed settings must not make all others look the same.
    pale = middle if high - middle < (high - low) / 2 else low
    scales = [_Scale.of(axis) for axis in axes] + [_Scale(low, high)]
    lines = []
    for group in sorted(ordered, key=lambda g: g is winner):
        values = [axis.at(group.options[axis.name]) for axis in axes] + [means[group]]
        at = [scale.share(value) for scale, value in zip(scales, values, strict=True)]
        share = (means[group] - pale) / (high - pale) if high > pale else 1.0
        text = f"{group.describe(axis.name for axis in axes)}: {group.percent(_VALUE)} %"
        more = f", {count(len(group.results), 'run')}" if len(group.results) > 1 else ""
        lines.append(ParallelLine(at, round(max(0.0, share), 3), group is winner, text + more))
    shown_axes = [
        ParallelAxis(option_name(axis.name), scale.ticks() if axis.numeric else _named_ticks(axis, scale))
        for axis, scale in zip(axes, scales, strict=False)
    ]
    return ParallelPanel("", [*shown_axes, ParallelAxis("validation accuracy in %", scales[-1].ticks())], lines)


def _named_ticks(axis: OptionAxis, scale: _Scale) -> list[tuple[float, str]]:
    return [(scale.share(number), format_value(value)) for number, value in enumerate(axis.values)]


@final
@dataclass(frozen=True)
class _Scale:
    """Numbers from `low` to `high` as shares of an axis."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def of(cls, axis: OptionAxis) -> _Scale:
        return cls(axis.at(axis.values[0]), axis.at(axis.values[-1]), axis.log)

    def share(self, value: float) -> float:
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return round((value - low) / (high - low), 4) if high > low else 0.5

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers inside the range; both ends where it has fewer than two of them."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            fine = [float(f"{factor}e{decade}") for decade in decades for factor in (1, 2, 5)]
            coarse = [float(f"1e{decade}") for decade in decades]
            inside = [[v for v in values if self.low <= v <= self.high] for values in (fine, coarse)]
            values = inside[0] if len(inside[0]) <= _MAX_TICKS else inside[1]
        else:
            raw = (self.high - self.low) / (_MAX_TICKS - 1) or 1.0
            power = 10.0 ** math.floor(math.log10(raw))
            step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.999 * raw)
            first = math.ceil(self.low / step - 1e-9)
            values = [round(step * n, 10) for n in range(first, math.floor(self.high / step + 1e-9) + 1)]
        values = values if len(values) > 1 else sorted({self.low, self.high})
        return [(self.share(value), f"{value:.6g}") for value in values]
