"""The description of a chart: series, axes and captions. The page's script and matplotlib both draw from it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from cvgnn.lab.diagnose.record import Diagnosis
from cvgnn.lab.report.colors import CurveStyle, curve_style
from cvgnn.lab.report.typesetting import typeset

MAX_POINTS = 400
_MIN_EPOCHS_FOR_SPAN = 20  # shorter curves are mostly their steep rise


@final
@dataclass(frozen=True, kw_only=True)
class Curve:
    """A series: means over runs with the lowest and the highest run.

    Args:
        x: the positions of the points.
        mean, low, high: the values there.
        runs: the number of runs behind each point.
        label: the name in the legend.
        style: the color and the dash.
        reference: whether the curve is drawn thin and grey, as a line to compare with.
        note: the options and runs behind the curve, for the list below the panels.
    """

    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    runs: Sequence[int]
    label: str = ""
    style: CurveStyle = (0, 0)
    reference: bool = False
    note: str = ""

    @classmethod
    def over_runs(cls, x: Sequence[float], values: Sequence[Sequence[float]], **rest: Any) -> Curve:
        """The curve through `values[i]`, one number for each run, at `x[i]`.

        >>> Curve.over_runs([1, 2], [[0.25, 0.75], [0.5]]).mean
        [0.5, 0.5]
        """
        # Six digits: more than the page can show, and a smaller file.
        mean, low, high = ([float(f"{f(v):.6g}") for v in values] for f in (statistics.fmean, min, max))
        return cls(x=x, mean=mean, low=low, high=high, runs=[len(v) for v in values], **rest)

    def thinned(self) -> Curve:
        """The curve with about `MAX_POINTS` points, extremes included."""
        keep = kept_points(self.mean, MAX_POINTS)
        x, mean, low, high = ([column[i] for i in keep] for column in (self.x, self.mean, self.low, self.high))
        return replace(self, x=x, mean=mean, low=low, high=high, runs=[self.runs[i] for i in keep])


@final
@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Args:
        title: the text above it.
        kind: the unit of its values: "percent" for shares, "number", or "plain" in a diagnosis.
        curves: what it shows.
        span: what the y axis shows if it leaves out the steep first epochs; None for the whole range.
        log_x, log_y: whether an axis is logarithmic.
        points: whether the points are drawn without lines between them: a scatter plot.
        x_label: the title of the x axis, if it is not the chart's.
        y_label: that of the y axis, if it is not the panel's.
        x_ticks: the names of the positions 0, 1, ... on an x axis without numbers.
    """

    title: str
    kind: str
    curves: Sequence[Curve]
    span: tuple[float, float] | None = None
    log_x: bool = False
    log_y: bool = False
    points: bool = False
    x_label: str = ""
    y_label: str = ""
    x_ticks: Sequence[str] = ()
    note: str = field(init=False)
    """A sentence on the curves that cannot be seen apart."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "note", "" if self.points else coincidence_note(self.curves, log=self.log_y))


@final
@dataclass(frozen=True)
class ParallelAxis:
    """A vertical axis of a parallel-coordinates plot, with the positions (0 to 1) and texts of its ticks."""

    name: str
    ticks: Sequence[tuple[float, str]]


@final
@dataclass(frozen=True)
class ParallelLine:
    """A setting in a parallel-coordinates plot.

    Args:
        at: its position on every axis, 0 to 1.
        share: how strong its color is, 0 to 1.
        best: whether it is the best setting.
        label: the setting in words.
    """

    at: Sequence[float]
    share: float
    best: bool
    label: str


@final
@dataclass(frozen=True)
class ParallelPanel:
    """A parallel-coordinates plot; `lines` from the worst setting to the best."""

    title: str
    axes: Sequence[ParallelAxis]
    lines: Sequence[ParallelLine]


@final
@dataclass(frozen=True)
class PanelRow:
    """Panels side by side."""

    name: str
    panels: Sequence[Panel | ParallelPanel]


@final
@dataclass(frozen=True)
class ChartView:
    """A chart for one way to choose the best settings."""

    name: str
    rows: Sequence[PanelRow]


@final
@dataclass(frozen=True)
class Chart:
    """A chart in one or two views. `key` names its files and its place in the page; `caption` depends on the data."""

    key: str
    title: str
    caption: str
    x_label: str
    views: Sequence[ChartView]


def kept_points(values: Sequence[float], most: int) -> list[int]:
    """The indices of about `most` points that keep every extreme: the first, the last, and of each stretch the lowest
    and the highest.

    >>> kept_points([3, 1, 2], 10), kept_points([0, 5, 1, 2, 9, 3, 0, 7], 4)
    ([0, 1, 2], [0, 1, 4, 6, 7])
    """
    if len(values) <= most:
        return list(range(len(values)))
    stretches = np.array_split(np.arange(len(values)), most // 2)
    extremes = {int(s[find(np.take(values, s))]) for s in stretches for find in (np.argmin, np.argmax)}
    return sorted({0, *extremes, len(values) - 1})


def axis_span(curves: Sequence[Curve], *, larger_is_better: bool) -> tuple[float, float] | None:
    """The range of the y axis without the worst values of the first tenth of the x axis, if it becomes much shorter."""
    points = [(x, low, high) for c in curves for x, low, high in zip(c.x, c.low, c.high, strict=True)]
    if max((len(c.x) for c in curves), default=0) < _MIN_EPOCHS_FOR_SPAN:
        return None
    xs, lows, highs = zip(*points, strict=True)
    later = [(low, high) for x, low, high in points if x >= min(xs) + (max(xs) - min(xs)) / 10]
    worst = min(low for low, _ in later) if larger_is_better else max(high for _, high in later)
    span = (worst, max(highs)) if larger_is_better else (min(lows), worst)
    return span if span[1] - span[0] < 0.6 * (max(highs) - min(lows)) else None


def coincidence_note(curves: Sequence[Curve], *, log: bool = False) -> str:
    """A sentence on the curves that differ nowhere by more than a hundredth of the panel's height.

    >>> a = Curve(x=[1, 2], mean=[0.1, 0.9], low=[0.1, 0.9], high=[0.1, 0.9], runs=[1, 1], label="a")
    >>> coincidence_note([a, replace(a, label="b"), replace(a, label="c", mean=[0.1, 0.8])])
    'a and b coincide.'
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        heights = [np.log10(np.asarray(c.mean)) if log else np.asarray(c.mean, float) for c in curves]
    finite = np.concatenate([h[np.isfinite(h)] for h in heights] or [np.zeros(0)])
    if not len(finite):
        return ""
    near = max(0.01 * (finite.max() - finite.min()), 1e-12)
    sets: list[list[int]] = []
    for number, curve in enumerate(curves):
        for several in sets:
            first = several[0]
            if list(curves[first].x) == list(curve.x) and np.allclose(heights[first], heights[number], 0, near):
                several.append(number)
                break
        else:
            sets.append([number])
    names = [[curves[i].label for i in several] for several in sets if len(several) > 1]
    return " ".join(f"{_enumeration(several)} coincide." for several in names)


