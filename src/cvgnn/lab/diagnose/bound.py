"""The quantities of Theorem 1, measured along a run: gradients, moments, curvature, bias, and Lemma 1's identity.

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
from cvgnn.data import Graph
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose.bias import bias_draws
from cvgnn.lab.diagnose.gradient import Objective, flat_weights
from cvgnn.lab.diagnose.theory import TheoryRun
from cvgnn.lab.diagnose.trainers import readable_ages, readable_rows, train_until
from cvgnn.optim import AdamType, ExponentialAverage, Mean, Momentum, Ones, RunningMaximum
from cvgnn.training import Diverged, Trainer


@final
class StepMoments:
    """`G_t`, `M_t` and `V_t` of the step that a trainer has just taken."""

    def __init__(self, trainer: Trainer) -> None:
        optimizer = trainer.optimizer
        rules = (Ones, ExponentialAverage, RunningMaximum, Mean)
        if not (
            isinstance(optimizer, AdamType)
            and isinstance(optimizer.first_moment, Momentum)
            and isinstance(optimizer.second_moment, rules)
        ):
            raise CvgnnError("moments are read from an optimizer in the paper's form; set form='paper'")
        self._rule, self._state = optimizer.second_moment, optimizer.state
        (group,) = optimizer.param_groups
        self._parameters: list[Tensor] = list(group["params"])
        self.alpha, self.beta1 = float(group["lr"]), float(group["beta1"])
        self.nu_min = 1.0 if isinstance(self._rule, Ones) else float(group["nu_min"])
        self.weight_decay = float(group["weight_decay"])

    def gradient(self, W: Tensor) -> Tensor:
        """`G_t` of the step from `W`."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        return torch.cat([g.reshape(-1) for g in gradients]) + self.weight_decay * W

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
class _Extremes:
    """Quantities that are largest, smallest or summed up over the iterates so far."""

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

    def add_gradient(self, g: Tensor) -> None:
        self.H_F = larger(self.H_F, g.norm())
        self.H_inf = larger(self.H_inf, g.abs().max())
        self.H_1 = larger(self.H_1, g.abs().sum())

    def add_lemma1(self, left: Tensor, right: Tensor, W: Tensor) -> None:
        """The distance of Lemma 1's two sides, as a share of the largest entry of `W~` and of the step."""
        apart = float((left - right).abs().max())
        self.lemma1 = larger(self.lemma1, apart / larger(1e-300, W.abs().max()))
        self.lemma1_of_step = larger(self.lemma1_of_step, apart / larger(1e-300, right.abs().max()))


def larger(one: float, other: float | Tensor) -> float:
    """The larger number, NaN if one of them is: Python's `max` would lose it, and with it what went wrong.

    >>> larger(1.0, 2.0), larger(1.0, math.nan), larger(math.nan, 1.0)
    (2.0, nan, nan)
    """
    return float(np.maximum(one, float(other)))


def measure_bound(shared: tuple[Graph, TrainConfig, int], run: TheoryRun) -> dict[str, Any] | None:
    """Theorem 1's quantities along one run; None for one that diverged.

    Args:
        shared: the graph, the config, and the number of neighbor draws for the bias.
        run: `T` iterates, and `G_T` besides, because the theorem speaks of `V_T`; curvature and bias are measured at
            `points` iterates, the first and the last among them.
    """
    graph, config, draws = shared
    trainer, objective = run.start(graph, config)
    try:
        return {
            **dataclasses.asdict(run),
            "draws": draws,
            **_measured(trainer, objective, run, draws),
            **_ages(trainer),
        }
    except Diverged:
        return None


def _measured(trainer: Trainer, objective: Objective, run: TheoryRun, draws: int) -> dict[str, Any]:
    moments, seen = StepMoments(trainer), _Extremes()
    alpha, momentum = moments.alpha, moments.beta1 / (1 - moments.beta1)
    point_iterates = {round(1 + i * (run.T - 1) / (run.points - 1)) for i in range(run.points)}
    at_points: list[dict[str, Any]] = []
    along: list[tuple[float, float, float]] = []
    losses: list[float] = []
    W_before = W = flat_weights(trainer.model)
    M_before, R_before, g_before = torch.zeros_like(W), None, None
    after = train_until(trainer, range(run.T + 1))
    next(after)
    for t in range(1, run.T + 1):
        F, g = objective(trainer.model)
        losses.append(F)
        if t in point_iterates:
            plain = g - moments.weight_decay * W
            at_points.append({"t": t, "F": F, **_curvature_and_bias(trainer, objective, plain, run.seed, draws)})
            at_points[-1]["gradient_inf"] = float(g.abs().max())
        if g_before is not None:
            moved = float((W - W_before).norm())
            seen.quotient = larger(seen.quotient, float((g - g_before).norm()) / moved if moved else 0.0)
        next(after)  # the step from W_t to W_{t+1}
        W_next = flat_weights(trainer.model)
        G = moments.gradient(W)
        R = moments.second(G).rsqrt()
        seen.add_gradient(g)
        seen.add_gradient(G)
        seen.nu = -larger(-seen.nu, -1 / R.max())
        seen.left += alpha * float((g * g) @ R)
        seen.squared += float(g @ g)
        jump = torch.zeros_like(R) if R_before is None else alpha * (R - R_before)
        seen.S_1 += float(jump.abs().sum())
        seen.S_2 += float(jump @ jump)
        tilde, tilde_next = W + momentum * (W - W_before), W_next + momentum * (W_next - W)
        seen.add_lemma1(tilde_next - tilde, -alpha * G * R - momentum * jump * M_before, tilde_next)
        along.append((seen.left, seen.S_1, seen.S_2))
        W_before, W, g_before = W, W_next, g
        M_before, R_before = moments.first(G), R
    return {
        "alpha": alpha,
        "beta1": moments.beta1,
        "nu_configured": moments.nu_min,
        "d": W.numel(),
        "first": losses[0],
        "seen": dataclasses.asdict(seen),
        "mean_squared": seen.squared / run.T,
        "at_points": at_points,
        "along": along,
    }


def _curvature_and_bias(
    trainer: Trainer, objective: Objective, plain: Tensor, seed: int, draws: int
) -> dict[str, float]:
    """At the trainer's weights; `plain` is `grad F` without the weight decay's part."""
    curvature = objective.curvature(trainer.model, seed=seed)
    total = torch.zeros_like(plain)
    for difference in bias_draws(trainer, plain, draws=draws):
        total += difference
    bias_inf = float((total / draws).abs().max())
    return {"rho": curvature.value, "rho_change": curvature.change, "bias_inf": bias_inf}


def _ages(trainer: Trainer) -> dict[str, Any]:
    """The ages of the histories at the end, beside the `K` epochs that Lemma 6's proof allows."""
    limit = trainer.model.num_layers * trainer.loader.steps_per_epoch
    ages = torch.cat([torch.zeros(0, dtype=torch.long), *readable_ages(trainer, readable_rows(trainer))])
    older = float((ages > limit).double().mean()) if ages.numel() else 0.0
    return {"age_limit": limit, "largest_age": max(ages.tolist(), default=0), "older": older}
