"""What may be a mistake in a user's data, though it can be trained on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cvgnn.data.graph import Graph
from cvgnn.data.io.cell_values import Cells, missing
from cvgnn.data.io.preprocessing import Preprocessing
from cvgnn.utils.formatting import join_printable

_CODES = [sign * number for number in (99, 999, 9999, 99999) for sign in (-1.0, 1.0)]
"""Numbers that stand for a missing value in many tables."""
_LATE = 84_006  # days from 1970 to 2200; databases write 9999-12-31 for "no end"
_log = logging.getLogger(__name__)  # cvgnn inspect prints what it gets


def log_suspicions(lines: Iterable[str]) -> None:
    """Log each as a warning."""
    for line in lines:
        _log.warning("%s", line)


def graph_suspicions(graph: Graph) -> list[str]:
    """Suspicions about labels, split and edges of a graph that somebody wants to train on."""
    found = [] if graph.label_kind == "targets" else _label_suspicions(graph)
    if graph.edge_label is not None:
        known = graph.edge_label[graph.edge_label >= 0].numpy()
        found += _name_suspicions(np.bincount(known), graph.edge_class_names, "labels of edges")
    for part in ("val", "test") if graph.train_ids.numel() else ():
        if getattr(graph, f"{part}_ids").numel() == 0:
            found.append(f"the {part} split is empty")
    alone = int((graph.degree == 0).sum())
    if graph.num_nodes > 1 and 2 * alone > graph.num_nodes:
        found.append(
            f"{alone} of {graph.num_nodes} nodes have no edge; they are classified by their own features alone"
        )
    return found


def _label_suspicions(graph: Graph) -> list[str]:
    """Suspicions about classes, or about several labels a node."""
    found = []
    y, names = graph.y.numpy(), graph.class_names

    def count(y: np.ndarray) -> np.ndarray:
        several: np.ndarray = (y == 1).sum(axis=0)
        return several if y.ndim == 2 else np.bincount(y[y >= 0], minlength=graph.num_classes)

    counts, in_training = count(y), count(y[graph.train_ids.numpy()])

    item = "node" if graph.graph_ids is None else "graph"
    different, known = np.count_nonzero(counts), int(counts.sum())
    if y.ndim == 1 and known >= 10 and 2 * different > known:
        found.append(f"{known} {item}s have {different} different labels; is the label another column?")
    absent = np.flatnonzero((counts > 0) & (in_training == 0))
    if absent.size and graph.train_ids.numel():
        shown = _shown(absent, names)
        found.append(f"{absent.size} classes have no training {item}: {shown}; they are never predicted")
    rare = np.flatnonzero(counts == 1)
    if rare.size and counts.sum() >= 10 * np.count_nonzero(counts):
        found.append(f"{rare.size} classes have a single {item}: {_shown(rare, names)}; is the label misspelled?")
    return found + _name_suspicions(counts if y.ndim == 1 and len(y) > 1 else None, names, "labels")


def _name_suspicions(counts: np.ndarray | None, names: Sequence[str] | None, what: str) -> list[str]:
    """Suspicions about classes of anything.

    Args:
        counts: `[C]`, how often each occurs; None where an item has several labels.
        names: of the classes, if they have any.
        what: the labels are called.
    """
    found = []
    if counts is not None and np.count_nonzero(counts) == 1:
        found.append(f"all {what} are {_shown(np.flatnonzero(counts), names)}, so there is nothing to learn")
    found += _similar(names or (), what)
    if names and not all(name.lstrip("-").isdigit() for name in names) and all(map(_is_float, names)):
        found.append(f"{what} such as {names[0]} are numbers with a fraction; each different number is a class")
    return found


def _shown(classes: np.ndarray, names: Sequence[str] | None) -> str:
    return join_printable([str(c) if names is None else names[c] for c in classes[:5].tolist()])[:200]


def column_suspicions(
    cells: dict[str, Cells], fitted: Preprocessing, y: np.ndarray | None, train: np.ndarray
) -> list[str]:
    """Suspicions about the columns that become features; only training nodes are looked at.

    Args:
        cells: the columns.
        fitted: what becomes of them.
        y: int64 `[N]`, the classes; None for labels that are no classes.
        train: int64, positions of the training nodes.
    """
    found = []
    used = {column["name"]: column for column in fitted.columns if column["kind"] != "dropped"}
    for name, column in used.items():
        if column["kind"] == "date" and column["newest"] > _LATE:
            latest = np.datetime64(int(column["newest"]), "D")
            found.append(f"column {name!r} has dates as late as {latest}; leave the cell empty if it is missing")
        if not isinstance(cells[name], np.ndarray):
            found += _similar(column.get("values", ()), f"values of column {name!r}")
        elif cells[name].ndim == 1:
            found += _about_numbers(cells[name], name, train)
        else:
            found += _about_lists(cells[name], name, train)
    for name in () if y is None else equal_to_label(cells, y, train):
        hint = "name it in --ignore if it is not known when you predict"
        found.append(f"column {name!r} alone tells the label of every training node that has it; {hint}")
    if all("why" in column for column in used.values()):
        found.append("no column differs between training nodes; they are told apart by their edges alone")
    return found


def equal_to_label(cells: dict[str, Cells], y: np.ndarray, train: np.ndarray) -> list[str]:
    """Columns with few values of which each occurs with one label only, as a copy of the label does."""
    found, num_classes = [], len(np.unique(y[train]))
    for name, column in cells.items():
        if isinstance(column, np.ndarray) and column.ndim == 2:
            continue
        known = train[~missing(column)[train]]  # a copy of the label may have gaps
        labels = y[known]
        # Where most nodes have a label of their own, every column of different values would tell it.
        if len(known) < 10 or not 2 <= num_classes <= len(known) // 2:
            continue
        if isinstance(column, np.ndarray):
            values, codes = np.unique(column[known], return_inverse=True)
            count = len(values)
        else:
            encoded = column.take(pa.array(known)).dictionary_encode()
            codes, count = encoded.indices.to_numpy(), len(encoded.dictionary)
        if count == num_classes and len(np.unique(codes.astype(np.int64) * (labels.max() + 1) + labels)) == count:
            found.append(name)
    return found


def _about_numbers(column: np.ndarray, name: str, train: np.ndarray) -> list[str]:
    found = []
    if len(column) >= 10 and np.isfinite(column).all() and (np.diff(column) == 1).all():
        found.append(f"column {name!r} counts the rows; name it in --ignore")
    x = column[train]
    known = x[np.isfinite(x) & ~np.isin(x, _CODES)]
    if known.size >= 10:
        low, high = np.quantile(known, (0.25, 0.75))
        for code in _CODES:
            count = int((x == code).sum())
            if count > 1 and not low - 5 * (high - low) <= code <= high + 5 * (high - low):
                found.append(
                    f"column {name!r} is {code:g} in {count} training nodes; leave the cell empty if it is missing"
                )
    return found


def _about_lists(matrix: np.ndarray, name: str, train: np.ndarray) -> list[str]:
    """Lists of numbers stay as they are, so their scales matter."""
    x = matrix[train]
    with np.errstate(over="ignore"):  # an infinite scale is what the warning below is about
        scale = np.sqrt(np.mean(x * x, axis=0))[(x != 0).mean(axis=0) > 0.5]  # words and indicators are mostly 0
    if scale.size < 2 or not scale.max() > 100 * scale.min():
        return []
    ratio = f"by a factor of {scale.max() / scale.min():.0f}" if scale.min() > 0 else "without bound"
    return [f"the entries of the lists in column {name!r} differ in scale {ratio}; give each entry its own column"]


def _similar(values: Iterable[Any], what: str) -> list[str]:
    """Values that differ only in case or spaces."""
    first: dict[str, str] = {}
    for value in values:
        other = first.setdefault(" ".join(str(value).split()).casefold(), value)
        if other != value:
            return [f"{what} differ in case or spaces alone: {other!r} and {value!r}; write them alike"]
    return []


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
