"""Write a `Graph` to a store, in bounded pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from cvgnn.data import Graph, SparseFeatures
from cvgnn.data.propagation import AGGREGATIONS, Aggregation
from cvgnn.data.store.propagated_features import add_product
from cvgnn.data.store.store_reader import COMMON_ARRAYS, COMMON_FIELDS, NAMES
from cvgnn.data.store.store_writer import StoreWriter
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.utils.progress import ProgressCallback


def write_store(
    graph: Graph, path: Path, *, propagate: Aggregation | None = None, progress: ProgressCallback | None = None
) -> None:
    """Write a graph to a new store.

    Args:
        graph: in memory or itself from a store. Its `P X` is kept if it has one.
        path: a folder that does not exist yet, or is empty.
        propagate: also store `P X` for this normalization, computed in bounded memory; training and inference then
            never form a matrix of the features' size.
        progress: called with a stage (a file's name, `P X` or `checksums`) and a share in 0..1.
    """
    if propagate is not None and propagate not in AGGREGATIONS:
        raise unknown_name("normalization", propagate, AGGREGATIONS)
    require(graph.cutout is None, "a compact store is not written again; copy its folder, or compact the whole graph")
    with StoreWriter(path, progress=progress) as writer:
        for name in COMMON_ARRAYS:
            tensor: Tensor | None = getattr(graph, name)
            if tensor is not None:
                _write_matrix(writer, name, tensor)
        _write_matrix(writer, "x", graph.x)
        for name in NAMES:
            if getattr(graph, name) is not None:
                writer.write(name, plain_names(getattr(graph, name)))
        normalization = propagate or (None if graph.PX is None else graph.PX_normalization)
        if graph.PX is not None and normalization == graph.PX_normalization and graph.PX.dtype == graph.x.dtype:
            _write_matrix(writer, "PX", graph.PX)
        elif normalization is not None:
            add_product(writer, normalization, num_features=graph.num_features)  # type: ignore[arg-type]
        fields = {name: getattr(graph, name) for name in COMMON_FIELDS}
        writer.finish({**fields, "num_features": graph.num_features, "PX_normalization": normalization})


def plain_names(names: np.ndarray) -> np.ndarray:
    """Node names as a store holds them: int64 or fixed-width Unicode, never Python objects.

    >>> plain_names(np.array(["b", "aa"], dtype=object))
    array(['b', 'aa'], dtype='<U2')
    """
    if names.dtype.kind in "iu":
        require(
            names.dtype != np.uint64 or names.size == 0 or int(names.max()) < 2**63,
            "node_names must fit 64-bit signed integers; turn larger ones into strings",
        )
        return names.astype(np.int64, copy=False)
    if names.dtype.kind == "U":
        return names.astype(f"<U{max(1, names.dtype.itemsize // 4)}", copy=False)
    if names.dtype.kind in "OT" and all(isinstance(name, str) for name in names):
        plain = np.array(names.tolist(), dtype=np.str_)
        require(
            all(plain == names), "node_names has a name that ends in a NUL character, which no string array can hold"
        )
        return plain_names(plain)
    raise CvgnnError(f"node_names must be integers or strings to be stored, not {names.dtype}; turn them into strings")


def _write_matrix(writer: StoreWriter, name: str, matrix: Tensor | SparseFeatures) -> None:
    if isinstance(matrix, SparseFeatures):
        for part in ("indptr", "indices", "values"):
            _write_matrix(writer, f"{name}_{part}", getattr(matrix, part))
    else:
        writer.write(name, matrix.detach().cpu().numpy())
