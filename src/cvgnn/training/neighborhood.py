"""The neighborhood of a few nodes as a graph of its own: exact inference on it costs its edges, not the graph's."""

from __future__ import annotations

import copy
import dataclasses
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgnn.data import Graph, Propagation, SparseFeatures

_LARGEST_SHARE = 0.25  # of the graph's edges: beyond it a pass over the whole graph is cheaper than copies of its rows


class Neighborhood(NamedTuple):
    """The nodes within `K` hops.

    Args:
        graph, propagation: of these nodes. Rows of nodes `K` hops away lack entries; no result of `ids` reads them.
        places: int64, the positions of `ids` in it.
    """

    graph: Graph
    propagation: Propagation
    places: Tensor


def neighborhood(graph: Graph, propagation: Propagation, ids: Tensor, hops: int) -> Neighborhood | None:
    """What decides the output of a network with `hops` layers at `ids`; None if that is a large part of the graph.

    Args:
        graph, propagation: on the CPU.
        ids: int64, node ids.
        hops: number of layers.
    """
    indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
    most = _LARGEST_SHARE * len(indices)
    nodes = frontier = np.unique(ids.numpy()) if ids.numel() else np.zeros(1, np.int64)  # no graph has 0 nodes
    for _ in range(hops):
        if (indptr[frontier + 1] - indptr[frontier]).sum() > most:
            return None
        reached = np.unique(indices[_entries(indptr, frontier)]).astype(np.int64)
        frontier = np.setdiff1d(reached, nodes, assume_unique=True)
        nodes = np.union1d(nodes, frontier)
        if (indptr[nodes + 1] - indptr[nodes]).sum() > most:
            return None
    entries = _entries(indptr, nodes)
    place = np.searchsorted(nodes, indices[entries]).clip(max=len(nodes) - 1)
    inside = nodes[place] == indices[entries]
    row = np.repeat(np.arange(len(nodes)), indptr[nodes + 1] - indptr[nodes])[inside]
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(nodes)))]))
    kept, chosen = torch.from_numpy(entries[inside]), torch.from_numpy(nodes)
    columns = torch.from_numpy(place[inside].astype(np.int32))
    none = torch.empty(0, dtype=torch.int64)
    part = dataclasses.replace(
        graph,
        indptr=offsets,
        indices=columns,
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[kept],
        x=_rows(graph.x, chosen),
        y=graph.y[chosen] if graph.graph_ids is None else graph.y[:0],
        graph_ids=None,
        train_ids=none, val_ids=none, test_ids=none,
        node_names=None,
        PX=None if graph.PX is None else _rows(graph.PX, chosen),
        validated=True,  # a part of a valid graph; its split is empty
    )  # fmt: skip
    P = copy.copy(propagation)
    # The weights are those of the whole graph's P: the degrees of nodes at the border are not those of this part.
    P.indptr, P.indices, P.left, P.right = offsets, columns, propagation.left[chosen], propagation.right[chosen]
    P.edge_weight = None if propagation.edge_weight is None else propagation.edge_weight[kept]
    return Neighborhood(part, P, torch.from_numpy(np.searchsorted(nodes, ids.numpy())))


def _entries(indptr: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Positions in `indices` of the rows of `nodes`, one row after another."""
    lengths = indptr[nodes + 1] - indptr[nodes]
    before = np.cumsum(lengths) - lengths
    positions: np.ndarray = np.arange(lengths.sum()) + np.repeat(indptr[nodes] - before, lengths)
    return positions


def _rows(x: Tensor | SparseFeatures, ids: Tensor) -> Tensor | SparseFeatures:
    if not isinstance(x, SparseFeatures):
        return x[ids]
    indptr = x.indptr.numpy()
    entries = torch.from_numpy(_entries(indptr, ids.numpy()))
    lengths = indptr[ids.numpy() + 1] - indptr[ids.numpy()]
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])).to(x.indptr.dtype)
    return dataclasses.replace(x, indptr=offsets, indices=x.indices[entries], values=x.values[entries])