def _enumeration(names: Sequence[str]) -> str:
    """The names in a sentence, separated so that commas within them are told apart.

    >>> _enumeration(["sgd, estimator cv", "sgd, estimator ns"])
    'sgd, estimator cv; and sgd, estimator ns'
    """
    mark = ";" if any("," in name for name in names) else ","
    return f"{f'{mark} '.join(names[:-1])}{mark if mark == ';' else ''} and {names[-1]}"


def unique_key(prefix: str, name: str, taken: Container[str]) -> str:
    """A key for anchors and file names that is not taken yet.

    >>> unique_key("heat", "Cora (full)", {"heat-cora-full"})
    'heat-cora-full-2'
    """
    stem = f"{prefix}-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')[:60] or 'graph'}"
    key, number = stem, 2
    while key in taken:
        key, number = f"{stem}-{number}", number + 1
    return key


def diagnosis_charts(key: str, diagnosis: Diagnosis) -> list[Chart]:
    """A chart for each figure of the diagnosis; a curve has one style in all of them.

    Args:
        key: starts the keys of the charts.
        diagnosis: with the figures.
    """
    lines = sorted((line for f in diagnosis.figures for line in f.lines), key=lambda line: line.reference)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(line.name for line in lines))}
    charts = []
    for figure in diagnosis.figures:
        curves = [
            Curve(
                x=line.x,
                mean=line.y,
                low=line.low or line.y,
                high=line.high or line.y,
                runs=[1] * len(line.x),
                label=typeset(line.name),
                style=curve_style(numbers[line.name], reference=line.reference),
                reference=line.reference,
            ).thinned()
            for line in figure.lines
            if line.x
        ]
        panel = Panel(typeset(figure.y_label), "plain", curves, log_x=figure.log_x, log_y=figure.log_y)
        view = ChartView("", [PanelRow("", [panel])])
        title, caption, x_label = (typeset(text) for text in (figure.title, figure.caption, figure.x_label))
        charts.append(Chart(f"{key}-{figure.key}", title, caption, x_label, [view]))
    return charts
