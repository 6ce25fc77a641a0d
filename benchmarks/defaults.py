"""What the defaults give, over seeds that played no part in choosing them (those were 0 to 7, by validation accuracy).

python benchmarks/defaults.py                        CiteSeer, seeds 100 to 109: what `cvgnn train` gives
python benchmarks/defaults.py --root ../shared/data  also Cora and PubMed, and beside each the fixed defaults
python benchmarks/defaults.py --seeds 30 --estimator cv   CiteSeer with more seeds from 100 on, and another estimator
python benchmarks/defaults.py --root ../shared/data --files  each graph written to an npz file and read from it
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np

import cvgnn

FIRST_SEED = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder with the raw Planetoid files")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds, from 100 on")
    parser.add_argument("--estimator", default="cvd")
    parser.add_argument("--files", action="store_true", help="as `cvgnn train --graph FILE.npz` reads them")
    args = parser.parse_args()
    root, seeds = args.root, range(FIRST_SEED, FIRST_SEED + args.seeds)
    print("| dataset | defaults | validation | test at the best validation epoch | best test of any epoch |")
    print("|---|---|---|---|---|")
    for dataset in ("citeseer", "cora", "pubmed") if root else ("citeseer",):
        graph = cvgnn.load(dataset, root)
        if args.files:
            graph = written(graph)
        for defaults in ("auto", "fixed") if root and not args.files else ("auto",):
            results = [
                cvgnn.fit(graph, seed=seed, defaults=defaults, estimator=args.estimator, threads=1).result
                for seed in seeds
            ]
            cells = [dataset, defaults]
            for key in ("val_accuracy", "test_accuracy", "max_test_accuracy"):
                values = [100 * result[key] for result in results]
                cells.append(f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}")
            print(f"| {' | '.join(cells)} |", flush=True)


def written(graph: cvgnn.Graph) -> cvgnn.Graph:
    """The graph, through a file with a dense matrix of features."""
    rows = np.repeat(np.arange(graph.num_nodes), graph.degree.numpy())
    splits = {f"{part}_ids": getattr(graph, f"{part}_ids").numpy() for part in ("train", "val", "test")}
    x = graph.x.to_dense().numpy() if isinstance(graph.x, cvgnn.SparseFeatures) else graph.x.numpy()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{graph.name}.npz")
        np.savez(path, edge_index=np.stack([rows, graph.indices.numpy()]), x=x, y=graph.y.numpy(), **splits)
        return cvgnn.read_graph(path)


if __name__ == "__main__":
    main()
