"""Ranks that die, hang, start again or differ: what the others say, how they end, and what is left."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cvgnn.distributed.ranks
from cvgnn.distributed.partition import Partition
from cvgnn.distributed.ranks import Ranks
from cvgnn.distributed.sharded_run import RankLog, ShardedProcesses
from cvgnn.errors import CvgnnError
from tests.distributed.forked_ranks import Starter
from tests.distributed.test_same_bits import ENVIRONMENT, torchrun
from tests.distributed.test_sharded_run import SMALL, process_of_rank, result, train, wait_for
from tests.distributed.test_sharded_run import folder as folder  # a fixture

HOST = os.uname().nodename


@pytest.mark.parametrize(("what", "victim"), [(signal.SIGKILL, 0), (signal.SIGKILL, 2), (signal.SIGSTOP, 2)])
def test_every_other_rank_names_the_lost_one_and_its_host(
    what: signal.Signals, victim: int, forked: Starter, folder: Path, tmp_path: Path
) -> None:
    limit, checkpoints = 4 if what == signal.SIGSTOP else 60, tmp_path / "r" / "checkpoints"
    words = ["train", "--quiet", "--graph", folder / "p", "--out", tmp_path / "r", "--epochs", 9999, *SMALL]
    pids = forked.start([[*words, "--timeout", limit]] * 4, tmp_path / "log")
    wait_for(lambda: (checkpoints / "000002").exists(), 120)
    lost = time.monotonic()
    os.kill(pids[victim], what)
    others = [rank for rank in range(4) if rank != victim]
    wait_for(lambda: (tmp_path / "log").read_text().count(" lost ") == len(others), limit + 16)
    print(f"all others said so after {time.monotonic() - lost:.1f} s, with a time-out of {limit} s")
    with suppress(ProcessLookupError):
        os.kill(pids[victim], signal.SIGKILL)  # one that hangs
    codes = forked.wait()
    assert [codes[rank] for rank in others] == [2, 2, 2]
    said = re.findall(r"cvgnn: (rank \d on \S+) lost (.*?), which failed, died, hangs", (tmp_path / "log").read_text())
    assert sorted(said) == [(f"rank {rank} on {HOST}", f"rank {victim} on {HOST}") for rank in others]
    assert all((checkpoint / "checkpoint.json").exists() for checkpoint in checkpoints.glob("[0-9]*"))


@pytest.mark.slow
def test_torchrun_starts_lost_ranks_again_and_again(folder: Path, tmp_path: Path) -> None:
    run, words = tmp_path / "r", ["--graph", str(folder / "p"), "--epochs", "150", *SMALL]
    assert train("--out", tmp_path / "whole", *words) == 0
    command = torchrun(2, "cvgnn", "train", "--quiet", "--out", str(run), *words, "--timeout", "60")
    command[3:3] = ["--max-restarts", "2", "--monitor-interval", "0.1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        for killed in range(2):  # the first restart would pass by luck with the addresses that an earlier rank has left
            log, saved = run / "rank-1.log", newest(run)
            wait_for(lambda: log.exists() and log.read_text().count("rank 1 of 2") == killed + 1, 120)  # noqa: B023
            wait_for(lambda: newest(run) > saved, 120)  # noqa: B023
            os.kill(process_of_rank(process.pid, 1), signal.SIGKILL)
        _, errors = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, errors[-3000:]
    assert result(run) == result(tmp_path / "whole")


def newest(run: Path) -> int:
    return max((int(path.name) for path in (run / "checkpoints").glob("[0-9]*")), default=0)


def test_ranks_with_other_times_to_save_are_refused(forked: Starter, folder: Path, tmp_path: Path) -> None:
    words = ["train", "--quiet", "--graph", folder / "p", "--out", tmp_path / "r", *SMALL, "--timeout", 60]
    forked.start([words, [*words, "--checkpoint-epochs", 2]], tmp_path / "log")
    assert forked.wait() == [2, 2]
    said = f"rank 1 on {HOST} differs from rank 0 on {HOST}: checkpoint_epochs is 2, not 1"
    assert (tmp_path / "log").read_text().count(said) == 2
    assert not (tmp_path / "r").exists()


def test_a_folder_that_a_rank_does_not_see_is_named(folder: Path, tmp_path: Path) -> None:
    log = RankLog(tmp_path / "elsewhere", ShardedProcesses(Partition(folder / "p"), Ranks()))
    trainer: Any = SimpleNamespace(iterations=0)
    with pytest.raises(CvgnnError, match=r"rank 0 on .* cannot write .*rank-0.log: No such file .* that all ranks see"):
        log.on_start(trainer, [])


def test_a_full_disk_loses_lines_of_a_log_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    log, trainer = RankLog(tmp_path, ShardedProcesses(Partition(folder / "p"), Ranks())), SimpleNamespace(iterations=0)
    log.on_start(trainer, [])  # type: ignore[arg-type]
    handler: Any = log._handler
    handler.setStream(full := Full()).close()
    log.on_end(trainer, None)  # type: ignore[arg-type]
    assert handler.stream is None
    full.flush = lambda: None  # type: ignore[method-assign]  # or it would complain when it is collected


def test_a_port_of_another_program_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = str(silent.getsockname()[1])
        for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port)):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(cvgnn.distributed.ranks, "_MORE_THAN_THE_TIMEOUT", 0.5)
        with pytest.raises(
            CvgnnError, match=r"rank 1 on .* did not meet the other ranks at .* within 1 s \(no answer\)"
        ):
            Ranks(timeout=1)
