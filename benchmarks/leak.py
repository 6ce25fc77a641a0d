"""What training on the wrong ids does to a test accuracy: the first defect of the published code, on a synthetic graph.

    python benchmarks/leak.py [--nodes 20000] [--seeds 3] [--epochs 30] [--out DIR]

The published code keeps only the number n of training nodes and trains on the node ids 0..n-1. Where the training nodes
are scattered over all ids, as in ogbn-arxiv, Flickr and Reddit, most of those ids are not training nodes: some are
validation or test nodes, whose labels are then seen in training. Here both ways are trained with the same settings and
evaluated by the same exact inference on the true validation and test nodes. `cvgnn` refuses the second way: a graph's
splits must be disjoint, and a loader gets the graph's training ids; the benchmark builds its loader by hand.
"""

from __future__ import annotations

import common  # isort: skip
import statistics
from typing import Any

import torch

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.named.synthetic import generate, small_spec
from cvgnn.sampling import BatchLoader
from cvgnn.training.trainer_builder import build_trainer


def trained(graph: Graph, ids: torch.Tensor, *, seed: int, epochs: int) -> tuple[float, float]:
    """Test accuracy at the best validation epoch and its maximum over epochs, for training on `ids`."""
    config = TrainConfig(seed=seed, epochs=epochs, batch_size=500, hidden=64, norm="layer", dropout=0.0, threads=1)
    trainer = build_trainer(graph, config)
    trainer.loader = BatchLoader(ids, trainer.loader.sampler, batch_size=config.batch_size, seed=seed)
    records = list(trainer.epochs(epochs))
    tests = {record.epoch: record.metrics["test_accuracy"] for record in records}
    return tests[trainer.best.epoch], max(tests.values())


def main() -> None:
    arguments = common.parser(__doc__ or "", "leak")
    arguments.add_argument("--nodes", type=int, default=20_000)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--epochs", type=int, default=30)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    graph = generate(small_spec(options.nodes))
    n = graph.train_ids.numel()
    wrong = torch.arange(n)
    overlap = {
        name: int(torch.isin(ids, wrong).sum()) for name, ids in (("val", graph.val_ids), ("test", graph.test_ids))
    }
    rows: list[dict[str, Any]] = []
    for name, ids in (("the training nodes", graph.train_ids), ("ids 0..n-1, as published", wrong)):
        found = [trained(graph, ids, seed=seed, epochs=options.epochs) for seed in range(options.seeds)]
        best, highest = ([100 * pair[i] for pair in found] for i in (0, 1))
        seen = overlap if ids is wrong else {"val": 0, "test": 0}
        rows.append(
            {
                "trained on": name,
                "validation nodes seen": f"{seen['val']} of {graph.val_ids.numel()}",
                "test nodes seen": f"{seen['test']} of {graph.test_ids.numel()}",
                "test % at best validation": f"{statistics.mean(best):.2f} ± {statistics.stdev(best):.2f}",
                "highest test %": f"{statistics.mean(highest):.2f} ± {statistics.stdev(highest):.2f}",
            }
        )
    print(graph)
    common.report("leak", "Training on the wrong ids", __doc__ or "", {"Accuracies": rows}, options.out)


if __name__ == "__main__":
    main()
