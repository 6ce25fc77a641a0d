"""Real training processes that are killed, and what must be the same afterwards."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TIMES = ("setup_seconds", "train_seconds", "eval_seconds", "peak_rss_bytes", "command")

# Each takes some seconds and saves its state often, within epochs too.
VARIANTS = {
    "adam, best": ["--epochs", "150", "--batch-size", "10"],
    "paper's amsgrad, 3 layers, bfloat16, tau": [
        "--epochs", "60", "--batch-size", "10", "--layers", "3", "--optimizer", "amsgrad", "--form", "paper",
        "--history-dtype", "bfloat16", "--output", "tau", "--batches", "replacement", "--norm", "layer",
    ],
    "half the control variate, average of the weights": [
        "--epochs", "120", "--batch-size", "10", "--control", "0.5", "--ema", "0.98", "--num-neighbors", "1",
    ],
    "sgd with momentum, ns, last": [
        "--epochs", "150", "--batch-size", "10", "--optimizer", "heavy-ball", "--estimator", "ns", "--output", "last",
        "--eval-every", "7", "--clip-norm", "0.5",
    ],
    "two threads, drawing ahead": ["--epochs", "120", "--batch-size", "10", "--threads", "2", "--optimizer", "adagrad"],
    "numbers": ["--epochs", "150", "--batch-size", "10", "--task", "regression", "--metric", "mae", "--ema", "0.9"],
    "rare classes, temperature": [
        "--epochs", "150", "--batch-size", "10", "--class-weight", "balanced", "--metric", "macro_f1",
        "--calibrate", "True",
    ],
    "several labels a node": [
        "--epochs", "120", "--batch-size", "10", "--graph", "SEVERAL", "--class-weight", "balanced",
        "--defaults", "fixed",
    ],
    "link prediction": [
        "--task", "link", "--epochs", "20", "--batch-size", "100", "--hidden", "16", "--head", "hadamard-mlp",
    ],
    "labelled edges": [
        "--task", "edge", "--epochs", "40", "--batch-size", "100", "--hidden", "16", "--graph", "PAIRS",
        "--class-weight", "balanced", "--defaults", "fixed",
    ],
    "a set of graphs": [
        "--task", "graph", "--epochs", "60", "--batch-size", "10", "--hidden", "16", "--graph", "GRAPHS",
        "--pool", "set", "--model", "gin", "--defaults", "fixed",
    ],
    "all neighbors": ["--epochs", "150", "--batch-size", "10", "--estimator", "exact", "--bad-step", "skip"],
    "the training nodes alone": ["--epochs", "150", "--batch-size", "10", "--inductive", "True"],
}  # fmt: skip
OFTEN = ["--checkpoint-minutes", "0.002", "--checkpoint-epochs", "9"]


def write_graphs(folder: Path) -> dict[str, str]:
    """Files of the bundled graph for the words of `VARIANTS` in capitals: three labels a node, made from its classes;
    labels at edges, whether both ends are of one class; and many graphs, 20 nodes each with the edges among them."""
    import numpy as np

    import cvgnn

    graph = cvgnn.load("citeseer")
    edges = np.stack([np.repeat(np.arange(graph.num_nodes), graph.degree.numpy()), graph.indices.numpy()])
    x, y = graph.x.to_scipy(), graph.y.numpy()
    features = {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr, "x_shape": np.array(x.shape)}
    ids = {f"{part}_ids": getattr(graph, f"{part}_ids").numpy() for part in ("train", "val", "test")}
    number = np.arange(graph.num_nodes) // 20
    inside = number[edges[0]] == number[edges[1]]
    arrays: dict[str, dict[str, Any]] = {
        "SEVERAL": {"edge_index": edges, "y": (y[:, None] >> np.arange(3)) & 1, **ids},
        "PAIRS": {
            "edge_index": edges,
            "edge_label_index": edges,
            "edge_label": (y[edges[0]] == y[edges[1]]).astype(int),
        },
        "GRAPHS": {"edge_index": edges[:, inside], "graph_ids": number, "y": y[::20] % 2},
    }
    for name, own in arrays.items():
        np.savez(folder / f"{name}.npz", **features, **own)
    return {name: str(folder / f"{name}.npz") for name in arrays}


def start(*words: object) -> subprocess.Popen[bytes]:
    """`cvgnn train WORDS` as a process of its own."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    command = [sys.executable, "-m", "cvgnn", "train", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)


def finish(process: subprocess.Popen[bytes]) -> str:
    """Wait for the end, which must be a good one; what it said on stderr."""
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err.decode()
    return err.decode()


def undisturbed(folder: Path, words: list[str]) -> None:
    threads = [] if "--threads" in words else ["--threads", "1"]
    finish(start(*words, *threads, "--out", folder))


def killed_until_done(folder: Path, words: list[str], kills: int, seed: int) -> int:
    """Train with `kills` kills at random moments, resuming after each; returns how many were in training itself."""
    rng = random.Random(seed)
    threads = [] if "--threads" in words else ["--threads", "1"]
    in_training = 0
    process = start(*words, *threads, *OFTEN, "--out", folder)
    for _ in range(kills):
        in_training += _kill_somewhere(process, folder, rng)
        begun = (folder / "config.json").exists()
        process = start("--resume", folder, *OFTEN) if begun else start(*words, *threads, *OFTEN, "--out", folder)
    finish(process)
    return in_training


def _kill_somewhere(process: subprocess.Popen[bytes], folder: Path, rng: random.Random) -> bool:
    """SIGKILL; most often a little while after the run has written a checkpoint, sometimes before."""
    before, deadline = checkpoints_of(folder), time.monotonic() + 120
    if rng.random() < 0.15:
        time.sleep(rng.uniform(0.0, 4.0))
    else:
        while checkpoints_of(folder) <= before and process.poll() is None:
            assert time.monotonic() < deadline, "the run does not begin"
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.35))
    trained = not checkpoints_of(folder) <= before and process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return trained


def state_of(folder: Path) -> object:
    """Changes whenever the run writes an epoch or a checkpoint, and when it starts again."""
    metrics = folder / "metrics.jsonl"
    return metrics.stat().st_mtime_ns if metrics.exists() else 0, sorted(checkpoints_of(folder))


def checkpoints_of(folder: Path) -> set[str]:
    """The names of its checkpoints; a new one says that the run is training."""
    return {p.name for p in (folder / "checkpoints").glob("[0-9]*")}


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without their seconds."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def result_of(folder: Path) -> dict[str, Any]:
    """result.json without what depends on the clock, the process and the words that started it."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return {key: value for key, value in result.items() if key not in TIMES}


def assert_same_run(one: Path, other: Path, *, checkpoints: int = 2) -> None:
    """Weights to the bit, every epoch once, the same result, and no more checkpoints than that."""
    assert (one / "weights.safetensors").read_bytes() == (other / "weights.safetensors").read_bytes()
    epochs = [row["epoch"] for row in metrics_of(one)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert metrics_of(one) == metrics_of(other)
    results = result_of(one), result_of(other)
    assert results[0] == results[1], [
        pair for pair in zip(*(r.items() for r in results), strict=False) if pair[0] != pair[1]
    ]
    names = ["checkpoints", "config.json", "metrics.jsonl", "result.json", "weights.safetensors"]
    assert sorted(p.name for p in one.iterdir()) == names
    assert len(list((one / "checkpoints").iterdir())) <= checkpoints
