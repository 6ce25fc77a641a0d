"""The cache of compiled kernels: which folder, and that no folder or disk makes a kernel fail."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core import caching

from cvgnn.errors import CvgnnError
from cvgnn.ops import compilation
from cvgnn.utils.compile_listeners import listening
from tests.logs import logged


def double(x):  # type: ignore[no-untyped-def]
    return 2 * x


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("CVGNN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cached = (compilation.folders, compilation._log_compiling, compilation._log_not_saved)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()
    compilation._kernels.discard(double)


def kernel() -> Any:
    return compilation.njit(cache=True)(double)


def places(tmp_path: Path) -> list[str]:
    return [str(folder.parents[1].relative_to(tmp_path)) for folder in compilation.folders()]


def unwritable(*roots: Path) -> Any:
    """A file system on which these folders cannot be written; root may write to any folder without write permission."""
    temporary_file = tempfile.TemporaryFile

    def fail(dir: Path) -> Any:
        if any(dir.is_relative_to(root) for root in roots):
            raise OSError(errno.EROFS, "Read-only file system")
        return temporary_file(dir=dir)

    return fail


def test_the_cache_folder_comes_first(tmp_path: Path) -> None:
    assert places(tmp_path) == ["home"]
    assert kernel()(3) == 6
    assert len(list((tmp_path / "home").rglob("*.nbc"))) == 1
    again = kernel()
    assert again(4) == 8
    assert sum(again.stats.cache_hits.values()) == 1


def test_old_versions_are_removed(tmp_path: Path) -> None:
    kernels = compilation.folders()[0].parent
    days = {"0123456789abcdef": 31, "fedcba9876543210": 29, "notes": 99}  # the last is no folder of ours
    for name, age in days.items():
        (kernels / name).mkdir()
        (kernels / name / "a.nbi").touch()
        os.utime(kernels / name, (time.time() - age * 24 * 3600,) * 2)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (kernels / ("a" * 16)).symlink_to(elsewhere)
    os.utime(kernels / ("a" * 16), (0, 0), follow_symlinks=False)
    os.utime(compilation.folders()[0], (0, 0))  # in use, however old it is
    compilation.folders.cache_clear()
    kept = {compilation.folders()[0].name, "fedcba9876543210", "notes", "a" * 16}
    assert {path.name for path in kernels.iterdir()} == kept
    assert elsewhere.is_dir()


def test_the_users_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "mine"))
    assert places(tmp_path) == ["mine"]


def test_else_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("a file")
    assert places(tmp_path) == [f"cvgnn-{os.getuid()}"]
    assert (tmp_path / f"cvgnn-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_a_user_without_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise CvgnnError("this user has no home folder")

    monkeypatch.setattr(compilation, "cache_folder", no_home)
    assert places(tmp_path) == [f"cvgnn-{os.getuid()}"]


def test_a_temporary_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are pickles: whoever wrote them could run code as this user."""
    (tmp_path / "home").write_text("a file")
    theirs = tmp_path / f"cvgnn-{os.getuid()}"
    theirs.mkdir()
    theirs.chmod(0o777)
    assert places(tmp_path) == []
    theirs.rmdir()
    theirs.symlink_to(tmp_path)
    compilation.folders.cache_clear()
    assert places(tmp_path) == []


def test_a_cache_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    compilation.folders()[0].chmod(0o775)
    compilation.folders.cache_clear()
    assert places(tmp_path) == [f"cvgnn-{os.getuid()}"]


def test_an_image_is_read_and_what_it_lacks_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel()(3)
    monkeypatch.setattr(tempfile, "TemporaryFile", unwritable(tmp_path / "home"))
    compilation.folders.cache_clear()
    assert places(tmp_path) == ["home", f"cvgnn-{os.getuid()}"]
    again = kernel()
    assert again(3) == 6
    assert sum(again.stats.cache_hits.values()) == 1


def test_no_folder_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", unwritable(tmp_path))
    with logged() as messages:
        assert kernel()(3) == 6
        assert kernel()(4) == 8
    assert len(messages) == 1
    assert "in every run, because no folder can keep them; set CVGNN_HOME" in messages[0]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_open_for_write", full)
    with logged() as messages:
        assert kernel()(3) == 6
        assert kernel()(3.0) == 6.0
    assert messages[1:] == [
        f"cannot keep compiled kernels in {compilation.folders()[0]}: No space left on device; the next run compiles "
        "them again"
    ]


def test_a_file_that_a_crash_has_cut(tmp_path: Path) -> None:
    kernel()(3)
    for damaged in ("*.nbc", "*.nbi"):
        (file,) = compilation.folders()[0].glob(damaged)
        file.write_bytes(file.read_bytes()[:40])
        assert kernel()(3) == 6
        again = kernel()
        assert again(3) == 6
        assert sum(again.stats.cache_hits.values()) == 1, damaged


def test_listeners_hear_of_compilations_only() -> None:
    heard = []
    with listening(lambda name, ended: heard.append((name, ended))):
        kernel()(3)
        kernel()(3)
    kernel()(3.0)
    assert heard == [("double", False), ("double", True)]
