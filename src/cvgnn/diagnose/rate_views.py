"""What `diagnose_rate` found, in words, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from cvgnn.diagnose.record import Figure, Line, Table
from cvgnn.diagnose.slopes import FEWEST, Array, Estimate, finite, too_few
from cvgnn.diagnose.words import fixed

REFERENCE = -0.5


@final
@dataclass(frozen=True, kw_only=True)
class Course:
    """What the runs of one optimizer say.

    Args:
        name, theorem, eta: the optimizer, the theorem about it if there is one, `alpha = eta / sqrt(T)`.
        lengths, diverged: the `T`s at which all runs ended, and those at which one diverged.
        squared: `||grad F||^2`, the mean over the iterates, `[seeds, lengths]`; `at_tau`: of the one iterate `W_tau`.
        first, last: `F` at `W_1` and at the last iterate looked at, `[seeds, lengths]`.
        slope, tail: over all lengths, and over the upper half of them.
        means: over seeds, at each length.
        local: slopes from each length to the next.
        two_terms: AdaGrad's fit, see `cvgnn.diagnose.rate_vs_steps`.
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
    def judged(self) -> bool:
        """Whether the slope has an interval; few seeds give none."""
        return self.slope is not None and self.slope.known

    @property
    def finding(self) -> str:
        """What `found_in` says of the slope; instead of "no", "in the upper half" where the longer half agrees."""
        whole = found_in(self.slope)
        return "in the upper half" if whole == "no" and found_in(self.tail) == "yes" else whole

    @property
    def last_falls(self) -> bool:
        """Whether `F` at the last iterate looked at is lower in the longest runs than in those before."""
        ends = self.last.mean(axis=0)
        return len(ends) > 1 and bool(ends[-1] < ends[-2])

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "name": self.name,
            "theorem": self.theorem,
            "eta": self.eta,
            "lengths": self.lengths,
            "diverged": self.diverged,
            "slope": None if self.slope is None else self.slope.to_dict(),
            "slope_upper_half": None if self.tail is None else self.tail.to_dict(),
            "means": [mean.to_dict() for mean in self.means],
            "local_slopes": [finite(value) for value in self.local],
            "two_terms": self.two_terms,
        }


def found_in(slope: Estimate | None) -> str:
    """Whether a slope of -1/2 or a steeper one is in an interval, "-" where there is none.

    "not told" of one that holds 0, too: it does not tell the theorems' fall from none at all.

    >>> [found_in(Estimate(value=-0.4, low=low, high=high)) for low, high in ((-0.5, -0.3), (-0.4, 0.1), (-5.0, 7.0))]
    ['yes', 'no', 'not told']
    """
    if slope is None or not slope.known:
        return "-"
    if slope.low > REFERENCE:
        return "no"
    return "not told" if slope.holds(0.0) else "yes"


def verdict(courses: Sequence[Course]) -> str:
    """Which optimizers fall as fast as the theorems say, and which do not."""
    covered = [c for c in courses if c.theorem is not None]
    good = [c.name for c in covered if c.finding == "yes"]
    bad = [c for c in covered if c.finding != "yes"]
    words = []
    if good:
        words.append(f"{_listed(good)}: -1/2, or a steeper slope, is in the interval, as Theorems 2 to 4 say.")
    for c in bad:
        if c.slope is None:
            words.append(f"{c.name}: runs diverged at T = {', '.join(map(str, c.diverged))}; choose a smaller eta.")
            continue
        if not c.judged:
            few = len(c.squared) < FEWEST
            why = too_few(len(c.squared)) if few else "too few gradients above 0 give no interval"
            words.append(f"{c.name}: the slope is {c.slope}; {why}, so it is not judged.")
            continue
        if c.finding == "not told":
            words.append(
                f"{c.name}: the slope {c.slope} is not told: its interval holds -1/2 and 0, so it does not tell the "
                "theorems' fall from none; take more seeds, or longer runs."
            )
            continue
        tail = "" if c.tail is None else f", {c.tail} over the longer half of the runs"
        words.append(
            f"{c.name}: the slope {c.slope} is shallower than -1/2{tail}: this disagrees with the rate at these "
            f"lengths ({_why(c)})."
        )
    return " ".join(words) or "No theorem speaks of these optimizers; see the slopes."


