"""What the defaults give, over seeds that played no part in choosing them (those were 0 to 2).

python benchmarks/defaults.py                        CiteSeer, seeds 100 to 109: what `cvgnn train` gives
python benchmarks/defaults.py --root ../shared/data  also Cora and PubMed, and beside each the same with LayerNorm
python benchmarks/defaults.py --seeds 30 --estimator cv   CiteSeer with more seeds from 100 on, and another estimator
"""

from __future__ import annotations

import argparse
import statistics

import cvgnn

FIRST_SEED = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder with the raw Planetoid files")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds, from 100 on")
    parser.add_argument("--estimator", default="cvd")
    args = parser.parse_args()
    root, seeds = args.root, range(FIRST_SEED, FIRST_SEED + args.seeds)
    datasets, norms = (("citeseer", "cora", "pubmed"), ("none", "layer")) if root else (("citeseer",), ("none",))
    print("| dataset | norm | validation | test at the best validation epoch | best test of any epoch |")
    print("|---|---|---|---|---|")
    for dataset in datasets:
        graph = cvgnn.load(dataset, root)
        for norm in norms:
            results = [cvgnn.fit(graph, seed=seed, norm=norm, estimator=args.estimator).result for seed in seeds]
            cells = [dataset, norm]
            for key in ("val_accuracy", "test_accuracy", "max_test_accuracy"):
                values = [100 * result[key] for result in results]
                cells.append(f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}")
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
