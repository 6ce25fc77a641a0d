from __future__ import annotations

import contextlib
import copy

import numpy as np
import pytest
import torch
from torch.optim import optimizer as torch_optimizer

from cvgnn.errors import CvgnnError
from cvgnn.ops import backend
from cvgnn.optim import (
    AdamType,
    CorrectedAverage,
    CorrectedMomentum,
    ExponentialAverage,
    Mean,
    Ones,
    RunningMaximum,
    make_optimizer,
)
from cvgnn.reference.optimizers import ReferenceOptimizer

from .variants import VARIANTS, arrays, gradients, parameters, set_gradients, used

STATE = {
    ("sgd", "paper"): [],
    ("heavy-ball", "paper"): ["M"],
    ("adam", "paper"): ["M", "V"],
    ("amsgrad", "paper"): ["M", "V", "V_hat"],
    ("adagrad", "paper"): ["M", "V", "t"],
    ("sgd", "torch"): [],
    ("heavy-ball", "torch"): ["M", "t"],
    ("adam", "torch"): ["M", "V", "t"],
    ("amsgrad", "torch"): ["M", "V", "V_hat", "t"],
    ("adagrad", "torch"): ["V"],
}
ALL = pytest.mark.parametrize(("name", "form"), VARIANTS)


def make(name: str, form: str, W, **options) -> AdamType:
    numbers = {"lr": 0.05, "weight_decay": 0.01, **used(name, form, nu_min=1e-8), **options}
    optimizer = make_optimizer(name, W, form=form, **numbers)
    assert type(optimizer) is AdamType
    return optimizer


def run(optimizer: AdamType, W: list[torch.Tensor], steps: range) -> None:
    for t in steps:
        set_gradients(W, t)
        optimizer.step()


def same(A, B) -> bool:
    return all(torch.equal(a, b) for a, b in zip(A, B, strict=True))


@ALL
def test_state_comes_with_the_first_gradient(name: str, form: str) -> None:
    W = parameters()
    optimizer = make(name, form, W)
    assert not optimizer.state
    optimizer.step()
    assert not optimizer.state
    run(optimizer, W, range(1))
    assert [sorted(state) for state in optimizer.state.values()] == [STATE[name, form]] * (
        len(W) if STATE[name, form] else 0
    )


@pytest.mark.parametrize("rule", [Ones(), ExponentialAverage(0.9), RunningMaximum(0.9), Mean()])
def test_without_momentum_there_is_no_buffer(rule) -> None:
    W = parameters()
    optimizer = AdamType(W, lr=0.1, beta1=0.0, second_moment=rule)
    run(optimizer, W, range(3))
    assert all("M" not in state for state in optimizer.state.values())


@ALL
def test_gradients_belong_to_the_user(name: str, form: str) -> None:
    W = parameters()
    optimizer = make(name, form, W)
    for t in range(3):
        G = set_gradients(W, t)
        optimizer.step()
        assert all(w.grad is g for w, g in zip(W, G, strict=True))
        assert same(G, gradients(W, t))


@ALL
def test_parameters_without_gradient_are_skipped(name: str, form: str) -> None:
    # Each parameter must walk as if it were alone and the steps without a gradient had never been.
    W = parameters()
    optimizer = make(name, form, W)
    alone = [ReferenceOptimizer(name, form, lr=0.05, weight_decay=0.01) for _ in W]
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
def test_a_saved_run_resumes_bit_for_bit(name: str, form: str) -> None:
    W = parameters()
    optimizer = make(name, form, W)
    run(optimizer, W, range(7))
    saved = copy.deepcopy(optimizer.state_dict())
    W_resumed = [w.detach().clone().requires_grad_() for w in W]
    run(optimizer, W, range(7, 15))

    resumed = make(name, form, W_resumed, lr=1.0, weight_decay=0.0)  # the saved numbers must win
    resumed.load_state_dict(saved)
    run(resumed, W_resumed, range(7, 15))
    assert same(W, W_resumed)
    assert resumed.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    for w, w_resumed in zip(W, W_resumed, strict=True):
        for key in STATE[name, form]:
            left, right = optimizer.state[w][key], resumed.state[w_resumed][key]
            assert left == right if key == "t" else torch.equal(left, right)


@ALL
def test_a_copy_of_the_optimizer_steps_alike(name: str, form: str) -> None:
    W = parameters()
    optimizer = make(name, form, W)
    run(optimizer, W, range(3))
    twin = copy.deepcopy(optimizer)
    W_twin = twin.param_groups[0]["params"]
    run(optimizer, W, range(3, 6))
    run(twin, W_twin, range(3, 6))
    assert same(W, W_twin)


