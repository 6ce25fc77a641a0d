"""The fused hidden layer against torch's own operations, value by value and gradient by gradient."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from cvgnn.model.hidden import Sigma, activate_and_aggregate, activate_in_place
from torch import Tensor
from torch.nn.functional import layer_norm

from cvgnn.graph import Rows
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.layer_kernels import PART
from cvgnn.sampling import Block

Given = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]


def inputs(n: int, d: int, *, bias: bool, norm: bool, dtype: torch.dtype = torch.float64) -> Given:
    generator = torch.Generator().manual_seed(n + d)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    Z = draw(n, d)
    b = draw(d) if bias else None
    return (Z, b, draw(d), draw(d)) if norm else (Z, b, None, None)


def sparse(S: Tensor) -> Rows:
    counts = (S != 0).sum(dim=1)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).int()
    row, column = S.nonzero(as_tuple=True)
    return Rows(indptr, column.int(), S[row, column])


def sampled(m: int, n: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Block]:
    """A random `P^` `[m, n]` with empty rows and columns, and the block that holds it."""
    generator = torch.Generator().manual_seed(m)
    S = torch.randn(m, n, generator=generator, dtype=dtype)
    S *= torch.rand(m, n, generator=generator) < 3 / max(n, 1)
    return S, Block(torch.arange(n), sparse(S), sparse(S.T.contiguous()), None)


def literal(given: Given, drop: Dropout | None, S: Tensor, correction: Tensor | None) -> tuple[Tensor, Tensor]:
    Z, bias, gain, shift = given
    Y = Z if bias is None else Z + bias
    H = torch.relu(Y if gain is None else layer_norm(Y, (Y.shape[1],), gain, shift))
    dropped = H if drop is None else H * drop.mask((H.shape[0], H.shape[1]), H.dtype)
    return H.detach(), S @ dropped + (0.0 if correction is None else correction)


@pytest.mark.parametrize("controlled", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(0, 5), (1, 1), (3, 7), (70, 33), (PART, 16), (2 * PART + 9, 40), (4 * PART + 41, 3)]
)
def test_values_and_gradients(shape: tuple[int, int], bias: bool, norm: bool, p: float, controlled: bool) -> None:
    n, d = shape
    m = n // 2 + 1
    given = inputs(n, d, bias=bias, norm=norm)
    S, block = sampled(m, n)
    drop = Dropout.at(p, seed=3, step=2, k=1) if p else None
    correction = torch.randn(m, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    H_expected, expected = literal(given, drop, S, correction if controlled else None)
    H, out = activate_and_aggregate(
        given[0], Sigma(*given[1:]), drop=drop, block=block, correction=correction.clone() if controlled else None
    )
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(H, H_expected, rtol=0, atol=1e-12)
    assert not H.requires_grad

    weight = torch.randn(m, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    variables = [t for t in given if t is not None]
    ours = torch.autograd.grad((out * weight).sum(), variables)
    for a, b in zip(ours, torch.autograd.grad((expected * weight).sum(), variables), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)

    Z, *parameters = given
    mine = Z.detach().clone()
    assert activate_in_place(mine, Sigma(*parameters)) is mine
    assert torch.equal(mine, H)


def test_float32_is_as_close_as_it_can_be() -> None:
    given = inputs(500, 256, bias=True, norm=True, dtype=torch.float32)
    S, block = sampled(100, 500, torch.float32)
    _, out = activate_and_aggregate(given[0], Sigma(*given[1:]), drop=None, block=block, correction=None)
    exact = literal(tuple(None if t is None else t.double() for t in given), None, S.double(), None)[1]  # type: ignore[arg-type]
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=5e-5)


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_threads_do_not_change_a_bit(norm: bool, p: float) -> None:
    """Not even with LayerNorm, whose parameters' gradients torch sums in as many parts as there are threads."""
    n, m, d = 3 * PART + 5, 400, 1024
    given = inputs(n, d, bias=True, norm=norm, dtype=torch.float32)
    _, block = sampled(m, n, torch.float32)
    variables = [t for t in given if t is not None]
    weight = torch.randn(m, d, generator=torch.Generator().manual_seed(1))
    drop = Dropout.at(p, seed=0, step=1, k=1) if p else None
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            H, out = activate_and_aggregate(given[0], Sigma(*given[1:]), drop=drop, block=block, correction=None)
            results.append([H, out.detach(), *torch.autograd.grad((out * weight).sum(), variables)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("norm", [True, False])
def test_what_is_not_a_number_stays_so(norm: bool) -> None:
    """A diverged run must show: NaN is not silently turned into 0."""
    Z, *parameters = inputs(3, 8, bias=True, norm=norm)
    Z = Z.detach().clone()
    Z[1, 2] = float("nan")
    activate_in_place(Z, Sigma(*parameters))
    assert bool(Z[1].isnan().any())
    assert not bool(Z[[0, 2]].isnan().any())


def test_nothing_is_kept_alive() -> None:
    """No reference cycle through what is saved: memory must not wait for the garbage collector."""
    given = inputs(4, 3, bias=True, norm=True)
    _, block = sampled(2, 4)
    gc.disable()
    try:
        drop = Dropout.at(0.5, seed=0, step=1, k=1)
        H, out = activate_and_aggregate(
            given[0], Sigma(*given[1:]), drop=drop, block=block, correction=torch.zeros(2, 3).double()
        )
        seen = [weakref.ref(H), weakref.ref(out)]
        out.sum().backward()  # type: ignore[no-untyped-call]
        del H, out
        assert [s() for s in seen] == [None, None]
    finally:
        gc.enable()
