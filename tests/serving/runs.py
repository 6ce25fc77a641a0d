"""Small runs to serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import cvgnn
from cvgnn.data.array_converter import from_arrays
from cvgnn.training.run import Run

N, F = 60, 5
NAMES = [f"knoten {i} – ü<b>&'\"" for i in range(N)]
"""Ids with everything that a page, a URL or JSON must escape."""


def small_graph(**changes: Any) -> cvgnn.Graph:
    """A ring with chords; three classes with names."""
    rng = np.random.default_rng(0)
    ring = np.stack([np.arange(N), (np.arange(N) + 1) % N])
    options: dict[str, Any] = {
        "y": np.array(["red", "green", "blue"])[np.arange(N) // 2 % 3],
        "node_names": NAMES,
    } | changes
    return from_arrays(
        np.concatenate([ring, rng.integers(0, N, (2, 40))], axis=1), x=rng.normal(size=(N, F)).astype(np.float32),
        train_ids=np.arange(0, N, 2), val_ids=np.arange(1, N, 4), test_ids=np.arange(3, N, 4), **options,
    )  # fmt: skip


def small_run(out: Path | None = None, *, graph: cvgnn.Graph | None = None, **options: Any) -> Run:
    """Two layers, three epochs."""
    options = {"epochs": 3, "hidden": 8, "defaults": "fixed", **options}
    return cvgnn.fit(graph or small_graph(), out=out, **options)
