"""Named data sets: from a name, and where needed a folder with upstream's raw files, to a `Graph`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from cvgnn.datasets.arrays import GraphArrays
from cvgnn.datasets.bundled import load_bundled_citeseer
from cvgnn.datasets.planetoid import NAMES as PLANETOID
from cvgnn.datasets.planetoid import read_planetoid
from cvgnn.errors import CvgnnError, unknown_name
from cvgnn.graph import Graph, SparseFeatures, from_edges

DATASETS: tuple[str, ...] = ("citeseer", *(name for name in PLANETOID if name != "citeseer"))

# Above this share of non-zero entries, dense rows are smaller and faster than sparse ones (PubMed: 0.10, Cora: 0.013).
_DENSE_FROM = 0.05


def load(name: str, root: str | Path | None = None) -> Graph:
    """A named data set as a `Graph`.

    Args:
        name: `"citeseer"` (bundled), `"cora"` or `"pubmed"`, with the Planetoid public split.
        root: folder with upstream's raw files: `ind.NAME.*` in it, in `planetoid/` or in PyG's `NAME/raw/` below it.
            CiteSeer needs none.

    >>> load("citeseer")
    Graph(citeseer: 3327 nodes, 4552 edges, 3703 sparse features, 6 classes, split 120/500/1000)
    """
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    if root is None and name == "citeseer":
        return to_graph(load_bundled_citeseer())
    if root is None:
        raise CvgnnError(
            f"dataset {name!r} is not bundled: give the folder that holds its raw files ind.{name}.* as root "
            "(--root on the command line)"
        )
    return to_graph(read_planetoid(_planetoid_folder(Path(root), name), name))


def to_graph(arrays: GraphArrays) -> Graph:
    """A `Graph` from plain arrays; features become dense where that is the smaller form."""
    sparse = SparseFeatures(
        torch.from_numpy(arrays.x_indptr),
        torch.from_numpy(arrays.x_indices),
        torch.from_numpy(arrays.x_values),
        arrays.num_features,
    )
    density = arrays.x_values.size / (arrays.num_nodes * arrays.num_features)
    return from_edges(
        np.ascontiguousarray(arrays.edges.T),
        x=sparse.to_dense() if density >= _DENSE_FROM else sparse,
        y=arrays.y,
        train_ids=arrays.train_ids,
        val_ids=arrays.val_ids,
        test_ids=arrays.test_ids,
        num_classes=arrays.num_classes,
        name=arrays.name,
    )


def _planetoid_folder(root: Path, name: str) -> Path:
    pyg_name = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}[name]
    candidates = [root, root / "planetoid", root / pyg_name / "raw"]
    for folder in candidates:
        if (folder / f"ind.{name}.graph").is_file():
            return folder
    places = ", ".join(str(folder) for folder in candidates)
    raise CvgnnError(f"no raw files of {name!r}: ind.{name}.graph is in none of {places}; put the eight files there")
