from __future__ import annotations

import pytest
import torch

from cvgnn.errors import CvgnnError
from cvgnn.optim import ExponentialAverage, Mean, Ones, RunningMaximum, SecondMoment

NU_MIN = 0.5

# G = (2, 0.1) and then (1, 0): V_t by hand with beta2 = 0.75, and the V under the root with nu_min = 0.5.
RULES = {
    "average": (ExponentialAverage(0.75), [[1.0, 0.0025], [1.0, 0.001875]], [[1.0, 0.25], [1.0, 0.25]]),
    "maximum": (RunningMaximum(0.75), [[1.0, 0.0025], [1.0, 0.0025]], [[1.0, 0.25], [1.0, 0.25]]),
    "mean": (Mean(), [[4.0, 0.01], [2.5, 0.005]], [[4.25, 0.26], [2.75, 0.255]]),
}


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("rule", "V", "under_the_root"), RULES.values(), ids=RULES)
def test_two_steps_by_hand(rule: SecondMoment, V: list[list[float]], under_the_root: list[list[float]]) -> None:
    states = [rule.initial_state(tensor(7, 7))]
    for t, G in enumerate([tensor(2, 0.1), tensor(1, 0)]):
        before = G.clone()
        R = rule.inverse_root(states, [G], NU_MIN)
        torch.testing.assert_close(states[0]["V"], tensor(*V[t]), rtol=1e-14, atol=0)
        torch.testing.assert_close(R[0], tensor(*under_the_root[t]) ** -0.5, rtol=1e-14, atol=0)
        assert torch.equal(G, before)


@pytest.mark.parametrize("rule", [Ones(), *(row[0] for row in RULES.values())], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_initial_state_is_zero_and_named(rule: SecondMoment, dtype: torch.dtype) -> None:
    W = torch.ones(2, 3, dtype=dtype)
    state = rule.initial_state(W)
    assert tuple(state) == rule.names
    for name, value in state.items():
        if name == "t":
            assert value == 0
        else:
            assert torch.equal(value, torch.zeros_like(W))


def test_ones_costs_nothing() -> None:
    assert Ones().inverse_root([], [tensor(1, 2)], NU_MIN) is None


def test_maximum_never_falls_where_the_average_does() -> None:
    average, maximum = ExponentialAverage(0.5), RunningMaximum(0.5)
    states = [average.initial_state(tensor(0))], [maximum.initial_state(tensor(0))]
    for G, V_average, V_maximum in [(4.0, 8.0, 8.0), (0.0, 4.0, 8.0), (0.0, 2.0, 8.0), (6.0, 19.0, 19.0)]:
        average.inverse_root(states[0], [tensor(G)], NU_MIN)
        maximum.inverse_root(states[1], [tensor(G)], NU_MIN)
        assert states[0][0]["V"].item() == states[1][0]["V_hat"].item() == V_average
        assert states[1][0]["V"].item() == V_maximum


def test_mean_counts_the_gradients_of_each_parameter() -> None:
    rule = Mean()
    a, b = rule.initial_state(tensor(0)), rule.initial_state(tensor(0))
    rule.inverse_root([a], [tensor(2)], NU_MIN)
    rule.inverse_root([a, b], [tensor(4), tensor(3)], NU_MIN)
    assert (a["t"], b["t"]) == (2, 1)
    assert (a["V"].item(), b["V"].item()) == (10.0, 9.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", [row[0] for row in RULES.values()], ids=RULES)
def test_the_bound_binds_when_gradients_vanish(rule: SecondMoment, dtype: torch.dtype) -> None:
    G = [torch.tensor([0.0, 1e-15], dtype=dtype)]
    R = rule.inverse_root([rule.initial_state(G[0])], G, 1e-8)
    torch.testing.assert_close(R[0], torch.full((2,), 1e8, dtype=dtype), rtol=1e-6, atol=0)


@pytest.mark.parametrize("rule", [ExponentialAverage, RunningMaximum])
@pytest.mark.parametrize("beta2", [-0.1, 1.0, 1.5, float("nan")])
def test_beta2_out_of_range_is_refused(rule: type[ExponentialAverage], beta2: float) -> None:
    with pytest.raises(CvgnnError, match=r"beta2 must be in \[0, 1\), got "):
        rule(beta2)


def test_the_base_is_abstract() -> None:
    with pytest.raises(TypeError):
        SecondMoment()
