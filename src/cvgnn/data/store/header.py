"""`header.json`: the description of a store, its format, and the checks it must pass before an array is opened.

The files of a store are opened here, only inside its folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple, TypeVar, final, get_type_hints

from cvgnn._version import __version__
from cvgnn.data.graph import IDS, MAX_NODES
from cvgnn.data.propagation import AGGREGATIONS
from cvgnn.errors import CvgnnError, require, require_known
from cvgnn.utils import atomic_files
from cvgnn.utils.checked_json import add_checksum, has_valid_checksum, parse_object, short

FORMAT = "cvgnn-store"
VERSION = 1
HEADER = "header.json"
MAX_HEADER_BYTES = 1 << 26
_LATER_FIELDS = (
    "preprocessing",
    "hops",
    "whole_nodes",
    "edge_class_names",
)  # of the graph, which older stores do not have
_PROBLEMS = {
    errno.ENOENT: "is missing",
    errno.EINVAL: "is not a regular file",
    errno.ELOOP: "is a symbolic link; a store holds its own files only",
}

_CSR = {"indptr": "<i8", "indices": "<i4", "values": "<f4|<f8"}
DTYPES = {
    "indptr": "<i8", "indices": "<i4", "edge_weight": "<f4|<f8", "y": "<i8|i1|<f4|<f8",
    **dict.fromkeys((*IDS, "edge_label_index", "edge_label"), "<i8"), "edge_split": "i1", "graph_ids": "<i8",
    "x": "<f4|<f8", **{f"x_{part}": dtype for part, dtype in _CSR.items()},
    **dict.fromkeys(("node_names", "graph_names"), "<i8|<U[1-9][0-9]{0,5}"),
    "PX": "<f4|<f8", **{f"PX_{part}": dtype for part, dtype in _CSR.items()},
    "whole_ids": "<i4",
    "whole_row_sums": "<f8",
}  # fmt: skip
"""Every array of a store with a regular expression for its dtype; names are integers or fixed-width Unicode."""


class DamagedStore(CvgnnError):
    """A store that cannot be used.

    Args:
        folder: the store.
        problem: what is wrong, naming the file.
    """

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(f"store {folder}: {problem}; write it again with 'cvgnn convert', or restore it from a copy")
        self.problem = problem


@contextlib.contextmanager
def report_damage(folder: Path) -> Iterator[None]:
    """Raise errors about the arrays as `DamagedStore`."""
    try:
        yield
    except CvgnnError as error:
        raise DamagedStore(folder, str(error)) from None


def open_file(folder: Path, file: str) -> BinaryIO:
    """Open a regular file of the store for reading, not through a symbolic link.

    Args:
        folder: the store.
        file: a name without folders.
    """
    try:
        return atomic_files.open_regular(folder / file, getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        problem = _PROBLEMS.get(error.errno or 0)
        if problem is not None:
            raise DamagedStore(folder, f"{file} {problem}") from None
        raise CvgnnError(
            f"store {folder}: cannot read {file} ({error.strerror}); check the path and the permissions"
        ) from None


class _Rule(NamedTuple):
    """The rule for one value of the header: in words for the error message, and as a function."""

    text: str
    holds: Callable[[Any], bool]


def _integer(low: int, high: int) -> _Rule:
    return _Rule(f"a whole number in {low}..{high}", lambda v: type(v) is int and low <= v <= high)


_String = Annotated[str, _Rule("a string", lambda v: isinstance(v, str))]
_Bool = Annotated[bool, _Rule("true or false", lambda v: isinstance(v, bool))]
_Size = Annotated[int, _integer(1, MAX_NODES)]
_Names = _Rule(
    "null or a list of strings",
    lambda v: v is None or (isinstance(v, list | tuple) and all(isinstance(name, str) for name in v)),
)
_Normalization = _Rule(f"null or one of {', '.join(AGGREGATIONS)}", lambda v: v in (None, *AGGREGATIONS))
_WholeNodes = _Rule("null or a number of nodes", lambda v: v is None or (type(v) is int and 1 <= v <= MAX_NODES))
_Hops = _Rule("null or a whole number in 0..1000", lambda v: v is None or (type(v) is int and 0 <= v <= 1000))
_Object = _Rule("null or an object", lambda v: v is None or isinstance(v, dict))
_Shape = _Rule(
    "a list of one or two sizes",
    lambda v: isinstance(v, list) and len(v) in (1, 2) and all(type(size) is int and 0 <= size < 2**62 for size in v),
)
_Sha256 = _Rule("64 hexadecimal digits", lambda v: isinstance(v, str) and bool(re.fullmatch("[0-9a-f]{64}", v)))


@final
@dataclass(frozen=True, kw_only=True)
class GraphFields:
    """The graph in the header; the sizes must agree with the arrays.

    Args:
        name, directed, split, num_classes, class_names, PX_normalization, preprocessing, edge_class_names: as in
            `cvgnn.Graph`.
        num_nodes, num_edges, num_features: `N`, `E`, `F`.
        features: whether `x` (and `PX`) are dense matrices or CSR.
        weighted: whether there are edge weights.
        named: whether there are node names.
        hops, whole_nodes: of a compact store, see `cvgnn.data.graph.Cutout`; None for a whole graph.
    """

    name: _String
    num_nodes: _Size
    num_edges: Annotated[int, _integer(0, 2**62)]
    num_features: _Size
    features: Annotated[Literal["dense", "sparse"], _Rule("'dense' or 'sparse'", lambda v: v in ("dense", "sparse"))]
    num_classes: _Size
    class_names: Annotated[tuple[str, ...] | None, _Names]
    directed: _Bool
    split: _String
    weighted: _Bool
    named: _Bool
    PX_normalization: Annotated[str | None, _Normalization]
    preprocessing: Annotated[dict[str, Any] | None, _Object]
    edge_class_names: Annotated[tuple[str, ...] | None, _Names]
    hops: Annotated[int | None, _Hops]
    whole_nodes: Annotated[int | None, _WholeNodes]


@final
@dataclass(frozen=True, kw_only=True)
class ArrayEntry:
    """One array in the header: its file, shape and dtype, the length of the file and its SHA-256."""

    file: _String
    shape: Annotated[tuple[int, ...], _Shape]
    dtype: _String
    bytes: Annotated[int, _integer(0, 2**63 - 1)]
    sha256: Annotated[str, _Sha256]


@final
@dataclass(frozen=True, kw_only=True)
class StoreHeader:
    """A header whose values are checked."""

    cvgnn: str
    graph: GraphFields
    arrays: dict[str, ArrayEntry]


def write_header(folder: Path, graph: GraphFields, arrays: dict[str, ArrayEntry]) -> None:
    """Write `header.json` of a new store."""
    header = dataclasses.asdict(StoreHeader(cvgnn=__version__, graph=graph, arrays=arrays))
    for field in _LATER_FIELDS:
        if header["graph"][field] is None:
            del header["graph"][field]  # as in stores of cvgnn before it had the field
    atomic_files.write_new(folder / HEADER, add_checksum({"format": FORMAT, "version": VERSION, **header}))


def is_store(path: Path) -> bool:
    """Whether `path` is a folder with a `header.json`; it may still be damaged, which `open_store` checks."""
    return os.path.isfile(Path(path) / HEADER)


def read_header(folder: Path) -> StoreHeader:
    """Read and check the header of a store; a `CvgnnError` if there is none or it is damaged.

    Args:
        folder: the store.
    """
    require(
        is_store(folder),
        f"there is no store at {folder}: it is not a folder with {HEADER}, or may not be read; check the path, or make "
        "a store with 'cvgnn convert'",
    )
    body = _read_body(folder)
    file_format, version = body.get("format"), body.get("version")
    require(
        file_format == FORMAT and type(version) is int and version == VERSION,
        f"{folder} has format {short(file_format)} and version {short(version)}, and this cvgnn reads {FORMAT!r} of "
        f"version {VERSION}; update cvgnn, or write the store again with 'cvgnn convert'",
    )
    with report_damage(folder):
        require(has_valid_checksum(body), f"{HEADER} does not match its own checksum: it was changed or cut")
        return _parse(body)


def check_dtype(name: str, dtype: str) -> None:
    """Refuse an array that no store has, or a dtype that it may not have.

    Args:
        name: of the array.
        dtype: as in `numpy.dtype.str`.

    >>> check_dtype("indices", "<i4")
    >>> check_dtype("node_names", "<U7")
    """
    require_known("array", name, DTYPES)
    allowed = DTYPES[name].replace("|", " or ")
    # One byte has no order of bytes: numpy writes "|i1".
    require(
        bool(re.fullmatch(DTYPES[name], dtype.removeprefix("|"))),
        f"{name} must have dtype {allowed}, not {short(dtype)}",
    )


_Fields = TypeVar("_Fields", GraphFields, ArrayEntry)


def check_fields(kind: type[_Fields], values: object, where: str) -> _Fields:
    """A part of the header, if it has exactly the keys of the dataclass `kind` and each value follows its rule.

    Args:
        kind: `GraphFields` or `ArrayEntry`.
        values: as parsed from JSON.
        where: the place of the values, for messages.
    """
    hints = get_type_hints(kind, include_extras=True)
    checked = _check_keys(values, hints, where)
    for key, hint in hints.items():
        rule: _Rule = hint.__metadata__[0]
        require(rule.holds(checked[key]), f"{key} in {where} must be {rule.text}, not {short(checked[key])}")
    arguments: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in checked.items()}
    return kind(**arguments)


def _read_body(folder: Path) -> dict[str, Any]:
    with open_file(folder, HEADER) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_HEADER_BYTES:
            raise DamagedStore(folder, f"{HEADER} is {size} bytes long, more than any header")
        data = file.read(size)
    try:
        return parse_object(data)
    except ValueError as error:
        raise DamagedStore(folder, f"{HEADER} {error}") from None


def _parse(body: dict[str, Any]) -> StoreHeader:
    """Check the types of all values, and that the arrays are those that the fields of the graph imply."""
    _check_keys(body, ("format", "version", "cvgnn", "graph", "arrays", "sha256"), HEADER)
    require(isinstance(body["cvgnn"], str), f"cvgnn in {HEADER} must be a version, not {short(body['cvgnn'])}")
    fields = body["graph"]
    if isinstance(fields, dict):
        fields = {**dict.fromkeys(_LATER_FIELDS), **fields}
    graph = check_fields(GraphFields, fields, f"'graph' of {HEADER}")
    names, count = graph.class_names, graph.num_classes
    require(names is None or len(names) == count, f"{HEADER} has {len(names or ())} class names for {count} classes")
    shapes = _expected_shapes(graph, body["arrays"])
    arrays = {
        name: check_fields(ArrayEntry, entry, f"{name!r} of {HEADER}")
        for name, entry in _check_keys(body["arrays"], shapes, f"'arrays' of {HEADER}").items()
    }
    for name, entry in arrays.items():
        # Also keeps a forged header from naming a file outside the folder.
        require(entry.file == f"{name}.npy", f"file in {name!r} of {HEADER} is {short(entry.file)}, not '{name}.npy'")
        check_dtype(name, entry.dtype)
        shape = shapes[name]
        if name in ("x_values", "PX_values"):
            shape = arrays[name.replace("values", "indices")].shape
        elif name in ("edge_label", "edge_split"):
            shape = arrays["edge_label_index"].shape[1:]
        elif name == "graph_names":
            shape = arrays["y"].shape[:1]
        elif name == "y" and entry.dtype != "<i8":  # several labels a node, or numbers
            shape = (*shape, graph.num_classes)
        wanted = "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
        agrees = len(shape) == len(entry.shape) and all(
            size in (None, have) for size, have in zip(shape, entry.shape, strict=True)
        )
        require(agrees, f"{HEADER} gives {name} the shape {list(entry.shape)}; its other fields imply {wanted}")
    return StoreHeader(cvgnn=body["cvgnn"], graph=graph, arrays=arrays)


def _check_keys(values: object, keys: Collection[str], where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise CvgnnError(f"{where} must be an object, not {short(values)}")
    for key in keys:
        require(key in values, f"{key!r} is missing in {where}")
    for key in values:
        require(key in keys, f"unknown key {short(key)} in {where}; known: {', '.join(keys)}")
    return values


def _expected_shapes(graph: GraphFields, there: object) -> dict[str, tuple[int | None, ...]]:
    """Shape of every array that the fields imply, and the arrays that are `there`; None for any size."""
    n, e, f = graph.num_nodes, graph.num_edges, graph.num_features
    names = set(there) if isinstance(there, dict) else set()
    of_graphs = "graph_ids" in names
    shapes: dict[str, tuple[int | None, ...]] = {
        "indptr": (n + 1,), "indices": (e,), "y": (None if of_graphs else n,), **dict.fromkeys(IDS, (None,))
    }  # fmt: skip
    if of_graphs:
        shapes |= {"graph_ids": (n,)} | ({"graph_names": (None,)} if "graph_names" in names else {})
    if "edge_label_index" in names:
        shapes |= {"edge_label_index": (2, None), "edge_label": (None,)}
        shapes |= {"edge_split": (None,)} if "edge_split" in names else {}
    if graph.weighted:
        shapes["edge_weight"] = (e,)
    if graph.named:
        shapes["node_names"] = (n,)
    if graph.hops is not None:
        shapes |= {"whole_ids": (n,), "whole_row_sums": (n,)}
    for form in ["x"] if graph.PX_normalization is None else ["x", "PX"]:
        if graph.features == "dense":
            shapes[form] = (n, f)
        else:
            shapes |= {f"{form}_indptr": (n + 1,), f"{form}_indices": (None,), f"{form}_values": (None,)}
    return shapes
