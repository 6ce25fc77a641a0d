"""What the control variate promises: exact with all neighbors, no variance once the histories are fresh."""

from __future__ import annotations

import pytest
import torch

from cvgnn.data import Propagation
from cvgnn.errors import CvgnnError
from cvgnn.nn import GCN, ControlVariate, Estimator, SampledSum, exact_hidden, exact_logits
from cvgnn.ops.dropout import Dropout
from cvgnn.sampling import SCHEMES, Batch, BatchLoader, NeighborSampler, propagate_features
from tests.build import graph_from_dense, random_adjacency

N = 30
GRAPH = graph_from_dense(random_adjacency(N, mean_degree=5, weighted=True, seed=8))
PROPAGATION = Propagation(GRAPH)
FEATURES = propagate_features(GRAPH, PROPAGATION)


def model(K: int, *, norm: str = "layer", dropout: float = 0.0) -> GCN:
    return GCN(
        in_channels=3, hidden_channels=5, out_channels=3, num_layers=K, norm=norm, dropout=dropout, seed=1,  # type: ignore[arg-type]
        dtype=torch.float64,
    )  # fmt: skip


def noisy_cv(net: GCN) -> ControlVariate:
    cv = ControlVariate(FEATURES, net.hidden_widths, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    cv.initialize([torch.randn(N, 5, dtype=torch.float64, generator=generator) for _ in net.hidden_widths])
    return cv


def batch(ids: list[int], K: int, D: int, *, step: int = 1, scheme: str = "without-replacement") -> Batch:
    sampler = NeighborSampler(PROPAGATION, num_neighbors=D, num_layers=K, scheme=scheme, seed=2)  # type: ignore[arg-type]
    return BatchLoader(torch.tensor(ids), sampler, batch_size=len(ids)).batch(torch.tensor(ids), step)


def output_and_gradients(net: GCN, estimator: Estimator, b: Batch) -> list[torch.Tensor]:
    logits = net(b, estimator)
    loss = torch.nn.functional.cross_entropy(b.select(logits), GRAPH.y[b.ids])
    return [logits.detach(), *torch.autograd.grad(loss, list(net.parameters()))]


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_cv_with_all_neighbors_is_exact(scheme: str, K: int) -> None:
    """Must show 3: outputs and gradients, whatever stands in the histories; and both equal full-graph autograd."""
    net, ids = model(K), [5, 0, 29, 12]
    exact = output_and_gradients(net, SampledSum(FEATURES), batch(ids, K, -1))
    cv = output_and_gradients(net, noisy_cv(net), batch(ids, K, -1, scheme=scheme))
    for a, b in zip(cv, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)

    H = GRAPH.x
    P = PROPAGATION.dense()
    for k in range(K):
        layer = net.layer(k)
        Z = P @ H @ layer.weight + (0.0 if layer.bias is None else layer.bias)  # type: ignore[operator]
        H = torch.relu(Z if layer.norm is None else layer.norm(Z))
    loss = torch.nn.functional.cross_entropy(Z[ids], GRAPH.y[ids])
    for a, b in zip(exact, [Z[ids].detach(), *torch.autograd.grad(loss, list(net.parameters()))], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("K", [2, 3, 4])
@pytest.mark.parametrize("norm", ["layer", "none"])
def test_variance_vanishes_after_K_minus_1_passes(norm: str, K: int) -> None:
    """Must show 3: frozen weights, noise in the histories, fan-out 1: exact after K - 1 passes; `ns` never is."""
    net = model(K, norm=norm)
    exact = exact_logits(net, FEATURES, PROPAGATION)
    cv, everyone = noisy_cv(net), list(range(N))

    def error(estimator: Estimator, step: int) -> float:
        b = batch(everyone, K, 1, step=step)
        with torch.no_grad():
            return float((net(b, estimator) - exact).abs().max())

    errors = []
    for step in range(1, K + 3):
        errors.append(error(cv, step))
        cv.commit(step)
    assert all(e > 1e-3 for e in errors[: K - 1]), errors
    assert all(e < 1e-10 for e in errors[K - 1 :]), errors
    assert all(error(SampledSum(FEATURES), step) > 1e-3 for step in range(1, 20))


def test_commit_writes_what_the_forward_pass_staged_and_nothing_before() -> None:
    net = model(3, dropout=0.5)
    cv = noisy_cv(net)
    before = [h.values.clone() for h in cv.histories]
    b = batch([4, 7], 3, 2, step=9)
    net.train()
    net(b, cv)
    assert all(torch.equal(h.values, old) for h, old in zip(cv.histories, before, strict=True))
    cv.commit(9)
    H1 = exact_hidden(net, FEATURES, PROPAGATION)[0][b.inputs]
    torch.testing.assert_close(cv.history(1).pull(b.block(1).sources), H1)  # before dropout
    for k, old in enumerate(before, start=1):
        touched = torch.zeros(N, dtype=torch.bool)
        touched[b.block(k).sources] = True
        assert torch.equal(cv.history(k).values[~touched], old[~touched])
        assert cv.history(k).age(9)[touched].eq(0).all()
        assert cv.history(k).age(9)[~touched].eq(9).all()
    values = cv.history(1).values.clone()
    cv.commit(10)  # nothing staged, nothing written
    assert torch.equal(cv.history(1).values, values)
    assert cv.history(1).age(10).min() == 1


def test_initialisation_by_an_exact_pass_makes_the_first_step_exact() -> None:
    net = model(3)
    cv = ControlVariate(FEATURES, net.hidden_widths, dtype=torch.float64)
    cv.initialize(exact_hidden(net, FEATURES, PROPAGATION))
    ids = [1, 2, 3]
    torch.testing.assert_close(
        net(batch(ids, 3, 1), cv).detach(), exact_logits(net, FEATURES, PROPAGATION)[ids], rtol=0, atol=1e-10
    )


def test_bfloat16_histories_stay_close() -> None:
    net = model(2).float()
    features = propagate_features(GRAPH, Propagation(GRAPH, dtype=torch.float32))
    outputs = []
    for storage in (torch.float32, torch.bfloat16):
        cv = ControlVariate(features, net.hidden_widths, storage=storage)
        cv.initialize([torch.full((N, 5), 1 / 3)])
        sampler = NeighborSampler(Propagation(GRAPH, dtype=torch.float32), num_neighbors=1, num_layers=2)
        outputs.append(net(BatchLoader(torch.arange(N), sampler, batch_size=N).batch(torch.arange(N), 1), cv))
    difference = (outputs[0] - outputs[1]).abs().max()
    assert 0 < difference < 0.02


def test_state_round_trip_continues_identically() -> None:
    net = model(3)
    a, b = noisy_cv(net), ControlVariate(FEATURES, net.hidden_widths, dtype=torch.float64)
    net(batch([1, 2], 3, 2), a)
    a.commit(1)
    state = {name: t.clone() for name, t in a.state_dict().items()}
    assert sorted(state) == [
        "histories.0.values",
        "histories.0.written",
        "histories.1.values",
        "histories.1.written",
    ]
    b.load_state_dict(state)
    later = batch([3, 1], 3, 1, step=2)
    assert torch.equal(net(later, a), net(later, b))


def test_refused() -> None:
    net = model(2)
    sampler = NeighborSampler(PROPAGATION, num_neighbors=1, num_layers=2, control=False)
    b = BatchLoader(torch.tensor([0]), sampler, batch_size=1).batch(torch.tensor([0]), 1)
    with pytest.raises(CvgnnError, match="needs a NeighborSampler with control=True"):
        net(b, noisy_cv(net))
    with pytest.raises(CvgnnError, match=r"the state holds histories\.0\.values, which this estimator does not have"):
        SampledSum(FEATURES).load_state_dict({"histories.0.values": torch.zeros(1)})
    assert SampledSum(FEATURES).state_dict() == {}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            ControlVariate(FEATURES, [3]),
            r"histories\.0\.values is torch\.float64 \[30, 3\] in the state, torch\.float64 \[30, 4\] in this run",
        ),
        (
            ControlVariate(FEATURES, [4], storage=torch.bfloat16),
            r"histories\.0\.values is torch\.bfloat16 \[30, 4\] in the state, torch\.float64 \[30, 4\] in this run",
        ),
    ],
    ids=["width", "storage"],
)
def test_a_state_of_another_shape_or_dtype_is_refused(other: ControlVariate, said: str) -> None:
    """torch alone would convert a dtype in silence. Nothing is loaded."""
    cv = ControlVariate(FEATURES, [4])
    state = other.state_dict()
    state["histories.0.written"] = torch.ones(N, dtype=torch.int64)
    with pytest.raises(CvgnnError, match=said):
        cv.load_state_dict(state)
    assert not cv.history(1).written.any()