def _why(c: Course) -> str:
    """What the longest runs did to `F`, and what that explains."""
    before, after = (float(F.mean(axis=0)[-1]) for F in (c.first, c.last))
    share = (before - after) / before if before else 0.0
    if share < 0:
        return f"the longest run has raised F by {fixed(-100 * share, 0)} %; a smaller eta may help"
    words = f"the longest run has lowered F by {fixed(100 * share, 0)} %"
    if not c.last_falls:
        return words
    return f"{words}; while F(W_1) - F(W_T) still grows with T, the mean squared gradient cannot fall like 1/sqrt(T)"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def slopes_table(courses: Sequence[Course], seeds: int) -> Table:
    """The slopes."""
    rows = []
    for c in courses:
        rows.append(
            [
                c.name,
                "none" if c.theorem is None else str(c.theorem),
                f"{c.eta:.3g}",
                "-" if c.slope is None else str(c.slope),
                "-" if c.tail is None else str(c.tail),
                " ".join(fixed(value, 2) for value in c.local),
                "-" if c.theorem is None else c.finding,
            ]
        )
    over = too_few(seeds) if seeds < FEWEST else f"{seeds} seeds, 95 % bootstrap intervals over seeds"
    adagrad = next((c.two_terms for c in courses if c.two_terms is not None), None)
    more = ""
    if adagrad is not None:
        a, b, off = adagrad
        most = fixed(100 * off, 0)
        more = f" AdaGrad's own rate, fitted: {a:.3g} log(T)/T + {b:.3g}/sqrt(T), off by at most {most} %."
    return Table(
        caption=(f"Log-log slope of E||grad F(W_tau)||^2 against T, {over}; the theorems say -1/2 or steeper.{more}"),
        header=["optimizer", "theorem", "eta", "slope", "upper half of T", "from T to the next", "agrees"],
        rows=rows,
    )


def runs_table(courses: Sequence[Course]) -> Table:
    """The means behind the slopes."""
    rows = []
    for c in courses:
        for j, T in enumerate(c.lengths):
            mean = c.means[j]
            rows.append(
                [
                    c.name,
                    str(T),
                    f"{c.eta / T**0.5:.3g}",
                    f"{mean.value:.3g}",
                    f"{mean.low:.3g} .. {mean.high:.3g}" if mean.known else "-",
                    f"{mean.value * T**0.5:.3g}",
                    f"{np.mean(c.at_tau[:, j]):.3g}",
                    fixed(float(np.mean(c.first[:, j])), 3),
                    fixed(float(np.mean(c.last[:, j])), 3),
                ]
            )
    return Table(
        caption=(
            "Means over seeds; W_tau is the one iterate that Algorithm 1 returns; F is last seen at the last of the "
            "iterates looked at, shortly before W_T."
        ),
        header=[
            "optimizer", "T", "lr", "E||grad F||^2", "interval", "times sqrt(T)", "at W_tau", "F(W_1)", "F, last seen",
        ],
        rows=rows,
    )  # fmt: skip


def figures(courses: Sequence[Course]) -> list[Figure]:
    """One figure with all optimizers, and AdaGrad beside its own rate."""
    lines = [
        Line(
            name=c.name,
            x=[float(T) for T in c.lengths],
            y=[m.value for m in c.means],
            low=[m.low for m in c.means] if len(c.squared) >= FEWEST else (),
            high=[m.high for m in c.means] if len(c.squared) >= FEWEST else (),
        )
        for c in courses
        if c.lengths
    ]
    out: list[Figure] = []
    if lines:
        x = list(lines[0].x)
        top = max(line.y[0] for line in lines)
        reference = Line(name="slope -1/2", x=x, y=[top * (T / x[0]) ** REFERENCE for T in x], reference=True)
        band = ", with 95 % bootstrap intervals over seeds" if lines[0].low else ""
        caption = f"{_CAPTION}{band}; the dashed line falls like 1/sqrt(T)."
        out.append(_figure("rate", "Squared gradient against the length of the run", [*lines, reference], caption))
    for c in courses:
        if c.two_terms is not None:
            a, b, _ = c.two_terms
            line = next(line for line in lines if line.name == c.name)
            fit = [a * np.log(T) / T + b / T**0.5 for T in c.lengths]
            own = Line(name="a log(T)/T + b/sqrt(T)", x=line.x, y=[float(v) for v in fit], reference=True)
            caption = f"Theorem 4's rate fitted with a = {a:.3g}, b = {b:.3g}, neither below 0."
            out.append(_figure("adagrad", "AdaGrad beside its own rate", [line, own], caption))
    return out


_CAPTION = "E||grad F(W_tau)||^2 of the exact gradient, alpha = eta / sqrt(T)"


def _figure(key: str, title: str, lines: Sequence[Line], caption: str) -> Figure:
    return Figure(
        key=key,
        title=title,
        caption=caption,
        x_label="T, iterates of the run",
        y_label="mean squared norm of grad F",
        lines=lines,
        log_x=True,
        log_y=True,
    )
