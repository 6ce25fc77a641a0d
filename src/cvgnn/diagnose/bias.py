"""The bias of a step's gradient where training with a learning rate has left weights and histories (Lemma 6).

Legend: `G(xi; Hbar)` the gradient of all training nodes with neighbor draws `xi` and histories `Hbar`; `H` the exact
representations at `W_t`; `bias = E[G] - grad F(W_t)` over batch and draws.

- A batch is drawn uniformly, so the mean of `G` over batches is `G` of all training nodes: only `xi` is random.
- With unbiased `P^`, `E G(xi; H) = grad F(W_t)`: the forward pass is exact, the backward pass linear in independent
  `P^`s. So `bias = E[G(xi; Hbar) - G(xi; H)]`, and with the same `xi` in both terms the noise shrinks with the bias.
- The last layer's gradient is `A^T dZ(A)` with an aggregated input `A` whose error has expectation zero. So its
  first-order term in `H - Hbar` has expectation zero too, and its bias is of second order; that term is noise and is
  subtracted.

All three are proven by enumeration of all draws on tiny graphs, in `tests/diagnose/test_bias.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.diagnose.gradient import FullGradient, batch_gradient, layer_slices
from cvgnn.diagnose.staleness import readable_rows as readable_rows
from cvgnn.diagnose.staleness import refresh
from cvgnn.diagnose.subject import FIRST_STEP, fresh_trainer, stops
from cvgnn.diagnose.theory import with_optimizer
from cvgnn.errors import require
from cvgnn.experiments.run import build_optimizer
from cvgnn.graph import Graph
from cvgnn.nn import ControlVariate, each_hidden
from cvgnn.training import Diverged, Trainer
from cvgnn.training.outputs import snapshot

UNBIASED = ("without-replacement", "with-replacement")

STEP = 0.01
"""For the first-order term by a central difference."""

GROUPS = 32
"""Draws are averaged in so many groups, which are kept; the mean of all is that of the groups."""

Array = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class BiasPlan:
    """What is measured for each seed.

    Args:
        lrs: learning rates, increasing.
        optimizer: whose steps make the histories stale; in the paper's form.
        burn_in: epochs as the config says, from which every learning rate starts.
        steps: with each learning rate, from exact histories on.
        draws: of the neighbors of all training nodes.
    """

    lrs: tuple[float, ...]
    optimizer: str
    burn_in: int
    steps: int
    draws: int


@final
@dataclass(frozen=True, kw_only=True)
class BiasSample:
    """What was measured with one learning rate and seed; `parts` are the layers, first to last, and all of them.

    Args:
        lr, seed: which.
        gram: `<d_i, d_j>` of the group means `d_i` whose mean is the bias, `[parts, groups, groups]`.
        largest: estimates from below of the largest entry of the bias, `[parts]`: the entry is chosen by one half of
            the groups and read from the other.
        gradient, gradient_before: `||grad F||` at `W_t`, and where this learning rate began, `[parts]`.
        mean_age, largest_age: of the history rows that training reads, in steps.
        history_error: root mean square of `H - Hbar` over these rows.
    """

    lr: float
    seed: int
    gram: Array
    largest: Array
    gradient: Array
    gradient_before: Array
    mean_age: float
    largest_age: int
    history_error: float


def check_bias(config: TrainConfig) -> None:
    """Refuse what has no bias to measure."""
    require(config.estimator != "exact", "estimator 'exact' has no bias; choose cv or ns")
    require(config.layers > 1, "a network of one layer samples nothing, so it has no bias; choose layers of at least 2")


def check_draws(trainer: Trainer) -> None:
    """Refuse a fan-out that takes in all neighbors wherever training draws some: nothing is random, nothing biased."""
    sampler = trainer.loader.sampler
    degree = sampler.propagation.indptr.long().diff()
    rows = torch.zeros(sampler.num_nodes, dtype=torch.bool)
    rows[trainer.loader.train_ids] = True
    drawn_for = [*readable_rows(trainer)[1:], rows]  # in layer k, the nodes within K - 1 - k hops of training nodes
    largest = [int(degree[nodes].max()) for nodes in drawn_for]
    alone = sampler.scheme != "released"  # which changes the weight of a node itself, with or without neighbors
    whole = sampler.scheme == "without-replacement"
    all_taken = [
        D == -1 or (alone and most == 0) or (whole and most <= D)
        for most, D in zip(largest, sampler.fan_outs, strict=True)
    ]
    require(
        not all(all_taken),
        f"num_neighbors takes in all neighbors wherever some are drawn (a node has {max(largest)} there at most), so "
        "there is no bias; choose a smaller num_neighbors",
    )


def measure_bias(shared: tuple[Graph, TrainConfig, BiasPlan], seed: int) -> list[BiasSample]:
    """One seed: burn in, then for each learning rate, up to one that diverges, train from there and measure."""
    graph, config, plan = shared
    config = dataclasses.replace(config, seed=seed)
    trainer = fresh_trainer(graph, config)
    for _ in stops(trainer, [plan.burn_in * trainer.loader.steps_per_epoch]):
        pass
    start, iterations = snapshot(trainer.model), trainer.iterations
    full = FullGradient(
        trainer.estimator.features,
        trainer.loader.sampler.propagation,
        graph.y,
        graph.train_ids,
        num_layers=config.hops + 1,
    )
    before = full(trainer.model).vector
    samples = []
    for lr in plan.lrs:
        trainer.model.load_state_dict(start)
        trainer.iterations = iterations  # so that every learning rate gets the same batches and neighbors
        refresh(trainer)
        trainer.optimizer = build_optimizer(trainer.model, with_optimizer(config, plan.optimizer, lr))
        try:
            for _ in stops(trainer, [plan.steps]):
                pass
        except Diverged:  # larger ones would, too
            break
        samples.append(_sample(trainer, graph, plan.draws, before, full(trainer.model).vector, lr, seed))
    return samples


def _sample(
    trainer: Trainer, graph: Graph, draws: int, before: Tensor, full: Tensor, lr: float, seed: int
) -> BiasSample:
    model, slices = trainer.model, [*layer_slices(trainer.model), slice(None)]
    propagation = trainer.loader.sampler.propagation
    groups = torch.zeros(min(draws, GROUPS), full.numel(), dtype=full.dtype)
    for i, difference in enumerate(bias_draws(trainer, graph.train_ids, graph.y, full, draws=draws, quiet=True)):
        groups[i % len(groups)] += difference
    groups /= torch.tensor([len(range(i, draws, len(groups))) for i in range(len(groups))], dtype=full.dtype)[:, None]
    halves = groups[0::2].mean(dim=0), groups[1::2].mean(dim=0)
    grams = [(groups[:, part] @ groups[:, part].T).numpy() for part in slices[:-1]]
    ages, errors = [], []
    if isinstance(trainer.estimator, ControlVariate):
        exact = each_hidden(model, trainer.estimator.features, propagation)
        for history, H, read in zip(trainer.estimator.histories, exact, readable_rows(trainer), strict=True):
            ages.append(history.age(trainer.iterations)[read])
            errors.append((H - history.values.to(H.dtype))[read].square().mean(dim=1))
    age = torch.cat(ages).double() if ages else torch.zeros(1)
    return BiasSample(
        lr=lr,
        seed=seed,
        gram=np.stack([*grams, np.sum(grams, axis=0)]),
        largest=np.array([_largest(halves[0][part], halves[1][part]) for part in slices]),
        gradient=np.array([float(full[part].norm()) for part in slices]),
        gradient_before=np.array([float(before[part].norm()) for part in slices]),
        mean_age=float(age.mean()),
        largest_age=int(age.max()),
        history_error=float(torch.cat(errors).mean().sqrt()) if errors else 0.0,
    )


def bias_draws(
    trainer: Trainer, ids: Tensor, labels: Tensor, full: Tensor, *, draws: int, first: int = 0, quiet: bool = False
) -> Iterator[Tensor]:
    """Independent vectors `[d]` whose expectation is the bias at the trainer's weights and histories.

    Args:
        trainer: where training left it; it is not changed.
        ids: the training nodes.
        labels: int64 `[N]`.
        full: `grad F(W_t)` without weight decay, `[d]`; used where common random numbers are not allowed.
        draws: how many.
        first: number of the first draw, for others than those of an earlier call.
        quiet: whether to subtract from the last layer's part its first-order term in `H - Hbar`, whose expectation is
            zero (up to third order times `STEP^2`) and whose noise hides the second-order bias.
    """
    model, estimator, loader = trainer.model, trainer.estimator, trainer.loader
    exact = isinstance(estimator, ControlVariate) and loader.sampler.scheme in UNBIASED
    twins = [_between(trainer, share) for share in ((0.0, STEP, -STEP) if quiet else (0.0,))] if exact else []
    last = layer_slices(model)[-1]
    for i in range(draws):
        batch = loader.batch(ids, step=FIRST_STEP + first + i)
        G = batch_gradient(model, batch, estimator, labels).vector
        others = [batch_gradient(model, batch, twin, labels).vector for twin in twins]
        G -= others[0] if others else full
        if len(others) == 3:
            G[last] -= (others[1] - others[2])[last] / (2 * STEP)
        yield G


def _between(trainer: Trainer, share: float) -> ControlVariate:
    """An estimator whose histories have gone that share of the way from the exact `H` to the trainer's `Hbar`."""
    estimator, propagation = trainer.estimator, trainer.loader.sampler.propagation
    assert isinstance(estimator, ControlVariate)
    twin = ControlVariate(estimator.features, trainer.model.hidden_widths, dtype=propagation.dtype)
    hidden = each_hidden(trainer.model, estimator.features, propagation)
    twin.initialize(H + share * (h.values - H) for H, h in zip(hidden, estimator.histories, strict=True))
    return twin


def _largest(chooses: Tensor, tells: Tensor) -> float:
    """The largest entry in absolute value, each half of the groups once choosing it and once telling it."""
    values: list[float] = []
    for a, b in ((chooses, tells), (tells, chooses)):
        j = int(a.abs().argmax())
        values.append(float(b[j] * a[j].sign()))
    return max(0.0, sum(values) / 2)
