"""Small graphs, written in upstream's raw layouts by upstream's own means: SciPy, numpy, json, gzip."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass
class Small:
    """A graph as lists: `edges` are (u, v) as the raw files list them."""

    num_nodes: int
    edges: list[tuple[int, int]]
    x: np.ndarray
    y: list[int]
    train: list[int]
    val: list[int]
    test: list[int]

    def pairs(self) -> set[tuple[int, int]]:
        """What the graph is: both directions, no self loops."""
        return {(u, v) for a, b in self.edges if a != b for u, v in ((a, b), (b, a))}


def small(seed: int = 0, *, symmetric: bool, loops: bool = False) -> Small:
    """23 nodes, the last without neighbors; some edges are listed twice."""
    rng = np.random.default_rng(seed)
    n = 23
    edges = [(int(u), int(v)) for u, v in rng.integers(0, n - 1, size=(60, 2)) if u != v]
    edges += edges[:3]
    if symmetric:
        edges = sorted({(u, v) for a, b in edges for u, v in ((a, b), (b, a))})
    if loops:
        edges += [(4, 4), (9, 9)]
    order = rng.permutation(n).tolist()  # a scattered split: training ids are not 0, 1, 2, ...
    return Small(
        num_nodes=n,
        edges=edges,
        x=rng.normal(size=(n, 5)).astype(np.float32),
        y=[int(c) for c in rng.permutation(np.arange(n) % 4)],
        train=order[:10],
        val=order[10:16],
        test=order[16:],
    )


def matrix(g: Small) -> Any:
    u, v = np.array(g.edges).T
    return sp.coo_matrix((np.ones(len(u)), (u, v)), shape=(g.num_nodes, g.num_nodes))


def write_flickr(folder: Path, g: Small, dtype: type[np.generic] = np.float64) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    sp.save_npz(folder / "adj_full.npz", matrix(g).tocsr())
    np.save(folder / "feats.npy", g.x.astype(dtype))
    # GraphSAINT's keys are in no particular order.
    classes = {str(v): g.y[v] for v in reversed(range(g.num_nodes))}
    (folder / "class_map.json").write_text(json.dumps(classes), encoding="utf-8")
    roles = {"tr": g.train, "va": g.val, "te": g.test}
    (folder / "role.json").write_text(json.dumps(roles), encoding="utf-8")
    return folder


def write_reddit(folder: Path, g: Small, dtype: type[np.generic] = np.float32) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    sp.save_npz(folder / "reddit_graph.npz", matrix(g))
    types = np.zeros(g.num_nodes, dtype=np.int32)
    for number, ids in enumerate((g.train, g.val, g.test), start=1):
        types[ids] = number
    np.savez(
        folder / "reddit_data.npz",
        feature=g.x.astype(dtype),
        label=np.array(g.y, dtype=np.int32),
        node_types=types,
        node_ids=np.arange(g.num_nodes),
    )
    return folder


def write_csv(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode(), mtime=0))


def write_arxiv(folder: Path, g: Small) -> Path:
    raw, split = folder / "raw", folder / "split" / "time"
    write_csv(raw / "edge.csv.gz", [f"{u},{v}" for u, v in g.edges])
    write_csv(raw / "node-feat.csv.gz", [",".join(f"{value:.6f}" for value in row) for row in g.x])
    write_csv(raw / "node-label.csv.gz", [str(c) for c in g.y])
    write_csv(raw / "num-node-list.csv.gz", [str(g.num_nodes)])
    write_csv(raw / "num-edge-list.csv.gz", [str(len(g.edges))])
    for name, ids in (("train", g.train), ("valid", g.val), ("test", g.test)):
        write_csv(split / f"{name}.csv.gz", [str(v) for v in ids])
    return folder
