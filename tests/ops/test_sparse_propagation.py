"""`P X` for sparse features beside SciPy's product of the same matrices in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from cvgnn.data import AGGREGATIONS, Graph, Propagation, SparseFeatures, from_edges
from cvgnn.ops import sparse_propagation
from cvgnn.training.machine import thread_count

N = 60


def graph(F: int, *, weighted: bool = False, dtype: torch.dtype = torch.float32) -> Graph:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, N - 1, (2, 300))  # the last node has no neighbor
    X = sparse.random(N, F, 0.1, format="csr", random_state=1, dtype=np.float64)
    X.data -= 0.5
    weight = 1.0 + edges.min(axis=0) + N * edges.max(axis=0) if weighted else None
    features = SparseFeatures.from_scipy(X).to(dtype)
    return from_edges(edges, x=features, y=np.zeros(N, int), train_ids=[0], edge_weight=weight)


def scipy_product(P: Propagation, X: SparseFeatures, scale: torch.Tensor | None = None) -> Any:
    """`P diag(scale) X` in float64, sums in the order of the columns of `A + I`."""
    weight = np.ones(P.indices.numel()) if P.edge_weight is None else P.edge_weight.double().numpy()
    A = sparse.csr_array((weight, P.indices.numpy(), P.indptr.numpy()), shape=(N, N))
    if P.self_loop:
        A = A + sparse.eye_array(N)
    right = P.right if scale is None else P.right * scale.to(P.dtype)
    left, right = (sparse.diags_array(s.double().numpy()) for s in (P.left, right))
    PX = (left @ A @ right @ X.to_scipy().astype(np.float64)).tocsr()
    PX.sort_indices()
    return PX


@pytest.mark.parametrize("normalization", AGGREGATIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("F", [1, 63, 64, 65, 300])
def test_it_has_the_bits_of_scipys_product(normalization: Any, weighted: bool, F: int) -> None:
    for dtype in (torch.float32, torch.float64):
        g = graph(F, weighted=weighted, dtype=dtype)
        assert isinstance(g.x, SparseFeatures)
        P = Propagation(g, normalization=normalization)
        scale = torch.linspace(0.5, 2.0, N, dtype=torch.float64)
        for row_scale in (None, scale):
            mine, twin = P.product_sparse(g.x, row_scale=row_scale), scipy_product(P, g.x, row_scale)
            np.testing.assert_array_equal(mine.indptr.numpy(), twin.indptr)
            np.testing.assert_array_equal(mine.indices.numpy(), twin.indices)
            np.testing.assert_array_equal(mine.values.numpy(), twin.data.astype(mine.values.numpy().dtype))
            assert mine.dtype == dtype


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("entries", [1, 50])
def test_blocks_and_threads_do_not_matter(threads: int, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    g = graph(70)
    assert isinstance(g.x, SparseFeatures)
    P = Propagation(g)
    whole = P.product_sparse(g.x)
    monkeypatch.setattr(sparse_propagation, "_ENTRIES_PER_BLOCK", entries)
    with thread_count(threads):
        again = P.product_sparse(g.x)
        offsets, columns, values = P.sparse_product_rows(g.x, 7, 31)
    for name in ("indptr", "indices", "values"):
        assert torch.equal(getattr(again, name), getattr(whole, name))
    a, b = int(whole.indptr[7]), int(whole.indptr[31])
    np.testing.assert_array_equal(offsets, whole.indptr[7:32].numpy() - a)
    np.testing.assert_array_equal(columns, whole.indices[a:b].numpy())
    np.testing.assert_array_equal(values, whole.values[a:b].numpy())


def test_a_column_that_a_row_names_twice_is_added() -> None:
    X = SparseFeatures(torch.tensor([0, 2, 2]), torch.tensor([1, 1]), torch.tensor([0.5, 0.25]), 3)
    g = from_edges([[0], [1]], x=X, y=[0, 0], train_ids=[0])
    assert Propagation(g, normalization="sum").product_sparse(X).to_dense().tolist() == [[0, 0, 0], [0, 0.75, 0]]


def test_rows_that_are_not_needed_are_nan_and_the_others_have_the_same_bits() -> None:
    g = graph(70)
    assert isinstance(g.x, SparseFeatures)
    P = Propagation(g)
    needed = torch.arange(N) % 3 == 0
    part, whole = (P.product_sparse(g.x, needed=mask).to_dense() for mask in (needed, None))
    assert torch.equal(part[needed], whole[needed])
    assert part[~needed].isnan().any(dim=1).all()
