"""`diagnosis.json` read back, with care: the file may be damaged, or anybody's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from cvgnn.diagnose.record import KINDS, LARGEST, Diagnosis, Figure, Line, Table
from cvgnn.errors import CvgnnError, require
from cvgnn.experiments.settings import read_object
from cvgnn.sealed import short

_LONGEST_TEXT = 5000
_MOST_PARTS = 100  # tables, figures, lines of a figure, columns of a table
_MOST_ROWS = 5000  # of a table
_MOST_POINTS = 200_000  # of all lines together

T = TypeVar("T")


def read_diagnosis(file: Path) -> Diagnosis:
    """The diagnosis in a file; a `CvgnnError` says in a sentence what is wrong with it."""
    stored = read_object(file)
    try:
        return _diagnosis(stored)
    except CvgnnError as error:
        raise CvgnnError(f"{file} does not hold a diagnosis: {error}") from None


def _diagnosis(stored: dict[str, Any]) -> Diagnosis:
    kind = stored.get("kind")
    require(kind in KINDS, f"its kind is {short(kind)}, and not one of {', '.join(KINDS)}")
    figures = _list(stored, "figures", _figure)
    points = sum(len(line.x) for figure in figures for line in figure.lines)
    require(points <= _MOST_POINTS, f"its figures have {points} points; at most {_MOST_POINTS} are drawn")
    keys = [figure.key for figure in figures]
    require(len(set(keys)) == len(keys), "two of its figures have the same key")
    return Diagnosis(
        kind=str(kind),
        dataset=_text(stored, "dataset"),
        settings=_object(stored, "settings"),
        verdict=_text(stored, "verdict"),
        tables=_list(stored, "tables", _table),
        figures=figures,
        data=_object(stored, "data"),
        origin=_object(stored, "origin"),
    )


def _figure(stored: dict[str, Any]) -> Figure:
    key = _text(stored, "key")
    require(key.replace("-", "").isalnum() and key.isascii() and len(key) <= 40, f"a figure has the key {short(key)}")
    log_x, log_y = (_truth(stored, name) for name in ("log_x", "log_y"))
    return Figure(
        key=key,
        title=_text(stored, "title"),
        caption=_text(stored, "caption"),
        x_label=_text(stored, "x_label"),
        y_label=_text(stored, "y_label"),
        lines=_list(stored, "lines", lambda line: _line(line, log_x=log_x, log_y=log_y)),
        log_x=log_x,
        log_y=log_y,
    )


def _line(stored: dict[str, Any], *, log_x: bool, log_y: bool) -> Line:
    """A line, its points in the order of `x` where that is not an outline; those that an axis has no place for go."""
    x, y, low, high = (_numbers(stored, name) for name in ("x", "y", "low", "high"))
    bare = not low and not high
    require(
        len(x) == len(y) and (bare or len(low) == len(high) == len(x)), "a line has more of x than of y, low or high"
    )
    kept = [i for i in range(len(x)) if (x[i] > 0 or not log_x) and (y[i] > 0 or not log_y)]
    return Line(
        name=_text(stored, "name"),
        x=[x[i] for i in kept],
        y=[y[i] for i in kept],
        low=[] if bare else [low[i] for i in kept],
        high=[] if bare else [high[i] for i in kept],
        reference=_truth(stored, "reference"),
    )


def _table(stored: dict[str, Any]) -> Table:
    header, rows = stored.get("header"), stored.get("rows")
    require(isinstance(header, list) and 1 <= len(header) <= _MOST_PARTS, "a table has no header")
    require(isinstance(rows, list) and len(rows) <= _MOST_ROWS, f"a table has no rows, or more than {_MOST_ROWS}")
    assert isinstance(header, list)
    assert isinstance(rows, list)
    for row in (header, *rows):
        require(isinstance(row, list) and len(row) == len(header), "a table's rows are not as long as its header")
        for cell in row:
            require(_is_text(cell), f"a table's cell is {short(cell)}")
    return Table(caption=_text(stored, "caption"), header=header, rows=rows)


def _list(stored: dict[str, Any], name: str, read: Callable[[dict[str, Any]], T]) -> list[T]:
    value = stored.get(name)
    require(isinstance(value, list) and len(value) <= _MOST_PARTS, f"{name} is no list, or of more than {_MOST_PARTS}")
    assert isinstance(value, list)
    return list(_each(value, name, read))


def _each(value: list[Any], name: str, read: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    for item in value:
        require(isinstance(item, dict), f"{name} holds {short(item)}")
        yield read(item)


def _object(stored: dict[str, Any], name: str) -> dict[str, Any]:
    value = stored.get(name)
    require(isinstance(value, dict), f"{name} is {short(value)}")
    assert isinstance(value, dict)
    return value


def _text(stored: dict[str, Any], name: str) -> str:
    value = stored.get(name)
    require(_is_text(value), f"{name} is {short(value)}")
    return str(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


def _truth(stored: dict[str, Any], name: str) -> bool:
    value = stored.get(name, False)
    require(isinstance(value, bool), f"{name} is {short(value)}")
    return bool(value)


def _numbers(stored: dict[str, Any], name: str) -> list[float]:
    value = stored.get(name, [])
    require(isinstance(value, list) and len(value) <= _MOST_POINTS, f"{name} of a line is {short(value)}")
    for number in value:
        right = type(number) in (int, float) and abs(number) <= LARGEST
        require(right, f"{name} of a line holds {short(number)}")
    return [float(number) for number in value]
