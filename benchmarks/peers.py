"""This library beside PyTorch Geometric and DGL: the same graphs, the same network, one process, taking turns.

    python benchmarks/peers.py [--graphs pubmed arxiv] [--parts iteration accuracy memory] [--contestants cv pyg-10-10]
                               [--threads 2] [--seeds 3] [--budget 60] [--rounds 7] [--passive] [--out DIR]

Contestants: `cv`, `ns` and `exact` of this library (fan-out of the paper's recipe; layer 0 is always exact), and `cv`
with features and histories in bfloat16 (all others compute in float32; PubMed's features are sparse to this library and
stay in float32); `cv-start`: `cv` with `sampled_start=10`, so that `P X` and the histories are computed after the first
epoch and not before it (its seconds hold them, its set-up does not), with `control=0.7` (the synthetic graphs overfit
with `cv`, docs/estimators.md; chosen on these graphs among 0.5, 0.7 and 1), and with `ema=0.99`: averaged weights are
evaluated, which no peer's example does; PyG's full-batch GCN; PyG's `NeighborLoader` + `GCNConv`; DGL's
`NeighborSampler` + `GraphConv`. What is not installed is named and left out. torch-sparse, without which
`NeighborLoader` does not run (or pyg-lib, which pip did not find), compiles in 10 to 50 minutes:

    pip install --no-build-isolation torch-scatter torch-sparse

Equal for all: graph, split, threads, two layers with LayerNorm after the first, width, dropout, batch size, Adam with
the same rate and weight decay, initial weights. Peers are used as their examples do: layers see the sampled subgraph
only, and normalise by the degrees in it; PyG computes both layers for all of its nodes (`trim_to_layer` needs what only
pyg-lib's sampler returns), DGL draws a node's self loop as one of its neighbors. Where a library offers more than one
way, the faster one here: `SparseTensor` instead of `edge_index` for PyG's full batch and, on the synthetic graphs, its
loader (in a few steps on arxiv's size that was worth factors of 6 and 2); `P` normalised once for the full batch.
DGL's wheel is built for an older torch: its graphbolt loader cannot take part. One step of the full batch is an epoch.

Threads that wait spin, torch's default. With `--passive` they sleep, as in the other benchmarks: in short runs on Photo
and arxiv (on a machine that was not idle) that was mostly slower, by up to 1.3 for this library and by up to 2 for the
peers (PyG at 2,2 on Photo). Spinning threads suffer most from anything else that runs on the machine.

Who has an advantage: the rate is the paper's, tuned for this method, for everyone (`--lr` sets another). Peers run
`torch.optim.Adam` as their examples do; its fused form would save them 0.2 to 0.4 ms an iteration (docs/benchmarks/
optimizer_step.md). Their loaders draw in the training process (`num_workers=0`), ours draws ahead in a thread.

- check: logits of the peers' networks, trained a few steps, against this library's exact ones (small graphs).
- iteration: each round times a block of iterations of every contestant, in alternating order; figures are medians over
  the rounds, ratios medians of the rounds' ratios. A block begins with an iteration that is not timed.
- accuracy: every contestant trains for `--budget` seconds for each seed. Its weights are set aside whenever the number
  of iterations has grown by 20 %, and after the run the validation accuracy of each is computed exactly, from full
  neighborhoods and with the graph's own `P`, for everyone by the same code. This time counts for nobody. Targets are
  shares of a peer's best accuracy (median over seeds); seconds are when a run first reached the target, median over
  seeds, "-" where the median run did not. Ratios are peer / cv: above 1, cv was faster; ">" where cv alone got there,
  empty where cv did not.
- memory: a process of its own for each; the peak above what was resident after the imports, a few iterations long.

Set-up is what comes before the first iteration: `P X` and the histories, or the peer's graph and loader. Reading the
graph, imports and the loading of compiled kernels count for nobody.
"""

from __future__ import annotations

import common  # isort: skip
import os
import sys

