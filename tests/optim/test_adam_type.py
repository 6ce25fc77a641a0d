from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from cvgnn.errors import CvgnnError
from cvgnn.optim import (
    OPTIMIZERS,
    AdamType,
    ExponentialAverage,
    Mean,
    Ones,
    ReferenceOptimizer,
    RunningMaximum,
    make_optimizer,
)

from .variants import arrays, gradients, parameters, set_gradients

STATE = {
    "sgd": [],
    "heavy-ball": ["M"],
    "adam": ["M", "V"],
    "amsgrad": ["M", "V", "V_hat"],
    "adagrad": ["M", "V", "t"],
}
ALL = pytest.mark.parametrize("name", OPTIMIZERS)


def make(name: str, W, **options) -> AdamType:
    optimizer = make_optimizer(name, W, form="paper", **{"lr": 0.05, "weight_decay": 0.01, **options})
    assert type(optimizer) is AdamType
    return optimizer


def run(optimizer: AdamType, W: list[torch.Tensor], steps: range) -> None:
    for t in steps:
        set_gradients(W, t)
        optimizer.step()


def same(A, B) -> bool:
    return all(torch.equal(a, b) for a, b in zip(A, B, strict=True))


@ALL
def test_state_comes_with_the_first_gradient(name: str) -> None:
    W = parameters()
    optimizer = make(name, W)
    assert not optimizer.state
    optimizer.step()
    assert not optimizer.state
    run(optimizer, W, range(1))
    assert [sorted(state) for state in optimizer.state.values()] == [STATE[name]] * (len(W) if STATE[name] else 0)


@pytest.mark.parametrize("rule", [Ones(), ExponentialAverage(0.9), RunningMaximum(0.9), Mean()])
def test_without_momentum_there_is_no_buffer(rule) -> None:
    W = parameters()
    optimizer = AdamType(W, lr=0.1, beta1=0.0, second_moment=rule)
    run(optimizer, W, range(3))
    assert all("M" not in state for state in optimizer.state.values())


@ALL
def test_gradients_belong_to_the_user(name: str) -> None:
    W = parameters()
    optimizer = make(name, W)
    for t in range(3):
        G = set_gradients(W, t)
        optimizer.step()
        assert all(w.grad is g for w, g in zip(W, G, strict=True))
        assert same(G, gradients(W, t))


@ALL
def test_parameters_without_gradient_are_skipped(name: str) -> None:
    # Each parameter must walk as if it were alone and the steps without a gradient had never been.
    W = parameters()
    optimizer = make(name, W)
    alone = [ReferenceOptimizer(name, "paper", lr=0.05, weight_decay=0.01) for _ in W]
    expected = arrays(W)
    for t in range(12):
        G = set_gradients(W, t)
        for j, w in enumerate(W):
            if (t + j) % 3 == 0:
                w.grad = None
            else:
                expected[j] = alone[j].step([expected[j]], arrays([G[j]]))[0]
        optimizer.step()
    for w, value in zip(W, expected, strict=True):
        np.testing.assert_allclose(w.detach().numpy(), value, rtol=1e-12, atol=1e-14)


@ALL
def test_a_saved_run_resumes_bit_for_bit(name: str) -> None:
    W = parameters()
    optimizer = make(name, W)
    run(optimizer, W, range(7))
    saved = copy.deepcopy(optimizer.state_dict())
    W_resumed = [w.detach().clone().requires_grad_() for w in W]
    run(optimizer, W, range(7, 15))

    resumed = make(name, W_resumed, lr=1.0, weight_decay=0.0)  # the saved numbers must win
    resumed.load_state_dict(saved)
    run(resumed, W_resumed, range(7, 15))
    assert same(W, W_resumed)
    assert resumed.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    for w, w_resumed in zip(W, W_resumed, strict=True):
        for key in STATE[name]:
            left, right = optimizer.state[w][key], resumed.state[w_resumed][key]
            assert left == right if key == "t" else torch.equal(left, right)


