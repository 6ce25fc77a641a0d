"""How the columns of a folder of tables are read; importing this needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from cvgnn.errors import require, unknown_name

_LISTS = ("label_columns", "ignore", "numeric", "category", "text")
_CHOICES = {
    "label_kind": ("auto", "class", "labels", "number"),
    "unknown_edges": ("error", "drop"),
    "preprocess": ("auto", "none"),
}


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Names and kinds of columns, for a graph that is a folder of tables."""

    id_column: str | None = None
    """Column of the node's id; id, or a usual name such as node_id, if not given."""

    label_column: str | None = None
    """Column of the class; label, or a usual name such as class, if not given."""

    label_columns: tuple[str, ...] = ()
    """Several columns of labels instead: 0 or 1 in each, for any number of labels a node, or numbers to predict."""

    label_kind: Literal["auto", "class", "labels", "number"] = "auto"
    """What the label column holds: class = one class a node, labels = any number of them, separated by "|", number = a
    number to predict; auto = found from the cells."""

    split_column: str | None = None
    """Column with train, val or test; split, or a usual name such as fold, if not given."""

    source_column: str | None = None
    """Column with the node that an edge starts from; source, or a usual name such as src, if not given."""

    target_column: str | None = None
    """Column with the node that an edge points to; target, or a usual name such as dst, if not given."""

    weight_column: str | None = None
    """Column of the edge's weight; weight if not given and there is one."""

    graph_column: str | None = None
    """Column of the node's graph, for a set of graphs; graph, or graph_id, if not given and there is one."""

    edge_label_column: str | None = None
    """Column of the class of an edge, in the table edge_labels or edges; label if not given and there is one."""

    ignore: tuple[str, ...] = ()
    """Columns that are no features."""

    numeric: tuple[str, ...] = ()
    """Columns to read as numbers, whatever they look like."""

    category: tuple[str, ...] = ()
    """Columns to read as categories, such as codes that look like numbers."""

    text: tuple[str, ...] = ()
    """Columns of free text; each word counts, by its hash."""

    split_by: str | None = None
    """Column of dates or numbers that makes the split: the oldest nodes train, the newest test. It is no feature."""

    unknown_edges: Literal["error", "drop"] = "error"
    """An edge whose node is not in the table: error = report it, drop = leave the edge out."""

    preprocess: Literal["auto", "none"] = "auto"
    """auto = scale numbers, encode categories and dates and fill gaps, fitted on the training nodes, and standardise
    dense features of .npz and .pt whose scales differ by more than 100; none = every feature must be a number and is
    used as it is."""

    def __post_init__(self) -> None:
        for name in _LISTS:
            value = getattr(self, name)
            strings = isinstance(value, tuple | list) and all(isinstance(item, str) for item in value)
            require(strings, f"{name} must be names of columns, not {value!r}")
            object.__setattr__(self, name, tuple(value))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise unknown_name(name, getattr(self, name), choices)
        for name in (f.name for f in fields(TableOptions)):
            value = getattr(self, name)
            if name not in _LISTS:
                require(value is None or isinstance(value, str), f"{name} must be a name, not {value!r}")
        chosen = [(column, name) for name in _LISTS for column in getattr(self, name)]
        for column in {column for column, _ in chosen}:
            where = [name for other, name in chosen if other == column]
            require(len(where) == 1, f"column {column!r} is named twice, in {' and in '.join(where)}; name it once")

    def table_options(self) -> dict[str, Any]:
        """The options of this class by name."""
        return {f.name: getattr(self, f.name) for f in fields(TableOptions)}

    def given(self) -> list[str]:
        """The names of options that differ from their default."""
        return [f.name for f in fields(TableOptions) if getattr(self, f.name) != f.default]
