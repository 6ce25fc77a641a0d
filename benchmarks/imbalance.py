"""Class weights on rare labels: macro F1 and average precision with and without them, on WordNet.

    python benchmarks/imbalance.py --graph wordnet.npz [--seeds 5] [--epochs 40] [--out DIR]

Two tasks on the same graph (117,659 synsets, their relations as edges, gloss words as features), with 2 % of the nodes
for training, 20 % for validation and the rest for testing, another split for each seed:

- one rare class: lexicographer file 31, verb.cognition (695 synsets, 0.6 %), against the rest;
- several labels a node: the lexicographer files of a synset and of the synsets that it is related to (45 labels, 1.7 a
  node).

Both are trained with the plain loss and with `class_weight="balanced"`, everything else equal, and evaluated every
fourth epoch. The epoch is selected for each metric by its value on the validation nodes; the numbers are those of the
test nodes at that epoch, mean and standard deviation over the seeds.
"""

from __future__ import annotations

import common  # isort: skip
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

import cvgnn
from cvgnn.data import Graph
from cvgnn.data.array_converter import from_arrays
from cvgnn.data.split import RandomSplit

RARE = 31
METRICS = ("macro_f1", "average_precision", "roc_auc")


class EveryFourth(cvgnn.Callback):
    """Keeps the metrics of every fourth epoch."""

    def __init__(self) -> None:
        self.found: list[dict[str, float | None]] = []

    def on_epoch(self, trainer: cvgnn.Trainer, record: Any) -> None:
        if record.epoch % 4 == 0:
            assert trainer.evaluator is not None
            self.found.append(trainer.evaluator(trainer.model, METRICS))

    def test(self, metric: str) -> float:
        """The test value, in percent, at the epoch with the highest validation value."""
        best = max(self.found, key=lambda values: values[f"val_{metric}"] or 0.0)
        return 100 * (best[f"test_{metric}"] or 0.0)


def trained(graph: Graph, weight: str | None, seed: int, epochs: int) -> EveryFourth:
    kept = EveryFourth()
    cvgnn.fit(
        graph, defaults="fixed", model="sage", norm="layer", hidden=64, dropout=0.5, weight_decay=0.0, lr=0.003,
        batch_size=1024, epochs=epochs, eval_every=epochs, feature_norm="l2", class_weight=weight, seed=seed, threads=1,
        callbacks=[kept],
    )  # fmt: skip
    return kept


def main() -> None:
    arguments = common.parser(__doc__ or "", "imbalance")
    arguments.add_argument("--graph", type=Path, required=True)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--epochs", type=int, default=40)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    data = np.load(options.graph, allow_pickle=False)
    edges, y = data["edges"].T, data["y"].astype(np.int64)
    x = sparse.csr_array((data["x_data"], data["x_indices"], data["x_indptr"]), shape=tuple(data["x_shape"]))
    A = sparse.coo_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(len(y), len(y))).tocsr()
    own = np.eye(45, dtype=np.int64)[y]
    tasks = {
        f"file {RARE} against the rest": (y == RARE).astype(np.int64),
        "files of a synset and its relations": (own + A @ own + A.T @ own > 0).astype(np.int8),
    }
    rows: list[dict[str, Any]] = []
    for name, labels in tasks.items():
        for weight in (None, "balanced"):
            found: dict[str, list[float]] = {metric: [] for metric in METRICS}
            for seed in range(options.seeds):
                split = RandomSplit(seed=seed, train=0.02, val=0.2)
                graph = from_arrays(edges, x=x, y=labels, split=split, name="wordnet")
                kept = trained(graph, weight, seed, options.epochs)
                for metric in METRICS:
                    found[metric].append(kept.test(metric))
                print(name, weight, seed, {metric: round(v[-1], 2) for metric, v in found.items()}, flush=True)
            spread = {f"{m} in %": f"{statistics.mean(v):.2f} ± {statistics.stdev(v):.2f}" for m, v in found.items()}
            rows.append({"labels": name, "class weight": weight or "none", **spread})
    common.report("imbalance", "Class weights on rare labels", __doc__ or "", {"Test nodes": rows}, options.out)


if __name__ == "__main__":
    main()
