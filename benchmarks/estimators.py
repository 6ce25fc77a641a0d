"""The estimators on real and synthetic graphs: accuracy, training time, rows, gradient variance, step cost.

    python benchmarks/estimators.py [--data ../shared/data] [--graphs cora citeseer pubmed photo wordnet arxiv
        synthetic-20k] [--layers 2 3] [--dropout 0 0.2 0.5 0.8] [--fan-outs 1 2 5] [--estimators ns cv cvd] [--seeds 5]
        [--epochs N] [--variance] [--report] [--figure] [--out DIR]
    python benchmarks/estimators.py --steps flickr arxiv reddit [--rounds 20] [--out DIR]

GCN of width 64, no norm, weight decay 0.0005, batches of 512, Adam with a rate of 0.01, one thread; 100 epochs on Cora,
CiteSeer and PubMed, 30 on Photo, 10 on the others if `--epochs` does not say otherwise, evaluated 20 times or after
every epoch. `wordnet/auto` (any graph): norm, rate and weight decay of `--defaults auto` for many labels: LayerNorm,
0.003 and 0. A graph without a split of its own gets a random one of 60/20/20, another for each seed. `exact` takes all
neighbors; without dropout `cv` equals `cvd` to the bit and is not run. Accuracy is the test accuracy at the best
validation epoch. Time is the CPU time of training, without evaluation (`process_time`, because the machine may be busy;
the estimators of one seed run one after the other). Rows are those of `P X` that a step computes. `--variance`: what
`cvgnn diagnose estimator` measures after 200 steps of `cvd` with a fan-out of 1, seed 0: the variance of a step's
gradient given its batch, over neighbors and dropout masks, relative to ||grad F||^2 (16 batches of 4 draws).

Each run is a line of DIR/estimators.jsonl, with the commit it ran at, and a run that is there is not repeated: the
benchmark may be killed at any moment, and several may write to one DIR. The tables show the runs that are there, and
for settings without any the rows of the estimators.json that DIR has from before; `--report` runs none. `--figure`
draws DIR/estimators.png from the tables (two layers; bars are standard deviations over seeds).

`--steps`: milliseconds of CPU time of a training step of `cv` and of `cvd` on the synthetic graphs of these sizes, with
the paper's settings for AMSGrad and a dropout of 0.5, one thread, blocks of 10 steps in turns: medians, and the median
of the ratios of neighboring blocks.
"""

from __future__ import annotations

import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvgnn
from common import RECIPE, ROOT, SHARED, SIZES, commit, load, parser, report
from cvgnn.config import TrainConfig
from cvgnn.data import RandomSplit
from cvgnn.lab.diagnose import diagnose_estimator
from cvgnn.lab.recipes import paper_recipe
from cvgnn.training import Callback, EpochRecord, Trainer
from cvgnn.training.machine import thread_count
from cvgnn.training.trainer_builder import build_trainer

PLANETOID = ("cora", "citeseer", "pubmed")
FILES = {"photo": "amazon_photo", "wordnet": "wordnet", "arxiv": "arxiv_guess"}
GRAPHS = [*PLANETOID, *FILES, "synthetic-20k"]
EPOCHS = {**dict.fromkeys(PLANETOID, 100), "photo": 30}
AUTO = {"norm": "layer", "lr": 0.003, "weight_decay": 0.0}
COLORS = {"ns": "#c1272d", "cv": "#e69f00", "cvd": "#0072b2", "exact": "black"}


def main() -> None:
    p = parser(__doc__ or "", "estimators")
    p.add_argument("--data", type=Path, default=SHARED)
    p.add_argument("--graphs", nargs="+", default=GRAPHS)
    p.add_argument("--layers", nargs="+", type=int, default=[2, 3])
    p.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.2, 0.5, 0.8])
    p.add_argument("--fan-outs", nargs="+", type=int, default=[1, 2, 5])
    p.add_argument("--estimators", nargs="+", default=["ns", "cv", "cvd"])
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--epochs", type=int)
    p.add_argument("--variance", action="store_true")
    p.add_argument("--report", action="store_true")
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
    if not args.report:
        measure(args, log)
    found = with_earlier(tables(args, log), args.out / "estimators.json")
    report("estimators", "Estimators", about, found, args.out)
    if args.figure:
        draw(args, found)


