"""The defaults of `cvgnn train --graph` beside a full-batch GCN with usual settings, on graphs that come as npz files.

    python benchmarks/full_batch.py [--data ../shared/data] [--graphs photo wordnet arxiv] [--seeds 5] [--full-seeds 1]
        [--epochs 500] [--eval-every 5] [--unfinished] [--out DIR]

`full batch`: PyG's `GCNConv`, 3 layers of width 256, LayerNorm, ReLU, dropout 0.5, Adam with a rate of 0.01, all
training nodes in every step; `P` is normalised once, `P` and sparse features are torch's CSR matrices. `auto`:
`cvgnn.fit(graph, defaults="auto")`. Random splits of 60/20/20 (arxiv: its own), the same for both; seed S takes split
S. Accuracy is the test accuracy at the best validation epoch. Seconds are those of training, without evaluation, of one
thread: CPU seconds (`process_time`), because the machine may be busy, and wall seconds. Each run is a line of
DIR/full_batch.jsonl, with its accuracies by CPU second, and a run that is there is not repeated. A full batch that is
killed leaves what it reached in DIR/full_batch_GRAPH_SEED.json; `--unfinished` reads it from there.

Time to accuracy: CPU seconds of set-up (from the graph in memory to the first step: `P`, `P X`, compiled kernels) and
training until the test accuracy at the best validation epoch so far is first at least that of the full batch less 0.3.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.nn import GCNConv

import cvgnn
from common import ROOT, SHARED, commit, parser, report
from cvgnn import SparseFeatures
from cvgnn.training import EpochRecord, Trainer
from estimators import Cost, open_graph


class FullBatchGCN(nn.Module):
    """Three times `GCNConv`, with LayerNorm, ReLU and dropout between them."""

    def __init__(self, num_features: int, num_classes: int, *, hidden: int = 256, p: float = 0.5) -> None:
        super().__init__()
        widths = [num_features, hidden, hidden, num_classes]
        self.convs = nn.ModuleList(GCNConv(a, b, normalize=False) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.p = p

    def forward(self, X: Tensor, P: Tensor) -> Tensor:
        H = X
        for conv, norm in zip(self.convs, self.norms, strict=False):
            H = dropout(norm(conv(H, P)).relu(), self.p, self.training)
        return self.convs[-1](H, P)


def full_batch(graph: cvgnn.Graph, seed: int, epochs: int, eval_every: int, unfinished: Path) -> dict[str, Any]:
    """One run of the full-batch GCN."""
    torch.manual_seed(seed)
    setup = time.process_time()
    P, X = propagation_matrix(graph), features(graph)
    model = FullBatchGCN(graph.num_features, graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    labels, cpu, wall = graph.y[graph.train_ids], 0.0, 0.0
    setup = time.process_time() - setup
    best: dict[str, Any] = {"val": -1.0}
    curve = []
    for epoch in range(1, epochs + 1):
        start = time.process_time(), time.perf_counter()
        model.train()
        loss = cross_entropy(model(X, P)[graph.train_ids], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        cpu, wall = cpu + time.process_time() - start[0], wall + time.perf_counter() - start[1]
        if epoch % eval_every == 0 or epoch == epochs:
            model.eval()
            with torch.no_grad():
                right = (model(X, P).argmax(dim=1) == graph.y).double()
            val, test = (100 * float(right[ids].mean()) for ids in (graph.val_ids, graph.test_ids))
            if val > best["val"]:
                best = {"val": val, "test": test, "epoch": epoch}
            curve.append([setup + cpu, val, test])
            result = {**best, "epochs": epoch, "cpu": cpu, "seconds": wall, "curve": curve}
            unfinished.write_text(json.dumps(result))
            print(f"  full batch, epoch {epoch}: {val:.2f} {test:.2f} {cpu:.0f} s", flush=True)
    return result


def propagation_matrix(graph: cvgnn.Graph) -> Tensor:
    """`P` as a CSR matrix, self loops included, by PyG's own normalisation."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    rows = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree)
    edges, weights = gcn_norm(torch.stack([graph.indices.long(), rows]), None, graph.num_nodes)
    size = (graph.num_nodes, graph.num_nodes)
    return torch.sparse_coo_tensor(edges.flip(0), weights, size).coalesce().to_sparse_csr()


def features(graph: cvgnn.Graph) -> Tensor:
    """`X`, a CSR matrix where the graph has sparse features."""
    X = graph.x
    if not isinstance(X, SparseFeatures):
        return X
    return torch.sparse_csr_tensor(X.indptr, X.indices.long(), X.values, tuple(X.shape))


class Curve(Cost):
    """Also the accuracies by CPU second of set-up and training."""

    def __init__(self) -> None:
        self.setup, self.points = time.process_time(), list[list[float]]()

    def on_start(self, trainer: Trainer, records: Sequence[EpochRecord]) -> None:
        super().on_start(trainer, records)
        self.setup = time.process_time() - self.setup

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        val, test = (record.metrics.get(f"{part}_accuracy") for part in ("val", "test"))
        if val is not None and test is not None:
            self.points.append([self.setup + self.cpu, 100 * val, 100 * test])


