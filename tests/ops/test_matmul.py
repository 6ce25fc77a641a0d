from __future__ import annotations

import pytest
import torch

from cvgnn.ops.matmul import linear


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(0, 3, 2), (1, 1, 1), (5, 4, 7), (9, 30, 16), (40, 20, 33)])
def test_values_and_gradients(shape: tuple[int, int, int], bias: bool) -> None:
    n, d_in, d_out = shape
    generator = torch.Generator().manual_seed(0)
    A, W, b = (
        torch.randn(*s, generator=generator, dtype=torch.float64, requires_grad=True)
        for s in ((n, d_in), (d_in, d_out), (d_out,))
    )
    out = linear(A, W, b if bias else None)
    expected = A @ W + b if bias else A @ W
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    weight = torch.randn(n, d_out, generator=generator, dtype=torch.float64)
    variables = [A, W, b] if bias else [A, W]
    ours = torch.autograd.grad((out * weight).sum(), variables)
    for a, e in zip(ours, torch.autograd.grad((expected * weight).sum(), variables), strict=True):
        torch.testing.assert_close(a, e, rtol=0, atol=1e-12)
        assert a.is_contiguous()


def test_no_gradient_is_computed_that_nobody_wants() -> None:
    A, W = torch.ones(3, 2), torch.ones(2, 4, requires_grad=True)
    linear(A, W).sum().backward()  # type: ignore[no-untyped-call]
    assert A.grad is None
    assert W.grad is not None
