"""The three estimators of `P H^(k)` on a batch's receptive field: exact, neighbor sampling, control variate.

Legend: `P^` the sampled matrix of the block, `H^(k)` this step's representations of `r^(k)`, `Hbar^(k)` their history.
They share one code path; what differs is the fan-out (`exact` takes all neighbors) and the second term of eq. 5.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, final, get_args

import torch
from torch import Tensor, nn

from cvgnn.errors import CvgnnError, require, require_number
from cvgnn.nn.history import History
from cvgnn.ops.affine import Affine
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.fused_layer import HiddenLayer, MaskWeights, NeighborSum, Sigma, dropped, hidden_layer, sampled_sum
from cvgnn.ops.row_input import DenseRows, RowInput
from cvgnn.sampling import Batch, FeatureSource

EstimatorName = Literal["cvd", "cv", "ns", "exact"]
ESTIMATORS: tuple[str, ...] = get_args(EstimatorName)
CONTROL_VARIATES = ("cvd", "cv")  # those with histories


class Estimator(nn.Module):
    """How a network gets its aggregated inputs, layer by layer; the only part that may keep state between steps.

    The default is `P^ H^(k)`, without memory; see `SampledSum`.

    Args:
        features: rows of `P X`, and of `X` where the network reads them.
        widths: `d_1..d_{K-1}`, for estimators that keep something of the hidden layers; this one does not.
    """

    def __init__(self, features: FeatureSource, widths: Sequence[int] = ()) -> None:
        super().__init__()
        self.features = features

    def initialize(self, hidden: Iterable[Tensor]) -> None:
        """Take `H^(1)..H^(K-1)` of an exact pass at `W_1`, before the first step; called only if overridden."""

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
        # Each thread gathers the rows of its own range just before it multiplies them (`ops.fused_layer`).
        ids = batch.inputs
        if source.sparse:
            rows = source.rows(ids)
            if not isinstance(rows, RowInput):
                kind = type(rows).__name__
                raise CvgnnError(f"features with sparse = True must give rows as a SparseInput, not {kind}")
            return rows
        return DenseRows(source.reader(ids), (ids.numel(), source.num_features))

    def correction(self, k: int, batch: Batch, first: int = 0, last: int | None = None) -> Tensor | None:
        """What the estimate of `(P H^(k))[r^(k+1)]` adds to `P^ H^(k)`: a new constant `[|r^(k+1)|, d_k]`, or None.

        Args:
            k: layer, `1 <= k < K`.
            batch: the step's blocks.
            first, last: which rows of it, `first..last-1`; all if not given. Called from several threads, before or
                after `keep`, which must not change the result.
        """
        return None

    def keep(self, k: int, batch: Batch, H: Tensor) -> None:
        """Stage `H^(k)[r^(k)]`, a constant, to be written by `commit`, if this estimator has a memory."""

    def mask_weights(self, k: int, batch: Batch) -> MaskWeights | None:
        """The weights of the dropout mask, where they are not those of `P^`."""
        return None

    def row_numbers(self, k: int, batch: Batch | None) -> Tensor | None:
        """int64, a number for each row of `H^(k)` that its dropout mask is a function of; None for its position."""
        return None

    def propagate(
        self, k: int, batch: Batch | None, Z: Affine, sigma: Sigma, *, drop: Dropout | None, own: bool,
        lazy: bool = False,
    ) -> HiddenLayer:  # fmt: skip
        """`H^(k) = sigma(Z^(k))`, and the estimate of `(P H^(k))[r^(k+1)]`.

        Args:
            k: layer, `1 <= k <= K`; nothing is aggregated of the last.
            batch: the step's blocks.
            Z: `[|r^(k)|, d_k]`.
            sigma: norm and activation.
            drop: what to drop of `H^(k)`, or None.
            own: whether to return the rows of `r^(k+1)` themselves.
            lazy: whether the layer above only multiplies the estimate, so that it can be computed with that product.
        """
        assert batch is not None
        if k > len(batch.blocks):
            return hidden_layer(Z, sigma, drop=drop, own=own)
        block = batch.blocks[k - 1]
        # Mean number of history rows that a target's correction reads: what decides whether threads pay.
        entries = 0 if block.remainder is None else block.remainder.num_entries // max(1, block.sampled.num_rows)
        correction = functools.partial(self.correction, k, batch)
        summed = NeighborSum(block.sampled, block.transposed, self.mask_weights(k, batch), correction, entries)
        out = hidden_layer(Z, sigma, drop=drop, summed=summed, own=own, lazy=lazy)
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
        # The history keeps H before dropout, and only its value: Hbar is a constant for the gradient (eq. 6).
        self.keep(k, batch, H.detach())
        mask = None if drop is None else self.mask_weights(k, batch)
        sampled = sampled_sum(block.sampled, block.transposed, mask, H, dropped(H, drop))
        return sampled if correction is None else sampled + correction

    def commit(self, step: int) -> None:
        """Apply the history writes that the last forward pass staged (Algorithm 1, lines 13 to 17)."""

    def staged(self) -> list[Tensor]:
        """What `commit` would write."""
        return []

    def discard(self) -> None:
        """Forget what was staged."""

    def forward(self, *_: Any) -> Any:
        """An estimator is no layer: a network calls its methods."""
        raise CvgnnError("an estimator is not called; give it to a network, or use estimator.aggregate(k, batch, H)")

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take a state that `state_dict` gave, of an estimator with the same shapes and dtypes."""
        # What an interrupted step staged belongs to the old state. torch's own check would raise a RuntimeError that
        # lists tensors; a user's mistake is a CvgnnError with one sentence.
        self.discard()
        mine = self.state_dict()
        foreign = sorted(state_dict.keys() - mine.keys())
        require(not foreign, f"the state holds {', '.join(foreign)}, which this estimator does not have")
        for name, tensor in mine.items():
            saved_tensor(state_dict, name, like=tensor)
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


