from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.data import Graph, SparseFeatures, structure_check
from cvgnn.data.store import check_indices, open_store
from cvgnn.data.store import contents_check as checks
from cvgnn.errors import CvgnnError
from tests.data.store.cases import replace_array


def changed(folder: Path, name: str, at: Any, value: Any) -> None:
    array = np.load(folder / f"{name}.npy")
    array[at] = value
    replace_array(folder, name, array)


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("indptr", 0, 1, "indptr.npy must rise from 0 to the number of entries"),
        ("indptr", -1, 1, "indptr.npy must rise from 0 to the number of entries"),
        ("indptr", 5, -1, "indptr.npy must rise from 0 to the number of entries"),
        ("x_indptr", 5, 10**6, "x_indptr.npy must rise from 0 to the number of entries"),
        ("PX_indptr", -1, 10**6, "PX_indptr.npy must rise from 0 to the number of entries"),
        ("train_ids", 0, -1, "train_ids.npy names node -1; ids lie in 0..29"),
        ("train_ids", -1, 30, "train_ids.npy names node 30; ids lie in 0..29"),
        ("train_ids", 1, 2**40, "train_ids.npy must be in ascending order, each id once; it is not"),
        ("y", 3, 3, "y.npy gives node 3 the class 3; classes lie in 0..2"),
        ("y", 3, -2, "y.npy gives node 3 the class -2; classes lie in 0..2"),
        ("y", slice(None), -1, r"train_ids.npy names node \d+, which has no label \(-1\)"),
    ],
)  # fmt: skip
def test_small_arrays_are_checked_when_opened(name: str, at: Any, value: Any, message: str, sparse: Path) -> None:
    changed(sparse, name, at, value)
    with pytest.raises(CvgnnError, match=message):
        open_store(sparse)


def test_splits_are_disjoint_and_not_empty(dense: Path) -> None:
    train = np.load(dense / "train_ids.npy")
    replace_array(dense, "test_ids", train[3:4])
    with pytest.raises(CvgnnError, match=rf"node {train[3]} is in both train_ids.npy and test_ids.npy"):
        open_store(dense)
    replace_array(dense, "train_ids", train[:0])
    with pytest.raises(CvgnnError, match=r"the training split is empty: train_ids.npy must name at least one node"):
        open_store(dense)


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("indptr", 5, -1, "indptr.npy must rise"),
        ("x_indptr", 5, 10**6, "x_indptr.npy must rise"),
        ("train_ids", 1, 2**40, "train_ids.npy must be in ascending order"),
        ("y", 3, 3, "y.npy gives node 3 the class 3"),
        ("indices", 2, 30, "indices.npy gives node 0 a node outside 0..29 as neighbor"),
        ("indices", 2, -1, "indices.npy gives node 0 a node outside 0..29 as neighbor"),
        ("indices", 0, 0, "indices.npy gives node 0 itself as neighbor"),
        ("indices", 1, 1, "indices.npy gives node 0 its neighbors not in ascending order, or one twice"),
        ("edge_weight", 4, np.nan, "edge_weight.npy has nan at entry 4; weights must be positive and finite"),
        ("x_indices", 3, 7, "x_indices.npy has 7 at entry 3; columns lie in 0..6"),
        ("PX_indices", 3, -7, "PX_indices.npy has -7 at entry 3; columns lie in 0..6"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("piece", [1, 5, 1 << 16])
def test_large_arrays_are_left_to_check_indices(
    name: str, at: Any, value: Any, message: str, piece: int, sparse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "SMALL", 0)
    monkeypatch.setattr(structure_check, "_PIECE", piece)
    check_indices(sparse, open_store(sparse))
    changed(sparse, name, at, value)
    g = open_store(sparse)
    with pytest.raises(CvgnnError, match=message):
        check_indices(sparse, g)


def test_the_rules_for_edges_are_those_of_a_graph() -> None:
    """`check_structure` in pieces refuses exactly what `Graph.check_structure` refuses."""
    rng = np.random.default_rng(0)
    none = torch.empty(0, dtype=torch.int64)
    outcomes = []
    for _ in range(500):
        entries = int(rng.integers(0, 5))
        indptr = np.sort(rng.integers(0, entries + 1, size=4))
        indptr[0], indptr[-1] = 0, entries
        if rng.random() < 0.1:
            indptr[1], indptr[2] = indptr[2], indptr[1]
        indices = rng.integers(0, 3, size=entries).astype(np.int32)
        if rng.random() < 0.5 and (np.diff(indptr) >= 0).all():
            indices = np.concatenate([np.sort(part) for part in np.split(indices, indptr[1:-1])])
        if entries and rng.random() < 0.05:
            indices[0] = rng.choice([-1, 3])
        if rng.random() < 0.3:  # a symmetric one
            A = np.triu(rng.random((3, 3)) < 0.5, k=1)
            target, indices = (part.astype(np.int32) for part in np.nonzero(A | A.T))
            indptr, entries = np.searchsorted(target, np.arange(4)), indices.size
        g = Graph(
            indptr=torch.from_numpy(indptr), indices=torch.from_numpy(indices), x=torch.ones(3, 1), y=none,
            num_classes=1, train_ids=none, val_ids=none, test_ids=none, validated=True, directed=bool(rng.random() < 0.6),
            edge_weight=torch.from_numpy(rng.choice([1.0, 1.0, 2.0], size=entries)) if rng.random() < 0.3 else None,
        )  # fmt: skip
        outcomes.append([_refused(g.check_structure), _refused(lambda g=g: checks.check_structure(Path("s"), g))])
    assert all(a == b for a, b in outcomes)
    assert 50 < sum(a for a, _ in outcomes) < 450


def _refused(check: Any) -> bool:
    try:
        check()
    except CvgnnError:
        return True
    return False


@pytest.mark.parametrize("piece", [1, 3, 1 << 16])
def test_undirected_graphs_are_symmetric(
    piece: int, dense: Path, sparse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure_check, "_PIECE", piece)
    changed(sparse, "edge_weight", 4, 77.0)
    indices = np.load(dense / "indices.npy")
    indptr = np.load(dense / "indptr.npy")
    row = next(v for v in range(30) if indptr[v + 1] - indptr[v] == 1)  # its one neighbor becomes another
    changed(dense, "indices", indptr[row], next(u for u in range(30) if u not in (row, indices[indptr[row]])))
    for folder in (sparse, dense):
        with pytest.raises(CvgnnError, match=r"indices.npy lacks the reverse of some edge, or gives it another weight"):
            check_indices(folder, open_store(folder))


def test_features_are_finite(tmp_path: Path) -> None:
    none = torch.empty(0, dtype=torch.int64)
    values = torch.tensor([1.0, float("inf")])
    X = SparseFeatures(torch.tensor([0, 1, 2]), torch.tensor([0, 0]), values, 1)
    for x, message in (
        (X, "x has a NaN or infinite value at node 1, column 0"),
        (values[:, None], "x has a NaN or infinite value at node 1, column 0"),
    ):
        g = Graph(
            indptr=torch.tensor([0, 0, 0]), indices=none.int(), x=x, y=torch.tensor([0, 0]), num_classes=1,
            train_ids=torch.tensor([0]), val_ids=none, test_ids=none, validated=True,
        )  # fmt: skip
        with pytest.raises(CvgnnError, match=message):
            checks.check_all(tmp_path, g)
