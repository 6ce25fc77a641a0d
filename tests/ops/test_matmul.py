from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from cvgnn.ops import fused_layer as fused_module
from cvgnn.ops import threads
from cvgnn.ops.affine import Affine
from cvgnn.ops.fused_layer import affine
from cvgnn.ops.matmul import input_gradient_into, product, product_into, weight_gradient
from cvgnn.training.machine import thread_count

SHAPES = [(0, 3, 2), (1, 1, 1), (5, 4, 7), (9, 30, 16), (40, 20, 33)]


@pytest.fixture(params=["torch", "fused"])
def computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both ways to compute an affine map: by torch's operations, and in ranges that threads share."""
    if request.param == "fused":
        for module in (threads, fused_module):
            monkeypatch.setattr(module, "WORTH_SHARING", 0)
    with thread_count(2):
        yield


@pytest.mark.usefixtures("computed")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape: tuple[int, int, int], bias: bool) -> None:
    n, d_in, d_out = shape
    generator = torch.Generator().manual_seed(0)
    A, W, b = (
        torch.randn(*s, generator=generator, dtype=torch.float64, requires_grad=True)
        for s in ((n, d_in), (d_in, d_out), (d_out,))
    )
    out = affine(Affine(((A, W),), b if bias else None))
    expected = A @ W + b if bias else A @ W
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    weight = torch.randn(n, d_out, generator=generator, dtype=torch.float64)
    variables = [A, W, b] if bias else [A, W]
    ours = torch.autograd.grad((out * weight).sum(), variables)
    for a, e in zip(ours, torch.autograd.grad((expected * weight).sum(), variables), strict=True):
        torch.testing.assert_close(a, e, rtol=0, atol=1e-12)
        assert a.is_contiguous()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_products_themselves(shape: tuple[int, int, int]) -> None:
    n, d_in, d_out = shape
    generator = torch.Generator().manual_seed(0)
    A, W, dZ, Z = (
        torch.randn(*s, generator=generator, dtype=torch.float64)
        for s in ((n, d_in), (d_in, d_out), (n, d_out), (n, d_out))
    )
    torch.testing.assert_close(product(A, W), A @ W, rtol=0, atol=1e-12)
    added, written, dA = Z.clone(), torch.full_like(Z, torch.nan), torch.full_like(A, torch.nan)
    product_into(added, A, W, add=True)
    product_into(written, A, W, add=False)
    input_gradient_into(dA, dZ, W)
    dW = weight_gradient(A, dZ)
    for found, expected in ((added, Z + A @ W), (written, A @ W), (dA, dZ @ W.t()), (dW, A.t() @ dZ)):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert dW.is_contiguous()


@pytest.mark.usefixtures("computed")
def test_no_gradient_is_computed_that_nobody_wants() -> None:
    A, W = torch.ones(3, 2), torch.ones(2, 4, requires_grad=True)
    affine(Affine(((A, W),))).sum().backward()  # type: ignore[no-untyped-call]
    assert A.grad is None
    assert W.grad is not None


@pytest.mark.usefixtures("computed")
def test_no_product_for_the_gradient_of_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only is it not given: nobody computes it."""

    def refuse(*_: object) -> None:
        raise AssertionError("this product is not needed")

    monkeypatch.setattr(fused_module, "input_gradient_into", refuse)
    A, W, b = torch.ones(300, 2), torch.ones(2, 4, requires_grad=True), torch.ones(4, requires_grad=True)
    affine(Affine(((A, W),), b)).sum().backward()  # type: ignore[no-untyped-call]
    assert W.grad is not None
    monkeypatch.setattr(fused_module, "weight_gradient", refuse)
    affine(Affine(((A, W.detach()),), b)).sum().backward()  # type: ignore[no-untyped-call]
    assert b.grad is not None
