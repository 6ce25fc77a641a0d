"""From arrays in the forms people have them to a `Graph`: every converter and every file reader ends here.

`from_edges` takes what `Graph` needs; this module adds what a graph of one's own often brings along or lacks: string
labels, features in SciPy's or torch's sparse forms, and no split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from cvgnn.errors import CvgnnError, require
from cvgnn.graph.edges import Ids, from_edges
from cvgnn.graph.graph import Graph
from cvgnn.graph.names import shown
from cvgnn.graph.sparse_features import SparseFeatures
from cvgnn.graph.split import RandomSplit

# Below this share of non-zero entries features are kept sparse. A round number, not a measured crossover.
DENSE_FROM = 0.05


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
) -> Graph:
    """A `Graph` from arrays: as `from_edges`, with any form of features, string labels, and a split if there is none.

    Features of which fewer than 5 % are non-zero are kept sparse, others dense, whatever form they come in. Weights
    that are all 1 count as none. So a graph is the same graph from whichever source it is read.

    Args:
        edge_index: integers `[2, m]`; column `(u, v)` is an edge from `u` to `v`.
        x: `[N, F]`: numpy array, torch tensor (dense or sparse), SciPy sparse matrix or `SparseFeatures`. float32 and
            float64 stay, other numbers become float32.
        y: `[N]`: integers from 0 (-1 where unknown), or strings ("" where unknown), which are numbered in sorted order
            and kept as `class_names`.
        train_ids, val_ids, test_ids: node ids, or boolean masks `[N]`.
        split: how to split at random if `train_ids` is not given; `RandomSplit()` if this is not given either.
        edge_weight: positive `[m]`, or None.
        num_classes: the largest label + 1 if not given.
        directed: keep the directions instead of making the graph symmetric.
        name: for messages and records.
        node_names: the user's own node ids, integers or strings `[N]`, each once.
        class_names: the user's own labels; with string labels, all of them in the order to number them.

    >>> g = from_arrays([[0, 1], [1, 2]], x=np.eye(3), y=["b", "a", "b"], split=RandomSplit(seed=3))
    >>> g.y.tolist(), g.class_names, g.split
    ([1, 0, 1], ('a', 'b'), 'random: seed 3, fractions 0.6/0.2/0.2')
    """
    labels, class_names = _labels(y, class_names)
    features = to_features(x, len(labels))
    num_nodes = features.shape[0]
    classes = _count_classes(labels, class_names) if num_classes is None else num_classes
    record = "given"
    if train_ids is None:
        for what, ids in (("val_ids", val_ids), ("test_ids", test_ids)):
            require(ids is None, f"{what} is given without train_ids; give both, or neither for a random split")
        chosen = split or RandomSplit()
        train_ids, val_ids, test_ids = chosen.ids(labels)
        record = chosen.describe()
    return from_edges(
        edge_index,
        x=features,
        y=labels,
        train_ids=train_ids,
        val_ids=() if val_ids is None else val_ids,
        test_ids=() if test_ids is None else test_ids,
        edge_weight=None if edge_weight is None else _weight(edge_weight),
        num_classes=classes,
        directed=directed,
        name=name,
        node_names=None if node_names is None else _checked_names(node_names, num_nodes),
        class_names=class_names,
        split=record,
    )


def to_features(x: Any, num_labels: int) -> Tensor | SparseFeatures:
    """Features in the form to train on: sparse below `DENSE_FROM`, dense above, floating point.

    Args:
        x: `[N, F]`, see `from_arrays`.
        num_labels: the number of labels, which must be `N`; asked before anything of that size is made.

    >>> to_features([[0, 2], [0, 0]], 2).tolist()
    [[0.0, 2.0], [0.0, 0.0]]
    """
    from scipy import sparse

    if not isinstance(x, list | tuple):
        _check_shape(np.shape(x), num_labels)
    csr = _csr(x)
    if csr is None:
        dense = _dense(x, num_labels)
        if dense.size == 0 or np.count_nonzero(dense) >= DENSE_FROM * dense.size:
            return torch.from_numpy(dense)
        csr = sparse.csr_array(dense)
    else:
        csr = sparse.csr_array(csr).astype(_float(csr.dtype))
        csr.sum_duplicates()
        csr.eliminate_zeros()
        if csr.nnz >= DENSE_FROM * csr.shape[0] * csr.shape[1]:
            return torch.from_numpy(csr.toarray())
    csr.sort_indices()
    return SparseFeatures(
        torch.from_numpy(csr.indptr.astype(np.int64)),
        torch.from_numpy(csr.indices.astype(np.int32)),
        torch.from_numpy(csr.data),
        csr.shape[1],
    )


def checked_csr(data: Any, indices: Any, indptr: Any, shape: tuple[int, int], what: str) -> Any:
    """A SciPy CSR matrix whose offsets and columns were all checked: compiled code trusts them from here on."""
    from scipy import sparse

    try:
        matrix = sparse.csr_array((data, indices, indptr), shape=shape)
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise CvgnnError(f"{what} is not a sparse matrix of shape {list(shape)}: {error}") from None
    return matrix


def _csr(x: Any) -> Any | None:
    """`x` as a SciPy CSR matrix of its own if it is sparse, None if it is dense."""
    from scipy import sparse

    if isinstance(x, SparseFeatures):
        return checked_csr(x.values.numpy(), x.indices.numpy(), x.indptr.numpy(), x.shape, "x").copy()
    if isinstance(x, Tensor) and x.layout is not torch.strided:
        x = x.detach().cpu().to(torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype)
        if x.layout is torch.sparse_csr:
            values, indices, indptr = (part.numpy() for part in (x.values(), x.col_indices(), x.crow_indices()))
            return checked_csr(values, indices, indptr, (x.shape[0], x.shape[1]), "x").copy()
        require(x.layout is torch.sparse_coo, f"x has torch's layout {x.layout}; use .to_sparse() or .to_dense()")
        try:  # SciPy checks the indices; torch's own coalesce would trust them
            entries = (x._values().numpy(), tuple(x._indices().numpy()))
            return sparse.coo_array(entries, shape=tuple(x.shape)).tocsr()
        except (ValueError, TypeError) as error:
            raise CvgnnError(f"x is not a sparse matrix of shape {list(x.shape)}: {error}") from None
    if sparse.issparse(x):
        matrix = x.tocsr(copy=True)
        return checked_csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape, "x")
    return None


def _dense(x: Any, num_rows: int) -> np.ndarray:
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        x = x.float() if x.dtype == torch.bfloat16 else x
    try:
        array = np.asarray(x)
    except ValueError:
        raise CvgnnError(
            "x is ragged: its rows differ in length; every node needs the same number of features"
        ) from None
    _check_shape(array.shape, num_rows)
    array = np.ascontiguousarray(array, dtype=_float(array.dtype))
    return array if array.flags.writeable else array.copy()


def _check_shape(shape: tuple[int, ...], num_labels: int) -> None:
    require(len(shape) == 2, f"x must be a matrix [N, F]; it has shape {list(shape)}")
    require(shape[0] == num_labels, f"x has {shape[0]} rows but y has {num_labels} labels; both need one for each node")
    require(shape[1] < 2**31, f"x has {shape[1]} columns; at most {2**31 - 1} can be used")


def _float(dtype: np.dtype[Any]) -> np.dtype[Any]:
    require(dtype.kind in "biuf", f"x must hold numbers, not {dtype}")
    return dtype.newbyteorder("=") if dtype.kind == "f" and dtype.itemsize in (4, 8) else np.dtype(np.float32)


def _labels(y: Any, class_names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...] | None]:
    array = _array(y, "y")
    names = None if class_names is None else tuple(map(str, class_names))
    require(array.ndim == 1, f"y must have one label per node, [N]; it has shape {list(array.shape)}")
    require(array.size > 0, "the graph has no nodes: y is empty")
    if array.dtype.kind in "iu":
        return array.astype(np.int64), names
    require(array.dtype.kind == "U", f"y must hold integers or strings, not {array.dtype}")
    found, codes = np.unique(array, return_inverse=True)
    words = found.tolist()
    names = names if names is not None else tuple(word for word in words if word)
    number = {"": -1} | {label: c for c, label in enumerate(names)}
    for word in words:
        if word not in number:
            node = int(np.flatnonzero(array == word)[0])
            raise CvgnnError(f"label {word!r} of node {node} is not one of class_names: {shown(names)}")
    return np.array([number[word] for word in words], dtype=np.int64)[codes], names


def _count_classes(labels: np.ndarray, class_names: tuple[str, ...] | None) -> int:
    if class_names is not None:
        return len(class_names)
    most = max(int(labels.max()), 0)
    require(
        most < max(len(labels), 2),
        f"y holds label {most} (node {int(labels.argmax())}) in a graph of {len(labels)} nodes; number the classes "
        "from 0, or give num_classes",
    )
    return most + 1


def _array(values: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError):
        raise CvgnnError(f"{what} must be an array, not a ragged or mixed {type(values).__name__}") from None


def _weight(edge_weight: Tensor | ArrayLike) -> np.ndarray | None:
    array = _array(edge_weight, "edge_weight")
    require(array.dtype.kind in "biuf", f"edge_weight must hold numbers, not {array.dtype}")
    return None if array.ndim == 1 and bool((array == 1).all()) else array.astype(np.float64)


def _checked_names(node_names: Sequence[Any] | np.ndarray, num_nodes: int) -> np.ndarray:
    names = _array(node_names, "node_names")
    require(
        names.shape == (num_nodes,) and names.dtype.kind in "iuU",
        f"node_names must be {num_nodes} integers or strings; it is {names.dtype} of shape {list(names.shape)}",
    )
    found, counts = np.unique(names, return_counts=True)
    if len(found) < num_nodes:
        raise CvgnnError(f"node_names holds {shown([found[counts > 1][0]])} twice; each node needs a name of its own")
    return names.astype(np.int64) if names.dtype.kind in "iu" else names
