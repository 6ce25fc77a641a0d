"""Slopes in log-log plots, bootstrap intervals and norms without noise: what the diagnoses of theory share.

Every resample is a pure function of the generator it is given, so a diagnosis can be repeated to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from cvgnn.errors import require

Array = npt.NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95

FEWEST = 3
"""So many items (seeds) an interval needs. Two tell their spread so badly that it would be stretched nine times, and
one tells nothing of it."""


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its bootstrap interval.

    Args:
        value: from all data.
        low, high: the ends of the interval; NaN where there are too few data for one.
    """

    value: float
    low: float
    high: float

    def holds(self, number: float) -> bool:
        """Whether a number lies in the interval.

        >>> Estimate(value=1.0, low=0.9, high=1.1).holds(1.05)
        True
        """
        return self.low <= number <= self.high

    @property
    def known(self) -> bool:
        """Whether there is an interval.

        >>> Estimate(value=1.0, low=math.nan, high=math.nan).known
        False
        """
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        if not math.isfinite(self.value):
            return "-"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]" if self.known else f"{self.value:.3f}"

    def to_dict(self) -> dict[str, float | None]:
        """As JSON holds it; null for a number that is none."""
        return {name: finite(getattr(self, name)) for name in ("value", "low", "high")}


def finite(number: float) -> float | None:
    """The number, or None, which JSON can hold, where it is infinite or NaN."""
    return float(number) if math.isfinite(number) else None


def log_slope(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """The slope of `log y` against `log x` by least squares over the points with `y > 0`; NaN with fewer than two.

    >>> round(log_slope([1, 10, 100], [3, 0.3, 0.03]), 6)
    -1.0
    """
    a, b = _logs(x, y)
    if a.size < 2:
        return math.nan
    a = a - a.mean()
    return float(a @ b / (a @ a))


def log_curvature(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """How much the slope grows from the first to the last point, by a parabola through the logarithms; NaN if < 3.

    >>> round(log_curvature([1, 10, 100], [1, 10, 1000]), 6)
    2.0
    """
    a, b = _logs(x, y)
    return float(2 * np.polyfit(a, b, 2)[0] * (a[-1] - a[0])) if a.size > 2 else math.nan


def _logs(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    seen = b > 0
    return np.log(a[seen]), np.log(b[seen])


def interval(values: npt.ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """The ends of the middle share `level` of resampled values; NaNs among them do not count.

    >>> interval(range(101), level=0.5)
    (25.0, 75.0)
    """
    kept = np.asarray(values, dtype=np.float64)
    kept = kept[np.isfinite(kept)]
    if kept.size == 0:
        return math.nan, math.nan
    low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def resampled(value: float, values: npt.ArrayLike, *, size: int, positive: bool = False) -> Estimate:
    """An estimate from the value of all data and those of resamples of a few items, such as seeds.

    Resamples of `n` items vary less than the truth does, by `sqrt((n - 1) / n)`, and know nothing of how badly so few
    items tell their own spread: with five, the middle 95 % of them hold the truth in about 80 % of all cases. So the
    interval is stretched about the value by `sqrt(n / (n - 1))` and by what Student's t with `n - 1` degrees of freedom
    is wider than the normal distribution.

    Args:
        value: from all data.
        values: from the resamples.
        size: `n`; below `FEWEST` there is no interval.
        positive: whether the number is above 0, so that ratios are stretched instead of differences.
    """
    if size < FEWEST:
        return Estimate(value=value, low=math.nan, high=math.nan)
    low, high = interval(values)
    w = stretch(size)
    if positive:
        low, high = (value * (end / value) ** w if value > 0 and end > 0 else end for end in (low, high))
    else:
        low, high = value - w * (value - low), value + w * (high - value)
    return Estimate(value=value, low=low, high=high)


def too_few(seeds: int) -> str:
    """Why so few seeds give no interval, in words.

    >>> too_few(1), too_few(2)
    ('one seed gives no interval', '2 seeds give no interval')
    """
    return "one seed gives no interval" if seeds == 1 else f"{seeds} seeds give no interval"


def stretch(size: int, level: float = LEVEL) -> float:
    """By what an interval from resamples of `size` items is too narrow, as far as normal data tell.

    >>> round(stretch(5), 3), round(stretch(1000), 3)
    (1.584, 1.002)
    """
    from scipy.special import ndtri, stdtrit

    share = (1 + level) / 2
    return float(stdtrit(size - 1, share) / ndtri(share) * math.sqrt(size / (size - 1)))


def bootstrap(
    statistic: Callable[[npt.NDArray[np.int64]], float],
    size: int,
    rng: np.random.Generator,
    *,
    positive: bool = False,
) -> Estimate:
    """A statistic of `size` exchangeable items (seeds), with an interval from drawing them anew with replacement.

    Args:
        statistic: gets the positions of the items, which may repeat.
        size: how many there are.
        rng: draws the resamples.
        positive: see `resampled`.
    """
    require(size >= 1, "a bootstrap needs at least one item")
    everyone = np.arange(size)
    if size < FEWEST:
        return resampled(statistic(everyone), (), size=size)
    draws = rng.integers(0, size, size=(RESAMPLES, size))
    return resampled(statistic(everyone), [statistic(draw) for draw in draws], size=size, positive=positive)


def slope_estimate(x: Sequence[float], y: Array, rng: np.random.Generator) -> Estimate:
    """The log-log slope of the mean over seeds, with a bootstrap over seeds.

    Args:
        x: `[n]`.
        y: `[seeds, n]`, above 0.
        rng: draws the resamples.
    """
    return bootstrap(lambda chosen: log_slope(x, y[chosen].mean(axis=0)), len(y), rng)


def squared_norm(gram: Array, counts: Array | None = None) -> Array:
    """`||E g||^2` without the noise of its estimate: the mean of `<g_i, g_j>` over pairs `i != j` (a U-statistic).

    Args:
        gram: `<g_i, g_j>`, `[R, R]`, of independent draws `g_i`.
        counts: how often each resample chose each draw, `[B, R]`; a draw chosen twice is no pair with itself. One
            resample with every draw once if not given.

    Returns:
        `[B]`, an unbiased estimate for each resample, which noise can make negative.

    >>> squared_norm(np.array([[9.0, 2.0], [2.0, 7.0]])).tolist()
    [2.0]
    """
    w = np.ones((1, len(gram))) if counts is None else counts
    squares = w**2
    pairs = w.sum(axis=1) ** 2 - squares.sum(axis=1)
    sums = ((w @ gram) * w).sum(axis=1) - squares @ np.diag(gram)
    out: Array = np.divide(sums, pairs, out=np.full(len(w), math.nan), where=pairs > 0)
    return out


def nonnegative_fit(columns: npt.ArrayLike, y: npt.ArrayLike) -> Array:
    """Coefficients `c >= 0` that make `columns @ c` closest to `y`, each relative to `y`.

    >>> nonnegative_fit([[1.0, 0.0], [1.0, 1.0]], [2.0, 1.0]).round(6).tolist()
    [1.2, 0.0]
    """
    from scipy.optimize import nnls

    target = np.asarray(y, dtype=np.float64)
    result: Array = nnls(np.asarray(columns, dtype=np.float64) / target[:, None], np.ones(target.size))[0]
    return result
