from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from cvgnn.optim.light import light, undecorated


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop])
def test_same_steps_as_torchs_own(optimizer: type[torch.optim.Optimizer]) -> None:
    def run(kind: type[torch.optim.Optimizer]) -> torch.Tensor:
        W = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
        steps = kind([W], lr=0.1)  # type: ignore[call-arg]
        for _ in range(10):
            steps.zero_grad()
            loss = steps.step(lambda: (loss := (W.sin() ** 2).sum()).backward() or loss)  # type: ignore[func-returns-value]
            assert loss.requires_grad
        assert torch.is_grad_enabled()
        return W.detach()

    assert torch.equal(run(light(optimizer)), run(optimizer))


def test_zero_grad() -> None:
    W = torch.ones(2, requires_grad=True)
    optimizer = light(torch.optim.SGD)([W], lr=0.1)
    W.grad = torch.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert W.grad.tolist() == [0, 0]
    W.grad = torch.ones(3, 2)[1]  # a view, as some of ours are
    optimizer.zero_grad(set_to_none=False)
    assert W.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert W.grad is None


@pytest.mark.parametrize("form", ["before", "after"])
def test_hooks_are_called(form: str) -> None:
    W = torch.ones(2, requires_grad=True)
    optimizer = light(torch.optim.Adam)([W], lr=0.1, fused=True)
    calls = []
    register = optimizer.register_step_pre_hook if form == "before" else optimizer.register_step_post_hook
    handle = register(lambda *_: calls.append(form))
    for _ in range(3):
        W.grad = torch.ones(2)
        optimizer.step()
    assert len(calls) == 3
    handle.remove()
    optimizer.step()
    assert len(calls) == 3


FUSED_OPTIONS = [
    (torch.optim.Adam, {"weight_decay": 0.1}),
    (torch.optim.Adam, {"amsgrad": True, "betas": (0.8, 0.99)}),
    (torch.optim.Adam, {"maximize": True, "eps": 1e-3}),
    (torch.optim.Adam, {"decoupled_weight_decay": True, "weight_decay": 0.5}),
    (torch.optim.Adam, {"lr": torch.tensor(0.1)}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    (torch.optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("optimizer", "options"), FUSED_OPTIONS)
def test_fused_steps_are_torchs_own_to_the_bit(optimizer: type[torch.optim.Optimizer], options: dict) -> None:
    """Two groups, one with its own rate; a parameter that has no gradient at first; a saved and loaded state."""

    def run(kind: type[torch.optim.Optimizer]) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        W = [torch.randn(shape, generator=generator).requires_grad_() for shape in [(5, 3), (3,), (700, 9)]]
        groups = [{"params": W[:2]}, {"params": W[2:], "lr": 0.02}]
        steps = kind(groups, **{"lr": 0.1, "fused": True, **options})  # type: ignore[arg-type]
        for t in range(8):
            steps.zero_grad()
            for i, w in enumerate(W):
                if t >= 2 or i != 1 or "momentum" in options:  # there torch's own fused SGD fails
                    w.grad = torch.randn(w.shape, generator=generator)
            steps.step()
            if t == 4:
                saved = steps.state_dict()
                steps = kind(groups, **{"lr": 0.1, "fused": True, **options})  # type: ignore[arg-type]
                steps.load_state_dict(saved)
        return [w.detach() for w in W]

    for ours, theirs in zip(run(light(optimizer)), run(optimizer), strict=True):
        assert torch.equal(ours, theirs)


def test_undecorated_goes_to_the_bottom() -> None:
    assert undecorated(len) is len
    assert not hasattr(undecorated(torch.optim.Adam.step), "__wrapped__")


@pytest.mark.parametrize("form", ["paper", "torch"])
def test_the_compiler_is_never_imported(form: str) -> None:
    """It would cost every run two seconds."""
    code = f"""
import sys, torch
from cvgnn.optim import OPTIMIZERS, make_optimizer
for name in OPTIMIZERS:
    W = torch.ones(3, requires_grad=True)
    optimizer = make_optimizer(name, [W], form={form!r}, lr=0.1)
    optimizer.zero_grad()
    W.sum().backward()
    optimizer.step()
    assert W[0] < 1
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
