"""The sampled start: the first steps of a run sample layer 0 too, so that they need neither `P X` nor histories."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from cvgnn.nn.estimators import SampledSum
from cvgnn.ops.row_input import RowInput
from cvgnn.ops.row_sum import Rows
from cvgnn.sampling import Batch, FeatureSource, NeighborSampler


@final
class SampledStart(SampledSum):
    """`P^ X` at layer 0, and `P^ H^(k)` above it, for the first steps of a run.

    `P X` is a pass over all edges, during which hundreds of such steps can be taken. After them begins Algorithm 1, at
    the weights that they reached.

    Args:
        features: their `own` gives the rows of `X`; no other row is read.
        sampler: draws `P^` of layer 0.
        steps: how many.
        finish: called after the last of them, to compute what the estimator that follows starts from.
    """

    def __init__(
        self, features: FeatureSource, sampler: NeighborSampler, *, steps: int, finish: Callable[[], None]
    ) -> None:
        super().__init__(features)
        self.steps, self.finish = steps, finish
        self._sampler = sampler

    def input(self, batch: Batch | None) -> RowInput:
        """`(P^ X)[r^(1)]`."""
        assert batch is not None
        assert self.features.own is not None
        block = self._sampler.sample_layer(batch.inputs, batch.step, 0)
        indptr, places, weight = block.sampled.arrays
        return self.features.own.sums(Rows.of(indptr, block.sources.numpy()[places].astype(indptr.dtype), weight))
