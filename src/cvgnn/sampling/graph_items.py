"""Batches of graphs: the nodes of a batch are all nodes of its graphs."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from cvgnn.sampling.items import Items, Targets, distinct_nodes


@final
class GraphItems(Items):
    """Training graphs of a set: an item is the number of a graph.

    Args:
        ids: int64 `[n]`, distinct numbers of graphs.
        graph_ids: int64 `[N]`, the graph of each node, ascending from 0.

    Attributes:
        sizes: int64 `[G]`, the number of nodes of each graph.
    """

    kind = "graph"

    def __init__(self, ids: Tensor, graph_ids: Tensor) -> None:
        self.ids = ids.clone()  # the caller may change its tensor; a run must not notice
        self.sizes = torch.bincount(graph_ids)
        self._first = self.sizes.cumsum(0) - self.sizes

    @property
    def nodes(self) -> Tensor:
        """See `Items`."""
        return self.nodes_of(self.ids)

    def nodes_of(self, ids: Tensor) -> Tensor:
        """int64: the node ids of graphs, one graph after another.

        >>> GraphItems(torch.tensor([0]), torch.tensor([0, 0, 1, 2, 2])).nodes_of(torch.tensor([2, 0])).tolist()
        [3, 4, 0, 1]
        """
        # Node ids of a graph are consecutive, so each is its place in the answer plus one shift a graph: no loop.
        sizes = self.sizes[ids]
        before = sizes.cumsum(0) - sizes
        return torch.arange(int(sizes.sum())) + (self._first[ids] - before).repeat_interleave(sizes)

    def targets(self, ids: Tensor, step: int, *, repeats: bool) -> Targets:
        """See `Items`."""
        nodes = self.nodes_of(ids)
        return distinct_nodes(nodes) if repeats else Targets(nodes, None)
