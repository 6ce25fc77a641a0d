"""`diagnose_rate`: how `E||grad F(W_tau)||^2` falls with the number of steps, beside Theorems 2 to 4.

Legend: `T` iterates `W_1..W_T`, `alpha = eta / sqrt(T)`, `tau` uniform on `1..T` (Algorithm 1). The expectation over
`tau` is the mean over the iterates; it is estimated from one iterate in each of `points` equal pieces of `1..T`, which
has the same expectation as one `tau` and less noise. The trainer's own `W_tau` is measured besides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import require
from cvgnn.lab.diagnose import estimates, record
from cvgnn.lab.diagnose.estimates import FEWEST_SEEDS, Array, Estimate, ends, fixed, log_slope, too_few
from cvgnn.lab.diagnose.record import ChartLine, Diagnosis, DiagnosisTable, LineChart, band_line
from cvgnn.lab.diagnose.theory import THEOREMS, TheoryRun, plan_runs
from cvgnn.lab.diagnose.trainers import train_until
from cvgnn.lab.diagnose.workers import measure_all
from cvgnn.optim import OPTIMIZERS
from cvgnn.rng import Purpose, numpy_generator
from cvgnn.training import Diverged
from cvgnn.training.outputs import UniformIterate
from cvgnn.utils.progress import ProgressCallback, no_progress

REFERENCE = -0.5
"""The slope of Theorems 2 to 4."""


def diagnose_rate(
    graph: Graph,
    config: TrainConfig,
    *,
    optimizers: Sequence[str] = OPTIMIZERS,
    steps: Sequence[int] = (128, 256, 512, 1024, 2048),
    etas: Mapping[str, float] | float | None = None,
    seeds: int = 5,
    points: int = 16,
    workers: int = 1,
    progress: ProgressCallback = no_progress,
) -> Diagnosis:
    """Train with each optimizer for several lengths `T` and `alpha = eta / sqrt(T)`, and fit the slope.

    Algorithm 1 to the letter: fresh weights, batches drawn with replacement, the optimizers in the paper's form,
    without dropout. `E||grad F(W_tau)||^2` is the mean over one iterate in each of `points` equal pieces of `1..T`.

    Args:
        graph: what to train on.
        config: how to train; its seed is the first one.
        optimizers: which.
        steps: the lengths `T`, increasing, at least three.
        etas: `eta` for each optimizer, or one for all; if not given, `cvgnn.lab.diagnose.theory.ETAS`, scaled so that
            the shortest run starts with the same learning rate.
        seeds: how many.
        points: iterates of each run at which the exact gradient is computed.
        workers: processes; the numbers do not depend on it.
        progress: called with the current activity and the share of the work that is done.
    """
    require(len(steps) > 2, f"steps must be at least three lengths of runs in increasing order, not {list(steps)}")
    shared, runs, settings = plan_runs(
        graph, config, optimizers=optimizers, lengths=steps, etas=etas, seeds=seeds, points=points, fewest_points=1
    )
    found = measure_all(
        measure_rate, shared, runs, workers=workers, progress=progress, activity="training", cost=lambda r: r.T
    )
    by_name = {name: [r for r in found if r["optimizer"] == name] for name in settings["optimizers"]}
    rates = [_optimizer_rate(name, steps, measured, config.seed) for name, measured in by_name.items()]
    return Diagnosis(
        kind="rate",
        dataset=graph.name,
        settings={**settings, "steps": list(steps), "resamples": estimates.RESAMPLES},
        verdict=verdict(rates),
        tables=[slopes_table(rates, seeds), runs_table(rates)],
        figures=_charts(rates),
        data={"courses": [rate.to_dict() for rate in rates], "runs": found},
    )


def iterates(T: int, points: int, seed: int) -> list[int]:
    """One of `1..T` from each of `points` equal pieces, all of them if `T` is not larger; some twice if `T` is small.

    >>> iterates(5, 8, seed=0), len(iterates(1000, 8, seed=0))
    ([1, 2, 3, 4, 5], 8)
    """
    if points >= T:
        return list(range(1, T + 1))
    shares = numpy_generator(seed, Purpose.TAU, T).random(points)
    return [1 + math.floor((i + share) * T / points) for i, share in enumerate(shares)]


def measure_rate(shared: tuple[Graph, TrainConfig], run: TheoryRun) -> dict[str, Any]:
    """The squared norms of exact gradients along one run of `T - 1` steps.

    Returns:
        `squared` at `iterates` and their `mean`; `at_tau`, of the trainer's own `W_tau`; `first` and `last`, `F` at
        `W_1` and at the last of the iterates, which is in the last of the pieces and not always `W_T`; `mean` is None
        for a run that diverged.
    """
    trainer, objective = run.start(*shared)
    trainer.tau = UniformIterate(run.seed)
    trainer.tau.offer(1, trainer.model)
    wanted = iterates(run.T, run.points, run.seed)
    out: dict[str, Any] = {**dataclasses.asdict(run), "lr": run.alpha, "iterates": wanted}
    squared: list[float] = []
    losses = [objective(trainer.model).loss]
    try:
        for done in train_until(trainer, [*(t - 1 for t in wanted), run.T - 1]):
            if done + 1 in wanted:
                F, gradient = objective(trainer.model)
                squared += [float(gradient @ gradient)] * wanted.count(done + 1)  # two pieces may share an iterate
                losses.append(F)
    except Diverged as error:
        return {**out, "squared": [], "mean": None, "at_tau": None, "tau": None, "diverged": str(error)}
    assert trainer.tau.weights is not None
    trainer.model.load_state_dict(trainer.tau.weights)
    gradient = objective(trainer.model).vector
    mean, at_tau = sum(squared) / len(squared), float(gradient @ gradient)
    ends_of_run = {"tau": trainer.tau.tau, "first": losses[0], "last": losses[-1]}
    return {**out, "squared": squared, "mean": mean, "at_tau": at_tau, **ends_of_run}


@final
@dataclass(frozen=True, kw_only=True)
class OptimizerRate:
    """The rate of one optimizer, from all its runs.

    Args:
        name, theorem, eta: the optimizer, the theorem about it if there is one, `alpha = eta / sqrt(T)`.
        lengths, diverged: the `T`s at which all runs ended, and those at which one diverged.
        squared: `||grad F||^2`, the mean over the iterates, `[seeds, lengths]`; `at_tau`: of the one iterate `W_tau`.
        first, last: `F` at `W_1` and at the last of the iterates, `[seeds, lengths]`.
        slope, tail: over all lengths, and over the upper half of them.
        means: over seeds, at each length.
        local: slopes from each length to the next.
        two_terms: AdaGrad's fit, see `_two_terms`.
    """

    name: str
    theorem: int | None
    eta: float
    lengths: list[int]
    diverged: list[int]
    squared: Array
    at_tau: Array
    first: Array
    last: Array
    slope: Estimate | None
    tail: Estimate | None
    means: list[Estimate]
    local: list[float]
    two_terms: tuple[float, float, float] | None

    @property
    def finding(self) -> str:
        """`agreement` of the slope; instead of "no", "in the upper half" where the longer half agrees."""
        whole = agreement(self.slope)
        return "in the upper half" if whole == "no" and agreement(self.tail) == "yes" else whole

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        kept = ("name", "theorem", "eta", "lengths", "diverged", "two_terms")
        return {
            **{name: getattr(self, name) for name in kept},
            "slope": None if self.slope is None else self.slope._asdict(),
            "slope_upper_half": None if self.tail is None else self.tail._asdict(),
            "means": [mean._asdict() for mean in self.means],
            "local_slopes": self.local,
        }


def agreement(slope: Estimate | None) -> str:
    """Whether a slope of -1/2 or a steeper one is in an interval, "-" where there is none.

    "inconclusive" for one that holds 0, too: it does not distinguish the theorems' fall from none at all.

    >>> [agreement(Estimate(-0.4, low, high)) for low, high in ((-0.5, -0.3), (-0.4, 0.1), (-5.0, 7.0))]
    ['yes', 'no', 'inconclusive']
    """
    if slope is None or not slope.known:
        return "-"
    if slope.low > REFERENCE:
        return "no"
    return "inconclusive" if slope.holds(0.0) else "yes"


def _optimizer_rate(name: str, steps: Sequence[int], runs: list[dict[str, Any]], seed: int) -> OptimizerRate:
    """The rate of one optimizer; a length at which one of its runs diverged is left out."""
    by_length = {T: sorted((r for r in runs if r["T"] == T), key=lambda r: int(r["seed"])) for T in steps}
    complete = [T for T in steps if all(r["mean"] is not None for r in by_length[T])]

    def column(field: str) -> Array:
        return np.array([[r[field] for r in by_length[T]] for T in complete], dtype=np.float64).T  # [seeds, lengths]

    lengths, squared = np.array(complete, dtype=np.float64), column("mean")
    rng = numpy_generator(seed, Purpose.SPLIT, *map(ord, name))
    upper = slice(len(complete) // 2, None)
    enough = len(complete) > 1
    return OptimizerRate(
        name=name,
        theorem=THEOREMS.get(name),
        eta=float(runs[0]["eta"]),
        lengths=complete,
        diverged=[T for T in steps if T not in complete],
        squared=squared,
        at_tau=column("at_tau"),
        first=column("first"),
        last=column("last"),
        slope=estimates.slope_estimate(lengths, squared, rng) if enough else None,
        tail=estimates.slope_estimate(lengths[upper], squared[:, upper], rng) if len(complete) > 3 else None,
        means=[
            estimates.bootstrap(lambda c, j=j: float(squared[c, j].mean()), len(squared), rng, positive=True)  # type: ignore[misc]
            for j in range(len(complete))
        ],
        local=[log_slope(lengths[j : j + 2], squared[:, j : j + 2].mean(axis=0)) for j in range(len(complete) - 1)],
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
    a, b = estimates.nonnegative_fit(columns, means)
    return float(a), float(b), float(np.abs(columns @ np.array([a, b]) / means - 1).max())


def verdict(rates: Sequence[OptimizerRate]) -> str:
    """Which optimizers fall as fast as the theorems say, and which do not."""
    covered = [c for c in rates if c.theorem is not None]
    good = [c.name for c in covered if c.finding == "yes"]
    sentences = []
    if good:
        names = " and ".join(filter(None, (", ".join(good[:-1]), good[-1])))
        sentences.append(f"{names}: -1/2, or a steeper slope, is in the interval, as Theorems 2 to 4 say.")
    sentences += [f"{c.name}: {_disagreement(c)}" for c in covered if c.finding != "yes"]
    return " ".join(sentences) or "No theorem speaks of these optimizers; see the slopes."


def _disagreement(c: OptimizerRate) -> str:
    """Why the slope of an optimizer does not confirm the theorems."""
    if c.slope is None:
        return f"runs diverged at T = {', '.join(map(str, c.diverged))}; choose a smaller eta."
    if not c.slope.known:
        few = len(c.squared) < FEWEST_SEEDS
        why = too_few(len(c.squared)) if few else "too few gradients above 0 give no interval"
        return f"the slope is {c.slope}; {why}, so it is not judged."
    if c.finding == "inconclusive":
        return (
            f"the slope {c.slope} is inconclusive: its interval holds -1/2 and 0, so it does not distinguish the "
            "theorems' fall from none; take more seeds, or longer runs."
        )
    tail = "" if c.tail is None else f", {c.tail} over the longer half of the runs"
    return (
        f"the slope {c.slope} is shallower than -1/2{tail}: this disagrees with the rate at these lengths ({_why(c)})."
    )


def _why(c: OptimizerRate) -> str:
    """What the longest runs did to `F`, and what that explains."""
    first, last = (F.mean(axis=0) for F in (c.first, c.last))
    share = float((first[-1] - last[-1]) / first[-1]) if first[-1] else 0.0
    if share < 0:
        return f"the longest run has raised F by {fixed(-100 * share, 0)} %; a smaller eta may help"
    text = f"the longest run has lowered F by {fixed(100 * share, 0)} %"
    if len(last) > 1 and last[-1] < last[-2]:
        text += "; while F(W_1) - F(W_T) still grows with T, the mean squared gradient cannot fall like 1/sqrt(T)"
    return text


def slopes_table(rates: Sequence[OptimizerRate], seeds: int) -> DiagnosisTable:
    """The slopes."""
    over = too_few(seeds) if seeds < FEWEST_SEEDS else f"{seeds} seeds, 95 % bootstrap intervals over seeds"
    two_terms = ""
    for a, b, off in (c.two_terms for c in rates if c.two_terms is not None):
        two_terms += f" AdaGrad's own rate, fitted: {a:.3g} log(T)/T + {b:.3g}/sqrt(T), "
        two_terms += f"off by at most {fixed(100 * off, 0)} %."
    return record.table(
        record.caption("rate", "slopes", over=over, two_terms=two_terms),
        rates,
        {
            "optimizer": lambda c: c.name,
            "theorem": lambda c: "none" if c.theorem is None else str(c.theorem),
            "eta": lambda c: f"{c.eta:.3g}",
            "slope": lambda c: "-" if c.slope is None else str(c.slope),
            "upper half of T": lambda c: "-" if c.tail is None else str(c.tail),
            "from T to the next": lambda c: " ".join(fixed(value, 2) for value in c.local),
            "agrees": lambda c: "-" if c.theorem is None else c.finding,
        },
    )


def runs_table(rates: Sequence[OptimizerRate]) -> DiagnosisTable:
    """The means behind the slopes."""
    header = ["optimizer", "T", "lr", "E||grad F||^2", "interval", "times sqrt(T)", "at W_tau", "F(W_1)"]
    rows = []
    for c in rates:
        for j, (T, mean) in enumerate(zip(c.lengths, c.means, strict=True)):
            at_tau, first, last = (float(values[:, j].mean()) for values in (c.at_tau, c.first, c.last))
            cells = [c.name, str(T), f"{c.eta / T**0.5:.3g}", f"{mean.value:.3g}", ends(mean)]
            cells += [f"{mean.value * T**0.5:.3g}", f"{at_tau:.3g}", fixed(first, 3), fixed(last, 3)]
            rows.append(cells)
    return DiagnosisTable(record.caption("rate", "runs"), [*header, "F, last seen"], rows)


def _charts(rates: Sequence[OptimizerRate]) -> list[LineChart]:
    """One chart with all optimizers, and AdaGrad beside its own rate."""
    lines = {c.name: band_line(c.name, zip(c.lengths, c.means, strict=True)) for c in rates if c.lengths}
    if not lines:
        return []
    first = next(iter(lines.values()))
    top = max(line.y[0] for line in lines.values())
    reference = ChartLine("slope -1/2", first.x, [top * (T / first.x[0]) ** REFERENCE for T in first.x], reference=True)
    band = ", with 95 % bootstrap intervals over seeds" if first.low else ""
    charts = [record.line_chart("rate", "rate", [*lines.values(), reference], band=band)]
    for c in rates:
        if c.two_terms is not None:
            a, b, _ = c.two_terms
            fit = [float(a * np.log(T) / T + b / T**0.5) for T in c.lengths]
            own = ChartLine("a log(T)/T + b/sqrt(T)", lines[c.name].x, fit, reference=True)
            charts.append(record.line_chart("rate", "adagrad", [lines[c.name], own], a=a, b=b))
    return charts
