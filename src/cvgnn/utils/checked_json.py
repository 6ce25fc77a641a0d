"""JSON objects with a checksum, and safe parsing of JSON from an untrusted file."""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 100  # of nested lists and objects; comparing or printing deeper ones may exhaust Python's stack
_MAX_DIGITS = 300  # of an integer; a float64 holds no more
_CHECKSUM = "sha256"

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 80


def finite(value: Any) -> Any:
    """A JSON value with None for every float that JSON has no number for, and lists for tuples.

    >>> finite({"a": (1.0, math.nan)})
    {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def add_checksum(body: dict[str, Any], *, indent: int | None = 1) -> str:
    """JSON text of `body` with its `digest` under the additional key `"sha256"`."""
    return json.dumps({**body, _CHECKSUM: digest(body)}, indent=indent, allow_nan=False) + "\n"


def has_valid_checksum(body: dict[str, Any]) -> bool:
    """Whether `body["sha256"]` is the `digest` of the rest of an object that was read.

    >>> has_valid_checksum(json.loads(add_checksum({"a": 1}))), has_valid_checksum({"a": 1})
    (True, False)
    """
    return body.get(_CHECKSUM) == digest({key: value for key, value in body.items() if key != _CHECKSUM})


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, keys sorted, no spaces.

    >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse UTF-8 bytes as a JSON object; a short `ValueError` if they are something else.

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
    """Parse UTF-8 bytes as a JSON value of finite numbers and bounded depth; a short `ValueError` if it is not one.

    >>> parse_json(b"[1, 1e999]")
    Traceback (most recent call last):
    ValueError: the number 1e999 is too large
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_float=_parse_float, parse_constant=_parse_constant)
        check_values(value)
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, a bad number, or nested too deeply
        raise ValueError(str(error)[:80]) from None
    return value


def check_values(value: Any) -> None:
    """Raise `ValueError` for lists and dicts nested too deeply and for integers of hundreds of digits.

    Such values cannot be compared, printed or converted safely.
    """
    level = [value]
    for _ in range(_MAX_DEPTH):
        if any(isinstance(item, int) and abs(item) >= 10**_MAX_DIGITS for item in level):
            raise ValueError(f"a number of more than {_MAX_DIGITS} digits is too large")
        parents = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [child for children in parents for child in children]
        if not level:
            return
    raise ValueError(f"it nests values more than {_MAX_DEPTH} deep")


def short(value: object) -> str:
    """A value from a file for an error message: quoted, escaped and short.

    >>> short("a" * 1000) == "'" + "a" * 37 + "..." + "a" * 38 + "'"
    True
    """
    return _short.repr(value)


def _parse_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number


def _parse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")
