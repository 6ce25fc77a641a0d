"""This library beside PyTorch Geometric and DGL: the same graphs, the same network, one process, taking turns.

    python benchmarks/peers.py [--graphs pubmed arxiv] [--parts iteration accuracy memory] [--contestants cv pyg-10-10]
                               [--threads 2] [--seeds 3] [--budget 60] [--rounds 7] [--out DIR]

Contestants: `cv`, `ns` and `exact` of this library (fan-out of the paper's recipe; layer 0 is always exact); PyG's
full-batch GCN; PyG's `NeighborLoader` + `GCNConv`; DGL's `NeighborSampler` + `GraphConv`. What is not installed is said
and left out. torch-sparse, without which `NeighborLoader` does not run (or pyg-lib, which PyPI does not have), compiles
in some ten minutes:

    pip install --no-build-isolation torch-scatter torch-sparse

Equal for all: graph, split, threads, two layers with LayerNorm after the first, width, dropout, batch size, Adam with
the same rate and weight decay, initial weights. Peers are used as their examples do: layers see the sampled subgraph
only, and normalise by the degrees in it; DGL draws a node's self loop as one of its neighbors. Where a library offers
more than one way, the faster one here: `SparseTensor` instead of `edge_index` for PyG (that choice is worth a factor 2
at 10,10 and 7 for the full batch on arxiv's size), `P` normalised once for the full batch. DGL's wheel is built for an
older torch: its graphbolt loader cannot take part. One step of the full batch is an epoch.

- check: logits of the peers' networks, trained a few steps, against this library's exact ones (small graphs).
- iteration: each round times a block of iterations of every contestant, in alternating order; figures are medians over
  the rounds, ratios medians of the rounds' ratios. A block begins with an iteration that is not timed.
- accuracy: every contestant trains for `--budget` seconds for each seed. Its weights are set aside whenever the number
  of iterations has grown by 10 %, and after the run the validation accuracy of each is computed exactly, from full
  neighborhoods and with the graph's own `P`, for everyone by the same code. That is in nobody's clock. Targets are
  shares of a peer's best accuracy (median over seeds); seconds are when a run first reached the target, median over
  seeds, "-" where the median run did not. Ratios are peer / cv: above 1, cv was faster.
- memory: a process of its own for each; the peak above what was resident after the imports, a few iterations long.

Set-up is what comes before the first iteration: `P X` and the histories, or the peer's graph and loader. Reading the
graph, imports and the loading of compiled kernels are in nobody's set-up.
"""

from __future__ import annotations

import common  # isort: skip
import dataclasses
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from peer_models import KINDS, OURS, Contestant, Field, Peer, available, copy, tensors_of, with_features

import cvgnn
from cvgnn import Evaluator, Graph, Propagation, TrainConfig, exact_logits, propagate_features
from cvgnn.datasets.synthetic import generate, small_spec
from cvgnn.experiments.recipes import paper_recipe
from cvgnn.experiments.run import build_model

SMALL = ("pubmed", "photo")
GRAPHS = (*SMALL, "flickr", "arxiv", "reddit")
PARTS = ("check", "iteration", "accuracy", "memory")
SHARES = (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
GROWTH = 1.1  # of the iterations between two looks at the accuracy
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
    return cvgnn.read_graph(common.SHARED / "amazon_photo.npz") if name == "photo" else common.load(name)


def settings(name: str, lr: float | None) -> TrainConfig:
    """The paper's settings for Adam; Photo, which it does not have, takes Cora's with wider layers and batches."""
    config = paper_recipe("cora" if name in SMALL else common.RECIPE[name], "adam")
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
    model, P = build_model(data, config, dtype=data.x.dtype), Propagation(data)
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
    evaluator = Evaluator(data, propagate_features(data, P), P)
    model = build_model(data, config, dtype=data.x.dtype)
    found: dict[str, list[Curve]] = {name: [] for name in names}
    for seed in range(seeds):
        for name in names if seed % 2 == 0 else names[::-1]:
            contestant = field.build(name, dataclasses.replace(config, seed=seed))
            if contestant.lead:
                contestant_points = train(contestant, budget)
            else:
                contestant_points = train(contestant, budget)
            setup = contestant.setup
            del contestant
            points = []
            for t, seconds, weights in contestant_points:
                copy(weights, tensors_of(model))
                points.append([t, round(seconds, 5), evaluator(model).val])
            found[name].append({"seed": seed, "setup": setup, "points": points})
            say(f"  seed {seed}, {name}: {points[-1][0]} iterations, best {best(found[name][-1]):.4f}")
    return found
