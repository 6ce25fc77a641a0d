"""The cache folder of each platform, and the word that forbids the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from cvgnn.datasets.home import cache_folder, offline

HOME = Path("/home/me")


@pytest.mark.parametrize(
    ("platform", "environ", "folder"),
    [
        ("linux", {}, HOME / ".cache" / "cvgnn"),
        ("linux", {"XDG_CACHE_HOME": "/fast"}, Path("/fast/cvgnn")),
        ("linux", {"XDG_CACHE_HOME": "relative"}, HOME / ".cache" / "cvgnn"),
        ("linux", {"XDG_CACHE_HOME": ""}, HOME / ".cache" / "cvgnn"),
        ("freebsd14", {}, HOME / ".cache" / "cvgnn"),
        ("darwin", {"XDG_CACHE_HOME": "/fast"}, HOME / "Library" / "Caches" / "cvgnn"),
        ("win32", {"LOCALAPPDATA": "/c/local"}, Path("/c/local/cvgnn")),
        ("win32", {}, HOME / "AppData" / "Local" / "cvgnn"),
        ("linux", {"CVGNN_HOME": "/data/graphs", "XDG_CACHE_HOME": "/fast"}, Path("/data/graphs")),
        ("darwin", {"CVGNN_HOME": "~/graphs"}, HOME / "graphs"),
        ("win32", {"CVGNN_HOME": "here"}, Path.cwd() / "here"),
        ("linux", {"CVGNN_HOME": ""}, HOME / ".cache" / "cvgnn"),
    ],
)
def test_the_cache_folder(
    monkeypatch: pytest.MonkeyPatch, platform: str, environ: dict[str, str], folder: Path
) -> None:
    monkeypatch.setenv("HOME", str(HOME))
    assert cache_folder(platform, environ) == folder


def test_the_environment_counts_at_the_time_of_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CVGNN_HOME", str(tmp_path))
    assert cache_folder() == tmp_path
    assert not offline()
    monkeypatch.setenv("CVGNN_OFFLINE", "1")
    assert offline()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", True),
        ("true", True),
        ("yes", True),
        ("0", False),
        ("", False),
        ("False", False),
        ("no", False),
        (" off ", False),
    ],
)
def test_the_word(value: str, expected: bool) -> None:
    assert offline({"CVGNN_OFFLINE": value}) is expected
