"""The estimators on real and synthetic graphs: test accuracy at the best validation epoch, and training time.

    python benchmarks/estimators.py [--data ../shared/data] [--graphs photo wordnet arxiv synthetic-20k] [--layers 2 3]
        [--dropout 0 0.2 0.5 0.8] [--fan-outs 1 2 5] [--estimators ns cv cvd] [--seeds 5] [--epochs 30] [--out DIR]

Width 64, no norm, batches of 512, Adam with a rate of 0.01. A graph without a split of its own gets a random one of
60/20/20, another for each seed. One thread. Each run is a line of DIR/estimators.jsonl, and a run that is there is not
repeated; DIR/estimators.md has the tables. `exact` takes all neighbors.
"""

from __future__ import annotations

import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import cvgnn
from common import SHARED, parser, report
from cvgnn.data import RandomSplit

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
    log = args.out / "estimators.jsonl"
    done = {}
    for line in log.read_text().splitlines() if log.exists() else []:
        record = json.loads(line)
        done[json.dumps(record["run"])] = record

    columns = [(e, D) for D in args.fan_outs for e in args.estimators] + [("exact", -1)]
    for graph, K, dropout in itertools.product(args.graphs, args.layers, args.dropout):
        for seed, (estimator, D) in itertools.product(range(args.seeds), columns):
            run = [graph, K, dropout, estimator, D, seed, args.epochs]
            if json.dumps(run) not in done:
                record = {"run": run, **train(args.data, *run)}
                done[json.dumps(run)] = record
                with log.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    about = (__doc__ or "").partition("\n\n")[2]
    report("estimators", "Estimators: accuracy and time", about, tables(args, columns, done), args.out)


def train(
    data: Path, graph: str, layers: int, dropout: float, estimator: str, fan_out: int, seed: int, epochs: int
) -> dict[str, float]:
    """One run's test accuracy in percent and seconds of training."""
    given = cvgnn.read_graph(data / f"{FILES[graph]}.npz", split=RandomSplit(seed=seed)) if graph in FILES else None
    run = cvgnn.fit(
        given or cvgnn.load(graph), seed=seed, epochs=epochs, dropout=dropout, layers=layers, estimator=estimator,
        num_neighbors=fan_out, threads=1,
    )  # fmt: skip
    return {"test": 100 * run.result["test_accuracy"], "seconds": run.result["train_seconds"]}


def tables(args: Any, columns: list[tuple[str, int]], done: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Accuracy with its deviation over seeds, and the median training time relative to exact aggregation."""
    accuracy, time = [], []
    for graph, K, dropout in itertools.product(args.graphs, args.layers, args.dropout):
        row: dict[str, Any] = {"graph": graph, "layers": K, "dropout": dropout}
        means, seconds = dict(row), dict(row)
        for estimator, D in columns:
            runs = [done[json.dumps([graph, K, dropout, estimator, D, s, args.epochs])] for s in range(args.seeds)]
            values = [r["test"] for r in runs]
            spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            name = f"{estimator} {D}" if D > 0 else estimator
            means[name] = f"{statistics.mean(values):.2f}{spread}"
            seconds[name] = statistics.median(r["seconds"] for r in runs)
        accuracy.append(means)
        time.append(row | {k: f"{v / seconds['exact']:.2f}" for k, v in seconds.items() if k not in row})
    return {"Test accuracy": accuracy, "Training time / exact": time}


if __name__ == "__main__":
    main()
