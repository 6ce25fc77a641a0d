"""From a name to a folder: a user's root, the cache, a download, an archive put there by hand, no network."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cvgnn.data.named import raw_folder as fetch
from cvgnn.data.named.catalog import CATALOG, Dataset, Download
from cvgnn.data.named.raw_folder import find_folder, missing_files, raw_folder, status
from cvgnn.errors import CvgnnError
from cvgnn.utils import file_lock
from tests.data.named.server import Page, Server, refused_url

TWO = ("a.bin", "deep/b.bin")


@pytest.fixture
def loose(server: Server) -> Dataset:
    """A data set of two files, each with its URL."""
    server.pages["/data/a.bin"] = Page(b"aaaa")
    server.pages["/data/b.bin"] = Page(b"bbbb")
    urls = {name: server.url(f"/data/{name}") for name in ("a.bin", "b.bin")}
    downloads = tuple(Download(url=url, file=name, max_bytes=100) for name, url in urls.items())
    return dataclasses.replace(CATALOG["flickr"], name="loose", files=("a.bin", "b.bin"), downloads=downloads)


def zipped(*extra: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in (*(f"top/{member}" for member in TWO), *extra):
            file.writestr(name, name)
    return buffer.getvalue()


@pytest.fixture
def packed(server: Server) -> Dataset:
    """A data set of two files in an archive."""
    server.pages["/packed.zip"] = Page(zipped("top/README"))
    item = Download(url=server.url("/packed.zip"), file="packed.zip", max_bytes=10_000)
    return dataclasses.replace(
        CATALOG["ogbn-arxiv"],
        name="packed",
        files=TWO,
        inner="top",
        places=("", "packed", "raw/top"),
        downloads=(item,),
    )


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_loose_files_are_downloaded_once(loose: Dataset, server: Server, home: Path) -> None:
    folder = raw_folder(loose, None)
    assert folder == home / "loose" / "raw"
    assert everything(home) == ["loose/raw/.lock", "loose/raw/a.bin", "loose/raw/b.bin"]
    assert raw_folder(loose, None) == folder
    assert len(server.requests) == 2


def test_only_what_is_missing_is_downloaded(loose: Dataset, server: Server, home: Path) -> None:
    (home / "loose" / "raw").mkdir(parents=True)
    (home / "loose" / "raw" / "a.bin").write_bytes(b"mine")
    folder = raw_folder(loose, None)
    assert [request.path for request in server.requests] == ["/data/b.bin"]
    assert (folder / "a.bin").read_bytes() == b"mine"


def test_an_archive_is_unpacked_and_thrown_away(packed: Dataset, server: Server, home: Path) -> None:
    folder = raw_folder(packed, None)
    assert folder == home / "packed" / "raw" / "top"
    assert everything(home) == ["packed/raw/.lock", "packed/raw/top/a.bin", "packed/raw/top/deep/b.bin"]
    assert raw_folder(packed, None) == folder
    assert len(server.requests) == 1


@pytest.mark.parametrize("offline", [True, False])
def test_an_archive_put_there_by_hand_is_unpacked_and_stays(
    packed: Dataset, server: Server, home: Path, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    (home / "packed" / "raw").mkdir(parents=True)
    (home / "packed" / "raw" / "packed.zip").write_bytes(zipped())
    if offline:
        monkeypatch.setenv("CVGNN_OFFLINE", "1")
    assert not missing_files(packed, raw_folder(packed, None))
    assert server.requests == []
    assert (home / "packed" / "raw" / "packed.zip").exists()


@pytest.mark.parametrize("place", ["", "packed", "raw/top"])
def test_files_put_there_by_hand_are_found(
    packed: Dataset, home: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("CVGNN_OFFLINE", "1")
    for file in TWO:
        path = home / "packed" / place / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert raw_folder(packed, None) == home / "packed" / place
    assert not (home / "packed" / "raw" / ".lock").exists()


def test_a_bad_archive_from_the_server_does_not_stay(packed: Dataset, server: Server, home: Path) -> None:
    server.pages["/packed.zip"] = Page(zipped("../evil"))
    with pytest.raises(
        CvgnnError, match=r"packed\.zip is not a usable zip file \(it holds '\.\./evil', a path outside its folder\)"
    ):
        raw_folder(packed, None)
    assert everything(home) == ["packed/raw/.lock"]
    server.pages["/packed.zip"] = Page(zipped())
    assert not missing_files(packed, raw_folder(packed, None))


def test_a_bad_archive_of_the_users_stays(packed: Dataset, home: Path) -> None:
    (home / "packed" / "raw").mkdir(parents=True)
    (home / "packed" / "raw" / "packed.zip").write_bytes(b"half of it")
    with pytest.raises(CvgnnError, match=r"packed\.zip is not a usable zip file .*; delete it and fetch it again"):
        raw_folder(packed, None)
    assert (home / "packed" / "raw" / "packed.zip").exists()


def test_offline_says_what_to_put_where(
    loose: Dataset, server: Server, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CVGNN_OFFLINE", "1")
    with pytest.raises(CvgnnError) as caught:
        raw_folder(loose, None)
    assert str(caught.value) == (
        "dataset 'loose' is not bundled and CVGNN_OFFLINE=1 forbids downloading it; fetch by hand a.bin, b.bin from "
        f"{server.url('/data/')}, and put it into {home / 'loose' / 'raw'}, or give the folder that has the files as "
        "root (--root on the command line)"
    )
    assert server.requests == []
    assert not home.exists()


def test_a_failed_download_says_what_to_put_where(packed: Dataset, server: Server, home: Path) -> None:
    del server.pages["/packed.zip"]
    url = server.url("/packed.zip")
    with pytest.raises(CvgnnError) as caught:
        raw_folder(packed, None)
    assert str(caught.value) == (
        f"dataset 'packed' could not be downloaded: {url}: the server answered 404 Not Found; fetch by hand packed.zip "
        f"from {url} (as it is, or unpacked: top/a.bin, top/deep/b.bin), and put it into {home / 'packed' / 'raw'}, or "
        "give the folder that has the files as root (--root on the command line)"
    )


def test_a_refused_connection(loose: Dataset) -> None:
    items = tuple(dataclasses.replace(item, url=refused_url()) for item in loose.downloads)
    sentence = r"no connection: Connection refused; fetch by hand a\.bin from http.*, b\.bin from"
    with pytest.raises(CvgnnError, match=sentence):
        raw_folder(dataclasses.replace(loose, downloads=items), None)


@pytest.mark.parametrize(
    "name", [name for name, dataset in CATALOG.items() if dataset.downloads and not dataset.bundled]
)
def test_the_real_ones_without_a_network(name: str, home: Path) -> None:
    """No name resolves here (conftest): the sentence has every URL, every file name and the folder."""
    dataset = CATALOG[name]
    with pytest.raises(CvgnnError) as caught:
        raw_folder(dataset, None)
    sentence = str(caught.value)
    why = "no connection: Name or service not known" if dataset.downloads else "is not downloaded by cvgnn; put"
    assert why in sentence
    assert str(home / name / "raw") in sentence
    for file in dataset.files:
        assert file in sentence
    for item in dataset.downloads:
        assert item.url in sentence or item.url.removesuffix(item.file) in sentence


def test_an_interrupted_data_set_goes_on_where_it_broke(loose: Dataset, server: Server) -> None:
    server.pages["/data/b.bin"] = Page(b"bbbb", stop_after=[2, 0, 0])
    with pytest.raises(CvgnnError, match=r"only 2 of 4 bytes arrived \(tried 3 times\)"):
        raw_folder(loose, None)
    before = len(server.requests)
    assert (raw_folder(loose, None) / "b.bin").read_bytes() == b"bbbb"
    assert [(request.path, request.range) for request in server.requests[before:]] == [("/data/b.bin", "bytes=2-")]


def test_two_at_once_download_once(packed: Dataset, server: Server) -> None:
    server.pages["/packed.zip"].delay = 0.2
    results: list[Path] = []
    threads = [threading.Thread(target=lambda: results.append(raw_folder(packed, None))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert len(server.requests) == 1


def test_a_cache_folder_that_cannot_be_made(loose: Dataset, home: Path) -> None:
    home.write_text("a file is in the way", encoding="utf-8")
    with pytest.raises(CvgnnError, match=r"cannot write to the cache folder .*; set CVGNN_HOME to another folder"):
        raw_folder(loose, None)


def test_a_root_is_only_read(packed: Dataset, server: Server, tmp_path: Path) -> None:
    (tmp_path / "packed.zip").write_bytes(zipped())
    sentence = r"no raw files of 'packed' in any of .*; put a\.bin, deep/b\.bin into"
    with pytest.raises(CvgnnError, match=sentence):
        raw_folder(packed, tmp_path)
    assert everything(tmp_path) == ["packed.zip"]
    assert server.requests == []


def test_the_place_with_the_most_files_wins(packed: Dataset, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"")
    assert find_folder(packed, tmp_path) == tmp_path
    (tmp_path / "packed" / "deep").mkdir(parents=True)
    for file in TWO:
        (tmp_path / "packed" / file).write_bytes(b"")
    assert find_folder(packed, tmp_path) == tmp_path / "packed"
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.bin").write_bytes(b"")
    assert find_folder(packed, tmp_path) == tmp_path  # the first of equals


def test_a_root_that_may_not_be_read(packed: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(CvgnnError, match="cannot read the folder"):
        raw_folder(packed, tmp_path)


def test_status(packed: Dataset, home: Path, tmp_path: Path) -> None:
    assert status(packed, None) == ("no", 0)
    assert status(packed, tmp_path) == ("no", 0)
    (tmp_path / "a.bin").write_bytes(b"123")
    (tmp_path / "other").write_bytes(b"12345")
    assert status(packed, tmp_path) == ("in part", 3)
    raw_folder(packed, None)
    size = len("top/a.bin") + len("top/deep/b.bin")
    assert status(packed, None) == ("yes", size)
    (home / "packed" / "parsed.npz").write_bytes(b"12345")
    assert status(packed, None) == ("yes", size + 5)
    here, size = status(CATALOG["citeseer"], None)
    assert here == "bundled"
    assert size > 100_000


def test_without_locks_temporary_names_are_unique(loose: Dataset, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """As on some network file systems."""

    def unsupported(file: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    seen = []
    real = fetch.download

    def spy(url: str, target: Path, **options: Any) -> None:
        seen.append(options["exclusive"])
        real(url, target, **options)

    monkeypatch.setattr(file_lock, "_try_lock", unsupported)
    monkeypatch.setattr(fetch, "download", spy)
    raw_folder(loose, None)
    assert seen == [False, False]
    assert everything(home) == ["loose/raw/.lock", "loose/raw/a.bin", "loose/raw/b.bin"]
