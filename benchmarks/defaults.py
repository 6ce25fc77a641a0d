"""The defaults on the bundled CiteSeer graph, over seeds: what `cvgnn train` gives.

python benchmarks/defaults.py [seeds]
"""

from __future__ import annotations

import statistics
import sys

import cvgnn


def main(seeds: int = 10) -> None:
    graph = cvgnn.load("citeseer")
    results = [cvgnn.fit(graph, seed=seed).result for seed in range(seeds)]
    print(f"CiteSeer, defaults, seeds 0..{seeds - 1}")
    for key in ("val_accuracy", "test_accuracy", "max_test_accuracy"):
        values = [100 * result[key] for result in results]
        print(f"{key}: {statistics.mean(values):.2f} ± {statistics.stdev(values):.2f} %")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
