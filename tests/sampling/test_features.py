from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from cvgnn.data import Graph, Propagation, SparseFeatures, from_edges
from cvgnn.errors import CvgnnError
from cvgnn.reference import dense_P
from cvgnn.sampling import propagate_features
from cvgnn.sampling.features import DenseSource, FeatureNorm, SparseInput, SparseSource
from tests.build import random_adjacency, sparse_features

N, F = 20, 9
A = random_adjacency(N, mean_degree=4, weighted=True, seed=3)
X = (np.random.default_rng(0).random((N, F)) < 0.3) * np.random.default_rng(1).normal(size=(N, F))


def graph(sparse: bool) -> Graph:
    target, source = np.nonzero(A)
    return from_edges(
        np.stack([source, target]),
        edge_weight=A[target, source],
        x=sparse_features(X) if sparse else torch.from_numpy(X),
        y=np.zeros(N, int),
        train_ids=[0],
    )


@pytest.mark.parametrize("normalization", ["symmetric", "random-walk"])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_PX_and_their_gradient(sparse: bool, normalization: str) -> None:
    g = graph(sparse)
    source = propagate_features(g, Propagation(g, normalization=normalization))  # type: ignore[arg-type]
    assert (source.num_nodes, source.num_features) == (N, F)
    PX = torch.from_numpy(dense_P(A, normalization) @ X)
    ids = torch.tensor([4, 0, 19, 4])
    W = torch.randn(F, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for given, rows in ((source.rows(ids), PX[ids]), (source.span(2, 7), PX[2:7])):
        out = given.matmul(W)
        torch.testing.assert_close(out, rows @ W, rtol=0, atol=1e-12)
        (grad,) = torch.autograd.grad(out.square().sum(), W)
        (expected,) = torch.autograd.grad((rows @ W).square().sum(), W)
        torch.testing.assert_close(grad, expected, rtol=0, atol=1e-11)


def test_sparse_features_are_never_written_out() -> None:
    g = graph(sparse=True)
    rows = propagate_features(g, Propagation(g)).rows(torch.tensor([0, 1]))
    assert isinstance(rows, SparseInput)
    assert rows.arrays[2].size == np.count_nonzero(dense_P(A) @ X)


def test_features_are_taken_in_the_dtype_of_P() -> None:
    g = graph(sparse=True)
    source = propagate_features(g, Propagation(g, dtype=torch.float32))
    assert source.span(0, N).matmul(torch.eye(F)).dtype == torch.float32


@pytest.mark.parametrize("held", [False, True])
def test_features_in_bfloat16(held: bool) -> None:
    """Rows and spans as they are stored; the same from a `P X` that the graph holds."""
    g = graph(sparse=False)
    P = Propagation(g)
    PX = P.product(g.x)  # type: ignore[arg-type]
    if held:
        g = replace(g, PX=PX, PX_normalization="symmetric")
    source = propagate_features(g, P, storage=torch.bfloat16)
    ids = torch.tensor([4, 0, 19, 4])
    assert torch.equal(source.rows(ids), PX[ids].bfloat16())  # type: ignore[arg-type]
    assert torch.equal(source.span(2, 7), PX[2:7].bfloat16())  # type: ignore[arg-type]
    assert source.rows(ids).dtype == source.span(0, 2).dtype == torch.bfloat16  # type: ignore[union-attr]
    assert source.dtype == torch.float64
    with pytest.raises(CvgnnError, match="storage must be one of"):
        propagate_features(g, P, storage=torch.float16)


def test_sparse_features_stay_as_they_are() -> None:
    g = graph(sparse=True)
    rounded, plain = (propagate_features(g, Propagation(g), storage=s) for s in (torch.bfloat16, None))
    eye = torch.eye(F, dtype=torch.float64)
    assert torch.equal(rounded.span(0, N).matmul(eye), plain.span(0, N).matmul(eye))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("feature_norm", "order"), [("row", 1), ("l2", 2)])
def test_row_normalised_features(sparse: bool, feature_norm: FeatureNorm, order: int) -> None:
    """Rows are divided by their norms, a row of zeros stays, and a `P X` made before is not taken."""
    g = graph(sparse)
    P = Propagation(g)
    norms = np.linalg.norm(X, order, axis=1, keepdims=True)
    expected = dense_P(A) @ (X / np.where(norms > 0, norms, 1.0))
    held = replace(g, PX=g.x, PX_normalization="symmetric")
    for each in (g, held):
        rows = (
            propagate_features(each, P, feature_norm=feature_norm).span(0, N).matmul(torch.eye(F, dtype=torch.float64))
        )
        torch.testing.assert_close(rows, torch.from_numpy(expected), rtol=0, atol=1e-12)
    with pytest.raises(CvgnnError, match="unknown feature_norm 'col'"):
        propagate_features(g, P, feature_norm="col")  # type: ignore[arg-type]


@pytest.mark.parametrize(("words", "dense"), [(3, False), (40, True)])
def test_a_sparse_PX_with_many_entries_is_kept_dense(words: int, dense: bool) -> None:
    """The rows of training nodes decide; the numbers are the same either way, to rounding."""
    nodes, columns = 2100, 10_000
    rng = np.random.default_rng(0)
    hub = np.arange(1, 1051)
    x = torch.zeros(nodes, columns)
    x[torch.arange(nodes)[:, None], torch.from_numpy(rng.integers(0, columns, (nodes, words)))] = 1.0
    edges = np.stack([np.zeros_like(hub), hub])
    sparse = SparseFeatures.from_scipy(csr_array(x.numpy()))
    g = from_edges(edges, x=sparse, y=np.zeros(nodes, int), train_ids=[0])  # 1,051 rows of X enter into its row
    P = Propagation(g)
    source = propagate_features(g, P, storage=torch.bfloat16 if dense else None)
    assert isinstance(source, DenseSource if dense else SparseSource)
    if dense:
        assert source.rows(torch.tensor([0])).dtype == torch.bfloat16  # type: ignore[union-attr]
        expected = P.product_sparse(sparse).to_dense()
        assert torch.equal(propagate_features(g, P).span(0, nodes), expected)
