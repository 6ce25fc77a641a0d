"""`from_edges`: a list of edges becomes a `Graph`, symmetric, without duplicates and self loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from cvgnn.data.graph import Graph
from cvgnn.data.labels import dense_labels, to_labels
from cvgnn.data.sparse_features import SparseFeatures
from cvgnn.data.structure_check import check_weights, first_bad
from cvgnn.errors import CvgnnError, require
from cvgnn.ops.csr_builder import build_csr
from cvgnn.utils.progress import ProgressReporter

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
    graph_ids: Tensor | ArrayLike | None = None,
    graph_names: np.ndarray | None = None,
) -> Graph:
    """Build a `Graph` from PyG-style edges.

    An edge may be listed in one direction or in both, once or several times: it counts once. Self loops are dropped,
    because `P` adds one to every node. Weights of one edge must agree wherever it is listed.

    Args:
        edge_index: integers `[2, m]`; column `(u, v)` is a message from `u` to `v`.
        x: features `[N, F]`; `N` is taken from here. They are not copied: do not change them while the graph is in use.
        y: one class a node, integers `[N]`; or several labels, a matrix `[N, L]` of 0 and 1; or numbers, floating point
            `[N]` or `[N, T]`.
        train_ids, val_ids, test_ids: node ids, or boolean masks `[N]`.
        edge_weight: positive `[m]`, or None.
        num_classes: the largest label + 1, or the number of columns, if not given.
        directed: keep the directions instead of making the graph symmetric.
        name: for messages and records.
        node_names, class_names: the user's own node ids and labels, kept for predictions.
        split: the origin of the split, for the record.
        graph_ids: `[N]`, the graph of each node in a set of graphs, see `Graph`; `y` and the splits are then of graphs.
        graph_names: `[G]`, the user's own ids of the graphs of a set.

    >>> g = from_edges([[0, 1, 1, 2], [1, 0, 2, 2]], x=torch.eye(3), y=[0, 1, 1], train_ids=[0, 2])
    >>> g.indptr.tolist(), g.indices.tolist()
    ([0, 1, 3, 4], [1, 0, 2, 1])
    """
    features = x if isinstance(x, SparseFeatures) else _dense(x)
    require(len(features.shape) == 2, f"x must be a matrix [N, F]; it has shape {list(features.shape)}")
    num_nodes = features.shape[0]
    source, target = edge_ends(edge_index)
    weight = None if edge_weight is None else checked_weight(edge_weight, source.size)
    labels = to_labels(to_array(dense_labels(y), "y").copy())  # the caller may change theirs later
    if num_classes is None:
        num_classes = int(labels.max(initial=0)) + 1 if labels.ndim == 1 else labels.shape[1]
    graphs = None if graph_ids is None else torch.from_numpy(_integers(graph_ids, "graph_ids").astype(np.int64))
    num_items = num_nodes if graphs is None else len(labels)
    indptr, indices, weight = compress(source, target, weight, num_nodes, directed=directed)
    return Graph(
        indptr=torch.from_numpy(indptr),
        indices=torch.from_numpy(indices),
        edge_weight=None if weight is None else torch.from_numpy(weight).to(features.dtype),
        x=features,
        y=torch.from_numpy(labels),
        num_classes=num_classes,
        train_ids=_as_ids(train_ids, "train_ids", num_items),
        val_ids=_as_ids(val_ids, "val_ids", num_items),
        test_ids=_as_ids(test_ids, "test_ids", num_items),
        directed=directed,
        name=name,
        node_names=node_names,
        class_names=None if class_names is None else tuple(class_names),
        split=split,
        graph_ids=graphs,
        graph_names=graph_names,
        built=True,
    )


def compress(
    source: np.ndarray, target: np.ndarray, weight: np.ndarray | None, num_nodes: int, *, directed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """CSR of `A` by target: symmetric unless `directed`, without self loops, each entry once.

    Args:
        source, target: integers `[m]` of any type and strides, which are not copied; refused outside `0..num_nodes-1`.
        weight: float64 `[m]`, or None. An edge that is listed with two weights is refused.
        num_nodes: `N`.
        directed: leave out the reverse entries; else they are added where they are missing.

    Returns:
        indptr int64 `[N+1]`, indices int32 `[E]`, weight `[E]` or None.
    """
    with ProgressReporter("building the graph") as progress:
        built = build_csr(source, target, weight, num_nodes, directed=directed, progress=progress)
    if built is None:  # the compiled sort does not say where the mistake is
        check_ends(source, target, num_nodes)
        return sorted_csr(source, target, weight, num_nodes, directed=directed)
    return built


def sorted_csr(
    source: np.ndarray, target: np.ndarray, weight: np.ndarray | None, num_nodes: int, *, directed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """`compress` by NumPy's sort: the twin of `build_csr`, which names a conflict of weights."""
    keep = np.flatnonzero(source != target)
    source, target = (ends[keep].astype(np.int64) for ends in (source, target))
    # One sort of int64 keys: the target in the upper 32 bits, the source in the lower. No division to split them again.
    key = (target << 32) | source
    if not directed:
        key = np.concatenate([key, (source << 32) | target])
    order = np.argsort(key, kind="stable")
    listed = keep[order % max(keep.size, 1)]  # where the edge of each key stands in the list
    key = key[order]
    first = np.append(True, key[1:] != key[:-1])[: key.size]
    if weight is not None:
        weight = weight[listed]
        conflict = np.flatnonzero(~first[1:] & (weight[1:] != weight[:-1]))
        if conflict.size:
            pairs = np.unique(np.sort(np.stack([listed[conflict], listed[conflict + 1]], axis=1), axis=1), axis=0)
            at = int(conflict[0])
            raise ConflictingWeights(divmod(int(key[at]), 1 << 32), pairs, weight[at : at + 2])
        weight = weight[first]
    key = key[first]
    indptr = np.searchsorted(key, np.arange(num_nodes + 1) << 32)
    return indptr, key.astype(np.int32), weight  # the cast keeps the lower 32 bits, the source


