"""The HTTP side of `cvgnn serve`: routes, access, limits and metrics around a `Predictor`, and the server's life."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import ipaddress
import json
import logging
import math
import signal
import socket
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, final

import uvicorn
from h11 import LocalProtocolError
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from cvgnn.errors import CvgnnError, require
from cvgnn.serving.predictor import Predictor
from cvgnn.training.predictions import UnknownItem
from cvgnn.utils.checked_json import parse_object, short

_log = logging.getLogger(__name__)
QUEUE = 1024
"""Requests that may wait for the inference thread; one more gets 503."""
_BODY_SECONDS = 30.0  # for the body of a request to arrive
_BACKLOG = 2048  # connections that may wait to be accepted
_STOP_SECONDS = 30  # for requests in flight, after a signal
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf)
_OPEN = ("/health",)  # paths that need no token: a load balancer has none, and they tell nothing
_FOLDER = Path(__file__).parent
_STYLE = (_FOLDER / "page.css").read_text(encoding="utf-8")
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
# The page has no script, and may load nothing from anywhere.
_HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}

Handler = Callable[[Request], Awaitable[Response]]


@final
class ServingMetrics:
    """Counts and latencies of the answers, as Prometheus reads them. Only the event loop touches it."""

    def __init__(self) -> None:
        self.started = time.time()
        self.waiting = 0
        self._answers: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many requests were answered."""
        return self._answers.total()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._answers[path, status] += 1
        self._buckets[path, next(edge for edge in _BUCKETS if seconds <= edge)] += 1
        self._seconds[path] += seconds  # type: ignore[assignment]

    def text(self) -> str:
        """Prometheus' text format."""
        lines = ["# HELP cvgnn_requests_total Answered requests.", "# TYPE cvgnn_requests_total counter"]
        answers = sorted(self._answers.items())
        lines += [f'cvgnn_requests_total{{path="{path}",status="{status}"}} {n}' for (path, status), n in answers]
        lines += ["# HELP cvgnn_request_seconds Time to an answer.", "# TYPE cvgnn_request_seconds histogram"]
        for path in sorted(self._seconds):
            count = 0
            for edge in _BUCKETS:
                count += self._buckets[path, edge]
                le = "+Inf" if edge == math.inf else f"{edge:g}"
                lines.append(f'cvgnn_request_seconds_bucket{{path="{path}",le="{le}"}} {count}')
            lines.append(f'cvgnn_request_seconds_sum{{path="{path}"}} {self._seconds[path]:.6f}')
            lines.append(f'cvgnn_request_seconds_count{{path="{path}"}} {count}')
        lines += ["# HELP cvgnn_waiting Requests at or before the inference thread.", "# TYPE cvgnn_waiting gauge"]
        lines += [f"cvgnn_waiting {self.waiting}", "# TYPE cvgnn_start_time_seconds gauge"]
        return "\n".join([*lines, f"cvgnn_start_time_seconds {self.started:.3f}", ""])