@ALL
def test_a_copy_of_the_optimizer_steps_alike(name: str) -> None:
    W = parameters()
    optimizer = make(name, W)
    run(optimizer, W, range(3))
    twin = copy.deepcopy(optimizer)
    W_twin = twin.param_groups[0]["params"]
    run(optimizer, W, range(3, 6))
    run(twin, W_twin, range(3, 6))
    assert same(W, W_twin)


@ALL
def test_state_is_tensors_and_numbers_only(name: str) -> None:
    W = parameters(dtype=torch.float32)
    optimizer = make(name, W)
    run(optimizer, W, range(2))
    saved = optimizer.state_dict()
    for j, state in saved["state"].items():
        for key, value in state.items():
            assert type(value) is (int if key == "t" else torch.Tensor)
            if key != "t":
                assert (value.dtype, value.shape, value.requires_grad) == (torch.float32, W[j].shape, False)
    for group in saved["param_groups"]:
        assert sorted(group) == ["beta1", "lr", "nu_min", "params", "weight_decay"]
        assert all(type(value) is float for key, value in group.items() if key != "params")


def test_a_state_of_another_rule_is_refused() -> None:
    W = parameters()
    adam, amsgrad = make("adam", W), make("amsgrad", W)
    run(adam, W, range(1))
    with pytest.raises(CvgnnError, match=r"must hold \['V', 'V_hat'\] for the rule RunningMaximum, got \['V'\]; "):
        amsgrad.load_state_dict(adam.state_dict())
    assert not amsgrad.state
    torch_adam = make_optimizer("adam", W, lr=0.1)
    with pytest.raises(CvgnnError, match=r"must come from an AdamType optimizer, .* has no beta1, nu_min; "):
        adam.load_state_dict(torch_adam.state_dict())


@ALL
def test_each_group_has_its_own_numbers(name: str) -> None:
    W = parameters()
    beta1 = 0.0 if name == "sgd" else 0.5
    own = {"lr": 0.2, "beta1": beta1, "weight_decay": 0.1, "nu_min": 0.3}
    optimizer = make(name, [{"params": W[:2]}, {"params": W[2:3], **own}])
    optimizer.add_param_group({"params": W[3], "lr": 0.5})
    references = [
        ReferenceOptimizer(name, "paper", lr=0.05, weight_decay=0.01),
        ReferenceOptimizer(name, "paper", **own),
        ReferenceOptimizer(name, "paper", lr=0.5, weight_decay=0.01),
    ]
    members = [slice(0, 2), slice(2, 3), slice(3, 4)]
    expected = arrays(W)
    for t in range(10):
        G = arrays(set_gradients(W, t))
        optimizer.step()
        for reference, member in zip(references, members, strict=True):
            expected[member] = reference.step(expected[member], G[member])
    for w, value in zip(W, expected, strict=True):
        np.testing.assert_allclose(w.detach().numpy(), value, rtol=1e-12, atol=1e-14)


@ALL
def test_a_group_may_join_later(name: str) -> None:
    W = parameters()
    optimizer = make(name, W[:2])
    run(optimizer, W[:2], range(2))
    optimizer.add_param_group({"params": W[2:], "lr": 0.5})
    run(optimizer, W, range(2, 4))
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.5]
    assert optimizer.param_groups[1]["weight_decay"] == 0.01
    if name == "adagrad":
        assert [optimizer.state[w]["t"] for w in W] == [4, 4, 2, 2]