def test_an_aggregate_for_a_forward_pass_of_ones_own() -> None:
    """`aggregate` gives what the network's own pass gets, dropout included, and stages the same writes."""
    net = model(3, dropout=0.4).train()
    b = batch([4, 7, 9], 3, 2, step=5)
    drops = [Dropout.at(0.4, seed=1, step=5, k=k) for k in (1, 2)]
    mine, theirs = noisy_cv(net), noisy_cv(net)
    S = FEATURES.rows(b.inputs)
    for k in range(3):
        layer = net.layer(k)
        Z = S @ layer.weight + layer.bias  # type: ignore[operator]
        if k < 2:
            S = mine.aggregate(k + 1, b, torch.relu(layer.norm(Z)), drop=drops[k])  # type: ignore[misc]
    logits = net(b, theirs)
    torch.testing.assert_close(Z, logits, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(out.square().sum(), list(net.parameters())) for out in (Z, logits)]
    for ours, fused in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, fused, rtol=0, atol=1e-11)
    for ours, fused in zip(mine.staged(), theirs.staged(), strict=True):
        torch.testing.assert_close(ours, fused, rtol=0, atol=1e-12)
        assert not ours.requires_grad


def test_the_dtype_is_the_features() -> None:
    assert ControlVariate(FEATURES, [4]).history(1).values.dtype == torch.float64


def test_a_state_of_another_depth_is_refused() -> None:
    state = ControlVariate(FEATURES, [4, 4]).state_dict()
    with pytest.raises(
        CvgnnError, match=r"the state holds histories\.1\.values, histories\.1\.written, which this estimator"
    ):
        ControlVariate(FEATURES, [4]).load_state_dict(state)
    with pytest.raises(CvgnnError, match=r"the state lacks histories\.0\.values"):
        ControlVariate(FEATURES, [4]).load_state_dict({})
    with pytest.raises(CvgnnError, match="widths must list the width of each hidden layer, not 4"):
        ControlVariate(FEATURES, 4)  # type: ignore[arg-type]
