"""Algorithm 1 of the paper, line by line.

Legend (the paper's letters):
    A, P        adjacency matrix, propagation matrix [N, N]
    X, y        features [N, d_0], labels [N]
    W_t, G_t    parameters of iteration t, gradient of the batch loss; lists in the order of `params`
    H^(k)       representations of this step's forward pass; Hbar^(k) their histories [N, d_k]
    P^(k)       sampled propagation matrix of layer k [N, N], rows r^(k+1) filled
    D^(k)       fan-out of layer k, k = 1..K-1 (layer 0 is exact)
    r^(k)       receptive field at layer k

Leaving the paper: line 2 initialises the histories with sigma (the paper leaves it out), at W_1. Networks other than
the GCN, BatchNorm's statistics and the sampled start are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cvgnn.errors import CvgnnError, require, require_known
from cvgnn.reference.gcn import ESTIMATORS, Ids, Masks, batch_statistics, cv_forward_backward, exact_forward
from cvgnn.reference.losses import Loss, softmax_cross_entropy
from cvgnn.reference.propagation_matrix import Array, dense_P, neighbor_lists
from cvgnn.reference.sampling import P_hat
from cvgnn.reference.spec import GCN, Spec

LayerDraws = Callable[[int, int], Sequence[int]] | Mapping[int, Mapping[int, Sequence[int]]]


class Optimizer(Protocol):
    """Anything that turns W_t and G_t into W_{t+1}, with its own M_t and V_t."""

    def step(self, W: list[Array], G: list[Array]) -> list[Array]:
        """W_{t+1} from W_t and G_t, in the same order."""


class ReferenceTrainer:
    """Algorithm 1, densely: histories from one exact forward pass, then `step` as often as wanted.

    Args:
        A: Adjacency matrix [N, N].
        X: Features [N, d_0].
        y: Labels [N], or [N, C] for losses that read such.
        params: W_1 by name, in the order the optimizer sees; copied.
        K: Number of layers, a linear input layer included.
        fan_outs: D^(k) at index k, k = 1..K-1; index 0 is not read (None). -1 takes all neighbors.
        scheme: How neighbors are drawn, one of `sampling.SCHEMES`.
        estimator: "cvd", "cv", "ns" or "exact" ("exact" reads neither fan_outs nor draws).
        control: c in [0, 1], see `gcn.cv_forward_backward`.
        normalization: One of `propagation.NORMALIZATIONS`.
        loss: Of outputs and labels, see `losses`.
        optimizer: Object with `step(W, G) -> W`.
        spec: The network; a GCN if not given.
        statistics_every: BatchNorm's statistics are computed at W_1, and again at W_t before every step t = 1, 2, ...
            with (t - 1) % statistics_every == 0; 0 keeps those of W_1.
        start_steps: The steps t = 1..start_steps sample layer 0, too, with D^(0) = fan_outs[0], and are those of "ns";
            line 2 comes after them, at W_{start_steps + 1}.

    After each step: `params` is W_{t+1}; `Hbar` the updated histories by k = 1..K-1; `loss`, `grads`, `H`,
    `fields` ([r^(0), ..., r^(K)]) and `statistics` (by layer; empty unless the norm is "batch") are those of this step,
    at W_t. Histories are kept for every estimator,
    though only "cv" and "cvd" read them.
    """

    def __init__(
        self,
        A: npt.ArrayLike,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        params: Mapping[str, Array],
        *,
        K: int,
        fan_outs: Sequence[int | None],
        scheme: str = "without-replacement",
        estimator: str = "cv",
        control: float = 1.0,
        normalization: str = "symmetric",
        loss: Loss = softmax_cross_entropy,
        optimizer: Optimizer,
        spec: Spec = GCN,
        statistics_every: int = 0,
        start_steps: int = 0,
    ) -> None:
        require_known("estimator", estimator, ESTIMATORS)
        require(len(fan_outs) == K, f"fan_outs must have {K} entries (index 0 unused), not {len(fan_outs)}")
        require(
            statistics_every >= 0, f"statistics_every must be a number of steps or 0 (never), not {statistics_every}"
        )
        self.spec, self.statistics_every, self.start_steps, self.t = spec, statistics_every, start_steps, 1
        self.K, self.fan_outs, self.scheme, self.estimator = K, list(fan_outs), scheme, estimator
        self.f, self.control = loss, control
        self.P = dense_P(A, normalization)
        self.neighbors = neighbor_lists(A)
        self.X = np.array(X, dtype=np.float64)
        self.y = np.array(y)
        self.params = {name: np.array(W, dtype=np.float64) for name, W in params.items()}
        self.optimizer = optimizer
        self.statistics = batch_statistics(self.params, self.P, self.X, spec)
        self.Hbar = self.initial_histories()
        self.loss = float("nan")
        self.grads: dict[str, Array] = {}
        self.H: list[Array] = []
        self.fields: list[Ids] = []

    def initial_histories(self) -> dict[int, Array]:
        """Line 2."""
        H, _ = exact_forward(self.params, self.P, self.X, self.K, self.spec, self.statistics)
        return {k: H[k].copy() for k in range(1, self.K)}

    def sample(self, batch: Sequence[int], draws: LayerDraws) -> dict[int, Array]:
        """Line 5: P^(k) for k = K-1..1, each with the rows r^(k+1) that the layer above reached; P^(0) in the start."""
        P_hats: dict[int, Array] = {}
        r = np.unique(np.asarray(batch, dtype=np.int64))
        for k in range(self.K - 1, -1 if self.t <= self.start_steps else 0, -1):
            D = self.fan_outs[k]
            if D is None:
                raise CvgnnError(f"fan_outs[{k}] is None; give D^({k}), or -1 for all neighbors")

            def draws_of(v: int, k: int = k) -> Sequence[int]:
                return draws(k, v) if callable(draws) else draws[k][v]

            P_hats[k] = P_hat(self.P, self.neighbors, r.tolist(), self.scheme, D, draws_of)
            r = np.union1d(r, np.flatnonzero(P_hats[k][r].any(axis=0)))
        return P_hats

    def step(self, batch: Sequence[int], draws: LayerDraws, masks: Masks | None = None) -> None:
        """Lines 4 to 18: one iteration.

        Args:
            batch: Node ids, repeats allowed.
            draws: draws[k][v] or draws(k, v), the raw draws of node v at layer k = 1..K-1; asked only for v in
                r^(k+1) that consume draws.
            masks: Dropout masks, see `cv_forward_backward`.
        """
        if self.statistics_every > 0 and (self.t - 1) % self.statistics_every == 0:
            self.statistics = batch_statistics(self.params, self.P, self.X, self.spec)
        # Lines 4 and 5: neighbor sampling.
        estimator = "ns" if self.t <= self.start_steps else self.estimator
        P_hats = {} if estimator == "exact" else self.sample(batch, draws)
        # Lines 6 to 11: forward, loss, gradient G_t at W_t.
        self.loss, self.grads, self.H, self.fields = cv_forward_backward(
            self.params,
            self.P,
            P_hats,
            self.Hbar,
            self.X,
            self.y,
            batch,
            masks,
            estimator,
            self.f,
            self.spec,
            self.statistics,
            self.control,
        )
        # Line 12: W_{t+1}.
        W = self.optimizer.step(list(self.params.values()), list(self.grads.values()))
        self.params = dict(zip(self.params, W, strict=True))
        # Lines 13 to 18: histories, with the H of this step's forward pass. Hbar^(0) = X always.
        for k in range(1, self.K):
            for v in self.fields[k]:
                self.Hbar[k][v] = self.H[k][v]
        if self.t == self.start_steps:
            self.Hbar = self.initial_histories()
        self.t += 1
