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
    optimizer.zero_grad()
    assert W.grad is None


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
