"""Batches of edges: the nodes of a batch are the endpoints of its edges and of the negatives drawn for them."""

from __future__ import annotations

from typing import Literal, final, get_args

import numpy as np
import torch
from torch import Tensor

from cvgnn.data import Graph
from cvgnn.data.edge_split import edge_entries
from cvgnn.errors import CvgnnError, require_known
from cvgnn.rng import Purpose, numpy_generator
from cvgnn.sampling.items import Items, Targets, distinct_nodes

Negatives = Literal["uniform", "degree"]
NEGATIVES: tuple[str, ...] = get_args(Negatives)

_MOST_ROUNDS = 1000


@final
class NegativeSampler:
    """Draws pairs of different nodes that are no edge of a graph, independently, from

        uniform: p(u, v) ~ 1        degree: p(u, v) ~ out-degree(u) * in-degree(v)

    over these pairs, by rejection.

    Args:
        graph: the whole graph: none of its edges is drawn.
        method: `"uniform"` or `"degree"`.
        degrees: the graph whose degrees `"degree"` takes: one without held-out edges, for these would tell of them.
        seed: every draw is a pure function of it and of the draw's coordinates.
    """

    def __init__(self, graph: Graph, method: Negatives, *, degrees: Graph, seed: int) -> None:
        require_known("negatives", method, NEGATIVES)
        self.graph, self.method, self.degrees, self.seed = graph, method, degrees, seed

    def draw(self, count: int, *coordinates: int) -> Tensor:
        """int64 `[2, count]`: pairs `(source, target)`."""
        # A generator of its own for each (seed, step): a resumed run draws what the uninterrupted one drew.
        rng = numpy_generator(self.seed, Purpose.NEGATIVES, *coordinates)
        found: list[np.ndarray] = []
        missing = count
        for _ in range(_MOST_ROUNDS):
            if missing == 0:
                break
            # Rejection keeps p exact, and its cost is 1 / (1 - density) draws: about one on a sparse
            # graph.
            found.append(self.accepted(*self.candidates(rng, missing)))
            missing -= found[-1].shape[1]
        if missing:
            raise CvgnnError(
                f"negatives={self.method!r} finds no negative: nearly all pairs of {self.graph.num_nodes} nodes are "
                "edges; link prediction needs a sparse graph"
            )
        return torch.from_numpy(np.concatenate(found, axis=1)) if found else torch.empty(2, 0, dtype=torch.int64)

    def accepted(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The pairs of different nodes that are no edge."""
        # edge_entries is a binary search in each row of A, so no set of all edges is built.
        negative = (source != target) & (edge_entries(self.graph, source, target) < 0)
        return np.stack([source[negative], target[negative]])

    def candidates(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """int64 `[2, count]`: pairs drawn without regard to the edges."""
        if self.method == "uniform":
            return rng.integers(0, self.graph.num_nodes, size=(2, count))
        # The source of a random edge and the target of another have the degrees' distribution.
        entries = rng.integers(0, self.degrees.num_edges, size=(2, count))
        source = self.degrees.indices.numpy()[entries[0]].astype(np.int64)
        target = np.searchsorted(self.degrees.indptr.numpy(), entries[1], side="right") - 1
        return np.stack([source, target])


@final
class EdgeItems(Items):
    """Training edges. `place` is `[2, B]`, or `[2, 2 B]` where a negative is drawn for each edge: those come last.

    Args:
        pairs: integers `[2, n]`; an item is the number of a column.
        ids: int64, the columns that are training edges; all if None.
        negatives: draws fresh negatives at every step; None for none.
    """

    kind = "edge"

    def __init__(self, pairs: Tensor, ids: Tensor | None = None, *, negatives: NegativeSampler | None = None) -> None:
        self.pairs, self.negatives = pairs, negatives
        self.ids = torch.arange(pairs.shape[1]) if ids is None else ids

    @property
    def nodes(self) -> Tensor:
        """See `Items`."""
        return torch.from_numpy(np.unique(self.pairs[:, self.ids].numpy()).astype(np.int64))

    def targets(self, ids: Tensor, step: int, *, repeats: bool) -> Targets:
        """See `Items`."""
        pairs = self.pairs[:, ids].long()
        if self.negatives is not None:
            # Fresh negatives a step, one an edge: a fixed set would be learned by heart.
            pairs = torch.cat([pairs, self.negatives.draw(ids.numel(), step)], dim=1)
        return distinct_nodes(pairs)
