"""Exact evaluation: a task's metrics on the three splits, from full neighborhoods, without a change of any state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from cvgnn.data import Graph, Propagation
from cvgnn.errors import require
from cvgnn.nn import Network, exact_logits, exact_outputs, has_own_forward
from cvgnn.sampling import FeatureSource
from cvgnn.training.tasks import Metrics, Task

_FEW = 0.5  # of all nodes: where neighborhoods have fewer rows, they are computed instead of all


@final
class NodeRows:
    """Rows of some nodes, which are read by node id as those of a matrix of all nodes, `rows[ids]`.

    The matrix itself would be larger than everything else, where few of very many nodes have labels.

    Args:
        ids: int64, ascending.
        rows: `[len(ids), d]`.

    >>> NodeRows(torch.tensor([2, 7]), torch.tensor([[0.25], [0.75]]))[torch.tensor([7, 2])].flatten().tolist()
    [0.75, 0.25]
    """

    def __init__(self, ids: Tensor, rows: Tensor) -> None:
        self._ids, self._rows = ids, rows

    def __getitem__(self, ids: Tensor) -> Tensor:
        place = torch.searchsorted(self._ids, ids).clamp(max=self._ids.numel() - 1)
        require(torch.equal(self._ids[place], ids), "rows of nodes that are in no split were not computed")
        return self._rows[place]


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Metrics of a model on a task's splits by exact inference.

    Args:
        task: what is measured.
        features: rows of `P X`.
        propagation: `P`.
    """

    task: Task
    features: FeatureSource
    propagation: Propagation

    @torch.no_grad()
    def __call__(self, model: Network, metrics: Sequence[str] = ()) -> Metrics:
        """Evaluate `model`; its training mode and everything else stay as they are.

        Args:
            model: the network.
            metrics: names; the task's `epoch_metrics` if none is given.
        """
        return self.task.evaluate(self.outputs(model), metrics or self.task.epoch_metrics, model.readout)

    def outputs(self, model: Network) -> Tensor:
        """`[N, out_channels]`: what the network computes for all nodes; `NodeRows` where the split alone is needed."""
        ids = self._few_items(model)
        if ids is None:
            # P H W by layers over all nodes: full neighborhoods cost one pass over the edges per layer, not per node.
            return exact_logits(model, self.features, self.propagation)
        some = exact_outputs(model, self.features, self.propagation, ids)
        if type(self.task).__module__.startswith("cvgnn."):
            return NodeRows(ids, some)  # type: ignore[return-value]
        # A task of the user's own may do more with a matrix than read rows of it.
        rows = torch.zeros(self.features.num_nodes, model.out_channels, dtype=self.features.dtype)
        rows[ids] = some
        return rows

    def _few_items(self, model: Network) -> Tensor | None:
        """The nodes of the split, where their neighborhoods are less work than all nodes; else None."""
        if self.task.items.kind != "node" or has_own_forward(model) or self.propagation.left.device.type != "cpu":
            return None
        return few_labelled(self.task.graph, model.num_layers)


def few_labelled(graph: Graph, num_layers: int) -> Tensor | None:
    """The nodes of the split, ascending, where their neighborhoods are less work than all nodes; else None.

    The rule is the same for a graph and for its compact store, so that both have the same bits.
    """
    ids = torch.cat([graph.train_ids, graph.val_ids, graph.test_ids])
    whole = graph.num_nodes if graph.cutout is None else graph.cutout.num_nodes
    degree = graph.indptr[ids + 1] - graph.indptr[ids]  # rows of the split are complete in a compact store, too
    fields = float((degree + 1).sum()) * (1 + float(degree.double().mean())) ** (num_layers - 2)
    return ids.sort().values if num_layers == 1 or fields < _FEW * whole else None
