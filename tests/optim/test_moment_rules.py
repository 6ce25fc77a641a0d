from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops import backend
from cvgnn.ops.optimizer_step import StepCoefficients, optimizer_step
from cvgnn.optim import (
    AdamType,
    CorrectedAverage,
    CorrectedMaximum,
    CorrectedMomentum,
    ExponentialAverage,
    FirstMoment,
    Mean,
    Momentum,
    Ones,
    RunningMaximum,
    SecondMoment,
    Sum,
    UndampedMomentum,
)
from cvgnn.optim.moment_rules import check_hyperparameter

NU_MIN = 0.5

# G = (2, 0.1) and then (1, 0): V_t by hand with beta2 = 0.75, and what the step divides by with nu_min = 0.5.
RULES = {
    "average": (ExponentialAverage(0.75), [[1.0, 0.0025], [1.0, 0.001875]], [[1.0, 0.5], [1.0, 0.5]]),
    "maximum": (RunningMaximum(0.75), [[1.0, 0.0025], [1.0, 0.0025]], [[1.0, 0.5], [1.0, 0.5]]),
    "mean": (Mean(), [[4.0, 0.01], [2.5, 0.005]], [[4.25**0.5, 0.26**0.5], [2.75**0.5, 0.255**0.5]]),
    # 1 - beta2^t = 0.25 and 0.4375
    "torch's average": (
        CorrectedAverage(0.75),
        [[1.0, 0.0025], [1.0, 0.001875]],
        [[2.5, 0.6], [(1 / 0.4375) ** 0.5 + 0.5, (0.001875 / 0.4375) ** 0.5 + 0.5]],
    ),
    "torch's maximum": (
        CorrectedMaximum(0.75),
        [[1.0, 0.0025], [1.0, 0.0025]],
        [[2.5, 0.6], [(1 / 0.4375) ** 0.5 + 0.5, (0.0025 / 0.4375) ** 0.5 + 0.5]],
    ),
    "torch's sum": (Sum(), [[4.0, 0.01], [5.0, 0.01]], [[2.5, 0.6], [5**0.5 + 0.5, 0.6]]),
}
BOUNDED = {name: row for name, row in RULES.items() if "torch" not in name}


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def start(rule: SecondMoment, like: Tensor) -> dict[str, Tensor]:
    return {name: torch.zeros_like(like) for name in rule.names if name != "t"}


def divisor(rule: SecondMoment, state: dict[str, Tensor], G: Tensor, nu_min: float, t: int) -> Tensor:
    """Move the state to `V_t`, and what the step divides by: `M` stays 1, so that `W` moves by its reciprocal."""
    W, M = torch.zeros_like(G), torch.ones_like(G)
    coefficients = StepCoefficients(lr=1.0, m_gain=0.0, **rule.coefficients(nu_min, t))
    V, V_hat = ([state[name]] if name in state else [] for name in ("V", "V_hat"))
    optimizer_step([W], [G], [M], V, V_hat, coefficients)
    return -1 / W


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("rule", "V", "expected"), RULES.values(), ids=RULES)
def test_two_steps_by_hand(
    rule: SecondMoment, V: list[list[float]], expected: list[list[float]], compiled: bool
) -> None:
    state = start(rule, tensor(7, 7))
    for t, G in enumerate([tensor(2, 0.1), tensor(1, 0)]):
        before = G.clone()
        with contextlib.nullcontext() if compiled else backend.plain():
            D = divisor(rule, state, G, NU_MIN, t + 1)
        torch.testing.assert_close(state["V"], tensor(*V[t]), rtol=1e-14, atol=0)
        torch.testing.assert_close(D, tensor(*expected[t]), rtol=1e-14, atol=0)
        assert torch.equal(G, before)