def measure(args: Any, log: Log) -> None:
    """Every run that the log does not have, the seeds of a graph one after the other."""
    for graph, seed in itertools.product(args.graphs, range(args.seeds)):
        epochs = epochs_of(graph, args)
        for K, dropout in itertools.product(args.layers, args.dropout):
            for name, (estimator, D) in columns(args).items():
                if dropout > 0 or estimator != "cv":
                    run = [graph, K, dropout, name, epochs, seed]
                    log.run(run, train, args.data, graph, K, dropout, estimator, D, epochs, seed)
            if args.variance and seed == 0:
                log.run(["variance", graph, K, dropout, *args.fan_outs], variances, args, graph, K, dropout)


def epochs_of(graph: str, args: Any) -> int:
    """Epochs of a run on a graph."""
    return args.epochs or EPOCHS.get(graph.removesuffix("/auto"), 10)


def columns(args: Any) -> dict[str, tuple[str, int]]:
    """Estimator and fan-out of each column."""
    sampled = {f"{e} {D}": (e, D) for D in args.fan_outs for e in args.estimators}
    return {**sampled, "exact": ("exact", -1)}


def tables(args: Any, log: Log) -> dict[str, list[dict[str, Any]]]:
    """What the log has: accuracy with its deviation, time relative to `exact`, rows, variance of the gradient."""
    accuracy, times, rows, variance = [], [], [], []
    names = list(columns(args))
    for graph, K, dropout in itertools.product(args.graphs, args.layers, args.dropout):
        epochs = epochs_of(graph, args)
        found = {n: runs for n in names if (runs := log.seeds([graph, K, dropout, n, epochs]))}
        same = {n: "= cvd" for n in names if n.startswith("cv ") and dropout == 0}
        setting = {"graph": graph, "layers": K, "dropout": dropout}
        if found:
            counts = sorted({len(runs) for runs in found.values()})
            seeds = {"epochs": epochs, "seeds": " to ".join(str(c) for c in (counts[0], counts[-1])[: len(counts)])}
            setting["commits"] = " ".join(sorted({r["commit"] for runs in found.values() for r in runs}))
            tests = {n: _mean([r["test"] for r in runs]) for n, runs in found.items()}
            accuracy.append(setting | seeds | {n: tests.get(n, same.get(n, "")) for n in names})
            cpu = {n: statistics.median(r["cpu"] for r in runs) for n, runs in found.items()}
            exact = {"exact": f"{cpu['exact']:.1f} s"} if "exact" in cpu else {}
            ratios = {n: f"{c / cpu['exact']:.2f}" if exact else f"{c:.1f} s" for n, c in cpu.items()} | exact
            times.append(setting | {n: ratios.get(n, "") for n in names})
            mean_rows = {n: round(statistics.mean(r["rows"] for r in runs)) for n, runs in found.items()}
            rows.append(setting | {n: mean_rows.get(n, "") for n in names})
        if (values := log.done.get(json.dumps(["variance", graph, K, dropout, *args.fan_outs]))) is not None:
            setting["commits"] = values["commit"]
            variance.append(setting | {n: f"{values[n]:.3g}" if n in values else same.get(n, "") for n in names})
    return {
        "Test accuracy": accuracy,
        "CPU time of training / exact": times,
        "Rows of `P X` in a step": rows,
        "Variance of the gradient given the batch / ||grad F||^2": variance,
    }


def with_earlier(found: dict[str, list[dict[str, Any]]], path: Path) -> dict[str, list[dict[str, Any]]]:
    """The tables, and the rows of an earlier report for settings that they lack."""
    earlier = json.loads(path.read_text()) if path.exists() else {"tables": {}}
    for title, rows in earlier["tables"].items():
        here = [_setting(row) for row in found[title]]
        at = {"commits": earlier["machine"]["commit"]}
        found[title] += [{**_setting(row), **at, **row} for row in rows if _setting(row) not in here]
    for rows in found.values():
        order = list(dict.fromkeys([*GRAPHS, *(row["graph"] for row in rows)]))
        rows.sort(key=lambda row: (order.index(row["graph"]), row["layers"], row["dropout"]))
    return found


def _setting(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("graph", "layers", "dropout")}