if "--passive" not in sys.argv:  # before torch is imported; see above
    os.environ.pop("OMP_WAIT_POLICY", None)
    os.environ.pop("GOMP_SPINCOUNT", None)

import dataclasses
import json
import math
import statistics
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

import cvgnn
from cvgnn import Evaluator, Graph, NodeClassification, Propagation, TrainConfig, exact_logits, propagate_features
from cvgnn.data.named.synthetic import generate, small_spec
from cvgnn.lab.recipes import paper_recipe
from peer_models import KINDS, OURS, Contestant, Field, Peer, available, copy, our_network, tensors_of, with_features

SMALL = ("pubmed", "photo")
GRAPHS = (*SMALL, "arxiv-real", "flickr", "arxiv", "reddit")  # the last three are synthetic
RECIPE = {**common.RECIPE, "pubmed": "pubmed", "photo": "pubmed", "arxiv-real": "ogbn-arxiv"}
FILES = {"photo": "amazon_photo.npz", "arxiv-real": "arxiv_guess.npz"}
PARTS = ("check", "iteration", "accuracy", "memory")
SHARES = (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
GROWTH = 1.2  # of the iterations between two looks at the accuracy
BLOCK_SECONDS, BLOCK_MOST = 0.5, 50
SLOW = 5.0  # seconds; a contestant whose iteration takes longer sits out most rounds
MEMORY_STEPS, MEMORY_SECONDS = 10, 30.0

Row = dict[str, Any]
Curve = dict[str, Any]  # seed, setup, points [iteration, seconds, accuracy]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load(name: str) -> Graph:
    if name == "pubmed":
        return cvgnn.load("pubmed", root=common.SHARED / "planetoid")
    return cvgnn.read_graph(common.SHARED / FILES[name]) if name in FILES else common.load(name)


def settings(name: str, lr: float | None) -> TrainConfig:
    """The paper's settings for Adam; Photo, which it does not have, takes Cora's with wider layers and batches."""
    config = paper_recipe(RECIPE[name], "adam")
    if name == "photo":
        config = dataclasses.replace(config, batch_size=100, hidden=64)
    elif name not in SMALL:
        config = dataclasses.replace(config, batch_size=1000)
    return config if lr is None else dataclasses.replace(config, lr=lr)


def warm_up(names: list[str]) -> None:
    """Two steps of each on a small graph, so that nobody is timed while it loads or compiles."""
    field = Field(generate(small_spec(2000)))
    for name in names:
        contestant = field.build(name, TrainConfig(norm="layer", batch_size=100))
        for _ in range(2):
            contestant.step()


# Are they the same network?


def check(field: Field, names: list[str], config: TrainConfig) -> list[Row]:
    """The largest difference between a peer's logits and ours for the same weights."""
    ids, rows = field.graph.val_ids[:50], []
    data, _ = field.prepared(with_features)
    model, P = our_network(data, config), Propagation(data)
    for name in names:
        peer = field.build(name, config)
        if not isinstance(peer, Peer):
            continue
        for _ in range(5):
            peer.step()
        copy(peer.snapshot(), tensors_of(model))
        ours = exact_logits(model, propagate_features(data, P), P)[ids]
        peer.network.eval()
        with torch.no_grad():
            difference = float((peer.exact(ids) - ours).abs().max())
        if not difference <= 1e-4 * max(1.0, float(ours.abs().max())):
            raise SystemExit(f"{name} computes another network: its logits differ by {difference:.2g}")
        rows.append({"contestant": KINDS[name].label, "largest difference of logits": f"{difference:.1e}"})
    return rows


# Milliseconds of an iteration


def block(contestant: Contestant, iterations: int) -> float:
    """Milliseconds an iteration."""
    for _ in range(contestant.lead):
        contestant.step()
    start = time.perf_counter()
    for _ in range(iterations):
        contestant.step()
    seconds = (time.perf_counter() - start) / iterations
    time.sleep(min(seconds, 2.0))  # a batch that is still drawn ahead must not run into the next one's block
    return seconds * 1e3


def iterations(field: Field, names: list[str], config: TrainConfig, options: Any) -> tuple[list[Row], Any]:
    contestants: dict[str, Contestant] = {}
    lengths: dict[str, int] = {}
    for name in names:
        contestants[name] = field.build(name, config)
        first = block(contestants[name], 1)
        lengths[name] = 0 if first > SLOW * 1e3 else max(1, min(BLOCK_MOST, round(BLOCK_SECONDS * 1e3 / first)))
        say(f"  {name}: set up in {contestants[name].setup:.2f} s, first iteration {first:.1f} ms")
    rounds: list[dict[str, float]] = []
    for r in range(options.rounds):
        there = [name for name in names if lengths[name] or r < options.slow_rounds]
        order = there if r % 2 == 0 else there[::-1]
        rounds.append({name: block(contestants[name], lengths[name] or 1) for name in order})
        say(f"  round {r + 1}: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in rounds[-1].items()))
    return [iteration_row(name, contestants[name], rounds) for name in names], rounds


def iteration_row(name: str, contestant: Contestant, rounds: list[dict[str, float]]) -> Row:
    times = [r[name] for r in rounds if name in r]
    ms, steps = statistics.median(times), contestant.steps_per_epoch
    ratios = [r[name] / r["cv"] for r in rounds if name in r and "cv" in r]
    return {
        "contestant": KINDS[name].label,
        "ms/iteration": round(ms, 2),
        "spread": f"{min(times):.1f}..{max(times):.1f}",
        "/ cv": round(statistics.median(ratios), 2) if ratios else None,
        "iterations/epoch": steps,
        "s/epoch": ms * steps / 1e3,
        "set-up s": round(contestant.setup, 2),
    }


# Seconds to an accuracy


def train(contestant: Contestant, budget: float) -> list[tuple[int, float, list[torch.Tensor]]]:
    """Iterations, seconds and weights along a run."""
    points, start, t, look = [], time.perf_counter(), 0, 1
    while True:
        contestant.step()
        t += 1
        seconds = time.perf_counter() - start
        if t >= look or seconds >= budget:
            points.append((t, seconds, contestant.snapshot()))
            look = max(t + 1, math.ceil(t * GROWTH))
        if seconds >= budget:
            return points


def curves(field: Field, names: list[str], config: TrainConfig, seeds: int, budget: float) -> dict[str, list[Curve]]:
    """A curve of validation accuracies for each contestant and seed."""
    data, _ = field.prepared(with_features)
    P = Propagation(data)
    evaluator = Evaluator(NodeClassification(data), propagate_features(data, P), P)
    model = our_network(data, config)
    found: dict[str, list[Curve]] = {name: [] for name in names}
    for seed in range(seeds):
        for name in names if seed % 2 == 0 else names[::-1]:
            contestant = field.build(name, dataclasses.replace(config, seed=seed))
            run = train(contestant, budget)
            setup = contestant.setup
            del contestant
            points = []
            for t, seconds, weights in run:
                copy(weights, tensors_of(model))
                points.append([t, round(seconds, 5), evaluator(model)["val_accuracy"]])
            found[name].append({"seed": seed, "setup": setup, "points": points})
            say(f"  seed {seed}, {name}: {points[-1][0]} iterations, best {best(found[name][-1]):.4f}")
    return found


def best(curve: Curve) -> float:
    return max(accuracy for _, _, accuracy in curve["points"])


def reached(runs: Iterable[Curve], target: float, *, setup: bool = False) -> float:
    """Seconds until the median run reached the target, infinite if it did not."""
    return statistics.median(
        min((s for _, s, accuracy in run["points"] if accuracy >= target - 1e-9), default=math.inf)
        + (run["setup"] if setup else 0.0)
        for run in runs
    )


def shown(seconds: float) -> float | str:
    return seconds if math.isfinite(seconds) else "-"


def ratio(theirs: float, ours: float) -> float | str | None:
    """How many times as long; ">" where only they did not get there, None where we did not."""
    if math.isinf(ours):
        return None
    return ">" if math.isinf(theirs) else round(theirs / ours, 2)


def accuracy_rows(found: dict[str, list[Curve]]) -> list[Row]:
    rows = []
    for name, runs in found.items():
        bests = [100 * best(run) for run in runs]
        rows.append({
            "contestant": KINDS[name].label,
            "best validation %": round(statistics.median(bests), 2),
            "seeds": f"{min(bests):.2f}..{max(bests):.2f}",
            "iterations": statistics.median(run["points"][-1][0] for run in runs),
            "set-up s": round(statistics.median(run["setup"] for run in runs), 2),
        })  # fmt: skip
    return rows


def stated_rows(found: dict[str, list[Curve]]) -> list[Row]:
    """Everyone's seconds to one accuracy: 99 % of what the best peer reaches."""
    peers = [name for name in found if name not in OURS] or list(found)
    target = 0.99 * max(statistics.median(map(best, found[name])) for name in peers)
    rows = []
    for name, runs in found.items():
        seconds, whole = reached(runs, target), reached(runs, target, setup=True)
        row: Row = {"contestant": KINDS[name].label, "target %": f"{100 * target:.2f}"}
        row |= {"s": shown(seconds), "s with set-up": shown(whole)}
        if "cv" in found:
            row["/ cv"] = ratio(seconds, reached(found["cv"], target))
            row["/ cv with set-up"] = ratio(whole, reached(found["cv"], target, setup=True))
        rows.append(row)
    return rows


def target_rows(found: dict[str, list[Curve]]) -> list[Row]:
    """Each peer's own accuracies, and when we reach them."""
    rows = []
    for name in (name for name in found if name not in OURS):
        top = statistics.median(map(best, found[name]))
        for share in SHARES:
            target = share * top
            peer, whole = reached(found[name], target), reached(found[name], target, setup=True)
            row: Row = {"peer": KINDS[name].label, "of its best": f"{share:.0%}", "target %": f"{100 * target:.2f}"}
            row["peer s"] = shown(peer)
            row |= {f"{our} s": shown(reached(found[our], target)) for our in OURS if our in found}
            if "cv" in found:
                row["peer / cv"] = ratio(peer, reached(found["cv"], target))
            for our in ("cv", "cv-start"):
                if our in found:
                    row[f"peer / {our}, with set-up"] = ratio(whole, reached(found[our], target, setup=True))
            rows.append(row)
    return rows


# Memory


def resident(key: str) -> float:
    """MiB, from the kernel: `VmRSS` now, `VmHWM` at most. (`ru_maxrss` of a child begins at its parent's.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def measure_memory(name: str, graph: str, config: TrainConfig) -> Row:
    """In a process that has imported what it needs and nothing else."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    imports, start = resident("VmRSS"), time.perf_counter()
    field = Field(load(graph))
    loaded = resident("VmRSS")
    contestant = field.build(name, config)
    for _ in range(MEMORY_STEPS):
        contestant.step()
        if time.perf_counter() - start > MEMORY_SECONDS:
            break
    peak = resident("VmHWM")
    return {"imports": imports, "graph": loaded - imports, "peak": peak, "above imports": peak - imports}


def memory(names: list[str], graph: str, options: Any) -> list[Row]:
    rows = []
    for name in names:
        command = [sys.executable, __file__, "--only", name, "--graphs", graph, "--threads", str(options.threads)]
        command += [] if options.lr is None else ["--lr", str(options.lr)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            say(f"  {name}: failed with code {done.returncode}; {done.stderr.strip()[-300:]}")
            rows.append({"contestant": KINDS[name].label, "above imports MiB": "failed"})
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        rows.append({"contestant": KINDS[name].label, **{f"{key} MiB": round(found[key]) for key in
                     ("above imports", "peak", "imports", "graph")}})  # fmt: skip
        say(f"  {name}: {found['above imports']:.0f} MiB above the imports")
    return rows


def setting_row(name: str, graph: Graph, config: TrainConfig) -> Row:
    row: Row = {"graph": name, "nodes": graph.num_nodes, "edges": graph.num_edges // 2, "features": graph.num_features}
    row |= {"training nodes": graph.train_ids.numel(), "our fan-out": config.fan_out}
    fields = ("hidden", "batch_size", "lr", "dropout", "weight_decay")
    return row | {field.replace("_", " "): getattr(config, field) for field in fields}


def compare(name: str, names: list[str], options: Any, tables: dict[str, list[Row]], raw: dict[str, Any]) -> None:
    """All parts on one graph; results go to `tables` and `raw`."""
    try:
        field, config = Field(load(name)), settings(name, options.lr)
    except cvgnn.CvgnnError as error:
        say(f"{name} is left out: {error}")
        return
    tables["Graphs and settings"].append(setting_row(name, field.graph, config))
    if "check" in options.parts and name in SMALL:
        say(f"{name}: check")
        tables[f"{name}: the same network"] = check(field, names, config)
    if "iteration" in options.parts:
        say(f"{name}: iteration")
        tables[f"{name}: iterations"], raw[f"{name} rounds"] = iterations(field, names, config, options)
    if "accuracy" in options.parts:
        say(f"{name}: accuracy")
        budget = options.budget or (20.0 if name in SMALL else 60.0)
        found = raw[f"{name} curves"] = curves(field, names, config, options.seeds, budget)
        tables[f"{name}: accuracy within {budget:g} s"] = accuracy_rows(found)
        tables[f"{name}: seconds to a stated accuracy"] = stated_rows(found)
        tables[f"{name}: seconds to the peers' accuracies"] = target_rows(found)
    if "memory" in options.parts:
        del field
        say(f"{name}: memory")
        tables[f"{name}: memory"] = memory(names, name, options)


def main() -> None:
    arguments = common.parser(__doc__ or "", "peers")
    arguments.add_argument("--graphs", nargs="+", default=list(GRAPHS), choices=GRAPHS)
    arguments.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    arguments.add_argument("--contestants", nargs="+", default=list(KINDS), choices=list(KINDS))
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument(
        "--budget", type=float, help="seconds for a contestant and seed; 20 on small graphs, 60 else"
    )
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--slow-rounds", type=int, default=2, help=f"for iterations of more than {SLOW:g} s")
    arguments.add_argument("--passive", action="store_true", help="threads that wait sleep instead of spinning")
    arguments.add_argument("--lr", type=float, help="for all, instead of the recipe's")
    arguments.add_argument("--only", choices=list(KINDS), help="print one contestant's memory as JSON, nothing else")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    names, missing = available([options.only] if options.only else options.contestants)
    if options.only:
        graph = options.graphs[0]
        print(json.dumps(measure_memory(options.only, graph, settings(graph, options.lr))))
        return
    for sentence in missing:
        say(sentence)
    tables: dict[str, list[Row]] = {"Graphs and settings": []}
    raw: dict[str, Any] = {"missing": missing}
    if set(options.parts) - {"memory"}:
        warm_up(names)
    partial = options.out / "peers.partial.json"
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.graphs:
        compare(name, names, options, tables, raw)
        partial.write_text(json.dumps({"tables": tables, **raw}) + "\n")  # a long run must not be lost
    packages = ("torch_geometric", "torch_scatter", "torch_sparse", "dgl")
    tables["Peers' versions"] = [{package: common._version(package) for package in packages}]
    common.report("peers", "Beside PyTorch Geometric and DGL", __doc__ or "", tables, options.out, **raw)
    partial.unlink()


if __name__ == "__main__":
    main()
