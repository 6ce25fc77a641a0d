"""From plain arrays to a `Graph`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch

from cvgnn.datasets.arrays import GraphArrays
from cvgnn.errors import CvgnnError, require
from cvgnn.graph import Graph, SparseFeatures, from_edges
from cvgnn.graph.arrays import DENSE_FROM


def to_graph(arrays: GraphArrays) -> Graph:
    """A `Graph` from plain arrays; features become dense where that is the smaller form."""
    sparse = SparseFeatures(
        torch.from_numpy(arrays.x_indptr),
        torch.from_numpy(arrays.x_indices),
        torch.from_numpy(arrays.x_values),
        arrays.num_features,
    )
    density = arrays.x_values.size / (arrays.num_nodes * arrays.num_features)
    return from_edges(
        np.ascontiguousarray(arrays.edges.T),
        x=sparse.to_dense() if density >= DENSE_FROM else sparse,
        y=arrays.y,
        train_ids=arrays.train_ids,
        val_ids=arrays.val_ids,
        test_ids=arrays.test_ids,
        num_classes=arrays.num_classes,
        name=arrays.name,
    )


def adjacency(
    rows: npt.NDArray[Any], columns: npt.NDArray[Any], num_nodes: int, *, path: Path, directed: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """CSR of `A` from its entries: symmetric unless `directed`, without self loops, each entry once.

    The same as `cvgnn.graph.edges.compress` on (columns, rows), in a third of its memory: Reddit has 114.6 million
    entries, so they stay in int32, and the reverse ones are added only if they are not there already.

    Args:
        rows, columns: integers `[E]`; an entry `(v, u)` says that `u` is a neighbor of `v`.
        num_nodes: `N`.
        path: the file they come from, for messages.
        directed: do not make it symmetric.

    Returns:
        indptr int64 `[N + 1]`, indices int32 `[E]`.
    """
    require(
        rows.ndim == 1 and rows.shape == columns.shape and rows.dtype.kind in "iu" and columns.dtype.kind in "iu",
        f"the edges in {path} must be two integer vectors of one length, not {rows.dtype} of shape "
        f"{list(rows.shape)} and {columns.dtype} of shape {list(columns.shape)}",
    )
    for ids in (rows, columns):
        if ids.size:
            low, high = int(ids.min()), int(ids.max())
            if low < 0 or high >= num_nodes:
                at = int(ids.argmin() if low < 0 else ids.argmax())
                raise CvgnnError(
                    f"edge {at} in {path}, ({rows[at]}, {columns[at]}), names a node that does not exist; "
                    f"ids must lie in 0..{num_nodes - 1}"
                )
    rows, columns = rows.astype(np.int32, copy=False), columns.astype(np.int32, copy=False)
    loops = rows == columns
    if loops.any():
        rows, columns = rows[~loops], columns[~loops]
    del loops
    shape = (num_nodes, num_nodes)
    # Duplicates merge into one, as the values are truth values.
    matrix = scipy.sparse.coo_matrix((np.ones(rows.size, dtype=np.bool_), (rows, columns)), shape=shape).tocsr()
    matrix.sort_indices()
    if not directed:
        reverse = matrix.T.tocsr()
        reverse.sort_indices()
        if not (np.array_equal(matrix.indptr, reverse.indptr) and np.array_equal(matrix.indices, reverse.indices)):
            matrix = matrix + reverse
            matrix.sort_indices()
    return torch.from_numpy(matrix.indptr.astype(np.int64)), torch.from_numpy(
        matrix.indices.astype(np.int32, copy=False)
    )


def assemble(
    structure: tuple[torch.Tensor, torch.Tensor],
    *,
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.int64],
    split: Mapping[str, npt.NDArray[np.int64]],
    name: str,
    folder: Path,
    directed: bool = False,
) -> Graph:
    """A `Graph` from a CSR structure and dense features; what its checks refuse is told with the folder's name.

    Args:
        structure: indptr and indices, as `adjacency` returns them.
        x: `[N, F]`.
        y: `[N]`, -1 where unknown.
        split: node ids under "train", "val" and "test".
        name: of the graph.
        folder: where the raw files are.
        directed: whether the reverse of an edge may be missing.
    """
    indptr, indices = structure
    try:
        return Graph(
            indptr=indptr,
            indices=indices,
            x=torch.from_numpy(x),
            y=torch.from_numpy(y),
            num_classes=max(int(y.max(initial=0)) + 1, 1),
            train_ids=torch.from_numpy(split["train"]),
            val_ids=torch.from_numpy(split["val"]),
            test_ids=torch.from_numpy(split["test"]),
            directed=directed,
            name=name,
        )
    except CvgnnError as error:
        raise CvgnnError(f"the raw files in {folder} do not fit together: {error}") from error


def checked_ids(ids: npt.NDArray[Any], num_nodes: int, where: str) -> npt.NDArray[np.int64]:
    """Node ids of a part of the split, in range.

    Args:
        ids: integers.
        num_nodes: `N`.
        where: file and key, for messages.
    """
    require(ids.ndim == 1 and (ids.dtype.kind in "iu" or ids.size == 0), f"{where} must be a list of node ids")
    outside = np.flatnonzero((ids < 0) | (ids >= num_nodes))
    if outside.size:
        raise CvgnnError(f"{where} names node {ids[outside[0]]}, which does not exist; ids lie in 0..{num_nodes - 1}")
    return np.sort(ids).astype(np.int64)
