"""Estimator `cvd`: every draw and every dropout mask of tiny graphs, enumerated.

Legend: `P^ = f P` the sampled row, `S = sqrt(f) P` the weights of the mask, `m` the mask (0 or 1/(1-p)), `k` the number of drawn
neighbors. Each column of the matrices below is one mask; `q` its probability.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from cvgnn.data import Propagation
from cvgnn.nn import GCN, ControlVariate
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.fused_layer import MaskWeights, sampled_sum
from cvgnn.ops.row_sum import Rows
from cvgnn.reference import dense_P, neighbor_lists
from cvgnn.reference.sampling import P_hat_row
from cvgnn.sampling import BatchLoader, NeighborSampler, propagate_features
from tests.build import graph_from_dense, random_adjacency
from tests.tiny import all_draws

RNG = np.random.default_rng(5)


def graph_with_degree(degree: int) -> np.ndarray:
    """Six nodes; node 0 has `degree` neighbors, and the others some edges of their own. Weighted."""
    A = np.zeros((6, 6))
    A[0, 1 : degree + 1] = A[1 : degree + 1, 0] = 1 + np.arange(degree) / 3
    A[1, 2] = A[2, 1] = 0.7
    A[4, 5] = A[5, 4] = 1.3
    return A


def sparse(M: np.ndarray) -> Rows:
    """All entries of a matrix, zeros too."""
    m, n = M.shape
    indptr, indices = torch.arange(0, m * n + 1, n), torch.arange(n).repeat(m)
    return Rows(indptr, indices, torch.from_numpy(M.reshape(-1)))


def estimate(P_hat: np.ndarray, S: np.ndarray | None, H: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
    """The shipped sum for one target, without the correction."""
    weights = None if S is None else MaskWeights(sparse(S[None]), sparse(S[:, None]))
    return sampled_sum(sparse(P_hat[None]), sparse(P_hat[:, None]), weights, H, sent)[0]


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("D", [1, 2, 3])
@pytest.mark.parametrize("degree", [3, 4, 5])
@pytest.mark.parametrize("scheme", ["without-replacement", "with-replacement"])
def test_mean_and_variance_by_enumeration(scheme: str, degree: int, D: int, p: float) -> None:
    A = graph_with_degree(degree)
    P, N_0 = dense_P(A)[0], neighbor_lists(A)[0]
    H = RNG.normal(size=6)
    masks = np.array(list(itertools.product([0.0, 1 / (1 - p)], repeat=6))).T  # [6, 64]
    q = np.where(masks == 0, p, 1 - p).prod(axis=0)
    draws = list(all_draws(scheme, degree, D))
    rows = [P_hat_row(dense_P(A), 0, N_0, scheme, D, d) for d in draws]
    columns = torch.from_numpy(np.repeat(H[:, None], masks.shape[1], axis=1))
    sent = columns * torch.from_numpy(masks)
    for Hbar in (H, H + RNG.normal(size=6)):  # fresh and stale
        correction = [(P - row) @ Hbar for row in rows]
        cvd, cv, cv_kept, conditional = [], [], [], []
        for row, added in zip(rows, correction, strict=True):
            S = np.sqrt(row * P)
            out = estimate(row, S, columns, sent).numpy() + added
            # The long form of DESIGN, and the two constants: w - s where the mask drops, w + s p / (1 - p) where it keeps.
            long = row @ (H - Hbar) + P @ Hbar + S @ ((masks - 1) * H[:, None])
            constant = np.where(masks == 0, (row - S)[:, None], (row + S * p / (1 - p))[:, None])
            np.testing.assert_allclose(out, long, rtol=0, atol=1e-12)
            np.testing.assert_allclose(out, (constant * H[:, None]).sum(axis=0) + added, rtol=0, atol=1e-12)
            cvd.append(out)
            cv.append(estimate(row, None, columns, sent).numpy() + added)
            cv_kept.append(row @ H + added)
            conditional.append(out)

        def mean(values: list[np.ndarray]) -> float:
            return float(np.mean(values, axis=0) @ q)

        def variance(values: list[np.ndarray]) -> float:
            return float(np.mean((np.array(values) - mean(values)) ** 2, axis=0) @ q)

        assert abs(mean(cvd) - P @ H) < 1e-12
        assert abs(mean(cv) - P @ H) < 1e-12
        from_masks = p / (1 - p) * (P**2 * H**2)
        assert abs(variance(cvd) - (np.var(cv_kept) + from_masks.sum())) < 1e-12
        # Given the mask alone: the factor sqrt(k / deg) at the mask's term, E sqrt(f) with replacement; 1 at the self loop.
        factor = np.mean([np.sqrt(np.divide(row, P, out=np.zeros(6), where=P > 0)) for row in rows], axis=0)
        if scheme == "without-replacement":
            np.testing.assert_allclose(factor[N_0], np.sqrt(min(D, degree) / degree), rtol=0, atol=1e-12)
        given_mask = P @ H + (factor * P) @ ((masks - 1) * H[:, None])
        np.testing.assert_allclose(np.mean(conditional, axis=0), given_mask, rtol=0, atol=1e-12)
        # cv: the mask's variance is deg / k times too large at each neighbor, E c^2 deg^2 / D^2 with replacement.
        inflation = np.mean([np.divide(row, P, out=np.zeros(6), where=P > 0) ** 2 for row in rows], axis=0)
        if scheme == "without-replacement":
            np.testing.assert_allclose(inflation[N_0], degree / min(D, degree), rtol=0, atol=1e-12)
        assert abs(variance(cv) - (np.var(cv_kept) + (inflation * from_masks).sum())) < 1e-12


def test_gradient_coefficients_equal_autograd() -> None:
    """`dH[u] = sum_v (w - s + s m[u]) dA[v]`, by the compiled layer and by autograd on dense matrices."""
    A = random_adjacency(24, mean_degree=6, weighted=True, seed=3)
    graph = graph_from_dense(A)
    propagation = Propagation(graph)
    features = propagate_features(graph, propagation)
    P = dense_P(A)
    for p, activation in itertools.product((0.2, 0.5, 0.8), ("relu", "elu")):
        net = GCN(
            in_channels=3, hidden_channels=5, out_channels=2, num_layers=2, dropout=p, activation=activation,
            norm="layer", seed=2, dtype=torch.float64,
        )  # fmt: skip
        cv = ControlVariate(features, net.hidden_widths, dtype=torch.float64)
        Hbar = torch.from_numpy(RNG.normal(size=(24, 5)))
        cv.initialize([Hbar])
        sampler = NeighborSampler(propagation, num_neighbors=2, num_layers=2, seed=4)
        batch = BatchLoader(torch.arange(24), sampler, batch_size=8).batch(torch.arange(8), 3)
        W = list(net.parameters())
        ours = [net(batch, cv), *torch.autograd.grad((net(batch, cv) ** 2).sum(), W)]

        u, v, block = batch.block(1).sources, batch.block(1).targets, batch.block(1)
        P_hat = block.sampled.dense(len(u))
        Puv = torch.from_numpy(P)[v][:, u]
        S = torch.sqrt(P_hat * Puv)
        first, last = net.layer(0), net.layer(1)
        Z = torch.from_numpy(P)[u] @ graph.x @ first.weight + first.bias
        H = getattr(torch.nn.functional, activation)(first.norm(Z))  # type: ignore[misc]
        m = Dropout.at(p, seed=2, step=3, k=1).mask((len(u), 5), torch.float64)
        agg = P_hat @ H + (torch.from_numpy(P)[v] @ Hbar - P_hat @ Hbar[u]) + S @ ((m - 1) * H)
        expected = agg @ last.weight + last.bias
        theirs = [expected, *torch.autograd.grad((expected**2).sum(), W)]
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize(("dropout", "D"), [(0.0, 1), (0.0, 3), (0.5, -1)])
def test_without_dropout_or_with_all_neighbors_it_is_cv_to_the_bit(dropout: float, D: int, K: int) -> None:
    graph = graph_from_dense(random_adjacency(40, mean_degree=6, weighted=False, seed=9))
    for dtype in (torch.float32, torch.float64):
        propagation = Propagation(graph, dtype=dtype)
        features = propagate_features(graph, propagation)
        net = GCN(in_channels=3, hidden_channels=33, out_channels=2, num_layers=K, dropout=dropout, seed=2, dtype=dtype)
        sampler = NeighborSampler(propagation, num_neighbors=D, num_layers=K, seed=4)
        batch = BatchLoader(torch.arange(40), sampler, batch_size=8).batch(torch.arange(8), 3)
        results = []
        for separate in (True, False):
            cv = ControlVariate(features, net.hidden_widths, separate_dropout=separate, dtype=dtype)
            generator = torch.Generator().manual_seed(1)
            cv.initialize([torch.randn(40, 33, dtype=dtype, generator=generator) for _ in net.hidden_widths])
            logits = net(batch, cv)
            results.append([logits.detach(), *torch.autograd.grad((logits**2).sum(), list(net.parameters()))])
        for a, b in zip(*results, strict=True):
            assert torch.equal(a, b)


def test_with_dropout_and_few_neighbors_it_is_not_cv() -> None:
    graph = graph_from_dense(random_adjacency(40, mean_degree=6, weighted=False, seed=9))
    propagation = Propagation(graph)
    features = propagate_features(graph, propagation)
    net = GCN(in_channels=3, hidden_channels=4, out_channels=2, dropout=0.5, dtype=torch.float64)
    batch = BatchLoader(torch.arange(40), NeighborSampler(propagation), batch_size=8).batch(torch.arange(8), 3)
    a, b = (
        net(batch, ControlVariate(features, [4], separate_dropout=separate, dtype=torch.float64))
        for separate in (True, False)
    )
    assert (a - b).abs().max() > 1e-3


@pytest.mark.parametrize("control", [0.0, 0.3, 1.0])
def test_every_control_is_unbiased(control: float) -> None:
    """Enumerated over the draws of one target: `P^ H + c (P - P^) Hbar` has the mean `P H`."""
    A = graph_with_degree(4)
    P, N_0 = dense_P(A)[0], neighbor_lists(A)[0]
    H, Hbar = RNG.normal(size=(2, 6))
    graph = graph_from_dense(A)
    propagation = Propagation(graph)
    cv = ControlVariate(propagate_features(graph, propagation), [1], control=control, dtype=torch.float64)
    cv.initialize([torch.from_numpy(Hbar[:, None])])
    rows = [P_hat_row(dense_P(A), 0, N_0, "without-replacement", 2, d) for d in all_draws("without-replacement", 4, 2)]
    assert abs(np.mean([row @ H + control * (P - row) @ Hbar for row in rows]) - P @ H) < 1e-12
    # The shipped correction has that coefficient.
    sampler = NeighborSampler(propagation, num_neighbors=2, num_layers=2)
    batch = BatchLoader(torch.arange(6), sampler, batch_size=1).batch(torch.tensor([0]), 1)
    remainder = batch.block(1).remainder
    assert remainder is not None
    expected = control * remainder.dense(6) @ torch.from_numpy(Hbar[:, None])
    torch.testing.assert_close(cv.correction(1, batch), expected, rtol=0, atol=1e-12)
