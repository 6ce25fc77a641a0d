"""What a diagnosis leaves: tables, figures and raw numbers, in one JSON file that `cvgnn report` can show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

from cvgnn import disk
from cvgnn._version import __version__

FILE_NAME = "diagnosis.json"

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
        """As the file holds it."""
        return json.dumps({"version": __version__, **asdict(self)}, indent=1, allow_nan=False) + "\n"

    def write(self, folder: Path) -> Path:
        """Write `diagnosis.json` into a folder, which is made; returns the file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / FILE_NAME
        disk.write_file(file, self.to_json().encode())
        return file
