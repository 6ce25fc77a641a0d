"""A graph from the objects of other libraries: SciPy and PyTorch Geometric (NetworkX: `convert_networkx`)."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError, require
from cvgnn.graph.arrays import checked_csr, from_arrays
from cvgnn.graph.edges import Ids
from cvgnn.graph.graph import Graph
from cvgnn.graph.names import shown
from cvgnn.graph.split import RandomSplit


def optional(module: str, *, extra: str, purpose: str) -> Any:
    """A module of an optional package, or a sentence that says how to install it.

    >>> optional("not_there.at_all", extra="parquet", purpose="reading edges.parquet")
    Traceback (most recent call last):
    cvgnn.errors.CvgnnError: reading edges.parquet needs the package not_there: pip install 'cvgnn[parquet]'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a package says of its own imports is not the user's business
            return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise CvgnnError(f"{purpose} needs the package {package}: pip install 'cvgnn[{extra}]'") from None


def from_scipy(
    adjacency: Any,
    *,
    x: Any,
    y: Any,
    train_ids: Ids | None = None,
    val_ids: Ids | None = None,
    test_ids: Ids | None = None,
    split: RandomSplit | None = None,
    num_classes: int | None = None,
    directed: bool = False,
    name: str = "graph",
    node_names: Sequence[Any] | np.ndarray | None = None,
    class_names: Sequence[str] | None = None,
) -> Graph:
    """A `Graph` from a SciPy sparse adjacency matrix.

    Entries that are all 1 (or True) make an unweighted graph, others are edge weights. Explicit zeros and the diagonal
    are dropped; entries stored twice add up, as everywhere in SciPy. A matrix that is not symmetric is refused, because
    there is no saying which half is meant: make it symmetric (`A.maximum(A.T)`), or give `directed=True`.

    Args:
        adjacency: any `scipy.sparse` matrix or array `[N, N]`; entry `(i, j)` is an edge from `i` to `j`, the
            convention of SciPy, NetworkX and PyG.
        x, y, train_ids, val_ids, test_ids, split, num_classes, name, node_names, class_names: as in `from_arrays`.
        directed: keep the directions; messages go from `i` to `j`.

    >>> from scipy import sparse
    >>> from_scipy(sparse.csr_array([[0, 1], [1, 0]]), x=np.eye(2), y=[0, 1], train_ids=[0], test_ids=[1])
    Graph(graph: 2 nodes, 1 edges, 2 dense features, 2 classes, split 1/0/1)
    """
    from scipy import sparse

    require(
        sparse.issparse(adjacency),
        f"adjacency must be a scipy.sparse matrix, not {type(adjacency).__name__}; see scipy.sparse.csr_array",
    )
    require(adjacency.dtype.kind in "biuf", f"adjacency must hold real numbers, not {adjacency.dtype}")
    shape = tuple(adjacency.shape)
    require(len(shape) == 2 and shape[0] == shape[1], f"adjacency must be square; it has shape {list(shape)}")
    csr = adjacency.tocsr(copy=True)
    csr = checked_csr(csr.data, csr.indices, csr.indptr, shape, "adjacency")
    csr.sum_duplicates()
    entries = csr.tocoo()
    keep = (entries.row != entries.col) & (entries.data != 0)
    row, column = entries.row[keep].astype(np.int64), entries.col[keep].astype(np.int64)
    weight = entries.data[keep].astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0)))
    if bad.size:
        at = bad[0]
        raise CvgnnError(
            f"adjacency[{row[at]}, {column[at]}] is {weight[at]:g}; edge weights must be positive and finite"
        )
    if not directed:
        _refuse_asymmetric(row, column, weight)
    return from_arrays(
        np.stack([row, column]),
        x=x,
        y=y,
        train_ids=train_ids,
        val_ids=val_ids,
        test_ids=test_ids,
        split=split,
        edge_weight=weight,
        num_classes=num_classes,
        directed=directed,
        name=name,
        node_names=node_names,
        class_names=class_names,
    )