@final
class Application:
    """The ASGI application.

    Args:
        predictor: answers.
        token: that each request must give, or None.
        loopback: whether only this machine can connect. Without a token, requests must then name it as their host, so
            that no page on the internet can read answers through its visitor's browser (DNS rebinding).
        queue: how many requests may wait for the inference thread.
    """

    def __init__(self, predictor: Predictor, *, token: str | None, loopback: bool = True, queue: int = QUEUE) -> None:
        self.metrics = ServingMetrics()
        self._predictor, self._queue = predictor, queue
        self._token = None if token is None else _digest(token.encode())
        self._own_hosts = ("127.0.0.1", "localhost", "[::1]") if loopback and token is None else None
        # One thread: each kernel uses all cores by itself, and two of them at once would only take turns.
        self.worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="inference")
        environment = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined)
        self._page = environment.get_template("page.html")
        posts = {"/predict": predictor.predict, "/predict/new": predictor.predict_new, "/embeddings": predictor.embed}
        routes = [Route(path, self._answer(function), methods=["POST"]) for path, function in posts.items()]
        gets = {"/": self._show, "/info": self._info, "/health": self._health, "/metrics": self._metrics}
        routes += [Route(path, function, methods=["GET"]) for path, function in gets.items()]
        self._paths = {*posts, *gets}
        handlers: Mapping[Any, Any] = {HTTPException: _http_error, Exception: _unexpected}
        self._app = Starlette(routes=routes, exception_handlers=handlers)
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the host and the token, answer, count."""
        if scope["type"] != "http":  # WebSockets are off
            return
        started, status = time.perf_counter(), 0

        async def counting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            with contextlib.suppress(LocalProtocolError):  # after broken bytes uvicorn has sent its own 400 already
                await send(message)

        path = scope["path"] if scope["path"] in self._paths else "other"
        try:
            refusal = self._refusal(Request(scope))
            await (refusal or self._app)(scope, receive, counting)
        except Exception:  # answered with 500; it is a bug, so its traceback is needed
            _log.error("%s", traceback.format_exc())
        finally:
            self.metrics.add(path, status, time.perf_counter() - started)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if (
            self._own_hosts is not None
            and host.lower().removesuffix(f":{host.rpartition(':')[2]}") not in self._own_hosts
        ):
            return error_response(421, "without a token this server answers to localhost only; start it with a token")
        if self._token is None or request.url.path in _OPEN:
            return None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        token = given.strip().encode("latin-1")
        if kind.lower() == "basic":  # what a browser sends after it has asked its user: NAME:TOKEN
            try:
                token = base64.b64decode(token, validate=True).partition(b":")[2]
            except ValueError:
                token = b""
        elif kind.lower() != "bearer":
            token = b""
        if hmac.compare_digest(_digest(token), self._token):  # of equal lengths, in constant time
            return None
        advice = "send the header Authorization: Bearer TOKEN, or in a browser the token as the password"
        return error_response(
            401, f"this server needs its token: {advice}", {"www-authenticate": 'Basic realm="cvgnn"'}
        )

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function on the inference thread; 503 where too many requests wait for it."""
        if self.metrics.waiting >= self._queue:
            raise HTTPException(503, "too many requests are waiting; try again later", {"retry-after": "1"})
        self.metrics.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.worker, function, *arguments)
        except UnknownItem as error:
            raise HTTPException(404, str(error)) from None
        except CvgnnError as error:
            raise HTTPException(422, str(error)) from None
        finally:
            self.metrics.waiting -= 1

    def _answer(self, function: Callable[[Mapping[str, Any]], Any]) -> Handler:
        """The handler of a POST request with a JSON object."""

        def compute(body: bytes) -> bytes:
            return _json(function(_parse(body)))

        async def handle(request: Request) -> Response:
            return Response(await self._run(compute, await self._body(request)), media_type="application/json")

        return handle

    async def _body(self, request: Request) -> bytes:
        most, body = self._predictor.limits.body, bytearray()
        length = request.headers.get("content-length", "0")
        too_large = HTTPException(413, f"the body is larger than {most} bytes")
        if len(length) > 18 or int(length) > most:
            raise too_large
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {_BODY_SECONDS:g} seconds") from None
        except ClientDisconnect:
            raise HTTPException(400, "the connection was closed before the whole body arrived") from None
        return bytes(body)

    async def _info(self, request: Request) -> Response:
        return Response(_json(self._predictor.describe()), media_type="application/json")

    async def _health(self, request: Request) -> Response:
        return Response(_json({"status": "ok"}), media_type="application/json")

    async def _metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _show(self, request: Request) -> Response:
        """The page; `?node=ID` (`graph=ID`; `source=ID&target=ID`), or the fields of a new node, show a prediction."""
        predictor, query = self._predictor, request.query_params
        names = ["source", "target"] if predictor.kind == "pair" else [predictor.kind]
        given = [query.get(name, "").strip() for name in names]
        new = dict(query) if "neighbors" in query else {}
        shown: dict[str, Any] | None = None
        error, status = "", 200
        if new or all(given):
            try:
                shown = await (self._run(self._view_new, new) if new else self._run(self._view, given))
            except HTTPException as refused:
                error, status = refused.detail, refused.status_code
        html = self._page.render(
            info=predictor.describe(), kind=predictor.kind, fields=list(zip(names, given, strict=True)),
            example=predictor.example(), new=new, shown=shown, error=error, style=Markup(_STYLE),
            address=str(request.base_url), token=self._token is not None,
        )  # fmt: skip
        return Response(html.encode("utf-8", "replace"), status, media_type="text/html; charset=utf-8")

    def _view(self, given: list[str]) -> dict[str, Any]:
        predictor = self._predictor
        require(not any("\0" in text for text in given), "an id has no NUL character")
        if predictor.kind == "node":
            found = predictor.neighborhood(given[0])
            return {**found, "places": _places(len(found["rows"]))}
        asked = [given] if predictor.kind == "pair" else given
        return _view_of(" – ".join(given), predictor.predict({predictor.items: asked}))

    def _view_new(self, form: Mapping[str, str]) -> dict[str, Any]:
        node = new_node(form, self._predictor.describe()["columns"])
        return _view_of(f"{node['id']} (new)", self._predictor.predict_new({"nodes": [node]}))


