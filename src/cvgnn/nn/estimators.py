"""The three estimators of `P H^(k)` on a batch's receptive field: exact, neighbor sampling, control variate.

Legend: `P^` the sampled matrix of the block, `H^(k)` this step's representations of `r^(k)`, `Hbar^(k)` their history.
They share one code path; what differs is the fan-out (`exact` takes all neighbors) and the second term of eq. 5.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, final, get_args

import torch
from torch import Tensor, nn

from cvgnn.errors import CvgnnError, require
from cvgnn.nn.history import History
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.fused_layer import Affine, Correction, HiddenLayer, Sigma, hidden_layer
from cvgnn.ops.row_input import DenseRows, RowInput
from cvgnn.ops.row_sum import differentiable_sum
from cvgnn.sampling import Batch, FeatureSource

EstimatorName = Literal["cv", "ns", "exact"]
ESTIMATORS: tuple[str, ...] = get_args(EstimatorName)


class Estimator(nn.Module, ABC):
    """How a network gets its aggregated inputs, layer by layer; the only part that may keep state between steps.

    Args:
        features: rows of `P X`, and of `X` where the network reads them.
    """

    def __init__(self, features: FeatureSource) -> None:
        super().__init__()
        self.features = features

    def input(self, batch: Batch | None) -> RowInput:
        """`(P X)[r^(1)]`: layer 0 is exact for every estimator, because `Hbar^(0) = X`."""
        return self.rows_of(self.features, batch)

    def own_input(self, batch: Batch | None) -> RowInput:
        """`X[r^(1)]`."""
        source = self.features.own
        if source is None:
            raise CvgnnError(
                "this network reads X itself, too: make the features with propagate_features(..., own=True)"
            )
        return self.rows_of(source, batch)

    def rows_of(self, source: FeatureSource, batch: Batch | None) -> RowInput:
        """The rows of `r^(1)` of a source; dense ones are not read before a thread needs them."""
        assert batch is not None
        ids = batch.inputs
        if source.sparse:
            rows = source.rows(ids)
            if not isinstance(rows, RowInput):
                kind = type(rows).__name__
                raise CvgnnError(f"features with sparse = True must give rows as a SparseInput, not {kind}")
            return rows
        return DenseRows(lambda a, b: source.rows(ids[a:b]), (ids.numel(), source.num_features))  # type: ignore[arg-type, return-value]

    @abstractmethod
    def correction(self, k: int, batch: Batch, first: int = 0, last: int | None = None) -> Tensor | None:
        """What the estimate of `(P H^(k))[r^(k+1)]` adds to `P^ H^(k)`: a new constant `[|r^(k+1)|, d_k]`, or None.

        Args:
            k: layer, `1 <= k < K`.
            batch: the step's blocks.
            first, last: which rows of it, `first..last-1`; all if not given. Several threads may ask at the same time,
                before or after `keep`, which must not change the answer.
        """

    @abstractmethod
    def keep(self, k: int, batch: Batch, H: Tensor) -> None:
        """Stage `H^(k)[r^(k)]`, a constant, to be written by `commit`, if this estimator has a memory."""

    def propagate(
        self, k: int, batch: Batch | None, Z: Affine | Tensor, sigma: Sigma, *, drop: Dropout | None, own: bool
    ) -> HiddenLayer:
        """`H^(k) = sigma(Z^(k))`, and the estimate of `(P H^(k))[r^(k+1)]`.

        Args:
            k: layer, `1 <= k <= K`; nothing is aggregated of the last.
            batch: the step's blocks.
            Z: `[|r^(k)|, d_k]`.
            sigma: norm and activation.
            drop: what to drop of `H^(k)`, or None.
            own: whether the rows of `r^(k+1)` themselves are wanted.
        """
        assert batch is not None
        if k > len(batch.blocks):
            return hidden_layer(Z, sigma, drop=drop, own=own)
        block = batch.block(k)
        entries = 0 if block.remainder is None else block.remainder.num_entries // max(1, block.sampled.num_rows)
        correction = Correction(functools.partial(self.correction, k, batch), entries)
        out = hidden_layer(
            Z, sigma, drop=drop, sampled=block.sampled, transposed=block.transposed, correction=correction, own=own
        )
        self.keep(k, batch, out.H)
        return out

    def aggregate(self, k: int, batch: Batch, H: Tensor, *, drop: Dropout | None = None) -> Tensor:
        """The estimate of `(P dropout(H^(k)))[r^(k+1)]`, differentiable in `H`, for a forward pass of your own.

        Args:
            k: layer, `1 <= k < K`.
            batch: the step's blocks.
            H: `H^(k)[r^(k)]`, which a history keeps.
            drop: what to drop of it, or None.

        Returns:
            `[|r^(k+1)|, d_k]`.
        """
        block, correction = batch.block(k), self.correction(k, batch)
        self.keep(k, batch, H.detach())
        if drop is not None:
            H = H * drop.mask((H.shape[0], H.shape[1]), H.dtype, device=H.device)
        sampled = differentiable_sum(block.sampled, block.transposed, H)
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

    def forward(self, *_: Any) -> Any:
        """An estimator is no layer: a network calls its methods."""
        raise CvgnnError("an estimator is not called; give it to a network, or use estimator.aggregate(k, batch, H)")

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take a state that `state_dict` gave, of an estimator with the same shapes and dtypes."""
        self.discard()
        mine = self.state_dict()
        foreign = sorted(state_dict.keys() - mine.keys())
        require(not foreign, f"the state holds {', '.join(foreign)}, which this estimator does not have")
        for name, tensor in mine.items():
            require(name in state_dict, f"the state of the estimator lacks {name!r}")
            theirs = state_dict[name]
            require(
                theirs.shape == tensor.shape and theirs.dtype == tensor.dtype,
                f"{name!r} is {tensor.dtype} {list(tensor.shape)}; the state holds {theirs.dtype} {list(theirs.shape)}",
            )
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


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
        self.histories: Sequence[History] = nn.ModuleList(  # type: ignore[assignment]
            History(features.num_nodes, width, dtype=dtype or features.dtype, storage=storage) for width in widths
        )
        self._history = list(self.histories)  # finding a module in a ModuleList takes long
        self._staged: dict[int, tuple[Tensor, Tensor]] = {}

    def history(self, k: int) -> History:
        """`Hbar^(k)`, `1 <= k < K`."""
        return self._history[k - 1]

    def initialize(self, hidden: Iterable[Tensor]) -> None:
        """`Hbar^(k) = H^(k)` of an exact pass at `W_1` (Algorithm 1, line 2, with sigma).

        Args:
            hidden: `H^(1)..H^(K-1)` for all nodes, as `cvgnn.exact_hidden` returns them, or one by one.
        """
        for history, H in zip(self.histories, hidden, strict=True):
            history.fill(H, step=0)
            first = torch.zeros(1, dtype=torch.int64, device=H.device)
            history.push(first, history.pull(first), step=0)  # changes nothing, but compiles before a step is timed

    def correction(self, k: int, batch: Batch, first: int = 0, last: int | None = None) -> Tensor:
        """`(P - P^) Hbar^(k)`."""
        remainder = batch.block(k).remainder
        if remainder is None:
            raise CvgnnError("the control variate needs a NeighborSampler with control=True")
        return self.history(k).weighted_sum(remainder.between(first, remainder.num_rows if last is None else last))

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
