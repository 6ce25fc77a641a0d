"""JSON with its own checksum: any change shows, and nothing that a file may hold is more than a `ValueError`."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import pytest

from cvgnn.utils.checked_json import add_checksum, digest, has_valid_checksum, parse_object

BODY: dict[str, Any] = {
    "b": 1,
    "a": [1.5, 0.1 + 0.2, -0.0, 1e-300, None, True, "né ☃ \ud800", ""],
    "c": {"z": {}, "y": [], "big": 2**70},
}


def test_a_round_trip_keeps_everything() -> None:
    found = parse_object(add_checksum(BODY).encode())
    assert has_valid_checksum(found)
    assert found == {**BODY, "sha256": digest(BODY)}  # the check changes nothing
    assert math.copysign(1.0, found["a"][2]) == -1.0


def test_the_checksum_is_what_the_docstring_says() -> None:
    stated = json.loads(add_checksum(BODY))["sha256"]
    text = json.dumps(BODY, sort_keys=True, separators=(",", ":"))
    assert stated == hashlib.sha256(text.encode()).hexdigest() == digest(BODY)


def test_the_order_of_keys_does_not_matter() -> None:
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
    assert digest([1, 2]) != digest([2, 1])


def test_every_changed_byte_shows() -> None:
    data = add_checksum({"a": [1, "x"], "b": 0.25}).encode()
    for place in range(len(data)):
        spoiled = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        try:
            found = parse_object(spoiled)
        except ValueError:
            continue
        # The last line's end may become any other white space; nothing else may.
        assert not has_valid_checksum(found) or spoiled.strip() == data.strip(), spoiled


def test_every_truncation_shows() -> None:
    data = add_checksum({"a": 1}).encode().rstrip()
    for size in range(len(data)):
        with pytest.raises(ValueError, match="is not valid JSON"):
            parse_object(data[:size])


@pytest.mark.parametrize("stated", [None, 1, "", "0" * 64, ["x"], {"a": 1}])
def test_what_is_not_the_checksum(stated: object) -> None:
    assert not has_valid_checksum({"a": 1, "sha256": stated})


def test_without_a_checksum() -> None:
    assert not has_valid_checksum({"a": 1})
    assert not has_valid_checksum({})


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_json_does_not_have_is_not_written(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        add_checksum({"a": number})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not valid JSON"),
        (b"{", "is not valid JSON"),
        (b'{"a": 1}}', "is not valid JSON"),
        (b"\xff\xfe", "is not valid JSON"),
        (b'{"a": "\xe9"}', "is not valid JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"a":' * 100_000, "is not valid JSON"),
        (b"\xef\xbb\xbf{}", "is not valid JSON"),
        (b'{"a": NaN}', "is not valid JSON"),
        (b'{"a": -Infinity}', "is not valid JSON"),
        (b'{"a": 1e999}', "is not valid JSON"),
        (b'{"a": ' + b"9" * 310 + b"}", "is not valid JSON"),
        (b'{"a":' * 150 + b"1" + b"}" * 150, "is not valid JSON"),
        (b"[]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b"1", "is not a JSON object"),
        (b'"a"', "is not a JSON object"),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_what_is_no_object(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_object(data)
    assert len(str(caught.value)) < 120


def test_any_depth_that_can_be_read_can_be_checked() -> None:
    for depth in (10, 500, *range(900, 1000, 7)):
        try:
            found = parse_object(b'{"a":' * depth + b"1" + b"}" * depth)
        except ValueError:
            continue
        assert not has_valid_checksum(found)
