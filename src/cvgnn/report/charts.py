"""The figures as plain numbers, for the page and for matplotlib alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

from cvgnn.report.lines import Line, candidates, choices, colors, lines
from cvgnn.report.settings import WORDS, Choice, Setting, by_dataset, in_words, varying
from cvgnn.training import EpochRecord

MOST_POINTS = 400
_LONG = 20  # epochs of a run that has more than its rise
_Value = Callable[[EpochRecord], float | None]


@final
@dataclass(frozen=True)
class Curve:
    """Means over runs with the lowest and highest run; `runs` says how many runs a point has. A `reference` is thin."""

    color: int
    label: str
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    runs: list[int]
    reference: bool = False


@final
@dataclass(frozen=True)
class Panel:
    """One set of axes; `kind` says what its numbers are: accuracy, loss, or plain, which is a diagnosis's. `floor` is
    where the y axis begins if it leaves the steep rise of the first tenth out, None where that would gain little."""

    title: str
    kind: str
    curves: list[Curve]
    floor: float | None
    log_x: bool = False
    log_y: bool = False


@final
@dataclass(frozen=True)
class Row:
    """Panels side by side, and a sentence for each curve in them."""

    name: str
    panels: list[Panel]
    notes: list[tuple[int, str, str]]


@final
@dataclass(frozen=True)
class View:
    """The figure for one way of choosing settings."""

    name: str
    rows: list[Row]


@final
@dataclass(frozen=True)
class Figure:
    """A figure with its caption, in one or several views."""

    key: str
    title: str
    caption: str
    x_label: str
    views: list[View]


_ACCURACIES: dict[str, _Value] = {
    "training accuracy": lambda r: None if r.accuracies is None else r.accuracies.train,
    "validation accuracy": lambda r: None if r.accuracies is None else r.accuracies.val,
    "test accuracy": lambda r: None if r.accuracies is None else r.accuracies.test,
}
_VIEWS: dict[Choice, str] = {
    "validation": "best settings by validation accuracy",
    "test": "best settings by test accuracy (the paper's way)",
}
_BAND = "Line: mean over runs; band: from the lowest to the highest run. "
_CUT = "Where the first epochs would press all else together, the axis begins above them. "
_SAME = "The runs are those of the first figure."
_CHOSEN = "A curve is its method's best setting. "
_BEST = (
    "Best is by the mean over runs of the validation accuracy at its best epoch, or, in the other view, of the highest "
    "test accuracy (the paper's way, which looks at the answers). "
)


def figures(settings: Sequence[Setting]) -> list[Figure]:
    """All figures of the report that have data."""
    names = varying(settings)
    ways = choices(settings, names)
    parts = by_dataset(settings)
    drawn = {way: [(part[0].dataset, lines(part, names, way)) for part in parts] for way in ways}
    color = colors({line.label: line.kin for way in ways for _, found in drawn[way] for line in found})
    about = _BAND + (_CHOSEN if any(line.among > 1 for _, found in drawn[ways[0]] for line in found) else "")
    about += _left_out(
        [(p[0].dataset, len(lines(p, names, ways[0])), len(candidates(p, names, ways[0]))) for p in parts]
    )
    about += _BEST if len(ways) > 1 else ""

    def views(row: Callable[[str, list[Line]], Row | None], *, together: bool = False) -> list[View]:
        made = []
        for way in ways:
            rows = [r for name, found in drawn[way] if (r := row(name, found)) is not None]
            if together and rows:
                notes = [note for r in rows for note in r.notes]
                rows = [Row("", [panel for r in rows for panel in r.panels], notes)]
            if rows:
                made.append(View(_VIEWS[way], rows))
        return made

    def by_epoch(name: str, found: list[Line]) -> Row | None:
        made = [_panel(title, "accuracy", value, found, color) for title, value in _ACCURACIES.items()]
        return Row(name, made, _notes(found, color, names)) if any(p.curves for p in made) else None

    def by_second(name: str, found: list[Line]) -> Row | None:
        titles = ("validation accuracy", "test accuracy")
        made = [_panel(t, "accuracy", _ACCURACIES[t], found, color, seconds=True) for t in titles]
        return Row(name, made, []) if any(p.curves for p in made) else None

    def loss(name: str, found: list[Line]) -> Row | None:
        panel = _panel(name, "loss", lambda r: r.loss if math.isfinite(r.loss) else None, found, color)
        return Row(name, [panel], []) if panel.curves else None

    losses = f"The mean loss of an epoch's batches. {_BAND}{_SAME}"
    seconds = f"Seconds of training, added up, without evaluation and start-up. {_BAND}"
    made = [
        _figure("accuracy", "Accuracy by epoch", f"The figure of the paper. {about}", "epoch", views(by_epoch)),
        _figure("loss", "Training loss by epoch", losses, "epoch", views(loss, together=True)),
        _figure("seconds", "Accuracy against seconds", seconds + _SAME, "seconds of training", views(by_second)),
    ]
    return [figure for figure in made if figure.views]


def _figure(key: str, title: str, caption: str, x_label: str, found: list[View]) -> Figure:
    cut = any(panel.floor is not None for view in found for row in view.rows for panel in row.panels)
    return Figure(key, title, f"{caption.strip()} {_CUT if cut else ''}".strip(), x_label, found)


def curve(setting: Setting, value: _Value, *, seconds: bool = False) -> Curve:
    """Mean, lowest and highest over the runs for every epoch that one of them has; of more than 400 points, those that
    are lowest and highest among their neighbors.

    Args:
        setting: whose runs.
        value: what of an epoch.
        seconds: whether x is the time that the runs took, on average, up to that epoch.
    """
    at: dict[int, list[EpochRecord]] = {}
    for run in setting.runs:
        for record in run.records:
            at.setdefault(record.epoch, []).append(record)
    x: list[float] = []
    values: list[list[float]] = []
    clock = 0.0
    for epoch in sorted(at):
        clock += statistics.fmean(record.train_seconds for record in at[epoch])
        known = [v for record in at[epoch] if (v := value(record)) is not None]
        if known:
            x.append(_short(clock) if seconds else epoch)
            values.append(known)
    mean = [statistics.fmean(v) for v in values]
    keep = thinned(mean, MOST_POINTS)
    return Curve(
        color=0,
        label="",
        x=[x[i] for i in keep],
        mean=[_short(mean[i]) for i in keep],
        low=[_short(min(values[i])) for i in keep],
        high=[_short(max(values[i])) for i in keep],
        runs=[len(values[i]) for i in keep],
    )


def thinned(values: Sequence[float], most: int) -> list[int]:
    """Which points to keep so that about `most` are left: the first, the last, and of each stretch the lowest and the
    highest, so that no extreme is lost.

    >>> thinned([3, 1, 2], 10), thinned([0, 5, 1, 2, 9, 3, 0, 7], 4)
    ([0, 1, 2], [0, 1, 4, 6, 7])
    """
    count = len(values)
    if count <= most:
        return list(range(count))
    stretches = max(1, most // 2)
    keep = {0, count - 1}
    for part in range(stretches):
        here = range(part * count // stretches, (part + 1) * count // stretches)
        keep |= {min(here, key=values.__getitem__), max(here, key=values.__getitem__)}
    return sorted(keep)


def _panel(
    title: str, kind: str, value: _Value, found: Sequence[Line], color: dict[str, int], *, seconds: bool = False
) -> Panel:
    made = [(line, curve(line.setting, value, seconds=seconds)) for line in found]
    curves = [replace(c, color=color[line.label], label=line.label) for line, c in made if c.x]
    return Panel(title, kind, curves, floor(curves) if kind == "accuracy" else None)


def floor(curves: Sequence[Curve]) -> float | None:
    """The lowest value behind the first tenth of the x axis, if the axis becomes much shorter by beginning there."""
    points = [(x, low, high) for c in curves for x, low, high in zip(c.x, c.low, c.high, strict=True)]
    if not points or max(len(c.x) for c in curves) < _LONG:
        return None
    first, last = min(x for x, _, _ in points), max(x for x, _, _ in points)
    lowest, highest = min(low for _, low, _ in points), max(high for _, _, high in points)
    later = min(low for x, low, _ in points if x >= first + (last - first) / 10)
    return later if highest - later < 0.6 * (highest - lowest) else None


def _left_out(counts: Sequence[tuple[str, int, int]]) -> str:
    """How many curves are not drawn, from how many are, and of how many, on each data set.

    >>> _left_out([("cora", 10, 15), ("citeseer", 5, 5)])
    'Left out: 5 of 15 curves on cora; the best are drawn, at least one of every optimizer. '
    """
    words = [f"{whole - drawn} of {whole} curves on {name}" for name, drawn, whole in counts if drawn < whole]
    return f"Left out: {', '.join(words)}; the best are drawn, at least one of every optimizer. " if words else ""


def _notes(found: Sequence[Line], color: dict[str, int], names: Sequence[str]) -> list[tuple[int, str, str]]:
    """For each curve its color, its name, and what is behind it."""
    mine = dict.fromkeys(("lr", "num_neighbors", "batch_size", *(name for name in names if name not in WORDS)))
    notes = []
    for line in found:
        runs = line.setting.runs
        seeds = ", ".join(str(run.config.seed) for run in runs[:12]) + (", ..." if len(runs) > 12 else "")
        words = f"{in_words(line.setting, mine)}; {count(len(runs), 'run')}, seed{'s' * (len(runs) > 1)} {seeds}"
        words += f"; best of {line.among} settings" if line.among > 1 else ""
        missing = [f"{run.state} after epoch {len(run.records)}" for run in runs if run.result is None]
        words += f"; {', '.join(missing[:3])}" if missing else ""
        notes.append((color[line.label], line.label, words))
    return notes


def count(number: int, word: str) -> str:
    """A number of things.

    >>> count(1, "run"), count(3, "run")
    ('1 run', '3 runs')
    """
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _short(value: float) -> float:
    """Six digits are more than a page can show."""
    return float(f"{value:.6g}")
