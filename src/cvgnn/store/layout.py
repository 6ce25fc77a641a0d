"""Which arrays a store of version 1 holds, and what each must be for the header's fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from cvgnn.errors import unknown_name
from cvgnn.store.files import damaged, shown
from cvgnn.store.header import StoreHeader

_FLOATS = ("<f4", "<f8")
# Every array, and the dtypes it may have; node names may be fixed-width Unicode too.
DTYPES: dict[str, tuple[str, ...]] = {
    "indptr": ("<i8",),
    "indices": ("<i4",),
    "edge_weight": _FLOATS,
    "x": _FLOATS,
    "x_indptr": ("<i8",),
    "x_indices": ("<i4",),
    "x_values": _FLOATS,
    "PX": _FLOATS,
    "PX_indptr": ("<i8",),
    "PX_indices": ("<i4",),
    "PX_values": _FLOATS,
    "y": ("<i8",),
    "train_ids": ("<i8",),
    "val_ids": ("<i8",),
    "test_ids": ("<i8",),
    "node_names": ("<i8",),
}
_UNICODE = re.compile("<U[1-9][0-9]{0,5}")


def may_be(name: str, dtype: str) -> bool:
    """Whether an array may have a dtype.

    >>> may_be("indices", "<i4"), may_be("indices", "<i8"), may_be("node_names", "<U7")
    (True, False, True)
    """
    if name not in DTYPES:
        raise unknown_name("array", name, DTYPES)
    return dtype in DTYPES[name] or (name == "node_names" and _UNICODE.fullmatch(dtype) is not None)


def allowed(name: str) -> str:
    """The dtypes that an array may have, in words."""
    return " or ".join([*DTYPES[name], *(["Unicode of a fixed width (<U8)"] if name == "node_names" else [])])


def check(folder: Path, header: StoreHeader) -> None:
    """Refuse a header whose arrays are not those that its fields imply, each of the implied shape and dtype.

    Args:
        folder: the store, for messages.
        header: as read.
    """
    expected = _expected_shapes(header)
    arrays = header.arrays
    for name in arrays:
        if name not in expected:
            raise damaged(folder, f"header.json lists an array {shown(name)} that does not belong to such a store")
    for name, shape in expected.items():
        if name not in arrays:
            raise damaged(folder, f"header.json lists no array {name!r}, which such a store needs")
        entry = arrays[name]
        if not may_be(name, entry.dtype):
            raise damaged(
                folder, f"header.json says that {name} has dtype {shown(entry.dtype)}; it must be {allowed(name)}"
            )
        agrees = len(shape) == len(entry.shape) and all(
            want is None or want == have for want, have in zip(shape, entry.shape, strict=True)
        )
        if not agrees:
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise damaged(
                folder,
                f"header.json says that {name} has shape {list(entry.shape)}; its other numbers ask for [{wanted}]",
            )
    for form in ("x", "PX"):
        if f"{form}_indices" in arrays and arrays[f"{form}_indices"].shape != arrays[f"{form}_values"].shape:
            raise damaged(folder, f"header.json says that {form}_indices and {form}_values differ in length")
    files = [entry.file for entry in arrays.values()]
    if len(set(files)) < len(files):
        raise damaged(folder, "header.json names one file for two arrays")
    classes = header.graph.class_names
    if classes is not None and len(classes) != header.graph.num_classes:
        raise damaged(folder, f"header.json has {len(classes)} class names for {header.graph.num_classes} classes")


def dtype_of(entry_dtype: str) -> np.dtype[Any]:
    """The dtype of a checked entry."""
    return np.dtype(entry_dtype)


def _expected_shapes(header: StoreHeader) -> dict[str, tuple[int | None, ...]]:
    """Shape of every array that the fields imply; None where any size will do."""
    g = header.graph
    n, e, f = g.num_nodes, g.num_edges, g.num_features
    shapes: dict[str, tuple[int | None, ...]] = {
        "indptr": (n + 1,), "indices": (e,), "y": (n,), "train_ids": (None,), "val_ids": (None,), "test_ids": (None,)
    }  # fmt: skip
    if g.weighted:
        shapes["edge_weight"] = (e,)
    if g.named:
        shapes["node_names"] = (n,)
    for form in ["x"] if g.PX_normalization is None else ["x", "PX"]:
        if g.features == "dense":
            shapes[form] = (n, f)
        else:
            shapes |= {f"{form}_indptr": (n + 1,), f"{form}_indices": (None,), f"{form}_values": (None,)}
    return shapes
