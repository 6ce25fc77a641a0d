"""Ways to spoil a file: byte by byte, number by number, and inside its form (JSON, TOML, zip, npy, gzip, safetensors).

A mutation gets bytes and a source of random numbers and returns other bytes; the same numbers give the same bytes.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from cvgnn.utils.checked_json import digest

Mutation = Callable[[bytes, Random], bytes]

WHOLE = (0, 1, -1, 2, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**53 + 1, 2**62)
WHOLE += (2**63 - 1, 2**63, -(2**63), 2**64 - 1)
REAL = (0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), 1e-320, 1.8e308, 3.5e38)
PACKED = [
    *(struct.pack("<Q", n % 2**64) for n in WHOLE),
    *(struct.pack("<I", n % 2**32) for n in WHOLE),
    *(struct.pack("<H", n % 2**16) for n in (0, 1, -1, 2**15)),
    *(struct.pack("<d", x) for x in REAL),
    *(struct.pack("<f", x) for x in (0.0, 1.5, float("nan"), float("inf"), 1e-40)),
]
DIGITS = ("0", "-1", "1", "00", "2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551616")
DIGITS += ("1e9", "1e999", "-1e999", "nan", "inf", "0x7f", "1.5", "9" * 400, "9" * 5000, "", "1_000", "٣")
TEXTS = ("", " ", "\0", "a\nb", "\x1b[2J", "../../x", "/etc/passwd", "\ud800", "é" * 9, "x" * 3000, "{}", "\u2028")


def one_of(*mutations: Mutation, most: int = 3) -> Mutation:
    """One to `most` of the given ones, one after the other; mostly one."""

    def mutate(data: bytes, rng: Random) -> bytes:
        for _ in range(rng.choice([1, 1, 1, *range(2, most + 1)])):
            data = rng.choice(mutations)(data, rng)
        return data

    return mutate


# Bytes


def flip(data: bytes, rng: Random) -> bytes:
    """Other bits here and there."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8]) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def replace(data: bytes, rng: Random) -> bytes:
    """Other bytes here and there."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 3]) if out else 0):
        out[rng.randrange(len(out))] = rng.choice([0, 0xFF, 0x80, 10, 13, 34, 44, 58, 91, 123, rng.randrange(256)])
    return bytes(out)


def delete(data: bytes, rng: Random) -> bytes:
    """Without a span."""
    a, b = _span(data, rng)
    return data[:a] + data[b:]


def duplicate(data: bytes, rng: Random) -> bytes:
    """With a span twice, or many times."""
    a, b = _span(data, rng)
    return data[:b] + data[a:b] * rng.choice([1, 1, 2, 50]) + data[b:]


def insert(data: bytes, rng: Random) -> bytes:
    """With something put in."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice([rng.randbytes(rng.choice([1, 4, 40])), bytes(rng.choice([1, 8, 64]))]) + data[at:]


def truncate(data: bytes, rng: Random) -> bytes:
    """The beginning only; sometimes nothing."""
    return data[: rng.choice([0, 1, len(data) - 1, rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)])]


def swap(data: bytes, rng: Random) -> bytes:
    """Two blocks in each other's place."""
    if len(data) < 4:
        return data
    size = rng.randrange(1, min(64, len(data) // 2) + 1)
    a = rng.randrange(len(data) - 2 * size + 1)
    b = rng.randrange(a + size, len(data) - size + 1)
    return data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]


def boundary(data: bytes, rng: Random) -> bytes:
    """A number at the end of some range, over what was there; numbers in files often lie at even places."""
    packed = rng.choice(PACKED)
    at = rng.randrange(len(data) + 1)
    at -= at % rng.choice([1, 1, 2, 4, 8])
    return data[:at] + packed + data[at + len(packed) :]


def spliced(others: Sequence[bytes]) -> Mutation:
    """The beginning of one file and the end of another sound one."""

    def splice(data: bytes, rng: Random) -> bytes:
        other = rng.choice(others)
        return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]

    return splice


