"""SIGKILL at moments drawn from a seed: the run that is resumed ends as the one that nobody disturbed, to the bit.

`CVGNN_KILLS=100 pytest tests/faults/test_kill.py` shares 100 kills among all variants; the everyday run has 12 on
three. `CVGNN_KILL_SEED=7` draws other moments.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.harness import VARIANTS, assert_same_run, killed_until_done, undisturbed, write_graphs

KILLS = int(os.environ.get("CVGNN_KILLS", "10"))
SEED = int(os.environ.get("CVGNN_KILL_SEED", "0"))


@pytest.mark.slow
def test_killed_runs_end_as_if_nothing_had_happened(tmp_path: Path) -> None:
    names = list(VARIANTS) if KILLS >= 50 else list(VARIANTS)[:3]
    each = -(-KILLS // len(names))
    print(f"{each} kills for each of {len(names)} runs, seed {SEED} (CVGNN_KILL_SEED draws other moments)")

    files = write_graphs(tmp_path)

    def one(i: int) -> int:
        words = [files.get(word, word) for word in VARIANTS[names[i]]]
        undisturbed(tmp_path / f"calm{i}", words)
        in_training = killed_until_done(tmp_path / f"killed{i}", words, each, seed=SEED + i)
        assert_same_run(tmp_path / f"killed{i}", tmp_path / f"calm{i}")
        return in_training

    with ThreadPoolExecutor(2) as pool:
        in_training = list(pool.map(one, range(len(names))))
    print(f"kills while training: {in_training}")
    assert sum(in_training) >= each  # or the harness has tested start-up only
