"""One file over HTTP: to a temporary name, size and checksum checked, resumed after a break, then renamed."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

from cvgnn._version import __version__
from cvgnn.datasets.part import Part
from cvgnn.datasets.progress import TransferProgress, megabytes
from cvgnn.errors import CvgnnError

_BLOCK = 2**18
_PASSING_STATUS = (408, 425, 429, 500, 502, 503, 504)
_UNREACHABLE = (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH)
_ENOUGH = 2**20  # an attempt that brings this much further does not count as a failure


class DownloadError(CvgnnError):
    """A file could not be fetched: the reason, in words that follow a URL."""


class _PassingError(Exception):
    """It may work if tried again."""


@final
@dataclass(frozen=True, kw_only=True)
class Policy:
    """How patient a download is.

    Args:
        timeout: seconds of silence before a connection counts as broken.
        attempts: how often it is tried without getting further.
        backoff: seconds before the second attempt; doubles with each, up to 30.
    """

    timeout: float = 30.0
    attempts: int = 5
    backoff: float = 1.0


class _CarefulRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to something weaker."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The request that follows a redirect."""
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise DownloadError(f"leads to {newurl}, which is not https, so it was not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    url: str,
    target: Path,
    *,
    max_bytes: int,
    sha256: str | None = None,
    policy: Policy,
    exclusive: bool = True,
) -> None:
    """Fetch `url` into `target`, which exists afterwards only if it is complete.

    Args:
        url: http or https.
        target: in an existing folder; temporary files lie beside it.
        max_bytes: a longer answer is refused.
        sha256: the checksum the file must have, None if it is not known.
        policy: timeouts and retries.
        exclusive: whether no other process can be fetching it; if one can, the temporary name is unique and a broken
            transfer is not resumed by a later call.
    """
    name = target.name if exclusive else f"{target.name}.{os.getpid()}"
    part = Part(target.with_name(f"{name}.part"), url)
    try:
        _persist(url, part, target, max_bytes, sha256, policy)
    finally:
        if not exclusive:
            part.drop()


def _persist(url: str, part: Part, target: Path, max_bytes: int, sha256: str | None, policy: Policy) -> None:
    """Try until the file is there, or until trying again has no point."""
    failures, furthest = 0, part.size
    while True:
        resumed = part.size > 0
        try:
            with TransferProgress(f"downloading {target.name}") as progress, _sentences(target):
                if not part.complete:
                    _transfer(url, part, max_bytes, policy.timeout, progress)
                found = part.checksum() if sha256 is not None else None
                if found == sha256:
                    part.finish(target)
                    return
                part.drop()
            reason = f"its SHA-256 should be {sha256} but is {found}, so it was thrown away"
            if not resumed:  # a resumed one may have been put together from two files: once more from the start
                raise DownloadError(reason)
        except _PassingError as error:
            reason = str(error)
        failures = 0 if part.size >= furthest + _ENOUGH else failures + 1
        furthest = max(furthest, part.size)
        if failures >= policy.attempts:
            raise DownloadError(f"{reason} (tried {failures} times)")
        time.sleep(min(policy.backoff * 2 ** max(failures - 1, 0), 30.0))


def _transfer(url: str, part: Part, max_bytes: int, timeout: float, progress: TransferProgress) -> None:
    """One request; afterwards `part` holds the whole file."""
    headers = {"User-Agent": f"cvgnn/{__version__}", "Accept-Encoding": "identity"}
    offset = part.size
    if offset and part.validator is not None:
        # If-Range: the rest if the file is still the same, else all of it.
        headers |= {"Range": f"bytes={offset}-", "If-Range": part.validator}
    with _open(urllib.request.Request(url, headers=headers), part, timeout) as answer:
        length = answer.headers.get("Content-Length")
        total = int(length) if length is not None and length.isdigit() else None
        if answer.headers.get_content_type() == "text/html":
            raise DownloadError("the server sent a web page instead of the file")
        if answer.status == 206 and offset:
            span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", "").strip())
            if span is None or int(span[1]) != offset or span[2] not in (str(part.total), "*"):
                part.drop()
                raise _PassingError("the server resumed at the wrong place")
            total = part.total
        else:
            part.start(_validator(answer.headers), total)
            offset = 0
        if max(total or 0, offset) > max_bytes:
            part.drop()
            raise DownloadError(f"the server offers {megabytes(total or offset)}, more than this file can have")
        with part.path.open("ab") as file:
            for block in _blocks(answer):
                offset += len(block)
                if offset > max_bytes:
                    part.drop()
                    raise DownloadError(f"the server sent more than {megabytes(max_bytes)}, more than this file has")
                file.write(block)
                progress.show(offset, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and offset != total:
        if offset > total:
            part.drop()
        raise _PassingError(f"only {offset} of {total} bytes arrived")


def _open(request: urllib.request.Request, part: Part, timeout: float) -> Any:
    """The server's answer; an error is sorted into passing and final."""
    # No handlers for file:, ftp: or data:, which a redirect must not reach.
    opener = urllib.request.OpenerDirector()
    kinds = (urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler, _CarefulRedirects)
    for kind in (*kinds, urllib.request.HTTPErrorProcessor, urllib.request.HTTPDefaultErrorHandler):
        opener.add_handler(kind())
    opener.add_handler(urllib.request.UnknownHandler())
    try:
        return opener.open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        text = f"the server answered {error.code} {error.reason}".strip()
        if error.code == 416:
            part.drop()
        if error.code == 416 or error.code in _PASSING_STATUS:
            raise _PassingError(text) from error
        raise DownloadError(text) from error
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        number = reason.errno if isinstance(reason, OSError) else None
        text = f"no connection: {(reason.strerror if isinstance(reason, OSError) else None) or reason}"
        final = isinstance(reason, socket.gaierror | ssl.SSLCertVerificationError | str) or number in _UNREACHABLE
        raise (DownloadError if final else _PassingError)(text) from error


def _blocks(answer: Any) -> Iterator[bytes]:
    try:
        while block := answer.read(_BLOCK):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _PassingError(f"the connection broke: {error or type(error).__name__}") from error


def _validator(headers: http.client.HTTPMessage) -> str | None:
    """What identifies the server's file: a strong ETag, or the date of its last change."""
    etag = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified")


@contextlib.contextmanager
def _sentences(target: Path) -> Iterator[None]:
    """A full disk or a folder without write permission, in a sentence."""
    try:
        yield
    except OSError as error:
        raise DownloadError(f"cannot write to {target.parent}: {error.strerror or error}") from error