@pytest.mark.parametrize("rule", [Ones(), *(row[0] for row in RULES.values())], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_state_starts_at_zero_and_is_named(rule: SecondMoment, dtype: torch.dtype) -> None:
    W = torch.ones(2, 3, dtype=dtype, requires_grad=True)
    W.grad = torch.zeros_like(W)
    optimizer = AdamType([W], lr=0.1, beta1=0.0, second_moment=rule)
    optimizer.step()
    state = optimizer.state.get(W, {})
    assert tuple(state) == rule.names
    for name, value in state.items():
        if name == "t":
            assert value == 1
        else:
            assert torch.equal(value, torch.zeros_like(W))
            assert value.dtype == dtype


def test_ones_costs_nothing() -> None:
    assert Ones().names == ()


def test_maximum_never_falls_where_the_average_does() -> None:
    average, maximum = ExponentialAverage(0.5), RunningMaximum(0.5)
    states = start(average, tensor(0)), start(maximum, tensor(0))
    rows = [(4.0, 8.0, 8.0), (0.0, 4.0, 8.0), (0.0, 2.0, 8.0), (6.0, 19.0, 19.0)]
    for t, (G, V_average, V_maximum) in enumerate(rows, start=1):
        divisor(average, states[0], tensor(G), NU_MIN, t)
        divisor(maximum, states[1], tensor(G), NU_MIN, t)
        assert states[0]["V"].item() == states[1]["V_hat"].item() == V_average
        assert states[1]["V"].item() == V_maximum


def test_mean_counts_the_gradients_of_each_parameter() -> None:
    a, b = tensor(0).requires_grad_(), tensor(0).requires_grad_()
    optimizer = AdamType([a, b], lr=0.1, beta1=0.0, second_moment=Mean())
    a.grad = tensor(2)
    optimizer.step()
    a.grad, b.grad = tensor(4), tensor(3)
    optimizer.step()
    assert [optimizer.state[w]["t"] for w in (a, b)] == [2, 1]
    assert [optimizer.state[w]["V"].item() for w in (a, b)] == [10.0, 9.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", [row[0] for row in BOUNDED.values()], ids=BOUNDED)
def test_the_bound_binds_when_gradients_vanish(rule: SecondMoment, dtype: torch.dtype) -> None:
    G = torch.tensor([0.0, 1e-15], dtype=dtype)
    D = divisor(rule, start(rule, G), G, 1e-8, 1)
    torch.testing.assert_close(D, torch.full((2,), 1e-8, dtype=dtype), rtol=1e-6, atol=0)


@pytest.mark.parametrize("rule", [ExponentialAverage, RunningMaximum, CorrectedAverage, CorrectedMaximum])
@pytest.mark.parametrize("beta2", [-0.1, 1.0, 1.5, float("nan")])
def test_beta2_out_of_range_is_refused(rule: type[ExponentialAverage], beta2: float) -> None:
    with pytest.raises(CvgnnError, match=r"beta2 must be in \[0, 1\), got "):
        rule(beta2)


@pytest.mark.parametrize("rule", [row[0] for row in RULES.values()], ids=RULES)
def test_only_torchs_rules_do_without_a_bound(rule: SecondMoment) -> None:
    with pytest.raises(CvgnnError, match="nu_min must be finite"):
        rule.check(nu_min=-1.0)
    if rule in [row[0] for row in BOUNDED.values()]:
        with pytest.raises(CvgnnError, match=r"nu_min must be finite and at least .*, got 0.0; "):
            rule.check(nu_min=0.0)
    else:
        rule.check(nu_min=0.0)


@pytest.mark.parametrize("base", [FirstMoment, SecondMoment])
def test_the_bases_are_abstract(base: type) -> None:
    with pytest.raises(TypeError):
        base()


# G = (2, 4, 0) with beta1 = 0.75: M_t by hand, and M_t as it enters the step.
FIRST_RULES = {
    "paper": (Momentum(), [0.5, 1.375, 1.03125], [0.5, 1.375, 1.03125]),
    "torch's Adam": (CorrectedMomentum(), [0.5, 1.375, 1.03125], [2.0, 1.375 / 0.4375, 1.03125 / 0.578125]),
    "torch's SGD": (UndampedMomentum(), [2.0, 2.5, 1.875], [2.0, 2.5, 1.875]),
}


@pytest.mark.parametrize(("rule", "moments", "entering"), FIRST_RULES.values(), ids=FIRST_RULES)
def test_first_moment_three_steps_by_hand(rule: FirstMoment, moments: list[float], entering: list[float]) -> None:
    M = torch.zeros(1, dtype=torch.float64)
    for t, G in enumerate([2.0, 4.0, 0.0], start=1):
        W = torch.zeros(1, dtype=torch.float64)
        gain, correction = rule.gain_and_divisor(0.75, t)
        optimizer_step([W], [torch.full_like(W, G)], [M], [], [], StepCoefficients(1 / correction, m_gain=gain))
        assert M.item() == moments[t - 1]
        assert -W.item() == pytest.approx(entering[t - 1], rel=1e-15)


@pytest.mark.parametrize("rule", [row[0] for row in FIRST_RULES.values()], ids=FIRST_RULES)
def test_without_a_past_it_is_the_gradient(rule: FirstMoment) -> None:
    for t in range(1, 4):
        assert rule.gain_and_divisor(0.0, t) == (1.0, 1.0)


INF, NAN = float("inf"), float("nan")
RANGES = {
    "lr": ([1e-30, 0.1, 1e3], [0.0, -0.1, INF, NAN]),
    "beta1": ([0.0, 0.9, 0.999999], [-1e-9, 1.0, 2.0, INF, NAN]),
    "beta2": ([0.0, 0.999], [-0.1, 1.0, 1.5, NAN]),
    "weight_decay": ([0.0, 5e-4, 2.0], [-5e-4, INF, NAN]),
    "nu_min": ([2.0**-63, 1e-8, 1.0], [0.0, -1e-8, 1e-20, INF, NAN]),
    "eps": ([0.0, 1e-20, 1e-8], [-1e-8, INF, NAN]),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (good, _) in RANGES.items() for value in good])
def test_values_in_range_pass(name: str, value: float) -> None:
    check_hyperparameter(name, value)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (_, bad) in RANGES.items() for value in bad])
def test_values_out_of_range_are_named(name: str, value: float) -> None:
    with pytest.raises(CvgnnError) as caught:
        check_hyperparameter(name, value)
    assert str(caught.value).startswith(("nu_min" if name == "eps" else name) + " must be ")
    assert f"got {value!r}; " in str(caught.value)
