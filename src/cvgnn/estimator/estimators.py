"""The three estimators of `P H^(k)` on a batch's receptive field: exact, neighbor sampling, control variate.

Legend: `P^` the sampled matrix of the block, `H^(k)` this step's representations of `r^(k)`, `Hbar^(k)` their history.
They share one code path; what differs is the fan-out (`exact` takes all neighbors) and the second term of eq. 5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Literal, final, get_args

import torch
from torch import Tensor

from cvgnn.errors import CvgnnError, require
from cvgnn.estimator.history import History
from cvgnn.graph import Rows, differentiable_sum
from cvgnn.ops.row_sum import Array
from cvgnn.sampling import Batch, FeatureSource, LayerInput

EstimatorName = Literal["cv", "ns", "exact"]
ESTIMATORS: tuple[str, ...] = get_args(EstimatorName)


class Estimator(ABC):
    """How a model gets its aggregated inputs, layer by layer; the only part that may keep state between steps.

    Args:
        features: rows of `P X`.
    """

    def __init__(self, features: FeatureSource) -> None:
        self.features = features

    def input(self, batch: Batch, first: int = 0, last: int | None = None) -> LayerInput:
        """`(P X)[r^(1)]`: layer 0 is exact for every estimator, because `Hbar^(0) = X`.

        Args:
            batch: the step's ids.
            first, last: which rows of it, `first..last-1`; all if not given.
        """
        return self.features.rows(batch.inputs[first:last])

    @abstractmethod
    def correction(self, k: int, batch: Batch, first: int = 0, last: int | None = None) -> Tensor | None:
        """What the estimate of `(P H^(k))[r^(k+1)]` adds to `P^ H^(k)`: a new constant `[|r^(k+1)|, d_k]`, or None.

        Args:
            k: layer, `1 <= k < K`.
            batch: the step's blocks.
            first, last: which rows of it, `first..last-1`; all if not given. Several threads may ask at the same time,
                before or after `keep`, which must not change the answer.
        """

    def history_term(self, k: int, batch: Batch) -> tuple[Rows, Array] | None:
        """A matrix and a table, both of the model's dtype, whose product is `correction`, for compiled code that forms
        it among other things; None where `correction` must be asked."""
        return None

    @abstractmethod
    def keep(self, k: int, batch: Batch, H: Tensor) -> None:
        """Stage `H^(k)[r^(k)]`, a constant, to be written by `commit`, if this estimator has a memory."""

    def aggregate(self, k: int, batch: Batch, H: Tensor, H_dropped: Tensor) -> Tensor:
        """The estimate of `(P H^(k))[r^(k+1)]`, differentiable in `H_dropped`, for layers of your own.

        `GCN` computes the same in fewer passes (`cvgnn.model.hidden`).

        Args:
            k: layer, `1 <= k < K`.
            batch: the step's blocks.
            H: `H^(k)[r^(k)]` before dropout: what a history keeps.
            H_dropped: the same after dropout: what is propagated.

        Returns:
            `[|r^(k+1)|, d_k]`.
        """
        block, correction = batch.block(k), self.correction(k, batch)
        self.keep(k, batch, H.detach())
        sampled = differentiable_sum(block.sampled, block.transposed, H_dropped)
        return sampled if correction is None else sampled + correction

    @abstractmethod
    def commit(self, step: int) -> None:
        """Apply the history writes that the last forward pass staged (Algorithm 1, lines 13 to 17)."""

    def staged(self) -> list[Tensor]:
        """What `commit` would write."""
        return []

    @abstractmethod
    def discard(self) -> None:
        """Forget what was staged."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """What a checkpoint must hold, under flat names."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take a state that `state_dict` gave."""


@final
class SampledSum(Estimator):
    """`P^ H^(k)`, without memory: neighbor sampling (`ns`), or `exact` where the blocks hold all neighbors."""

    def correction(self, k: int, batch: Batch, first: int = 0, last: int | None = None) -> None:
        """Nothing is added."""

    def keep(self, k: int, batch: Batch, H: Tensor) -> None:
        """Nothing is kept."""

    def commit(self, step: int) -> None:
        """Nothing is kept."""

    def discard(self) -> None:
        """Nothing is staged."""

    def state_dict(self) -> dict[str, Tensor]:
        """Empty."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes the empty state only."""
        require(not state, f"this estimator keeps no state, but {', '.join(sorted(state))} was given")


