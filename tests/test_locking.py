"""One at a time."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cvgnn import locking
from cvgnn.locking import held, locked


def test_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "_POLL_SECONDS", 0.001)
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        with locked(tmp_path / ".lock") as exclusive:
            assert exclusive
            inside += 1
            most = max(most, inside)
            time.sleep(0.005)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys, pathlib, time\n"
        "from cvgnn.locking import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / ".lock")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with (tmp_path / ".lock").open("ab") as file, pytest.raises(BlockingIOError) as caught:
        locking._try_lock(file)
    assert caught.value.errno in locking._TAKEN
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with locked(tmp_path / ".lock") as exclusive:
        assert exclusive


def test_waiting_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(locking, "_NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(locking, "_POLL_SECONDS", 0.001)
    answers = iter([True, True, False])

    def busy(file: object) -> None:
        if next(answers):
            raise OSError(errno.EAGAIN, "taken")

    monkeypatch.setattr(locking, "_try_lock", busy)
    with locked(tmp_path / ".lock") as exclusive:
        assert exclusive
    assert capsys.readouterr().err == f"waiting for another process that is downloading to {tmp_path}\n"


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(file: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(locking, "_try_lock", unsupported)
    with locked(tmp_path / ".lock") as exclusive:
        assert not exclusive


def test_a_lock_is_held_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(tmp_path / "a") as mine, held(tmp_path / "a") as other:
        assert (mine, other) == (True, False)
    with held(tmp_path / "a") as again:
        assert again

    def none_here(file: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locking, "_try_lock", none_here)
    with held(tmp_path / "a") as never:
        assert not never
