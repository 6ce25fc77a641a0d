"""Download one file over HTTP, resumable and checked by size and SHA-256; extract expected files from a zip archive."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import os
import shutil
import socket
import ssl
import stat
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, final

from cvgnn._version import __version__
from cvgnn.errors import CvgnnError
from cvgnn.utils import atomic_files
from cvgnn.utils.checked_json import parse_object
from cvgnn.utils.formatting import format_bytes
from cvgnn.utils.progress import ProgressReporter

_BLOCK = 2**18
_TRANSIENT_STATUS = (408, 416, 425, 429, 500, 502, 503, 504)
_UNREACHABLE = (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH)
_ENOUGH = 2**20  # an attempt that gets this many bytes further resets the count of failures


class DownloadError(CvgnnError):
    """A file could not be downloaded. The message is worded to follow the URL."""


class BadArchiveError(CvgnnError):
    """The archive itself is at fault, not the folder into which it is extracted."""


class _TransientError(Exception):
    """A failure after which another attempt makes sense."""


@final
@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Timeouts and retries of a download.

    Args:
        timeout: seconds of silence after which a connection counts as broken.
        attempts: number of attempts without progress before giving up.
        backoff: seconds before the second attempt; doubles with each attempt, up to 30.
    """

    timeout: float = 30.0
    attempts: int = 5
    backoff: float = 1.0


@final
class PartialDownload:
    """The bytes of a file that have arrived, in `FILE.part`.

    `FILE.part.json` beside it records the URL, the size, and the validator (ETag or date) by which the server tells
    whether its file is still the same one.

    Args:
        path: of `FILE.part`; it is deleted if it does not belong to `url` or cannot be resumed.
        url: the address of the file.
    """

    def __init__(self, path: Path, url: str) -> None:
        self.path, self._url = path, url
        self._record = path.with_name(f"{path.name}.json")
        self.validator: str | None = None
        self.total: int | None = None
        with contextlib.suppress(OSError, ValueError):
            record = parse_object(self._record.read_bytes())
            if record.get("url") == url:
                self.validator, self.total = record.get("validator"), record.get("total")
        if self.validator is None or (self.total is not None and self.size > self.total):
            self.discard()

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def complete(self) -> bool:
        """Whether all bytes have arrived: an earlier process was killed before it renamed the file."""
        return self.total is not None and self.size == self.total > 0

    def start(self, validator: str | None, total: int | None) -> None:
        """Start a new file; without a validator it cannot be resumed later."""
        self.discard()
        self.validator, self.total = validator, total
        if validator is not None:
            record = {"url": self._url, "validator": validator, "total": total}
            self._record.write_text(json.dumps(record), encoding="utf-8")

    def discard(self) -> None:
        """Delete the file and its record."""
        self.path.unlink(missing_ok=True)
        self._record.unlink(missing_ok=True)
        self.validator = self.total = None

    def finish(self, target: Path) -> None:
        """Rename the complete file."""
        atomic_files.rename(self.path, target)  # its bytes were synced when they arrived
        atomic_files.sync_folder(target.parent)
        self._record.unlink(missing_ok=True)


def download(
    url: str, target: Path, *, max_bytes: int, sha256: str | None = None, policy: RetryPolicy, exclusive: bool = True
) -> None:
    """Download `url` into `target`, which exists afterwards only if it is complete.

    Args:
        url: http or https.
        target: a file in an existing folder; temporary files lie beside it.
        max_bytes: a longer response is refused.
        sha256: the checksum that the file must have, None if it is not known.
        policy: timeouts and retries.
        exclusive: whether no other process can be downloading it. If one can, the temporary name is unique, and a
            later call does not resume a broken download.
    """
    name = target.name if exclusive else f"{target.name}.{os.getpid()}"
    part = PartialDownload(target.with_name(f"{name}.part"), url)
    failures, furthest = 0, part.size
    try:
        while True:
            try:
                with ProgressReporter(f"downloading {target.name}") as progress:
                    _attempt(url, part, max_bytes, sha256, policy.timeout, progress)
                part.finish(target)
                return
            except _TransientError as error:
                failures = 0 if part.size >= furthest + _ENOUGH else failures + 1
                furthest = max(furthest, part.size)
                if failures >= policy.attempts:
                    raise DownloadError(f"{error} (tried {failures} times)") from error
                time.sleep(min(policy.backoff * 2 ** max(failures - 1, 0), 30.0))
    except OSError as error:  # network errors are DownloadErrors here, so this one is the disk's
        raise DownloadError(f"cannot write to {target.parent}: {error.strerror or error}") from error
    finally:
        if not exclusive:
            part.discard()


def _attempt(
    url: str, part: PartialDownload, max_bytes: int, sha256: str | None, timeout: float, progress: ProgressReporter
) -> None:
    """Transfer the rest of the file and check its SHA-256."""
    resumed = part.size > 0
    if not part.complete:
        _transfer(url, part, max_bytes, timeout, progress)
    with part.path.open("rb") as file:
        found = None if sha256 is None else hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        part.discard()
        # A resumed file may be the parts of two different files: it gets one more attempt, from the start.
        raise (_TransientError if resumed else DownloadError)(
            f"its SHA-256 should be {sha256} but is {found}, so it was deleted"
        )


