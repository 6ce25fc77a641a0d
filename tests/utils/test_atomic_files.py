"""Files that have their old content or their new one, whichever operation on the disk fails."""

from __future__ import annotations

import errno
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cvgnn.utils import atomic_files

OPERATIONS = ("create", "write", "sync", "rename", "sync_folder")
BROKEN = OSError(errno.EIO, "Input/output error")


class FailingDisk:
    """Counts the operations on the disk, and makes some of them fail.

    Args:
        fails: whether operation `n`, counted from 1, with that name, fails.
        error: what it raises then.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, fails: Callable[[int, str], bool], error: BaseException = BROKEN
    ) -> None:
        self.done: list[str] = []
        self.fails = fails
        self.error = error
        for name in OPERATIONS:
            patch.setattr(atomic_files, name, self._wrapped(name, getattr(atomic_files, name)))

    def _wrapped(self, name: str, operation: Any) -> Any:
        def maybe(*args: Any) -> Any:
            self.done.append(name)
            if not self.fails(len(self.done), name):
                return operation(*args)
            if name == "write":  # a part of it gets through
                operation(args[0], memoryview(args[1]).cast("B")[: len(args[1]) // 2])
            raise self.error

        return maybe


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("data", [b"", b"1", b"new" * 1000], ids=len)
@pytest.mark.parametrize("old", [None, b"old"], ids=["new file", "old file"])
def test_a_file_is_written(tmp_path: Path, data: bytes, old: bytes | None) -> None:
    path = tmp_path / "a.json"
    if old is not None:
        path.write_bytes(old)
    atomic_files.write_file(path, data)
    assert path.read_bytes() == data
    assert names(tmp_path) == ["a.json"]


def test_the_order_of_the_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data must be on disk before the name is, and the name before anybody relies on it."""
    counted = FailingDisk(monkeypatch, lambda n, name: False)
    atomic_files.write_file(tmp_path / "a", b"1")
    assert counted.done == ["create", "write", "sync", "rename", "sync_folder"]


@pytest.mark.parametrize(
    "error", [BROKEN, OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr
)
@pytest.mark.parametrize("failing", range(1, len(OPERATIONS) + 1))
@pytest.mark.parametrize("old", [None, b"old content"], ids=["new file", "old file"])
def test_old_or_new_at_every_failing_operation(
    tmp_path: Path, old: bytes | None, failing: int, error: BaseException
) -> None:
    path = tmp_path / "a"
    if old is not None:
        path.write_bytes(old)
    with pytest.MonkeyPatch.context() as patch:
        broken = FailingDisk(patch, lambda n, name: n == failing, error)
        with pytest.raises(type(error)):
            atomic_files.write_file(path, b"new content")
    assert len(broken.done) == failing
    found = path.read_bytes() if path.exists() else None
    assert found == (b"new content" if failing == len(OPERATIONS) else old)
    assert [name for name in names(tmp_path) if name != "a"] == []  # nothing half is left behind
    atomic_files.write_file(path, b"once more")
    assert path.read_bytes() == b"once more"


def test_what_cannot_be_removed_does_not_hide_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, "not this one")

    monkeypatch.setattr(Path, "unlink", refuse)
    FailingDisk(monkeypatch, lambda n, name: name == "rename")
    with pytest.raises(OSError, match="Input/output error"):
        atomic_files.write_file(tmp_path / "a", b"1")


@pytest.mark.parametrize("size", [0, 1, 2, 999])
def test_short_writes_are_gone_on_with(size: int) -> None:
    class Slow(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(bytes(data)[:3])

    data, file = random.Random(size).randbytes(size), Slow()
    atomic_files.write(file, data)
    assert file.getvalue() == data


def test_a_view_of_wide_numbers_is_written_by_bytes() -> None:
    import numpy as np

    numbers, file = np.arange(5, dtype=np.int64), io.BytesIO()
    atomic_files.write(file, numbers.data)
    assert file.getvalue() == numbers.tobytes()


def test_an_existing_file_is_not_created_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        atomic_files.create(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"mine"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        atomic_files.write_file(tmp_path / "no" / "a", b"1")
    with pytest.raises(FileNotFoundError):
        atomic_files.sync_folder(tmp_path / "no")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; free some space"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "Disk quota exceeded; free some space"),
        (OSError(errno.EFBIG, "File too large"), "File too large; free some space"),
        (
            OSError(errno.EROFS, "Read-only file system"),
            "Read-only file system; check the disk and the folder's permissions",
        ),
        (OSError(), "OSError; check the disk and the folder's permissions"),
    ],
    ids=repr,
)
def test_reasons(error: OSError, message: str) -> None:
    assert atomic_files.describe_error(error) == message