def _view_of(title: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows of one prediction without a neighborhood."""
    (row,) = answer["predictions"]
    probabilities = {key[2:]: value for key, value in row.items() if key.startswith("p_")}
    return {"node": title, "rows": [row], "edges": None, "probabilities": probabilities}


def new_node(form: Mapping[str, str], columns: Mapping[str, str] | None) -> dict[str, Any]:
    """What the fields of the page say of a new node, as `/predict/new` takes it.

    Args:
        form: `neighbors` has an id a line; `weights` and `features` have numbers with blanks between them; a cell of
            the column NAME is `column NAME`, empty where it is unknown.
        columns: the kind of each column that the run reads; None if it reads numbers.

    >>> new_node({"neighbors": "3\\n14", "features": "17:1 230:0.5"}, None)
    {'id': 'new', 'neighbors': ['3', '14'], 'features': {'17': 1.0, '230': 0.5}}
    """
    ids = [line.strip() for line in form["neighbors"].split("\n")]
    node: dict[str, Any] = {"id": form.get("id", "").strip() or "new", "neighbors": [name for name in ids if name]}
    if weights := form.get("weights", "").split():
        node["weights"] = [_number(word, "weights") for word in weights]
    if columns is None:
        words = form.get("features", "").split()
        if all(":" in word for word in words):
            pairs = (word.split(":", 1) for word in words)
            node["features"] = {column: _number(value, "features") for column, value in pairs}
        else:
            node["features"] = [_number(word, "features") for word in words]
        return node
    cells = {name.partition(" ")[2]: text.strip() for name, text in form.items() if name.startswith("column ")}
    node["columns"] = {
        name: [_number(word, name) for word in text.split()] if columns.get(name) == "vector" else text or None
        for name, text in cells.items()
    }
    return node


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CvgnnError(f"{what} has {short(text)}, which is not a number") from None


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The one shape of every error: `{"error": {"status": 404, "message": "..."}}`."""
    error = {"status": status, "message": message}
    return Response(_json({"error": error}), status, headers=headers, media_type="application/json")


async def _http_error(request: Request, error: HTTPException) -> Response:
    known = {"Not Found": "there is nothing at this address", "Method Not Allowed": "this address has another method"}
    return error_response(error.status_code, known.get(error.detail, error.detail), error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    return error_response(500, "an error of this server; its log has the details")  # Starlette raises it again


def _parse(body: bytes) -> dict[str, Any]:
    try:
        value = parse_object(body)
        if b"\\u" in body:  # half of a surrogate pair is no text that could be looked up, or written
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise HTTPException(400, "the body has an escaped surrogate without its other half") from None
    except ValueError as error:
        raise HTTPException(400, f"the body {error}") from None
    return value


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _places(count: int) -> list[tuple[float, float]]:
    """Where nodes are drawn: the first in the middle, the others on a circle around it."""
    angles = [2 * math.pi * i / max(1, count - 1) - math.pi / 2 for i in range(count - 1)]
    return [(0.0, 0.0), *((round(150 * math.cos(a), 1), round(150 * math.sin(a), 1)) for a in angles)]


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens: a second server on the same port is refused at once, before it reads its graph."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = str(getattr(error, "strerror", error)).partition(" (while")[0]  # Python adds the address
        raise CvgnnError(f"cannot listen on {host}, port {port}: {reason}; choose another --port or --host") from None
    return listener


def check_access(listener: socket.socket, token: str | None) -> bool:
    """Whether only this machine can connect; an address for others is refused without a token."""
    loopback = ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
    require(
        loopback or token is not None,
        "everybody who reaches this address could read the predictions; set a token (CVGNN_TOKEN, or --token), or "
        "leave --host out",
    )
    return loopback


def make_server(application: Application) -> uvicorn.Server:
    """The HTTP server of an application."""
    config = uvicorn.Config(
        application, http="h11", ws="none", loop="asyncio", lifespan="off", log_config=None, log_level="critical",
        access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=30, backlog=_BACKLOG,
        timeout_graceful_shutdown=_STOP_SECONDS, h11_max_incomplete_event_size=1 << 15,
    )  # fmt: skip
    return uvicorn.Server(config)


def run_server(application: Application, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight are answered, for at most half a minute."""
    with ExitStack() as stack:
        stack.callback(application.worker.shutdown, cancel_futures=True)
        # uvicorn raises the signal that stopped it again, for the handler before its own: here the end is a good one.
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: None))
        make_server(application).run(sockets=[listener])
