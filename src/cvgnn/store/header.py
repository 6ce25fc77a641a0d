"""`header.json`: what a store says about itself, and the checks that it must pass before anything else is read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

from cvgnn._version import __version__
from cvgnn.errors import CvgnnError
from cvgnn.graph.graph import MAX_NODES
from cvgnn.graph.propagation import NORMALIZATIONS
from cvgnn.sealed import is_sealed, parse_object, seal
from cvgnn.store.files import damaged, open_inside, shown

FORMAT = "cvgnn-store"
VERSION = 1
HEADER = "header.json"
MAX_HEADER_BYTES = 1 << 26


@final
@dataclass(frozen=True, kw_only=True)
class GraphFields:
    """What the header says of the graph; the sizes must agree with the arrays.

    Args:
        name, directed, split, num_classes, class_names, PX_normalization: as in `cvgnn.Graph`.
        num_nodes, num_edges, num_features: `N`, `E`, `F`.
        features: whether `x` (and `PX`) are dense matrices or CSR.
        weighted: whether there are edge weights.
        named: whether there are node names.
    """

    name: str
    num_nodes: int
    num_edges: int
    num_features: int
    features: Literal["dense", "sparse"]
    num_classes: int
    class_names: tuple[str, ...] | None
    directed: bool
    split: str
    weighted: bool
    named: bool
    PX_normalization: str | None


@final
@dataclass(frozen=True, kw_only=True)
class ArrayEntry:
    """One array: its file, what the file must hold, the file's length and SHA-256."""

    file: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    sha256: str


@final
@dataclass(frozen=True, kw_only=True)
class StoreHeader:
    """A header whose every value has the right type; `layout.check` compares fields with arrays."""

    cvgnn: str
    graph: GraphFields
    arrays: dict[str, ArrayEntry]


def header_text(graph: GraphFields, arrays: dict[str, ArrayEntry]) -> str:
    """The text of a header of this version, with its own checksum."""
    body = {
        "format": FORMAT,
        "version": VERSION,
        "cvgnn": __version__,
        "graph": dataclasses.asdict(graph),
        "arrays": {name: dataclasses.asdict(entry) for name, entry in arrays.items()},
    }
    return seal(body)


def read_header(folder: Path) -> StoreHeader:
    """The header of a store, or a sentence that says what is wrong with it.

    Args:
        folder: the store.
    """
    body = _body(folder)
    if body.get("format") != FORMAT:
        raise CvgnnError(
            f"{folder} is not a cvgnn store: its {HEADER} says format {shown(body.get('format'))}, not {FORMAT!r}; "
            "make one with 'cvgnn convert'"
        )
    version = body.get("version")
    if type(version) is not int or version != VERSION:
        raise CvgnnError(
            f"{folder} is a store of version {shown(version)}, and this cvgnn reads version {VERSION}; "
            "update cvgnn, or write the store again with 'cvgnn convert'"
        )
    if not is_sealed(body):
        raise damaged(
            folder, f"{HEADER} does not match its own checksum, so it was changed or cut after it was written"
        )
    extra = sorted(set(body) - {"format", "version", "cvgnn", "graph", "arrays"})
    if extra:
        raise damaged(folder, f"{HEADER} has an unknown key {shown(extra[0])}")
    if not isinstance(body.get("cvgnn"), str):
        raise damaged(folder, f"{HEADER} does not say which cvgnn wrote it")
    graph = GraphFields(**_checked(folder, "graph", body.get("graph"), _FIELD_RULES))
    arrays = body.get("arrays")
    if not isinstance(arrays, dict):
        raise damaged(folder, f"{HEADER} has no list of arrays")
    entries = {name: ArrayEntry(**_checked(folder, name, entry, _ENTRY_RULES)) for name, entry in arrays.items()}
    return StoreHeader(cvgnn=body["cvgnn"], graph=graph, arrays=entries)


def _body(folder: Path) -> dict[str, Any]:
    file, size = open_inside(folder, HEADER)
    with file:
        if size > MAX_HEADER_BYTES:
            raise damaged(folder, f"{HEADER} is {size} bytes long; no store's header is")
        data = file.read(size)
    try:
        return parse_object(data)
    except ValueError as error:
        raise damaged(folder, f"{HEADER} {error}") from None


_Rule = tuple[str, Callable[[Any], bool]]


def _whole(low: int, high: int) -> _Rule:
    return f"a whole number in {low}..{high}", lambda v: type(v) is int and low <= v <= high


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


_TEXT: _Rule = ("a string", lambda v: isinstance(v, str))
_FLAG: _Rule = ("true or false", lambda v: isinstance(v, bool))
_FIELD_RULES: dict[str, _Rule] = {
    "name": _TEXT,
    "num_nodes": _whole(1, MAX_NODES),
    "num_edges": _whole(0, 2**62),
    "num_features": _whole(1, MAX_NODES),
    "features": ("'dense' or 'sparse'", lambda v: v in ("dense", "sparse")),
    "num_classes": _whole(1, MAX_NODES),
    "class_names": ("null or a list of strings", lambda v: v is None or _texts(v)),
    "directed": _FLAG,
    "split": _TEXT,
    "weighted": _FLAG,
    "named": _FLAG,
    "PX_normalization": (
        f"null or one of {', '.join(NORMALIZATIONS)}",
        lambda v: v is None or (isinstance(v, str) and v in NORMALIZATIONS),
    ),
}
_ENTRY_RULES: dict[str, _Rule] = {
    "file": ("a file name", lambda v: isinstance(v, str)),
    "shape": (
        "a list of one or two sizes",
        lambda v: isinstance(v, list) and 1 <= len(v) <= 2 and all(type(s) is int and 0 <= s < 2**62 for s in v),
    ),
    "dtype": ("a dtype such as '<f4'", lambda v: isinstance(v, str)),
    "bytes": _whole(0, 2**63 - 1),
    "sha256": ("64 hexadecimal digits", lambda v: isinstance(v, str) and bool(re.fullmatch("[0-9a-f]{64}", v))),
}


def _checked(folder: Path, what: str, values: object, rules: dict[str, _Rule]) -> dict[str, Any]:
    """`values` as keyword arguments, if it has exactly the keys of `rules` and each value passes its rule."""
    if not isinstance(values, dict):
        raise damaged(folder, f"{HEADER} says nothing usable about {shown(what)}")
    wrong = sorted(set(values) ^ set(rules))
    if wrong:
        state = "an unknown" if wrong[0] in values else "no"
        raise damaged(folder, f"{HEADER} has {state} key {shown(wrong[0])} under {shown(what)}")
    for key, (words, holds) in rules.items():
        if not holds(values[key]):
            raise damaged(folder, f"{key} of {shown(what)} in {HEADER} must be {words}, not {shown(values[key])}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
