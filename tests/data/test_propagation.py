from __future__ import annotations

import numpy as np
import pytest
import torch

from cvgnn.data import Propagation, SparseFeatures, propagation
from cvgnn.errors import CvgnnError
from cvgnn.reference import dense_P
from tests.build import graph_from_dense, random_adjacency
from tests.tiny import GRAPHS

CASES = [(name, normalization) for name in GRAPHS for normalization in ("symmetric", "random-walk")]


@pytest.mark.parametrize(("name", "normalization"), CASES)
def test_P_of_tiny_graphs(name: str, normalization: str) -> None:
    A = np.array(GRAPHS[name], dtype=float)
    g = graph_from_dense(A, directed=not np.array_equal(A, A.T))
    P = Propagation(g, normalization=normalization)  # type: ignore[arg-type]
    np.testing.assert_allclose(P.dense().numpy(), dense_P(A, normalization), rtol=0, atol=1e-15)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("entries", "elements"), [(1, 1), (7, 50), (10**6, 75), (10**6, 10**6)])
def test_chunks_do_not_matter(entries: int, elements: int, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    A = random_adjacency(25, mean_degree=5, weighted=weighted, seed=6)
    g = graph_from_dense(A)
    H = torch.randn(25, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = H.clone()
    whole = Propagation(g).product(H)
    monkeypatch.setattr(propagation, "_ENTRIES_PER_CHUNK", entries)
    monkeypatch.setattr(propagation, "_ELEMENTS_PER_PIECE", elements)
    assert torch.equal(Propagation(g).product(H), whole)
    np.testing.assert_allclose(Propagation(g).product(H).numpy(), dense_P(A) @ H.numpy(), rtol=0, atol=1e-14)
    assert torch.equal(H, before)


@pytest.mark.parametrize("normalization", ["symmetric", "random-walk"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_product_equals_the_dense_one(weighted: bool, normalization: str) -> None:
    A = random_adjacency(25, mean_degree=5, weighted=weighted, seed=7)
    P = Propagation(graph_from_dense(A), normalization=normalization)  # type: ignore[arg-type]
    X = torch.randn(25, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).relu()
    rows, cols = X.nonzero(as_tuple=True)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(rows, minlength=25).cumsum(0)])
    PX = P.product_sparse(SparseFeatures(indptr, cols, X[rows, cols], 6))
    torch.testing.assert_close(PX.to_dense(), P.product(X), rtol=0, atol=1e-14)


def test_float32_is_the_features_dtype() -> None:
    g = graph_from_dense(GRAPHS["path"])
    assert Propagation(g).dtype == torch.float64
    assert Propagation(g, dtype=torch.float32).dense().dtype == torch.float32


def test_unknown_normalization() -> None:
    with pytest.raises(CvgnnError, match="unknown normalization 'sym'; known: symmetric, random-walk"):
        Propagation(graph_from_dense(GRAPHS["path"]), normalization="sym")  # type: ignore[arg-type]
