"""`diagnose_bound`: the quantities of Theorem 1 along a run, and every theorem's bound beside what it bounds.

Legend: `W_t`, `G_t`, `M_t`, `V_t` as in Algorithm 1, as flat vectors `[d]`; a step divides by `sqrt(V_t)`, so
Assumption 2's bound is in it. `W~_t = W_t + beta1/(1 - beta1) (W_t - W_{t-1})` with `W_0 = W_1`. Lemma 1:

    W~_{t+1} - W~_t = -beta1/(1 - beta1) (alpha/sqrt(V_t) - alpha/sqrt(V_{t-1})) M_{t-1} - alpha G_t / sqrt(V_t)

At `t = 1` it needs `M_0 = 0` and any finite `1/sqrt(V_0)`; here that is `1/sqrt(V_1)`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import require
from cvgnn.lab.diagnose.bias import bias_draws
from cvgnn.lab.diagnose.estimates import fixed
from cvgnn.lab.diagnose.gradient import Objective, flat_weights
from cvgnn.lab.diagnose.record import ChartLine, Diagnosis, DiagnosisTable, LineChart, caption, line_chart, table
from cvgnn.lab.diagnose.theory import THEOREMS, Constants, StepMoments, TheoryRun, plan_runs, require_count, theorem
from cvgnn.lab.diagnose.trainers import readable_ages, readable_rows, train_until
from cvgnn.lab.diagnose.workers import measure_all
from cvgnn.optim import OPTIMIZERS
from cvgnn.training import Diverged, Trainer
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
    etas: Mapping[str, float] | float | None = None,
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
        etas: `eta` for each optimizer or for all, `alpha = eta / sqrt(T)`; as for `diagnose_rate` if not given.
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
        measured = _measured(trainer, objective, run, draws)
    except Diverged:
        return None
    # The ages of the histories at the end, beside the `K` epochs that Lemma 6's proof allows.
    limit = trainer.model.num_layers * trainer.loader.steps_per_epoch
    ages = torch.cat([torch.zeros(0, dtype=torch.long), *readable_ages(trainer, readable_rows(trainer))])
    older = float((ages > limit).double().mean()) if ages.numel() else 0.0
    at_end = {"age_limit": limit, "largest_age": max(ages.tolist(), default=0), "older": older}
    return {**dataclasses.asdict(run), "draws": draws, **measured, **at_end}


def _measured(trainer: Trainer, objective: Objective, run: TheoryRun, draws: int) -> dict[str, Any]:
    moments = StepMoments(trainer)
    alpha, momentum = moments.alpha, moments.beta1 / (1 - moments.beta1)
    point_iterates = {round(1 + i * (run.T - 1) / (run.points - 1)) for i in range(run.points)}
    at_points: list[dict[str, Any]] = []
    steps: list[dict[str, float]] = []
    W_before = W = flat_weights(trainer.model)
    M_before, R_before, g_before = torch.zeros_like(W), None, torch.zeros_like(W)
    after = train_until(trainer, range(run.T + 1))
    next(after)
    for t in range(1, run.T + 1):
        F, g = objective(trainer.model)
        if t in point_iterates:
            rho, rho_change, _ = objective.curvature(trainer.model, seed=run.seed)
            plain = g - moments.weight_decay * W
            bias = sum(bias_draws(trainer, plain, draws=draws), torch.zeros_like(W)) / draws
            at_point = {"t": t, "F": F, "rho": rho, "rho_change": rho_change, "bias_inf": float(bias.abs().max())}
            at_points.append({**at_point, "gradient_inf": float(g.abs().max())})
        moved = float((W - W_before).norm())  # 0 before the first step
        next(after)  # the step from W_t to W_{t+1}
        W_next = flat_weights(trainer.model)
        G = moments.gradient(W)
        R = moments.second(G).rsqrt()
        jump = torch.zeros_like(R) if R_before is None else alpha * (R - R_before)
        tilde, tilde_next = W + momentum * (W - W_before), W_next + momentum * (W_next - W)
        right = -alpha * G * R - momentum * jump * M_before
        apart = float((tilde_next - tilde - right).abs().max())  # of Lemma 1's two sides
        steps.append(
            {
                **gradient_sizes(g, G),
                "nu": float(1 / R.max()),
                "quotient": float((g - g_before).norm()) / moved if moved else 0.0,
                "S_1": float(jump.abs().sum()),
                "S_2": float(jump @ jump),
                "left": alpha * float((g * g) @ R),
                "squared": float(g @ g),
                "lemma1": apart / max(1e-300, float(tilde_next.abs().max())),
                "lemma1_of_step": apart / max(1e-300, float(right.abs().max())),
            }
        )
        W_before, W, g_before = W, W_next, g
        M_before, R_before = moments.first(G), R
    seen = over_the_run(steps)
    return {
        "alpha": alpha,
        "beta1": moments.beta1,
        "nu_configured": moments.nu_min,
        "d": W.numel(),
        "first": at_points[0]["F"],
        "seen": seen,
        "mean_squared": seen["squared"] / run.T,
        "at_points": at_points,
        "along": np.cumsum([[s[name] for name in ("left", "S_1", "S_2")] for s in steps], axis=0).tolist(),
    }


def gradient_sizes(*gradients: Tensor) -> dict[str, float]:
    """The largest Frobenius norm, entry and sum of entries of some gradients (Assumption 3); NaN if one has a NaN."""
    sizes = [[float(size) for size in (g.norm(), g.abs().max(), g.abs().sum())] for g in gradients]
    return dict(zip(("H_F", "H_inf", "H_1"), np.max(sizes, axis=0).tolist(), strict=True))


def over_the_run(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each quantity of the steps over a run: its sum, its smallest (`nu`) or largest value; NaN if one of them is."""
    reduce = {"nu": np.min} | dict.fromkeys(("S_1", "S_2", "left", "squared"), np.sum)
    return {name: float(reduce.get(name, np.max)([step[name] for step in steps])) for name in steps[0]}


