"""The estimators on real and synthetic graphs: accuracy, training time, rows, gradient variance, step cost.

    python benchmarks/estimators.py [--data ../shared/data] [--graphs photo wordnet arxiv synthetic-20k] [--layers 2 3]
        [--dropout 0 0.2 0.5 0.8] [--fan-outs 1 2 5] [--estimators ns cv cvd] [--seeds 5] [--epochs 30] [--variance]
        [--figure] [--out DIR]
    python benchmarks/estimators.py --steps flickr arxiv reddit [--rounds 20] [--out DIR]

Width 64, no norm, batches of 512, Adam with a rate of 0.01, one thread. A graph without a split of its own gets a
random one of 60/20/20, another for each seed. `exact` takes all neighbors; without dropout `cv` equals `cvd` to the bit
and is not run. Accuracy is the test accuracy at the best validation epoch. Time is the CPU time of training, without
evaluation (`process_time`, because the machine may be busy; the estimators of one seed run one after the other). Rows
are those of `P X` that a step computes. Each run is a line of DIR/estimators.jsonl, and a run that is there is not
repeated. `--variance`: what `cvgnn diagnose estimator` measures after 200 steps of `cvd` with a fan-out of 1, seed 0:
the variance of a step's gradient given its batch, over neighbors and dropout masks, relative to ||grad F||^2 (16
batches of 4 draws). `--figure` draws accuracy and variance by fan-out for the first graph at dropout 0.5
(DIR/estimators.png; bars are standard errors).

`--steps`: milliseconds of CPU time of a training step of `cv` and of `cvd` on the synthetic graphs of these sizes, with
the paper's settings for AMSGrad and a dropout of 0.5, one thread, blocks of 10 steps in turns: medians, and the median
of the ratios of neighboring blocks.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvgnn
from common import RECIPE, SHARED, SIZES, load, parser, report
from cvgnn.config import make_config
from cvgnn.data import RandomSplit
from cvgnn.lab.diagnose import diagnose_estimator
from cvgnn.lab.recipes import paper_recipe
from cvgnn.training import Callback, EpochRecord, Trainer
from cvgnn.training.machine import thread_count
from cvgnn.training.trainer_builder import build_trainer

FILES = {"photo": "amazon_photo", "wordnet": "wordnet", "arxiv": "arxiv_guess"}


def main() -> None:
    p = parser(__doc__ or "", "estimators")
    p.add_argument("--data", type=Path, default=SHARED)
    p.add_argument("--graphs", nargs="+", default=[*FILES, "synthetic-20k"])
    p.add_argument("--layers", nargs="+", type=int, default=[2, 3])
    p.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.2, 0.5, 0.8])
    p.add_argument("--fan-outs", nargs="+", type=int, default=[1, 2, 5])
    p.add_argument("--estimators", nargs="+", default=["ns", "cv", "cvd"])
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--variance", action="store_true")
    p.add_argument("--figure", action="store_true")
    p.add_argument("--steps", nargs="+", choices=SIZES, metavar="SIZE")
    p.add_argument("--rounds", type=int, default=20)
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    about = (__doc__ or "").partition("\n\n")[2]
    if args.steps:
        rows = [step_cost(size, args.rounds) for size in args.steps]
        report("estimator_steps", "A step of cvd and of cv", about, {"Milliseconds of a step": rows}, args.out)
        return
    log = Log(args.out / "estimators.jsonl")
    tables = accuracy_tables(args, log)
    if args.variance:
        tables["Variance of the gradient given the batch / ||grad F||^2"] = variance_table(args, log)
    report("estimators", "Estimators", about, tables, args.out)
    if args.figure:
        draw(args, log)


def accuracy_tables(args: Any, log: Log) -> dict[str, list[dict[str, Any]]]:
    """Train every combination over the seeds: accuracy with its deviation, time relative to `exact`, rows."""
    accuracy, times, rows = [], [], []
    for graph, K, dropout in itertools.product(args.graphs, args.layers, args.dropout):
        columns = [(e, D) for D in args.fan_outs for e in args.estimators if dropout > 0 or e != "cv"] + [("exact", -1)]
        found: dict[str, list[dict[str, Any]]] = {}
        for seed, (estimator, D) in itertools.product(range(args.seeds), columns):
            run = [graph, K, dropout, estimator, D, seed, args.epochs]
            name = f"{estimator} {D}" if D > 0 else estimator
            found.setdefault(name, []).append(log.run(run, lambda run=run: train(args.data, *run)))
        setting = {"graph": graph, "layers": K, "dropout": dropout}
        cpu = {name: statistics.median(r["cpu"] for r in runs) for name, runs in found.items()}
        names = [f"{e} {D}" for D in args.fan_outs for e in args.estimators] + ["exact"]
        tests = {name: [r["test"] for r in runs] for name, runs in found.items()}
        accuracy.append(setting | {n: _mean(tests[n]) if n in tests else "= cvd" for n in names})
        ratios = {n: f"{c / cpu['exact']:.2f}" for n, c in cpu.items()}
        times.append(setting | ratios | {"exact": f"{cpu['exact']:.1f} s"})
        rows.append(setting | {n: round(statistics.mean(r["rows"] for r in runs)) for n, runs in found.items()})
    names = list(accuracy[0])
    tables = {"Test accuracy": accuracy, "CPU time of training / exact": times, "Rows of `P X` in a step": rows}
    return {title: [{n: row.get(n, "") for n in names} for row in table] for title, table in tables.items()}


def _mean(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def variance_table(args: Any, log: Log) -> list[dict[str, Any]]:
    """The variance of the gradient for every combination, at the weights and histories of one training."""
    rows = []
    for graph, K, dropout in itertools.product(args.graphs, args.layers, args.dropout):
        run = ["variance", graph, K, dropout, *args.fan_outs]
        found = log.run(run, lambda graph=graph, K=K, dropout=dropout: variances(args, graph, K, dropout))
        names = [f"{e} {D}" for D in args.fan_outs for e in args.estimators] + ["exact"]
        setting = {"graph": graph, "layers": K, "dropout": dropout}
        rows.append(setting | {n: f"{found[n]:.3g}" if n in found else "= cvd" for n in names})
    return rows


def variances(args: Any, graph: str, layers: int, dropout: float) -> dict[str, float]:
    """What `diagnose estimator` finds, by estimator and fan-out."""
    config = make_config(num_neighbors=1, layers=layers, dropout=dropout, threads=1)
    data = diagnose_estimator(
        open_graph(args.data, graph, 0), config, estimators=("cvd", "ns", "exact"), steps=(200,), batches=16, draws=4,
        fan_outs=[[D] for D in args.fan_outs], test_draws=10,
    ).data  # fmt: skip
    plain = data["moments"][-1]["variants"]
    norm2 = plain[0]["gradient_norm2"]["all"]
    found = {v["label"]: v["gradient"]["all"]["neighbors"][0] for v in plain}
    if dropout > 0:
        found = {v["label"]: v["variance"][0] for v in data["dropout"]["variances"]}
    return {label: value / norm2 for label, value in found.items()}


def step_cost(size: str, rounds: int) -> dict[str, Any]:
    """Milliseconds of a step of both estimators, in turns."""
    graph, config = load(size), replace(paper_recipe(RECIPE[size], "amsgrad"), dropout=0.5)
    turns = {}
    with thread_count(1):
        for name in ("cv", "cvd"):
            trainer = build_trainer(graph, replace(config, estimator=name))
            trainer.model.train()
            epochs = itertools.count(1)
            batches = itertools.chain.from_iterable(trainer.loader.epoch(epoch) for epoch in epochs)
            turns[name] = (trainer, batches)
        ms: dict[str, list[float]] = {name: [] for name in turns}
        for _ in range(rounds + 1):
            for name, (trainer, batches) in turns.items():
                start = time.process_time()
                for _ in range(10):
                    trainer.step(next(batches))
                ms[name].append(100 * (time.process_time() - start))
    cv, cvd = ms["cv"][1:], ms["cvd"][1:]  # the first block compiles
    ratios = [b / a for a, b in zip(cv, cvd, strict=True)]
    medians = {name: f"{statistics.median(each):.2f}" for name, each in (("cv", cv), ("cvd", cvd))}
    low, _, high = statistics.quantiles(ratios, n=4)
    return {
        "size": size,
        **medians,
        "cvd / cv": f"{statistics.median(ratios):.3f}",
        "quartiles": f"{low:.3f} to {high:.3f}",
    }


def draw(args: Any, log: Log) -> None:
    """Accuracy and variance of the first graph by fan-out, at dropout 0.5, one row for each depth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullLocator

    graph, dropout, fan_outs = args.graphs[0], 0.5, args.fan_outs
    colors = dict(zip(args.estimators, ("#c1272d", "#e69f00", "#0072b2"), strict=False))
    figure, axes = plt.subplots(len(args.layers), 2, figsize=(8.4, 3.1 * len(args.layers)), squeeze=False)
    for (left, right), K in zip(axes, args.layers, strict=True):
        found = log.done[json.dumps(["variance", graph, K, dropout, *fan_outs])]
        for estimator, color in colors.items():
            tests = [log.tests([graph, K, dropout, estimator, D], args) for D in fan_outs]
            means = [statistics.mean(each) for each in tests]
            errors = [statistics.stdev(each) / len(each) ** 0.5 for each in tests]
            left.errorbar(fan_outs, means, errors, color=color, marker="o", capsize=3, label=estimator)
            variance = [found[f"{estimator} {D}"] for D in fan_outs]
            right.plot(fan_outs, variance, color=color, marker="o", label=estimator)
        exact = statistics.mean(log.tests([graph, K, dropout, "exact", -1], args))
        left.axhline(exact, color="black", linestyle="--", label="exact")
        right.axhline(found["exact"], color="black", linestyle="--", label="exact: masks alone")
        left.set_ylabel("test accuracy, %")
        right.set(yscale="log", ylabel="gradient variance / ||grad F||²")
        for axis in (left, right):
            axis.set(xscale="log", xlabel="fan-out", title=f"{graph}, {K} layers, dropout {dropout}")
            axis.set_xticks(fan_outs, [str(D) for D in fan_outs])
            axis.xaxis.set_minor_locator(NullLocator())
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(args.out / "estimators.png", dpi=110)


