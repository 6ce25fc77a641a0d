"""A table of customers as people have them, and the same data prepared by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

REGIONS = np.array(["north", "south", "east", "west"])
LABELS = np.array(["basic", "gold", "plus", "vip"])


def write_customers(folder: Path, n: int, *, prepared: bool = False) -> Path:
    """Two numeric columns of different scale, a category, a date, 5 % missing cells, string labels.

    Args:
        folder: for nodes.csv and edges.csv.
        n: number of customers.
        prepared: write standardised and one-hot columns, fitted on the training nodes, instead.
    """
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    y = rng.integers(0, 4, n)
    age = np.round(np.array([30, 45, 30, 45])[y] + rng.normal(0, 9, n))
    income = np.exp(np.log([30000, 30000, 60000, 60000])[y] + rng.normal(0, 0.35, n)).round(2)
    region = np.where(rng.random(n) < 0.5, y, rng.integers(0, 4, n))
    day = np.datetime64("2023-01-01") + (y * 120 + rng.integers(0, 500, n)).astype("m8[D]")
    gone = rng.random((4, n)) < 0.05
    ends = rng.integers(0, n, (2, 9 * n))
    near = (y[ends[0]] == y[ends[1]]) | (rng.random(9 * n) < 0.35)
    ends = ends[:, near & (ends[0] != ends[1])][:, : 3 * n]
    split = rng.choice(["train", "val", "test"], n, p=[0.6, 0.2, 0.2])
    if prepared:
        columns = _by_hand([age, income, day.astype("M8[D]").astype(float)], gone[[0, 1, 3]], split == "train")
        columns += [((region == k) & ~gone[2]) * 1.0 for k in range(4)] + [gone[2] * 1.0]
        names = [f"f{k}" for k in range(len(columns))]
        cells = [[f"{value:.6f}" for value in column] for column in columns]
    else:
        names = ["age", "income", "region", "joined"]
        values = (age.astype(int), income, REGIONS[region], day)
        cells = [["" if g else str(v) for v, g in zip(*pair, strict=True)] for pair in zip(values, gone, strict=True)]
    rows = zip((f"c{i}" for i in range(n)), *cells, LABELS[y], split, strict=True)
    lines = [",".join(["id", *names, "label", "split"]), *map(",".join, rows)]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    edges = [f"c{u},c{v}" for u, v in ends.T.tolist()]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return folder


def _by_hand(columns: list[np.ndarray], gone: np.ndarray, train: np.ndarray) -> list[np.ndarray]:
    done = []
    for column, missing in zip(columns, gone, strict=True):
        known = column[train & ~missing]
        filled = np.where(missing, np.median(known), column)
        done += [(filled - known.mean()) / known.std(), missing * 1.0]
    return done
