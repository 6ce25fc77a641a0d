"""One at a time."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cvgnn.utils import file_lock
from cvgnn.utils.file_lock import lock_file
from tests.logs import logged


def test_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "_POLL_SECONDS", 0.001)
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        with lock_file(tmp_path / ".lock", wait=True) as exclusive:
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
        "from cvgnn.utils.file_lock import lock_file\n"
        "with lock_file(pathlib.Path(sys.argv[1]), wait=True):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / ".lock")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with (tmp_path / ".lock").open("ab") as file, pytest.raises(BlockingIOError) as caught:
        file_lock._try_lock(file.fileno())
    assert caught.value.errno in file_lock._TAKEN
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with lock_file(tmp_path / ".lock", wait=True) as exclusive:
        assert exclusive


def test_waiting_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "_NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(file_lock, "_POLL_SECONDS", 0.001)
    answers = iter([True, True, False])

    def busy(file: object) -> None:
        if next(answers):
            raise OSError(errno.EAGAIN, "taken")

    monkeypatch.setattr(file_lock, "_try_lock", busy)
    with logged() as messages, lock_file(tmp_path / ".lock", wait=True) as exclusive:
        assert exclusive
    assert messages == [f"waiting for another process that is downloading to {tmp_path}"]


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(file: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(file_lock, "_try_lock", unsupported)
    with lock_file(tmp_path / ".lock", wait=True) as exclusive:
        assert not exclusive


def test_a_lock_is_held_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lock_file(tmp_path / "a", wait=False) as mine, lock_file(tmp_path / "a", wait=False) as other:
        assert (mine, other) == (True, False)
    with lock_file(tmp_path / "a", wait=False) as again:
        assert again

    def none_here(file: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(file_lock, "_try_lock", none_here)
    with lock_file(tmp_path / "a", wait=False) as never:
        assert not never
