"""Graphs of every kind that a store holds, and ways to spoil a store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cvgnn.data import Graph, SparseFeatures, from_edges
from cvgnn.utils.checked_json import add_checksum
from tests.build import random_adjacency


def make_graph(
    *,
    n: int = 30,
    features: int = 7,
    sparse: bool = False,
    weighted: bool = False,
    directed: bool = False,
    dtype: torch.dtype = torch.float32,
    node_names: np.ndarray | None = None,
    class_names: tuple[str, ...] | None = None,
    seed: int = 0,
) -> Graph:
    """A random graph of `n` nodes with three classes, a split that leaves some nodes out, and some without label."""
    rng = np.random.default_rng(seed)
    A = random_adjacency(n, mean_degree=4, weighted=weighted, seed=seed)
    if directed:
        A = np.triu(A)
    target, source = np.nonzero(A)
    X = torch.from_numpy(rng.normal(size=(n, features)) * (rng.random((n, features)) < (0.3 if sparse else 1.0)))
    y = rng.integers(0, 3, size=n)
    order = rng.permutation(n)
    y[order[-2:]] = -1
    return from_edges(
        np.stack([source, target]),
        x=sparse_features(X.to(dtype)) if sparse else X.to(dtype),
        y=y,
        num_classes=3,
        train_ids=order[: n // 3],
        val_ids=order[n // 3 : n // 2],
        test_ids=order[n // 2 : n - 3],
        edge_weight=A[target, source] if weighted else None,
        directed=directed,
        name="random",
        node_names=node_names,
        class_names=class_names,
        split="random: of a test",
    )


def sparse_features(X: torch.Tensor) -> SparseFeatures:
    rows, columns = X.nonzero(as_tuple=True)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(rows, minlength=len(X)).cumsum(0)])
    return SparseFeatures(indptr, columns.to(torch.int32), X[rows, columns], X.shape[1])


KINDS: dict[str, dict[str, Any]] = {
    "dense": {},
    "dense float64": {"dtype": torch.float64},
    "sparse": {"sparse": True},
    "sparse float64": {"sparse": True, "dtype": torch.float64},
    "weighted": {"weighted": True},
    "directed": {"directed": True},
    "directed, weighted, sparse": {"directed": True, "weighted": True, "sparse": True},
    "named by numbers": {"node_names": np.arange(30) * 10 - 7},
    "named": {
        "node_names": np.array([f"né {i}" * (1 + i % 3) for i in range(30)]),
        "class_names": ("a", "", "naïve ☃"),
    },
}


def assert_same(a: Graph, b: Graph) -> None:
    """Equal in every field, dtypes included."""
    for name in ("indptr", "indices", "edge_weight", "x", "y", "train_ids", "val_ids", "test_ids", "PX"):
        same_matrix(getattr(a, name), getattr(b, name))
    for name in ("num_classes", "directed", "name", "class_names", "split", "PX_normalization"):
        assert getattr(a, name) == getattr(b, name), name
    if a.node_names is None:
        assert b.node_names is None
    else:
        np.testing.assert_array_equal(a.node_names, b.node_names)


def same_matrix(a: torch.Tensor | SparseFeatures | None, b: torch.Tensor | SparseFeatures | None) -> None:
    assert type(a) is type(b)
    if isinstance(a, SparseFeatures) and isinstance(b, SparseFeatures):
        assert a.num_columns == b.num_columns
        for part in ("indptr", "indices", "values"):
            same_matrix(getattr(a, part), getattr(b, part))
    elif isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def edit_header(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the header and give it a right checksum again: what a store would look like that lies on purpose."""
    body = json.loads((folder / "header.json").read_text())
    del body["sha256"]
    change(body)
    (folder / "header.json").write_text(add_checksum(body))


def replace_array(folder: Path, name: str, array: np.ndarray, **entry: Any) -> None:
    """Put another array in the place of a file, with a header that agrees (but for the SHA-256)."""
    file = folder / f"{name}.npy"
    np.save(file, array, allow_pickle=True)

    def change(body: dict[str, Any]) -> None:
        new = {"shape": list(array.shape), "dtype": array.dtype.str, "bytes": file.stat().st_size}
        body["arrays"][name].update({**new, **entry})

    edit_header(folder, change)