def auto(graph: cvgnn.Graph, seed: int) -> dict[str, Any]:
    """One run with the defaults for a graph of the user's."""
    curve = Curve()
    result = cvgnn.fit(graph, defaults="auto", seed=seed, threads=1, callbacks=[curve]).result
    val, test = (100 * result[f"{part}_accuracy"] for part in ("val", "test"))
    return {
        "val": val,
        "test": test,
        "epoch": result["best_epoch"],
        "epochs": result["epochs"],
        "cpu": curve.cpu,
        "seconds": result["train_seconds"],
        "curve": curve.points,
    }


def time_to(curve: Sequence[Sequence[float]], target: float) -> float:
    """CPU seconds until the test accuracy at the best validation epoch so far is first `target`."""
    best = (-1.0, -1.0)
    for cpu, val, test in curve:
        best = max(best, (val, test), key=lambda pair: pair[0])
        if best[1] >= target:
            return cpu
    return math.inf


def time_to_accuracy(name: str, ours: Sequence[dict[str, Any]], full: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """CPU seconds of both, to the full batch's accuracy less 0.3 and to the end."""
    theirs = statistics.mean(run["test"] for run in full)
    to_target = [time_to(run["curve"], theirs - 0.3) for run in ours]
    to_best = statistics.median(time_to(run["curve"], run["test"]) for run in full)
    ends = [statistics.median(run["curve"][-1][0] for run in runs) for runs in (ours, full)]
    return {
        "graph": name,
        "full batch, test %": f"{theirs:.2f} (best of {full[0]['epochs']} epochs)",
        "auto, seeds": len(ours),
        "auto, s to it less 0.3": f"{statistics.median(to_target):.1f} ({min(to_target):.1f} to {max(to_target):.1f})",
        "full batch, s to its best": f"{to_best:.1f}",
        "times sooner": f"{to_best / statistics.median(to_target):.1f}",
        "auto, s to the end": f"{ends[0]:.1f}",
        "full batch, s to the end": f"{ends[1]:.1f}",
        "its best / our end": f"{to_best / ends[0]:.1f}",
        "end / end": f"{ends[1] / ends[0]:.1f}",
    }


def main() -> None:
    p = parser(__doc__ or "", "full_batch")
    p.add_argument("--data", type=Path, default=SHARED)
    p.add_argument("--graphs", nargs="+", default=["photo", "wordnet", "arxiv"])
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--full-seeds", type=int, default=1)
    p.add_argument("--epochs", type=int, default=500)
    p.add_argument("--eval-every", type=int, default=5)
    p.add_argument("--unfinished", action="store_true")
    args = p.parse_args()
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    log = args.out / "full_batch.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    done = {tuple(record["run"]): record for record in map(json.loads, lines)}
    rows, times = [], []
    for name in args.graphs:
        row: dict[str, Any] = {"graph": name}
        for method, seeds in (("auto", args.seeds), ("full batch", args.full_seeds)):
            for seed in range(seeds):
                part = args.out / f"full_batch_{name}_{seed}.json"
                if (name, method, seed) in done:
                    continue
                if args.unfinished and method == "full batch" and part.exists():
                    done[name, method, seed] = json.loads(part.read_text())
                    continue
                graph = open_graph(args.data, name, seed)
                if method == "auto":
                    found = auto(graph, seed)
                else:
                    found = full_batch(graph, seed, args.epochs, args.eval_every, part)
                done[name, method, seed] = {"run": [name, method, seed], "commit": commit(ROOT), **found}
                with log.open("a") as file:
                    file.write(json.dumps(done[name, method, seed]) + "\n")
            if not (runs := [done[name, method, seed] for seed in range(seeds)]):
                continue
            tests = [run["test"] for run in runs]
            spread = f" ± {statistics.stdev(tests):.2f}" if seeds > 1 else ""
            row[f"{method}, test %"] = f"{statistics.mean(tests):.2f}{spread} ({seeds} seed{'s' * (seeds > 1)})"
            for unit in ("cpu", "seconds"):
                row[f"{method}, {unit}"] = round(statistics.median(run[unit] for run in runs), 1)
        if args.seeds and args.full_seeds:
            methods = (("auto", args.seeds), ("full batch", args.full_seeds))
            times.append(time_to_accuracy(name, *([done[name, m, seed] for seed in range(n)] for m, n in methods)))
        rows.append(row)
    about = (__doc__ or "").partition("\n\n")[2]
    found_tables = {"Accuracy and training time": rows, "Time to accuracy": times}
    report("full_batch", "Defaults beside a full-batch GCN", about, found_tables, args.out)


if __name__ == "__main__":
    main()