class ConflictingWeights(CvgnnError):
    """One edge or more is listed with two weights.

    Args:
        edge: the two nodes of the first.
        listed: `[conflicts, 2]`, the two places of each in the list of edges.
        weight: the two weights of the first.
    """

    def __init__(self, edge: tuple[int, int], listed: np.ndarray, weight: np.ndarray) -> None:
        self.listed = listed
        super().__init__(
            f"edge ({min(edge)}, {max(edge)}) is listed with two weights, {weight[0]:g} and {weight[1]:g}; "
            "give each edge one weight (or add them up first)"
        )


def _dense(x: Tensor | np.ndarray) -> Tensor:
    try:
        tensor = torch.as_tensor(x).detach()
    except (TypeError, ValueError, RuntimeError):
        raise CvgnnError(f"x must be a matrix of numbers, not {type(x).__name__}; see also from_arrays") from None
    require(tensor.layout == torch.strided, "x is a sparse tensor; give SparseFeatures, or use cvgnn.data.from_arrays")
    return tensor


def edge_ends(edge_index: Tensor | ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Source and target of each edge, of the type that they come in; refuses what is no `[2, m]` of integers."""
    array = to_array(edge_index, "edge_index")
    require(array.size == 0 or array.dtype.kind in "iu", f"edge_index must hold integers, not {array.dtype}")
    if array.size == 0:
        array = np.empty((2, 0), np.int64)
    require(
        array.ndim == 2 and array.shape[0] == 2,
        f"edge_index must have shape [2, number of edges]; it has {list(array.shape)}",
    )
    return array[0], array[1]


def check_ends(source: np.ndarray, target: np.ndarray, num_nodes: int) -> None:
    """Refuse edges of nodes outside `0..num_nodes-1`; names the first."""
    found = (first_bad(ends, lambda part: (part < 0) | (part >= num_nodes)) for ends in (source, target))
    if bad := [at for at in found if at is not None]:
        at = min(bad)
        raise CvgnnError(
            f"edge {at} of edge_index, ({source[at]}, {target[at]}), names a node that does not exist; "
            f"ids must lie in 0..{num_nodes - 1}"
        )


def checked_weight(edge_weight: Tensor | ArrayLike, num_edges: int) -> np.ndarray:
    """Edge weights `[num_edges]`; refuses those that are not positive and finite."""
    array = to_array(edge_weight, "edge_weight")
    require(array.dtype.kind in "biuf", f"edge_weight must hold numbers, not {array.dtype}")
    require(
        array.shape == (num_edges,),
        f"edge_weight must have one entry per edge, [{num_edges}]; it has shape {list(array.shape)}",
    )
    check_weights("edge_weight", array)
    return array.astype(np.float64)


def _integers(values: Tensor | ArrayLike, what: str) -> np.ndarray:
    array = to_array(values, what)
    require(array.size == 0 or array.dtype.kind in "iu", f"{what} must hold integers, not {array.dtype}")
    return array.astype(np.int64, copy=False)


def _as_ids(ids: Ids, what: str, num_nodes: int) -> Tensor:
    array = to_array(ids, what)
    if array.dtype == np.bool_:
        array = np.flatnonzero(checked_mask(array, what, num_nodes))
    return torch.from_numpy(_integers(array, what).copy())  # as for y


def checked_mask(mask: Any, what: str, num_nodes: int) -> np.ndarray:
    """A boolean mask `[N]` as an array; `what` is the name that the caller gave it."""
    array = to_array(mask, what)
    require(
        array.dtype == np.bool_ and array.shape == (num_nodes,),
        f"{what} must be one boolean per node, [{num_nodes}]; it is {array.dtype} of shape {list(array.shape)} "
        "(where there are several splits, pick one column)",
    )
    return array


def to_array(values: Any, what: str) -> np.ndarray:
    """A tensor, list or array of the caller as a numpy array; `what` is the name of the argument."""
    try:
        return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError):
        raise CvgnnError(f"{what} must be an array, not a ragged or mixed {type(values).__name__}") from None
