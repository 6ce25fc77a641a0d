"""A store several times larger than what a run takes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.data.store.memory_run import LIMIT, N

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")


def run(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.data.store.memory_run", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    print(arguments, done.stdout)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.slow
def test_memory_does_not_grow_with_nodes_times_features(tmp_path: Path) -> None:
    """Writing with `P X`, one epoch and exact inference for all nodes, measured; then again under a hard limit."""
    measured: dict[int, dict[str, Any]] = {}
    for width in (128, 512):
        folder = tmp_path / str(width)
        try:
            measured[width] = run("write", folder, width) | run("train", folder, width)
            # A peak may hold one more of the chunks of 32 MiB by which all rows are read, as malloc happens to free them:
            # what a run needs is the least of three.
            for other in (run("train", folder, width) for _ in range(2)):
                measured[width] |= {name: min(measured[width][name], other[name]) for name in ("train", "predict")}
            again = run("limited", folder, width)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # pytest keeps the folders of three runs
        assert again["held"]
        assert again["classes"] == measured[width]["classes"]
        assert measured[width]["accuracy"] > 0.5  # it learned something: chance is 0.2
    narrow, wide = measured[128], measured[512]
    assert 3 * LIMIT < 4 * N * 512  # the features alone, and P X is as large again
    for phase, limit in {"open": 4 << 20, "train": LIMIT, "predict": LIMIT, "write": 450 << 20}.items():
        assert wide[phase] < limit, phase  # writing holds two pieces of columns, 128 MiB each
        assert abs(wide[phase] - narrow[phase]) < 40 << 20, phase  # where the features grow by 900 MB, with P X
