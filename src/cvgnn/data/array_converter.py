"""`from_arrays`, which every converter and every file reader calls.

It adds to `from_edges`: string labels, sparse features from SciPy or torch, and a random split where none is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from cvgnn.data.edges import Ids, checked_mask, from_edges, to_array
from cvgnn.data.graph import Graph
from cvgnn.data.labels import dense_labels, to_labels
from cvgnn.data.sparse_features import SparseFeatures
from cvgnn.data.split import RandomSplit
from cvgnn.errors import CvgnnError, require
from cvgnn.utils.formatting import join_printable

# Below this share of non-zero entries features are kept sparse. A round number, not a measured crossover.
DENSE_FROM = 0.05


class GraphOptions(TypedDict, total=False):
    """The arguments that a converter hands on to `from_arrays` as they are."""

    train_ids: Ids | None
    val_ids: Ids | None
    test_ids: Ids | None
    split: RandomSplit | None
    num_classes: int | None
    name: str
    class_names: Sequence[str] | None


def from_arrays(
    edge_index: Tensor | ArrayLike,
    *,
    x: Any,
    y: Any,
    train_ids: Ids | None = None,
    val_ids: Ids | None = None,
    test_ids: Ids | None = None,
    split: RandomSplit | None = None,
    edge_weight: Tensor | ArrayLike | None = None,
    num_classes: int | None = None,
    directed: bool = False,
    name: str = "graph",
    node_names: Sequence[Any] | np.ndarray | None = None,
    class_names: Sequence[str] | None = None,
    graph_ids: Tensor | ArrayLike | None = None,
    graph_names: Sequence[Any] | np.ndarray | None = None,
) -> Graph:
    """Build a `Graph` from arrays, with features of any kind, string labels, and a random split where none is given.

    Features of which fewer than 5 % are non-zero are kept sparse, others dense, whatever their form. Weights that are
    all 1 count as none. So every source of the same data gives the same graph.

    Args:
        edge_index: integers `[2, m]`; column `(u, v)` is an edge from `u` to `v`.
        x: `[N, F]`: numpy array, torch tensor (dense or sparse), SciPy sparse matrix or `SparseFeatures`. float32 and
            float64 stay, other numbers become float32.
        y: `[N]`: integers from 0 (-1 where unknown), or strings ("" where unknown), which are numbered in sorted order
            and kept as `class_names`; or several labels a node, a matrix `[N, L]` of 0 and 1, dense or sparse; or
            floating point numbers (NaN where unknown), `[N]` or `[N, T]`. None for a graph to predict on.
        train_ids, val_ids, test_ids: node ids, or boolean masks `[N]`.
        split: how to split at random if `train_ids` is not given; `RandomSplit()` if this is not given either.
        edge_weight: positive `[m]`, or None.
        num_classes: the largest label + 1, or the number of columns, if not given.
        directed: keep the directions instead of making the graph symmetric.
        name: for messages and records.
        node_names: the user's own node ids, integers or strings `[N]`, each once.
        class_names: the user's own labels; with string labels, all of them in the order to number them.
        graph_ids: `[N]`, the graph of each node in a set of graphs, see `Graph`; `y` and the splits are then of graphs.
        graph_names: the user's own ids of the graphs of a set, integers or strings `[G]`, each once.

    >>> g = from_arrays([[0, 1], [1, 2]], x=np.eye(3), y=["b", "a", "b"], split=RandomSplit(seed=3))
    >>> g.y.tolist(), g.class_names, g.split
    ([1, 0, 1], ('a', 'b'), 'random: seed 3, fractions 0.6/0.2/0.2')
    """
    graph_of = None if graph_ids is None else to_array(graph_ids, "graph_ids").reshape(-1)
    require(
        graph_of is None or graph_of.dtype.kind in "iu",
        "graph_ids must hold integers, 0 for the first graph; names of graphs go to graph_names",
    )
    num_items = num_rows(x) if graph_of is None else int(graph_of.max(initial=-1)) + 1
    labels, names = _labels(np.full(num_items, -1) if y is None else y, class_names)
    num_nodes = len(labels if graph_of is None else graph_of)
    features = to_features(x, num_nodes, "y" if graph_of is None else "graph_ids")
    record = "given"
    if train_ids is None:
        for what, ids in (("val_ids", val_ids), ("test_ids", test_ids)):
            require(ids is None, f"{what} is given without train_ids; give both, or neither for a random split")
        split = split or RandomSplit(allow_unlabelled=y is None)
        train_ids, val_ids, test_ids = split.ids(labels)
        record = split.describe() if train_ids.size else "none: no labels"
    return from_edges(
        edge_index,
        x=features,
        y=labels,
        train_ids=train_ids,
        val_ids=() if val_ids is None else val_ids,
        test_ids=() if test_ids is None else test_ids,
        edge_weight=None if edge_weight is None or _all_ones(edge_weight) else edge_weight,
        num_classes=count_classes(labels, names) if num_classes is None else num_classes,
        directed=directed,
        name=name,
        node_names=None if node_names is None else _checked_names(node_names, num_nodes, "node"),
        class_names=names,
        split=record,
        graph_ids=graph_ids,
        graph_names=None if graph_names is None else _checked_names(graph_names, num_items, "graph"),
    )


def num_rows(x: Any) -> int:
    """The number of rows of features of any kind; 0 for what has none."""
    return len(x) if isinstance(x, list | tuple) else (*np.shape(x), 0)[0]


def split_mask(fields: Mapping[str, Any], part: str, num_nodes: int) -> np.ndarray | None:
    """The mask of a part of the split, `fields["train_mask"]` for "train"; None where there is none."""
    mask = fields.get(f"{part}_mask")
    return None if mask is None else checked_mask(mask, f"{part}_mask", num_nodes)


def to_features(x: Any, num_nodes: int, by: str = "y") -> Tensor | SparseFeatures:
    """Convert features to what models train on: floating point, sparse below `DENSE_FROM`, else dense.

    Args:
        x: `[N, F]`, see `from_arrays`.
        num_nodes: `N` by the array `by`; checked before memory of that size is allocated.
        by: the name of that array, for the message.

    >>> to_features([[0, 2], [0, 0]], 2).tolist()
    [[0.0, 2.0], [0.0, 0.0]]
    """
    from scipy import sparse

    if not isinstance(x, list | tuple):
        _check_shape(np.shape(x), num_nodes, by)
    csr = _csr(x)
    if csr is None:
        dense = _dense(x, num_nodes, by)
        if is_dense(int(np.count_nonzero(dense)), dense.shape):
            return torch.from_numpy(dense)
        csr = sparse.csr_array(dense)
    else:
        csr = csr.astype(_float(csr.dtype))  # a copy: the caller's matrix does not change
        csr.sum_duplicates()
        csr.eliminate_zeros()
        if is_dense(csr.nnz, csr.shape):
            return torch.from_numpy(csr.toarray())
    return SparseFeatures.from_scipy(csr)


def checked_csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, ...], what: str) -> Any:
    """A SciPy CSR matrix with all offsets and columns checked, because compiled code trusts them."""
    from scipy import sparse

    try:
        matrix = sparse.csr_array((data, indices, indptr), shape=shape)
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise CvgnnError(f"{what} is not a sparse matrix of shape {list(shape)}: {error}") from None
    return matrix


def _csr(x: Any) -> Any | None:
    """`x` as a SciPy CSR matrix if it is sparse, None if it is dense."""
    from scipy import sparse

    if isinstance(x, SparseFeatures):
        return x.to_scipy()
    if sparse.issparse(x):
        matrix = x.tocsr()
        return checked_csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape, "x")
    if not isinstance(x, Tensor) or x.layout is torch.strided:
        return None
    x = _cpu(x)
    if x.layout is torch.sparse_csr:
        values, indices, indptr = (part.numpy() for part in (x.values(), x.col_indices(), x.crow_indices()))
        return checked_csr(values, indices, indptr, tuple(x.shape), "x")
    require(x.layout is torch.sparse_coo, f"x has torch's layout {x.layout}; use .to_sparse() or .to_dense()")
    try:  # SciPy checks the indices; torch's own coalesce would trust them
        return sparse.coo_array((x._values().numpy(), tuple(x._indices().numpy())), shape=tuple(x.shape)).tocsr()
    except (ValueError, TypeError) as error:
        raise CvgnnError(f"x is not a sparse matrix of shape {list(x.shape)}: {error}") from None


def _cpu(x: Tensor) -> Tensor:
    """A tensor that numpy can take: on the CPU, without gradient, not in 16 bits."""
    return x.detach().cpu().to(torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype)


def _dense(x: Any, num_nodes: int, by: str) -> np.ndarray:
    try:
        array = np.asarray(_cpu(x) if isinstance(x, Tensor) else x)
    except ValueError:
        raise CvgnnError("x is ragged: its rows differ in length; give every node the same features") from None
    _check_shape(array.shape, num_nodes, by)
    array = np.ascontiguousarray(array, dtype=_float(array.dtype))
    return array if array.flags.writeable else array.copy()


def is_dense(nonzero: int, shape: tuple[int, int]) -> bool:
    """Whether features with so many entries that are not 0 are kept as a dense matrix."""
    size = shape[0] * shape[1]
    return size == 0 or nonzero / size >= DENSE_FROM


def _check_shape(shape: tuple[int, ...], num_nodes: int, by: str) -> None:
    require(len(shape) == 2, f"x must be a matrix [N, F]; it has shape {list(shape)}")
    entries = f"{by} has {num_nodes} {'labels' if by == 'y' else 'entries'}"
    require(shape[0] == num_nodes, f"x has {shape[0]} rows but {entries}; both need one per node")
    require(shape[1] < 2**31, f"x has {shape[1]} columns; at most {2**31 - 1} can be used")


def _float(dtype: np.dtype[Any]) -> np.dtype[Any]:
    require(dtype.kind in "biuf", f"x must hold numbers, not {dtype}")
    return dtype.newbyteorder("=") if dtype.kind == "f" and dtype.itemsize in (4, 8) else np.dtype(np.float32)


def _labels(y: Any, class_names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...] | None]:
    array = to_array(dense_labels(y), "y")
    names = None if class_names is None else tuple(map(str, class_names))
    require(array.size > 0, "the graph has no nodes: y is empty")
    if array.dtype.kind != "U":
        return to_labels(array), names
    require(array.ndim == 1, f"y must have one label per node, [N]; it has shape {list(array.shape)}")
    found, first, codes = np.unique(array, return_index=True, return_inverse=True)
    labels: list[str] = found.tolist()
    names = names if names is not None else tuple(label for label in labels if label)
    number = {"": -1} | {label: c for c, label in enumerate(names)}
    for label, node in zip(labels, first.tolist(), strict=True):
        require(label in number, f"label {label!r} of node {node} is not one of class_names: {join_printable(names)}")
    return np.array([number[label] for label in labels], dtype=np.int64)[codes], names


def count_classes(labels: np.ndarray, class_names: tuple[str, ...] | None) -> int:
    """The number of classes of labels without a given number: by their names, or the largest label + 1."""
    if class_names is not None:
        return len(class_names)
    if labels.ndim == 2:
        return int(labels.shape[1])
    most = max(int(labels.max()), 0)
    require(
        most < max(len(labels), 2),
        f"y holds label {most} (node {int(labels.argmax())}) in a graph of {len(labels)} nodes; number the classes "
        "from 0, or give num_classes",
    )
    return most + 1


def _all_ones(edge_weight: Tensor | ArrayLike) -> bool:
    array = to_array(edge_weight, "edge_weight")
    return array.ndim == 1 and bool((array == 1).all())


def _checked_names(given: Sequence[Any] | np.ndarray, count: int, item: str) -> np.ndarray:
    names = to_array(given, f"{item}_names")
    require(
        names.shape == (count,) and names.dtype.kind in "iuU",
        f"{item}_names must be {count} integers or strings; it is {names.dtype} of shape {list(names.shape)}",
    )
    found, counts = np.unique(names, return_counts=True)
    if len(found) < count:
        raise CvgnnError(
            f"{item}_names holds {join_printable([found[counts > 1][0]])} twice; each {item} needs a different name"
        )
    return names.astype(np.int64) if names.dtype.kind in "iu" else names
