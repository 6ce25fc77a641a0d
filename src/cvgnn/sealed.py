"""JSON objects that carry their own checksum, and the careful reading of JSON from a file that may be anybody's."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def seal(body: dict[str, Any]) -> str:
    """`body` as JSON, its checksum added: SHA-256 of the same object without that key, keys sorted, no spaces."""
    return json.dumps({**body, "sha256": digest(body)}, indent=1, allow_nan=False) + "\n"


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
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number of thousands of digits, or too deep
        raise ValueError(f"is not valid JSON ({str(error)[:80]})") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    return value