def _transfer(url: str, part: PartialDownload, max_bytes: int, timeout: float, progress: ProgressReporter) -> None:
    """Send one request; afterwards `part` holds the complete file."""
    headers = {"User-Agent": f"cvgnn/{__version__}", "Accept-Encoding": "identity"}
    offset = part.size
    if offset and part.validator is not None:
        # If-Range: the server sends the rest if the file is still the same, else all of it.
        headers |= {"Range": f"bytes={offset}-", "If-Range": part.validator}
    with _open(urllib.request.Request(url, headers=headers), part, timeout) as response:
        total: int | None = response.length
        if response.headers.get_content_type() == "text/html":
            raise DownloadError("the server sent a web page instead of the file")
        if response.status == 206 and offset:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
                part.discard()
                raise _TransientError("the server resumed at the wrong position")
            total = part.total
        else:
            etag = response.headers.get("ETag", "")
            # A weak ETag (W/"...") does not promise equal bytes; then the date of the last change identifies the file.
            part.start(etag if etag.startswith('"') else response.headers.get("Last-Modified"), total)
            offset = 0
        with part.path.open("ab") as file:
            for block in _blocks(response):
                offset += len(block)
                if max(offset, total or 0) > max_bytes:
                    part.discard()
                    raise DownloadError(
                        f"the server sends more than {format_bytes(max_bytes)}, more than this file has"
                    )
                file.write(block)
                progress.show_bytes(offset, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and offset != total:
        if offset > total:
            part.discard()
        raise _TransientError(f"only {offset} of {total} bytes arrived")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https, but never from https to http."""

    def redirect_request(self, req: urllib.request.Request, fp: Any, *args: Any) -> urllib.request.Request | None:
        """Build the request that follows a redirect."""
        request = super().redirect_request(req, fp, *args)
        allowed = "https:" if req.full_url.startswith("https:") else ("https:", "http:")
        if request is not None and not request.full_url.startswith(allowed):
            fp.close()
            raise DownloadError(f"redirects to {request.full_url}, which is not https, so it was not followed")
        return request


def _open(request: urllib.request.Request, part: PartialDownload, timeout: float) -> Any:
    """Send a request and return the response; raise `DownloadError` where another attempt makes no sense."""
    # build_opener also handles file:, ftp: and data:. Here and in redirects only http and https are allowed.
    if request.type not in ("http", "https"):
        raise DownloadError(f"unknown url type: {request.type}")
    try:
        return urllib.request.build_opener(_SafeRedirects).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the requested range lies beyond the end of the server's file
            part.discard()
        kind = _TransientError if error.code in _TRANSIENT_STATUS else DownloadError
        raise kind(f"the server answered {error.code} {error.reason}".strip()) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        text, number = (reason.strerror, reason.errno) if isinstance(reason, OSError) else (None, None)
        permanent = isinstance(reason, socket.gaierror | ssl.SSLCertVerificationError | str) or number in _UNREACHABLE
        raise (DownloadError if permanent else _TransientError)(f"no connection: {text or reason}") from error


def _blocks(response: Any) -> Iterator[bytes]:
    try:
        while block := response.read(_BLOCK):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _TransientError(f"the connection broke: {error or type(error).__name__}") from error


def extract(archive: Path, folder: Path, members: Sequence[str], *, max_bytes: int) -> None:
    """Extract the named members of a zip archive below `folder`, each completely or not at all.

    Other members are ignored. An archive with a path outside the folder is refused as a whole: upstream makes none.

    Args:
        archive: the zip file.
        folder: the destination; a member `a/b` becomes `folder/a/b`.
        members: the members to extract, with forward slashes.
        max_bytes: upper bound of the extracted size of each member.
    """
    try:
        with zipfile.ZipFile(archive) as file:
            for name in file.namelist():
                path = PurePosixPath(name.replace("\\", "/"))
                if path.is_absolute() or ".." in path.parts or ":" in name:
                    raise zipfile.BadZipFile(f"it holds {name!r}, a path outside its folder")
            # All members are checked before the first is written.
            for info in [_checked_member(file, member, max_bytes) for member in members]:
                target = folder / info.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                with file.open(info) as source, atomic_files.replacing(target) as out:
                    shutil.copyfileobj(source, out, _BLOCK)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # RuntimeError: an encrypted member
        raise BadArchiveError(
            f"{archive} is not a usable zip file ({error}); delete it and fetch it again from its original source"
        ) from error
    except OSError as error:
        raise CvgnnError(f"cannot unpack {archive} into {folder}: {error.strerror or error}") from error


def _checked_member(file: zipfile.ZipFile, member: str, max_bytes: int) -> zipfile.ZipInfo:
    """Find a member that is a regular file of at most `max_bytes`."""
    infos = [info for info in file.infolist() if info.filename == member]
    if len(infos) != 1:
        raise zipfile.BadZipFile(f"it holds {member!r} {len(infos)} times, not once")
    if stat.S_IFMT(infos[0].external_attr >> 16) not in (0, stat.S_IFREG):
        raise zipfile.BadZipFile(f"{member!r} is not a regular file")
    # zipfile yields no more bytes than the size declared here, so a declaration that is too low does no harm.
    if infos[0].file_size > max_bytes:
        raise zipfile.BadZipFile(f"{member!r} has {infos[0].file_size} bytes when unpacked, more than {max_bytes}")
    return infos[0]
