"""From a file to the first step, and dense `P X` at Reddit size, in two checkouts that take turns.

    python benchmarks/setup.py OLD_CHECKOUT [--rounds 1] [--train 522000] [--parts file dense] [--out DIR]

`file`: a graph of 870,000 nodes, 33 million undirected edges (int64, each listed once) and 12,000 sparse features (five
words a node, half of them of its class) from an uncompressed npz to the end of its first step: two layers of width 128,
fan-out 2, batches of 512. The structure, labels and split are those of the synthetic generator; the file lies in a
temporary folder and in the page cache. Imports are not counted, compiled kernels are in the cache.
`dense`: `P X` of the synthetic graph of Reddit's size, float32. The roofline is two numbers, both over the bandwidth of
a copy in the same process: the bytes that a product without any cache gathers (entries of `A` times a row of `X`), and
those that no product can avoid (`X` read, `P X` written, the neighbors read once).
Every measurement is a fresh process on two threads; old and new alternate.
"""

from __future__ import annotations

import common  # isort: skip
import importlib
import inspect
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

NODES, EDGES, FEATURES, CLASSES, WORDS = 870_000, 33_000_000, 12_000, 40, 5


def write_graph(path: str, train: int) -> None:
    """Write the npz; a fifth of the nodes, or half as many as train, are validation and test nodes each."""
    from scipy import sparse

    from cvgnn.data.named.synthetic import SyntheticSpec, generate

    rest = min(train // 2, NODES // 5)
    g = generate(
        SyntheticSpec(
            num_nodes=NODES, num_edges=2 * EDGES, num_features=1, num_classes=CLASSES, train=train, val=rest, test=rest,
            max_degree=NODES // 60,
        )
    )  # fmt: skip
    row, column, y = np.repeat(np.arange(NODES), g.degree.numpy()), g.indices.numpy(), g.y.numpy()
    rng = np.random.default_rng(0)
    counts = rng.poisson(WORDS, NODES)
    word = (FEATURES ** rng.random(counts.sum())).astype(np.int64) - 1  # log-uniform, as Zipf's law
    own = (word * 7919 + np.repeat(y, counts) * (FEATURES // CLASSES)) % FEATURES
    word = np.where(rng.random(word.size) < 0.5, own, word)
    entries = np.ones(word.size, np.float32), (np.repeat(np.arange(NODES), counts), word)
    X = sparse.csr_array(entries, shape=(NODES, FEATURES))
    np.savez(
        path, edge_index=np.stack([row, column])[:, row < column], y=y, x_data=X.data, x_indices=X.indices,
        x_indptr=X.indptr, x_shape=X.shape, train_ids=g.train_ids, val_ids=g.val_ids, test_ids=g.test_ids,
    )  # fmt: skip


def find(*places: str) -> Any:
    """The first of `module:name` that this checkout has."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this checkout has none of {places}")


def measure_file(path: str) -> dict[str, float]:
    """Seconds of reading, of building the trainer, and of the first step."""
    import torch

    read_graph = find("cvgnn.data.io:read_graph", "cvgnn.files:read_graph", "cvgnn.files.read:read_graph")
    build_trainer = find("cvgnn.training.trainer_builder:build_trainer", "cvgnn.experiments.run:build_trainer")
    config = find("cvgnn.config:TrainConfig")(layers=2, hidden=128, num_neighbors=(2,), batch_size=512, epochs=1)
    torch.set_num_threads(2)
    times = [time.perf_counter()]
    graph = read_graph(Path(path))
    times.append(time.perf_counter())
    # As a run builds it: rows that neither training nor evaluation reads are left out.
    partial = "all_rows" in inspect.signature(build_trainer).parameters
    trainer = build_trainer(graph, config, **({"all_rows": False} if partial else {}))
    times.append(time.perf_counter())
    trainer.model.train()
    loss = trainer.step(next(iter(trainer.loader.epoch(1))))
    times.append(time.perf_counter())
    read, build, step = np.diff(times).tolist()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"read": read, "build": build, "step": step, "total": read + build + step, "GiB": peak, "loss": loss}


def measure_dense(_: str) -> dict[str, float]:
    """Seconds of `P X`, and the roofline's."""
    import torch

    graph = common.load("reddit")
    P = find("cvgnn.data:Propagation", "cvgnn.graph:Propagation")(graph)
    torch.set_num_threads(2)
    X = graph.x.clone()  # in memory, not mapped
    P.product(X[:, :16].contiguous())  # loads the kernels
    start = time.perf_counter()
    PX = P.product(X)
    seconds = time.perf_counter() - start
    check = float(PX.double().sum())
    copy = []
    for _i in range(5):
        start = time.perf_counter()
        PX.copy_(X)
        copy.append(time.perf_counter() - start)
    bandwidth = 2 * X.numel() * 4 / min(copy)
    gathered, least = graph.num_edges * X.shape[1] * 4, 2 * X.numel() * 4 + graph.num_edges * 4
    return {
        "P X": seconds, "GB/s of a copy": bandwidth / 1e9, "gathered GB": gathered / 1e9,
        "gathered / bandwidth": gathered / bandwidth, "least / bandwidth": least / bandwidth, "sum": check,
    }  # fmt: skip


def main() -> None:
    """Let the checkouts take turns; report medians and ratios."""
    p = common.parser(__doc__ or "", "setup")
    p.add_argument("old", type=Path)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--train", type=int, nargs="*", default=[522_000])
    p.add_argument("--parts", nargs="*", default=["file", "dense"])
    a = p.parse_args()
    checkouts = {"old": a.old.resolve(), "new": common.ROOT}
    tables: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        for train in a.train if "file" in a.parts else ():
            path = f"{folder}/{train}.npz"
            subprocess.run([sys.executable, __file__, "--write", path, str(train)], check=True)
            cases.append((f"npz to the first step, {train:,} training nodes", "--file", path))
        if "dense" in a.parts:
            cases.append(("P X at Reddit size", "--dense", "-"))
        for title, kind, argument in cases:
            found: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
            for _ in range(a.rounds):
                for name, checkout in checkouts.items():
                    env = {**os.environ, "PYTHONPATH": str(checkout / "src")}
                    done = subprocess.run(
                        [sys.executable, __file__, kind, argument], env=env, check=True, stdout=subprocess.PIPE
                    )
                    found[name].append(json.loads(done.stdout.splitlines()[-1]))
                    print(name, found[name][-1], flush=True)
            rows = [
                {"checkout": f"{name} ({common.commit(checkouts[name])})", **{
                    key: statistics.median(run[key] for run in runs) for key in runs[0]
                }}
                for name, runs in found.items()
            ]  # fmt: skip
            key = "total" if kind == "--file" else "P X"
            rows.append({"checkout": "old / new", key: rows[0][key] / rows[1][key]})
            tables[title] = [{name: row.get(name) for name in rows[0]} for row in rows]
    common.report("setup", "Set-up", __doc__ or "", tables, a.out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_graph(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] in (["--file"], ["--dense"]):
        print(json.dumps((measure_file if sys.argv[1] == "--file" else measure_dense)(sys.argv[2])))
    else:
        main()
