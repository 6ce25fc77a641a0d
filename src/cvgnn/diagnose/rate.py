"""How fast `E||grad F(W_tau)||^2` falls with the number of steps (Theorems 2 to 4): the runs.

Legend: `T` iterates `W_1..W_T`, `alpha = eta / sqrt(T)`, `tau` uniform on `1..T` (Algorithm 1). The expectation over
`tau` is the mean over the iterates; it is estimated from one iterate in each of `points` equal pieces of `1..T`, which
has the same expectation as one `tau` and less noise. The trainer's own `W_tau` is measured besides.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, final

from cvgnn.config import TrainConfig
from cvgnn.diagnose.gradient import FullGradient
from cvgnn.diagnose.subject import fresh_trainer, stops
from cvgnn.diagnose.theory import with_optimizer
from cvgnn.graph import Graph
from cvgnn.rng import Purpose, numpy_generator
from cvgnn.training import Diverged, Trainer
from cvgnn.training.outputs import UniformIterate

ETAS = {"sgd": 6.4, "heavy-ball": 6.4, "adam": 0.4, "amsgrad": 0.4, "adagrad": 0.4}
"""So that a run of 64 steps has the largest learning rate of the paper's searches: 0.8 (Flickr), and 0.05 (Cora,
CiteSeer) for those that divide by the second moment. Chosen before anything was measured."""


@final
@dataclass(frozen=True, kw_only=True)
class RateRun:
    """One run of `T - 1` steps.

    Args:
        optimizer, T, seed: which.
        eta: `alpha = eta / sqrt(T)`.
        points: how many iterates are looked at.
    """

    optimizer: str
    T: int
    seed: int
    eta: float
    points: int


def iterates(T: int, points: int, seed: int) -> list[int]:
    """One of `1..T` from each of `points` equal pieces, all of them if `T` is not larger; some twice if `T` is small.

    >>> iterates(5, 8, seed=0), len(iterates(1000, 8, seed=0))
    ([1, 2, 3, 4, 5], 8)
    """
    if points >= T:
        return list(range(1, T + 1))
    shares = numpy_generator(seed, Purpose.TAU, T).random(points)
    return [1 + math.floor((i + share) * T / points) for i, share in enumerate(shares)]


def measure_rate(shared: tuple[Graph, TrainConfig], run: RateRun) -> dict[str, Any]:
    """One run: the squared norms of exact gradients along it, and what else is worth knowing.

    Returns:
        `squared` at `iterates` and their `mean`; `at_tau`, of the trainer's own `W_tau`; `first` and `last`, `F` at
        `W_1` and at the last iterate looked at, which is in the last of the pieces and not always `W_T`; `mean` is None
        for a run that diverged.
    """
    graph, config = shared
    lr = run.eta / math.sqrt(run.T)
    config = dataclasses.replace(with_optimizer(config, run.optimizer, lr), seed=run.seed)
    trainer = fresh_trainer(graph, config)
    trainer.tau = UniformIterate(run.seed)
    trainer.tau.offer(1, trainer.model)
    full = exact_gradient(trainer, graph, config)
    wanted = iterates(run.T, run.points, run.seed)
    out: dict[str, Any] = {**dataclasses.asdict(run), "lr": lr, "iterates": wanted}
    squared: list[float] = []
    losses = [full(trainer.model).loss]
    try:
        for done in stops(trainer, [*(t - 1 for t in wanted), run.T - 1]):
            if done + 1 in wanted:
                F, gradient = full(trainer.model)
                squared += [float(gradient @ gradient)] * wanted.count(done + 1)  # two pieces may share an iterate
                losses.append(F)
    except Diverged as error:
        return {**out, "squared": [], "mean": None, "at_tau": None, "tau": None, "diverged": str(error)}
    assert trainer.tau.weights is not None
    trainer.model.load_state_dict(trainer.tau.weights)
    gradient = full(trainer.model).vector
    return {
        **out,
        "squared": squared,
        "mean": sum(squared) / len(squared),
        "at_tau": float(gradient @ gradient),
        "tau": trainer.tau.tau,
        "first": losses[0],
        "last": losses[-1],
    }


def exact_gradient(trainer: Trainer, graph: Graph, config: TrainConfig) -> FullGradient:
    """`grad F` for a trainer's network, the weight decay's part included."""
    return FullGradient(
        trainer.estimator.features,
        trainer.loader.sampler.propagation,
        graph.y,
        graph.train_ids,
        num_layers=config.hops + 1,
        weight_decay=config.weight_decay,
    )
