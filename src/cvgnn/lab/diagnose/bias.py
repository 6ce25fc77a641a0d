"""The bias of a step's gradient where training with a learning rate has left weights and histories (Lemma 6).

Legend: `G(xi; Hbar)` the gradient of all training nodes with neighbor draws `xi` and histories `Hbar`; `H` the exact
representations at `W_t`; `bias = E[G] - grad F(W_t)` over batch and draws.

- A batch is drawn uniformly, so the mean of `G` over batches is `G` of all training nodes: only `xi` is random.
- With unbiased `P^`, `E G(xi; H) = grad F(W_t)`: the forward pass is exact, the backward pass linear in independent
  `P^`s. So `bias = E[G(xi; Hbar) - G(xi; H)]`, and with the same `xi` in both terms the noise shrinks with the bias.
- The last layer's gradient is `A^T dZ(A)` with an aggregated input `A` whose error has expectation zero. So its
  first-order term in `H - Hbar` has expectation zero too, and its bias is of second order; that term is noise and is
  subtracted.

All three are proven by enumeration of all draws on tiny graphs, in `tests/lab/diagnose/test_bias.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import require
from cvgnn.lab.diagnose.gradient import Objective, batch_gradient, layer_slices
from cvgnn.lab.diagnose.theory import with_optimizer
from cvgnn.lab.diagnose.trainers import FIRST_STEP, fresh_trainer, readable_ages, readable_rows, refresh, train_until
from cvgnn.nn import ControlVariate, each_hidden
from cvgnn.training import Diverged, Trainer
from cvgnn.training.outputs import snapshot
from cvgnn.training.trainer_builder import build_optimizer

UNBIASED = ("without-replacement", "with-replacement")

STEP = 0.01
"""Of the central difference for the first-order term."""

GROUPS = 32
"""Draws are averaged in this many groups, which are kept; the mean of all draws is that of the groups."""


@final
@dataclass(frozen=True, kw_only=True)
class BiasPlan:
    """What to measure for each seed.

    Args:
        lrs: learning rates, increasing.
        optimizer: its steps make the histories stale; in the paper's form.
        burn_in: epochs as the config says, from which every learning rate starts.
        steps: with each learning rate, starting with exact histories.
        draws: of the neighbors of all training nodes.
    """

    lrs: tuple[float, ...]
    optimizer: str
    burn_in: int
    steps: int
    draws: int


BiasSample = dict[str, Any]
"""The measurement with one learning rate and seed; see `sample_bias`."""


def check_draws(trainer: Trainer) -> None:
    """Refuse a fan-out that includes all neighbors wherever training draws some: nothing is random, nothing biased."""
    sampler = trainer.loader.sampler
    degree = sampler.propagation.indptr.long().diff()
    rows = torch.zeros(sampler.num_nodes, dtype=torch.bool)
    rows[trainer.loader.train_ids] = True
    drawn_for = [*readable_rows(trainer)[1:], rows]  # in layer k, the nodes within K - 1 - k hops of training nodes
    largest = [int(degree[nodes].max()) for nodes in drawn_for]
    alone = sampler.scheme != "released"  # which changes the weight of a node itself, with or without neighbors
    whole = sampler.scheme == "without-replacement"
    require(
        not all(
            D == -1 or (alone and most == 0) or (whole and most <= D)
            for most, D in zip(largest, sampler.fan_outs, strict=True)
        ),
        f"num_neighbors includes all neighbors wherever some are drawn (a node has at most {max(largest)} there), so "
        "there is no bias; choose a smaller num_neighbors",
    )


def measure_bias(shared: tuple[Graph, TrainConfig, BiasPlan], seed: int) -> list[BiasSample]:
    """One seed: burn in, then for each learning rate, up to one that diverges, train from there and measure."""
    graph, config, plan = shared
    config = dataclasses.replace(config, seed=seed)
    trainer = fresh_trainer(graph, config)
    list(train_until(trainer, [plan.burn_in * trainer.loader.steps_per_epoch]))
    start, iterations = snapshot(trainer.model), trainer.iterations
    objective = Objective(trainer)
    before = objective(trainer.model).vector
    samples = []
    for lr in plan.lrs:
        trainer.model.load_state_dict(start)
        trainer.iterations = iterations  # so that every learning rate gets the same batches and neighbors
        refresh(trainer)
        trainer.optimizer = build_optimizer(trainer.model, with_optimizer(config, plan.optimizer, lr))
        try:
            list(train_until(trainer, [plan.steps]))
        except Diverged:  # larger ones would, too
            break
        full = objective(trainer.model).vector
        samples.append({"lr": lr, "seed": seed, **sample_bias(trainer, plan.draws, before, full)})
    return samples


def sample_bias(trainer: Trainer, draws: int, before: Tensor, full: Tensor) -> BiasSample:
    """The bias at the trainer's weights and histories, for each of the `parts`: the layers, first to last, and all.

    Args:
        trainer: it is not changed.
        draws: of the neighbors of all training nodes.
        before, full: `grad F` at the start of this learning rate, and at `W_t`, `[d]`.

    Returns:
        `gram`, `<d_i, d_j>` of the group means `d_i` whose mean is the bias, `[parts, groups, groups]`; `largest`,
        estimates from below of the largest entry of the bias, `[parts]`: the entry is chosen by one half of the groups
        and read from the other; `gradient` and `gradient_before`, `||grad F||`, `[parts]`; `mean_age` and `largest_age`
        of the history rows that training reads, in steps; `history_error`, the root mean square of `H - Hbar` over
        these rows.
    """
    slices = [*layer_slices(trainer.model), slice(None)]
    groups = torch.zeros(min(draws, GROUPS), full.numel(), dtype=full.dtype)
    for i, difference in enumerate(bias_draws(trainer, full, draws=draws, subtract_noise=True)):
        groups[i % len(groups)] += difference
    groups /= torch.tensor([len(range(i, draws, len(groups))) for i in range(len(groups))], dtype=full.dtype)[:, None]
    halves = groups[0::2].mean(dim=0), groups[1::2].mean(dim=0)
    grams = [(groups[:, part] @ groups[:, part].T).numpy() for part in slices[:-1]]
    rows, estimator = readable_rows(trainer), trainer.estimator
    errors = torch.zeros(1, dtype=torch.float64)
    if isinstance(estimator, ControlVariate):
        exact = each_hidden(trainer.model, estimator.features, trainer.loader.sampler.propagation)
        layers = zip(estimator.histories, exact, rows, strict=True)
        errors = torch.cat([(H - h.values.to(H.dtype))[read].square().mean(dim=1) for h, H, read in layers])
    age = torch.cat(readable_ages(trainer, rows) or [torch.zeros(1)]).double()
    return {
        "gram": np.stack([*grams, np.sum(grams, axis=0)]),
        "largest": np.array([_largest(halves[0][part], halves[1][part]) for part in slices]),
        "gradient": np.array([float(full[part].norm()) for part in slices]),
        "gradient_before": np.array([float(before[part].norm()) for part in slices]),
        "mean_age": float(age.mean()),
        "largest_age": int(age.max()),
        "history_error": float(errors.mean().sqrt()),
    }


def bias_draws(trainer: Trainer, full: Tensor, *, draws: int, subtract_noise: bool = False) -> Iterator[Tensor]:
    """Independent vectors `[d]` whose expectation is the bias at the trainer's weights and histories.

    Args:
        trainer: it is not changed.
        full: `grad F(W_t)` without weight decay, `[d]`; used where common random numbers are not allowed.
        draws: how many.
        subtract_noise: whether to subtract from the last layer's part its first-order term in `H - Hbar`, whose
            expectation is zero (up to third order times `STEP^2`) and whose noise hides the second-order bias.
    """
    model, estimator, loader = trainer.model, trainer.estimator, trainer.loader
    exact = isinstance(estimator, ControlVariate) and loader.sampler.scheme in UNBIASED
    shares = (0.0, STEP, -STEP) if subtract_noise else (0.0,)
    twins = [_between(trainer, share) for share in shares] if exact else []
    last = layer_slices(model)[-1]
    for i in range(draws):
        batch = loader.batch(loader.train_ids, step=FIRST_STEP + i)
        G, *others = (batch_gradient(model, batch, e, trainer.task).vector for e in (estimator, *twins))
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


def _largest(one: Tensor, other: Tensor) -> float:
    """The largest entry in absolute value; each half of the groups once chooses it and once gives its value."""
    values = [float(b[j] * a[j].sign()) for a, b in ((one, other), (other, one)) for j in (int(a.abs().argmax()),)]
    return max(0.0, sum(values) / 2)