def from_pyg(data: Any, *, split: RandomSplit | None = None, directed: bool = False, name: str = "graph") -> Graph:
    """A `Graph` from a homogeneous `torch_geometric.data.Data`, or from a dict with its names.

    Args:
        data: `edge_index` `[2, m]`, `x` `[N, F]` dense or sparse, `y` `[N]` or `[N, 1]`; if there, `edge_weight` (or
            `edge_attr` with one number an edge) and the boolean masks `train_mask`, `val_mask`, `test_mask`. Other
            fields are not looked at.
        split: how to split at random where `data` has no `train_mask`; `RandomSplit()` if not given.
        directed: keep the directions; else an edge listed in one direction counts in both.
        name: for messages and records.
    """
    if isinstance(data, Mapping):
        fields = dict(data)
    else:
        pyg = optional("torch_geometric.data", extra="pyg", purpose="from_pyg")
        require(
            isinstance(data, pyg.Data),
            f"data must be a torch_geometric.data.Data (one kind of node and edge), not {type(data).__name__}",
        )
        fields = data.to_dict()
    if fields.get("edge_index") is None and fields.get("adj_t") is not None:
        raise CvgnnError("data has adj_t but no edge_index; load it without the ToSparseTensor transform")
    tensors = {key: _tensor(fields, key) for key in ("edge_index", "x", "y")}
    y = tensors["y"].squeeze(1) if tensors["y"].dim() == 2 and tensors["y"].shape[1] == 1 else tensors["y"]
    masks = [_mask(fields, f"{part}_mask", len(y)) for part in ("train", "val", "test")]
    return from_arrays(
        tensors["edge_index"],
        x=tensors["x"],
        y=y,
        train_ids=masks[0],
        val_ids=masks[1],
        test_ids=masks[2],
        split=split,
        edge_weight=_pyg_weight(fields),
        directed=directed,
        name=name,
    )


def _refuse_asymmetric(row: np.ndarray, column: np.ndarray, weight: np.ndarray) -> None:
    """Compare entries in row-major order, in which they come, with those of the transpose in the same order."""
    order = np.lexsort((row, column))
    differs = (row != column[order]) | (column != row[order]) | (weight != weight[order])
    if differs.any():
        at = int(np.flatnonzero(differs)[0])
        other = int(order[at])
        i, j = min((int(row[at]), int(column[at])), (int(column[other]), int(row[other])))
        raise CvgnnError(
            f"adjacency is not symmetric: entries [{i}, {j}] and [{j}, {i}] differ; make it symmetric "
            "(A.maximum(A.T)), or give directed=True"
        )


def _tensor(fields: Mapping[str, Any], key: str) -> Tensor:
    value = fields.get(key)
    require(value is not None, f"data has no {key}; it has: {shown(fields) or 'nothing'}")
    require(isinstance(value, Tensor), f"data.{key} must be a tensor, not {type(value).__name__}")
    assert isinstance(value, Tensor)
    # PyG's EdgeIndex and Index are tensors of their own kind.
    return value if type(value) is Tensor else value.as_subclass(Tensor)


def _mask(fields: Mapping[str, Any], key: str, num_nodes: int) -> Tensor | None:
    if fields.get(key) is None:
        return None
    mask = _tensor(fields, key)
    require(
        mask.dtype == torch.bool and mask.shape == (num_nodes,),
        f"{key} must be one boolean per node, [{num_nodes}]; it is {mask.dtype} of shape {list(mask.shape)} "
        "(where there are several splits, pick one column)",
    )
    return mask


def _pyg_weight(fields: Mapping[str, Any]) -> Tensor | None:
    for key in ("edge_weight", "edge_attr"):
        if fields.get(key) is not None:
            weight = _tensor(fields, key)
            require(
                weight.dim() == 1 or (weight.dim() == 2 and weight.shape[1] == 1),
                f"data.{key} must be one weight per edge; it has shape {list(weight.shape)} "
                "(set data.edge_weight, or remove it to train without weights)",
            )
            return weight.flatten()
    return None
