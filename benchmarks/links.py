"""Link prediction on Cora, CiteSeer and PubMed: ROC-AUC of held-out edges.

    python benchmarks/links.py [--sets cora citeseer pubmed] [--seeds 0 1 2 3 4] [--data DIR] [--out DIR]

85 % of the edges train, 5 % validate, 10 % test; the last two are not in the graph of P. A GCN of two layers, estimator
cvd, head hadamard-mlp, as many uniform negatives as edges. Seed s is that of the split, the negatives, the weights and
the batches. The settings below were chosen by validation AUC among a few; the test AUC is that of the epoch with the
best validation AUC. The last columns are of the same epoch. Without the files of Cora and PubMed only the bundled
CiteSeer is run.
"""

from __future__ import annotations

import common  # isort: skip
import statistics
from pathlib import Path
from typing import Any

import cvgnn
from cvgnn.errors import CvgnnError

COMMON: dict[str, Any] = {
    "task": "link", "model": "gcn", "layers": 2, "estimator": "cvd", "head": "hadamard-mlp", "batch_size": 1024,
    "weight_decay": 0.0, "eval_every": 3, "threads": 1,
}  # fmt: skip
WORDS = {"hidden": 128, "epochs": 45, "dropout": 0.5, "input_dropout": 0.7}
SETTINGS: dict[str, dict[str, Any]] = {
    "cora": WORDS,
    "citeseer": WORDS,
    "pubmed": {
        "hidden": 64,
        "epochs": 21,
        "dropout": 0.2,
        "input_dropout": 0.2,
        "num_neighbors": 1,
        "schedule": "linear",
    },
}


def spread(values: list[float]) -> str:
    """Mean and standard deviation in percent."""
    deviation = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.2f}{deviation}"


def main() -> None:
    arguments = common.parser(__doc__ or "", "links")
    arguments.add_argument("--sets", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    arguments.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    arguments.add_argument("--data", type=Path, default=common.SHARED)
    options = arguments.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.sets:
        root = options.data / "planetoid"
        try:
            graph = cvgnn.load(name) if name == "citeseer" else cvgnn.load(name, root=root)
        except CvgnnError as error:
            print(f"{name} is left out: {error}")
            continue
        results = []
        for seed in options.seeds:
            run = cvgnn.fit(graph, **COMMON, **SETTINGS[name], seed=seed, edge_seed=seed)
            results.append(run.result)
            print(
                f"{name} seed {seed}: validation {run.result['val_roc_auc']:.4f}, test {run.result['test_roc_auc']:.4f}"
            )
        keys = {
            "validation AUC %": "val_roc_auc",
            "test AUC %": "test_roc_auc",
            "test AP %": "output_test_average_precision",
            "test Hits@50 %": "output_test_hits_at_k",
            "test MRR %": "output_test_mrr",
        }
        given = ", ".join(f"{key} {value}" for key, value in SETTINGS[name].items())
        found = {title: spread([result[key] for result in results]) for title, key in keys.items()}
        rows.append({"data set": name, **found, "seeds": len(options.seeds), "settings": given})
    common.report("links", "Link prediction", __doc__ or "", {"Held-out edges": rows}, options.out)


if __name__ == "__main__":
    main()
