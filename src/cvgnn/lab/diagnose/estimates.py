"""Numbers with confidence intervals (jackknife, bootstrap), slopes of log-log plots, and how numbers are printed.

A resample depends only on the generator it is given, so a diagnosis can be repeated to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Index = npt.NDArray[Any]

CONFIDENCE = 0.95
RESAMPLES = 2000

FEWEST_SEEDS = 3
"""An interval needs this many seeds: two estimate their spread so badly that it would be stretched nine times."""

_HUGE = 1e6


class Estimate(NamedTuple):
    """A number and the ends of its confidence interval, NaN where there are too few data for one."""

    value: float
    low: float
    high: float

    def holds(self, number: float) -> bool:
        """Whether a number lies in the interval.

        >>> Estimate(1.0, 0.9, 1.1).holds(1.05)
        True
        """
        return self.low <= number <= self.high

    @property
    def known(self) -> bool:
        """Whether there is an interval.

        >>> Estimate(1.0, math.nan, math.nan).known
        False
        """
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        if not math.isfinite(self.value):
            return "-"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]" if self.known else f"{self.value:.3f}"


UNKNOWN = Estimate(math.nan, math.nan, math.nan)


def leave_one_out(statistic: Callable[[Index], npt.ArrayLike], count: int) -> Array:
    """A statistic of `count` units, then without each of them in turn: `[1 + count, ...]`, `[1, ...]` if `count < 3`.

    Sums, products and ratios of statistics are those of these arrays, so `jackknife` takes them as they are.

    >>> leave_one_out(lambda keep: keep.sum(), 3).tolist()
    [3.0, 3.0, 2.0, 1.0]
    """
    everything = np.arange(count)
    left = [np.delete(everything, i) for i in everything] if count > 2 else []
    return np.array([statistic(keep) for keep in (everything, *left)], dtype=np.float64)


def jackknife(values: Array, *, positive: bool = False) -> Estimate:
    """A statistic and its interval, by leaving out each of `n` units once (Student's t with `n - 1`).

    The jackknife's variance is, in expectation, not below the true one (Efron and Stein 1981), also for bias^2, whose
    bootstrap would be centred wrongly.

    Args:
        values: of all units and without each of them, as `leave_one_out` gives them.
        positive: whether the interval is taken on the logarithm, for what cannot be negative.

    >>> jackknife(leave_one_out(np.mean, 5)).value
    2.0
    """
    from scipy.special import stdtrit

    value, without, count = float(values[0]), values[1:], len(values) - 1
    if count < 3:
        return Estimate(value, value, value)
    log = positive and bool((values > 0).all())
    without = np.log(without) if log else without
    with np.errstate(over="ignore"):  # squares of squared gradients: an infinite interval, not a warning
        deviation = np.sqrt((count - 1) / count * np.square(without - without.mean()).sum())
    half = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2) * deviation)
    low, high = (value * math.exp(-half), value * math.exp(half)) if log else (value - half, value + half)
    return Estimate(value, low, high)


def mean_of(values: Array) -> Estimate:
    """A mean with its interval."""
    return jackknife(leave_one_out(lambda keep: values[keep].mean(), len(values)))


def interval(values: npt.ArrayLike, level: float = CONFIDENCE) -> tuple[float, float]:
    """The ends of the middle share `level` of resampled values; NaNs and infinities do not count.

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

    Resamples of `n` items vary less than the truth does, by `sqrt((n - 1) / n)`, and ignore how badly so few items
    estimate their own spread: with five, the middle 95 % of them hold the truth in about 80 % of all cases. So the
    interval is stretched about the value by `sqrt(n / (n - 1))` and by what Student's t with `n - 1` degrees of freedom
    is wider than the normal distribution.

    Args:
        value: from all data.
        values: from the resamples.
        size: `n`; below `FEWEST_SEEDS` there is no interval.
        positive: whether the number is above 0, so that ratios are stretched instead of differences.
    """
    if size < FEWEST_SEEDS:
        return Estimate(value, math.nan, math.nan)
    low, high = interval(values)
    w = stretch(size)
    if positive:
        low, high = (value * (end / value) ** w if value > 0 and end > 0 else end for end in (low, high))
        return Estimate(value, low, high)
    return Estimate(value, value - w * (value - low), value + w * (high - value))


def stretch(size: int, level: float = CONFIDENCE) -> float:
    """The factor by which an interval from resamples of `size` normal items is too narrow.

    >>> round(stretch(5), 3), round(stretch(1000), 3)
    (1.584, 1.002)
    """
    from scipy.special import ndtri, stdtrit

    share = (1 + level) / 2
    return float(stdtrit(size - 1, share) / ndtri(share) * math.sqrt(size / (size - 1)))


def bootstrap(
    statistic: Callable[[Index], float], size: int, rng: np.random.Generator, *, positive: bool = False
) -> Estimate:
    """A statistic of `size` exchangeable items (seeds), with an interval from resamples with replacement.

    Args:
        statistic: of the items at the given positions, which may repeat.
        size: how many items there are.
        rng: draws the resamples.
        positive: see `resampled`.
    """
    # Not scipy.stats.bootstrap: its percentiles are NaN where one resample is, and it does not correct for few items.
    draws = rng.integers(0, size, size=(RESAMPLES if size >= FEWEST_SEEDS else 0, size))
    return resampled(statistic(np.arange(size)), [statistic(draw) for draw in draws], size=size, positive=positive)


def too_few(seeds: int) -> str:
    """The sentence for seeds that are too few for an interval.

    >>> too_few(1), too_few(2)
    ('one seed gives no interval', '2 seeds give no interval')
    """
    return "one seed gives no interval" if seeds == 1 else f"{seeds} seeds give no interval"


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
    return np.log(a[b > 0]), np.log(b[b > 0])


def slope_estimate(x: Sequence[float] | Array, y: Array, rng: np.random.Generator) -> Estimate:
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
        gram: `<g_i, g_j>`, `[..., R, R]`, of independent draws `g_i`.
        counts: how often each resample chose each draw, `[B, R]`; a draw chosen twice is no pair with itself. One
            resample with every draw once if not given.

    Returns:
        `[..., B]`, an unbiased estimate for each resample, which noise can make negative.

    >>> squared_norm(np.array([[9.0, 2.0], [2.0, 7.0]])).tolist()
    [2.0]
    """
    w = np.ones((1, gram.shape[-1])) if counts is None else counts
    pairs = w.sum(axis=1) ** 2 - (w**2).sum(axis=1)
    sums = ((w @ gram) * w).sum(axis=-1) - np.diagonal(gram, axis1=-2, axis2=-1) @ (w**2).T
    out: Array = np.divide(sums, pairs, out=np.full(sums.shape, math.nan), where=pairs > 0)
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


def digits(number: float | None, count: int = 3) -> str:
    """A number with few digits, without a long tail of zeros.

    >>> digits(0.0001234), digits(1234567.0), digits(12.0), digits(None), digits(0.5)
    ('1.23e-04', '1.23e+06', '12', '-', '0.5')
    """
    if number is None or not math.isfinite(number):
        return "-"
    if number == 0 or 1e-3 <= abs(number) < 10 ** (count + 1):
        return f"{number:.{count}g}" if abs(number) < 10**count else f"{number:.0f}"
    return f"{number:.{count - 1}e}"


def fixed(number: float, places: int) -> str:
    """A number with so many digits behind the point, or few in all where it is huge.

    >>> fixed(1.9459, 3), fixed(1e99, 3), fixed(math.nan, 1)
    ('1.946', '1.00e+99', '-')
    """
    return f"{number:.{places}f}" if abs(number) < _HUGE else digits(number)


def spread(found: Estimate, scale: float = 1.0) -> str:
    """A number with half the width of its interval, the wider half; both divided by a scale.

    >>> spread(Estimate(0.123456, 0.1, 0.15)), spread(Estimate(2.0, 1.0, 3.0), 4.0), spread(Estimate(1.0, 1.0, 1.0))
    ('0.123 ±0.027', '0.5 ±0.25', '1')
    """
    half = max(found.value - found.low, found.high - found.value) / scale
    return digits(found.value / scale) + (f" ±{digits(half, 2)}" if half > 0 else "")


def ends(found: Estimate) -> str:
    """The ends of an interval, if there is one.

    >>> ends(Estimate(2.0, 1.0, 3.0)), ends(Estimate(2.0, math.nan, math.nan))
    ('1 .. 3', '-')
    """
    return f"{found.low:.3g} .. {found.high:.3g}" if found.known else "-"


def rough_percent(share: float) -> str:
    """A share in percent with two digits.

    >>> [rough_percent(share) for share in (0.1234, 0.00012, 1.0, 1e50, math.nan)]
    ['12 %', '0.012 %', '100 %', '1.00e+52 %', '-']
    """
    if not math.isfinite(share):
        return "-"
    return f"{fixed(100 * share, 0)} %" if share >= 0.1 else f"{100 * share:.2g} %"
