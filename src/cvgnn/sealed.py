"""JSON objects that carry their own checksum, and the careful reading of JSON from a file that may be anybody's."""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from typing import Any

_DEEPEST = 100  # nested lists and objects
_MOST_DIGITS = 300  # of a whole number: what a float64 can still hold
_LARGEST = 10**_MOST_DIGITS

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 80


def seal(body: dict[str, Any], *, indent: int | None = 1) -> str:
    """`body` as JSON, its checksum added: SHA-256 of the same object without that key, keys sorted, no spaces."""
    return json.dumps({**body, "sha256": digest(body)}, indent=indent, allow_nan=False) + "\n"


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, keys sorted, no spaces.

    >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_sealed(body: dict[str, Any]) -> bool:
    """Whether an object that was read has the checksum that it states; takes the checksum out of it."""
    stated = body.pop("sha256", None)
    return isinstance(stated, str) and stated == digest(body)


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object that UTF-8 bytes spell; `ValueError` says in a few words what else they are.

    >>> parse_object(b'{"a": 1}')
    {'a': 1}
    """
    try:
        value = parse_json(data)
    except ValueError as error:
        raise ValueError(f"is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    return value


def parse_json(data: bytes) -> Any:
    """The JSON value that UTF-8 bytes spell, if it is one that can be worked with: finite numbers, not nested without
    end. `ValueError` says in a few words what is wrong.

    >>> parse_json(b"[1, 1e999]")
    Traceback (most recent call last):
    ValueError: the number 1e999 is too large
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_float=_finite, parse_constant=_no_number)
        check_values(value)
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, no number, or too deep
        raise ValueError(str(error)[:80]) from None
    return value


def check_values(value: Any) -> None:
    """Refuse, with a `ValueError`, what cannot be compared, shown or computed with: lists and dicts nested without end,
    whole numbers of hundreds of digits."""
    level = [value]
    for _ in range(_DEEPEST):
        for part in level:
            if isinstance(part, int) and abs(part) >= _LARGEST:
                raise ValueError(f"a number of more than {_MOST_DIGITS} digits is too large")
        parts = (part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list))
        level = [value for values in parts for value in values]
        if not level:
            return
    raise ValueError(f"it nests values more than {_DEEPEST} deep")


def short(value: object) -> str:
    """A value from a file as it may stand in a message: quoted, escaped and short.

    >>> short("a" * 1000) == "'" + "a" * 37 + "..." + "a" * 38 + "'"
    True
    """
    return _short.repr(value)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number in JSON")
