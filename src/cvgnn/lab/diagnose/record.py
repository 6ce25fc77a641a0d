"""The result of a diagnosis: tables, charts and raw numbers, in one JSON file that `cvgnn report` can show."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, final, get_args, get_origin, get_type_hints

from cvgnn._version import __version__
from cvgnn.errors import CvgnnError, error_context, require
from cvgnn.lab.diagnose.estimates import Estimate
from cvgnn.training.run_folder import read_object
from cvgnn.utils import atomic_files
from cvgnn.utils.checked_json import finite, short

FILE_NAME = "diagnosis.json"
KINDS = ("estimator", "history", "bias-vs-lr", "rate", "bound")

LARGEST = 1e100  # of any number that is drawn

# Limits for a file that was read: it may be damaged, or from a stranger, and a report shows all of it.
_LONGEST_TEXT = 5000
_MOST_POINTS = 200_000  # of all lines together
_MOST_ITEMS = {"rows": 5000, **dict.fromkeys(("x", "y", "low", "high"), _MOST_POINTS)}  # 100 of all others

_TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))

T = TypeVar("T")


@final
@dataclass(frozen=True)
class ChartLine:
    """A curve or a straight reference.

    Args:
        name: for the legend.
        x, y: its points.
        low, high: the ends of each point's confidence interval; empty for none.
        reference: whether it is drawn thin and dashed, for what theory predicts.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    reference: bool = False

    def __post_init__(self) -> None:
        bands = {len(self.low), len(self.high)}
        same = len(self.x) == len(self.y) and bands in ({0}, {len(self.x)})
        require(same, "x and y of a line, and low and high if given, must have the same length")


@final
@dataclass(frozen=True)
class LineChart:
    """One set of axes.

    Args:
        key: short and unique within a diagnosis, for file names.
        title, caption: what the chart shows.
        x_label, y_label: of the axes.
        lines: the curves; points that cannot be drawn are left out.
        log_x, log_y: whether an axis is logarithmic.
    """

    key: str
    title: str
    caption: str
    x_label: str
    y_label: str
    lines: Sequence[ChartLine]
    log_x: bool = False
    log_y: bool = False

    def __post_init__(self) -> None:
        plain = self.key.replace("-", "").isalnum() and self.key.isascii() and len(self.key) <= 40
        require(plain, f"a figure's key must be at most 40 letters, digits and hyphens, not {short(self.key)}")
        object.__setattr__(self, "lines", [self._drawable(line) for line in self.lines])

    def _drawable(self, line: ChartLine) -> ChartLine:
        """The line without points that are infinite, NaN, beyond `LARGEST` or not above 0 on a logarithmic axis.

        Without its band, if that leaves no point.
        """
        names = ("x", "y", "low", "high") if len(line.low) else ("x", "y")
        points = [
            point
            for point in zip(*(getattr(line, name) for name in names), strict=True)
            if (point[0] > 0 or not self.log_x) and (point[1] > 0 or not self.log_y)
            if all(abs(number) <= LARGEST for number in point)
        ]
        if not points and len(line.low):
            return self._drawable(replace(line, low=(), high=()))
        columns: Any = {name: [point[i] for point in points] for i, name in enumerate(names)}
        return replace(line, **columns)


