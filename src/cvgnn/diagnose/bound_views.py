"""What `diagnose_bound` found, in words, tables and figures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cvgnn.diagnose.constants import Constants
from cvgnn.diagnose.record import Figure, Line, Table
from cvgnn.diagnose.words import fixed

_ROUND_OFF = 1e-12
_DRAWN_POINTS = 40


def verdict(results: list[dict[str, Any]]) -> str:
    """The finding in a few sentences."""
    worst = float(np.max([r["lemma1"] for r in results]))  # NaN if one of them is
    words = [
        f"Lemma 1's identity holds to {worst:.1e} of the largest weight in every step"
        + (", which is round-off." if worst < _ROUND_OFF else ": more than round-off; something is wrong.")
    ]
    one = {r["optimizer"]: outcome(r["theorem1_left"], r["theorem1_right"]) for r in results}
    words += _troubles("Theorem 1's inequality", one)
    if set(one.values()) == {"holds"}:
        words.append("Theorem 1's inequality holds in every case.")
    covered = [r for r in results if r["rate_right"] is not None]
    rates = {r["optimizer"]: outcome(r["rate_left"], r["rate_right"]) for r in covered}
    loose = [(r["optimizer"], _ratio(r)) for r in covered if rates[r["optimizer"]] == "holds" and r["rate_left"] > 0]
    if loose:
        told = ", ".join(f"{name} {_short(ratio)}" for name, ratio in loose)
        words.append(f"The theorems' bounds on E||grad F(W_tau)||^2 exceed what is measured by factors of: {told}.")
    words += _troubles("The bound on E||grad F(W_tau)||^2", rates)
    older = max(r["older"] for r in results)
    if older > 0:
        words.append(
            f"Up to {fixed(100 * older, 0)} % of the history rows are older than the K epochs that Lemma 6's proof "
            "takes as their largest age."
        )
    return " ".join(words)


def outcome(left: float, right: float) -> str:
    """What became of `left <= right`: holds, broken, or not finite.

    >>> outcome(1.0, 2.0), outcome(2.0, 1.0), outcome(1.0, math.nan), outcome(1.0, math.inf)
    ('holds', 'broken', 'not finite', 'not finite')
    """
    if not (math.isfinite(left) and math.isfinite(right)):
        return "not finite"
    return "holds" if left <= right else "broken"


def _troubles(what: str, outcomes: dict[str, str]) -> list[str]:
    """A sentence for what is broken, and one for what cannot be told."""
    broken, unknown = ([name for name, found in outcomes.items() if found == kind] for kind in ("broken", "not finite"))
    words = [f"{what} is broken for {', '.join(broken)}: an assumption does not hold there."] if broken else []
    if unknown:
        words.append(f"{what} is not judged for {', '.join(unknown)}: its sides are not finite.")
    return words


def _ratio(result: dict[str, Any]) -> float:
    """The bound over what is measured; NaN where that is 0."""
    left, right = float(result["rate_left"]), float(result["rate_right"])
    return right / left if left else math.nan


def bounds_table(results: list[dict[str, Any]], T: int, seeds: int) -> Table:
    """Both sides of every inequality."""
    rows = []
    for r in results:
        right = r["rate_right"]
        rows.append(
            [
                r["optimizer"],
                _short(r["alpha"]),
                _short(r["theorem1_left"]),
                _short(r["theorem1_right"]),
                "none" if right is None else str(r["theorem"]),
                _short(r["rate_left"]),
                "-" if right is None else _short(right),
                "-" if right is None else _short(_ratio(r)),
            ]
        )
    return Table(
        caption=f"Both sides of the theorems, T = {T}, mean over seeds ({seeds}).",
        header=[
            "optimizer", "alpha", "Theorem 1, left", "Theorem 1, right", "theorem", "E||grad F(W_tau)||^2", "its bound",
            "bound / measured",
        ],
        rows=rows,
    )  # fmt: skip


def constants_table(results: list[dict[str, Any]]) -> Table:
    """What the bounds are made of."""
    rows = []
    for r in results:
        c = r["constants"]
        cells = [
            r["rho_hessian"], r["rho_quotient"], c["H_F"], c["H_inf"], c["H_1"], r["nu_configured"], c["nu_min"],
            c["C"], r["C_1"], r["C_2"], r["C_3"], r["C_4"],
        ]  # fmt: skip
        rows.append([r["optimizer"], *map(_short, cells)])
    return Table(
        caption=(
            f"The constants of Assumptions 1 to 3, of Lemma 6 and of Theorem 1, d = {results[0]['constants']['d']}; "
            "rho is the larger of its two estimates."
        ),
        header=[
            "optimizer", "rho, Hessian", "rho, quotient", "H_F", "H_inf", "H_1", "nu_min set", "nu_min seen", "C",
            "C_1", "C_2", "C_3", "C_4",
        ],
        rows=rows,
    )  # fmt: skip


def assumptions_table(results: list[dict[str, Any]]) -> Table:
    """Lemma 1's identity, and what Lemma 6's proof assumes."""
    return Table(
        caption="Lemma 1's identity in every step, as a share of the largest entry; the age of histories at the end.",
        header=["optimizer", "of W~", "of the step", "largest age", "K epochs", "rows older"],
        rows=[
            [
                r["optimizer"],
                f"{r['lemma1']:.1e}",
                f"{r['lemma1_of_step']:.1e}",
                str(r["largest_age"]),
                str(r["age_limit"]),
                f"{100 * r['older']:.1f} %",
            ]
            for r in results
        ],
    )


def figure(result: dict[str, Any], found: list[dict[str, Any]]) -> Figure:
    """Theorem 1's two sides as they grow along the run."""
    along = np.mean([r["along"] for r in found if r["optimizer"] == result["optimizer"]], axis=0)
    constants = Constants(**result["constants"])
    T = len(along)
    chosen = sorted({round(T ** (i / (_DRAWN_POINTS - 1))) for i in range(_DRAWN_POINTS)})
    right = [
        constants.theorem1(alpha=result["alpha"], T=t, S_1=along[t - 1][1], S_2=along[t - 1][2], gap=result["gap"])
        for t in chosen
    ]
    return Figure(
        key=f"theorem1-{result['optimizer']}",
        title=f"Theorem 1 along the run: {result['optimizer']}",
        caption="Both sides of Theorem 1 for the first t iterates; the bound is dashed.",
        x_label="t",
        y_label="sum of alpha <grad F, grad F / sqrt(V)>",
        lines=[
            Line(name="measured", x=[float(t) for t in chosen], y=[float(along[t - 1][0]) for t in chosen]),
            Line(name="bound", x=[float(t) for t in chosen], y=[float(v) for v in right], reference=True),
        ],
        log_x=True,
        log_y=True,
    )


def _short(number: float) -> str:
    """Three digits, with an exponent where that is shorter."""
    return f"{number:.3g}" if math.isfinite(number) else "-"
