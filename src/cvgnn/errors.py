"""What cvgnn raises for a user's mistake: a sentence that says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable
from typing import Any


class CvgnnError(ValueError):
    """A mistake in the input, told in one sentence; the command line prints it without a traceback."""


class Stopped(CvgnnError):
    """A run was asked to stop, and did.

    Args:
        signal_number: which signal asked.
        sentence: where it stands and how to go on.
    """

    def __init__(self, signal_number: int, sentence: str) -> None:
        self.signal_number = signal_number
        super().__init__(sentence)


class Interrupted(KeyboardInterrupt):
    """A second signal: the program ends at once.

    Args:
        signal_number: which one.
    """

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number
        super().__init__()


def require(condition: bool, sentence: str) -> None:
    """Raise `CvgnnError(sentence)` unless `condition` holds.

    >>> require(1 > 0, "never raised")
    """
    if not condition:
        raise CvgnnError(sentence)


def unknown_name(kind: str, name: object, known: Iterable[str]) -> CvgnnError:
    """The error for a name that is not in a list of known ones.

    >>> print(unknown_name("dataset", "citeseeer", ["cora", "citeseer"]))
    unknown dataset 'citeseeer'; known: cora, citeseer (did you mean 'citeseer'?)
    """
    names = list(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return CvgnnError(f"unknown {kind} {name!r}; known: {', '.join(names)}{hint}")


def require_integer(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """`value` as an int if it is a whole number in range (numpy's integers are, booleans are not).

    >>> require_integer("layers", 2, at_least=1)
    2
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < at_least:
        raise CvgnnError(f"{name} must be a whole number of at least {at_least}, not {value!r}")
    require(at_most is None or number <= at_most, f"{name} must be at most {at_most}, not {value!r}")
    return number


def require_number(
    name: str,
    value: Any,
    rule: str,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> None:
    """Refuse what is not a finite number in range; `rule` says the range in words."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    require(number and value >= at_least and above < value < below, f"{name} must be {rule}, not {value!r}")
