"""The compiled step and its plain twin."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops import backend
from cvgnn.ops import optimizer_step as module
from cvgnn.ops.optimizer_step import StepCoefficients, optimizer_step, plain_optimizer_step
from tests.optim.variants import VARIANTS, arrays, pair, parameters, set_gradients

SGD = StepCoefficients(0.5, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
ADAM = StepCoefficients(0.1, 0.01, 0.1, 0.99, 0.01, 1e-16, 0.0, 1.0, 1e-8)
# Past the width of the processor's vectors and not a multiple of it; no dimension; none at all.
SHAPES = [(37, 3), (1,), (), (2, 1, 2), (0, 4)]


@pytest.fixture
def no_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "plain_optimizer_step", lambda *_: pytest.fail("the plain step was taken"))


@pytest.mark.parametrize(("name", "form"), VARIANTS)
def test_compiled_equals_plain(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And both the reference, over fifty steps, to 1e-12."""
    compiled, plain = parameters(SHAPES), parameters(SHAPES)
    numbers = {"beta1": 0.8, "beta2": 0.98, "nu_min": 1e-3}
    ours, reference = pair(name, form, compiled, lr=0.02, weight_decay=0.05, **numbers)
    twin, _ = pair(name, form, plain, lr=0.02, weight_decay=0.05, **numbers)
    expected = arrays(compiled)
    for t in range(50):
        G = set_gradients(compiled, t, scale=10.0 ** (t % 5 - 3))
        set_gradients(plain, t, scale=10.0 ** (t % 5 - 3))
        with backend.plain():
            twin.step()
        with monkeypatch.context() as only_compiled:
            only_compiled.setattr(module, "plain_optimizer_step", lambda *_: pytest.fail("the plain step was taken"))
            ours.step()
        expected = reference.step(expected, arrays(G))
        for one, other, value in zip(compiled, plain, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(one.detach().numpy(), value, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(other.detach().numpy(), value, rtol=1e-12, atol=1e-14)
            for key, state in ours.state.get(one, {}).items():
                if key != "t":
                    torch.testing.assert_close(state, twin.state[other][key], rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize(("name", "form"), VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["gradient", "weight"])
def test_what_is_not_finite_shows(
    name: str, form: str, dtype: torch.dtype, compiled: bool, bad: float, where: str
) -> None:
    """In its own entry, in this step and in the next ones, and nowhere else."""
    (W,) = parameters([(19,)], dtype=dtype)
    ours, _ = pair(name, form, [W], lr=0.02, weight_decay=0.05)
    for t in range(4):
        (G,) = set_gradients([W], t)
        if t == 1:
            with torch.no_grad():
                (W if where == "weight" else G)[[3, 17]] = bad
        with contextlib.nullcontext() if compiled else backend.plain():
            ours.step()
        finite = torch.full((19,), True)
        if t:
            finite[[3, 17]] = False
        assert torch.equal(W.isfinite(), finite)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
def test_without_weight_decay_the_weights_do_not_enter_the_moments(compiled: bool) -> None:
    W, G, M = torch.tensor([math.inf]), torch.ones(1), torch.zeros(1)
    with contextlib.nullcontext() if compiled else backend.plain():
        optimizer_step([W], [G], [M], [], [], SGD._replace(m_gain=0.25))
    assert M.item() == 0.25


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
def test_a_maximum_keeps_nan(compiled: bool) -> None:
    nan = math.nan
    V, V_hat = torch.tensor([nan, 1.0, 1.0, 9.0]), torch.tensor([1.0, nan, 1.0, 1.0])
    with contextlib.nullcontext() if compiled else backend.plain():
        optimizer_step([torch.zeros(4)], [torch.full((4,), 2.0)], [], [V], [V_hat], ADAM._replace(v_keep=1, v_gain=1))
    torch.testing.assert_close(V, torch.tensor([nan, nan, 5.0, 9.0]), equal_nan=True)


def moved(W: Tensor, G: Tensor, M: Tensor, V: Tensor) -> None:
    """A step moves all of them as it moves contiguous float64 copies; it is the plain one."""
    copies = [t.double().clone(memory_format=torch.contiguous_format) for t in (W, G, M, V)]
    kept = G.clone()
    assert optimizer_step([W], [G], [M], [V], [], ADAM) is None
    plain_optimizer_step(*([t] for t in copies), [], ADAM)
    assert torch.equal(G, kept)
    tolerance = {torch.float64: 1e-14, torch.float32: 1e-6}.get(W.dtype, 1e-2)
    for mine, copy in zip((W, M, V), (copies[0], *copies[2:]), strict=True):
        torch.testing.assert_close(mine.double(), copy, rtol=tolerance, atol=tolerance)


def numbers(*shape: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    W, G, M = (torch.randn(shape, generator=generator).to(dtype) for _ in range(3))
    return [W, G, M, (M**2).contiguous()]


@pytest.mark.parametrize("which", [0, 2, 3])
def test_what_is_not_contiguous_goes_to_the_plain_step(which: int) -> None:
    tensors = numbers(3, 4)
    tensors[which] = tensors[which].t().contiguous().t()
    assert not tensors[which].is_contiguous()
    moved(*tensors)


def test_a_gradient_that_is_not_contiguous(no_plain: None) -> None:
    W, G, M, V = numbers(3, 4)
    placement = optimizer_step([W], [G], [M], [V], [], ADAM)
    assert placement is not None
    with pytest.raises(pytest.fail.Exception, match="the plain step was taken"):
        optimizer_step([W], [G.t().contiguous().t()], [M], [V], [], ADAM, placement)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_types_go_to_the_plain_step(dtype: torch.dtype) -> None:
    moved(*numbers(3, 4, dtype=dtype))


def test_two_types_go_to_the_plain_step() -> None:
    W = [torch.zeros(2), torch.zeros(2, dtype=torch.float64)]
    assert optimizer_step(W, [torch.ones_like(w) for w in W], [], [], [], SGD) is None
    assert [w.tolist() for w in W] == [[-0.5, -0.5]] * 2


def test_a_view_with_its_signs_to_be_turned() -> None:
    G = torch.view_as_complex(torch.tensor([[0.0, 3.0]])).conj().imag
    assert G.is_neg()
    assert G.is_contiguous()
    W = torch.zeros(1)
    optimizer_step([W], [G], [], [], [], SGD)
    assert W.item() == 1.5


def test_a_moment_of_another_size_is_never_written_past_its_end() -> None:
    W, G, M, V = numbers(3, 4)
    for M_bad in (torch.zeros(3, 3, dtype=torch.float64), torch.zeros(3, 4), torch.zeros(0, dtype=torch.float64)):
        with pytest.raises(RuntimeError):
            optimizer_step([W], [G], [M_bad], [V], [], ADAM)
    placement = optimizer_step([W], [G], [M], [V], [], ADAM)
    with pytest.raises(RuntimeError):
        optimizer_step([W], [G], [torch.zeros(3, 3, dtype=torch.float64)], [V], [], ADAM, placement)


def test_a_placement_of_other_tensors_does_no_harm(no_plain: None) -> None:
    first, second, alone = numbers(3, 4), numbers(5), numbers(5)
    placement = optimizer_step(*([t] for t in first), [], ADAM)
    kept = [t.clone() for t in first]
    new = optimizer_step(*([t] for t in second), [], ADAM, placement)
    optimizer_step(*([t] for t in alone), [], ADAM)
    assert new is not placement
    assert all(map(torch.equal, first, kept))
    assert all(map(torch.equal, second, alone))
    assert optimizer_step(*([t] for t in second), [], ADAM, new) is new


def test_sparse_gradients_are_refused() -> None:
    with pytest.raises(CvgnnError, match=r"must be dense, got the layout torch.sparse_coo for the shape \[2\]; "):
        optimizer_step([torch.zeros(2)], [torch.ones(2).to_sparse()], [], [], [], SGD)


def test_autograd_sees_the_write(no_plain: None) -> None:
    W = torch.zeros(2)
    before = W._version
    optimizer_step([W], [torch.ones(2)], [], [], [], SGD)
    assert W._version > before