@final
class ControlVariate(Estimator):
    """`P^ (H^(k) - Hbar^(k)) + P Hbar^(k)` (eq. 5), computed as `P^ H^(k) + (P - P^) Hbar^(k)`.

    The two are equal; the second reads each history row once and needs no difference of two gathers. `Hbar` is
    constant: the gradient flows through `H^(k)` alone.

    Args:
        features: rows of `P X`.
        widths: `d_1..d_{K-1}`, one history for each hidden layer.
        dtype: of the model, the features' if not given.
        storage: of the histories, `dtype` if not given.
    """

    def __init__(
        self,
        features: FeatureSource,
        widths: Sequence[int],
        *,
        dtype: torch.dtype | None = None,
        storage: torch.dtype | None = None,
    ) -> None:
        super().__init__(features)
        require(isinstance(widths, list | tuple), f"widths must list the width of each hidden layer, not {widths!r}")
        self.histories = [
            History(features.num_nodes, width, dtype=dtype or features.dtype, storage=storage) for width in widths
        ]
        self._staged: dict[int, tuple[Tensor, Tensor]] = {}

    def history(self, k: int) -> History:
        """`Hbar^(k)`, `1 <= k < K`."""
        return self.histories[k - 1]

    def initialize(self, hidden: Iterable[Tensor]) -> None:
        """`Hbar^(k) = H^(k)` of an exact pass at `W_1` (Algorithm 1, line 2, with sigma).

        Args:
            hidden: `H^(1)..H^(K-1)` for all nodes, as `cvgnn.model.exact_hidden` returns them, or one by one.
        """
        for history, H in zip(self.histories, hidden, strict=True):
            history.fill(H, step=0)
            first = torch.zeros(1, dtype=torch.int64)
            history.push(first, history.pull(first), step=0)  # changes nothing, but compiles before a step is timed

    def correction(self, k: int, batch: Batch, first: int = 0, last: int | None = None) -> Tensor:
        """`(P - P^) Hbar^(k)`."""
        remainder = self._remainder(k, batch)
        return self.history(k).weighted_sum(remainder.between(first, remainder.num_rows if last is None else last))

    def history_term(self, k: int, batch: Batch) -> tuple[Rows, Array] | None:
        """`P - P^` and `Hbar^(k)`, unless it is kept in bfloat16."""
        table = self.history(k).array
        return None if table is None else (self._remainder(k, batch), table)

    def _remainder(self, k: int, batch: Batch) -> Rows:
        remainder = batch.block(k).remainder
        if remainder is None:
            raise CvgnnError("the control variate needs a NeighborSampler with control=True")
        return remainder

    def keep(self, k: int, batch: Batch, H: Tensor) -> None:
        """See `Estimator.keep`."""
        self._staged[k] = (batch.block(k).sources, H)

    def commit(self, step: int) -> None:
        """See `Estimator.commit`."""
        for k, (ids, H) in self._staged.items():
            self.history(k).push(ids, H, step=step)
        self._staged.clear()

    def staged(self) -> list[Tensor]:
        """See `Estimator.staged`."""
        return [H for _, H in self._staged.values()]

    def discard(self) -> None:
        """See `Estimator.discard`."""
        self._staged.clear()

    def state_dict(self) -> dict[str, Tensor]:
        """`history.K.values` and `history.K.written` for each hidden layer."""
        return {
            f"history.{k}.{name}": tensor
            for k, history in enumerate(self.histories, start=1)
            for name, tensor in history.state_dict().items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """See `Estimator.load_state_dict`."""
        self._staged.clear()
        foreign = sorted(state.keys() - self.state_dict().keys())
        require(not foreign, f"the state holds {', '.join(foreign)}, which this estimator does not have")
        for k, history in enumerate(self.histories, start=1):
            prefix = f"history.{k}."
            history.load_state_dict({n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)})
