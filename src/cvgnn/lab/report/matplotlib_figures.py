"""The charts and heat maps of a report as PDF and PNG files, drawn by matplotlib, which is needed for nothing else."""

from __future__ import annotations

import importlib.util
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cvgnn.errors import CvgnnError
from cvgnn.lab.report.charts import Chart, ChartView, Curve, Panel, ParallelPanel, unique_key
from cvgnn.lab.report.colors import COLORS, DASHES, REFERENCE_DASHES
from cvgnn.lab.report.content import Report
from cvgnn.lab.report.option_charts import HeatMap, HeatMapSet
from cvgnn.lab.report.typesetting import as_mathtext
from cvgnn.utils import atomic_files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

_FONT_SIZE = 8  # as in assets/figures.mplstyle
_TEXT: dict[str, Any] = {"parse_math": False}  # a name with dollar signs is no formula
_LEGEND_INCHES = 0.45  # included in the figure's height; a higher legend makes the figure higher
_MAX_MARKERS = 40  # a diagnosis's curve with more points gets a marker at some of them only
_MARKERS = "os^DvP><"  # one for each dash, as in assets/dom.js
_PALE, _STRONG = (213, 219, 225), (0, 114, 178)  # the colors of a parallel-coordinates plot's worst and best lines


def require_matplotlib() -> None:
    """Raise an error if matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise CvgnnError("--figures needs matplotlib; install it with: pip install 'cvgnn[plots]'")


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write every chart and every data set's heat maps as PDF and PNG; returns the files.

    Args:
        report: with the charts.
        folder: created if missing; files of the same names are replaced.
    """
    require_matplotlib()
    written = []
    with atomic_files.report_errors(f"cannot write figures to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")  # matplotlib draws a box instead
            for name, figure in draw_figures(report):
                for suffix, options in (("pdf", {"metadata": {"CreationDate": None}}), ("png", {"dpi": 200})):
                    written.append(folder / f"{name}.{suffix}")
                    figure.savefig(written[-1], **options)
    return written


def draw_figures(report: Report) -> Iterator[tuple[str, Figure]]:
    """Every chart and every data set's heat maps, with the name of its files."""
    from matplotlib import style

    taken: set[str] = set()
    with style.context(Path(__file__).parent / "assets" / "figures.mplstyle"):
        for section in report.sections:
            for chart in section.charts:
                for view, suffix in zip(chart.views, ("", "-by-test"), strict=False):
                    yield chart.key + suffix, _draw_chart(chart, view)
        for maps in (maps for section in report.sections for maps in section.heat_maps):
            name = unique_key("heat", maps.dataset, taken)
            taken.add(name)
            yield name, _draw_heat_maps(maps)


def _draw_chart(chart: Chart, view: ChartView) -> Figure:
    """Rows of panels with one legend above them; a single row wraps after three panels."""
    rows = [(row.name, row.panels[i : i + 3]) for row in view.rows for i in range(0, len(row.panels), 3)]
    columns = max(len(panels) for _, panels in rows)
    first = rows[0][1][0]
    parallel, plain = isinstance(first, ParallelPanel), isinstance(first, Panel) and first.kind == "plain"
    size = (4.8, 3.3) if plain else (6.6 if parallel else 3.3 * columns, 2.4 * len(rows) + 0.5)
    figure, axes = _subplots([len(panels) for _, panels in rows], size)
    curves: dict[str, Curve] = {}
    for (name, panels), row_axes in zip(rows, axes, strict=True):
        for panel, ax in zip(panels, row_axes, strict=True):
            title = chart.title if plain else ": ".join(filter(None, (name, panel.title)))
            if isinstance(panel, ParallelPanel):
                _draw_parallel(ax, panel, title)
            else:
                _draw_panel(ax, panel, panel.x_label or chart.x_label, title)
                curves.update({curve.label: curve for curve in panel.curves})
    if not curves:
        return figure
    ordered = sorted(curves.values(), key=lambda curve: (curve.reference, curve.style))
    points = isinstance(first, Panel) and first.points
    legend = _draw_legend(figure, ordered, max_columns=2 if plain else 5, points=points, plain=plain)
    more = legend.get_window_extent().height / figure.dpi - _LEGEND_INCHES
    figure.set_size_inches(size[0], size[1] + max(0.0, more))
    return figure


