"""Turns the columns of a table into features: fitted on the training nodes, stored as JSON, applied to any table with
the same columns.

A column becomes one or more features, by its kind:

- number: standardised; by quantiles where it is skewed; divided by its scale where most values are 0, which stay 0; as
  it is where it is 0/1 or standardised already.
- boolean: 0 and 1.
- category: one feature for each value that occurs in training; by its hash where there are many.
- date: age in days before the newest training date, weekday and month, each standardised.
- text: each word adds to the feature that its hash names.

A missing number or date gets the median, a missing boolean the more frequent value, and the column gets one more
feature, 1 where the cell was missing, if a training cell was.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cvgnn.data.io.cell_values import (
    BOOLEANS,
    DATE_FORMS,
    Cells,
    as_text,
    date_form,
    is_code,
    missing,
    parse_dates,
    to_booleans,
    to_numbers,
)
from cvgnn.data.io.size_checks import FileError
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError
from cvgnn.utils.formatting import join_printable

Report = Callable[[str, np.ndarray, Callable[[int], str]], None]
"""Gets a column, rows and what is wrong in a row."""

ONE_HOT_LIMIT = 64
HASHED = 128  # features of a category with more values, or of a text
_CLIP = 10.0  # standard deviations
_QUANTILES = 255
_SKEWED = 3.0
_MAX_COLUMNS = 1 << 20
_OTHER_NUMBER = re.compile(r"[-+]?[$€£]?\s?\d[\d.,\s']*(?P<unit>[A-Za-zµ°%$€£/²³]{0,6})")
_FEW_CODES = 5  # "4G" and "5G" are codes; with more values than this, letters after numbers are units


@final
@dataclass(frozen=True)
class Preprocessing:
    """The fitted preprocessing of a table.

    Args:
        columns: a JSON object for each column of the table: `name`, `kind`, and what the kind needs.
        options: the fields of `TableOptions` that the table was read with and that differ from their default.
    """

    columns: tuple[dict[str, Any], ...]
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def fit(
        cls, cells: dict[str, Cells], train: np.ndarray, report: Report, options: TableOptions | None = None
    ) -> Preprocessing:
        """Choose the kind of each column and its numbers.

        Args:
            cells: the columns.
            train: ids of the training nodes; nothing else is looked at.
            report: called for each mistake that only a human can correct.
            options: name the kind of a column where the user knows it.
        """
        options = options or TableOptions()
        columns = {name: _rows(column, train) for name, column in cells.items()}
        return cls.of_columns(cls.fit_columns(columns, train, report, options), options)

    @staticmethod
    def fit_columns(
        cells: dict[str, Cells], train: np.ndarray, report: Report, options: TableOptions
    ) -> list[dict[str, Any]]:
        """`fit` of some of the columns, of which `cells` has only the rows of the training nodes."""
        kinds = dict.fromkeys(options.numeric, "number") | dict.fromkeys(options.category, "category")
        kinds |= dict.fromkeys(options.text, "text")
        return [_fit(name, column, kinds.get(name), report, train) for name, column in cells.items()]

    @classmethod
    def of_columns(cls, fitted: Sequence[dict[str, Any]], options: TableOptions) -> Preprocessing:
        """The preprocessing from what `fit_columns` gave for all columns."""
        if all(column["kind"] == "dropped" for column in fitted):
            fitted = [_as_constant(column) for column in fitted]  # a model needs a feature; these do no harm
        return cls(tuple(fitted), {name: getattr(options, name) for name in options.given()})

    def apply(self, cells: dict[str, Cells], rows: int, report: Report) -> np.ndarray:
        """The features, float32 `[rows, F]`.

        Args:
            cells: the columns by name; those of `fit`, and perhaps others, which are not used.
            rows: number of rows.
            report: called for cells that do not fit their column's kind.
        """
        used = [column for column in self.columns if column["kind"] != "dropped"]
        parts = [_apply(column, cells[column["name"]], report) for column in used]
        matrix = np.empty((rows, sum(part.shape[1] for part in parts)), dtype=np.float32)
        return np.concatenate(parts, axis=1, out=matrix) if parts else matrix

    @property
    def used(self) -> list[str]:
        """The columns that become features."""
        return [column["name"] for column in self.columns if column["kind"] != "dropped"]

    def table_options(self, given: TableOptions) -> TableOptions:
        """The options to read another table with: those that are given, and for the others the stored ones."""
        return TableOptions(**self.options | {name: getattr(given, name) for name in given.given()})

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        options = {name: list(value) if isinstance(value, tuple) else value for name, value in self.options.items()}
        return {"version": 1, "columns": list(self.columns), **({"options": options} if options else {})}

    @classmethod
    def from_dict(cls, stored: Any) -> Preprocessing:
        """From JSON, which may come from anybody and is checked."""
        stored = stored if isinstance(stored, dict) and stored.get("version") == 1 else {}
        columns, options = stored.get("columns"), stored.get("options", {})
        try:
            TableOptions(**options)
            valid = isinstance(columns, list) and len(columns) <= _MAX_COLUMNS and all(map(_is_valid, columns))
        except (TypeError, CvgnnError):
            valid = False
        if not valid:
            raise FileError("the stored preprocessing is damaged, or of another version of cvgnn; train again")
        return cls(tuple(columns), options)

    def table(self) -> list[tuple[str, str, str]]:
        """Column, kind and what is done with it, for printing; neighbors with the same treatment share a line."""
        lines: list[tuple[list[str], str, str]] = []
        for column in self.columns:
            kind, what = column["kind"], _words(column)
            if lines and lines[-1][1:] == (kind, what):
                lines[-1][0].append(column["name"])
            else:
                lines.append(([column["name"]], kind, what))
        return [(_few(names), kind, what) for names, kind, what in lines]


# Fitting


def _rows(cells: Cells, ids: np.ndarray) -> Cells:
    return cells[ids] if isinstance(cells, np.ndarray) else cells.take(pa.array(ids))


def _fit(name: str, cells: Cells, kind: str | None, report: Report, train: np.ndarray) -> dict[str, Any]:
    """The fitted column; `cells` are those of the training nodes."""
    if isinstance(cells, np.ndarray) and cells.ndim == 2:
        return {"name": name, "kind": "vector", "width": cells.shape[1]}
    gone = missing(cells)
    share = round(float(gone.mean()), 4) if len(gone) else 1.0
    base = {"name": name, "missing": share}
    if gone.all():
        return {**base, "kind": "dropped", "why": "no training node has a value"}
    if kind in ("category", "text"):
        return _fit_words(base, as_text(cells), kind)
    if kind is None and _are_codes(cells):
        return _fit_words({**base, "codes": True}, cells, None)
    numbers = to_numbers(cells)
    if isinstance(cells, np.ndarray) or kind == "number" or np.isfinite(numbers).sum() > 0.5 * (~gone).sum():
        return _fit_numbers(base, numbers)
    values: list[str] = pc.unique(cells.drop_null()).to_pylist()
    lower = {value.lower() for value in values}
    if lower <= BOOLEANS.keys() and len(lower) > 1:
        return {**base, "kind": "boolean", "fill": float(np.nanmean(to_booleans(cells)) > 0.5)}
    form, row = date_form(cells), train[[int(np.argmax(~gone))]]
    if form == "ambiguous":
        what = "the dates may be day/month or month/day; write them as 2024-01-31, or name the column in --ignore"
        report(name, row, lambda _: f"{values[0][:40]!r}: {what}")
        form = "%d/%m/%Y"
    if form is not None:
        return _fit_dates(base, parse_dates(cells, form), form)
    if _are_other_numbers(values):
        what = "looks like a number in another notation; write 1234.5, or name the column in --category or --ignore"
        report(name, row, lambda _: f"{values[0][:40]!r} {what}")
    return _fit_words(base, cells, None)


def _are_codes(cells: Cells) -> bool:
    """Whether most cells are digits, some with a leading zero, and none another number."""
    if isinstance(cells, np.ndarray) or not pc.any(is_code(cells)).as_py():
        return False
    digits = pc.match_substring_regex(cells, "^[0-9]+$").fill_null(False).to_numpy(zero_copy_only=False)
    numbers = np.isfinite(to_numbers(cells))
    return bool(2 * digits.sum() > (~missing(cells)).sum() and digits[numbers].all())


def _are_other_numbers(values: list[str]) -> bool:
    """Whether most values are numbers with decimal commas, thousands separators, or all with one unit."""
    found = [match["unit"] for value in values if (match := _OTHER_NUMBER.fullmatch(value))]
    unit, count = Counter(found).most_common(1)[0] if found else ("", 0)
    return count > 0.5 * len(values) and (len(values) > _FEW_CODES or not unit.isalpha())


def _fit_numbers(base: dict[str, Any], numbers: np.ndarray) -> dict[str, Any]:
    x = numbers[np.isfinite(numbers)]
    if not x.size:
        return {**base, "kind": "dropped", "why": "no training node has a number"}
    low, high = float(x.min()), float(x.max())
    if low == high and base["missing"] == 0:
        return {**base, "kind": "dropped", "why": f"constant, {low:g}", "constant": low}
    found = {**base, "kind": "number", "how": "kept", "mean": 0.0, "std": 1.0, "fill": float(np.median(x))}
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = float(x.mean()), float(x.std())
        scale = float(np.sqrt(np.mean(x * x)))
        skew = float(np.mean(((x - mean) / std) ** 3)) if std > 0 else 0.0
    if np.isin(x, (0.0, 1.0)).all() or (abs(mean) <= 0.5 and 0.5 <= std <= 2 and abs(skew) < _SKEWED):
        return found
    if (x == 0).mean() >= 0.5 and math.isfinite(scale):
        return {**found, "how": "scaled", "std": scale}
    if not (math.isfinite(mean) and math.isfinite(std)) or abs(skew) > _SKEWED:
        share = (np.arange(min(_QUANTILES, x.size)) + 0.5) / min(_QUANTILES, x.size)
        knots, group = np.unique(np.quantile(x, share), return_inverse=True)
        scores = np.array([NormalDist().inv_cdf(p) for p in share.tolist()])
        middle = np.bincount(group, scores) / np.bincount(group)
        return {**found, "how": "quantiles", "knots": knots.tolist(), "scores": middle.tolist()}
    return {**found, "how": "standardised", "mean": mean, "std": std if std > 0 else 1.0}


def _fit_dates(base: dict[str, Any], days: np.ndarray, form: str) -> dict[str, Any]:
    known = days[~np.isnan(days)]
    if not known.size or (known.min() == known.max() and base["missing"] == 0):
        return {**base, "kind": "dropped", "why": "the same date everywhere"}
    newest, fill = float(known.max()), float(np.median(known))
    found = {**base, "kind": "date", "form": form, "newest": newest, "fill": fill}
    for part, values in _date_parts(known, newest).items():
        std = float(values.std())
        found |= {f"{part}_mean": float(values.mean()), f"{part}_std": std if std > 0 else 1.0}
    return found


def _fit_words(base: dict[str, Any], text: pa.Array, kind: str | None) -> dict[str, Any]:
    if kind == "text":
        return {**base, "kind": "text", "width": HASHED}
    values = sorted(pc.unique(text.drop_null()).to_pylist())
    known = len(text) - text.null_count
    if len(values) == 1 and base["missing"] == 0:
        return {**base, "kind": "dropped", "why": f"always {join_printable(values)[:40]}"}
    if kind is None and (len(values) > max(20, 0.5 * known) or len(values) == known >= 10):  # names or free text
        other = "--numeric reads them as numbers" if "codes" in base else "--text uses its words"
        why = f"{len(values)} different values in {known} cells; {other}, --category its values"
        return {**base, "kind": "dropped", "why": why}
    if len(values) <= ONE_HOT_LIMIT:
        return {**base, "kind": "category", "values": values}
    return {**base, "kind": "category", "width": HASHED, "different": len(values)}


def _as_constant(column: dict[str, Any]) -> dict[str, Any]:
    """A column without information, as a number: alone, it gives each node the same feature."""
    value = column.get("constant", 0.0)
    if "constant" not in column:
        return column
    name = column["name"]
    kept = {"kind": "number", "how": "kept", "mean": 0.0, "std": 1.0, "fill": value}
    return {"name": name, "missing": 0.0, "why": column["why"], **kept}


# Applying


def _apply(column: dict[str, Any], cells: Cells, report: Report) -> np.ndarray:
    """`[rows, width]`, the features of a column."""
    kind, name = column["kind"], column["name"]
    if kind == "vector":
        good = isinstance(cells, np.ndarray) and cells.ndim == 2 and cells.shape[1] == column["width"]
        if not good:
            raise FileError(f"column {name!r} must hold lists of {column['width']} numbers, as in the run's table")
        return np.asarray(cells)
    if isinstance(cells, np.ndarray) and cells.ndim == 2:
        raise FileError(f"column {name!r} holds lists, but in the run's table it does not")
    gone = missing(cells)
    if kind in ("category", "text"):
        return _apply_words(column, as_text(cells), gone)
    if kind == "date":
        values = cells if isinstance(cells, np.ndarray) else parse_dates(cells, column["form"])
        what = f"no date of the column's form, {DATE_FORMS[column['form']]}"
    elif kind == "boolean":
        values = to_booleans(cells)
        what = "neither true nor false, as the column's other values are"
    else:
        values = to_numbers(cells)
        what = "no number"
    bad = np.flatnonzero(np.isnan(values) & ~gone)
    if bad.size:
        report(name, bad, lambda row: f"{str(cells[row])[:80]!r} is {what}")
    infinite = np.flatnonzero(np.abs(values) > np.finfo(np.float32).max)
    if infinite.size and isinstance(cells, pa.Array):  # of columns of numbers the reader has told it
        report(name, infinite, lambda row: f"{str(cells[row])[:80]!r} is not a finite number")
    filled = np.where(np.isnan(values), column["fill"], values)
    parts = [_scaled(column, filled)] if kind == "number" else [filled]
    if kind == "date":
        parts = [
            np.clip((part - column[f"{key}_mean"]) / column[f"{key}_std"], -_CLIP, _CLIP)
            for key, part in _date_parts(filled, column["newest"]).items()
        ]
    if column["missing"] > 0:
        parts.append(gone)
    with np.errstate(over="ignore"):
        return np.stack([part.astype(np.float32) for part in parts], axis=1)


def _scaled(column: dict[str, Any], values: np.ndarray) -> np.ndarray:
    if column["how"] == "kept":
        return values
    if column["how"] == "quantiles":
        found: np.ndarray = np.interp(values, column["knots"], column["scores"])
        return found
    with np.errstate(over="ignore"):
        return np.asarray(np.clip((values - column["mean"]) / column["std"], -_CLIP, _CLIP))


def _apply_words(column: dict[str, Any], text: pa.Array, gone: np.ndarray) -> np.ndarray:
    values = column.get("values")
    hashed = 0 if values is not None else column["width"]
    width = len(values) if values is not None else hashed
    encoded = text.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    # A row for each different value: there are fewer of them than nodes.
    vocabulary: list[str] = encoded.dictionary.to_pylist()
    table = np.zeros((len(vocabulary) + 1, width + (column["missing"] > 0)), dtype=np.float32)
    number = {value: i for i, value in enumerate(values or ())}
    for row, value in enumerate(vocabulary):
        if column["kind"] == "text":
            words = re.findall(r"\w+", value.lower())
            for word in words:
                table[row, crc32(word.encode()) % hashed] += 1.0 / math.sqrt(len(words))
        elif values is None:
            table[row, crc32(value.encode("utf-8", "replace")) % hashed] = 1.0
        elif value in number:  # an unseen value has no feature
            table[row, number[value]] = 1.0
    if column["missing"] > 0:
        table[-1, -1] = 1.0
    found: np.ndarray = table[np.where(gone, -1, codes)]
    return found


def _date_parts(days: np.ndarray, newest: float) -> dict[str, np.ndarray]:
    whole = np.floor(days).astype(np.int64)
    month = whole.astype("M8[D]").astype("M8[M]").astype(np.int64) % 12 + 1
    return {"age": newest - days, "weekday": ((whole + 3) % 7).astype(np.float64), "month": month.astype(np.float64)}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_day(value: Any) -> bool:
    return _is_number(value) and abs(value) < 1e7


def _is_width(value: Any) -> bool:
    return type(value) is int and 1 <= value <= _MAX_COLUMNS


def _is_list_of(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(kind, value))


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


_DATE_FIELDS = {f"{part}_mean": _is_number for part in ("age", "weekday", "month")}
_DATE_FIELDS |= {f"{part}_std": _is_positive for part in ("age", "weekday", "month")}
_FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "number": {
        "missing": _is_number, "fill": _is_number, "mean": _is_number, "std": _is_positive,
        "how": ("kept", "standardised", "scaled", "quantiles").__contains__,
    },
    "boolean": {"missing": _is_number, "fill": _is_number},
    "category": {"missing": _is_number},
    "date": {
        "missing": _is_number, "fill": _is_day, "newest": _is_day, "form": DATE_FORMS.__contains__, **_DATE_FIELDS,
    },
    "text": {"missing": _is_number, "width": _is_width},
    "vector": {"width": _is_width},
    "dropped": {"why": _is_string},
}  # fmt: skip
"""The kinds of columns, with the rule for each field that a stored column must have."""


def _is_valid(column: Any) -> bool:
    """Whether a stored column has the fields of its kind."""
    if not isinstance(column, dict) or not all(isinstance(column.get(name), str) for name in ("name", "kind")):
        return False
    fields = dict(_FIELDS.get(column["kind"], {"kind": lambda _: False}))
    if column["kind"] == "category":
        fields |= {"values": _is_list_of(_is_string)} if "values" in column else {"width": _is_width}
    if column.get("how") == "quantiles":
        fields |= {"knots": _is_list_of(_is_number), "scores": _is_list_of(_is_number)}
    if not all(name in column and rule(column[name]) for name, rule in fields.items()):
        return False
    return column.get("how") != "quantiles" or len(column["knots"]) == len(column["scores"]) > 0


def _words(column: dict[str, Any]) -> str:
    """What is done with a column."""
    kind = column["kind"]
    if kind == "dropped":
        return str(column["why"])
    if kind == "vector":
        return f"{column['width']} numbers, as they are"
    if kind == "number":
        what = {
            "kept": "as it is (0/1, or in scale)",
            "scaled": f"divided by {column['std']:.4g} (most are 0)",
            "quantiles": "quantiles (skewed)",
            "standardised": f"standardised (mean {column['mean']:.4g}, deviation {column['std']:.4g})",
        }[column["how"]]
    elif kind == "date":
        newest = np.datetime64(int(column["newest"]), "D")
        what = f"age in days before {newest}, weekday, month"
    elif kind == "boolean":
        what = "0 and 1"
    elif kind == "text":
        what = f"words hashed to {column['width']} features"
    elif "values" in column:
        what = f"one-hot: {len(column['values'])} values"
    else:
        what = f"hashed to {column['width']} features: {column.get('different', 'many')} values"
    what += " (codes with leading zeros; --numeric reads them as numbers)" if "codes" in column else ""
    gap = f"; {100 * column['missing']:.1f} % missing" if column["missing"] > 0 else ""
    return what + gap + (", with an indicator" if gap else "")


def _few(names: list[str]) -> str:
    if len(names) < 4:
        return join_printable(names)
    return f"{join_printable([names[0]])} to {join_printable([names[-1]])} ({len(names)} columns)"


def print_table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of text with aligned columns, each line indented by two spaces."""
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    return "\n".join("  " + "  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in rows)
