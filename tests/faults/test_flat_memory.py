"""A run of 500 epochs with checkpoints takes no more memory at its end than after its first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import ctypes, gc, json, pathlib, sys
from cvgnn.config import CheckpointPlan, GraphSource, TrainConfig
from cvgnn.data.named import load
from cvgnn.training.callbacks import OnEpoch
from cvgnn.training.run import train
from cvgnn.training.run_folder import RunFolder

page, resident = 4096, []
libc = ctypes.CDLL(None)
def look(record):
    if record.epoch % 10:
        return
    gc.collect()
    libc.malloc_trim(0)  # what is freed but not given back moves by some MiB from run to run, and is no leak
    resident.append(int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * page)
folder = RunFolder(pathlib.Path(sys.argv[1]))
config = TrainConfig(epochs=500, batch_size=20, num_neighbors=3, threads=int(sys.argv[2]), output="tau", eval_every=2)
plan = CheckpointPlan(checkpoint_epochs=5)
train(load("citeseer"), config, folder=folder, source=GraphSource(), plan=plan, callbacks=[OnEpoch(look)])
print(json.dumps(resident))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc and glibc's malloc_trim")
def test_500_epochs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "run"), "1"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    resident = json.loads(done.stdout)
    assert len(resident) == 50
    early, late = max(resident[5:15]), max(resident[40:])
    print(f"{early / 2**20:.1f} MiB after 50..150 epochs, {late / 2**20:.1f} after 400..500")
    assert late - early < 2 * 2**20
