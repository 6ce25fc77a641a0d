"""Numbers as tables and sentences show them."""

from __future__ import annotations

import math

from cvgnn.diagnose.statistics import Interval

_HUGE = 1e6


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


def spread(found: Interval, scale: float = 1.0) -> str:
    """A number with half the width of its interval, the wider half; both divided by a scale.

    >>> spread(Interval(0.123456, 0.1, 0.15)), spread(Interval(2.0, 1.0, 3.0), 4.0), spread(Interval(1.0, 1.0, 1.0))
    ('0.123 ±0.027', '0.5 ±0.25', '1')
    """
    half = max(found.value - found.low, found.high - found.value) / scale
    return digits(found.value / scale) + (f" ±{digits(half, 2)}" if half > 0 else "")


def within(found: Interval) -> str:
    """A number with the ends of its interval.

    >>> within(Interval(12.34, 11.0, 14.0))
    '12.3 [11, 14]'
    """
    return f"{digits(found.value)} [{digits(found.low)}, {digits(found.high)}]"


def percent(share: float) -> str:
    """A share in percent with two digits.

    >>> percent(0.1234), percent(0.00012), percent(1.0), percent(1e50), percent(math.nan)
    ('12 %', '0.012 %', '100 %', '1.00e+52 %', '-')
    """
    if not math.isfinite(share):
        return "-"
    return f"{fixed(100 * share, 0)} %" if share >= 0.1 else f"{100 * share:.2g} %"
