"""The neighborhood of a few nodes as a graph of its own: exact inference on it costs its edges, not the graph's.

The nodes may be new ones, which are not in the graph: `AddedNodes` lies over its CSR arrays, which stay as they are.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.data import Graph, Propagation, SparseFeatures
from cvgnn.data.labels import unknown_labels
from cvgnn.data.propagation import scales
from cvgnn.data.subgraph import feature_rows, offsets, row_entries

_LARGEST_SHARE = 0.25  # of the graph's edges: beyond it a pass over the whole graph is cheaper than copies of its rows


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class AddedNodes:
    """New nodes `N..N+n-1` of a graph with `N` nodes, and their edges; `new_nodes.add_nodes` makes and checks it.

    Args:
        x: features `[n, F]`, dense or sparse as the graph's.
        nodes: int64 `[t]`, ascending: the nodes that the new edges name, old and new.
        indptr, indices: the new entries of `A` in CSR, rows and columns being positions in `nodes`. No entry is in the
            graph already, because one of its nodes is new.
        edge_weight: float `[E]`, or None.
    """

    x: Tensor | SparseFeatures
    nodes: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    edge_weight: Tensor | None


class Neighborhood(NamedTuple):
    """The nodes within `K` hops.

    Args:
        graph, propagation: of these nodes. Rows of nodes `K` hops away are empty; no result of `ids` reads them.
        places: int64, the positions of `ids` in it.
    """

    graph: Graph
    propagation: Propagation
    places: Tensor


class _Entries(NamedTuple):
    """Entries of `A`: node ids, and where the weight is: after the graph's `E` weights come those of added edges."""

    row: np.ndarray
    column: np.ndarray
    position: np.ndarray


def neighborhood(
    graph: Graph, propagation: Propagation, ids: Tensor, hops: int, *, added: AddedNodes | None = None
) -> Neighborhood | None:
    """What decides the output of a network with `hops` layers at `ids`; None if that is a large part of the graph.

    Args:
        graph, propagation: on the CPU.
        ids: int64, node ids; with `added`, those of all new nodes.
        hops: number of layers.
        added: new nodes, which are never too large a part.
    """
    n, indptr = graph.num_nodes, graph.indptr.numpy()
    most = _LARGEST_SHARE * graph.num_edges
    nodes = frontier = np.unique(ids.numpy()) if ids.numel() else np.zeros(1, np.int64)  # no graph has 0 nodes
    read: list[_Entries] = []
    for _ in range(hops):
        if added is None:
            most -= (indptr[frontier + 1] - indptr[frontier]).sum()
            if most < 0:
                return None
        read.append(_rows_of_A(graph, frontier, added))
        frontier = np.setdiff1d(read[-1].column, nodes)
        nodes = np.union1d(nodes, frontier)
    row, column, position = (np.concatenate(parts) for parts in zip(*read, strict=True))
    order = np.argsort(row, kind="stable")
    row, column, position = row[order], column[order], position[order]
    old = torch.from_numpy(nodes[nodes < n])
    new = len(nodes) - len(old)
    none = torch.empty(0, dtype=torch.int64)
    x, y = feature_rows(graph.x, old), graph.y[old] if graph.graph_ids is None else graph.y[:0]
    part = dataclasses.replace(
        graph,
        indptr=offsets(np.searchsorted(nodes, row), len(nodes)),
        indices=torch.from_numpy(np.searchsorted(nodes, column).astype(np.int32)),
        edge_weight=_weights(graph.edge_weight, position, added),
        x=x if added is None else _stacked(x, added.x),
        y=y if added is None else torch.cat([y, unknown_labels(new, like=y)]),
        graph_ids=None,
        train_ids=none, val_ids=none, test_ids=none,
        node_names=None,
        edge_label_index=None, edge_label=None, edge_split=None,
        cutout=None,
        # New neighbors change rows of a stored P X.
        PX=None if graph.PX is None or added is not None else feature_rows(graph.PX, old),
        validated=True,  # a part of a valid graph; its split is empty
    )  # fmt: skip
    P = copy.copy(propagation)
    # The weights are those of the whole graph's P: the degrees of nodes at the border are not those of this part.
    P.indptr, P.indices, P.left, P.right = part.indptr, part.indices, propagation.left[old], propagation.right[old]
    P.edge_weight = None if part.edge_weight is None else part.edge_weight.to(P.dtype)
    if added is not None:
        P.left, P.right = (torch.cat([side, side.new_empty(new)]) for side in (P.left, P.right))
        # A new edge changes the degrees of its nodes, and so their weights in every row of P.
        changed = np.flatnonzero((nodes >= n) | np.isin(nodes, added.nodes))
        entries = _rows_of_A(graph, nodes[changed], added)
        weight = _weights(graph.edge_weight, entries.position, added)
        where = np.searchsorted(nodes[changed], entries.row)
        sums = np.bincount(where, None if weight is None else weight.double().numpy(), minlength=len(changed))
        left, right = scales(torch.from_numpy(sums).double(), P.normalization)
        P.left[changed], P.right[changed] = left.to(P.dtype), right.to(P.dtype)
    return Neighborhood(part, P, torch.from_numpy(np.searchsorted(nodes, ids.numpy())))


