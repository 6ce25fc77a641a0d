"""Downloads against a server that has every fault."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from cvgnn.data.named import download as module
from cvgnn.data.named.download import DownloadError, RetryPolicy, download
from tests.data.named.server import Page, Server, refused_url

DATA = bytes(range(256)) * 4000  # a megabyte
SUM = hashlib.sha256(DATA).hexdigest()
ONCE = RetryPolicy(timeout=5.0, attempts=1, backoff=0.0)
FAST = RetryPolicy(timeout=5.0, attempts=3, backoff=0.01)
DATE = "Tue, 01 Apr 2025 10:00:00 GMT"


def fetch(server: Server, target: Path, policy: RetryPolicy = FAST, **more: Any) -> None:
    download(server.url("/file"), target, max_bytes=2 * len(DATA), policy=policy, **more)


def refusal(server: Server, target: Path, policy: RetryPolicy = FAST, **more: Any) -> str:
    with pytest.raises(DownloadError) as caught:
        fetch(server, target, policy, **more)
    assert not target.exists()
    return str(caught.value)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "file.bin"


def names(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("sha256", [SUM, None])
def test_a_file_arrives(server: Server, target: Path, sha256: str | None, exclusive: bool, capfd: Any) -> None:
    server.pages["/file"] = Page(DATA)
    fetch(server, target, sha256=sha256, exclusive=exclusive)
    assert target.read_bytes() == DATA
    assert names(target) == ["file.bin"]
    assert len(server.requests) == 1
    assert capfd.readouterr() == ("", "")  # nothing under two seconds


def test_without_a_length_and_without_a_validator(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(DATA, etag=None, length=False)
    fetch(server, target, sha256=SUM)
    assert target.read_bytes() == DATA


def test_an_empty_file(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(b"")
    fetch(server, target)
    assert target.read_bytes() == b""


def test_an_existing_file_is_replaced_only_by_a_whole_one(server: Server, target: Path) -> None:
    target.write_bytes(b"old")
    server.pages["/file"] = Page(DATA, stop_after=[10])
    with pytest.raises(DownloadError):
        fetch(server, target, ONCE)
    assert target.read_bytes() == b"old"
    fetch(server, target)
    assert target.read_bytes() == DATA


def test_a_bad_checksum(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(DATA[:-1] + b"x")
    sentence = refusal(server, target, sha256=SUM)
    assert f"its SHA-256 should be {SUM} but is " in sentence
    assert names(target) == []
    assert len(server.requests) == 1  # the same bytes would come again


def test_a_truncated_transfer_is_told_and_kept_for_later(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(DATA, stop_after=[300_000])
    assert refusal(server, target, ONCE) == f"only 300000 of {len(DATA)} bytes arrived (tried 1 times)"
    assert names(target) == ["file.bin.part", "file.bin.part.json"]
    assert (target.parent / "file.bin.part").read_bytes() == DATA[:300_000]


@pytest.mark.parametrize(
    ("etag", "modified", "validator"), [('"a"', None, '"a"'), ('W/"a"', DATE, DATE), (None, DATE, DATE)]
)
def test_an_interrupted_transfer_is_resumed_by_the_next_call(
    server: Server, target: Path, etag: str | None, modified: str | None, validator: str
) -> None:
    server.pages["/file"] = Page(DATA, etag=etag, modified=modified, stop_after=[300_000])
    refusal(server, target, ONCE)
    fetch(server, target, sha256=SUM)
    assert target.read_bytes() == DATA
    assert [(r.range, r.if_range) for r in server.requests] == [(None, None), ("bytes=300000-", validator)]
    assert names(target) == ["file.bin"]


def test_ctrl_c_keeps_what_arrived(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.pages["/file"] = Page(DATA)
    blocks = module._blocks

    def interrupted(answer: Any) -> Any:
        yield next(blocks(answer))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_blocks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(server, target)
    monkeypatch.setattr(module, "_blocks", blocks)
    fetch(server, target, sha256=SUM)
    assert server.requests[1].range == f"bytes={module._BLOCK}-"
    assert target.read_bytes() == DATA


def test_breaks_are_retried_within_a_call(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(DATA, stop_after=[100_000, 200_000], statuses=[])
    fetch(server, target, sha256=SUM)
    assert [r.range for r in server.requests] == [None, "bytes=100000-", "bytes=300000-"]
    assert target.read_bytes() == DATA


def test_progress_resets_the_count_of_failures(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENOUGH", 1000)
    server.pages["/file"] = Page(DATA, stop_after=[50_000] * 8)
    fetch(server, target, sha256=SUM)
    assert len(server.requests) == 9


def test_a_server_without_ranges_starts_over(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(DATA, ranges=False, stop_after=[300_000])
    fetch(server, target, sha256=SUM)
    assert target.read_bytes() == DATA
    assert [r.range for r in server.requests] == [None, "bytes=300000-"]


def test_a_server_without_ranges_that_always_breaks_is_given_up(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ENOUGH", 1000)
    server.pages["/file"] = Page(DATA, ranges=False, stop_after=[300_000] * 20)
    assert "(tried 3 times)" in refusal(server, target)
    assert len(server.requests) == 4  # the first one did bring something


def test_without_a_validator_nothing_is_resumed(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(DATA, etag=None, stop_after=[300_000])
    refusal(server, target, ONCE)
    fetch(server, target, sha256=SUM)
    assert server.requests[1].range is None
    assert target.read_bytes() == DATA


def test_a_file_that_changed_in_between_is_fetched_anew(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(b"old" * 100_000, etag='"old"', stop_after=[300])
    refusal(server, target, ONCE)
    server.pages["/file"] = Page(DATA, etag='"new"')
    fetch(server, target, sha256=SUM)
    assert server.requests[1].if_range == '"old"'
    assert target.read_bytes() == DATA


def test_a_splice_of_two_files_is_caught_and_fetched_anew(server: Server, target: Path) -> None:
    """The validator is the same though the file is not: the checksum finds it, and one clean attempt follows."""
    server.pages["/file"] = Page(b"x" * len(DATA), stop_after=[300_000])
    refusal(server, target, ONCE)
    server.pages["/file"] = Page(DATA)
    fetch(server, target, sha256=SUM)
    assert [r.range for r in server.requests[1:]] == ["bytes=300000-", None]
    assert target.read_bytes() == DATA


def test_a_range_at_the_wrong_place_is_thrown_away(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(DATA, stop_after=[300_000], wrong_range=True)
    fetch(server, target, sha256=SUM)
    assert [r.range for r in server.requests] == [None, "bytes=300000-", None]


def test_a_part_longer_than_the_servers_file_now_is(server: Server, target: Path) -> None:
    """416: what is asked for lies beyond the end."""
    server.pages["/file"] = Page(DATA * 2, stop_after=[len(DATA) + 10])
    refusal(server, target, ONCE)
    server.pages["/file"] = Page(DATA)
    fetch(server, target, sha256=SUM)
    assert target.read_bytes() == DATA


def test_a_complete_part_needs_no_request(server: Server, target: Path) -> None:
    """Killed between the last byte and the renaming."""
    (target.parent / "file.bin.part").write_bytes(DATA)
    note = {"url": server.url("/file"), "validator": '"one"', "total": len(DATA)}
    (target.parent / "file.bin.part.json").write_text(json.dumps(note), encoding="utf-8")
    fetch(server, target, sha256=SUM)
    assert server.requests == []
    assert names(target) == ["file.bin"]


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_passing_errors_are_retried(server: Server, target: Path, status: int) -> None:
    server.pages["/file"] = Page(DATA, statuses=[status, status])
    fetch(server, target, sha256=SUM)
    assert len(server.requests) == 3


def test_passing_errors_do_not_pass_for_ever(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(DATA, statuses=[503] * 9)
    assert refusal(server, target) == "the server answered 503 Service Unavailable (tried 3 times)"


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found"), (403, "403 Forbidden"), (410, "410 Gone")])
def test_final_errors_are_not_retried(server: Server, target: Path, status: int, words: str) -> None:
    server.pages["/file"] = Page(DATA, statuses=[status])
    assert refusal(server, target) == f"the server answered {words}"
    assert len(server.requests) == 1
    assert names(target) == []


def test_a_refused_connection(target: Path) -> None:
    with pytest.raises(DownloadError, match="no connection: Connection refused"):
        download(refused_url(), target, max_bytes=10, policy=FAST)


def test_no_such_host(target: Path) -> None:
    with pytest.raises(DownloadError, match="no connection: Name or service not known"):
        download("https://example.invalid/file", target, max_bytes=10, policy=FAST)


def test_a_silent_server(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(DATA, delay=0.5)
    assert "timed out" in refusal(server, target, RetryPolicy(timeout=0.1, attempts=2, backoff=0.0))
    assert len(server.requests) == 2


def test_a_redirect_is_followed(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(location=server.url("/elsewhere"))
    server.pages["/elsewhere"] = Page(DATA, stop_after=[1000])
    fetch(server, target, sha256=SUM)
    assert target.read_bytes() == DATA
    assert server.requests[-1].range == "bytes=1000-"  # resumed through the redirect


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("/file", "infinite loop"),
        ("ftp://127.0.0.1/file", "redirects to ftp://127.0.0.1/file, which is not https, so it was not followed"),
        ("file:///etc/passwd", "302"),
    ],
)
def test_bad_redirects(server: Server, target: Path, location: str, words: str) -> None:
    server.pages["/file"] = Page(location=location)
    assert words in refusal(server, target)


def test_https_is_not_left() -> None:
    import http.client
    import io
    import urllib.request

    handler = module._SafeRedirects()
    request = urllib.request.Request("https://safe.example/file")
    with pytest.raises(DownloadError, match="which is not https, so it was not followed"):
        handler.redirect_request(request, io.BytesIO(), 302, "", http.client.HTTPMessage(), "http://other.example/")
    safe = handler.redirect_request(request, io.BytesIO(), 302, "", http.client.HTTPMessage(), "https://b.example/")
    assert safe is not None


def test_a_local_file_is_no_url(target: Path) -> None:
    with pytest.raises(DownloadError, match="unknown url type: file"):
        download("file:///etc/passwd", target, max_bytes=10**6, policy=FAST)


def test_a_web_page_instead_of_the_file(server: Server, target: Path) -> None:
    server.pages["/file"] = Page(b"<html>quota exceeded", content_type="text/html; charset=utf-8")
    assert refusal(server, target) == "the server sent a web page instead of the file"


@pytest.mark.parametrize("length", [True, False])
def test_an_endless_answer_is_refused(server: Server, target: Path, length: bool) -> None:
    server.pages["/file"] = Page(DATA * 3, length=length)
    assert "more than this file" in refusal(server, target)
    assert names(target) == []


def test_a_folder_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    server.pages["/file"] = Page(DATA)
    assert "cannot write to" in refusal(server, tmp_path / "absent" / "file.bin")
