"""`diagnose_bound`: the constants of Theorem 1 along a run, and every theorem's bound beside what it bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cvgnn.config import TrainConfig
from cvgnn.diagnose.bound import BoundRun, larger, measure_bound
from cvgnn.diagnose.bound_views import assumptions_table, bounds_table, constants_table, figure, verdict
from cvgnn.diagnose.constants import THEOREMS, Constants, theorem
from cvgnn.diagnose.rate_vs_steps import default_etas
from cvgnn.diagnose.record import Diagnosis
from cvgnn.diagnose.theory import as_in_theory, known_optimizers, prepared, require_count
from cvgnn.diagnose.workers import Tell, measure_all, silent
from cvgnn.errors import require, require_integer, require_number
from cvgnn.graph import Graph
from cvgnn.limits import MAX_EPOCHS
from cvgnn.optim import OPTIMIZERS


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
    tell: Tell = silent,
) -> Diagnosis:
    """Look at every step of runs in the paper's form, and put numbers into Theorem 1.

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
        tell: told of progress.
    """
    optimizers = known_optimizers(optimizers)
    require(config.layers > 1, "a network of one layer samples nothing; choose layers of at least 2")
    require_integer("steps", steps, at_least=2, at_most=MAX_EPOCHS)
    require_count("seeds", seeds)
    require_count("points", points, at_least=2)
    require_count("draws", draws)
    chosen = default_etas(steps) | dict(etas or {})
    for name in optimizers:
        require_number(f"eta of {name}", chosen[name], "a number above 0", above=0.0)
    graph, config = prepared(graph, config), dataclasses.replace(as_in_theory(config), batches="replacement")
    runs = [
        BoundRun(optimizer=name, T=steps, seed=config.seed + i, eta=chosen[name], points=points, draws=draws)
        for name in optimizers
        for i in range(seeds)
    ]
    measured = measure_all(measure_bound, (graph, config), runs, workers=workers, tell=tell, what="training")
    diverged = list(dict.fromkeys(run.optimizer for run, r in zip(runs, measured, strict=True) if r is None))
    left = [name for name in optimizers if name not in diverged]
    require(bool(left), f"training diverged with {', '.join(diverged)}; choose a smaller eta")
    found = [r for r in measured if r is not None and r["optimizer"] in left]
    results = [_result(name, [r for r in found if r["optimizer"] == name]) for name in left]
    ended = f" Training diverged with {', '.join(diverged)}: left out; a smaller eta may help." if diverged else ""
    return Diagnosis(
        kind="bound",
        dataset=graph.name,
        settings={
            "config": config.to_dict(),
            "optimizers": list(optimizers),
            "diverged": diverged,
            "steps": steps,
            "etas": {name: chosen[name] for name in optimizers},
            "seeds": [config.seed + i for i in range(seeds)],
            "points": points,
            "draws": draws,
        },
        verdict=verdict(results) + ended,
        tables=[bounds_table(results, steps, seeds), constants_table(results), assumptions_table(results)],
        figures=[figure(r, found) for r in results],
        data={"results": results, "runs": [{k: v for k, v in r.items() if k != "along"} for r in found]},
    )


def _result(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The constants of one optimizer's runs, and both sides of its inequalities."""
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
    S_1, S_2 = (float(np.mean([s[name] for s in seen])) for name in ("S_1", "S_2"))
    gap = float(np.mean([r["first"] for r in runs]))
    return {
        "optimizer": name,
        "theorem": THEOREMS.get(name),
        "alpha": alpha,
        "eta": eta,
        "T": T,
        "constants": dataclasses.asdict(constants),
        "C_1": constants.C_1,
        "C_2": constants.C_2,
        "C_3": constants.C_3,
        "C_4": constants.C_4,
        "rho_hessian": curvature,
        "rho_quotient": quotient,
        "nu_configured": runs[0]["nu_configured"],
        "bias_inf": bias,
        "S_1": S_1,
        "S_2": S_2,
        "gap": gap,
        "theorem1_left": float(np.mean([s["left"] for s in seen])),
        "theorem1_right": constants.theorem1(alpha=alpha, T=T, S_1=S_1, S_2=S_2, gap=gap),
        "rate_left": float(np.mean([r["mean_squared"] for r in runs])),
        "rate_right": theorem(constants, name, eta=eta, T=T, gap=gap),
        "lemma1": _largest(seen, "lemma1"),
        "lemma1_of_step": _largest(seen, "lemma1_of_step"),
        "age_limit": runs[0]["age_limit"],
        "largest_age": max(r["largest_age"] for r in runs),
        "older": float(np.mean([r["older"] for r in runs])),
    }


def _largest(found: Sequence[Mapping[str, Any]], name: str) -> float:
    """The largest of the numbers of one name, NaN if one of them is."""
    return float(np.max([each[name] for each in found]))
