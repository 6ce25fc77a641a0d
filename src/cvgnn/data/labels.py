"""Labels in their three forms: one class a node, several labels a node, or numbers.

| form | `y` | unknown |
|---|---|---|
| classes | int64 `[N]` | -1 |
| several labels | int8 `[N, L]`, 0 or 1 | a row of -1 |
| numbers | float32 or float64 `[N, T]` | a row with a NaN |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError, require


def to_labels(y: np.ndarray) -> np.ndarray:
    """Labels of any numeric type in one of the three forms; `y` itself if it has one already.

    A matrix of 0 and 1 holds several labels a node, also if its type is floating point; but one column of floating
    point numbers is a target.

    Args:
        y: integers or floating point numbers `[N]`, or a matrix `[N, L]`.

    >>> [to_labels(np.array(y)).dtype.name for y in ([2, 0], [[0, 1], [1, 0]], [0.5, 2.0])]
    ['int64', 'int8', 'float64']
    """
    require(
        y.ndim in (1, 2) and y.shape[-1] > 0,
        f"y must have one label per node, [N], or a row of labels for each, [N, L]; it has shape {list(y.shape)}",
    )
    floating, rows = y.dtype.kind == "f", y.reshape(len(y), -1)
    require(
        floating or y.dtype.kind in "iu" or (y.dtype == np.bool_ and y.ndim == 2),
        f"y must hold numbers or strings, not {y.dtype}",
    )
    if y.ndim == 1 and not floating:
        return y.astype(np.int64, copy=False)
    unknown = unknown_rows(y)[:, None]
    other = (rows != 0) & (rows != 1) & ~unknown
    # `[N]` becomes `[N, 1]` below, and must stay what it is when it comes here again.
    if y.ndim == 2 and not other.any() and not (floating and y.shape[1] == 1):
        return y if y.dtype == np.int8 else np.where(unknown, -1, rows != 0).astype(np.int8)
    if floating:
        return rows.astype(np.float64 if y.dtype.itemsize == 8 else np.float32, copy=False)
    node, label = (int(i) for i in np.argwhere(other)[0])
    raise CvgnnError(
        f"y is a matrix of integers with {y[node, label]} at node {node}, column {label}; several labels a node are 0 "
        "or 1, one class a node is a vector, and numbers to predict are floating point"
    )


def labelled(y: np.ndarray) -> np.ndarray:
    """bool `[N]`: which nodes have a label."""
    return ~unknown_rows(y)


def unknown_rows(y: np.ndarray) -> np.ndarray:
    """bool `[N]`: the nodes without a label, see the table of this module."""
    unknown: np.ndarray = np.isnan(y) if y.dtype.kind == "f" else y < 0
    return unknown.any(axis=1) if y.ndim == 2 else unknown  # type: ignore[return-value]


def unknown_labels(num_nodes: int, *, like: Tensor) -> Tensor:
    """Labels of nodes whose label is unknown, in the form of `like`, see the table of this module."""
    unknown = float("nan") if like.is_floating_point() else -1
    return like.new_full((num_nodes, *like.shape[1:]), unknown)


def bad_rows(y: np.ndarray, num_classes: int) -> np.ndarray:
    """bool `[N]`: the nodes whose label cannot be one, for labels in one of the three forms."""
    if y.ndim == 1:
        bad = (y < -1) | (y >= num_classes)
    elif y.dtype.kind == "f":
        bad = np.isinf(y).any(axis=1)
    else:
        bad = ((y < 0) | (y > 1)).any(axis=1) & (y != -1).any(axis=1)
    result: np.ndarray = bad
    return result


def dense_labels(y: Any) -> Any:
    """Labels as a dense array where they are a sparse matrix of SciPy or torch; anything else as it is."""
    from scipy import sparse

    if sparse.issparse(y):
        return y.toarray()
    return y.to_dense() if isinstance(y, Tensor) and y.is_sparse else y


LabelKind = Literal["class", "labels", "number"]
_BOOLEANS = {"true": "1", "yes": "1", "false": "0", "no": "0"}
SEPARATOR = "|"
"""Between the labels of a node in one cell of a table."""


def kind_of_cells(cells: Sequence[str], many: int) -> LabelKind:
    """What the different labels in a column of a table are, where that is not said.

    Several labels if splitting the cells at `|` leaves fewer different ones; numbers if there are more than `many`, all
    numbers, some with a fraction; else classes.

    >>> kind_of_cells(["a | b", "a", "b"], 2), kind_of_cells(["0.5", "1", "2"], 2), kind_of_cells(["a|b", "c"], 2)
    ('labels', 'number', 'class')
    """
    parts = {part.strip() for cell in cells for part in cell.split(SEPARATOR)}
    if any(SEPARATOR in cell for cell in cells) and "" not in parts and len(parts) < len(cells):
        return "labels"
    if len(cells) > many:
        try:
            return "number" if any(not float(cell).is_integer() for cell in cells) else "class"
        except (ValueError, OverflowError):  # no number; infinite or NaN
            return "class"
    return "class"


def labels_of_classes(y: np.ndarray, names: Sequence[str], kind: LabelKind) -> dict[str, Any]:
    """Fields of a `Graph` for labels that were read as classes, one for each different cell.

    Args:
        y: int64 `[N]`, -1 where unknown.
        names: the cell of each class.
        kind: what the cells hold: several labels separated by `|`, or a number.

    >>> fields = labels_of_classes(np.array([0, 1, -1]), ["a|b", "b"], "labels")
    >>> fields["y"].tolist(), fields["class_names"]
    ([[1, 1], [0, 1], [-1, -1]], ('a', 'b'))
    """
    if kind == "number":
        wrong = next((name for name in names if not _is_number(name)), None)
        require(wrong is None, f"label {(wrong or '')[:80]!r} is no finite number; leave label_kind out, or correct it")
        rows = np.array([*map(float, names), np.nan])[y, None]  # -1 is the last
        return {"y": torch.from_numpy(rows), "num_classes": 1, "class_names": None}
    cells = [set(filter(None, (part.strip() for part in name.split(SEPARATOR)))) for name in names]
    known = sorted(set().union(*cells))
    require(len(known) > 0, "no node has a label; name labels, separated by |")
    matrix = np.full((len(cells) + 1, len(known)), -1, dtype=np.int8)
    for row, cell in zip(matrix, cells, strict=False):
        row[:] = [label in cell for label in known]
    return {"y": torch.from_numpy(matrix[y]), "num_classes": len(known), "class_names": tuple(known)}


def labels_of_columns(
    columns: Mapping[str, tuple[Sequence[str], np.ndarray]], kind: LabelKind | Literal["auto"] = "auto"
) -> dict[str, Any]:
    """Fields of a `Graph` for labels in several columns: 0 or 1 in each, or numbers.

    Args:
        columns: by name, the different cells of each, and int `[N]`, which of them each node has; -1 where unknown.
        kind: `"number"` for numbers also where all of them are 0 or 1; `"labels"` refuses others.

    >>> labels_of_columns({"a": (["no", "yes"], np.array([0, 1])), "b": (["1"], np.array([0, -1]))})["y"].tolist()
    [[0, 1], [-1, -1]]
    """
    values = []
    for name, (cells, codes) in columns.items():
        texts = [_BOOLEANS.get(text := cell.strip().lower(), text) for cell in cells]
        wrong = next((text for text in texts if text and not _is_number(text)), None)
        require(
            wrong is None, f"label {(wrong or '')[:80]!r} in column {name!r} is no number, and neither true nor false"
        )
        values.append(np.array([*(float(text or "nan") for text in texts), np.nan])[codes])
    require(kind != "class", "label_kind 'class' is one class a node, in one column; name it with label_column")
    y = np.stack(values, axis=1)
    if kind != "number" and (np.isnan(y) | (y == 0) | (y == 1)).all():
        y = to_labels(np.where(np.isnan(y), -1, y).astype(np.int64))
    require(
        kind != "labels" or y.dtype == np.int8, "label_kind 'labels' takes columns of 0 and 1, and these hold others"
    )
    return {"y": torch.from_numpy(y), "num_classes": len(columns), "class_names": tuple(columns)}


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
