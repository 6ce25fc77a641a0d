"""The cells of a column of a table: what is missing, and what they are as numbers, dates, booleans or text."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Cells: TypeAlias = Any
"""A column: float64 `[rows]`, NaN where missing; a matrix `[rows, width]`; or large_string, null where missing."""

GAPS = (
    "", "NA", "N/A", "n/a", "n.a.", "#N/A", "<NA>", "NaN", "nan", "NAN", "null", "NULL", "Null", "#NULL!", "None", "?",
    "-", "--",
)  # fmt: skip
"""What a missing cell may hold."""
_SNIFFED_DATES = 1000
BOOLEANS = {"true": 1.0, "yes": 1.0, "t": 1.0, "y": 1.0, "false": 0.0, "no": 0.0, "f": 0.0, "n": 0.0}
DATE_FORMS = {
    "iso": "2024-01-31", "%Y/%m/%d": "2024/01/31", "%d.%m.%Y": "31.01.2024", "%d/%m/%Y": "31/01/2024",
    "%m/%d/%Y": "01/31/2024", "%d-%m-%Y": "31-01-2024", "%d-%b-%Y": "31-Jan-2024", "%d %b %Y": "31 Jan 2024",
    "%b %d, %Y": "Jan 31, 2024",
}  # fmt: skip
_EPOCH = datetime.datetime(1970, 1, 1)


def parse_dates(text: pa.Array, form: str) -> np.ndarray:
    """Days since 1970, float64, NaN where a cell is missing or no date of this form."""
    if form == "iso":
        try:
            seconds = text.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.float64(), safe=False)
            return np.asarray(seconds.to_numpy(zero_copy_only=False)) / 86400e6
        except pa.ArrowInvalid:
            pass  # Python reads time zones too, and finds which cells are none
    return _map_values(text, lambda value: _days(value, form))


def date_form(text: pa.Array) -> str | None:
    """The form of dates that most cells have, None if fewer than half have any; "ambiguous" if two forms are alike."""
    values = pc.unique(text.drop_null()).to_pylist()[:_SNIFFED_DATES]
    known = np.array([[not math.isnan(_days(value, form)) for form in DATE_FORMS] for value in values], dtype=bool)
    if not values or known.any(axis=1).mean() <= 0.5:
        return None
    counts = dict(zip(DATE_FORMS, known.sum(axis=0).tolist(), strict=True))
    form = max(counts, key=counts.__getitem__)
    return "ambiguous" if form == "%d/%m/%Y" and counts["%m/%d/%Y"] == counts[form] else form


def to_numbers(cells: Cells) -> np.ndarray:
    """The cells as float64, NaN where a cell is missing or no number."""
    if isinstance(cells, np.ndarray):
        return cells
    try:
        found: np.ndarray = pc.cast(cells, pa.float64()).to_numpy(zero_copy_only=False)
        return found
    except pa.ArrowInvalid:
        return _map_values(cells, _number)


def is_code(text: pa.Array) -> pa.Array:
    """Which cells are digits with a leading zero, as in postal codes: another value than the number."""
    return pc.match_substring_regex(text, "^0[0-9]+$")


def without_gaps(text: pa.Array) -> pa.Array:
    """Null where a cell is missing; spaces around a value do not count."""
    text = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.is_in(text, pa.array(GAPS, pa.large_string())), pa.scalar(None, text.type), text)


def missing(cells: Cells) -> np.ndarray:
    """bool `[rows]`: which cells are missing."""
    if isinstance(cells, np.ndarray):
        return np.isnan(cells) if cells.ndim == 1 else np.zeros(len(cells), dtype=bool)
    found: np.ndarray = cells.is_null().to_numpy(zero_copy_only=False)
    return found


def as_text(cells: Cells) -> pa.Array:
    """The cells as large_string; whole numbers without a decimal point."""
    if not isinstance(cells, np.ndarray):
        return cells
    text = [None if math.isnan(value) else f"{value:.17g}" for value in cells.tolist()]
    return pa.array(text, pa.large_string())


def _map_values(text: pa.Array, function: Callable[[str], float]) -> np.ndarray:
    """The function of each cell, called once for each different value; NaN where the cell is missing."""
    encoded = text.dictionary_encode()
    values = np.array([*map(function, encoded.dictionary.to_pylist()), math.nan])
    found: np.ndarray = values[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)]
    return found


def to_booleans(cells: Cells) -> np.ndarray:
    """1 for true, yes and the like, 0 for their opposite, NaN for other cells."""
    if isinstance(cells, np.ndarray):
        return np.where(np.isin(cells, (0.0, 1.0)), cells, math.nan)
    known = {**BOOLEANS, "0": 0.0, "1": 1.0}
    return _map_values(cells, lambda value: known.get(value.lower(), math.nan))


def _days(value: str, form: str) -> float:
    try:
        if form == "iso":
            # Python reads 20240131 and 2024-W05 too, but these are codes more often than dates.
            found = datetime.datetime.fromisoformat(value.strip()) if value.strip()[4:5] == "-" else None
        else:
            found = datetime.datetime.strptime(value.strip(), form)
        if found is None:
            return math.nan
        if found.tzinfo is not None:
            found = found.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return math.nan
    return (found - _EPOCH).total_seconds() / 86400.0


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan
