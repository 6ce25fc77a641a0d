"""Processes that measure: they end with the one that started them, and leave Ctrl-C to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose.workers import measure_all

_SLEEPS = """
import sys
from cvgnn.cli.main import main
from cvgnn.lab.diagnose.workers import measure_all
from tests.lab.diagnose.test_workers import sleep

if __name__ == "__main__":
    import cvgnn.cli.main as cli
    cli._dispatch = lambda words: measure_all(sleep, sys.argv[1], ["a", "b"], workers=2)
    sys.exit(main([]))
"""


def sleep(folder: str, name: str) -> None:
    """A measurement that takes long, and says in a file which process does it."""
    (Path(folder) / name).write_text(str(os.getpid()))
    time.sleep(100)


def die(shared: None, job: int) -> None:
    """A measurement that the system ends."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_told_in_a_sentence() -> None:
    with pytest.raises(CvgnnError, match="a process was killed, perhaps for lack of memory; try --workers 1"):
        measure_all(die, None, [1, 2], workers=2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_processes_end_with_their_parent(number: signal.Signals, code: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SLEEPS)
    (tmp_path / "pids").mkdir()
    root = str(Path(__file__).parents[3])
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "pids")],
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    files = [tmp_path / "pids" / name for name in ("a", "b")]
    _until(lambda: all(file.exists() and file.read_text() for file in files), 60)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in err
    _until(lambda: not any(_alive(int(file.read_text())) for file in files), 10)


def _until(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def _alive(process: int) -> bool:
    with contextlib.suppress(OSError):
        return "zombie" not in Path(f"/proc/{process}/status").read_text()
    return False
