"""A small HTTP/1.1 client for loopback, load with many clients at once, and malformed requests from a seed.

Only the standard library; it connects to 127.0.0.1 and to nothing else. `tests/serving` uses it, too.
"""

# ruff: noqa: E501  (tables of cases read best one to a line)

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

HOST = "127.0.0.1"


class Answer(NamedTuple):
    status: int  # 0: the connection was closed without an answer
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)


def message(method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
    """A well-formed request; a header `content_type` is `content-type`."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def post(path: str, value: Any, **headers: str) -> bytes:
    return message("POST", path, json.dumps(value).encode(), **headers)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        if "content-length" in fields:
            body = await reader.readexactly(int(fields["content-length"]))
        else:  # uvicorn's own answer to what is no HTTP
            body = await reader.read()
    except (asyncio.IncompleteReadError, ConnectionError):
        return Answer(0, b"")
    return Answer(int(lines[0].split()[1]), body)


async def exchange(port: int, request: bytes, *, end: bool = False) -> Answer:
    """Send one request on a connection of its own.

    Args:
        port: of the server.
        request: bytes, whatever they are.
        end: whether nothing more follows: the server sees the end of the stream.
    """
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 22)
    try:
        writer.write(request)
        try:
            await writer.drain()
            if end:
                writer.write_eof()
        except (ConnectionError, OSError):
            pass  # refused before all of it was read; the answer may still be there
        return await asyncio.wait_for(read_answer(reader), 20)
    finally:
        writer.close()


def send(port: int, request: bytes) -> Answer:
    return asyncio.run(exchange(port, request))


class Load(NamedTuple):
    seconds: float
    latencies: dict[str, list[float]]
    statuses: Counter[int]


async def load(
    port: int, kinds: dict[str, Callable[[random.Random], bytes]], *, clients: int, seconds: float, seed: int = 0,
    most: int = 1_000_000,
) -> Load:  # fmt: skip
    """Clients that each send one request after the other on one connection, all at once, for some seconds; at least one.

    Args:
        port: of the server.
        kinds: what is sent, each kind equally often.
        clients: how many at once.
        seconds: how long.
        seed: of the choices.
        most: requests in all.
    """
    latencies: dict[str, list[float]] = {kind: [] for kind in kinds}
    statuses: Counter[int] = Counter()
    started = time.perf_counter()

    async def client(number: int) -> None:
        rng = random.Random(f"{seed}-{number}")
        reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 22)
        while True:
            kind = rng.choice(list(kinds))
            begun = time.perf_counter()
            writer.write(kinds[kind](rng))
            answer = await read_answer(reader)
            latencies[kind].append(time.perf_counter() - begun)
            statuses[answer.status] += 1
            if answer.status == 0:
                return
            if time.perf_counter() - started >= seconds or statuses.total() >= most:
                break
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return Load(time.perf_counter() - started, latencies, statuses)


def malformed(rng: random.Random, *, num_features: int, token: str) -> tuple[str, bytes, bool]:
    """A request that must be refused: what is wrong with it, the request, and whether the stream ends after it."""
    bearer = {"authorization": f"Bearer {token}"}
    path = rng.choice(["/predict", "/predict/new", "/embeddings"])
    junk = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 40)))
    text = "".join(rng.choice("abcXYZ012/.%-_é ü") for _ in range(rng.randrange(1, 30)))

    def posted(value: Any, where: str = path) -> bytes:
        return message("POST", where, value if isinstance(value, bytes) else json.dumps(value).encode(), **bearer)

    wrong: Sequence[Any] = [
        None, "3", 3, {}, [], [[]], [None], [1.5], [True], [{"a": 1}], [[1, 2]], "", [""], -1, [3, None], {"0": 3},
    ]  # fmt: skip
    giant = [-1, -(10**18), 10**9, 10**18, 10**290, "-0", "03", "１", "x" * 999, "x" * 5000, text + "?", "\0", "3\0"]
    node = {"features": {"0": 1.0}, "neighbors": [0]}
    bad_nodes = [
        {**node, "features": [0.0] * rng.choice([0, 1, num_features - 1, num_features + 1])},
        {**node, "features": {str(rng.choice([num_features, 10**12, -1])): 1}}, {**node, "features": {"x": 1}},
        {**node, "features": {"0": rng.choice([1e39, -1e300, "1", None, True, [1], 10**200])}},
        {**node, "neighbors": [rng.choice(giant)]}, {**node, "neighbors": rng.choice(["0", 0, {}, [0.5], [None]])},
        {**node, "neighbors": [0] * 10_001}, {**node, "weights": [1.0]}, {**node, "id": rng.choice([0, None, 1.5, [], "0"])},
        {**node, "more": 1}, {"neighbors": [0]}, {}, [], None, rng.randrange(9),
    ]  # fmt: skip
    kinds: dict[str, Callable[[], bytes | tuple[bytes, bool]]] = {
        "no JSON": lambda: posted(rng.choice([
            b"", b"{", b"{'nodes': [3]}", b'{"nodes": [3],}', b'{"nodes": [3}', b'{"nodes": [3]} x', b"nodes=3", b"\xff" + junk,
            b"[" + junk, b"true false", b'{"nodes": 03}', b"{" + junk,
        ])),
        "NaN and infinity": lambda: posted(
            b'{"nodes": [{"features": {"0": ' + rng.choice([b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e400", b"9" * 5000])
            + b"}}]}", "/predict/new",
        ),
        "deep nesting": lambda: posted(rng.choice([b"[", b'{"nodes":', b'{"a":[']) * rng.choice([200, 5_000, 100_000])),
        "encoding": lambda: posted(rng.choice([
            '{"nodes": [3]}'.encode("utf-16"), b'{"nodes": ["\xff\xfe"]}', b'{"nodes": ["\\ud800"]}', b'{"\\udfff": 1}',
            b'{"nodes": ["\\u0000"]}', b"\xef\xbb\xbf" + b'{"nodes": [3]}', b'{"nodes": ["\xc0\x80"]}',
        ])),
        "wrong types": lambda: posted({"nodes": rng.choice(wrong)}),
        "wrong names": lambda: posted({rng.choice(["node", "ids", text, "", "nodes "]): [3]}),
        "wrong columns": lambda: posted({"nodes": [3], "columns": rng.choice([5, [], "class", ["klass"], [3], ["p_0"] * 99])},
                                        "/predict"),
        "wrong layer": lambda: posted({"nodes": [3], "layer": rng.choice([0, -1, 99, 10**30, 1.0, "1", None, True])},
                                      "/embeddings"),
        "ids": lambda: posted({"nodes": [rng.choice(giant)]}, rng.choice(["/predict", "/embeddings"])),
        "too many ids": lambda: posted({"nodes": [0] * rng.randrange(1001, 5000)}),
        "new nodes": lambda: posted({"nodes": rng.choice([[rng.choice(bad_nodes)], [node] * 101, [dict(node, id="a")] * 2])},
                                    "/predict/new"),
        "form": lambda: message("GET", "/?neighbors=" + rng.choice([
            "-1", "%00", "%FF", "0%0A" + "9" * 50, "0&id=0", "0&id=%00", "0&weights=1", "0&features=x", "0&features=0:x",
            "0&features=0:nan", "0&features=0:1e999", "0&features=:", "0&features=-1:1", "0&features=%F0%9F:1",
            f"0&features={num_features}:1", "0&features=" + "1+" * (num_features + 1), "0&features=0:" + "9" * 5000,
        ]), **bearer),
        "huge body": lambda: rng.choice([
            message("POST", path, **bearer, content_length=str(rng.choice([4194305, 10**10, 10**17, 10**19]))),
            message("POST", path, **bearer, transfer_encoding="chunked") + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 65,
        ]),
        "path": lambda: message(
            rng.choice(["GET", "POST"]),
            rng.choice(["/nope", "//", "/predict/", "/../etc/passwd", "/%00", "/%ff%fe", "/predict%2fnew", "/" + "a" * 9000,
                        "/?node=" + "9" * 50, "/?node=%00", "/?node=%ff", "/info/x", "/page.html", "/metrics/.."]),
            b"", **bearer,
        ),
        "method": lambda: message(
            rng.choice(["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO", "predict"]),
            rng.choice(["/", "/predict", "/health", "/info"]), b"{}", **bearer,
        ),
        "token": lambda: message("POST", path, b'{"nodes": [3]}', **rng.choice([
            {}, {"authorization": ""}, {"authorization": "Bearer"}, {"authorization": f"Bearer {token}x"},
            {"authorization": f"Bearer {token[:-1]}"}, {"authorization": f"Bearer {token.upper()}"}, {"authorization": token},
            {"authorization": "Bearer \xe9\xff"}, {"authorization": "Basic !!!"}, {"authorization": "Bearer " + "x" * 9000},
            {"authorization": "Basic " + base64.b64encode(b"a:b").decode()}, {"authorization": "Digest " + token},
        ])),
        "truncated": lambda: (message("POST", path, **bearer, content_length="500") + b'{"nodes": [3'[: rng.randrange(12)],
                              True),
        "no HTTP": lambda: (rng.choice([
            junk, junk + b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n", b"POST /predict HTTP/1.1\r\nhost localhost\r\n\r\n",
            message("POST", path, content_length="-5"), message("POST", path, content_length="five"),
            message("POST", path, b"{}", content_length="7"), message("POST", path, transfer_encoding="chunked") + b"zz\r\n\r\n",
            message("GET", "/info", x="y" * 40_000), b"GET /info HTTP/1.1\r\n\r\n", message("POST", path, transfer_encoding="zip"),
        ]), True),
    }  # fmt: skip
    kind = rng.choice(list(kinds))
    made = kinds[kind]()
    return kind, *(made if isinstance(made, tuple) else (made, False))


class Fuzz(NamedTuple):
    statuses: dict[str, Counter[int]]
    wrong: list[tuple[str, int, bytes]]  # of those that were not refused with 4xx: kind, status, request


async def fuzz(port: int, count: int, *, num_features: int, token: str, seed: int = 0, at_once: int = 20) -> Fuzz:
    """Send malformed requests. Each must get a 4xx; a broken stream may get nothing."""
    rng = random.Random(seed)
    requests = [malformed(rng, num_features=num_features, token=token) for _ in range(count)]
    found = Fuzz({}, [])

    async def sender(first: int) -> None:
        for kind, request, end in requests[first::at_once]:
            try:
                answer = await exchange(port, request, end=end)
            except TimeoutError:
                answer = Answer(-1, b"")
            found.statuses.setdefault(kind, Counter())[answer.status] += 1
            good = 400 <= answer.status < 500 or (end and answer.status == 0)
            if good and answer.body[:1] == b"{":
                error = answer.value["error"]
                good = error["status"] == answer.status and isinstance(error["message"], str)
            if not good:
                found.wrong.append((kind, answer.status, request[:500]))

    await asyncio.gather(*(sender(first) for first in range(at_once)))
    return found