def saved_tensor(state: Mapping[str, Tensor], name: str, *, like: Tensor) -> Tensor:
    """A tensor of a state; refused unless it has the shape and dtype of `like`."""
    require(name in state, f"the state lacks {name}")
    saved = state[name]
    require(
        saved.shape == like.shape and saved.dtype == like.dtype,
        f"{name} is {saved.dtype} {list(saved.shape)} in the state, {like.dtype} {list(like.shape)} in this run",
    )
    return saved


class SampledSum(Estimator):
    """`P^ H^(k)`, without memory: neighbor sampling (`ns`), or `exact` where the blocks hold all neighbors."""


@final
class ControlVariate(Estimator):
    """`P^ (H^(k) - Hbar^(k)) + P Hbar^(k)` (eq. 5), computed as `P^ H^(k) + (P - P^) Hbar^(k)`.

    The two are equal; the second reads each history row once and needs no difference of two gathers. `Hbar` is
    constant: the gradient flows through `H^(k)` alone.

    With a dropout mask `m` (entries 0 or 1/(1-p), mean 1), eq. 5 on `m H` (`cv`, as published) multiplies the mask's
    variance by deg/D, which no history can cancel. `cvd` separates the two (VR-GCN's form):

        A = P^ H + (P - P^) Hbar + S ((m - 1) H),        S = sqrt(f) P for the entries f P of P^

    Its mean over draws and masks is `P H`; the mask's variance is that of exact aggregation. Given the mask alone the
    mean has sqrt(D/deg) at the mask's term. Without dropout, and with all neighbors, `cvd` and `cv` are the same.

    Args:
        features: rows of `P X`.
        widths: `d_1..d_{K-1}`, one history for each hidden layer.
        separate_dropout: whether the mask gets the weights `S` (`cvd`) or those of `P^` (`cv`).
        control: `c` in [0, 1]: `P^ H + c (P - P^) Hbar`, unbiased for every `c`; 0 is plain sampling.
        dtype: of the model, the features' if not given.
        storage: of the histories, `dtype` if not given.
        zeros: what allocates the histories, see `History`.
    """

    def __init__(
        self,
        features: FeatureSource,
        widths: Sequence[int],
        *,
        separate_dropout: bool = True,
        control: float = 1.0,
        dtype: torch.dtype | None = None,
        storage: torch.dtype | None = None,
        zeros: Callable[[tuple[int, ...], torch.dtype], Tensor] | None = None,
    ) -> None:
        super().__init__(features)
        require_number("control", control, "a number in [0, 1]", at_least=0.0, at_most=1.0)
        self.separate_dropout, self.control = separate_dropout, control
        require(isinstance(widths, list | tuple), f"widths must list the width of each hidden layer, not {widths!r}")
        self.histories: Sequence[History] = nn.ModuleList(  # type: ignore[assignment]
            History(features.num_nodes, width, dtype=dtype or features.dtype, storage=storage, zeros=zeros)
            for width in widths
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
        # One H at a time: the exact pass frees a layer's matrix before it computes the layer after the next.
        for history, H in zip(self.histories, hidden, strict=True):
            history.fill(H, step=0)
            history.warm_up()

    def initialize_blocks(self, hidden: Iterable[tuple[int, Tensor]]) -> None:
        """`initialize` for one hidden layer, from blocks of rows of `H^(1)`, each with its first row."""
        (history,) = self.histories
        for first, rows in hidden:
            history.fill_rows(first, rows)
        history.warm_up()

    def correction(self, k: int, batch: Batch, first: int = 0, last: int | None = None) -> Tensor:
        """`c (P - P^) Hbar^(k)`."""
        remainder = batch.block(k).remainder
        if remainder is None:
            raise CvgnnError("the control variate needs a NeighborSampler with control=True")
        total = self._history[k - 1].weighted_sum(
            remainder.between(first, remainder.num_rows if last is None else last)
        )
        return total if self.control == 1.0 else total.mul_(self.control)

    def mask_weights(self, k: int, batch: Batch) -> MaskWeights | None:
        """See `Estimator.mask_weights`."""
        return batch.block(k).mask if self.separate_dropout else None

    def read_ahead(self, batch: Batch) -> None:
        """Read the history rows that a batch will need, where histories are mapped files; called by another thread."""
        for history, block in zip(self._history, batch.blocks, strict=True):
            if block.remainder is not None:
                history.read_ahead(block.remainder.arrays[1])

    def keep(self, k: int, batch: Batch, H: Tensor) -> None:
        """See `Estimator.keep`."""
        self._staged[k] = (batch.block(k).sources, H)

    def commit(self, step: int) -> None:
        """See `Estimator.commit`."""
        # After the step and not in the forward pass: both terms of eq. 5 must read the history of the step before.
        for k, (ids, H) in self._staged.items():
            self.history(k).push(ids, H, step=step)
        self._staged.clear()

    def staged(self) -> list[Tensor]:
        """See `Estimator.staged`."""
        return [H for _, H in self._staged.values()]

    def discard(self) -> None:
        """See `Estimator.discard`."""
        self._staged.clear()