def neighborhood_entries(graph: Graph, ids: np.ndarray, hops: int, *, most: int) -> int:
    """How many entries of `A` `neighborhood` reads for `ids`; counting ends above `most`.

    Args:
        graph: of the nodes.
        ids: int64, distinct node ids.
        hops: number of layers.
        most: entries from which on the number does not matter.
    """
    indptr, nodes, total = graph.indptr.numpy(), ids, 0
    frontier = ids
    for hop in range(hops):
        total += int((indptr[frontier + 1] - indptr[frontier]).sum())
        if total > most or hop == hops - 1:
            break
        frontier = np.setdiff1d(graph.indices.numpy()[row_entries(indptr, frontier)].astype(np.int64), nodes)
        nodes = np.union1d(nodes, frontier)
    return total


def _rows_of_A(graph: Graph, nodes: np.ndarray, added: AddedNodes | None) -> _Entries:
    """The entries in the rows of `nodes`; in each row the added ones come last."""
    indptr = graph.indptr.numpy()
    old = nodes[nodes < graph.num_nodes]
    position = row_entries(indptr, old)
    row = np.repeat(old, indptr[old + 1] - indptr[old])
    column = graph.indices.numpy()[position].astype(np.int64)
    if added is None:
        return _Entries(row, column, position)
    named = np.intersect1d(nodes, added.nodes, assume_unique=True)
    places = np.searchsorted(added.nodes, named)
    more = row_entries(added.indptr, places)
    return _Entries(
        np.concatenate([row, np.repeat(named, added.indptr[places + 1] - added.indptr[places])]),
        np.concatenate([column, added.nodes[added.indices[more]]]),
        np.concatenate([position, graph.num_edges + more]),
    )


def _weights(edge_weight: Tensor | None, position: np.ndarray, added: AddedNodes | None) -> Tensor | None:
    if edge_weight is None:
        return None
    old = position < edge_weight.numel()
    weight = edge_weight.new_empty(len(position))
    weight[old] = edge_weight[position[old]]
    if added is not None and added.edge_weight is not None:
        weight[~old] = added.edge_weight[position[~old] - edge_weight.numel()]
    return weight


def _stacked(x: Tensor | SparseFeatures, more: Tensor | SparseFeatures) -> Tensor | SparseFeatures:
    """Rows of features, and then more of them in the same form."""
    if isinstance(x, Tensor) and isinstance(more, Tensor):
        return torch.cat([x, more])
    from scipy import sparse

    parts = [part.to_scipy() for part in (x, more) if isinstance(part, SparseFeatures)]
    return SparseFeatures.from_scipy(sparse.vstack(parts, format="csr"))
