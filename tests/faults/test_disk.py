"""A disk that fails: at any single operation, from some operation on, or because it is full.

Whatever fails, training goes on or says a sentence, and what is in the folder afterwards can be resumed to the end of
the run that nobody disturbed.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cvgnn.cli.main import main
from cvgnn.utils import atomic_files
from tests.faults.harness import assert_same_run

RUN = [
    "--epochs",
    "3",
    "--batch-size",
    "60",
    "--hidden",
    "8",
    "--threads",
    "1",
    "--output",
    "tau",
    "--defaults",
    "fixed",
]
OFTEN = ["--checkpoint-epochs", "1"]
OPERATIONS = ("create", "write", "sync", "rename", "sync_folder")


class Full:
    """Counts the operations on the disk, and lets some of them fail with "no space left"."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: Any) -> None:
        self.count = 0
        self.fails = fails
        for name in OPERATIONS:
            monkeypatch.setattr(atomic_files, name, self.wrapped(name, getattr(atomic_files, name)))

    def wrapped(self, name: str, operation: Any) -> Any:
        def maybe(*args: Any) -> Any:
            self.count += 1
            if self.fails(self.count):
                if name == "write":  # a full disk takes a part
                    operation(args[0], memoryview(args[1]).cast("B")[: len(args[1]) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")
            return operation(*args)

        return maybe


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calm") / "run"
    assert main(["train", *RUN, *OFTEN, "--out", str(folder)]) == 0
    return folder


def operations_of_a_run(folder: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        counted = Full(patch, lambda n: False)
        assert main(["train", *RUN, *OFTEN, "--out", str(folder)]) == 0
        return counted.count


def failing_run(folder: Path, fails: Any) -> int:
    with pytest.MonkeyPatch.context() as patch:
        Full(patch, fails)
        return main(["train", *RUN, *OFTEN, "--out", str(folder)])


def recover(folder: Path) -> None:
    """What a user does then: go on, or start again where nothing was begun."""
    if (folder / "result.json").exists():  # the run came to its end without them
        return
    begun = (folder / "config.json").exists()
    words = ["--resume", str(folder), *OFTEN] if begun else [*RUN, *OFTEN, "--out", str(folder)]
    assert main(["train", *words]) == 0


@pytest.mark.slow
def test_any_single_operation_may_fail(tmp_path: Path, calm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    total = operations_of_a_run(tmp_path / "counted")
    assert total > 50
    codes, silent = set(), 0
    for n in range(1, total + 1):
        folder = tmp_path / str(n)
        capsys.readouterr()
        code = failing_run(folder, lambda count, n=n: count == n)
        codes.add(code)
        err = capsys.readouterr().err
        assert re.fullmatch(r"(cvgnn: [^\n]*No space left on device[^\n]*\n)*", err), (n, err)
        silent += not err
        recover(folder)
        assert_same_run(folder, calm, checkpoints=3)  # one whose name could not be brought to disk is kept
    assert silent == 1  # the removal of the one checkpoint that is not needed any more
    assert codes == {0, 2}  # some failures end the run, those of checkpoints do not


@pytest.mark.slow
def test_the_disk_is_full_from_some_moment_on(tmp_path: Path, calm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    total = operations_of_a_run(tmp_path / "counted")
    for n in range(1, total + 1, 3):
        folder = tmp_path / str(n)
        capsys.readouterr()
        assert failing_run(folder, lambda count, n=n: count >= n) == 2
        err = capsys.readouterr().err
        assert err.count("No space left on device") == err.count("\n") > 0
        assert "Traceback" not in err
        recover(folder)
        assert_same_run(folder, calm, checkpoints=3)  # one whose name could not be brought to disk is kept


def test_a_checkpoint_that_fails_leaves_those_before(tmp_path: Path, calm: Path) -> None:
    """Every n-th operation fails, for the whole run: most checkpoints are lost, no sound one is."""
    for n in (7, 11, 13, 17, 23):
        folder = tmp_path / str(n)
        failing_run(folder, lambda count, n=n: count > 12 and count % n == 0)
        recover(folder)
        assert_same_run(folder, calm, checkpoints=3)  # one whose name could not be brought to disk is kept


LIMITED = """
import resource, sys
from cvgnn.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(main(sys.argv[2:]))
"""


def test_a_real_limit_of_the_system(tmp_path: Path, calm: Path) -> None:
    """No file may grow beyond what the tensors of a checkpoint need: the kernel refuses, half-way through a write."""
    size = (calm / "checkpoints").stat().st_size and max(
        p.stat().st_size for p in (calm / "checkpoints").rglob("state.safetensors")
    )
    folder = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(size // 2), "train", *RUN, *OFTEN, "--out", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    assert "was not written: File too large; free some space; there is no earlier one" in done.stderr
    assert list((folder / "checkpoints").iterdir()) == []
    assert (folder / "result.json").exists()
    (folder / "result.json").unlink()
    recover(folder)
    assert_same_run(folder, calm, checkpoints=3)  # one whose name could not be brought to disk is kept


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_file_system(small_disk: Path, capsys: pytest.CaptureFixture[str], calm: Path) -> None:
    filler = small_disk / "filler"
    room = os.statvfs(small_disk)
    filler.write_bytes(b"x" * (room.f_bavail * room.f_frsize - 100_000))
    folder = small_disk / "run"
    assert main(["train", *RUN, *OFTEN, "--out", str(folder)]) == 2
    err = capsys.readouterr().err
    assert "No space left on device; free some space" in err
    assert "Traceback" not in err
    filler.unlink()
    recover(folder)
    assert_same_run(folder, calm, checkpoints=3)  # one whose name could not be brought to disk is kept


def test_a_read_only_folder_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_only(*args: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(atomic_files, "create", read_only)
    assert main(["train", *RUN, "--out", str(tmp_path / "run")]) == 2
    out, err = capsys.readouterr()
    assert "epoch" not in out.replace("epochs", "")
    assert (
        err == f"cvgnn: cannot use {tmp_path / 'run'} as output folder: Read-only file system; choose another --out\n"
    )
