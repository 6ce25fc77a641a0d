"""The fused `sigma` against torch's own operations, value by value and gradient by gradient."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import layer_norm

from cvgnn.model.activation import activate, activate_in_place
from cvgnn.model.activation_kernels import PART
from cvgnn.model.dropout import Dropout


def inputs(n: int, d: int, *, bias: bool, norm: bool, dtype: torch.dtype = torch.float64) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(n + d)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    return [draw(n, d), draw(d) if bias else None, *((draw(d), draw(d)) if norm else (None, None))]


def literal(
    Z: torch.Tensor,
    bias: torch.Tensor | None,
    gain: torch.Tensor | None,
    shift: torch.Tensor | None,
    drop: Dropout | None,
) -> torch.Tensor:
    Y = Z if bias is None else Z + bias
    H = torch.relu(Y if gain is None else layer_norm(Y, (Y.shape[1],), gain, shift))
    return H if drop is None else H * drop.mask((H.shape[0], H.shape[1]), H.dtype)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 7), (70, 33), (PART, 16), (2 * PART + 9, 40)])
def test_values_and_gradients(shape: tuple[int, int], bias: bool, norm: bool, p: float) -> None:
    given = inputs(*shape, bias=bias, norm=norm)
    drop = Dropout.at(p, seed=3, step=2, k=1) if p else None
    expected = literal(*given, drop)  # type: ignore[arg-type]
    H, propagated = activate(*given, drop)  # type: ignore[arg-type]
    torch.testing.assert_close(propagated, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(H, literal(*given, None).detach(), rtol=0, atol=1e-12)  # type: ignore[arg-type]
    assert not H.requires_grad

    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    variables = [t for t in given if t is not None]
    ours = torch.autograd.grad((propagated * weight).sum(), variables)
    for a, b in zip(ours, torch.autograd.grad((expected * weight).sum(), variables), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)

    Z, *parameters = given
    assert Z is not None
    mine = Z.detach().clone()
    assert activate_in_place(mine, *parameters) is mine
    torch.testing.assert_close(mine, H, rtol=0, atol=0)


def test_float32_is_as_close_as_torch() -> None:
    given = inputs(500, 256, bias=True, norm=True, dtype=torch.float32)
    exact = [t.double() for t in given if t is not None]
    torch.testing.assert_close(activate(*given, None)[1].double(), literal(*exact, None), rtol=0, atol=5e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_threads_do_not_change_a_bit(norm: bool, p: float) -> None:
    """Not even with LayerNorm, whose parameters' gradients torch sums in as many parts as there are threads."""
    shape = (3 * PART + 5, 512)
    given = inputs(*shape, bias=True, norm=norm, dtype=torch.float32)
    variables = [t for t in given if t is not None]
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            H, propagated = activate(*given, Dropout.at(p, seed=0, step=1, k=1) if p else None)  # type: ignore[arg-type]
            results.append([H, propagated.detach(), *torch.autograd.grad((propagated * weight).sum(), variables)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("norm", [True, False])
def test_what_is_not_a_number_stays_so(norm: bool) -> None:
    """A diverged run must show: NaN is not silently turned into 0."""
    Z, *parameters = inputs(3, 8, bias=True, norm=norm)
    assert Z is not None
    Z = Z.detach().clone()
    Z[1, 2] = float("nan")
    H, _ = activate(Z, *parameters, None)
    assert bool(H[1].isnan().any())
    assert not bool(H[[0, 2]].isnan().any())


def test_nothing_is_kept_alive() -> None:
    """No reference cycle through the saved tensors: memory must not wait for the garbage collector."""
    import gc
    import weakref

    given = inputs(4, 3, bias=True, norm=True)
    gc.disable()
    try:
        _, propagated = activate(*given, Dropout.at(0.5, seed=0, step=1, k=1))  # type: ignore[arg-type]
        seen = weakref.ref(propagated)
        propagated.sum().backward()  # type: ignore[no-untyped-call]
        del propagated, _
        assert seen() is None
    finally:
        gc.enable()
