"""What cvgnn raises for a user's mistake: a sentence that says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CvgnnError(ValueError):
    """A mistake in the input, told in one sentence; the command line prints it without a traceback."""


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