def _span(data: bytes, rng: Random) -> tuple[int, int]:
    a = rng.randrange(len(data) + 1)
    return a, min(len(data), a + rng.choice([1, 1, 2, 4, 8, 16, 64, 256]))


BYTES = (flip, replace, delete, duplicate, insert, truncate, swap, boundary)


# Text


def digits(data: bytes, rng: Random) -> bytes:
    """Another number in the place of a number."""
    found = list(re.finditer(rb"-?[0-9]+(\.[0-9]+)?", data))
    if not found:
        return data
    match = rng.choice(found)
    new = rng.choice([*DIGITS, str(rng.choice(WHOLE)), str(rng.randrange(10))])
    return data[: match.start()] + new.encode() + data[match.end() :]


def words(data: bytes, rng: Random) -> bytes:
    """Another word in the place of a word."""
    found = list(re.finditer(rb"[A-Za-z_]+", data))
    if not found:
        return data
    match = rng.choice(found)
    new = rng.choice([rng.choice(found).group(), rng.choice(TEXTS).encode("utf-8", "surrogatepass")])
    return data[: match.start()] + new + data[match.end() :]


def lines(data: bytes, rng: Random) -> bytes:
    """A line left out, doubled, moved or joined to the next."""
    rows = data.split(b"\n")
    a, b = rng.randrange(len(rows)), rng.randrange(len(rows))
    how = rng.randrange(4)
    if how == 0:
        del rows[a]
    elif how == 1:
        rows.insert(b, rows[a])
    elif how == 2:
        rows[a], rows[b] = rows[b], rows[a]
    else:
        rows[a : a + 2] = [b"".join(rows[a : a + 2])]
    return b"\n".join(rows)


TEXT = (digits, digits, words, lines, flip, replace, delete, insert, truncate, duplicate)


# JSON and TOML


class Raw(str):
    """Text that stands in JSON as it is, without quotes."""


def _raw(rng: Random) -> Raw:
    deep = rng.choice([20, 90, 110, 400, 990, 1200, 3000, 100_000])
    return Raw(
        rng.choice(
            [
                *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1E400", "9" * 400, "9" * 5000, "-" + "9" * 310),
                *("[" * deep + "]" * deep, '{"a":' * deep + "1" + "}" * deep, "[" * deep),
                *("1.0", "-0", "1e5", "true", "null", '"\\ud800"', '{"a":1,"a":2}', ""),
            ]
        )
    )


def _other_value(rng: Random) -> Any:
    return rng.choice(
        [
            *(None, True, False, [], {}, [[]], {"a": None}, [None], [1, "a"], [0] * 300),
            *(rng.choice(WHOLE), rng.choice(WHOLE), rng.choice((0.0, -0.0, 1.5, 1e-320, 1.7e308)), rng.choice(TEXTS)),
            _raw(rng),
        ]
    )


def json_value(value: Any, rng: Random) -> Any:
    """The value with one thing inside it changed: another type, another number, a key too many, too few, elsewhere."""
    places = _places(value)
    holder, key = rng.choice(places)
    how = rng.random()
    if how < 0.6:
        holder[key] = _other_value(rng)
    elif how < 0.7:
        del holder[key]
    elif how < 0.8:
        other, at = rng.choice(places)
        holder[key] = copy.deepcopy(other[at])  # a copy: no value lies within itself
    elif isinstance(holder, dict):
        name = rng.choice([*TEXTS, *holder, f"{key}2"])
        holder[name] = holder[key] if how < 0.9 else holder.pop(key)
    else:
        holder.insert(key, _other_value(rng))
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Where a value inside a value can be changed; those high up as often as those in a long list."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop(0)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        found += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys if isinstance(holder[key], dict | list) and holder[key]]
    return found


