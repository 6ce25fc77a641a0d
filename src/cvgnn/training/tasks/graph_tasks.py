"""Tasks whose items are the graphs of a set: one class a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Unpack, final, get_args

import torch
from torch import Tensor, nn

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import require, require_known
from cvgnn.sampling import Batch, GraphItems, Items
from cvgnn.training.tasks.base import Metrics, draw_weights
from cvgnn.training.tasks.node_tasks import LabelOptions, NodeClassification

Pool = Literal["mean", "sum", "set"]
POOLS: tuple[str, ...] = get_args(Pool)
_REDUCTIONS = {"mean": ("mean",), "sum": ("sum",), "set": ("mean", "max", "sum")}


def pool_rows(rows: Tensor, sizes: Tensor, pool: str) -> Tensor:
    """One row for each graph from `relu` of the rows of its nodes: mean, sum, or mean, maximum and sum side by side.

    Args:
        rows: `[n, d]`, graph after graph.
        sizes: int64 `[B]`, the number of rows of each graph; they sum to `n`.
        pool: of `POOLS`.

    Returns:
        `[B, d]`, or `[B, 3 d]` for `"set"`.

    >>> pool_rows(torch.tensor([[1.0], [3.0], [-5.0]]), torch.tensor([2, 1]), "set").tolist()
    [[2.0, 3.0, 4.0], [0.0, 0.0, 0.0]]
    """
    # The network's last layer is linear: relu makes the embedding the output of a hidden layer, as the linear
    # head expects.
    H = rows.relu()
    graph = torch.arange(len(sizes), device=rows.device).repeat_interleave(sizes)

    def reduce(how: str) -> Tensor:
        zero = H.new_zeros(len(sizes), H.shape[1])
        if how == "max":  # H >= 0, and no graph is empty
            return zero.scatter_reduce(0, graph[:, None].expand_as(H), H, "amax")
        total = zero.index_add(0, graph, H)
        return total if how == "sum" else total / sizes[:, None]

    return torch.cat([reduce(how) for how in _REDUCTIONS[pool]], dim=1)


@final
class GraphHead(nn.Module):
    """Logits of graphs from what is pooled of their nodes: a linear layer, for `"set"` one with a hidden layer before.

    Args:
        pool: of `POOLS`.
        width: `d`, of the embeddings and of the hidden layer.
        classes: `C`.
        seed: of the initial weights, drawn as those of `torch.nn.Linear`.
        dtype: of the weights.
    """

    def __init__(self, pool: str, width: int, classes: int, *, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.hidden = nn.Linear(3 * width, width, dtype=dtype) if pool == "set" else None
        self.out = nn.Linear(width, classes, dtype=dtype)
        draw_weights((self.out,) if self.hidden is None else (self.hidden, self.out), seed)

    def forward(self, pooled: Tensor) -> Tensor:
        """Logits, `[B, C]`."""
        hidden = pooled if self.hidden is None else self.hidden(pooled).relu()
        return self.out(hidden)  # type: ignore[no-any-return]


@final
class GraphClassification(NodeClassification):
    """One class a graph of a set, by cross entropy, from the pooled embeddings of its nodes.

    `evaluate`, `finish` and `report` take the rows of all nodes; `predict` and the like the pooled rows of graphs.

    Args:
        graph: has `graph_ids`; `y` is int64 `[G]`.
        width: of the embeddings, the network's outputs.
        pool: how they become one row a graph: `"mean"`, `"sum"` or `"set"`.
        options: `num_outputs`, `loss`, `metric`, `class_weight`, `label_smoothing`, see `NodeTask`.
    """

    name = "graph"
    options = ("class_weight", "label_smoothing")
    items: GraphItems

    def __init__(self, graph: Graph, *, width: int = 64, pool: Pool = "mean", **options: Unpack[LabelOptions]) -> None:
        require_known("pool", pool, POOLS)
        require(
            graph.graph_ids is not None,
            f"task 'graph' needs a set of graphs, and {graph.name!r} is one graph; give graph_ids "
            "(cvgnn.data.from_graphs, a key of an .npz file, or a column graph in the table of nodes)",
        )
        super().__init__(graph, **options)
        self.pool, self.out_channels = pool, width

    @classmethod
    def _further(cls, config: TrainConfig) -> dict[str, Any]:
        return {"width": config.hidden, "pool": config.pool}

    def _items(self, graph: Graph) -> Items:
        assert graph.graph_ids is not None
        return GraphItems(self.ids["train"], graph.graph_ids)

    def make_readout(self, *, seed: int, dtype: torch.dtype) -> GraphHead:
        """See `Task`."""
        return GraphHead(self.pool, self.out_channels, self.num_outputs, seed=seed, dtype=dtype)

    def _batch_rows(self, rows: Tensor, batch: Batch) -> Tensor:
        return self._pooled(batch.select(rows), batch.ids)

    def item_rows(self, outputs: Callable[[Tensor | None], Tensor], ids: Tensor | None) -> Tensor:
        """See `Task`: pooled rows."""
        return self._pooled(outputs(None if ids is None else self.items.nodes_of(ids)), ids)

    @torch.no_grad()
    def evaluate(self, rows: Tensor, metrics: Sequence[str], readout: nn.Module | None = None) -> Metrics:
        """See `Task`."""
        return super().evaluate(self._pooled(rows), metrics, readout)

    @torch.no_grad()
    def report(self, rows: Tensor, readout: nn.Module | None = None) -> dict[str, Any]:
        """As of `NodeClassification`, counting graphs."""
        return super().report(self._pooled(rows), readout)

    def _pooled(self, rows: Tensor, ids: Tensor | None = None) -> Tensor:
        """What is pooled of the rows of the nodes of some graphs, graph after graph; of all if `ids` is None."""
        # Rows come graph after graph, so sizes alone say where each begins.
        sizes = self.items.sizes if ids is None else self.items.sizes[ids.cpu()]
        return pool_rows(rows, sizes.to(rows.device), self.pool)
