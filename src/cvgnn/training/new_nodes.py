"""New nodes, given by their features and edges, checked and in the form of the graph that they come to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cvgnn.data import Graph, SparseFeatures
from cvgnn.data.array_converter import num_rows, to_features
from cvgnn.data.edges import ConflictingWeights, check_ends, checked_weight, compress, edge_ends
from cvgnn.data.io.dense_features import is_of_arrays, standardize_rows
from cvgnn.errors import CvgnnError, require
from cvgnn.training.neighborhood import AddedNodes


def add_nodes(graph: Graph, x: Any, edge_index: Any, edge_weight: Any = None) -> AddedNodes:
    """New nodes beside a graph of `N` nodes; they get the ids `N, N+1, ...`. The cost is that of the new edges.

    Args:
        graph: stays as it is.
        x: `[n, F]`, as in `cvgnn.data.from_arrays`; standardised here where those of the graph were
            (`cvgnn.data.io.standardize`).
        edge_index: integers `[2, m]`; of each edge one node at least is new. As in `from_edges`, an edge counts once,
            however often and in whichever direction it is listed, and self loops are dropped.
        edge_weight: positive `[m]`; needed where the graph's edges have weights.
    """
    N = graph.num_nodes
    features = _features(x, graph)
    n = features.shape[0]
    source, target = edge_ends(edge_index)
    check_ends(source, target, N + n)
    source, target = source.astype(np.int64), target.astype(np.int64)
    # An edge between two old nodes would change rows of P that other predictions have used: that is another
    # graph.
    known = np.flatnonzero(np.maximum(source, target) < N)
    if known.size:
        at = int(known[0])
        raise CvgnnError(
            f"edge {at}, ({source[at]}, {target[at]}), is between two nodes of the graph; of a new edge one node at "
            f"least is new, {N}..{N + n - 1}"
        )
    weight = None if edge_weight is None else checked_weight(edge_weight, source.size)
    if graph.edge_weight is None:
        plain = weight is None or bool((weight == 1).all())
        require(plain, "the graph's edges have no weights, so new edges cannot have one; leave edge_weight out")
        weight = None
    else:
        require(weight is not None, "the graph's edges have weights; give edge_weight, one for each new edge")
    # Numbered among themselves, the new edges are sorted in time that grows with them and not with the graph.
    nodes, ends = np.unique(np.stack([source, target]), return_inverse=True)
    ends = ends.reshape(2, -1)
    try:
        indptr, indices, weight = compress(ends[0], ends[1], weight, len(nodes), directed=graph.directed)
    except ConflictingWeights as error:  # it names positions in `nodes`
        at = int(error.listed.min())
        edge = f"edge {at}, ({source[at]}, {target[at]}),"
        raise CvgnnError(f"{edge} is listed again with another weight; give each edge one weight") from None
    dtype = features.dtype
    return AddedNodes(
        x=features,
        nodes=nodes,
        indptr=indptr,
        indices=indices,
        edge_weight=None if weight is None else torch.from_numpy(weight).to(dtype),
    )


def _features(x: Any, graph: Graph) -> Tensor | SparseFeatures:
    """The features in the form and the type of the graph's."""
    from scipy import sparse

    require(num_rows(x) > 0, "x has no rows: there is no new node")
    given, F = to_features(x, num_rows(x)), graph.num_features
    values = given.values if isinstance(given, SparseFeatures) else given
    require(bool(values.isfinite().all()), "x has a NaN or infinite value; give every new node finite features")
    if graph.preprocessing is not None and is_of_arrays(graph.preprocessing):
        dense = given.to_dense() if isinstance(given, SparseFeatures) else given
        given = torch.from_numpy(standardize_rows(dense.numpy(), graph.preprocessing))
    require(
        given.shape[1] == F,
        f"x has {given.shape[1]} features a node, but the nodes of the graph {graph.name!r} have {F}",
    )
    # Rows of both are joined in one matrix, which has one form.
    if isinstance(graph.x, SparseFeatures) and isinstance(given, Tensor):
        given = SparseFeatures.from_scipy(sparse.csr_array(given.numpy()))
    elif isinstance(graph.x, Tensor) and isinstance(given, SparseFeatures):
        given = given.to_dense()
    return given.to(graph.x.dtype)
