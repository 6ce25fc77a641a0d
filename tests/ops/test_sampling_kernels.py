"""The compiled kernels against exact enumeration and against their literal twin."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from cvgnn.data import Propagation
from cvgnn.ops import sampling_kernels as kernels
from cvgnn.reference import SCHEMES, dense_P, draw_ranges, neighbor_lists
from cvgnn.reference.sampling import SampledBlock, sampled_block
from cvgnn.rng import chain, mix
from cvgnn.sampling.schemes import scheme_code
from tests.build import graph_from_dense, random_adjacency
from tests.raw_draws import raw_draws
from tests.tiny import GRAPHS, all_draws

FAN_OUTS = [1, 2, 3, -1]


def literal_block(
    targets: list[int], P: np.ndarray, neighbors: list[list[int]], scheme: str, D: int, key: int
) -> SampledBlock:
    """The reference's block for the draws that the kernel makes under a layer's key."""
    return sampled_block(targets, P, neighbors, scheme, D, lambda v: raw_draws(key, v, scheme, len(neighbors[v]), D))


def kernel_row(P: np.ndarray, v: int, neighbors: list[int], scheme: str, D: int, draws: tuple[int, ...]) -> np.ndarray:
    """Row `v` of `P^` by the very functions that `kernels.sample_block` calls, for given raw draws."""
    code, deg = scheme_code(scheme), len(neighbors)
    row = np.zeros(len(P))
    row[v] = kernels.self_factor(code, deg, D) * P[v, v]
    if kernels.takes_all(code, deg, D):
        row[neighbors] = P[v, neighbors]
    elif deg > 0:
        position, factor = np.empty(D, np.int64), np.empty(D)
        m = kernels.choose(code, deg, D, np.array(draws), position, factor)
        for p, f in zip(position[:m], factor[:m], strict=True):
            assert row[neighbors[p]] == 0.0  # positions are distinct
            row[neighbors[p]] = f * P[v, neighbors[p]]
    return row


NO_IDS = np.empty(0, np.int32)


@pytest.mark.parametrize("D", FAN_OUTS)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_expectation_by_enumeration(scheme: str, graph: str, D: int) -> None:
    """Must show 1: `E[P^] - P` below 1e-12 for the unbiased schemes, and the stated factors for the other two."""
    P, neighbors = dense_P(GRAPHS[graph]), neighbor_lists(GRAPHS[graph])
    for v in range(len(P)):
        deg = len(neighbors[v])
        ranges = [kernels.draw_bound(scheme_code(scheme), deg, D, i) for i in range(len(draw_ranges(scheme, deg, D)))]
        assert ranges == draw_ranges(scheme, deg, D)
        outcomes = [kernel_row(P, v, neighbors[v], scheme, D, d) for d in all_draws(scheme, deg, D)]
        expected = P[v].copy()
        if D != -1 and scheme in ("paper", "released"):
            loop = (deg + 1) / D if scheme == "released" else 1.0
            scale = (deg + 1) / D if scheme == "released" else deg / D
            for u in neighbors[v]:
                expected[u] *= scale * (1 - (1 - 1 / deg) ** D)
            expected[v] *= loop
        assert np.abs(np.mean(outcomes, axis=0) - expected).max() < 1e-12


def test_biased_schemes_are_biased() -> None:
    """The factors of the test above are not 1: the enumeration tells the schemes apart."""
    P, neighbors = dense_P(GRAPHS["star"]), neighbor_lists(GRAPHS["star"])
    for scheme in ("paper", "released"):
        mean = np.mean([kernel_row(P, 0, neighbors[0], scheme, 2, d) for d in all_draws(scheme, 5, 2)], axis=0)
        assert np.abs(mean - P[0]).max() > 0.01


@pytest.mark.parametrize("D", [1, 2, 3, 7, -1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_block_equals_its_literal_twin(scheme: str, weighted: bool, D: int) -> None:
    A = random_adjacency(30, mean_degree=5, weighted=weighted, seed=D + 10)
    graph = graph_from_dense(A)
    propagation = Propagation(graph)
    P, neighbors = dense_P(A), neighbor_lists(A)
    local = np.full(30, -1, dtype=np.int32)
    weight = np.empty(0) if graph.edge_weight is None else graph.edge_weight.numpy()
    for key in (1, 2**63 + 5, mix(77)):
        targets = np.random.default_rng(key % 1000).permutation(30)[:12]
        out = kernels.sample_block(
            targets, graph.indptr.numpy(), graph.indices.numpy(), weight, propagation.left.numpy(),
            propagation.right.numpy(), propagation.self_loop, NO_IDS, D, scheme_code(scheme), np.uint64(key), 5, 2, True, local,
        )  # fmt: skip
        twin = literal_block(targets.tolist(), P, neighbors, scheme, D, chain(chain(key, 5), 2))
        sources = out[0]
        assert sources.tolist() == twin.sources
        np.testing.assert_allclose(dense(*out[1], len(sources)), twin.sampled, rtol=0, atol=1e-14)
        np.testing.assert_array_equal(dense(*out[2], len(targets)), dense(*out[1], len(sources)).T)
        np.testing.assert_allclose(dense(*out[3], 30), twin.remainder, rtol=0, atol=1e-14)
        check_mask_weights(out, P[targets][:, sources])
        assert (local == -1).all()  # the scratch is left as it was found


@pytest.mark.parametrize("D", [1, 3, -1])
@pytest.mark.parametrize("normalization", ["mean", "sum"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_block_without_self_loops_equals_its_literal_twin(scheme: str, normalization: str, D: int) -> None:
    A = random_adjacency(30, mean_degree=5, weighted=True, seed=4)
    graph = graph_from_dense(A)
    p = Propagation(graph, normalization=normalization)  # type: ignore[arg-type]
    assert not p.self_loop
    degree = A.sum(axis=1, keepdims=True)
    P = A / np.where(degree > 0, degree, 1.0) if normalization == "mean" else A
    targets = np.random.default_rng(0).permutation(30)[:12]
    assert graph.edge_weight is not None
    out = kernels.sample_block(
        targets, graph.indptr.numpy(), graph.indices.numpy(), graph.edge_weight.numpy(), p.left.numpy(),
        p.right.numpy(), False, NO_IDS, D, scheme_code(scheme), np.uint64(8), 5, 2, True, np.full(30, -1, np.int32),
    )  # fmt: skip
    twin = literal_block(targets.tolist(), P, neighbor_lists(A), scheme, D, chain(chain(8, 5), 2))
    assert out[0].tolist() == twin.sources
    np.testing.assert_allclose(dense(*out[1], len(out[0])), twin.sampled, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(dense(*out[2], len(targets)), dense(*out[1], len(out[0])).T)
    np.testing.assert_allclose(dense(*out[3], 30), twin.remainder, rtol=0, atol=1e-14)
    check_mask_weights(out, P[targets][:, out[0]])


def check_mask_weights(out: tuple[Any, ...], P: np.ndarray) -> None:
    """The weights of the dropout mask are `sqrt(f) P`, and exactly `P` where `f = 1`."""
    sampled = dense(*out[1], P.shape[1])
    S = dense(*out[1][:2], out[4], P.shape[1])
    np.testing.assert_allclose(S, np.sqrt(sampled * P), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(dense(*out[2][:2], out[5], len(P)), S.T)
    same = np.isclose(sampled, P)
    np.testing.assert_array_equal(S[same], sampled[same])


def dense(indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray, num_columns: int) -> np.ndarray:
    out = np.zeros((len(indptr) - 1, num_columns))
    for i, (a, b) in enumerate(itertools.pairwise(indptr)):
        for j in range(a, b):
            out[i, indices[j]] += weight[j]
    return out


def test_control_rows_are_left_out_on_request() -> None:
    graph = graph_from_dense(GRAPHS["star"])
    p = Propagation(graph)
    args = (graph.indptr.numpy(), graph.indices.numpy(), np.empty(0), p.left.numpy(), p.right.numpy(), True, NO_IDS)
    out = kernels.sample_block(np.arange(6), *args, 2, 0, np.uint64(3), 1, 1, False, np.full(6, -1, np.int32))
    assert out[3][1].size == out[3][2].size == 0
    assert out[4].size == out[5].size == 0


def test_mix_and_bounded_draws_equal_python_integers() -> None:
    for z in (0, 1, 2**63, 2**64 - 1, 123456789):
        assert int(kernels.mix(np.uint64(z))) == mix(z)
        assert int(kernels.chain(np.uint64(z), 3)) == chain(z, 3)
        for bound in (1, 2, 3, 1000, 2**31 - 1):
            assert kernels.uniform_below(np.uint64(z), bound) == (z * bound) >> 64


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_hashed_draws_are_uniform_over_outcomes(scheme: str) -> None:
    """The hash behind the draws: outcomes of a degree-5 node, D = 2, chi-square within 5 standard deviations."""
    ranges = draw_ranges(scheme, 5, 2)
    counts = dict.fromkeys(itertools.product(*map(range, ranges)), 0)
    total = 40_000
    for step in range(total // 4):
        for v in range(4):
            counts[tuple(raw_draws(mix(step + 1), v, scheme, 5, 2))] += 1
    expected = total / len(counts)
    chi2 = sum((c - expected) ** 2 / expected for c in counts.values())
    cells = len(counts) - 1
    assert abs(chi2 - cells) < 5 * (2 * cells) ** 0.5


def test_transpose() -> None:
    rng = np.random.default_rng(0)
    M = (rng.random((7, 9)) < 0.4) * rng.normal(size=(7, 9))
    rows, cols = np.nonzero(M)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=7))]).astype(np.int64)
    parts = (indptr, cols.astype(np.int32), M[rows, cols])
    *transposed, doubled = kernels.transpose(*parts, 2 * parts[2], 9)
    np.testing.assert_array_equal(dense(*transposed, 7), M.T)
    np.testing.assert_array_equal(dense(*transposed[:2], doubled, 7), 2 * M.T)
