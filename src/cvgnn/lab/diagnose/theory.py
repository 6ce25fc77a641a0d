"""Algorithm 1 as the paper's theory knows it: runs for `bias-vs-lr`, `rate` and `bound`, and Theorems 1 to 4.

Legend, the paper's letters:

    rho              Lipschitz constant of `grad F` (Assumption 1)
    nu_min           `V_t >= nu_min^2` in every entry (Assumption 2)
    H_F, H_inf, H_1  bounds of the Frobenius norm, the largest entry and the sum of entries of gradients (Assumption 3)
    beta1, d         momentum, number of parameters
    C                Lemma 6: `||E delta||_inf <= C alpha / nu_min H_inf`
    S_1, S_2         `E sum_{i>=2} ||alpha/sqrt(V_i) - alpha/sqrt(V_{i-1})||`, the 1-norm and the squared 2-norm
    gap              `E[F(W_1) - F*]`

Theorems 2 and 4 divide Theorem 1 by the largest `sqrt(V_t)`. The paper puts `H_inf` for it, which leaves out that `V_t`
is bounded from below: the bound of Assumption 2 is in it here, as the optimizers have it (docs/diagnose_theory.md).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, final

import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.data import Graph, Propagation
from cvgnn.errors import CvgnnError, require, require_integer, require_known, require_number
from cvgnn.lab.diagnose.gradient import Objective
from cvgnn.lab.diagnose.trainers import fresh_trainer, in_float64
from cvgnn.limits import MAX_EPOCHS
from cvgnn.optim import OPTIMIZERS, AdamType, ExponentialAverage, Mean, Momentum, Ones, RunningMaximum
from cvgnn.sampling import propagate_features
from cvgnn.sampling.features import DenseSource, SparseSource
from cvgnn.training import Trainer

ETAS = {"sgd": 6.4, "heavy-ball": 6.4, "adam": 0.4, "amsgrad": 0.4, "adagrad": 0.4}
"""With these a run of 64 steps has the largest learning rate of the paper's searches: 0.8 (Flickr), and 0.05 (Cora,
CiteSeer) for those that divide by the second moment. Chosen before anything was measured."""

Arguments = ParamSpec("Arguments")

_MOST = {"seeds": 1000, "draws": 10_000, "points": 10_000}


@final
@dataclass(frozen=True, kw_only=True)
class TheoryRun:
    """One run of Algorithm 1.

    Args:
        optimizer, T, seed: which; `T` iterates `W_1..W_T`.
        eta: `alpha = eta / sqrt(T)`.
        points: number of iterates at which to measure.
    """

    optimizer: str
    T: int
    seed: int
    eta: float
    points: int

    @property
    def alpha(self) -> float:
        """The learning rate."""
        return self.eta / math.sqrt(self.T)

    def start(self, graph: Graph, config: TrainConfig) -> tuple[Trainer, Objective]:
        """The trainer of this run before its first step, and `F` with the weight decay's part."""
        config = dataclasses.replace(with_optimizer(config, self.optimizer, self.alpha), seed=self.seed)
        trainer = fresh_trainer(graph, config)
        return trainer, Objective(trainer, weight_decay=config.weight_decay)


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


