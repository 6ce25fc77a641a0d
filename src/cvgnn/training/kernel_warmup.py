"""Compile all kernels ahead of time, for a container image or a first run without waiting."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from cvgnn.config import TrainConfig
from cvgnn.data import Graph, Propagation
from cvgnn.data.named import load
from cvgnn.data.named.synthetic import generate, small_spec
from cvgnn.training.run import train
from cvgnn.utils.compile_listeners import listening

# numba compiles a kernel anew for other types of its arguments. These runs together use every kernel with all types
# that the options of `TrainConfig` lead to; a test trains with other combinations and compiles nothing.
_RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sparse", {}),
    ("sparse", {"optimizer": "sgd", "input_dropout": 0.5, "feature_norm": "row", "clip_norm": 1.0}),
    ("sparse", {"optimizer": "heavy-ball", "model": "sage", "bias": False}),
    ("sparse", {"optimizer": "amsgrad", "norm": "layer", "history_dtype": "bfloat16"}),
    ("sparse", {"optimizer": "adagrad", "estimator": "ns", "dropout": 0.0, "sampled_start": 2}),
    ("sparse", {"optimizer": "adagrad", "form": "paper", "estimator": "exact", "norm": "batch"}),
    ("sparse", {"model": "gcnii", "layers": 3}),
    ("dense", {"model": "gin", "input_dropout": 0.5, "activation": "gelu"}),
    ("dense", {"feature_dtype": "bfloat16", "norm": "layer", "bias": False, "input_dropout": 0.5}),
    ("dense", {"history_dtype": "bfloat16", "norm": "layer", "dropout": 0.0, "residual": True, "jk": "concat"}),
    ("weighted", {"layers": 3, "residual": True, "histories": "disk"}),
)


def warm_up(progress: Callable[[str, float], None]) -> int:
    """Compile every kernel that is not in the cache, by training on small graphs.

    Args:
        progress: called with what is being done and the share (0..1) that is done.

    Returns:
        The number of kernels that were compiled; a kernel counts once for each set of types of its arguments.
    """
    compiled: list[str] = []
    with listening(lambda name, ended: compiled.append(name) if ended else None):
        graphs = small_graphs()  # generating one compiles kernels too
        for i, (kind, options) in enumerate(_RUNS):
            words = " ".join(f"{name}={value}" for name, value in options.items())
            progress(f"{kind} graph, {words or 'defaults'}", i / len(_RUNS))
            train(graphs[kind], TrainConfig(epochs=1, **options))
        Propagation(graphs["dense"]).product(torch.zeros(graphs["dense"].num_nodes, 1024))  # large, for `sum_lines`
    progress("done", 1.0)
    return len(compiled)


def small_graphs() -> dict[str, Graph]:
    """A graph with sparse features, one with dense ones, and one with edge weights."""
    dense = generate(small_spec(2000))
    weighted = dataclasses.replace(dense, edge_weight=torch.ones(dense.num_edges))
    return {"sparse": load("citeseer"), "dense": dense, "weighted": weighted}