@ALL
def test_state_is_tensors_and_numbers_only(name: str, form: str) -> None:
    W = parameters(dtype=torch.float32)
    optimizer = make(name, form, W)
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
    adam, amsgrad = make("adam", "paper", W), make("amsgrad", "paper", W)
    run(adam, W, range(1))
    with pytest.raises(CvgnnError, match=r"must hold \['V', 'V_hat'\] for the rule RunningMaximum, got \['V'\]; "):
        amsgrad.load_state_dict(adam.state_dict())
    assert not amsgrad.state
    torch_form = make_optimizer("adam", W, lr=0.1)
    run(torch_form, W, range(1))
    with pytest.raises(CvgnnError, match=r"must hold \['V'\] for the rule ExponentialAverage, got \['V', 't'\]; "):
        adam.load_state_dict(torch_form.state_dict())
    torch_adam = torch.optim.Adam(W, lr=0.1)
    with pytest.raises(CvgnnError, match=r"must come from an AdamType optimizer, .* has no beta1, nu_min; "):
        adam.load_state_dict(torch_adam.state_dict())


@ALL
def test_each_group_has_its_own_numbers(name: str, form: str) -> None:
    W = parameters()
    beta1 = 0.5 if "M" in STATE[name, form] else 0.0
    own = {"lr": 0.2, "beta1": beta1, "weight_decay": 0.1, "nu_min": 0.3}
    optimizer = make(name, form, [{"params": W[:2]}, {"params": W[2:3], **own}])
    optimizer.add_param_group({"params": W[3], "lr": 0.5})
    references = [
        ReferenceOptimizer(name, form, lr=0.05, weight_decay=0.01),
        ReferenceOptimizer(name, form, **own),
        ReferenceOptimizer(name, form, lr=0.5, weight_decay=0.01),
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
def test_a_group_may_join_later(name: str, form: str) -> None:
    W = parameters()
    optimizer = make(name, form, W[:2])
    run(optimizer, W[:2], range(2))
    optimizer.add_param_group({"params": W[2:], "lr": 0.5})
    run(optimizer, W, range(2, 4))
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.5]
    assert optimizer.param_groups[1]["weight_decay"] == 0.01
    if "t" in STATE[name, form]:
        assert [optimizer.state[w]["t"] for w in W] == [4, 4, 2, 2]


@ALL
def test_lr_schedulers_work(name: str, form: str) -> None:
    W = parameters()
    optimizer, reference = make(name, form, W), ReferenceOptimizer(name, form, lr=0.05, weight_decay=0.01)
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


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_a_hook_of_all_optimizers_is_called_until_it_is_removed(kind: str) -> None:
    W = torch.ones(2, requires_grad=True)
    optimizer = make("adam", "torch", [W])
    W.grad = torch.ones(2)
    calls = []
    handle = getattr(torch_optimizer, f"register_optimizer_step_{kind}_hook")(lambda *_: calls.append(kind))
    try:
        optimizer.step()
    finally:
        handle.remove()
    optimizer.step()
    assert calls == [kind]


