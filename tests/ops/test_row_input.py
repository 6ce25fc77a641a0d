"""Constant rows that a layer multiplies: dense and sparse, compiled and plain, against the matrix written out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops import row_input, threads
from cvgnn.ops.backend import plain
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.row_input import DenseRows, RowInput, SparseInput, drop_dense
from cvgnn.ops.row_sum import Rows
from cvgnn.training.machine import thread_count

N, F = 40, 7
IDS = torch.tensor([3, 39, 0, 3, 17, 22, 5, 5, 1, 30, 12])  # some of them twice
DROP = Dropout(0.4, key=2**63 + 5)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def matrix(dtype: torch.dtype = torch.float64) -> Tensor:
    """With empty rows, the first and the last chosen one among them, and an empty column."""
    X = draw(N, F, dtype=dtype)
    X *= draw(N, F, seed=1, dtype=dtype) > 0.3
    X[[3, 12]] = 0
    X[:, 4] = 0
    return X


def csr(X: Tensor) -> Rows:
    row, column = X.nonzero(as_tuple=True)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(row, minlength=len(X)).cumsum(0)])
    return Rows(indptr, column.int(), X[row, column])


def dense(X: Tensor) -> tuple[RowInput, Tensor]:
    return DenseRows(lambda a, b: X.index_select(0, IDS[a:b]), (len(IDS), F)), X[IDS]


def sparse(X: Tensor) -> tuple[RowInput, Tensor]:
    return SparseInput(csr(X), IDS, num_columns=F), X[IDS]


def span(X: Tensor) -> tuple[RowInput, Tensor]:
    return SparseInput(csr(X), range(2, 30), num_columns=F), X[2:30]


def nothing(X: Tensor) -> tuple[RowInput, Tensor]:
    return SparseInput(csr(X), IDS[:0], num_columns=F), X[:0]


KINDS: list[Callable[[Tensor], tuple[RowInput, Tensor]]] = [dense, sparse, span, nothing]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda f: f.__name__)
each_drop = pytest.mark.parametrize("drop", [None, DROP], ids=["all", "dropped"])


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def written_out(A: Tensor, drop: Dropout | None) -> Tensor:
    return A if drop is None else A * drop.mask((len(A), F), A.dtype)


@pytest.mark.parametrize("columns", [1, 5, 33])
@each_drop
@each_kind
def test_products_and_gradients(kind: Callable, drop: Dropout | None, columns: int) -> None:
    """`A W` and `A^T dZ`, compiled and plain, are those of the matrix written out."""
    rows, A = kind(matrix())
    A, W, dZ = written_out(A, drop), draw(F, columns, seed=2), draw(len(A), columns, seed=3)
    Z = draw(len(A), columns, seed=4)
    for twin in (False, True):

        def check() -> None:
            given = rows.dropped(drop)
            assert given.shape == A.shape
            close(given.product(W), A @ W)
            close(given @ W, A @ W)
            close(given.weight_gradient(dZ), A.t() @ dZ)
            close(given.weight_gradient(dZ.t().contiguous().t()), A.t() @ dZ)
            close(given.tensor(torch.float64), A)
            for add in (False, True):
                into = Z.clone()
                row_input.multiply_into(into, given.read(0, len(A)), W, add=add)
                close(into, A @ W + (Z if add else 0.0))
            for first, last in ((0, 4), (3, 3), (4, len(A))):
                part = given.read(first, last)
                close(part if isinstance(part, Tensor) else part.product(torch.eye(F).double()), A[first:last])
            live = W.clone().requires_grad_()
            out = given @ live
            close(out, A @ W)
            close(torch.autograd.grad((out * dZ).sum(), live)[0], A.t() @ dZ)

        if twin:
            with plain():
                check()
        else:
            check()


@each_kind
@pytest.mark.parametrize("twin", [False, True], ids=["compiled", "plain"])
def test_differentiable_twice(kind: Callable, twin: bool) -> None:
    rows, A = kind(matrix())
    rows = rows.dropped(DROP)
    A, W = written_out(A, DROP), draw(F, 2, seed=2).requires_grad_()

    def check() -> None:
        if len(A):
            assert torch.autograd.gradcheck(lambda W: (rows @ W).square(), (W,))
            assert torch.autograd.gradgradcheck(lambda W: (rows @ W).square(), (W,))
        (first,) = torch.autograd.grad((rows @ W).pow(3).sum(), W, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), W)
        (expected,) = torch.autograd.grad((A @ W).pow(3).sum(), W, create_graph=True)
        torch.testing.assert_close(first, expected, rtol=1e-12, atol=1e-12)
        (expected,) = torch.autograd.grad(expected.square().sum(), W)
        torch.testing.assert_close(second, expected, rtol=1e-12, atol=1e-12)

    if twin:
        with plain():
            check()
    else:
        check()


def test_a_gradient_that_is_a_view_is_taken() -> None:
    """An expanded (stride 0) one arrives from `.sum()`."""
    for kind in KINDS:
        rows, A = kind(matrix())
        W = draw(F, 3, seed=2).requires_grad_()
        close(torch.autograd.grad((rows @ W).sum(), W)[0], A.t() @ torch.ones(len(A), 3).double())


@each_kind
def test_no_graph_where_no_gradient_is_wanted(kind: Callable) -> None:
    rows, _ = kind(matrix())
    W = draw(F, 3).requires_grad_()
    assert not (rows @ W.detach()).requires_grad
    with torch.no_grad():
        assert not (rows @ W).requires_grad
    assert (rows @ W).requires_grad


@pytest.mark.parametrize("elements", [1, F, 3 * F, 1000 * F])
@each_drop
@each_kind
def test_chunks_do_not_change_anything(
    kind: Callable, drop: Dropout | None, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither products nor masks."""
    rows, A = kind(matrix())
    rows, W = rows.dropped(drop), draw(F, 20, seed=2)
    whole, tensor = rows.product(W), rows.tensor(torch.float64)
    seen = []
    read = type(rows).read
    monkeypatch.setattr(row_input, "ELEMENTS_PER_CHUNK", elements)
    monkeypatch.setattr(type(rows), "read", lambda self, a, b: (seen.append(b - a), read(self, a, b))[1])
    close(rows.product(W), whole)
    assert max(seen, default=0) <= max(1, elements // F)
    assert sum(seen) == len(A)
    close(rows.tensor(torch.float64), tensor)
    close(tensor, written_out(A, drop))


@each_drop
@pytest.mark.parametrize("kind", KINDS[:3], ids=lambda f: f.__name__)
def test_threads_do_not_change_anything(kind: Callable, drop: Dropout | None, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, A = kind(matrix())
    W, dZ, A = draw(F, 50, seed=2), draw(len(A), 50, seed=3), written_out(A, drop)
    monkeypatch.setattr(threads, "WORTH_SHARING", 0)
    for count in (1, 2, 3):
        with thread_count(count):
            close(rows.dropped(drop) @ W, A @ W)
            close(rows.dropped(drop).weight_gradient(dZ), A.t() @ dZ)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("start", [0, 5, 10**6])
@pytest.mark.parametrize("p", [1e-9, 0.01, 0.5, 0.999])
def test_masks_are_the_same_to_the_bit(p: float, start: int, dtype: torch.dtype) -> None:
    """Of the compiled code, of `Dropout.mask`, and of the rows of a sparse matrix."""
    drop, ones = Dropout(p, key=77), torch.ones(60, 31, dtype=dtype)
    compiled = drop_dense(ones.clone(), drop, start)
    with plain():
        assert torch.equal(drop_dense(ones, drop, start), compiled)
    assert torch.equal(drop.mask((60, 31), dtype, start=start), compiled)
    A = draw(60, 31, dtype=dtype)
    with plain():
        expected = drop_dense(A.clone(), drop, start)
    assert torch.equal(drop_dense(A.clone(), drop, start), expected)
    if start == 0:
        rows = SparseInput(csr(A), torch.arange(60), num_columns=31)
        assert torch.equal(rows.dropped(drop).tensor(dtype), expected)
        with plain():
            assert torch.equal(rows.dropped(drop).tensor(dtype), expected)


def test_bfloat16_rows_are_dropped_before_they_are_rounded() -> None:
    A = draw(50, 9, dtype=torch.float32).bfloat16()
    expected = (A.float() * DROP.mask((50, 9), torch.float32, start=3)).bfloat16()
    assert torch.equal(drop_dense(A.clone(), DROP, 3), expected)
    with plain():
        assert torch.equal(drop_dense(A.clone(), DROP, 3), expected)


def test_without_dropout_nothing_is_copied() -> None:
    for kind in KINDS:
        rows, _ = kind(matrix())
        assert rows.dropped(None) is rows


@pytest.mark.parametrize("twin", [False, True], ids=["compiled", "plain"])
@pytest.mark.parametrize("bad", [-1, -2, N, 10**12])
def test_ids_that_do_not_exist(bad: int, twin: bool) -> None:
    """Compiled code checks nothing, and torch counts from the end, so this does, in each thing that is asked first."""

    def rows() -> SparseInput:
        return SparseInput(csr(matrix()), torch.tensor([0, bad, 2]), num_columns=F)

    W, dZ = draw(F, 2), draw(3, 2)
    for ask in (
        lambda: rows() @ W,
        lambda: rows().weight_gradient(dZ),
        lambda: rows().dropped(DROP),
        lambda: rows().tensor(torch.float64),
        lambda: rows() @ W.clone().requires_grad_(),
    ):
        with (
            plain() if twin else nullcontext(),
            pytest.raises(CvgnnError, match=rf"ids must lie in 0\.\.{N - 1}; found {bad}"),
        ):
            ask()


@pytest.mark.parametrize(
    "W", [torch.ones(F + 1, 2).double(), torch.ones(F, 2), torch.ones(F).double()], ids=["rows", "dtype", "vector"]
)
@pytest.mark.parametrize("kind", [sparse, span], ids=lambda f: f.__name__)
def test_weights_that_do_not_fit_a_sparse_input(kind: Callable, W: Tensor) -> None:
    rows, _ = kind(matrix())
    with pytest.raises(CvgnnError, match=rf"a weight matrix for {F} features must be torch\.float64 of {F} rows"):
        rows.product_into(torch.empty(rows.shape[0], 2).double(), W, add=False)


@pytest.mark.parametrize(
    ("gather", "said"),
    [
        (lambda a, b: torch.ones(b - a - 1, F), r"shape \[3, 7\], not \[2, 7\]"),
        (lambda a, b: torch.ones(b - a, F + 1), r"shape \[3, 7\], not \[3, 8\]"),
        (lambda a, b: [[0.0]], r"shape \[3, 7\], not list \(a source of sparse rows sets sparse = True\)"),
    ],
    ids=["a row less", "a column more", "no tensor"],
)
def test_a_source_that_gives_something_else(gather: Callable, said: str) -> None:
    rows = DenseRows(gather, (5, F))
    with pytest.raises(CvgnnError, match=r"rows 1 to 3 of the features must be a tensor of " + said):
        rows.read(1, 4)
