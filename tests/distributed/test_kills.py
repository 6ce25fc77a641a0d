"""SIGKILL of any one rank at moments drawn from a seed: the run that goes on with another number of ranks has the bits
of the one that nobody disturbed.

`CVGNN_RANK_KILLS=20 pytest tests/distributed/test_kills.py` kills 20 times; `CVGNN_KILL_SEED=7` draws other moments.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cvgnn.distributed.partition import partition_graph
from tests.distributed.test_same_bits import ENVIRONMENT
from tests.distributed.test_sharded_run import SMALL, result, wait_for
from tests.distributed.test_sharded_trainer import small_graph
from tests.faults.harness import state_of

KILLS = int(os.environ.get("CVGNN_RANK_KILLS", "5"))
SEED = int(os.environ.get("CVGNN_KILL_SEED", "0"))
RANKS = (4, 2, 8)
MORE = 150
"""Epochs that each start adds: more than are done before the next kill."""


@pytest.mark.slow
def test_any_rank_killed_at_any_moment_and_resumed_on_another_number(tmp_path: Path) -> None:
    graph = small_graph()
    graph = dataclasses.replace(graph, x=graph.x.float(), validated=True)  # type: ignore[union-attr]
    partition_graph(graph, tmp_path / "p", shards=8)
    rng, run, killed, epochs = random.Random(SEED), tmp_path / "r", [], 0
    words = ["--graph", str(tmp_path / "p"), *SMALL, "--eval-every", "10"]
    starter = subprocess.Popen(
        [sys.executable, "-m", "tests.distributed.forked_ranks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=ENVIRONMENT,
    )  # fmt: skip

    def start(ranks: int, *arguments: str) -> list[int]:
        further = ["--epochs", str(epochs), "--timeout", "120", "--quiet"]
        tell(starter, [ranks, free_port(), str(tmp_path / "log"), ["train", *arguments, *further]])
        return answer(starter)

    try:
        while len(killed) < KILLS:
            # Never fewer than before: a kill may find metrics.jsonl not written again yet.
            ranks, epochs = RANKS[len(killed) % 3], max(epochs, epochs_done(run) + MORE)
            begun = (run / "config.json").exists()
            victim, early = rng.randrange(ranks), rng.random() < 0.15  # early: perhaps before the first step
            before = progress(run, early)
            pids = start(ranks, "--resume", str(run)) if begun else start(ranks, "--out", str(run), *words)
            wait_for(lambda: progress(run, early) != before, 300)  # noqa: B023
            time.sleep(rng.uniform(0.0, 0.5))
            with suppress(ProcessLookupError):  # all epochs were done
                os.kill(pids[victim], signal.SIGKILL)
            codes = answer(starter)
            if codes != [0] * ranks:
                assert codes[victim] == -signal.SIGKILL, (tmp_path / "log").read_text()[-3000:]
                assert all(code > 0 for rank, code in enumerate(codes) if rank != victim), codes
                killed.append((ranks, victim, epochs_done(run)))
        epochs = max(epochs, epochs_done(run))
        start(1, "--resume", str(run))
        assert answer(starter) == [0]
        start(1, "--out", str(tmp_path / "whole"), *words)
        assert answer(starter) == [0]
    finally:
        starter.kill()
        starter.communicate()
    print(f"ranks, killed rank, epochs done: {killed}, seed {SEED} (CVGNN_KILL_SEED draws other moments)")
    assert result(run) == result(tmp_path / "whole")
    assert [row["epoch"] for row in result(run)[1]] == list(range(1, epochs + 1))  # each once
    assert sum(done > 0 for _, _, done in killed) > KILLS / 2  # or start-up alone was tested


def progress(run: Path, early: bool) -> object:
    """Changes with every epoch and checkpoint; `early`: when the ranks have met, too."""
    log = run / "rank-0.log"
    return state_of(run), early and log.exists() and log.stat().st_mtime_ns


def tell(starter: subprocess.Popen[str], what: Any) -> None:
    assert starter.stdin is not None
    starter.stdin.write(json.dumps(what) + "\n")
    starter.stdin.flush()


def answer(starter: subprocess.Popen[str]) -> list[int]:
    assert starter.stdout is not None
    line = starter.stdout.readline()
    assert line, "the process that starts the ranks has ended"
    numbers: list[int] = json.loads(line)
    return numbers


def epochs_done(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
