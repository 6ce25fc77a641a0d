"""The figures of the report as PDF and PNG, drawn by matplotlib, which is needed for nothing else."""

from __future__ import annotations

import importlib.util
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cvgnn import disk
from cvgnn.errors import CvgnnError
from cvgnn.report.build import Report
from cvgnn.report.charts import Curve, Figure, Panel, View
from cvgnn.report.colors import CURVES, DASHES, heat_color, look, text_color
from cvgnn.report.heat import Heat, HeatMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Drawing
    from matplotlib.legend import Legend

_NAMES = {"validation": "", "test": "-by-test"}
_PLAIN: dict[str, Any] = {"parse_math": False}  # a name with dollar signs is a name, not a formula
_SMALL = 8
_REFERENCES = ((2, 4), (9, 4), (9, 3, 2, 3))  # dashes of what is only there to be compared with, as on the page
_LEGEND = 0.45  # inches that a drawing has room for; a higher legend makes it higher
_FEW = 40  # points that are marked, one by one


def require_matplotlib() -> None:
    """Refuse, with what to do, where matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise CvgnnError("--figures needs matplotlib; install it with: pip install 'cvgnn[plots]'")


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write every figure and every data set's heat maps as PDF and PNG; returns the files.

    Args:
        report: with the figures.
        folder: made if missing; files of the same names are replaced.
    """
    require_matplotlib()
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a box stands in its place
            for name, drawing in _drawings(report):
                for kind, options in (("pdf", {"metadata": {"CreationDate": None}}), ("png", {"dpi": 200})):
                    file = folder / f"{name}.{kind}"
                    drawing.savefig(file, **options)
                    written.append(file)
    except OSError as error:
        raise CvgnnError(f"cannot write figures to {folder}: {disk.reason(error)}") from None
    return written


def _drawings(report: Report) -> Iterator[tuple[str, Drawing]]:
    """Each figure with the name of its files."""
    for figure in report.figures:
        for view, suffix in zip(figure.views, _NAMES.values(), strict=False):
            yield figure.key + suffix, _curves(figure, view)
    for shown in report.diagnoses:
        for figure in shown.figures:
            yield figure.key, _curves(figure, figure.views[0])
    taken: set[str] = set()
    for heat in report.heat:
        name = f"heat-{re.sub('[^a-z0-9]+', '-', heat.dataset.lower()).strip('-')[:60] or 'graph'}"
        while name in taken:
            name += "-x"
        taken.add(name)
        yield name, _heat(heat)


def _curves(figure: Figure, view: View) -> Drawing:
    """Rows of panels with one legend above them; panels of a figure with one row wrap after three."""
    rows = [(row.name, row.panels) for row in view.rows]
    if len(rows) == 1:
        name, panels = rows[0]
        rows = [(name, panels[i : i + 3]) for i in range(0, len(panels), 3)]
    width = max(len(panels) for _, panels in rows)
    plain = rows[0][1][0].kind == "plain"
    size = (4.8, 3.3) if plain else (3.3 * width, 2.4 * len(rows) + 0.5)
    drawing, axes = _canvas(len(rows), width, size=size)
    found: dict[str, Curve] = {}
    for (name, panels), line in zip(rows, axes, strict=True):
        for panel, ax in zip(panels, line, strict=False):
            _draw(
                ax, panel, figure.x_label, figure.title if plain else f"{name}: {panel.title}" if name else panel.title
            )
            found.update({curve.label: curve for curve in panel.curves})
        for ax in line[len(panels) :]:
            ax.set_axis_off()
    ordered = sorted(found.values(), key=lambda curve: (curve.reference, look(curve.color)))
    legend = _legend(drawing, ordered, most=2 if plain else 5)
    rise = legend.get_window_extent().height / drawing.dpi - _LEGEND
    drawing.set_size_inches(size[0], size[1] + max(0.0, rise))
    return drawing


