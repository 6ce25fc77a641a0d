from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from cvgnn.data import Rows, differentiable_sum, weighted_sum
from cvgnn.errors import CvgnnError
from cvgnn.ops import threads
from cvgnn.ops.backend import plain
from cvgnn.training.machine import thread_count

INDPTR, INDICES = [0, 2, 2, 5], [3, 0, 1, 1, 2]
WEIGHT = [0.5, -1.0, 2.0, 0.25, 1.5]


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [True, False])
def test_weighted_sum_is_the_dense_product(weighted: bool, dtype: torch.dtype, index: torch.dtype) -> None:
    weight = torch.tensor(WEIGHT, dtype=dtype) if weighted else None
    rows = Rows(torch.tensor(INDPTR, dtype=index), torch.tensor(INDICES, dtype=index), weight)
    dense = torch.zeros(3, 4, dtype=dtype)
    for i, columns in enumerate(([(3, 0.5), (0, -1.0)], [], [(1, 2.25), (2, 1.5)])):
        for column, value in columns:
            dense[i, column] = value if weighted else (2.0 if column == 1 else 1.0)
    torch.testing.assert_close(rows.dense(4, dtype), dense)
    table = torch.randn(4, 6, dtype=dtype, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(weighted_sum(rows, table), dense @ table)


def test_no_rows_and_no_entries() -> None:
    table = torch.ones(4, 2)
    empty = torch.zeros(0, dtype=torch.int32)
    assert weighted_sum(Rows(torch.zeros(3, dtype=torch.int32), empty, torch.zeros(0)), table).tolist() == [[0, 0]] * 2
    assert weighted_sum(Rows(torch.zeros(1, dtype=torch.int32), empty, torch.zeros(0)), table).shape == (0, 2)


def test_gradient() -> None:
    def rows(S: torch.Tensor) -> Rows:
        i, j = S.nonzero(as_tuple=True)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(i, minlength=len(S)).cumsum(0)])
        return Rows(indptr, j, S[i, j])

    generator = torch.Generator().manual_seed(1)
    S = torch.randn(3, 4, dtype=torch.float64, generator=generator) * torch.tensor([[1, 0, 1, 1]])
    T = torch.randn(4, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(lambda table: differentiable_sum(rows(S), rows(S.T.contiguous()), table), (T,))
    # An expanded (stride 0) gradient arrives from .sum(); the backward must take it.
    (grad,) = torch.autograd.grad(differentiable_sum(rows(S), rows(S.T.contiguous()), T).sum(), T)
    torch.testing.assert_close(grad, S.T @ torch.ones(3, 2, dtype=torch.float64))


def random_rows(num_rows: int, num_columns: int, dtype: torch.dtype, index: torch.dtype) -> Rows:
    generator = torch.Generator().manual_seed(num_rows)
    counts = torch.randint(0, 9, (num_rows,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    indices = torch.randint(0, num_columns, (int(indptr[-1]),), generator=generator)
    weight = torch.randn(indices.numel(), generator=generator, dtype=dtype)
    return Rows(indptr.to(index), indices.to(index), weight)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 2e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (50, 4), (50, 33), (50, 130)])
def test_a_bfloat16_table_is_widened_as_it_is_read(
    shape: tuple[int, int], dtype: torch.dtype, atol: float, index: torch.dtype
) -> None:
    """Compiled and plain: weights and sums are not rounded."""
    rows = random_rows(shape[0], 12, dtype, index)
    table = torch.randn(12, shape[1], generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = rows.dense(12) @ table.double()
    found = weighted_sum(rows, table)
    with plain():
        twin = weighted_sum(rows, table)
    for mine in (found, twin):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.double(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_threads_do_not_change_a_bit(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WORTH_SHARING", 0)
    rows = random_rows(300, 40, torch.float32 if dtype == torch.bfloat16 else dtype, torch.int32)
    table = torch.randn(40, 65, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = []
    for count in (1, 2, 3):
        with thread_count(count):
            found.append(weighted_sum(rows, table))
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("bad", [-1, 12])
def test_rows_that_a_bfloat16_table_does_not_have(bad: int) -> None:
    rows = Rows(torch.tensor([0, 2]), torch.tensor([0, bad]), torch.ones(2))
    with pytest.raises(CvgnnError, match=rf"indices must lie in 0\.\.11; found {bad}"):
        weighted_sum(rows, torch.ones(12, 3).bfloat16())


@pytest.mark.parametrize("twin", [False, True], ids=["compiled", "plain"])
def test_differentiable_twice(twin: bool) -> None:
    S = torch.tensor([[0.5, 0.0, -1.0, 2.0], [0.0, 0.0, 0.0, 0.0], [1.5, 1.0, 0.0, 0.0]], dtype=torch.float64)

    def rows(S: torch.Tensor) -> Rows:
        i, j = S.nonzero(as_tuple=True)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(i, minlength=len(S)).cumsum(0)])
        return Rows(indptr, j, S[i, j])

    def cubes(table: torch.Tensor) -> torch.Tensor:
        return differentiable_sum(rows(S), rows(S.t().contiguous()), table).pow(3)

    T = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with plain() if twin else nullcontext():
        assert torch.autograd.gradgradcheck(cubes, (T,))
        (first,) = torch.autograd.grad(cubes(T).sum(), T, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), T)
    (expected,) = torch.autograd.grad((S @ T).pow(3).sum(), T, create_graph=True)
    torch.testing.assert_close(first, expected, rtol=0, atol=1e-12)
    (expected,) = torch.autograd.grad(expected.square().sum(), T)
    torch.testing.assert_close(second, expected, rtol=1e-12, atol=1e-12)


def test_parts_of_rows() -> None:
    rows = random_rows(20, 6, torch.float64, torch.int32)
    arrays = Rows.of(*rows.arrays)
    whole = rows.dense(6)
    for given in (rows, arrays):
        assert (given.num_rows, given.num_entries) == (20, len(rows.indices))
        assert given.between(0, 20) is given
        for first, last in ((0, 7), (7, 7), (7, 20)):
            assert torch.equal(given.between(first, last).dense(6), whole[first:last])
