"""Exact evaluation: a task's metrics on the three splits, from full neighborhoods, without a change of any state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cvgnn.data import Propagation
from cvgnn.nn import Network, exact_logits
from cvgnn.sampling import FeatureSource
from cvgnn.training.tasks import Metrics, Task


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
        """`[N, out_channels]`: what the network computes for all nodes."""
        # P H W by layers over all nodes: full neighborhoods cost one pass over the edges per layer, not per node.
        return exact_logits(model, self.features, self.propagation)