def _draw_legend(figure: Figure, curves: Sequence[Curve], *, max_columns: int, points: bool, plain: bool) -> Legend:
    """A legend above the panels, not wider than the figure: first with fewer columns, then with wrapped labels."""
    from matplotlib.lines import Line2D

    styles = [_line_style(curve) | {"marker": None if curve.reference else _marker(curve)} for curve in curves]
    handles = [Line2D([], [], **(style | ({"linestyle": "none"} if points else {}))) for style in styles]
    layouts = [(columns, 1000) for columns in range(min(max_columns, len(curves)), 0, -1)]
    layouts += [(1, letters) for letters in range(100, 0, -10)]
    for columns, letters in layouts:
        labels = [_text("\n".join(textwrap.wrap(curve.label, letters)), plain=plain) for curve in curves]
        legend = figure.legend(handles, [label["text"] for label in labels], ncols=columns, loc="outside upper center")
        for text, label in zip(legend.get_texts(), labels, strict=True):
            text.set_parse_math(label["parse_math"])
        if legend.get_window_extent().width <= 0.98 * figure.bbox.width or (columns, letters) == layouts[-1]:
            break
        legend.remove()
    return legend


def _draw_panel(ax: Axes, panel: Panel, x_label: str, title: str) -> None:
    factor, plain = 100 if panel.kind == "percent" else 1, panel.kind == "plain"
    # A dashed curve is drawn above a solid one that it may coincide with.
    for curve in sorted(panel.curves, key=lambda curve: curve.style[1]):
        style = _line_style(curve)
        low, high, mean = (factor * np.array(values) for values in (curve.low, curve.high, curve.mean))
        if panel.log_y:  # an interval that reaches down to zero must not press all else together
            low, high = np.maximum(low, mean / 10), np.minimum(high, mean * 10)
        if panel.points:
            ax.vlines(curve.x, low, high, color=style["color"], alpha=0.6, linewidth=0.7)
            ax.plot(curve.x, mean, marker=_marker(curve), color=style["color"], linestyle="none")
            continue
        ax.fill_between(curve.x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        every = len(mean) == 1 or (plain and len(mean) <= _MAX_MARKERS)
        gap = max(1, len(mean) // 4)  # else a few markers, at other places for every curve
        start = round(gap * ((3 * curve.style[0] + curve.style[1]) % 8 + 1) / 10)
        markevery = None if every else (min(start, len(mean) - 1), gap)
        marker = None if curve.reference else _marker(curve)
        ax.plot(curve.x, mean, marker=marker, markevery=markevery, **style)
    ax.set(xscale="log" if panel.log_x else "linear", yscale="log" if panel.log_y else "linear")
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            _limit_labels(axis)
    if panel.span is not None:
        bottom, top = (factor * value for value in panel.span)
        ax.set_ylim(bottom - 0.05 * (top - bottom), top + 0.05 * (top - bottom))
    if panel.x_ticks:
        ax.set_xticks(range(len(panel.x_ticks)), panel.x_ticks, **_TEXT)
        ax.set_xlim(-0.5, len(panel.x_ticks) - 0.5)
    y_label = (panel.y_label or panel.title) + " in %" * (panel.kind == "percent")
    for text, words in ((ax.title, title), (ax.xaxis.label, x_label), (ax.yaxis.label, y_label)):
        text.set(**_text(words, plain=plain))
    if panel.note:
        # Inside the panel, a few rows at most; they must not make the panel smaller.
        note = ax.text(0.99, 0.02, "", ha="right", va="bottom", fontsize=6, transform=ax.transAxes, in_layout=False)
        rows = textwrap.wrap(panel.note, 64, max_lines=4, placeholder=" ...")
        note.set(**_text("\n".join(rows), plain=plain))
    if not panel.curves:
        ax.text(0.5, 0.5, "not measured", ha="center", va="center", transform=ax.transAxes)


def _draw_parallel(ax: Axes, panel: ParallelPanel, title: str) -> None:
    """Parallel coordinates: an axis for each option, a line for each setting."""
    for line in panel.lines:
        color = tuple((pale + line.share * (strong - pale)) / 255 for pale, strong in zip(_PALE, _STRONG, strict=True))
        look = (COLORS[1], 2.0) if line.best else (color, 0.9)
        ax.plot(range(len(line.at)), line.at, color=look[0], linewidth=look[1])
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.7}
    for number, axis in enumerate(panel.axes):
        ax.axvline(number, color="#666666", linewidth=0.8)
        for place, text in axis.ticks:
            ax.annotate(
                text, (number, place), (3, 0), textcoords="offset points", va="center", fontsize=6, bbox=box, **_TEXT
            )
    names = ["\n".join(textwrap.wrap(axis.name, 14)) for axis in panel.axes]
    ax.set_xticks(range(len(names)), names, **_TEXT)
    ax.set(ylim=(-0.04, 1.04), xlim=(-0.05, len(names) - 0.7))
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.set_title(title, **_TEXT)


def _text(text: str, *, plain: bool) -> dict[str, Any]:
    """The arguments of a text: mathematics in a diagnosis, whose texts are typeset; names are drawn as they are."""
    shown, formula = as_mathtext(text) if plain else (text, False)
    return {"text": shown, "parse_math": formula}


def _marker(curve: Curve) -> str:
    return _MARKERS[curve.style[1] % len(_MARKERS)]


def _limit_labels(axis: Axis) -> None:
    """Label a logarithmic axis at decades; over less than two of them at 1, 2 and 5. matplotlib's default labels would
    overlap."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_minor_formatter(NullFormatter())
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))


def _line_style(curve: Curve) -> dict[str, Any]:
    color, dash = COLORS[curve.style[0]], (*DASHES, *REFERENCE_DASHES)[curve.style[1]]
    line: Any = (0, tuple(part / 2 for part in dash)) if dash else "-"  # the page's dashes are in pixels
    if curve.reference:
        return {"linestyle": line, "color": "#666666", "linewidth": 1.0}
    return {"linestyle": line, "color": color, "linewidth": 1.4}


def _draw_heat_maps(maps: HeatMapSet) -> Figure:
    """The maps of a data set, one row per method."""
    everything = [heat_map for row in maps.methods.values() for heat_map in row]
    width = 0.62 * max(len(heat_map.x) for heat_map in everything) + 1.0
    height = 0.32 * max(len(heat_map.y) for heat_map in everything) + 0.95
    letters = max(10, int(width / (0.0085 * _FONT_SIZE)))  # an average letter is 0.6 of the font size wide
    titles = [
        ["\n".join(textwrap.wrap(f"{method}, {m.title}" if m.title else method, letters)) for m in row]
        for method, row in maps.methods.items()
    ]
    extra_lines = sum(max(title.count("\n") for title in row) for row in titles)
    counts = [len(row) for row in titles]
    size = (max(counts) * (width + 0.2), len(counts) * height + 0.14 * extra_lines + 0.3)
    figure, axes = _subplots(counts, size)
    figure.suptitle(f"{maps.dataset}: {maps.title}", **_TEXT)
    paper = any(cell.paper for heat_map in everything for row in heat_map.rows for cell in row if cell is not None)
    figure.supxlabel("framed: the best of a method" + "; †: the paper's setting" * paper)
    for row, row_axes, row_titles in zip(maps.methods.values(), axes, titles, strict=True):
        for heat_map, ax, title in zip(row, row_axes, row_titles, strict=True):
            _draw_heat_map(ax, heat_map, maps)
            ax.set_title(title, fontsize=_FONT_SIZE, **_TEXT)
    return figure


def _draw_heat_map(ax: Axes, heat_map: HeatMap, maps: HeatMapSet) -> None:
    from matplotlib.patches import Rectangle

    cells = [(x, y, cell) for y, row in enumerate(heat_map.rows) for x, cell in enumerate(row) if cell is not None]
    for x, y, cell in cells:
        background, color = maps.colors(cell)
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=background, edgecolor="white"))
        if cell.best:
            frame = Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, fill=False, edgecolor=COLORS[1], linewidth=1.8)
            ax.add_patch(frame)
        weight = "bold" if cell.best else "normal"
        ax.text(x, y, cell.text + "†" * cell.paper, ha="center", va="center", color=color, fontweight=weight)
    ax.set(xlim=(-0.5, len(heat_map.x) - 0.5), ylim=(len(heat_map.y) - 0.5, -0.5))
    ax.set_xticks(range(len(heat_map.x)), heat_map.x)
    ax.set_yticks(range(len(heat_map.y)), heat_map.y)
    ax.set(xlabel=heat_map.x_name, ylabel=heat_map.y_name)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)


def _subplots(counts: Sequence[int], size: tuple[float, float]) -> tuple[Figure, list[list[Axes]]]:
    """A figure with so many axes in each row. It is made without pyplot, which would keep it and look for a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    grid = figure.add_gridspec(len(counts), max(counts))
    return figure, [[figure.add_subplot(grid[row, i]) for i in range(count)] for row, count in enumerate(counts)]
