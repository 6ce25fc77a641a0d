"""From a `Graph` to a store, in bounded pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.graph import NORMALIZATIONS, Graph, Normalization, SparseFeatures
from cvgnn.store.disk import told
from cvgnn.store.propagate import add_product
from cvgnn.store.reader import Progress
from cvgnn.store.writer import StoreWriter


def write_store(
    graph: Graph, path: Path, *, propagate: Normalization | None = None, progress: Progress | None = None
) -> None:
    """Write a graph, all of it, to a new store.

    Args:
        graph: in memory or itself from a store. A `P X` that it holds is kept.
        path: a folder that does not exist yet, or is empty.
        propagate: also store `P X` for this normalization, computed in bounded memory; training and inference then
            never form a matrix of the features' size.
        progress: called with what is being done (a file's name, `P X` or `checksums`) and a share in 0..1.
    """
    if propagate is not None and propagate not in NORMALIZATIONS:
        raise unknown_name("normalization", propagate, NORMALIZATIONS)
    path = Path(path)
    with StoreWriter(path, progress=progress) as writer, told(path):
        writer.write("indptr", _array(graph.indptr))
        writer.write("indices", _array(graph.indices))
        if graph.edge_weight is not None:
            writer.write("edge_weight", _array(graph.edge_weight))
        _write_features(writer, "x", graph.x)
        for name in ("y", "train_ids", "val_ids", "test_ids"):
            writer.write(name, _array(getattr(graph, name)))
        if graph.node_names is not None:
            writer.write("node_names", plain_names(graph.node_names))
        normalization = propagate or (None if graph.PX is None else graph.PX_normalization)
        if graph.PX is not None and normalization == graph.PX_normalization and graph.PX.dtype == graph.x.dtype:
            _write_features(writer, "PX", graph.PX)
        elif normalization is not None:
            add_product(writer, normalization, num_features=graph.num_features, progress=progress)  # type: ignore[arg-type]
        writer.finish(
            {
                "name": graph.name,
                "num_features": graph.num_features,
                "num_classes": graph.num_classes,
                "class_names": graph.class_names,
                "directed": graph.directed,
                "split": graph.split,
                "PX_normalization": normalization,
            }
        )


def plain_names(names: np.ndarray) -> np.ndarray:
    """Node names as a store holds them: int64, or Unicode of a fixed width; never Python objects.

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
        if not all(plain == names):
            raise CvgnnError("node_names has a name that ends in a NUL character, which no array of strings can hold")
        return plain_names(plain)
    raise CvgnnError(f"node_names must be integers or strings to be stored, not {names.dtype}; turn them into strings")


def _write_features(writer: StoreWriter, form: str, matrix: Tensor | SparseFeatures) -> None:
    if isinstance(matrix, SparseFeatures):
        for part in ("indptr", "indices", "values"):
            writer.write(f"{form}_{part}", _array(getattr(matrix, part)))
    else:
        writer.write(form, _array(matrix))


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
