"""What batches are drawn from: training nodes, or other items of a task that name nodes, such as edges or graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor


class Targets(NamedTuple):
    """The nodes of a batch of items.

    Args:
        nodes: int64 `[R]`, distinct node ids: `r^(K)`, for which the network computes rows.
        place: int64, positions in `nodes` of the nodes that the items name, in the shape that the task's head reads:
            `[B]` for nodes, `[2, B]` for edges, one entry for each node of each graph. None where `nodes` are the items
            in their order.
    """

    nodes: Tensor
    place: Tensor | None


class Items(ABC):
    """The training items of a task. A batch of them is a set of nodes, so that sampler, histories and network need not
    know what an item is.

    Attributes:
        ids: int64 `[n]`, distinct numbers of the items, which epochs permute: node ids, or rows of a list of edges.
        kind: an item in one word, for messages.
    """

    ids: Tensor
    kind: str

    def __len__(self) -> int:
        return self.ids.numel()

    @property
    @abstractmethod
    def nodes(self) -> Tensor:
        """int64: the node ids that the training items name."""

    @abstractmethod
    def targets(self, ids: Tensor, step: int, *, repeats: bool) -> Targets:
        """The nodes of a batch: a pure function of its arguments, also where it draws, as negative edges are drawn
        (`cvgnn.rng.derive`).

        Args:
            ids: int64 `[B]`, of this object's `ids`.
            step: `t`, a coordinate of every draw.
            repeats: whether an id may occur twice.
        """


@final
class NodeItems(Items):
    """Training nodes: an item is a node id.

    Args:
        ids: int64 `[n]`, distinct node ids, the set `V_L`.
    """

    kind = "node"

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids.clone()  # the caller may change its tensor; a run must not notice

    @property
    def nodes(self) -> Tensor:
        """See `Items`."""
        return self.ids

    def targets(self, ids: Tensor, step: int, *, repeats: bool) -> Targets:
        """See `Items`."""
        return distinct_nodes(ids) if repeats else Targets(ids, None)


def distinct_nodes(nodes: Tensor) -> Targets:
    """The distinct ones of some node ids in ascending order, and the place of each of them.

    Args:
        nodes: int64, of any shape.

    >>> distinct_nodes(torch.tensor([[7, 3], [3, 5]]))
    Targets(nodes=tensor([3, 5, 7]), place=tensor([[2, 0],
            [0, 1]]))
    """
    # Each node is computed once, however often the items name it.
    distinct, inverse = np.unique(nodes.numpy(), return_inverse=True)
    return Targets(torch.from_numpy(distinct), torch.from_numpy(inverse.reshape(nodes.shape)))
