"""A process that compiles the kernels and one that loads them from numba's cache compute the same bits.

numba links a kernel that another one calls into the caller, and caches each of them. If LLVM does not inline it, there
are two machine codes of it, optimised apart. A process that compiles runs the kernel's own; a process that loads the
caller runs the caller's copy. With fast math the two may round differently: LLVM chooses which product of
`a b + c d` it fuses with the sum.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from numba.core.dispatcher import Dispatcher

import cvgnn
import cvgnn.ops
from tests.build import graph_from_dense, random_adjacency

COMMON: dict[str, Any] = {"epochs": 2, "batch_size": 10, "hidden": 37, "threads": 1, "output": "last"}
# Both differed before the kernels they call had `fastmath=False`; together they call nearly all kernels of a step.
RUNS: list[tuple[torch.dtype, dict[str, Any]]] = [
    (
        torch.float32,
        {"optimizer": "amsgrad", "form": "paper", "layers": 3, "norm": "layer", "history_dtype": "bfloat16"},
    ),
    (torch.float64, {"activation": "gelu", "input_dropout": 0.2, "clip_norm": 0.5, "weight_decay": 0.01}),
]


def kernels() -> list[Any]:
    """All compiled functions of `cvgnn.ops`."""
    modules = [
        importlib.import_module(f"cvgnn.ops.{module.name}") for module in pkgutil.iter_modules(cvgnn.ops.__path__)
    ]
    found = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)}
    return list(found.values())


def called_by(kernel: Any) -> list[Any]:
    """The compiled functions that a kernel calls."""
    values = [kernel.py_func.__globals__.get(name) for name in kernel.py_func.__code__.co_names]
    return [value for value in values if isinstance(value, Dispatcher)]


def test_no_called_kernel_has_fast_math() -> None:
    """Nor gets it: a kernel without the option has the fast math of the caller for which it is compiled."""
    pairs = [(kernel, callee) for kernel in kernels() for callee in called_by(kernel)]
    assert len(pairs) > 10
    for kernel, callee in pairs:
        callers, own = kernel.targetoptions.get("fastmath"), callee.targetoptions.get("fastmath")
        assert own is False or (own is None and not callers), f"{callee}: write fastmath=False, or into {kernel}"


def train_all() -> None:
    """Print a digest of the weights that each run ends with, and how many kernels were compiled and loaded."""
    graph = graph_from_dense(random_adjacency(60, mean_degree=4, weighted=False, seed=0), features=21)
    assert isinstance(graph.x, torch.Tensor)
    digests = []
    for dtype, options in RUNS:
        run = cvgnn.fit(dataclasses.replace(graph, x=graph.x.to(dtype)), **COMMON, **options)
        weights = [weight.numpy().tobytes() for weight in run.model.state_dict().values()]
        digests.append(hashlib.sha256(b"".join(weights)).hexdigest())
    compiled = sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels())
    loaded = sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels())
    print(json.dumps({"digests": digests, "compiled": compiled, "loaded": loaded}))


@pytest.mark.slow
def test_a_cold_cache_gives_the_same_bits(tmp_path: Path) -> None:
    def run() -> dict[str, Any]:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-m", "tests.ops.test_kernel_cache"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    cold, warm = run(), run()
    assert cold["loaded"] == 0 < cold["compiled"]
    assert warm["compiled"] == 0 < warm["loaded"]
    assert warm["digests"] == cold["digests"]
    # Killed while it compiled: kernels are in the cache, their callers are not.
    for name in ("backward", "_compiled_step"):
        files = list(tmp_path.rglob(f"*.{name}-*"))
        assert files
        for file in files:
            file.unlink()
    mixed = run()
    assert mixed["compiled"] > 0 < mixed["loaded"]
    assert mixed["digests"] == cold["digests"]


if __name__ == "__main__":
    train_all()
