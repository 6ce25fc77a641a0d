"""Exact evaluation: accuracy on the three splits, from full neighborhoods, without a change of any state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from cvgnn.data import Graph, Propagation
from cvgnn.nn import Network, exact_logits
from cvgnn.sampling import FeatureSource


@final
@dataclass(frozen=True, kw_only=True)
class Accuracies:
    """Share of correctly classified nodes on each split; None for a split without nodes."""

    train: float
    val: float | None
    test: float | None


def accuracy(logits: Tensor, y: Tensor, ids: Tensor) -> float | None:
    """Share of `ids` whose largest logit is at their label; None if there are none.

    >>> import torch
    >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0]), torch.tensor([0, 1]))
    0.5
    """
    if ids.numel() == 0:
        return None
    # Counted in integers: a float32 mean would depend on the order of the sum.
    return int((logits[ids].argmax(dim=1) == y[ids]).sum()) / ids.numel()


@final
@dataclass(frozen=True, eq=False)
class Evaluator:
    """Accuracies of a model on a graph's splits by exact inference.

    Args:
        graph: labels and splits.
        features: rows of `P X`.
        propagation: `P`.
    """

    graph: Graph
    features: FeatureSource
    propagation: Propagation

    def __call__(self, model: Network) -> Accuracies:
        """Evaluate `model`; its training mode and everything else stay as they are."""
        # P H W by layers over all nodes: full neighborhoods cost one pass over the edges per layer, not per node.
        logits = exact_logits(model, self.features, self.propagation)
        g = self.graph
        train = accuracy(logits, g.y, g.train_ids)
        assert train is not None  # a Graph has training nodes
        return Accuracies(train=train, val=accuracy(logits, g.y, g.val_ids), test=accuracy(logits, g.y, g.test_ids))
