"""The cache folder of each platform, and the word that forbids the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from cvgnn.data.named.raw_folder import is_offline
from cvgnn.errors import CvgnnError
from cvgnn.utils.cache_folder import cache_folder

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


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(CvgnnError, match="no home folder; set CVGNN_HOME to a folder that can be written"):
        cache_folder("linux", {})


def test_the_environment_counts_at_the_time_of_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CVGNN_HOME", str(tmp_path))
    assert cache_folder() == tmp_path
    assert not is_offline()
    monkeypatch.setenv("CVGNN_OFFLINE", "1")
    assert is_offline()


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
    assert is_offline({"CVGNN_OFFLINE": value}) is expected