@final
@dataclass(frozen=True)
class DiagnosisTable:
    """Numbers as text: a caption, a header, and rows."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        same = len(self.header) > 0 and all(len(row) == len(self.header) for row in self.rows)
        require(same, "a table must have a header, and its rows must be as long as that")


@final
@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The result of one `cvgnn diagnose` command.

    Args:
        kind: one of `KINDS`.
        dataset: name of the graph.
        settings: all that the numbers depend on: the config, seeds, resamples.
        verdict: the finding in one or two sentences.
        tables, figures: to be shown.
        data: every number, unrounded; None for one that is infinite or NaN.
        origin: command, machine, versions, seconds.
    """

    kind: str
    dataset: str
    settings: dict[str, Any]
    verdict: str
    tables: Sequence[DiagnosisTable]
    figures: Sequence[LineChart]
    data: dict[str, Any]
    origin: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(self.kind in KINDS, f"kind must be one of {', '.join(KINDS)}, not {short(self.kind)}")
        points = sum(len(line.x) for figure in self.figures for line in figure.lines)
        require(points <= _MOST_POINTS, f"its figures have {points} points; at most {_MOST_POINTS} are drawn")
        require(len({f.key for f in self.figures}) == len(self.figures), "two of its figures have the same key")
        object.__setattr__(self, "data", finite(self.data))

    def to_json(self) -> str:
        """The content of the file: null for numbers that are infinite or NaN."""
        return json.dumps({"version": __version__, **finite(asdict(self))}, indent=1, allow_nan=False) + "\n"

    def write(self, folder: Path) -> Path:
        """Write `diagnosis.json` into a folder, which is created; returns the file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / FILE_NAME
        atomic_files.write_file(file, self.to_json().encode())
        return file


def caption(kind: str, name: str, **values: object) -> str:
    """The caption of a table, from `texts.toml`; values are put into its braces."""
    return str(_TEXTS[kind]["tables"][name]).format(**values)


def line_chart(kind: str, key: str, lines: Sequence[ChartLine], *, suffix: str = "", **values: object) -> LineChart:
    """A chart with its title, caption, labels and scales from `texts.toml`; values are put into their braces."""
    texts = _TEXTS[kind]["charts"][key].items()
    filled: dict[str, Any] = {name: text.format(**values) if isinstance(text, str) else text for name, text in texts}
    return LineChart(key=key + suffix, lines=lines, **filled)


def table(caption: str, records: Iterable[T], columns: dict[str, Callable[[T], str]]) -> DiagnosisTable:
    """A table with one row per record; `columns` maps each heading to the function that gives its cell.

    >>> table("Two numbers.", [1, 2], {"n": str, "square": lambda n: f"{n * n}"}).rows
    [['1', '1'], ['2', '4']]
    """
    return DiagnosisTable(caption, list(columns), [[cell(record) for cell in columns.values()] for record in records])


def band_line(name: str, points: Iterable[tuple[float, Estimate]], *, reference: bool = False) -> ChartLine:
    """A curve through estimates, with their intervals as its band unless it is a reference or one has no interval."""
    pairs = list(points)
    x, estimates = [float(position) for position, _ in pairs], [estimate for _, estimate in pairs]
    band = not reference and all(e.known for e in estimates) and any(e.low < e.high for e in estimates)
    low, high = ([e.low for e in estimates], [e.high for e in estimates]) if band else ((), ())
    return ChartLine(name, x, [e.value for e in estimates], low, high, reference)


def band_lines(points: Iterable[tuple[str, float, Estimate]]) -> list[ChartLine]:
    """A curve for each name, through its points `(name, x, estimate)` in the order they come in."""
    curves: dict[str, list[tuple[float, Estimate]]] = {}
    for name, x, estimate in points:
        curves.setdefault(name, []).append((x, estimate))
    return [band_line(name, curve) for name, curve in curves.items()]


def read_diagnosis(file: Path) -> Diagnosis:
    """The diagnosis in a file; a `CvgnnError` describes what is wrong with it."""
    stored = read_object(file)
    with error_context(f"{file} does not hold a diagnosis: "):
        found: Diagnosis = _read(Diagnosis, stored, "the file")
        return found


def _read(kind: Any, value: Any, name: str) -> Any:
    """A JSON value as a field of this type; the dataclasses above check what a type does not say."""
    if isinstance(kind, type) and is_dataclass(kind):
        require(isinstance(value, dict), f"{name} holds {short(value)}")
        needed = {f.name for f in fields(kind) if f.default is MISSING}
        given = {part: hint for part, hint in get_type_hints(kind).items() if part in value or part in needed}
        return kind(**{part: _read(hint, value.get(part), part) for part, hint in given.items()})
    if get_origin(kind) is Sequence:
        most = _MOST_ITEMS.get(name, 100)
        if not isinstance(value, list) or len(value) > most:
            raise CvgnnError(f"{name} must be a list of at most {most} items, not {short(value)}")
        return [_read(get_args(kind)[0], item, name) for item in value]
    if kind is float:
        require(type(value) in (int, float) and abs(value) <= LARGEST, f"{name} of a line holds {short(value)}")
        return float(value)
    long = isinstance(value, str) and len(value) > _LONGEST_TEXT
    require(isinstance(value, get_origin(kind) or kind) and not long, f"{name} is {short(value)}")
    return value
