"""One process for each task: its value, its exit code, and its end with the pool."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from cvgnn.lab.process_pool import Ended, ProcessPool


def double(number: int) -> int:
    return 2 * number


def kill_itself(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def sleep(started: Path) -> None:
    started.touch()
    time.sleep(600)


def run(pool: ProcessPool[int], tasks: int) -> dict[int, Ended]:
    for task in range(tasks):
        pool.start(task, task)
    assert len(pool) == tasks
    ended: dict[int, Ended] = {}
    while len(pool):
        ended.update(pool.wait(60))
    return ended


def test_values_come_back() -> None:
    with ProcessPool[int](double) as pool:
        assert run(pool, 3) == {task: Ended(2 * task, 0) for task in range(3)}
        assert list(pool.wait(0)) == []


def test_a_killed_process_does_not_end_the_others() -> None:
    with ProcessPool[int](kill_itself) as pool:
        assert run(pool, 3) == {0: Ended(0, 0), 1: Ended(None, -signal.SIGKILL), 2: Ended(2, 0)}


def test_processes_are_stopped_at_the_end_of_the_block(tmp_path: Path) -> None:
    start = time.monotonic()
    with ProcessPool[str](sleep) as pool:
        pool.start("task", tmp_path / "started")
        while not (tmp_path / "started").exists():
            assert list(pool.wait(0.05)) == []
    assert time.monotonic() - start < 60
