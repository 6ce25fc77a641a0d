"""`diagnose_bound`: the constants of Theorem 1 along a run, and every theorem's bound beside what it bounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import require
from cvgnn.lab.diagnose.bound import larger, measure_bound
from cvgnn.lab.diagnose.estimates import fixed
from cvgnn.lab.diagnose.record import ChartLine, Diagnosis, DiagnosisTable, LineChart, table
from cvgnn.lab.diagnose.theory import THEOREMS, Constants, plan_runs, require_count, theorem
from cvgnn.lab.diagnose.workers import measure_all
from cvgnn.optim import OPTIMIZERS
from cvgnn.utils.progress import ProgressCallback, no_progress

BoundResult = dict[str, Any]
"""The constants of one optimizer, and both sides of its inequalities."""

_ROUND_OFF = 1e-12
_DRAWN_POINTS = 40


def diagnose_bound(
    graph: Graph,
    config: TrainConfig,
    *,
    optimizers: Sequence[str] = OPTIMIZERS,
    steps: int = 256,
    etas: Mapping[str, float] | None = None,
    seeds: int = 2,
    points: int = 3,
    draws: int = 16,
    workers: int = 1,
    progress: ProgressCallback = no_progress,
) -> Diagnosis:
    """Measure at every step of runs in the paper's form, and put numbers into Theorem 1.

    Constants are the largest (`nu_min`: smallest) seen in any run of an optimizer: estimates from below (above) of what
    the assumptions speak of. `F* >= 0` is used as `F* = 0`.

    Args:
        graph: what to train on.
        config: how to train; its seed is the first one.
        optimizers: which.
        steps: the length `T` of the runs.
        etas: `eta` for each optimizer, `alpha = eta / sqrt(T)`; as for `diagnose_rate` if not given.
        seeds: runs of each optimizer.
        points: iterates of each run at which curvature and bias are measured, the first and the last among them.
        draws: of the neighbors, for the bias.
        workers: processes; the numbers do not depend on it.
        progress: called with the current activity and the share of the work that is done.
    """
    require_count("draws", draws)
    shared, runs, settings = plan_runs(
        graph, config, optimizers=optimizers, lengths=[steps], etas=etas, seeds=seeds, points=points, fewest_points=2
    )
    measured = measure_all(
        measure_bound, (*shared, draws), runs, workers=workers, progress=progress, activity="training"
    )
    diverged = list(dict.fromkeys(run.optimizer for run, r in zip(runs, measured, strict=True) if r is None))
    left = [name for name in settings["optimizers"] if name not in diverged]
    require(bool(left), f"training diverged with {', '.join(diverged)}; choose a smaller eta")
    found = {name: [r for r in measured if r is not None and r["optimizer"] == name] for name in left}
    results = [_result(name, found[name]) for name in left]
    note = f" Training diverged with {', '.join(diverged)}: left out; a smaller eta may help." if diverged else ""
    recorded = [{k: v for k, v in r.items() if k != "along"} for of_name in found.values() for r in of_name]
    return Diagnosis(
        kind="bound",
        dataset=graph.name,
        settings={**settings, "diverged": diverged, "steps": steps, "draws": draws},
        verdict=verdict(results) + note,
        tables=[_bounds_table(results, steps, seeds), _constants_table(results), _assumptions_table(results)],
        figures=[_chart(r, found[r["optimizer"]]) for r in results],
        data={"results": results, "runs": recorded},
    )


def _result(name: str, runs: list[dict[str, Any]]) -> BoundResult:
    seen, at = [r["seen"] for r in runs], [p for r in runs for p in r["at_points"]]
    alpha, T, eta = runs[0]["alpha"], runs[0]["T"], runs[0]["eta"]
    nu, H_inf = float(np.min([s["nu"] for s in seen])), _largest(seen, "H_inf")  # both NaN if one of them is
    curvature, quotient, bias = _largest(at, "rho"), _largest(seen, "quotient"), _largest(at, "bias_inf")
    constants = Constants(
        rho=larger(curvature, quotient),
        nu_min=nu,
        H_F=_largest(seen, "H_F"),
        H_inf=H_inf,
        H_1=_largest(seen, "H_1"),
        beta1=runs[0]["beta1"],
        C=0.0 if H_inf == 0 else bias * nu / (alpha * H_inf),  # no gradient, no bias
        d=runs[0]["d"],
    )
    S_1, S_2, gap = _mean(seen, "S_1"), _mean(seen, "S_2"), _mean(runs, "first")
    return {
        "optimizer": name,
        "theorem": THEOREMS.get(name),
        "alpha": alpha,
        "eta": eta,
        "T": T,
        "constants": dataclasses.asdict(constants),
        **{name: getattr(constants, name) for name in ("C_1", "C_2", "C_3", "C_4")},
        "rho_hessian": curvature,
        "rho_quotient": quotient,
        "nu_configured": runs[0]["nu_configured"],
        "bias_inf": bias,
        "S_1": S_1,
        "S_2": S_2,
        "gap": gap,
        "theorem1_left": _mean(seen, "left"),
        "theorem1_right": constants.theorem1(alpha=alpha, T=T, S_1=S_1, S_2=S_2, gap=gap),
        "rate_left": _mean(runs, "mean_squared"),
        "rate_right": theorem(constants, name, eta=eta, T=T, gap=gap),
        "lemma1": _largest(seen, "lemma1"),
        "lemma1_of_step": _largest(seen, "lemma1_of_step"),
        "age_limit": runs[0]["age_limit"],
        "largest_age": max(r["largest_age"] for r in runs),
        "older": _mean(runs, "older"),
    }


def _largest(found: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(np.max([each[name] for each in found]))  # NaN if one of them is


def _mean(found: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(np.mean([each[name] for each in found]))


def verdict(results: Sequence[BoundResult]) -> str:
    """The finding in a few sentences."""
    worst = _largest(results, "lemma1")
    sentences = [
        f"Lemma 1's identity holds to {worst:.1e} of the largest weight in every step"
        + (", which is round-off." if worst < _ROUND_OFF else ": more than round-off; something is wrong.")
    ]
    one = {r["optimizer"]: outcome(r["theorem1_left"], r["theorem1_right"]) for r in results}
    sentences += _violations("Theorem 1's inequality", one)
    if set(one.values()) == {"holds"}:
        sentences.append("Theorem 1's inequality holds in every case.")
    covered = [r for r in results if r["rate_right"] is not None]
    rates = {r["optimizer"]: outcome(r["rate_left"], r["rate_right"]) for r in covered}
    loose = [r for r in covered if rates[r["optimizer"]] == "holds" and r["rate_left"] > 0]
    if loose:
        factors = ", ".join(f"{r['optimizer']} {_short(_ratio(r))}" for r in loose)
        sentences.append(
            f"The theorems' bounds on E||grad F(W_tau)||^2 exceed what is measured by factors of: {factors}."
        )
    sentences += _violations("The bound on E||grad F(W_tau)||^2", rates)
    older = max(r["older"] for r in results)
    if older > 0:
        sentences.append(
            f"Up to {fixed(100 * older, 0)} % of the history rows are older than the K epochs that Lemma 6's proof "
            "takes as their largest age."
        )
    return " ".join(sentences)


def outcome(left: float, right: float) -> str:
    """Whether `left <= right`: holds, broken, or not finite.

    >>> outcome(1.0, 2.0), outcome(2.0, 1.0), outcome(1.0, math.nan), outcome(1.0, math.inf)
    ('holds', 'broken', 'not finite', 'not finite')
    """
    if not (math.isfinite(left) and math.isfinite(right)):
        return "not finite"
    return "holds" if left <= right else "broken"


def _violations(inequality: str, outcomes: dict[str, str]) -> list[str]:
    """A sentence for the optimizers whose inequality is broken, and one for those where it cannot be judged."""
    broken, unknown = (
        ", ".join(n for n, found in outcomes.items() if found == kind) for kind in ("broken", "not finite")
    )
    sentences = [f"{inequality} is broken for {broken}: an assumption does not hold there."] if broken else []
    return sentences + ([f"{inequality} is not judged for {unknown}: its sides are not finite."] if unknown else [])


def _ratio(result: BoundResult) -> float:
    """The bound over the measured value; NaN where that is 0 or there is no bound."""
    left, right = result["rate_left"], result["rate_right"]
    return float(right / left) if left and right is not None else math.nan


def _bounds_table(results: Sequence[BoundResult], T: int, seeds: int) -> DiagnosisTable:
    return table(
        f"Both sides of the theorems, T = {T}, mean over seeds ({seeds}).",
        results,
        {
            "optimizer": lambda r: r["optimizer"],
            "alpha": lambda r: _short(r["alpha"]),
            "Theorem 1, left": lambda r: _short(r["theorem1_left"]),
            "Theorem 1, right": lambda r: _short(r["theorem1_right"]),
            "theorem": lambda r: "none" if r["rate_right"] is None else str(r["theorem"]),
            "E||grad F(W_tau)||^2": lambda r: _short(r["rate_left"]),
            "its bound": lambda r: "-" if r["rate_right"] is None else _short(r["rate_right"]),
            "bound / measured": lambda r: _short(_ratio(r)),
        },
    )


def _constants_table(results: Sequence[BoundResult]) -> DiagnosisTable:
    caption = (
        f"The constants of Assumptions 1 to 3, of Lemma 6 and of Theorem 1, d = {results[0]['constants']['d']}; "
        "rho is the larger of its two estimates."
    )
    columns = {
        "rho, Hessian": "rho_hessian", "rho, quotient": "rho_quotient", "H_F": "H_F", "H_inf": "H_inf", "H_1": "H_1",
        "nu_min set": "nu_configured", "nu_min seen": "nu_min", "C": "C", "C_1": "C_1", "C_2": "C_2", "C_3": "C_3",
        "C_4": "C_4",
    }  # fmt: skip
    rows = [[r["optimizer"], *(_short((r | r["constants"])[name]) for name in columns.values())] for r in results]
    return DiagnosisTable(caption, ["optimizer", *columns], rows)


def _assumptions_table(results: Sequence[BoundResult]) -> DiagnosisTable:
    return table(
        "Lemma 1's identity in every step, as a share of the largest entry; the age of histories at the end.",
        results,
        {
            "optimizer": lambda r: r["optimizer"],
            "of W~": lambda r: f"{r['lemma1']:.1e}",
            "of the step": lambda r: f"{r['lemma1_of_step']:.1e}",
            "largest age": lambda r: str(r["largest_age"]),
            "K epochs": lambda r: str(r["age_limit"]),
            "rows older": lambda r: f"{100 * r['older']:.1f} %",
        },
    )


def _chart(result: BoundResult, runs: list[dict[str, Any]]) -> LineChart:
    """Theorem 1's two sides as they grow along the run."""
    along = np.mean([r["along"] for r in runs], axis=0)
    constants, alpha, gap = Constants(**result["constants"]), result["alpha"], result["gap"]
    T = len(along)
    chosen = sorted({round(T ** (i / (_DRAWN_POINTS - 1))) for i in range(_DRAWN_POINTS)})
    measured, right = [], []
    for t in chosen:
        left, S_1, S_2 = map(float, along[t - 1])
        measured.append(left)
        right.append(constants.theorem1(alpha=alpha, T=t, S_1=S_1, S_2=S_2, gap=gap))
    x = [float(t) for t in chosen]
    lines = [ChartLine("measured", x, measured), ChartLine("bound", x, right, reference=True)]
    title = f"Theorem 1 along the run: {result['optimizer']}"
    caption = "Both sides of Theorem 1 for the first t iterates; the bound is dashed."
    labels = ("t", "sum of alpha <grad F, grad F / sqrt(V)>")
    return LineChart(f"theorem1-{result['optimizer']}", title, caption, *labels, lines, log_x=True, log_y=True)


def _short(number: float) -> str:
    """Three digits, with an exponent where that is shorter."""
    return f"{number:.3g}" if math.isfinite(number) else "-"