def _mean(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def variances(args: Any, graph: str, layers: int, dropout: float) -> dict[str, float]:
    """What `diagnose estimator` finds, by estimator and fan-out."""
    config = TrainConfig(num_neighbors=1, layers=layers, dropout=dropout, threads=1)
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


def draw(args: Any, found: dict[str, list[dict[str, Any]]]) -> None:
    """Accuracy and variance by fan-out at dropout 0.5, and accuracy by dropout; a column for each graph."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullLocator

    first, K = args.fan_outs[0], 2
    accuracy, *_, variance = ({tuple(_setting(row).values()): row for row in rows} for rows in found.values())
    figure, axes = plt.subplots(3, len(args.graphs), figsize=(2.9 * len(args.graphs), 7.4), squeeze=False)
    for column, graph in zip(axes.T, args.graphs, strict=True):
        for estimator, color in COLORS.items():
            style = {"color": color, "marker": "o", "markersize": 4, "label": estimator}
            style |= {"linestyle": "--"} if estimator == "exact" else {}

            def cell(table: dict[Any, Any], D: int, p: float, key: tuple[str, str] = (graph, estimator)) -> str:
                graph, estimator = key
                name = "cvd" if estimator == "cv" and p == 0 else estimator
                row = table.get((graph, K, p), {})
                return str(row.get(name if name == "exact" else f"{name} {D}", ""))

            for axis, points in (
                (column[0], [(D, cell(accuracy, D, 0.5)) for D in args.fan_outs]),
                (column[2], [(p, cell(accuracy, first, p)) for p in args.dropout]),
            ):
                shown = [(x, *map(float, f"{text} ± 0".split(" ± ")[:2])) for x, text in points if text]
                axis.errorbar(*zip(*shown, strict=True), capsize=2, **style)
            values = [(D, float(text)) for D in args.fan_outs if (text := cell(variance, D, 0.5))]
            column[1].plot(*zip(*values, strict=True), **style)
        column[0].set(title=f"{graph}\ndropout 0.5")
        column[1].set(title="dropout 0.5", yscale="log")
        column[2].set(title=f"fan-out {first}", xlabel="dropout")
        for axis in column[:2]:
            axis.set(xscale="log", xlabel="fan-out")
            axis.set_xticks(args.fan_outs, [str(D) for D in args.fan_outs])
            axis.xaxis.set_minor_locator(NullLocator())
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    for axis, label in zip(axes[:, 0], ("test accuracy, %", "gradient variance", "test accuracy, %"), strict=True):
        axis.set_ylabel(label)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="lower center", ncols=4)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(args.out / "estimators.png", dpi=90)


class Log:
    """Results by their run, one line of JSON each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.done = {json.dumps(record["run"]): record for record in map(json.loads, lines)}

    def run(self, run: list[Any], measure: Callable[..., dict[str, Any]], *args: Any) -> None:
        """Measure the run if it is not there."""
        if (key := json.dumps(run)) not in self.done:
            self.done[key] = {"run": run, "commit": commit(ROOT), **measure(*args)}
            with self.path.open("a") as file:
                file.write(json.dumps(self.done[key]) + "\n")

    def seeds(self, run: list[Any]) -> list[dict[str, Any]]:
        """The records of all seeds."""
        return [record for record in self.done.values() if record["run"][:-1] == run]


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


@functools.lru_cache(maxsize=1)
def open_graph(data: Path, name: str, seed: int) -> cvgnn.Graph:
    """A graph of `data`, with a random split where it has none of its own, or a synthetic preset."""
    name = name.removesuffix("/auto")
    if name in FILES:
        return cvgnn.read_graph(data / f"{FILES[name]}.npz", split=RandomSplit(seed=seed))
    return cvgnn.load(name, data) if name in PLANETOID else cvgnn.load(name)


def train(
    data: Path, graph: str, layers: int, dropout: float, estimator: str, fan_out: int, epochs: int, seed: int
) -> dict[str, float]:
    """One run's accuracies in percent, seconds of training and rows."""
    cost = Cost()
    result = cvgnn.fit(
        open_graph(data, graph, seed), config=TrainConfig(threads=1), seed=seed, epochs=epochs, dropout=dropout,
        layers=layers, estimator=estimator, num_neighbors=fan_out, eval_every=max(1, epochs // 20), callbacks=[cost],
        **(AUTO if graph.endswith("/auto") else {}),
    ).result  # fmt: skip
    val, test = (round(100 * result[f"{part}_accuracy"], 4) for part in ("val", "test"))
    return {"val": val, "test": test, "cpu": round(cost.cpu, 3), "seconds": result["train_seconds"], "rows": cost.rows}


if __name__ == "__main__":
    main()
