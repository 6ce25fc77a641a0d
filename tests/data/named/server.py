"""A small HTTP server for tests, with the faults that servers have."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


@dataclass
class Page:
    """What is served under a path, and how."""

    data: bytes = b""
    etag: str | None = '"one"'
    modified: str | None = None
    ranges: bool = True
    length: bool = True
    content_type: str = "application/octet-stream"
    statuses: list[int] = field(default_factory=list)  # answered first, one a request
    stop_after: list[int] = field(default_factory=list)  # bytes of body before the connection breaks, one a request
    location: str | None = None
    delay: float = 0.0
    wrong_range: bool = False


@dataclass
class Request:
    path: str
    range: str | None
    if_range: str | None


class Server:
    """`server.pages["/file"] = Page(b"...")`, then fetch `server.url("/file")`."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.requests: list[Request] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """A client that hangs up is no news."""

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}{path}"

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked, if_range = handler.headers.get("Range"), handler.headers.get("If-Range")
        self.requests.append(Request(handler.path, asked, if_range))
        page = self.pages.get(handler.path)
        if page is None:
            return handler.send_error(404)
        time.sleep(page.delay)
        if page.statuses:
            return handler.send_error(page.statuses.pop(0))
        if page.location is not None:
            handler.send_response(302)
            handler.send_header("Location", page.location)
            handler.send_header("Content-Length", "0")
            return handler.end_headers()
        start = 0
        if page.ranges and asked is not None and if_range in (page.etag, page.modified):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start >= len(page.data) > 0:
            return handler.send_error(416)
        body = page.data[start:]
        handler.send_response(206 if start else 200)
        if start:
            said = start + 1 if page.wrong_range else start
            handler.send_header("Content-Range", f"bytes {said}-{len(page.data) - 1}/{len(page.data)}")
        if page.length:
            handler.send_header("Content-Length", str(len(body)))
        if page.etag is not None:
            handler.send_header("ETag", page.etag)
        if page.modified is not None:
            handler.send_header("Last-Modified", page.modified)
        handler.send_header("Content-Type", page.content_type)
        handler.end_headers()
        if page.stop_after:
            handler.wfile.write(body[: page.stop_after.pop(0)])
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            return None
        handler.wfile.write(body)
        return None


def refused_url() -> str:
    """A URL on this machine at which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}/file"
