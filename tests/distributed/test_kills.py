"""SIGKILL of any one rank at moments drawn from a seed: the run that goes on with another number of ranks has the bits
of the one that nobody disturbed.

`CVGNN_RANK_KILLS=20 pytest tests/distributed/test_kills.py` kills 20 times; `CVGNN_KILL_SEED=7` draws other moments.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cvgnn.distributed.partition import partition_graph
from tests.distributed.forked_ranks import Starter
from tests.distributed.test_sharded_run import SMALL, result, wait_for
from tests.distributed.test_sharded_trainer import small_graph

KILLS = int(os.environ.get("CVGNN_RANK_KILLS", "5"))
SEED = int(os.environ.get("CVGNN_KILL_SEED", "0"))
RANKS = (4, 2, 8)
MORE = 150
"""Epochs that each start adds: more than are done before the next kill."""


@pytest.mark.slow
def test_any_rank_killed_at_any_moment_and_resumed_on_another_number(forked: Starter, tmp_path: Path) -> None:
    graph = small_graph()
    graph = dataclasses.replace(graph, x=graph.x.float(), validated=True)  # type: ignore[union-attr]
    partition_graph(graph, tmp_path / "p", shards=8)
    rng, run, killed, epochs = random.Random(SEED), tmp_path / "r", [], 0
    words = ["--graph", tmp_path / "p", *SMALL, "--eval-every", "10"]

    def start(ranks: int, *arguments: object) -> list[int]:
        further = ["--epochs", epochs, "--checkpoint-epochs", 1, "--timeout", 120, "--quiet"]
        return forked.start([["train", *arguments, *further]] * ranks, tmp_path / "log")

    while len(killed) < KILLS:
        # Never fewer than before: a kill may find metrics.jsonl not written again yet.
        ranks, epochs = RANKS[len(killed) % 3], max(epochs, epochs_done(run) + MORE)
        begun = (run / "config.json").exists()
        victim, early = rng.randrange(ranks), rng.random() < 0.15  # early: perhaps before the first step
        before = progress(run, early)
        pids = start(ranks, "--resume", run) if begun else start(ranks, "--out", run, *words)
        wait_for(lambda: progress(run, early) != before, 300)  # noqa: B023
        time.sleep(rng.uniform(0.0, 0.5))
        with suppress(ProcessLookupError):  # all epochs were done
            os.kill(pids[victim], signal.SIGKILL)
        codes = forked.wait()
        if codes != [0] * ranks:
            assert codes[victim] == -signal.SIGKILL, (tmp_path / "log").read_text()[-3000:]
            assert all(code > 0 for rank, code in enumerate(codes) if rank != victim), codes
            killed.append((ranks, victim, epochs_done(run)))
    epochs = max(epochs, epochs_done(run))
    start(1, "--resume", run)
    assert forked.wait() == [0]
    began = [int(step) for step in re.findall("rank 0 of .*, step ([0-9]+)$", (run / "rank-0.log").read_text(), re.M)]
    start(1, "--out", tmp_path / "whole", *words)
    assert forked.wait() == [0]
    print(
        f"ranks, killed rank, epochs done: {killed}, first steps: {began}, seed {SEED} (CVGNN_KILL_SEED draws other moments)"
    )
    assert result(run) == result(tmp_path / "whole")
    assert [row["epoch"] for row in result(run)[1]] == list(range(1, epochs + 1))  # each once
    assert began == sorted(began)  # no start loses what a checkpoint has
    assert sum(step > 0 for step in began) > KILLS / 2  # or start-up alone was tested


def progress(run: Path, early: bool) -> object:
    """Changes with every checkpoint; `early`: when the ranks have met, too."""
    log, saved = run / "rank-0.log", sorted(path.name for path in (run / "checkpoints").glob("[0-9]*"))
    return saved[-1:], early and log.exists() and log.stat().st_mtime_ns


def epochs_done(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0
