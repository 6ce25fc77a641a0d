"""`diagnose_rate`: how `E||grad F(W_tau)||^2` falls with the number of steps, beside Theorems 2 to 4."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cvgnn.config import TrainConfig
from cvgnn.diagnose.constants import THEOREMS
from cvgnn.diagnose.rate import ETAS, RateRun, measure_rate
from cvgnn.diagnose.rate_views import Course, figures, runs_table, slopes_table, verdict
from cvgnn.diagnose.record import Diagnosis
from cvgnn.diagnose.slopes import RESAMPLES, Array, bootstrap, log_slope, nonnegative_fit, slope_estimate
from cvgnn.diagnose.theory import as_in_theory, known_optimizers, prepared, require_count
from cvgnn.diagnose.workers import Tell, measure_all, silent
from cvgnn.errors import require, require_integer, require_number
from cvgnn.graph import Graph
from cvgnn.limits import MAX_EPOCHS
from cvgnn.optim import OPTIMIZERS
from cvgnn.rng import Purpose, numpy_generator

STEPS = (128, 256, 512, 1024, 2048)
POINTS = 16


def diagnose_rate(
    graph: Graph,
    config: TrainConfig,
    *,
    optimizers: Sequence[str] = OPTIMIZERS,
    steps: Sequence[int] = STEPS,
    etas: Mapping[str, float] | None = None,
    seeds: int = 5,
    points: int = POINTS,
    workers: int = 1,
    tell: Tell = silent,
) -> Diagnosis:
    """Train with each optimizer for several lengths `T` and `alpha = eta / sqrt(T)`, and fit the slope.

    Algorithm 1 to the letter: fresh weights, batches drawn with replacement, the optimizers in the paper's form,
    without dropout. `E||grad F(W_tau)||^2` is the mean over one iterate in each of `points` equal pieces of `1..T`.

    Args:
        graph: what to train on.
        config: how to train; its seed is the first one.
        optimizers: which.
        steps: the lengths `T`, increasing, at least three.
        etas: `eta` for each optimizer; `cvgnn.diagnose.rate.ETAS` scaled so that the shortest run begins with the
            same learning rate, if not given.
        seeds: how many.
        points: iterates of each run at which the exact gradient is computed.
        workers: processes; the numbers do not depend on it.
        tell: told of progress.
    """
    optimizers = known_optimizers(optimizers)
    require(config.layers > 1, "a network of one layer samples nothing; choose layers of at least 2")
    for T in steps:
        require_integer("steps", T, at_least=2, at_most=MAX_EPOCHS)
    require(
        len(steps) > 2 and all(a < b for a, b in itertools.pairwise(steps)),
        f"steps must be at least three lengths of runs in increasing order, not {list(steps)}",
    )
    require_count("seeds", seeds)
    require_count("points", points)
    chosen = default_etas(steps[0]) | dict(etas or {})
    for name in optimizers:
        require_number(f"eta of {name}", chosen[name], "a number above 0", above=0.0)
    graph, config = prepared(graph, config), dataclasses.replace(as_in_theory(config), batches="replacement")
    runs = [
        RateRun(optimizer=name, T=T, seed=config.seed + i, eta=chosen[name], points=points)
        for name in optimizers
        for T in steps
        for i in range(seeds)
    ]
    found = measure_all(
        measure_rate, (graph, config), runs, workers=workers, tell=tell, what="training", cost=lambda run: run.T
    )
    courses = [_course(name, steps, [r for r in found if r["optimizer"] == name], config.seed) for name in optimizers]
    return Diagnosis(
        kind="rate",
        dataset=graph.name,
        settings={
            "config": config.to_dict(),
            "optimizers": list(optimizers),
            "steps": list(steps),
            "etas": {name: chosen[name] for name in optimizers},
            "seeds": [config.seed + i for i in range(seeds)],
            "points": points,
            "resamples": RESAMPLES,
        },
        verdict=verdict(courses),
        tables=[slopes_table(courses, seeds), runs_table(courses)],
        figures=figures(courses),
        data={"courses": [course.to_dict() for course in courses], "runs": found},
    )


def default_etas(shortest: int) -> dict[str, float]:
    """`eta` for each optimizer such that a run of the shortest length has the learning rate `ETAS` has at 64 steps."""
    return {name: eta * math.sqrt(shortest / 64) for name, eta in ETAS.items()}


def _course(name: str, steps: Sequence[int], runs: list[dict[str, Any]], seed: int) -> Course:
    """What the runs of one optimizer say together; a length at which one diverged is left out."""
    by_length = {T: sorted((r for r in runs if r["T"] == T), key=lambda r: int(r["seed"])) for T in steps}
    whole = [T for T in steps if all(r["mean"] is not None for r in by_length[T])]
    lengths = np.array(whole, dtype=np.float64)
    squared = np.array([[r["mean"] for r in by_length[T]] for T in whole], dtype=np.float64).T  # [seeds, lengths]
    rng = numpy_generator(seed, Purpose.SPLIT, *map(ord, name))
    upper = slice(len(whole) // 2, None)
    enough = len(whole) > 1
    return Course(
        name=name,
        theorem=THEOREMS.get(name),
        eta=float(runs[0]["eta"]),
        lengths=whole,
        diverged=[T for T in steps if T not in whole],
        squared=squared,
        at_tau=np.array([[r["at_tau"] for r in by_length[T]] for T in whole]).T,
        first=np.array([[r["first"] for r in by_length[T]] for T in whole]).T,
        last=np.array([[r["last"] for r in by_length[T]] for T in whole]).T,
        slope=slope_estimate(lengths.tolist(), squared, rng) if enough else None,
        tail=slope_estimate(lengths[upper].tolist(), squared[:, upper], rng) if len(whole) > 3 else None,
        means=[
            bootstrap(lambda c, j=j: float(squared[c, j].mean()), len(squared), rng, positive=True)  # type: ignore[misc]
            for j in range(len(whole))
        ],
        local=[log_slope(lengths[j : j + 2], squared[:, j : j + 2].mean(axis=0)) for j in range(len(whole) - 1)],
        two_terms=_two_terms(lengths, squared) if name == "adagrad" and enough else None,
    )


def _two_terms(lengths: Array, squared: Array) -> tuple[float, float, float] | None:
    """`a log(T)/T + b/sqrt(T)` fitted with `a, b >= 0`: `a`, `b`, and the largest relative deviation of a point.

    None where a gradient is 0 or infinite, which such a sum is not.
    """
    columns = np.stack([np.log(lengths) / lengths, 1 / np.sqrt(lengths)], axis=1)
    means = squared.mean(axis=0)
    if not (np.isfinite(means) & (means > 0)).all():
        return None
    a, b = nonnegative_fit(columns, means)
    return float(a), float(b), float(np.abs(columns @ np.array([a, b]) / means - 1).max())
