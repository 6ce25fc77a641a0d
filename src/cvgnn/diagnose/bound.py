"""What Theorem 1 needs, measured along a run: gradients, moments, curvature, bias, and Lemma 1's identity.

Legend: `W_t`, `G_t`, `M_t`, `V_t` as in Algorithm 1, as flat vectors `[d]`; a step divides by `sqrt(V_t)`, so
Assumption 2's bound is in it. `W~_t = W_t + beta1/(1 - beta1) (W_t - W_{t-1})` with `W_0 = W_1`. Lemma 1:

    W~_{t+1} - W~_t = -beta1/(1 - beta1) (alpha/sqrt(V_t) - alpha/sqrt(V_{t-1})) M_{t-1} - alpha G_t / sqrt(V_t)

At `t = 1` it needs `M_0 = 0` and any finite `1/sqrt(V_0)`; here that is `1/sqrt(V_1)`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.diagnose.bias import bias_draws
from cvgnn.diagnose.gradient import flat_weights
from cvgnn.diagnose.hessian import Hessian
from cvgnn.diagnose.rate import exact_gradient
from cvgnn.diagnose.staleness import readable_rows
from cvgnn.diagnose.subject import fresh_trainer, stops
from cvgnn.diagnose.theory import with_optimizer
from cvgnn.errors import require
from cvgnn.graph import Graph
from cvgnn.nn import ControlVariate
from cvgnn.optim import AdamType, ExponentialAverage, Mean, Momentum, Ones, RunningMaximum
from cvgnn.training import Diverged, Trainer


@final
@dataclass(frozen=True, kw_only=True)
class BoundRun:
    """One run that is looked at in every step.

    Args:
        optimizer, T, seed: which; `T` iterates, and `G_T` besides, because the theorem speaks of `V_T`.
        eta: `alpha = eta / sqrt(T)`.
        points: at so many iterates curvature and bias are measured, at least two: the first and the last.
        draws: of the neighbors, for the bias.
    """

    optimizer: str
    T: int
    seed: int
    eta: float
    points: int
    draws: int


@final
class Moments:
    """`G_t`, `M_t` and `V_t` of the step that a trainer has just taken."""

    def __init__(self, trainer: Trainer) -> None:
        optimizer = trainer.optimizer
        papers = (
            isinstance(optimizer, AdamType)
            and isinstance(optimizer.first_moment, Momentum)
            and isinstance(optimizer.second_moment, Ones | ExponentialAverage | RunningMaximum | Mean)
        )
        require(papers, "moments are read from an optimizer in the paper's form; set form='paper'")
        assert isinstance(optimizer, AdamType)
        self._rule, self._state = optimizer.second_moment, optimizer.state
        (group,) = optimizer.param_groups
        self._parameters: list[Tensor] = list(group["params"])
        self.alpha, self.beta1 = float(group["lr"]), float(group["beta1"])
        self.nu_min = 1.0 if isinstance(self._rule, Ones) else float(group["nu_min"])
        self._weight_decay = float(group["weight_decay"])

    def gradient(self, W: Tensor) -> Tensor:
        """`G_t` of the step from `W`."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        return torch.cat([g.reshape(-1) for g in gradients]) + self._weight_decay * W

    def first(self, G: Tensor) -> Tensor:
        """`M_t`, a copy."""
        return self._flat("M") if self.beta1 else G

    def second(self, G: Tensor) -> Tensor:
        """`V_t` with the bound of Assumption 2, a copy, of the shape of `G_t`."""
        if isinstance(self._rule, Ones):
            return torch.ones_like(G)
        V = self._flat("V")
        return V + self.nu_min**2 if isinstance(self._rule, Mean) else V.clamp_min(self.nu_min**2)

    def _flat(self, name: str) -> Tensor:
        return torch.cat([self._state[p][name].reshape(-1) for p in self._parameters])


@dataclass
class _Seen:
    """What is largest, smallest or summed up over the iterates so far."""

    H_F: float = 0.0
    H_inf: float = 0.0
    H_1: float = 0.0
    nu: float = math.inf
    quotient: float = 0.0
    S_1: float = 0.0
    S_2: float = 0.0
    left: float = 0.0
    squared: float = 0.0
    lemma1: float = 0.0
    lemma1_of_step: float = 0.0

    def gradient(self, g: Tensor) -> None:
        self.H_F = larger(self.H_F, g.norm())
        self.H_inf = larger(self.H_inf, g.abs().max())
        self.H_1 = larger(self.H_1, g.abs().sum())


def larger(one: float, other: float | Tensor) -> float:
    """The larger number, NaN if one of them is: Python's `max` would lose it, and with it what went wrong.

    >>> larger(1.0, 2.0), larger(1.0, math.nan), larger(math.nan, 1.0)
    (2.0, nan, nan)
    """
    return float(np.maximum(one, float(other)))


def measure_bound(shared: tuple[Graph, TrainConfig], run: BoundRun) -> dict[str, Any] | None:
    """One run: everything that Theorem 1 needs of it; None for one that diverged."""
    try:
        return _measured(shared, run)
    except Diverged:
        return None


