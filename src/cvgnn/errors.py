"""Exceptions for bad input and interrupted runs. A message says what is wrong, where, and what to do."""

from __future__ import annotations

import contextlib
import difflib
import math
import operator
from collections.abc import Collection, Iterable, Iterator
from typing import Any


class CvgnnError(ValueError):
    """Bad input; the command line prints the message without a traceback."""


class Stopped(CvgnnError):
    """A run stopped after a signal.

    Args:
        signal_number: of the signal.
        message: the progress of the run and how to continue it.
    """

    def __init__(self, signal_number: int, message: str) -> None:
        self.signal_number = signal_number
        super().__init__(message)


class Interrupted(KeyboardInterrupt):
    """A second signal ended the program without waiting for the current step.

    Args:
        signal_number: of the signal.
    """

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number
        super().__init__()


def require(condition: bool, message: str) -> None:
    """Raise `CvgnnError(message)` unless `condition` holds.

    >>> require(1 > 0, "never raised")
    """
    if not condition:
        raise CvgnnError(message)


@contextlib.contextmanager
def error_context(before: str = "", after: str = "") -> Iterator[None]:
    """Put text before and after the message of a `CvgnnError` that the block raises.

    >>> with error_context("settings.toml: "):
    ...     require(False, "lr is missing")
    Traceback (most recent call last):
    cvgnn.errors.CvgnnError: settings.toml: lr is missing
    """
    try:
        yield
    except CvgnnError as error:
        raise CvgnnError(f"{before}{error}{after}") from None


_LONGEST_LIST = 700  # characters of known names in an error, which is to stay readable

# What other libraries call our options: no spelling is close to `lr`.
_SYNONYMS = {
    "learning_rate": "lr", "l2": "weight_decay", "num_epochs": "epochs", "n_epochs": "epochs", "num_layers": "layers",
    "n_layers": "layers", "hidden_channels": "hidden", "hidden_dim": "hidden", "fan_out": "num_neighbors",
    "fanout": "num_neighbors", "early_stopping": "patience", "random_state": "seed", "prediction": "class",
    "id": "node", "true": "label", "target": "label",
}  # fmt: skip


def unknown_name(kind: str, name: object, known: Iterable[str]) -> CvgnnError:
    """The error for a name that is not in a list of known ones.

    >>> print(unknown_name("dataset", "citeseeer", ["cora", "citeseer"]))
    unknown dataset 'citeseeer'; known: cora, citeseer (did you mean 'citeseer'?)
    """
    names = list(known)
    other = _SYNONYMS.get(str(name))
    close = [other] if other in names else difflib.get_close_matches(str(name), names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    listed = ", ".join(names)
    if len(listed) > _LONGEST_LIST:
        listed = listed[: listed.rindex(", ", 0, _LONGEST_LIST)] + ", ..."
    return CvgnnError(f"unknown {kind} {name!r}; known: {listed}{hint}")


def require_known(kind: str, name: object, known: Collection[str]) -> None:
    """Raise `unknown_name(kind, name, known)` unless the name is known.

    >>> require_known("optimizer", "adam", ["adam", "sgd"])
    """
    if name not in known:
        raise unknown_name(kind, name, known)


def require_integer(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """`value` as an int, if it is a whole number in range; NumPy integers are accepted, booleans are not.

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
    at_most: float = math.inf,
) -> None:
    """Raise unless `value` is a finite number in range; `rule` describes the range in the message."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    require(number and at_least <= value <= at_most and above < value < below, f"{name} must be {rule}, not {value!r}")
