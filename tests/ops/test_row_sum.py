from __future__ import annotations

import pytest
import torch

from cvgnn.graph import Rows, differentiable_sum, weighted_sum

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