def json_text(value: Any) -> bytes:
    """JSON in which `Raw` text stands as it is, whatever that makes of it."""
    raws: list[str] = []

    def marked(part: Any) -> Any:
        if isinstance(part, Raw):
            raws.append(part)
            return f"@raw{len(raws) - 1}@"
        if isinstance(part, dict):
            return {k: marked(v) for k, v in part.items()}
        return [marked(v) for v in part] if isinstance(part, list) else part

    text = json.dumps(marked(value))
    for number, raw in enumerate(raws):
        text = text.replace(f'"@raw{number}@"', raw)
    return text.encode()


def structure(data: bytes, rng: Random) -> bytes:
    """JSON that says something else, or has a key twice; other bytes are left as they are."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(value, dict | list) or not value:
        return data
    if rng.random() < 0.05 and isinstance(value, dict):
        key = rng.choice(list(value))
        return json_text(value)[:-1] + b", " + json_text({key: _other_value(rng)})[1:]
    for _ in range(rng.choice([1, 1, 1, 2])):
        if _places(value):
            value = json_value(value, rng)
    return json_text(value)


def with_new_checksum(mutation: Mutation, change: Callable[[dict[str, Any]], None] | None = None) -> Mutation:
    """Give what a mutation made of a checksummed object a right checksum again, as somebody who means harm would.

    Args:
        mutation: of the JSON.
        change: of the object, before it is checksummed.
    """

    def mutate(data: bytes, rng: Random) -> bytes:
        data = mutation(data, rng)
        try:
            body = json.loads(data)
            body.pop("sha256", None)
            if change is not None:
                change(body)
            return json.dumps({**body, "sha256": digest(body)}).encode()
        except (ValueError, AttributeError, RecursionError):
            return data

    return mutate


def toml(data: bytes, rng: Random) -> bytes:
    """A line of TOML with another value, or another line."""
    rows = data.decode("utf-8", "replace").splitlines() or [""]
    at = rng.randrange(len(rows))
    name = rows[at].partition("=")[0].strip() or "lr"
    deep = rng.choice([20, 300, 2000])
    value = rng.choice(
        [
            *("inf", "nan", "-inf", "0x7fffffffffffffff", "0x" + "f" * 5000, "0b1", "0o7", "9" * 400, "9" * 5000),
            *("1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "true", "[]", "{}", "[1, 'a']", "{a = 1}", "''", '""'),
            *('"\\u0000"', '"\\n"', '"""\na\nb"""', "'x\u2028y'", '"\\u001b[2J"', f'"{"x" * 3000}"', "-1", "1e999"),
            *("[" * deep + "]" * deep, "{a=" * deep + "1" + "}" * deep, str(rng.choice(WHOLE)), str(rng.choice(REAL))),
        ]
    )
    new = rng.choice(
        [
            *(f"{name} = {value}",) * 6,
            f"{name}.{'a.' * deep}a = {value}",
            f"[{name}]",
            f"[[{name}]]",
            f"{rows[at]}\n{rows[at]}",
            f"{rng.choice(TEXTS)} = {value}",
        ]
    )
    rows[at] = new
    return "\n".join(rows).encode("utf-8", "surrogatepass")


# Containers


def zipped(inner: Mutation) -> Mutation:
    """A zip, one member of which is changed, missing, doubled or renamed, with right checksums and sizes."""

    def mutate(data: bytes, rng: Random) -> bytes:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = [[info.filename, archive.read(info)] for info in archive.infolist()]
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, NotImplementedError, RuntimeError):
            return data
        if not members:
            return data
        at = rng.randrange(len(members))
        how = rng.random()
        if how < 0.85:
            members[at][1] = inner(members[at][1], rng)
        elif how < 0.9:
            del members[at]
        elif how < 0.95:
            members[at][1] = rng.choice(members)[1]
        else:
            members[at][0] = rng.choice([rng.choice(members)[0], "../x.npy", "/x", "", "a\nb.npy", "x" * 300])
        out = io.BytesIO()
        kind = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        with zipfile.ZipFile(out, "w", kind) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a name that is there twice
            for name, content in members:
                info = zipfile.ZipInfo(name)
                info.compress_type = kind
                archive.writestr(info, content)
        return out.getvalue()

    return mutate


def gzipped(inner: Mutation) -> Mutation:
    """What is inside a gzip changed, with a right checksum; sometimes so long that it shrinks a thousandfold."""

    def mutate(data: bytes, rng: Random) -> bytes:
        try:
            sound = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return data
        if len(sound) > 2**20:
            return data
        text = inner(sound, rng)
        if rng.random() < 0.01:
            text += rng.choice([b"0", b"0\n", b"1,2\n", b"\n"]) * 8_000_000
        return gzip.compress(text, 1, mtime=0)

    return mutate


_NPY_KINDS = ("<f4", "<f8", ">f4", "<f2", "<i8", "<u8", "|b1", "|O", "<U9", "<U0", "|S3", "<c8", "<M8[s]", "|V8")
_NPY_KINDS += ("<U999999999", "x")
_TENSOR_KINDS = rb"F8_E4M3 F8_E5M2 F4 F6_E2M3 F8_E8M0 C64 BOOL U64 BF16 F16 F64 I64 U8 X\n".split()
_NPY = re.compile(rb"\A\x93NUMPY\x01\x00(..)", re.DOTALL)


def npy_header(data: bytes, rng: Random) -> bytes:
    """Another dtype, shape or order in the header of an .npy file, of the same length where that is possible."""
    match = _NPY.match(data)
    if match is None:
        return data
    length = int.from_bytes(match.group(1), "little")
    text, rest = data[10 : 10 + length].decode("latin1"), data[10 + length :]
    how = rng.randrange(5)
    if how == 0:
        new = rng.choice([*_NPY_KINDS, "[('a', '<i4')]"])
        text = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': {new!r}" if new[0] != "[" else f"'descr': {new}", text)
    elif how == 1:
        size = ", ".join(str(rng.choice([*WHOLE, 3, 4, 5])) for _ in range(rng.randrange(4)))
        text = re.sub(r"'shape': \([^)]*\)", f"'shape': ({size},)" if size else "'shape': ()", text)
    elif how == 2:
        text = text.replace("False", rng.choice(["True", "None", "1", "[]"]))
    elif how == 3:
        text = digits(text.encode("latin1"), rng).decode("latin1", "replace")
    else:
        text = rng.choice(
            ["", "{}", "[", "(" * 200 + ")" * 200, "{'descr': '<f4'}", "__import__('os')", text[: len(text) // 2]]
        )
    text = text.rstrip()
    padded = text.ljust(length - 1)[: max(length - 1, len(text))] + "\n"
    return data[:8] + (len(padded) % 2**16).to_bytes(2, "little") + padded.encode("latin1", "replace") + rest


def safetensors_header(data: bytes, rng: Random) -> bytes:
    """Another JSON header before the same data."""
    if len(data) < 8:
        return data
    length = int.from_bytes(data[:8], "little")
    if length > len(data):
        return data
    text = data[8 : 8 + length]
    how = rng.random()
    if how < 0.3:
        found = list(re.finditer(rb'"dtype": ?"([^"]*)"', text))
        if found:
            match = rng.choice(found)
            text = text[: match.start(1)] + rng.choice(_TENSOR_KINDS) + text[match.end(1) :]
    elif how < 0.5:
        old = rng.choice([b"model.", b"layers.", b"optimizer.", b"estimator.", b"best."])
        text = text.replace(old, rng.choice([b"", b"a\\nb.", b"estimator.", b"optimizer.0."]), rng.choice([1, 99]))
    else:
        text = structure(text, rng)
    return len(text).to_bytes(8, "little") + text + data[8 + length :]