def plan_runs(
    graph: Graph,
    config: TrainConfig,
    *,
    optimizers: Sequence[str],
    lengths: Sequence[int],
    etas: Mapping[str, float] | float | None,
    seeds: int,
    points: int,
    fewest_points: int,
) -> tuple[tuple[Graph, TrainConfig], list[TheoryRun], dict[str, Any]]:
    """Check the arguments of `diagnose_rate` and `diagnose_bound`, and list their runs.

    Returns:
        The graph and the config, prepared for the theory; the runs in the order optimizer, length, seed; the settings
        that a diagnosis records of them.
    """
    require(len(optimizers) > 0, f"name at least one optimizer: {', '.join(OPTIMIZERS)}")
    for name in optimizers:
        require_known("optimizer", name, OPTIMIZERS)
    optimizers = list(dict.fromkeys(optimizers))
    require(config.layers > 1, "a network of one layer samples nothing; choose layers of at least 2")
    for T in lengths:
        require_integer("steps", T, at_least=2, at_most=MAX_EPOCHS)
    increasing = all(a < b for a, b in itertools.pairwise(lengths))
    require(increasing, f"steps must be in increasing order, not {list(lengths)}")
    require_count("seeds", seeds)
    require_count("points", points, at_least=fewest_points)
    given = etas or {} if isinstance(etas, Mapping | None) else dict.fromkeys(optimizers, etas)
    eta = default_etas(lengths[0]) | dict(given)
    for name in optimizers:
        require_number(f"eta of {name}", eta[name], "a number above 0", above=0.0)
    config = dataclasses.replace(as_in_theory(config), batches="replacement")
    chosen = [config.seed + i for i in range(seeds)]
    runs = [
        TheoryRun(optimizer=name, T=T, seed=seed, eta=eta[name], points=points)
        for name in optimizers
        for T in lengths
        for seed in chosen
    ]
    settings = {
        "config": config.to_dict(),
        "optimizers": optimizers,
        "etas": {name: eta[name] for name in optimizers},
        "seeds": chosen,
        "points": points,
    }
    return (prepared(graph, config), config), runs, settings


def default_etas(shortest: int) -> dict[str, float]:
    """`eta` for each optimizer such that a run of the shortest length has the learning rate `ETAS` has at 64 steps."""
    return {name: eta * math.sqrt(shortest / 64) for name, eta in ETAS.items()}


def require_count(name: str, number: int, *, at_least: int = 1) -> int:
    """The number of seeds, draws or points, if it is in the range that ends in reasonable time.

    >>> require_count("seeds", 5)
    5
    """
    return require_integer(name, number, at_least=at_least, at_most=_MOST[name])


def as_in_theory(config: TrainConfig) -> TrainConfig:
    """The config without what the paper's theory does not cover: dropout, schedules, clipped gradients, rounding,
    skipped steps; and without smoothed labels, so that `F` is the plain cross entropy."""
    return dataclasses.replace(
        config,
        dropout=0.0,
        input_dropout=0.0,
        schedule="constant",
        patience=0,
        clip_norm=None,
        bad_step="stop",
        label_smoothing=0.0,
        history_dtype="float32",
        feature_dtype="float32",
        output="last",
    )


def prepared(graph: Graph, config: TrainConfig) -> Graph:
    """The graph in float64, with `P X`, so that its runs need not compute that each."""
    graph = in_float64(graph)
    if config.feature_norm != "none":
        return graph  # a graph can only hold `P X` of its plain features
    features = propagate_features(graph, Propagation(graph, normalization=config.aggregation))
    assert isinstance(features, DenseSource | SparseSource)
    return dataclasses.replace(graph, PX=features.PX, PX_normalization=config.aggregation, validated=True)


def with_optimizer(config: TrainConfig, name: str, lr: float) -> TrainConfig:
    """The config with an optimizer in the paper's form, and those of its constants that the optimizer has."""
    return dataclasses.replace(
        config,
        optimizer=name,  # type: ignore[arg-type]
        form="paper",
        lr=lr,
        beta1=config.beta1 if name != "sgd" else None,
        beta2=config.beta2 if name in ("adam", "amsgrad") else None,
        nu_min=config.nu_min if name not in ("sgd", "heavy-ball") else None,
    )


def _or_infinite(formula: Callable[Arguments, float]) -> Callable[Arguments, float]:
    """The formula, infinite where Python would raise: a power too large for a float, a `nu_min` whose square is 0."""

    @wraps(formula)
    def value(*args: Arguments.args, **kwargs: Arguments.kwargs) -> float:
        try:
            return formula(*args, **kwargs)
        except (OverflowError, ZeroDivisionError):
            return math.inf

    return value


