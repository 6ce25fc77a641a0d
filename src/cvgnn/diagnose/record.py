"""What a diagnosis leaves: tables, figures and raw numbers, in one JSON file that `cvgnn report` can show."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, final

from cvgnn import disk
from cvgnn._version import __version__

FILE_NAME = "diagnosis.json"

LARGEST = 1e100
"""Of any number that is drawn."""

KINDS = ("estimator", "history", "bias-vs-lr", "rate", "bound")


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve or a straight reference.

    Args:
        name: for the legend.
        x, y: its points.
        low, high: the ends of each point's confidence interval; empty for none.
        reference: whether it is drawn thin and dashed, as what theory says.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    reference: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """One set of axes.

    Args:
        key: short and unique within a diagnosis, for file names.
        title, caption: what is seen.
        x_label, y_label: of the axes.
        log_x, log_y: whether an axis is logarithmic.
        lines: what is drawn.
    """

    key: str
    title: str
    caption: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """Numbers in words: a caption, a header, and rows of texts."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@final
@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What one `cvgnn diagnose` command found.

    Args:
        kind: one of `KINDS`.
        dataset: name of the graph.
        settings: all that the numbers depend on: the config, seeds, resamples.
        verdict: the finding in one or two sentences.
        tables, figures: to be shown.
        data: every number, unrounded.
        origin: command, machine, versions, seconds.
    """

    kind: str
    dataset: str
    settings: dict[str, Any]
    verdict: str
    tables: Sequence[Table]
    figures: Sequence[Figure]
    data: dict[str, Any]
    origin: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As the file holds it: null for a number that is infinite or NaN, and no points there that cannot be drawn."""
        figures = [replace(f, lines=[drawable(line) for line in f.lines]) for f in self.figures]
        content = _finite(asdict(replace(self, figures=figures)))
        return json.dumps({"version": __version__, **content}, indent=1, allow_nan=False) + "\n"

    def write(self, folder: Path) -> Path:
        """Write `diagnosis.json` into a folder, which is made; returns the file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / FILE_NAME
        disk.write_file(file, self.to_json().encode())
        return file


def drawable(line: Line) -> Line:
    """The line without points that are infinite, NaN or beyond `LARGEST`; without its band, if that has no others.

    >>> drawable(Line(name="a", x=[1.0, 2.0], y=[math.inf, 3.0])).x
    [2.0]
    """
    columns = [line.x, line.y, *([line.low, line.high] if line.low else [])]
    kept = [i for i in range(len(line.x)) if all(abs(column[i]) <= LARGEST for column in columns)]
    if line.low and not kept:
        return drawable(replace(line, low=(), high=()))
    x, y, low, high = ([values[i] for i in kept] if values else [] for values in (line.x, line.y, line.low, line.high))
    return replace(line, x=x, y=y, low=low, high=high)


def _finite(value: Any) -> Any:
    """The same with None for every float that JSON has no number for."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
