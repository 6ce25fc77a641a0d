"""The data set that comes with the package: CiteSeer, from a pickle-free file (see data/README.md)."""

from __future__ import annotations

import io
from importlib import resources

import numpy as np

from cvgnn.datasets.arrays import GraphArrays
from cvgnn.errors import CvgnnError


def load_bundled_citeseer() -> GraphArrays:
    """CiteSeer with the public split, from the file inside the package; needs no other file.

    >>> load_bundled_citeseer().num_nodes
    3327
    """
    file = resources.files("cvgnn.datasets") / "data" / "citeseer.npz"
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise CvgnnError(
            f"the bundled data set {file} is missing, so this installation is incomplete; reinstall cvgnn"
        ) from None
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        counts = stored["x_counts"].astype(np.int64)
        return GraphArrays(
            name="citeseer",
            num_nodes=len(counts),
            edges=stored["edges"].astype(np.int32),
            x_indptr=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)]),
            x_indices=stored["x_indices"].astype(np.int32),
            x_values=np.ones(len(stored["x_indices"]), dtype=np.float32),
            num_features=int(stored["num_features"]),
            y=stored["y"].astype(np.int64),
            num_classes=int(stored["num_classes"]),
            train_ids=stored["train_ids"].astype(np.int64),
            val_ids=stored["val_ids"].astype(np.int64),
            test_ids=stored["test_ids"].astype(np.int64),
        )
