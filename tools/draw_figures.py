"""Draw the figures of the README and of docs/method.md: python tools/draw_figures.py [NAME ...]

They are SVG files in docs/images. `accuracy_seconds` shows the curves of a note of docs/benchmarks; the others are
drawings of the method. Equal input gives equal bytes.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
RACE = ("peers_accuracy_small.json", "photo curves", "Amazon Photo, 7,650 nodes, 2 cores")
METHODS = {
    "cv": ("cvgnn, fan-out 5", "#0b6e4f", "-"),
    "pyg-10-10": ("PyG NeighborLoader, 10,10", "#c1440e", "--"),
    "dgl-10-10": ("DGL, 10,10", "#7a5195", "-."),
    "pyg-full": ("PyG, full batch", "#555555", ":"),
}
FRESH, OLD, LEFT_OUT = "#0b6e4f", "#e9a820", "#cccccc"


def save(figure: Any, name: str) -> None:
    """Write the file; no date and fixed ids."""
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def accuracy_at(points: list[list[float]], seconds: float) -> float:
    """The best validation accuracy that a run has shown after so many seconds, in %."""
    return max((accuracy for at, accuracy in points if at <= seconds), default=float("nan"))


def accuracy_seconds() -> None:
    """Validation accuracy against seconds from the start of the set-up, median and range over the seeds."""
    note, key, title = RACE
    curves = json.loads((ROOT / "docs/benchmarks" / note).read_text())[key]
    figure, axes = plt.subplots(figsize=(6.4, 3.2))
    for method, (label, color, dashes) in METHODS.items():
        if method not in curves:
            continue
        runs = [[[at + run["setup"], 100 * accuracy] for _, at, accuracy in run["points"]] for run in curves[method]]
        times = sorted({round(at, 4) for run in runs for at, _ in run})
        table = [[accuracy_at(run, at) for run in runs] for at in times]
        rows = [(at, row) for at, row in zip(times, table, strict=True) if not any(map(_is_nan, row))]
        at = [time for time, _ in rows]
        axes.fill_between(
            at, [min(row) for _, row in rows], [max(row) for _, row in rows], color=color, alpha=0.15, lw=0
        )
        axes.plot(at, [statistics.median(row) for _, row in rows], dashes, color=color, label=label, lw=2)
    axes.set(xscale="log", xlabel="seconds of training and set-up", ylabel="best validation accuracy so far, %")
    axes.set_title(title, pad=42)
    axes.set_ylim(40, 97)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)  # not beside: for phones
    save(figure, "accuracy_seconds")


def _is_nan(number: float) -> bool:
    return number != number


def neighbors() -> None:
    """One node and six neighbors: what exact aggregation, sampling and the control variate read."""
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.3))
    spots = [(-1, 0.75), (-0.35, 1.05), (0.4, 1.0), (1, 0.6), (1.05, -0.15), (-1.1, 0.0)]
    drawn = (1, 4)
    titles = (
        "exact:\nall neighbors",
        "sampling:\ntwo of six, times 3",
        "control variate: two fresh,\nthe others as last computed",
    )
    for panel, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        for i, (x, y) in enumerate(spots):
            fresh = panel == 0 or i in drawn
            color = FRESH if fresh else OLD if panel == 2 else LEFT_OUT
            style = "-" if fresh else "--" if panel == 2 else ":"
            axes.add_patch(
                FancyArrowPatch((x, y), (0, -0.55), arrowstyle="-|>", mutation_scale=11, shrinkA=11, shrinkB=14,
                                color=color, linestyle=style, lw=2.2 if fresh else 1.4)
            )  # fmt: skip
            axes.scatter([x], [y], s=330, color=color, zorder=3)
            text = {True: "$H_u$", False: r"$\bar{H}_u$" if panel == 2 else ""}[fresh]
            axes.text(x, y, text, ha="center", va="center", color="white" if fresh else "black", zorder=4, fontsize=9)
        axes.scatter([0], [-0.55], s=480, color="#1f3a5f", zorder=3)
        axes.text(0, -0.55, "$v$", ha="center", va="center", color="white", zorder=4)
        axes.set_title(title, fontsize=10)
        axes.set(xlim=(-1.5, 1.5), ylim=(-0.95, 1.35))
        axes.axis("off")
    save(figure, "neighbors")


def box(axes: Any, x: float, y: float, text: str, color: str, width: float = 1.7, height: float = 0.62) -> None:
    """A rounded box with text, centred at x, y."""
    shape = FancyBboxPatch(
        (x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0.04", fc=color, ec="#333333"
    )
    axes.add_patch(shape)
    axes.text(x, y, text, ha="center", va="center", fontsize=9)


def arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], **options: Any) -> None:
    """An arrow from one point to another."""
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color="#333333", **options))


def step() -> None:
    """One training step of a network of two layers."""
    figure, axes = plt.subplots(figsize=(9, 3.5))
    box(axes, 0.9, 2.4, "$P X$\ncomputed once", "#d7e8f7")
    box(axes, 3.3, 2.4, "$H^{(1)} = \\sigma(P X\\, W^{(0)})$\nof batch and drawn neighbors", "#d5eee2", width=2.55)
    box(axes, 6.5, 2.4, "$\\hat{P} H^{(1)} + (P - \\hat{P})\\, \\bar{H}^{(1)}$\nof the batch", "#d5eee2", width=2.6)
    box(axes, 9.4, 2.4, "times $W^{(1)}$:\nlogits, loss", "#d5eee2")
    box(axes, 6.5, 0.7, "histories $\\bar{H}^{(1)}$ of all nodes:\neach as it was last computed", "#fbe8bd", width=2.8)
    arrow(axes, (1.8, 2.4), (1.98, 2.4))
    arrow(axes, (4.62, 2.4), (5.15, 2.4))
    arrow(axes, (7.85, 2.4), (8.5, 2.4))
    arrow(axes, (6.5, 1.05), (6.5, 2.05))
    arrow(axes, (3.3, 2.05), (5.05, 0.7), connectionstyle="arc3,rad=0.25", linestyle="--")
    axes.text(3.15, 0.85, "after the step:\nwrite $H^{(1)}$", ha="center", fontsize=9)
    arrow(axes, (9.4, 2.75), (3.3, 2.78), connectionstyle="arc3,rad=0.22", linestyle=":")
    axes.text(6.4, 3.5, "gradient of $W^{(0)}$, $W^{(1)}$; the optimizer steps", ha="center", fontsize=9)
    axes.set(xlim=(-0.1, 10.4), ylim=(0.25, 3.85))
    axes.axis("off")
    save(figure, "step")


FIGURES: dict[str, Callable[[], None]] = {f.__name__: f for f in (accuracy_seconds, neighbors, step)}


def main() -> None:
    """Draw the figures that are named, or all."""
    mpl.use("svg")
    plt.rcParams.update({"svg.hashsalt": "cvgnn", "svg.fonttype": "path", "font.size": 10})
    for name in sys.argv[1:] or FIGURES:
        FIGURES[name]()
        print(f"docs/images/{name}.svg")


if __name__ == "__main__":
    main()
