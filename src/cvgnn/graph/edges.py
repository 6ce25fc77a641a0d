"""From a list of edges to a `Graph`: made symmetric, duplicates and self loops merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from cvgnn.errors import CvgnnError, require, require_integer
from cvgnn.graph.graph import Graph
from cvgnn.graph.sparse_features import SparseFeatures

Ids = Tensor | Sequence[int] | np.ndarray


def from_edges(
    edge_index: Tensor | ArrayLike,
    *,
    x: Tensor | np.ndarray | SparseFeatures,
    y: Tensor | ArrayLike,
    train_ids: Ids,
    val_ids: Ids = (),
    test_ids: Ids = (),
    edge_weight: Tensor | ArrayLike | None = None,
    num_classes: int | None = None,
    directed: bool = False,
    name: str = "graph",
    node_names: np.ndarray | None = None,
    class_names: Sequence[str] | None = None,
    split: str = "given",
) -> Graph:
    """Build a `Graph` from PyG-style edges.

    An edge may be listed in one direction or in both, once or several times: it counts once. Self loops are dropped,
    because `P` adds one to every node. Weights of one edge must agree wherever it is listed.

    Args:
        edge_index: integers `[2, m]`; column `(u, v)` is a message from `u` to `v`.
        x: features `[N, F]`; `N` is taken from here. They are not copied: do not change them while the graph is in use.
        y: labels `[N]`.
        train_ids, val_ids, test_ids: node ids, or boolean masks `[N]`.
        edge_weight: positive `[m]`, or None.
        num_classes: the largest label + 1 if not given.
        directed: keep the directions instead of making the graph symmetric.
        name: for messages and records.
        node_names, class_names: the user's own node ids and labels, kept for predictions.
        split: how the split came about, for the record.

    >>> g = from_edges([[0, 1, 1, 2], [1, 0, 2, 2]], x=torch.eye(3), y=[0, 1, 1], train_ids=[0, 2])
    >>> g.indptr.tolist(), g.indices.tolist()
    ([0, 1, 3, 4], [1, 0, 2, 1])
    """
    features = x if isinstance(x, SparseFeatures) else _dense(x)
    require(len(features.shape) == 2, f"x must be a matrix [N, F]; it has shape {list(features.shape)}")
    num_nodes = features.shape[0]
    source, target = _checked_edge_index(edge_index, num_nodes)
    weight = None if edge_weight is None else _checked_weight(edge_weight, source.size)
    labels = _integers(y, "y")
    known = labels[labels >= 0]
    found = int(known.max()) + 1 if known.size else 1
    classes = found if num_classes is None else require_integer("num_classes", num_classes, at_least=1)
    indptr, indices, weight = compress(source, target, weight, num_nodes, directed=directed)
    return Graph(
        indptr=torch.from_numpy(indptr),
        indices=torch.from_numpy(indices),
        edge_weight=None if weight is None else torch.from_numpy(weight).to(features.dtype),
        x=features,
        y=torch.from_numpy(labels),
        num_classes=classes,
        train_ids=_as_ids(train_ids, "train_ids", num_nodes),
        val_ids=_as_ids(val_ids, "val_ids", num_nodes),
        test_ids=_as_ids(test_ids, "test_ids", num_nodes),
        directed=directed,
        name=name,
        node_names=node_names,
        class_names=None if class_names is None else tuple(class_names),
        split=split,
        built=True,
    )


def compress(
    source: np.ndarray, target: np.ndarray, weight: np.ndarray | None, num_nodes: int, *, directed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """CSR of `A` by target: symmetric unless `directed`, without self loops, each entry once.

    Args:
        source, target: int64 `[m]`, ids in `0..num_nodes-1`.
        weight: float `[m]` or None.
        num_nodes: `N`.
        directed: leave out the reverse entries.

    Returns:
        indptr int64 `[N+1]`, indices int32 `[E]`, weight `[E]` or None.
    """
    keep = source != target
    source, target = source[keep], target[keep]
    weight = None if weight is None else weight[keep]
    if not directed:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        weight = None if weight is None else np.concatenate([weight, weight])
    entry = target * np.int64(num_nodes) + source
    if weight is None:
        entry.sort()  # np.unique hashes, which takes many times longer
        entry = entry[np.append(True, entry[1:] != entry[:-1])] if entry.size else entry
    else:
        order = np.argsort(entry, kind="stable")
        entry, weight = entry[order], weight[order]
        first = np.ones(entry.size, dtype=bool)
        first[1:] = entry[1:] != entry[:-1]
        conflict = ~first[1:] & (weight[1:] != weight[:-1])
        if conflict.any():
            at = int(np.flatnonzero(conflict)[0])
            v, u = divmod(int(entry[at]), num_nodes)
            raise CvgnnError(
                f"edge ({min(u, v)}, {max(u, v)}) is listed with two weights, {weight[at]:g} and "
                f"{weight[at + 1]:g}; give each edge one weight (or add them up first)"
            )
        entry, weight = entry[first], weight[first]
    rows = entry // num_nodes
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=indptr[1:])
    return indptr, (entry % num_nodes).astype(np.int32), weight


def _dense(x: Tensor | np.ndarray) -> Tensor:
    try:
        tensor = torch.as_tensor(x).detach()
    except (TypeError, ValueError, RuntimeError):
        raise CvgnnError(f"x must be a matrix of numbers, not {type(x).__name__}; see also from_arrays") from None
    require(tensor.layout == torch.strided, "x is a sparse tensor; give SparseFeatures, or use cvgnn.graph.from_arrays")
    return tensor


def _checked_edge_index(edge_index: Tensor | ArrayLike, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    array = _integers(edge_index, "edge_index")
    if array.size == 0:
        array = array.reshape(2, 0)
    require(
        array.ndim == 2 and array.shape[0] == 2,
        f"edge_index must have shape [2, number of edges]; it has {list(array.shape)}",
    )
    outside = np.flatnonzero(((array < 0) | (array >= num_nodes)).any(axis=0))
    if outside.size:
        at = int(outside[0])
        raise CvgnnError(
            f"edge {at} of edge_index, ({array[0, at]}, {array[1, at]}), names a node that does not exist; "
            f"ids must lie in 0..{num_nodes - 1}"
        )
    return array[0], array[1]


def _checked_weight(edge_weight: Tensor | ArrayLike, num_edges: int) -> np.ndarray:
    try:
        weight = np.asarray(torch.as_tensor(edge_weight).detach(), dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise CvgnnError("edge_weight must hold numbers, one for each edge") from None
    require(
        weight.shape == (num_edges,),
        f"edge_weight must have one entry per edge, [{num_edges}]; it has shape {list(weight.shape)}",
    )
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0)))
    if bad.size:
        raise CvgnnError(f"edge_weight must be positive and finite; entry {bad[0]} is {weight[bad[0]]}")
    return weight


def _integers(values: Tensor | ArrayLike, what: str) -> np.ndarray:
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    require(
        array.size == 0 or np.issubdtype(array.dtype, np.integer),
        f"{what} must hold integers, not {array.dtype}",
    )
    return np.array(array, dtype=np.int64, order="C")  # a copy: the caller may go on changing theirs


def _as_ids(ids: Ids, what: str, num_nodes: int) -> Tensor:
    array = np.asarray(ids.detach().cpu() if isinstance(ids, Tensor) else ids)
    if array.dtype == np.bool_:
        require(
            array.shape == (num_nodes,),
            f"{what} is a mask of shape {list(array.shape)}; it must be [{num_nodes}]",
        )
        return torch.from_numpy(np.flatnonzero(array))
    return torch.from_numpy(_integers(array, what))