def _result(name: str, runs: list[dict[str, Any]]) -> BoundResult:
    seen, at = [r["seen"] for r in runs], [p for r in runs for p in r["at_points"]]
    first = runs[0]
    alpha, T, eta = first["alpha"], first["T"], first["eta"]
    largest = {key: _largest(seen, key) for key in ("H_F", "H_inf", "H_1", "quotient", "lemma1", "lemma1_of_step")}
    nu, H_inf = float(np.min([s["nu"] for s in seen])), largest["H_inf"]  # both NaN if one of them is
    curvature, bias = _largest(at, "rho"), _largest(at, "bias_inf")
    constants = Constants(
        rho=float(np.max([curvature, largest["quotient"]])),
        nu_min=nu,
        **{key: largest[key] for key in ("H_F", "H_inf", "H_1")},
        beta1=first["beta1"],
        C=0.0 if H_inf == 0 else bias * nu / (alpha * H_inf),  # no gradient, no bias
        d=first["d"],
    )
    sums = {"S_1": _mean(seen, "S_1"), "S_2": _mean(seen, "S_2"), "gap": _mean(runs, "first")}
    return {
        "optimizer": name,
        "theorem": THEOREMS.get(name),
        "alpha": alpha,
        "eta": eta,
        "T": T,
        "constants": dataclasses.asdict(constants),
        **{name: getattr(constants, name) for name in ("C_1", "C_2", "C_3", "C_4")},
        "rho_hessian": curvature,
        "rho_quotient": largest["quotient"],
        "nu_configured": first["nu_configured"],
        "bias_inf": bias,
        **sums,
        "theorem1_left": _mean(seen, "left"),
        "theorem1_right": constants.theorem1(alpha=alpha, T=T, **sums),
        "rate_left": _mean(runs, "mean_squared"),
        "rate_right": theorem(constants, name, eta=eta, T=T, gap=sums["gap"]),
        "lemma1": largest["lemma1"],
        "lemma1_of_step": largest["lemma1_of_step"],
        "age_limit": first["age_limit"],
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
        caption("bound", "bounds", T=T, seeds=seeds),
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
    columns = {
        "rho, Hessian": "rho_hessian", "rho, quotient": "rho_quotient", "H_F": "H_F", "H_inf": "H_inf", "H_1": "H_1",
        "nu_min set": "nu_configured", "nu_min seen": "nu_min", "C": "C", "C_1": "C_1", "C_2": "C_2", "C_3": "C_3",
        "C_4": "C_4",
    }  # fmt: skip
    rows = [[r["optimizer"], *(_short((r | r["constants"])[name]) for name in columns.values())] for r in results]
    text = caption("bound", "constants", d=results[0]["constants"]["d"])
    return DiagnosisTable(text, ["optimizer", *columns], rows)


def _assumptions_table(results: Sequence[BoundResult]) -> DiagnosisTable:
    return table(
        caption("bound", "assumptions"),
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
    left, S_1, S_2 = along[np.array(chosen) - 1].T.tolist()
    right = [
        constants.theorem1(alpha=alpha, T=t, S_1=a, S_2=b, gap=gap) for t, a, b in zip(chosen, S_1, S_2, strict=True)
    ]
    x = [float(t) for t in chosen]
    lines = [ChartLine("measured", x, left), ChartLine("bound", x, right, reference=True)]
    return line_chart("bound", "theorem1", lines, suffix=f"-{result['optimizer']}", optimizer=result["optimizer"])


def _short(number: float) -> str:
    """Three digits, with an exponent where that is shorter."""
    return f"{number:.3g}" if math.isfinite(number) else "-"