@final
@dataclass(frozen=True, kw_only=True)
class Constants:
    """The quantities that Theorem 1's constants depend on; see the legend.

    >>> c = Constants(rho=1.0, nu_min=1.0, H_F=2.0, H_inf=1.0, H_1=3.0, beta1=0.5, C=1.0, d=10)
    >>> c.C_1, c.C_2, c.C_3, c.C_4
    (3.0, 1.0, 11.0, 3.0)
    """

    rho: float
    nu_min: float
    H_F: float
    H_inf: float
    H_1: float
    beta1: float
    C: float
    d: int

    @property
    def momentum(self) -> float:
        """`beta1 / (1 - beta1)`."""
        return self.beta1 / (1 - self.beta1)

    @property
    @_or_infinite
    def C_1(self) -> float:
        """The factor of `S_1`."""
        return self.H_inf**2 * self.momentum + 2 * self.H_inf**2

    @property
    @_or_infinite
    def C_2(self) -> float:
        """The factor of `S_2`."""
        return self.rho * self.momentum**2 * self.H_inf**2

    @property
    @_or_infinite
    def C_3(self) -> float:
        """The factor of `alpha^2 T`."""
        smooth = self.rho * self.H_F**2 + 0.5 * self.H_F**2 * (self.rho**2 * self.momentum**2 + 1)
        return (smooth + self.C * self.H_1 * self.H_inf) / self.nu_min**2

    @property
    @_or_infinite
    def C_4(self) -> float:
        """The factor of `alpha`, as printed; the proof needs twice that (docs/diagnose_theory.md)."""
        return self.H_1 * self.H_inf / self.nu_min

    @_or_infinite
    def theorem1(self, *, alpha: float, T: int, S_1: float, S_2: float, gap: float) -> float:
        """Bound of `E sum_{i<=T} alpha <grad F(W_i), grad F(W_i) / sqrt(V_i)>`."""
        return self.C_1 * S_1 + self.C_2 * S_2 + self.C_3 * alpha**2 * T + self.C_4 * alpha + gap

    @_or_infinite
    def theorem2(self, *, eta: float, T: int, gap: float) -> float:
        """AMSGrad, `sqrt(V_t) <= max(H_inf, nu_min)`: bound of `E||grad F(W_tau)||^2`."""
        root = max(self.H_inf, self.nu_min)
        return root * ((self.C_1 * self.d / self.nu_min + self.C_4) / T + self._slow(eta, T, gap))

    @_or_infinite
    def theorem3(self, *, eta: float, T: int, gap: float) -> float:
        """SGD and heavy-ball: bound of `E||grad F(W_tau)||^2`."""
        return self.C_4 / T + (self.C_3 * eta + gap / eta) / math.sqrt(T)

    @_or_infinite
    def theorem4(self, *, eta: float, T: int, gap: float) -> float:
        """AdaGrad, `V_t <= H_inf^2 + nu_min^2`: bound of `E||grad F(W_tau)||^2`."""
        root = math.hypot(self.H_inf, self.nu_min)
        fast = math.log(T) / T * self.C_1 * self.d * self.H_inf**2 / self.nu_min**3 + self.C_4 / T
        return root * (fast + self._slow(eta, T, gap))

    def _slow(self, eta: float, T: int, gap: float) -> float:
        """The term of order `1 / sqrt(T)` in Theorems 2 and 4, without the bound of `sqrt(V_t)`."""
        parts = self.C_2 * eta * self.d / self.nu_min**2 + self.C_3 * eta + gap / eta
        return parts / math.sqrt(T)


THEOREMS = {"sgd": 3, "heavy-ball": 3, "amsgrad": 2, "adagrad": 4}
"""The theorem about each optimizer; there is none about Adam."""


def theorem(constants: Constants, optimizer: str, *, eta: float, T: int, gap: float) -> float | None:
    """The right-hand side of the optimizer's theorem; None for Adam."""
    bounds = {2: constants.theorem2, 3: constants.theorem3, 4: constants.theorem4}
    return bounds[THEOREMS[optimizer]](eta=eta, T=T, gap=gap) if optimizer in THEOREMS else None