def _legend(drawing: Drawing, curves: Sequence[Curve], *, most: int) -> Legend:
    """A legend above the panels, not wider than the drawing: in `most` columns or fewer, and at last in several lines
    for a name."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **_style(curve.color, reference=curve.reference)) for curve in curves]
    place: dict[str, Any] = {"loc": "outside upper center", "handlelength": 3.2, "frameon": False, "fontsize": _SMALL}
    ways = [(columns, 1000) for columns in range(min(most, len(curves)), 0, -1)]
    ways += [(1, letters) for letters in range(100, 0, -10)]
    for columns, letters in ways:
        labels = ["\n".join(textwrap.wrap(curve.label, letters)) for curve in curves]
        legend = drawing.legend(handles, labels, ncols=columns, **place)
        for text in legend.get_texts():
            text.set_parse_math(False)
        if legend.get_window_extent().width <= 0.98 * drawing.bbox.width or (columns, letters) == ways[-1]:
            break
        legend.remove()
    return legend


def _draw(ax: Axes, panel: Panel, x_label: str, title: str) -> None:
    factor, plain = 100 if panel.kind == "accuracy" else 1, panel.kind == "plain"
    for curve in panel.curves:
        style = _style(curve.color, reference=curve.reference)
        low, high, mean = ([factor * v for v in values] for values in (curve.low, curve.high, curve.mean))
        if panel.log_y:  # an interval that reaches to zero must not press all else together
            low = [max(one, m / 10) for one, m in zip(low, mean, strict=True)]
            high = [min(one, m * 10) for one, m in zip(high, mean, strict=True)]
        ax.fill_between(curve.x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        few = len(mean) == 1 or (plain and len(mean) <= _FEW and not curve.reference)
        ax.plot(curve.x, mean, marker="o" if few else None, markersize=3, **style)
    if panel.log_x:
        ax.set_xscale("log")
        _few_labels(ax.xaxis)
    if panel.log_y:
        ax.set_yscale("log")
        _few_labels(ax.yaxis)
    if panel.floor is not None:
        top = factor * max(value for curve in panel.curves for value in curve.high)
        room = 0.05 * (top - factor * panel.floor)
        ax.set_ylim(factor * panel.floor - room, top + room)
    ax.set_title(title, fontsize=_SMALL + 1, **_PLAIN)
    ax.set_xlabel(x_label, fontsize=_SMALL, **_PLAIN)
    names = {"accuracy": "%", "plain": panel.title}
    ax.set_ylabel(names.get(panel.kind, panel.kind), fontsize=_SMALL, **_PLAIN)
    ax.tick_params(labelsize=_SMALL)
    ax.grid(alpha=0.3, linewidth=0.5)
    ax.spines[["top", "right"]].set_visible(False)
    if not panel.curves:
        ax.text(0.5, 0.5, "not measured", ha="center", va="center", transform=ax.transAxes, fontsize=_SMALL)


def _few_labels(axis: Axis) -> None:
    """Label a logarithmic axis at decades; over less than two of them at 1, 2 and 5. matplotlib would label more than
    fit beside one another."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_minor_formatter(NullFormatter())
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))


def _heat(heat: Heat) -> Drawing:
    """The maps of a data set, a method's beside one another."""
    methods = list(dict.fromkeys(one.method for one in heat.maps))
    rows = [[one for one in heat.maps if one.method == method] for method in methods]
    width = max(map(len, rows))
    across = max(len(one.x) for one in heat.maps)
    down = max(len(one.y) for one in heat.maps)
    titles = {id(one): _title(one, inches=0.62 * across + 1.0) for one in heat.maps}
    more = sum(max(titles[id(one)].count("\n") for one in row) for row in rows)
    size = (width * (0.62 * across + 1.2), len(rows) * (0.32 * down + 0.95) + 0.14 * more + 0.3)
    drawing, axes = _canvas(len(rows), width, size=size)
    drawing.suptitle(f"{heat.dataset}: validation accuracy in %", fontsize=_SMALL + 2, **_PLAIN)
    words = (
        "framed: the best of a method; †: the paper's setting" if _has_paper(heat) else "framed: the best of a method"
    )
    drawing.supxlabel(words, fontsize=_SMALL - 1)
    for row, line in zip(rows, axes, strict=True):
        for one, ax in zip(row, line, strict=False):
            _map(ax, one, heat)
            ax.set_title(titles[id(one)], fontsize=_SMALL, **_PLAIN)
        for ax in line[len(row) :]:
            ax.set_axis_off()
    return drawing


def _title(one: HeatMap, *, inches: float) -> str:
    """Method and options of a map, in as many lines as the width asks for."""
    letters = max(10, int(inches / (0.0085 * _SMALL)))  # an average letter is 0.6 of a point's size wide
    return "\n".join(textwrap.wrap(f"{one.method}, {one.title}" if one.title else one.method, letters))


def _map(ax: Axes, one: HeatMap, heat: Heat) -> None:
    from matplotlib.patches import Rectangle

    for y, squares in enumerate(one.squares):
        for x, square in enumerate(squares):
            if square is None:
                continue
            color = heat_color(square.value, heat.low, heat.high)
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=color, edgecolor="white"))
            if square.best:
                frame = Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, fill=False, edgecolor=CURVES[1], linewidth=1.8)
                ax.add_patch(frame)
            text = f"{100 * square.value:.1f}" + ("†" if square.paper else "")
            weight = "bold" if square.best else "normal"
            ax.text(x, y, text, ha="center", va="center", color=text_color(color), fontsize=_SMALL, fontweight=weight)
    ax.set_xlim(-0.5, len(one.x) - 0.5)
    ax.set_ylim(len(one.y) - 0.5, -0.5)
    ax.set_xticks(range(len(one.x)), one.x, fontsize=_SMALL)
    ax.set_yticks(range(len(one.y)), one.y, fontsize=_SMALL)
    ax.set_xlabel(one.x_name, fontsize=_SMALL)
    ax.set_ylabel(one.y_name, fontsize=_SMALL)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


def _has_paper(heat: Heat) -> bool:
    return any(square.paper for one in heat.maps for row in one.squares for square in row if square is not None)


def _style(number: int, *, reference: bool = False) -> dict[str, Any]:
    color, dash = look(number)
    parts = _REFERENCES[number % len(_REFERENCES)] if reference else DASHES[dash]
    line: Any = (0, tuple(part / 2 for part in parts)) if parts else "-"
    if reference:
        return {"linestyle": line, "color": "#666666", "linewidth": 1.0}
    return {"linestyle": line, "color": CURVES[color], "linewidth": 1.4}


def _canvas(rows: int, columns: int, *, size: tuple[float, float]) -> tuple[Drawing, Any]:
    """A drawing without pyplot, so that nothing is kept and no window is looked for."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=size, layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing, drawing.subplots(rows, columns, squeeze=False)