@ALL
def test_lr_schedulers_work(name: str) -> None:
    W = parameters()
    optimizer, reference = make(name, W), ReferenceOptimizer(name, "paper", lr=0.05, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    expected = arrays(W)
    for t in range(9):
        reference.lr = 0.05 * (1 + np.cos(np.pi * t / 8)) / 2
        G = set_gradients(W, t)
        optimizer.step()
        scheduler.step()
        expected = reference.step(expected, arrays(G))
    for w, value in zip(W, expected, strict=True):
        np.testing.assert_allclose(w.detach().numpy(), value, rtol=1e-12, atol=1e-14)


def test_closure_and_hooks() -> None:
    W = torch.tensor([3.0, -1.0], requires_grad=True)
    optimizer = AdamType([W], lr=0.25, beta1=0.0, second_moment=Ones())
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (W**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 10.0
    assert torch.equal(W.detach(), torch.tensor([1.5, -0.5]))
    with torch.no_grad():  # the closure must have gradients even here
        assert optimizer.step(closure).item() == 2.5
    assert optimizer.step() is None
    assert calls == ["before", "after"] * 3


@ALL
def test_float32_and_float64_may_share_a_group(name: str) -> None:
    W = [*parameters([(3,)], dtype=torch.float32), *parameters([(3,)], dtype=torch.float64)]
    start = [w.detach().clone().double() for w in W]
    optimizer = make(name, W, weight_decay=0.0)
    for _ in range(5):
        for w in W:
            w.grad = torch.tensor([1.0, -2.0, 0.5], dtype=w.dtype)
        optimizer.step()
    moved = [w.detach().double() - w_1 for w, w_1 in zip(W, start, strict=True)]
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-4, atol=1e-6)
    assert [w.dtype for w in W] == [torch.float32, torch.float64]


@pytest.mark.parametrize("rule", [ExponentialAverage(0.999), RunningMaximum(0.999), Mean()])
def test_entries_that_never_see_a_gradient_stay_put(rule) -> None:
    W = torch.tensor([1.0, 2.0], requires_grad=True)
    optimizer = AdamType([W], lr=0.1, second_moment=rule, nu_min=2.0**-63)
    for _ in range(3):
        W.grad = torch.tensor([0.0, 1e-12])
        optimizer.step()
    assert W[0].item() == 1.0
    assert torch.isfinite(W).all()


@pytest.mark.parametrize("rule", [ExponentialAverage(0.999), RunningMaximum(0.999), Mean()])
def test_the_bound_turns_tiny_gradients_into_plain_momentum(rule) -> None:
    # Where nu_min^2 is all of V, the step is lr / nu_min times the gradient.
    W = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = AdamType([W], lr=0.1, beta1=0.0, second_moment=rule, nu_min=0.5)
    W.grad = torch.tensor([1e-9, -2e-9, 0.0], dtype=torch.float64)
    optimizer.step()
    np.testing.assert_allclose(W.detach().numpy(), [-2e-10, 4e-10, 0.0], rtol=1e-12)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("lr", 0.0), ("lr", float("inf")), ("beta1", 1.0), ("nu_min", 0.0), ("nu_min", 1e-20), ("weight_decay", -1.0)],
)
def test_numbers_out_of_range_are_refused(argument: str, value: float) -> None:
    W = parameters()
    sentence = f"^{argument} must be .*, got {value!r}; "
    with pytest.raises(CvgnnError, match=sentence):
        AdamType(W, **{"lr": 0.1, "second_moment": Ones(), argument: value})
    optimizer = AdamType(W[:1], lr=0.1, second_moment=Ones())
    with pytest.raises(CvgnnError, match=sentence):
        optimizer.add_param_group({"params": W[1:], argument: value})
    assert len(optimizer.param_groups) == 1


def test_it_trains() -> None:
    for name in OPTIMIZERS:
        W = torch.full((4,), 5.0, requires_grad=True)
        optimizer = make(name, [W], lr=0.1, weight_decay=0.0)
        for _ in range(400):
            optimizer.zero_grad()
            ((W - 1) ** 2).sum().backward()
            optimizer.step()
        torch.testing.assert_close(W.detach(), torch.ones(4), rtol=0, atol=0.1)