class Log:
    """Results by their run, one line of JSON each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.done = {json.dumps(record["run"]): record for record in map(json.loads, lines)}

    def run(self, run: list[Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The run's record, measured if it is not there."""
        if (key := json.dumps(run)) not in self.done:
            self.done[key] = {"run": run, **measure()}
            with self.path.open("a") as file:
                file.write(json.dumps(self.done[key]) + "\n")
        return self.done[key]

    def tests(self, run: list[Any], args: Any) -> list[float]:
        """The test accuracies of all seeds."""
        return [self.done[json.dumps([*run, seed, args.epochs])]["test"] for seed in range(args.seeds)]


class Cost(Callback):
    """Counts the CPU seconds of training, without evaluation, and the rows of `P X` that a step computes."""

    cpu = 0.0
    rows = 0

    def on_start(self, trainer: Trainer, records: Sequence[EpochRecord]) -> None:
        loader, train_epoch = trainer.loader, trainer.train_epoch
        self.rows = next(iter(loader.epoch(1))).inputs.numel()

        def timed(*args: Any, **options: Any) -> float:
            start = time.process_time()
            try:
                return train_epoch(*args, **options)
            finally:
                self.cpu += time.process_time() - start

        trainer.train_epoch = timed  # type: ignore[method-assign]


def open_graph(data: Path, name: str, seed: int) -> cvgnn.Graph:
    """A graph of `data`, with a random split where it has none of its own, or a synthetic preset."""
    if name in FILES:
        return cvgnn.read_graph(data / f"{FILES[name]}.npz", split=RandomSplit(seed=seed))
    return cvgnn.load(name)


def train(
    data: Path, graph: str, layers: int, dropout: float, estimator: str, fan_out: int, seed: int, epochs: int
) -> dict[str, float]:
    """One run's accuracies in percent, seconds of training and rows."""
    cost = Cost()
    result = cvgnn.fit(
        open_graph(data, graph, seed), seed=seed, epochs=epochs, dropout=dropout, layers=layers, estimator=estimator,
        num_neighbors=fan_out, threads=1, callbacks=[cost],
    ).result  # fmt: skip
    val, test = (round(100 * result[f"{part}_accuracy"], 4) for part in ("val", "test"))
    return {"val": val, "test": test, "cpu": round(cost.cpu, 3), "seconds": result["train_seconds"], "rows": cost.rows}


if __name__ == "__main__":
    main()