def test_the_profiler_sees_a_step() -> None:
    W = torch.ones(2, requires_grad=True)
    optimizer = make("adam", "torch", [W])
    W.grad = torch.ones(2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as seen:
        optimizer.step()
    assert "Optimizer.step#AdamType.step" in {event.key for event in seen.key_averages()}


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_a_hook_is_called_until_it_is_removed(kind: str) -> None:
    W = torch.ones(2, requires_grad=True)
    optimizer = make("adam", "torch", [W])
    calls = []
    handle = getattr(optimizer, f"register_step_{kind}_hook")(lambda *_: calls.append(kind))
    W.grad = torch.ones(2)
    for _ in range(3):
        optimizer.step()
    assert len(calls) == 3
    handle.remove()
    optimizer.step()
    assert len(calls) == 3


def test_zero_grad() -> None:
    W = torch.ones(2, requires_grad=True)
    optimizer = make("sgd", "torch", [W])
    W.grad = torch.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert W.grad.tolist() == [0, 0]
    W.grad = torch.ones(3, 2)[1]  # a view, as some of ours are
    optimizer.zero_grad(set_to_none=False)
    assert W.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert W.grad is None
    optimizer.zero_grad(set_to_none=False)
    assert W.grad is None


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_zero_grad_cuts_the_graph_of_a_gradient() -> None:
    W = torch.ones(2, requires_grad=True)
    optimizer = make("sgd", "torch", [W])
    (W**3).sum().backward(create_graph=True)
    assert W.grad.grad_fn is not None
    optimizer.zero_grad(set_to_none=False)
    assert (W.grad.tolist(), W.grad.grad_fn, W.grad.requires_grad) == ([0, 0], None, False)


NOT_A_LEAF = torch.ones(2, requires_grad=True) * 2
W_1, W_2 = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
BAD_GROUPS = {
    "no dict": ([W_2], r"param_group must be a dict with the key 'params', got \[.*; write "),
    "no params": ({"lr": 0.1}, r"param_group must be a dict with the key 'params', got {'lr': 0.1}; write "),
    "a set": ({"params": {W_2}}, "params must have an order, got a set of 1; pass a list"),
    "no tensor": ({"params": [W_2, 0.5]}, r"params must hold tensors, got float at number 1; pass model.parameters\(\)"),
    "no leaf": ({"params": NOT_A_LEAF}, r"params must hold leaf tensors, got the result .* shape \[2\] at number 0; pass "),
    "twice in a group": ({"params": [W_2, W_2]}, r"every parameter once, but number 1 of the group, of shape \[3\], "),
    "in another group": ({"params": [W_2, W_1]}, r"every parameter once, but number 1 of the group, of shape \[2\], "),
    "some names": ({"params": [("W", W_2), NOT_A_LEAF]}, "named all or none, got 1 names for 2 tensors; pass "),
    "names here alone": ({"params": [("W", W_2)]}, "named in all groups or in none, and the first group has none; pass "),
}  # fmt: skip


@pytest.mark.parametrize(("group", "sentence"), BAD_GROUPS.values(), ids=BAD_GROUPS)
def test_groups_that_cannot_be(group, sentence: str) -> None:
    optimizer = AdamType([W_1], lr=0.1, second_moment=Ones())
    with pytest.raises(CvgnnError, match=sentence):
        optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 1


def test_a_result_that_keeps_its_gradient_may_be_stepped() -> None:
    W = torch.ones(2, requires_grad=True) * 2
    W.retain_grad()
    optimizer = AdamType([W], lr=0.5, beta1=0.0, second_moment=Ones())
    (3 * W).sum().backward()
    optimizer.step()
    assert W.tolist() == [0.5, 0.5]


def test_parameters_may_have_names() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = AdamType(model.named_parameters(), lr=0.1, second_moment=Ones())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert [id(w) for w in optimizer.param_groups[0]["params"]] == [id(w) for w in model.parameters()]


@pytest.mark.parametrize(("name", "form"), VARIANTS)
@pytest.mark.parametrize("plain", [True, False])
def test_new_memory_behind_the_parameter(name: str, form: str, plain: bool) -> None:
    """`w.data = ...` between steps, as `module.to` does it: the new memory moves, not the old one."""
    W, twins = parameters(), parameters()
    optimizer, other = make(name, form, W), make(name, form, twins)
    for t in range(6):
        if t == 3:
            old = [w.data for w in W]
            for w in W:
                w.data = w.data.clone()
            copies = [w.clone() for w in old]
        set_gradients(W, t)
        set_gradients(twins, t)
        with backend.plain() if plain else contextlib.nullcontext():
            optimizer.step()
        other.step()
    assert same(old, copies)
    for w, twin in zip(W, twins, strict=True):
        torch.testing.assert_close(w, twin, rtol=1e-12, atol=1e-14)


def test_autograd_sees_the_step() -> None:
    W = torch.ones(3, requires_grad=True)
    optimizer = make("adam", "torch", [W])
    loss = (W**2).sum()
    W.grad = torch.ones(3)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("argument", ["first_moment", "second_moment"])
def test_rules_are_objects(argument: str) -> None:
    rules = {"first_moment": CorrectedMomentum(), "second_moment": CorrectedAverage(0.9), argument: "adam"}
    with pytest.raises(CvgnnError, match=f"^{argument} must be a rule such as .*, not 'adam'"):
        AdamType(parameters(), lr=0.1, **rules)


@ALL
def test_float32_and_float64_may_share_a_group(name: str, form: str) -> None:
    W = [*parameters([(3,)], dtype=torch.float32), *parameters([(3,)], dtype=torch.float64)]
    start = [w.detach().clone().double() for w in W]
    optimizer = make(name, form, W, weight_decay=0.0)
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


@ALL
def test_it_trains(name: str, form: str) -> None:
    W = torch.full((4,), 5.0, requires_grad=True)
    lr = 1.0 if (name, form) == ("adagrad", "torch") else 0.1  # its steps shrink as 1 / sqrt(t)
    optimizer = make(name, form, [W], lr=lr, weight_decay=0.0)
    for _ in range(400):
        optimizer.zero_grad()
        ((W - 1) ** 2).sum().backward()
        optimizer.step()
    torch.testing.assert_close(W.detach(), torch.ones(4), rtol=0, atol=0.1)
