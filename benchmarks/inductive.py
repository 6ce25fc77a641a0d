"""Inductive training against transductive, and the time to predict new nodes by the size of the graph.

    python benchmarks/inductive.py accuracy [--data ../shared/data] [--seeds 5] [--epochs 30] [--out DIR]
    python benchmarks/inductive.py time [--nodes 1000 10000 100000] [--repeats 20] [--out DIR]

accuracy: Amazon Photo, a random split of 60/20/20 for each seed, width 64, batches of 512, Adam with a rate of 0.01,
dropout 0.5, fan-out 2, test accuracy at the best validation epoch, one thread. `inductive` trains on the subgraph of
the training nodes; both are evaluated on the whole graph.

time: random graphs of mean degree 10 with 64 features, 2 layers of width 64. One new node with 5 edges: `new` is
`Run.predict_new`, `whole` a pass over the graph with the node in it, its P and P X built, the edges already sorted.
Medians. `open` is what comes before, once a process: `load_run` of a graph in memory, mostly the weights of P.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import cvgnn
from common import SHARED, parser, report
from cvgnn.data import RandomSplit

DEGREE, FEATURES, EDGES = 10, 64, 5


def accuracy(args: Any) -> list[dict[str, Any]]:
    """Test accuracy in percent, mean and deviation over seeds, for each estimator."""
    rows = []
    for estimator in ("cvd", "ns", "exact"):
        row: dict[str, Any] = {"estimator": estimator}
        for inductive in (False, True):
            values = []
            for seed in range(args.seeds):
                graph = cvgnn.read_graph(args.data / "amazon_photo.npz", split=RandomSplit(seed=seed))
                run = cvgnn.fit(
                    graph,
                    defaults="fixed",
                    inductive=inductive,
                    estimator=estimator,
                    seed=seed,
                    epochs=args.epochs,
                    threads=1,
                )
                values.append(100 * run.result["test_accuracy"])
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            row["inductive" if inductive else "transductive"] = f"{statistics.mean(values):.2f}{spread}"
        rows.append(row)
        print(row, flush=True)
    return rows


def new_nodes(args: Any) -> list[dict[str, Any]]:
    """Milliseconds for one new node, and for a pass over the graph that has it."""
    rows = []
    for n in args.nodes:
        rng = np.random.default_rng(n)
        edges = rng.integers(n, size=(2, n * DEGREE // 2))
        X, y = rng.normal(size=(n + 1, FEATURES)).astype(np.float32), rng.integers(4, size=n + 1)
        graph = cvgnn.from_edges(edges, x=X[:n], y=y[:n], train_ids=np.arange(0, n, 2), val_ids=np.arange(1, n, 2))
        new = np.stack([rng.integers(n, size=EDGES), np.full(EDGES, n)])
        bigger = cvgnn.from_edges(
            np.concatenate([edges, new], axis=1), x=X, y=y, train_ids=np.arange(0, n, 2), val_ids=np.arange(1, n, 2)
        )
        with tempfile.TemporaryDirectory() as folder:
            cvgnn.fit(graph, defaults="fixed", epochs=1, threads=1, out=Path(folder, "run"))
            run = cvgnn.load_run(Path(folder, "run"), graph)

            def whole(folder: str = folder, bigger: cvgnn.Graph = bigger) -> Any:
                return cvgnn.load_run(Path(folder, "run"), bigger).outputs()

            difference = float((run.outputs_new(X[n:], new)[0] - whole()[n]).abs().max())
            opened = median(lambda f=folder, g=graph: cvgnn.load_run(Path(f, "run"), g), 5)  # type: ignore[misc]
            local = median(lambda r=run, x=X[n:], e=new: r.predict_new(x, e), args.repeats)  # type: ignore[misc]
            slow = median(whole, 5)
        rows.append(
            {
                "nodes": n, "new, ms": f"{local:.2f}", "whole, ms": f"{slow:.1f}", "whole / new": f"{slow / local:.1f}",
                "open, ms": f"{opened:.1f}", "largest difference of logits": f"{difference:.1e}",
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def median(function: Callable[[], Any], repeats: int) -> float:
    """Milliseconds of a call."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> None:
    p = parser(__doc__ or "", "inductive")
    p.add_argument("what", choices=["accuracy", "time"])
    p.add_argument("--data", type=Path, default=SHARED)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--nodes", nargs="+", type=int, default=[1_000, 10_000, 100_000])
    p.add_argument("--repeats", type=int, default=20)
    args = p.parse_args()
    about = (__doc__ or "").partition("\n\n")[2]
    table = accuracy(args) if args.what == "accuracy" else new_nodes(args)
    report(f"inductive_{args.what}", f"Inductive use: {args.what}", about, {args.what: table}, args.out)


if __name__ == "__main__":
    sys.exit(main())
