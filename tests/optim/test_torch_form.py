"""torch's form is torch's own step: beside `torch.optim`, step by step, and without the import of its compiler."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch.optim import SGD, Adagrad, Adam, Optimizer

from cvgnn.ops import backend
from cvgnn.optim import OPTIMIZERS, make_optimizer

from .variants import gradients

TORCHS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda groups, lr, decay, beta1, beta2, eps: SGD(groups, lr=lr, weight_decay=decay, foreach=False),
    "heavy-ball": lambda groups, lr, decay, beta1, beta2, eps: SGD(
        groups, lr=lr, momentum=beta1, dampening=beta1, weight_decay=decay, foreach=False
    ),
    "adam": lambda groups, lr, decay, beta1, beta2, eps: Adam(
        groups, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay, foreach=False
    ),
    "amsgrad": lambda groups, lr, decay, beta1, beta2, eps: Adam(
        groups, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay, amsgrad=True, foreach=False
    ),
    "adagrad": lambda groups, lr, decay, beta1, beta2, eps: Adagrad(
        groups, lr=lr, eps=eps, weight_decay=decay, foreach=False
    ),
}
USES = {
    "sgd": (), "heavy-ball": ("beta1",), "adam": ("beta1", "beta2", "nu_min"), "amsgrad": ("beta1", "beta2", "nu_min"),
    "adagrad": ("nu_min",),
}  # fmt: skip
TOLERANCE = {torch.float64: {"rtol": 1e-12, "atol": 1e-14}, torch.float32: {"rtol": 1e-5, "atol": 1e-6}}
SHAPES = [(5, 3), (3,), (), (70, 9)]


def start(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in SHAPES]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
@pytest.mark.parametrize(("beta1", "beta2", "eps"), [(0.9, 0.999, 1e-8), (0.4, 0.8, 1e-3)])
def test_fifty_steps_beside_torchs(
    name: str, dtype: torch.dtype, weight_decay: float, compiled: bool, beta1: float, beta2: float, eps: float
) -> None:
    """Two groups, one with its own rate and decay; a parameter without a gradient at first, and others now and then."""
    ours, theirs = start(dtype), start(dtype)
    used = {key: value for key, value in {"beta1": beta1, "beta2": beta2, "nu_min": eps}.items() if key in USES[name]}
    groups = [[{"params": W[:2]}, {"params": W[2:], "lr": 0.02, "weight_decay": 0.1}] for W in (ours, theirs)]
    mine = make_optimizer(name, groups[0], lr=0.1, weight_decay=weight_decay, **used)
    torchs = TORCHS[name](groups[1], 0.1, weight_decay, beta1, beta2, eps)
    for t in range(50):
        G = gradients(ours, t, scale=10.0 ** (t % 5 - 3))
        for i, g in enumerate(G):
            absent = (i == 1 and t < 3) or (t + i) % 7 == 6
            ours[i].grad, theirs[i].grad = (None, None) if absent else (g.clone(), g)
        with contextlib.nullcontext() if compiled else backend.plain():
            mine.step()
        torchs.step()
        for w, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(w, expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_a_loss_that_depends_on_the_weights(name: str) -> None:
    def run(make: Callable[[list[torch.Tensor]], Optimizer]) -> torch.Tensor:
        W = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
        optimizer = make([W])
        for _ in range(10):
            optimizer.zero_grad()
            loss = optimizer.step(lambda: (loss := (W.sin() ** 2).sum()).backward() or loss)
            assert loss.requires_grad
        assert torch.is_grad_enabled()
        return W.detach()

    eps = 1e-10 if name == "adagrad" else 1e-8
    expected = run(lambda W: TORCHS[name](W, 0.1, 0.0, 0.9, 0.999, eps))
    torch.testing.assert_close(run(lambda W: make_optimizer(name, W, lr=0.1)), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("form", ["paper", "torch"])
def test_the_compiler_is_never_imported(form: str) -> None:
    """It would cost every run two seconds."""
    code = f"""
import copy, sys, torch
from cvgnn.ops import backend
from cvgnn.optim import OPTIMIZERS, make_optimizer
for name in OPTIMIZERS:
    W, b = torch.ones(3, requires_grad=True), torch.ones(1, requires_grad=True)
    optimizer = make_optimizer(name, [W], form={form!r}, lr=0.1)
    optimizer.add_param_group(dict(params=b))
    optimizer.zero_grad()
    W.sum().backward()
    optimizer.step()
    assert W[0] < 1
    twin = copy.deepcopy(optimizer)
    twin.param_groups[0]["params"][0].grad = torch.zeros(3)
    twin.step()
    twin.zero_grad(set_to_none=False)
    with backend.plain():
        optimizer.step()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_compiler_is_not_imported_by_training_nor_by_its_state() -> None:
    code = """
import sys
from cvgnn.config import TrainConfig
from cvgnn.training.trainer_builder import build_trainer
from cvgnn.training import restore_trainer, trainer_state
from tests.data.store.cases import make_graph
graph, config = make_graph(n=12, features=3), TrainConfig(hidden=3, batch_size=3, threads=1, clip_norm=0.01)
trainer = build_trainer(graph, config)
trainer.train_epoch(1)
restore_trainer(build_trainer(graph, config), *trainer_state(trainer))
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
