"""`diagnose_bias`: how the gradient's bias grows with the learning rate, beside Lemma 6's O(alpha)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from cvgnn.config import TrainConfig
from cvgnn.diagnose.bias import UNBIASED, BiasPlan, BiasSample, check_bias, check_draws, measure_bias
from cvgnn.diagnose.bias_views import Mask, Part, data, figure, points_table, slopes_table, verdict
from cvgnn.diagnose.record import Diagnosis
from cvgnn.diagnose.slopes import (
    RESAMPLES,
    Array,
    Estimate,
    interval,
    log_curvature,
    log_slope,
    resampled,
    squared_norm,
)
from cvgnn.diagnose.staleness import steps_to_refresh
from cvgnn.diagnose.subject import fresh_trainer
from cvgnn.diagnose.theory import as_in_theory, prepared, require_count
from cvgnn.diagnose.workers import Tell, measure_all, silent
from cvgnn.errors import require, require_integer, require_number, unknown_name
from cvgnn.graph import Graph
from cvgnn.limits import MAX_EPOCHS
from cvgnn.optim import OPTIMIZERS
from cvgnn.rng import Purpose, numpy_generator

LRS = tuple(10 ** (-5 + i / 2) for i in range(9))  # 1e-5 .. 1e-1
LINEAR = 0.1
"""Up to which change of `||grad F||` over the steps a learning rate belongs to the linear range: the lemma's constants
are those of one place, so learning rates are compared that end at much the same place."""

_SHARE, _MOST_STEPS, _MOST_LRS = 0.95, 2000, 100
_DRAWS_TIMES_NODES, _FEWEST_DRAWS, _MOST_DRAWS = 20_000, 16, 128


def diagnose_bias(
    graph: Graph,
    config: TrainConfig,
    *,
    lrs: Sequence[float] = LRS,
    optimizer: str = "sgd",
    seeds: int = 5,
    draws: int | None = None,
    steps: int | None = None,
    burn_in: int = 5,
    workers: int = 1,
    tell: Tell = silent,
) -> Diagnosis:
    """Measure the bias of the gradient after training with each of several learning rates.

    For each seed: train `burn_in` epochs as `config` says, without dropout. From there, for each learning rate, with
    exact histories and the same batches and neighbors, take `steps` steps of `optimizer` in the paper's form; then
    measure `||E[G] - grad F(W_t)||`. The fit of the verdict is over the linear range (see `LINEAR`).

    Args:
        graph: what to train on.
        config: how to train; its seed is the first one.
        lrs: learning rates, increasing, at least two.
        optimizer: whose steps make the histories stale.
        seeds: how many.
        draws: of the neighbors; if not given, so many that draws times training nodes is 20,000, at least 16 and at
            most 128.
        steps: if not given, so many that 95 % of the history rows that training reads have been written by the first
            seed's draws, 2,000 at most.
        burn_in: epochs before.
        workers: processes; the numbers do not depend on it.
        tell: told of progress.
    """
    check_bias(config)
    if optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS)
    for lr in lrs:
        require_number("lr", lr, "a number above 0", above=0.0)
    require(
        1 < len(lrs) <= _MOST_LRS and all(a < b for a, b in itertools.pairwise(lrs)),
        f"lrs must be two to {_MOST_LRS} learning rates in increasing order, not {list(lrs[:10])}",
    )
    require_count("seeds", seeds)
    require_integer("burn_in", burn_in, at_least=0, at_most=MAX_EPOCHS)
    graph, config = prepared(graph, config), as_in_theory(config)
    nodes = graph.train_ids.numel()
    draws = max(_FEWEST_DRAWS, min(_MOST_DRAWS, _DRAWS_TIMES_NODES // nodes)) if draws is None else draws
    require_count("draws", draws, at_least=4)
    share, most = _SHARE, _MOST_STEPS
    if steps is not None:
        share, most = 2.0, require_integer("steps", steps, at_least=1, at_most=MAX_EPOCHS)
    first = fresh_trainer(graph, config)
    check_draws(first)
    steps, reached = steps_to_refresh(first, share=share, most=most)
    plan = BiasPlan(lrs=tuple(lrs), optimizer=optimizer, burn_in=burn_in, steps=steps, draws=draws)
    chosen = [config.seed + i for i in range(seeds)]
    samples = measure_all(
        measure_bias, (graph, config, plan), chosen, workers=workers, tell=tell, what="measuring the bias"
    )
    whole = min(map(len, samples))  # what diverged with one seed is left out for all
    require(
        whole > 1, f"training diverged with lr = {lrs[min(whole, 1)]:g}, so no two learning rates are left; lower lrs"
    )
    found = _diagnosis(
        graph, config, dataclasses.replace(plan, lrs=plan.lrs[:whole]), [seed[:whole] for seed in samples], reached
    )
    if whole == len(lrs):
        return found
    left_out = f" Training diverged with lr = {lrs[whole]:g}: from there on nothing is measured."
    settings = {**found.settings, "diverged": list(lrs[whole:])}
    return dataclasses.replace(found, verdict=found.verdict + left_out, settings=settings)


def _diagnosis(
    graph: Graph, config: TrainConfig, plan: BiasPlan, samples: list[list[BiasSample]], reached: float
) -> Diagnosis:
    lrs, K = np.array(plan.lrs), config.layers
    uncovered = _uncovered(config)
    order = 1 if uncovered is None else 0
    change = np.array([[_change(s) for s in seed] for seed in samples]).mean(axis=0)
    linear = np.cumprod(change < LINEAR).astype(bool)
    rng = numpy_generator(config.seed, Purpose.SPLIT, plan.draws, len(samples))
    groups = samples[0][0].gram.shape[-1]
    shares = np.full(groups, 1 / groups)
    counts = [rng.multinomial(groups, shares, size=RESAMPLES).astype(float) for _ in samples]  # draws of each seed
    seeds = rng.integers(0, len(samples), size=(RESAMPLES, len(samples)))
    names = [*(f"layer {k}" for k in range(K)), "all"]
    parts = []
    for i, name in enumerate(names):
        value = np.array([[squared_norm(s.gram[i])[0] for s in seed] for seed in samples])  # [seeds, lrs]
        again = np.array(
            [[squared_norm(s.gram[i], c) for s in seed] for c, seed in zip(counts, samples, strict=True)]
        )  # [seeds, lrs, B]
        mixed = again[seeds.T, :, np.arange(RESAMPLES)].mean(axis=0)  # [B, lrs]: seeds drawn anew, draws in them too
        parts.append(_part(name, order * (2 if i == K - 1 else 1), lrs, linear, value.mean(axis=0), mixed, samples, i))
    found = verdict(parts, linear, change, lrs, plan, len(samples), uncovered=uncovered)
    if not any(s.gram.any() for seed in samples for s in seed):
        found = "The bias is exactly 0 with every learning rate: no draw has changed the gradient."
    return Diagnosis(
        kind="bias-vs-lr",
        dataset=graph.name,
        settings={
            "config": config.to_dict(),
            **dataclasses.asdict(plan),
            "seeds": [seed[0].seed for seed in samples],
            "resamples": RESAMPLES,
            "linear_range": LINEAR,
            "rows_refreshed": reached,
        },
        verdict=found,
        tables=[slopes_table(parts, plan, len(samples)), points_table(parts[-1], lrs, linear, change, samples)],
        figures=[figure(parts, lrs, linear)],
        data=data(parts, lrs, linear, change, samples),
    )


def _uncovered(config: TrainConfig) -> str | None:
    """What Lemma 6 does not speak of, in words, if the config has it."""
    if config.estimator != "cv":
        return f"the estimator {config.estimator}"
    return None if config.scheme in UNBIASED else f"the scheme {config.scheme}"


def _change(sample: BiasSample) -> float:
    """By which share the steps have changed `||grad F||`; infinite where it was 0 and is not."""
    before, after = float(sample.gradient_before[-1]), float(sample.gradient[-1])
    if before == 0:
        return 0.0 if after == 0 else float("inf")
    return abs(after / before - 1)


def _part(
    name: str,
    predicted: int,
    lrs: Array,
    linear: Mask,
    squares: Array,
    mixed: Array,
    samples: list[list[BiasSample]],
    i: int,
) -> Part:
    norms, roots = [], np.sqrt(np.maximum(mixed, 0.0))
    for j, square in enumerate(squares):
        norms.append(resampled(float(np.sqrt(max(square, 0.0))), roots[:, j], size=len(samples), positive=True))
    resolved = np.array([norm.value > 0 and interval(roots[:, j])[0] > 0 for j, norm in enumerate(norms)])

    def slope(chosen: Mask) -> Estimate:
        use = chosen & resolved
        if use.sum() < 2:
            return Estimate(value=float("nan"), low=float("nan"), high=float("nan"))
        values = [0.5 * log_slope(lrs[use], row) for row in mixed[:, use]]
        return resampled(0.5 * log_slope(lrs[use], squares[use]), values, size=len(samples))

    return Part(
        name,
        predicted,
        norms,
        resolved,
        np.array([[s.largest[i] for s in seed] for seed in samples]).mean(axis=0),
        slope(linear),
        slope(np.ones(len(lrs), dtype=bool)),
        0.5 * log_curvature(lrs[resolved], squares[resolved]),
    )
