"""The estimators on real and synthetic graphs: accuracy, training time, rows, gradient variance, step cost.

    python benchmarks/estimators.py [--data ../shared/data] [--graphs photo wordnet arxiv synthetic-20k] [--layers 2 3]
        [--dropout 0 0.2 0.5 0.8] [--fan-outs 1 2 5] [--estimators ns cv cvd] [--seeds 5] [--epochs 30] [--out DIR]

Width 64, no norm, batches of 512, Adam with a rate of 0.01, one thread. A graph without a split of its own gets a
random one of 60/20/20, another for each seed. `exact` takes all neighbors; without dropout `cv` equals `cvd` to the bit
and is not run. Accuracy is the test accuracy at the best validation epoch. Time is the CPU time of training, without
evaluation (`process_time`, because the machine may be busy; the estimators of one seed run one after the other). Rows
are those of `P X` that a step computes. Each run is a line of DIR/estimators.jsonl, and a run that is there is not
repeated.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cvgnn
from common import SHARED, parser, report
from cvgnn.data import RandomSplit
from cvgnn.training import Callback, EpochRecord, Trainer

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
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    about = (__doc__ or "").partition("\n\n")[2]
    report("estimators", "Estimators", about, accuracy_tables(args), args.out)


def accuracy_tables(args: Any) -> dict[str, list[dict[str, Any]]]:
    """Train every combination over the seeds: accuracy with its deviation, time relative to `exact`, rows."""
    log = Log(args.out / "estimators.jsonl")
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