def _measured(shared: tuple[Graph, TrainConfig], run: BoundRun) -> dict[str, Any]:
    graph, config = shared
    config = with_optimizer(config, run.optimizer, run.eta / math.sqrt(run.T))
    config = dataclasses.replace(config, seed=run.seed)
    trainer = fresh_trainer(graph, config)
    full, moments, seen = exact_gradient(trainer, graph, config), Moments(trainer), _Seen()
    hessian = Hessian(
        trainer.estimator.features,
        trainer.loader.sampler.propagation,
        graph.y,
        graph.train_ids,
        num_layers=config.hops + 1,
        weight_decay=config.weight_decay,
    )
    looked_at = {round(1 + i * (run.T - 1) / (run.points - 1)) for i in range(run.points)}
    at_points: list[dict[str, Any]] = []
    along: list[tuple[float, float, float]] = []
    first = 0.0
    W_before = W = flat_weights(trainer.model)
    M_before = R_before = g_before = None
    after = stops(trainer, range(run.T + 1))
    next(after)
    for t in range(1, run.T + 1):
        F, g = full(trainer.model)
        first = F if t == 1 else first
        if t in looked_at:
            at_points.append({"t": t, "F": F, **_look(trainer, graph, config, hessian, g, W, run)})
        if g_before is not None:
            moved = float((W - W_before).norm())
            seen.quotient = larger(seen.quotient, float((g - g_before).norm()) / moved if moved else 0.0)
        next(after)  # the step from W_t to W_{t+1}
        W_next = flat_weights(trainer.model)
        G = moments.gradient(W)
        R = moments.second(G).rsqrt()
        for vector in (g, G):
            seen.gradient(vector)
        seen.nu = -larger(-seen.nu, -1 / R.max())
        seen.left += moments.alpha * float((g * g) @ R)
        seen.squared += float(g @ g)
        jump = torch.zeros_like(R) if R_before is None else moments.alpha * (R - R_before)
        seen.S_1 += float(jump.abs().sum())
        seen.S_2 += float(jump @ jump)
        _lemma1(seen, moments, W_before, W, W_next, jump, M_before, G, R)
        along.append((seen.left, seen.S_1, seen.S_2))
        W_before, W, g_before = W, W_next, g
        M_before, R_before = moments.first(G), R
    return {
        **dataclasses.asdict(run),
        "alpha": moments.alpha,
        "beta1": moments.beta1,
        "nu_configured": moments.nu_min,
        "d": W.numel(),
        "first": first,
        "seen": dataclasses.asdict(seen),
        "mean_squared": seen.squared / run.T,
        "at_points": at_points,
        "along": along,
        **_ages(trainer),
    }


def _lemma1(
    seen: _Seen,
    moments: Moments,
    W_before: Tensor,
    W: Tensor,
    W_next: Tensor,
    jump: Tensor,
    M_before: Tensor | None,
    G: Tensor,
    R: Tensor,
) -> None:
    """How far Lemma 1's two sides are apart, as a share of the largest entry of `W~` and of the step."""
    c = moments.beta1 / (1 - moments.beta1)
    tilde, tilde_next = W + c * (W - W_before), W_next + c * (W_next - W)
    right = -moments.alpha * G * R
    if M_before is not None:
        right -= c * jump * M_before
    apart = float((tilde_next - tilde - right).abs().max())
    seen.lemma1 = larger(seen.lemma1, apart / larger(1e-300, tilde_next.abs().max()))
    seen.lemma1_of_step = larger(seen.lemma1_of_step, apart / larger(1e-300, right.abs().max()))


def _look(
    trainer: Trainer,
    graph: Graph,
    config: TrainConfig,
    hessian: Hessian,
    g: Tensor,
    W: Tensor,
    run: BoundRun,
) -> dict[str, float]:
    """Curvature and bias at `W_t`."""
    curvature = hessian.largest(trainer.model, seed=run.seed)
    plain = g - config.weight_decay * W
    total = torch.zeros_like(g)
    for difference in bias_draws(trainer, graph.train_ids, graph.y, plain, draws=run.draws):
        total += difference
    return {
        "rho": curvature.value,
        "rho_change": curvature.change,
        "bias_inf": float((total / run.draws).abs().max()),
        "gradient_inf": float(g.abs().max()),
    }


def _ages(trainer: Trainer) -> dict[str, Any]:
    """How old the histories are at the end, beside the `K` epochs that Lemma 6's proof allows."""
    limit = trainer.model.num_layers * trainer.loader.steps_per_epoch
    if not isinstance(trainer.estimator, ControlVariate):
        return {"age_limit": limit, "largest_age": 0, "older": 0.0}
    ages = torch.cat(
        [h.age(trainer.iterations)[r] for h, r in zip(trainer.estimator.histories, readable_rows(trainer), strict=True)]
    )
    return {
        "age_limit": limit,
        "largest_age": int(ages.max()),
        "older": float((ages > limit).double().mean()),
    }
