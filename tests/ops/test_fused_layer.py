"""The fused layer against torch's own operations and against its plain twin, value by value, gradient by gradient."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from cvgnn.errors import CvgnnError
from cvgnn.ops import fused_layer as fused_module
from cvgnn.ops import threads as parallel
from cvgnn.ops.affine import Affine
from cvgnn.ops.backend import plain, use_compiled
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.fused_layer import (
    ACTIVATIONS,
    HiddenLayer,
    LazySum,
    NeighborSum,
    Sigma,
    activate_in_place,
    affine,
    hidden_layer,
)
from cvgnn.ops.layer_kernels import PART, rows_in_part
from cvgnn.ops.row_input import DenseRows, LayerInput, SparseInput
from cvgnn.ops.row_sum import Rows
from cvgnn.training.machine import thread_count

Given = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]
Matrix = tuple[Rows, Rows]


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


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


def sampled(m: int, n: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Matrix]:
    """A random `P^` `[m, n]` with empty rows and columns, as it is and as a block holds it, transposed too."""
    generator = torch.Generator().manual_seed(m)
    S = torch.randn(m, n, generator=generator, dtype=dtype)
    S *= torch.rand(m, n, generator=generator) < 3 / max(n, 1)
    return S, (sparse(S), sparse(S.T.contiguous()))


def exactly(Z: Tensor, bias: Tensor | None) -> Affine | Tensor:
    """`Z + bias`, not added yet: a product with the identity changes nothing."""
    return Z if bias is None else Affine(((Z, torch.eye(Z.shape[1], dtype=Z.dtype)),), bias)


def fused(given: Given, drop: Dropout | None, matrix: Matrix, correction: Tensor | None) -> tuple[Tensor, Tensor]:
    Z, bias, gain, shift = given
    out = hidden_layer(
        exactly(Z, bias), Sigma(gain, shift), drop=drop,
        summed=NeighborSum(*matrix, correction=None if correction is None else lambda a, b: correction[a:b].clone()),
    )  # fmt: skip
    assert isinstance(out.aggregate, Tensor)
    assert out.own is None
    return out.H, out.aggregate


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
    S, matrix = sampled(m, n)
    drop = Dropout.at(p, seed=3, step=2, k=1) if p else None
    correction = draw(m, d, seed=2) if controlled else None
    H_expected, expected = literal(given, drop, S, correction)
    H, out = fused(given, drop, matrix, correction)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(H, H_expected, rtol=0, atol=1e-12)
    assert not H.requires_grad

    weight = draw(m, d, seed=1)
    variables = [t for t in given if t is not None]
    ours = torch.autograd.grad((out * weight).sum(), variables)
    for a, b in zip(ours, torch.autograd.grad((expected * weight).sum(), variables), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 7), (70, 33), (2 * PART + 9, 40)])
def test_in_place_it_is_the_same_to_the_bit(shape: tuple[int, int], norm: bool, activation: Any) -> None:
    """Exact inference and training compute one function."""
    Z, _, *parameters = inputs(*shape, bias=False, norm=norm)
    sigma = Sigma(*parameters, activation)
    mine = Z.detach().clone()
    assert activate_in_place(mine, sigma) is mine
    assert torch.equal(mine, hidden_layer(Z, sigma).H)
    twin = Z.detach().clone()
    with plain():
        assert activate_in_place(twin, sigma) is twin
    torch.testing.assert_close(mine, twin, rtol=0, atol=1e-12)


def test_float32_is_as_close_as_it_can_be() -> None:
    given = inputs(500, 256, bias=True, norm=True, dtype=torch.float32)
    S, matrix = sampled(100, 500, torch.float32)
    _, out = fused(given, None, matrix, None)
    exact = literal(tuple(None if t is None else t.double() for t in given), None, S.double(), None)[1]  # type: ignore[arg-type]
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=5e-5)


def chosen(n: int, columns: int, dtype: torch.dtype) -> SparseInput:
    """One entry in each row: a product with it is a choice of rows, the same to the bit however it is shared."""
    ids = torch.randint(0, columns, (n,), generator=torch.Generator().manual_seed(4))
    matrix = Rows(torch.arange(columns + 1), torch.arange(columns).int(), torch.ones(columns, dtype=dtype))
    return SparseInput(matrix, ids, num_columns=columns)


@pytest.mark.parametrize(("n", "activation"), [(3 * PART + 5, "relu"), *((4 * PART + 41, a) for a in ACTIVATIONS)])
@pytest.mark.parametrize("made", ["given", "product"])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_threads_do_not_change_a_bit(norm: bool, p: float, made: str, n: int, activation: Any) -> None:
    """Not even with LayerNorm, whose parameters' gradients torch sums in as many parts as there are threads."""
    m, d = 400, 1024
    Z, bias, gain, shift = inputs(n, d, bias=True, norm=norm, dtype=torch.float32)
    _, (S, St) = sampled(m, n, torch.float32)
    W = draw(50, d, dtype=torch.float32).requires_grad_()
    given = Z if made == "given" else Affine(((chosen(n, 50, torch.float32), W),), bias)
    variables = [t for t in ((Z,) if made == "given" else (W, bias)) + (gain, shift) if t is not None]
    weight = draw(m, d, seed=1, dtype=torch.float32)
    drop = Dropout.at(p, seed=0, step=1, k=1) if p else None
    results = []
    for threads in (1, 2, 3):
        with thread_count(threads):
            ranges = parallel.row_ranges(n, d * parallel.MEMORY_COST, multiple=rows_in_part(n))
            out = hidden_layer(given, Sigma(gain, shift, activation), drop=drop, summed=NeighborSum(S, St), own=True)
            assert isinstance(out.aggregate, Tensor)
            assert out.own is not None
            loss = (out.aggregate * weight).sum() + (out.own * weight).sum()
            results.append(
                [out.H, out.own.detach(), out.aggregate.detach(), *torch.autograd.grad(loss, variables)],
            )
    assert len(ranges) > 1 or n <= 4 * PART  # but the sum is shared
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", [True, False])
def test_what_is_not_a_number_stays_so(norm: bool, activation: Any) -> None:
    """A diverged run must show: NaN is not silently turned into 0."""
    Z, bias, *parameters = inputs(3, 8, bias=True, norm=norm)
    assert bias is not None
    Z = Z.detach().clone()
    Z[1, 2] = float("nan")
    H = hidden_layer(exactly(Z, bias), Sigma(*parameters, activation)).H
    Z += bias.detach()
    activate_in_place(Z, Sigma(*parameters, activation))
    for found in (H, Z):
        assert bool(found[1].isnan().any())
        assert not bool(found[[0, 2]].isnan().any())


@pytest.mark.parametrize("drop", [None, Dropout(0.5, key=7)], ids=["all", "dropped"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_at_zero_the_slope_is_torchs(activation: Any, drop: Dropout | None) -> None:
    """ReLU's is 0 there; ELU and GELU are 0 there and have a slope, which nobody may take for a dropped entry."""
    Z = torch.tensor([[0.0, -0.0, 1.0, -1.0]], dtype=torch.float64).repeat(6, 1).requires_grad_()
    found = []
    for twin in (False, True):
        own = both(twin, lambda: hidden_layer(Z, Sigma(activation=activation), drop=drop)).own
        assert own is not None
        found.append(torch.autograd.grad(own.sum(), Z)[0])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-15)
    assert bool((found[0][:, :2] == 0).all()) == (activation == "relu")


def test_nothing_is_kept_alive() -> None:
    """No reference cycle through what is saved: memory must not wait for the garbage collector."""
    Z, bias, gain, shift = inputs(4, 3, bias=True, norm=True)
    _, (S, St) = sampled(2, 4)
    gc.disable()
    try:
        drop = Dropout.at(0.5, seed=0, step=1, k=1)
        for given in (Z, exactly(Z, bias)):
            out = hidden_layer(
                given, Sigma(gain, shift), drop=drop, own=True,
                summed=NeighborSum(S, St, correction=lambda a, b: torch.zeros(b - a, 3).double()),
            )  # fmt: skip
            seen = [weakref.ref(t) for t in (out.H, out.own, out.aggregate)]
            (out.aggregate.sum() + out.own.sum()).backward()  # type: ignore[union-attr, operator]
            del out
            assert [s() for s in seen] == [None, None, None]
    finally:
        gc.enable()


# The compiled function against its plain twin.

N, F, D, M = 23, 6, 5, 9  # rows, columns of the inputs, of the layer, targets


def features(seed: int) -> Tensor:
    X = draw(N + 4, F, seed=seed)
    return X * (X > 0.2)


def dense_rows(seed: int, drop: Dropout | None = None) -> DenseRows:
    X = features(seed)
    return DenseRows(lambda first, last: X[first:last].clone(), (N, F), drop)


def sparse_rows(seed: int, drop: Dropout | None = None) -> SparseInput:
    indptr, indices, values = sparse(features(seed)).tensors
    ids = torch.randint(0, N + 4, (N,), generator=torch.Generator().manual_seed(seed))
    return SparseInput(Rows(indptr.long(), indices, values), ids, num_columns=F).dropped(drop)


def span(seed: int) -> SparseInput:
    rows = sparse_rows(seed)
    return SparseInput(rows.matrix, range(2, 2 + N), num_columns=F)


INPUTS = {
    "tensor": lambda: [draw(N, F, seed=1).requires_grad_()],
    "constant": lambda: [draw(N, F, seed=1)],
    "dense": lambda: [dense_rows(1)],
    "dense dropped": lambda: [dense_rows(1, Dropout(0.3, key=11))],
    "sparse": lambda: [sparse_rows(1)],
    "sparse dropped": lambda: [sparse_rows(1, Dropout(0.3, key=11))],
    "span": lambda: [span(1)],
    "two tensors": lambda: [draw(N, F, seed=1).requires_grad_(), draw(N, F, seed=2).requires_grad_()],
    "dense and sparse": lambda: [dense_rows(1), sparse_rows(2)],
    "sparse and sparse": lambda: [sparse_rows(1), span(2)],
    "tensor and dense": lambda: [draw(N, F, seed=1).requires_grad_(), dense_rows(2)],
    "sparse and tensor": lambda: [sparse_rows(1), draw(N, F, seed=2).requires_grad_()],
}


def terms(kind: str, *, bias: bool) -> tuple[Affine, list[Tensor]]:
    """An affine map, and what it is differentiable in."""
    given: list[LayerInput] = INPUTS[kind]()  # type: ignore[assignment]
    weights = [draw(F, D, seed=5 + j).requires_grad_() for j in range(len(given))]
    b = draw(D, seed=9).requires_grad_() if bias else None
    variables = [*weights, *(A for A in given if isinstance(A, Tensor) and A.requires_grad)]
    return Affine(tuple(zip(given, weights, strict=True)), b), variables + ([] if b is None else [b])


def both(twin: bool, call: Any) -> Any:
    """What a call gives, plain or compiled."""
    if not twin:
        return call()
    with plain():
        return call()


def agree(call: Any, variables: list[Tensor]) -> None:
    """Compiled and plain: each tensor of the result, and the gradient of a weighted sum of them."""
    results = []
    for twin in (False, True):
        values = [t for t in both(twin, call) if t is not None]
        loss = sum((t * draw(*t.shape, seed=i)).sum() for i, t in enumerate(values) if t.requires_grad)
        results.append((values, torch.autograd.grad(loss, variables)))  # type: ignore[arg-type]
    for ours, theirs in zip(*results, strict=True):
        assert [t.shape for t in ours] == [t.shape for t in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a.requires_grad == b.requires_grad
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def layer_agrees(kind: str, activation: Any, norm: bool, drop: bool, summed: str, own: bool, bias: bool = True) -> None:
    if kind == "given":
        Z: Affine | Tensor = draw(N, D, seed=1).requires_grad_()
        variables = [Z]
    else:
        Z, variables = terms(kind, bias=bias)
    gain, shift = (draw(D, seed=s).requires_grad_() for s in (20, 21)) if norm else (None, None)
    variables = [*variables, *(p for p in (gain, shift) if p is not None)]
    corrections = {
        "sampled": None,
        "corrected": lambda a, b: draw(M, D, seed=3)[a:b],
        "uncorrected": lambda a, b: None,
    }
    neighbors = NeighborSum(*sampled(M, N)[1], correction=corrections[summed]) if summed else None

    def call() -> HiddenLayer:
        return hidden_layer(
            Z, Sigma(gain, shift, activation), drop=Dropout(0.4, key=3) if drop else None, summed=neighbors, own=own
        )  # fmt: skip

    H, mine, aggregate = call()
    assert (aggregate is None) == (not summed)
    assert (mine is None) == (bool(summed) and not own)
    assert mine is None or len(mine) == (M if summed else N)
    assert H.shape == (N, D)
    agree(call, variables)


@pytest.mark.parametrize("summed", ["", "sampled", "corrected", "uncorrected"])
@pytest.mark.parametrize("kind", ["given", *INPUTS])
def test_a_hidden_layer_is_its_plain_twin(kind: str, summed: str) -> None:
    """For each activation, with LayerNorm, dropout and own rows or without."""
    choices = (False, True)
    for activation, norm, drop, own in itertools.product(ACTIVATIONS, choices, choices, choices):
        layer_agrees(kind, activation, norm, drop, summed, own)


@pytest.mark.parametrize("kind", INPUTS)
def test_a_hidden_layer_without_bias(kind: str) -> None:
    layer_agrees(kind, "relu", True, True, "corrected", True, bias=False)
    layer_agrees(kind, "gelu", False, False, "", False, bias=False)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", INPUTS)
def test_an_affine_map_is_its_plain_twin(kind: str, bias: bool, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (parallel, fused_module):
        monkeypatch.setattr(module, "WORTH_SHARING", 0)
    with thread_count(threads):
        Z, variables = terms(kind, bias=bias)
        assert (len(parallel.row_ranges(N, 1)) > 1) == (threads > 1)
        agree(lambda: [affine(Z)], variables)
        assert "_LayerFunction" in str(affine(Z).grad_fn)
        with torch.no_grad():
            torch.testing.assert_close(affine(Z), both(True, lambda: affine(Z)), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", INPUTS)
def test_a_hidden_layer_in_ranges_is_its_plain_twin(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a part has, shared by three threads, against the twin on one."""
    for name, value in (("N", 4 * PART + 41), ("M", PART + 7)):
        monkeypatch.setitem(globals(), name, value)
    monkeypatch.setattr(parallel, "WORTH_SHARING", 0)
    with thread_count(3):
        assert len(parallel.row_ranges(N, 1, multiple=rows_in_part(N))) > 1
        for activation in ACTIVATIONS:
            layer_agrees(kind, activation, True, True, "corrected", True)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("above", ["affine", "hidden", "two terms", "matmul"])
def test_a_lazy_sum_is_summed_by_the_layer_above(above: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads the rows later, by ranges or at once, gets the same values and gradients as the plain twin."""
    for module in (parallel, fused_module):
        monkeypatch.setattr(module, "WORTH_SHARING", 0)
    Z, variables = terms("tensor", bias=True)
    neighbors = NeighborSum(*sampled(M, N)[1], correction=lambda first, last: draw(M, D, seed=3)[first:last])
    W, b = draw(D, 4, seed=30).requires_grad_(), draw(4, seed=31).requires_grad_()

    def call() -> list[Tensor]:
        out = hidden_layer(Z, Sigma(), drop=Dropout(0.4, key=3), summed=neighbors, own=True, lazy=True)
        aggregate, own = out.aggregate, out.own
        assert aggregate is not None
        assert own is not None
        assert isinstance(aggregate, LazySum) == use_compiled(W)
        if above == "matmul":
            return [aggregate @ W + b]
        if above == "hidden":
            return list(hidden_layer(Affine(((aggregate, W),), b), Sigma(activation="gelu"), own=True)[:2])  # type: ignore[arg-type]
        return [affine(Affine(((aggregate, W), (own, W))[: 1 + (above == "two terms")], b))]

    with thread_count(threads):
        agree(call, [*variables, W, b])


def small() -> tuple[list[Tensor], Any]:
    """Few numbers, and a smooth layer of them: with `gelu`, LayerNorm, dropout, a sum and own rows."""
    variables = [draw(*s, seed=i).requires_grad_() for i, s in enumerate([(3, 2), (2, 3), (3,), (3,), (3,)])]
    S = torch.tensor([[0.5, -1.0, 0.0], [0.0, 2.0, 1.5]], dtype=torch.float64)

    def call(A: Tensor, W: Tensor, b: Tensor, gain: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        out = hidden_layer(
            Affine(((A, W),), b), Sigma(gain, shift, "gelu"), drop=Dropout(0.3, key=2),
            summed=NeighborSum(sparse(S), sparse(S.t().contiguous())), own=True,
        )  # fmt: skip
        assert out.own is not None
        assert isinstance(out.aggregate, Tensor)
        return out.own, out.aggregate

    return variables, call


def test_the_plain_twin_has_all_derivatives() -> None:
    variables, call = small()
    with plain():
        assert torch.autograd.gradcheck(call, variables)
        assert torch.autograd.gradgradcheck(call, variables)
    assert torch.autograd.gradcheck(call, variables)


def test_the_fused_one_refuses_a_second_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    variables, call = small()
    with pytest.raises(CvgnnError, match="a fused layer has one derivative; for a second one compute within"):
        torch.autograd.grad(sum(t.sum() for t in call(*variables)), variables, create_graph=True)
    for module in (parallel, fused_module):
        monkeypatch.setattr(module, "WORTH_SHARING", 0)
    Z, weights = terms("dense", bias=True)
    with thread_count(2), pytest.raises(CvgnnError, match="a fused layer has one derivative"):
        torch.autograd.grad(affine(Z).sum(), weights, create_graph=True)


def test_a_graph_that_is_kept_gives_the_same_again() -> None:
    variables, call = small()
    loss = sum(t.square().sum() for t in call(*variables))
    first = torch.autograd.grad(loss, variables, retain_graph=True)
    second = torch.autograd.grad(loss, variables)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, variables)


@pytest.mark.parametrize("i", range(5))
def test_what_was_changed_in_place_is_noticed(i: int) -> None:
    variables, call = small()
    loss = sum(t.sum() for t in call(*variables))
    with torch.no_grad():
        variables[i].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, variables)


@pytest.mark.parametrize("used", [0, 1], ids=["own", "aggregate"])
def test_one_of_two_results_may_be_without_use(used: int) -> None:
    variables, call = small()
    found = []
    for twin in (False, True):
        out = both(twin, lambda: call(*variables))
        found.append(torch.autograd.grad(out[used].square().sum(), variables))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("frozen", range(5))
def test_what_needs_no_gradient_gets_none(frozen: int) -> None:
    variables, call = small()
    variables[frozen].requires_grad_(False)
    live = [v for v in variables if v.requires_grad]
    found = []
    for twin in (False, True):
        out = both(twin, lambda: call(*variables))
        found.append(torch.autograd.grad(sum(t.square().sum() for t in out), live))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n": 4}, "the layer computed 4 rows of float64, but its block has 3 sources and weights of float64"),
        ({"dtype": torch.float32}, "the layer computed 3 rows of float64, but its block .* weights of float32"),
        (
            {"correction": torch.zeros(2, 9).double()},
            r"correction is torch\.float64 of shape \[2, 9\], the layer needs",
        ),
        ({"correction": torch.zeros(1, 5).double()}, r"shape \[1, 5\], the layer needs torch\.float64 of \[2, 5\]"),
        ({"correction": torch.zeros(2, 5)}, r"correction is torch\.float32 of shape \[2, 5\], the layer needs"),
        ({"W": (4, 5)}, r"a layer multiplies \[3, 6\] by \[4, 5\], but must give \[3, 5\]"),
        ({"other": (4, 6)}, r"a layer multiplies \[4, 6\] by \[6, 5\], but must give \[3, 5\]"),
    ],
    ids=str,
)
def test_what_does_not_fit_together(change: dict[str, Any], said: str) -> None:
    S = torch.ones(2, 3, dtype=change.get("dtype", torch.float64))
    n, correction = change.get("n", 3), change.get("correction")
    given: list[tuple[LayerInput, Tensor]] = [(draw(n, 6), draw(*change.get("W", (6, 5))))]
    if "other" in change:
        given.append((draw(*change["other"]), draw(6, 5)))
    with pytest.raises(CvgnnError, match=said):
        hidden_layer(
            Affine(tuple(given)), Sigma(),
            summed=NeighborSum(
                sparse(S), sparse(S.t().contiguous()), correction=None if correction is None else lambda a, b: correction
            ),
        )  # fmt: skip


@pytest.mark.parametrize("twin", [False, True], ids=["compiled", "plain"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_another_dtype_is_refused(dtype: torch.dtype, twin: bool) -> None:
    A, W = torch.ones(3, 2, dtype=dtype), torch.ones(2, 4, dtype=dtype)
    for Z in (A, Affine(((A, W),))):
        with pytest.raises(CvgnnError, match=rf"a layer computes in torch\.float32 or torch\.float64, not {dtype}"):
            both(twin, lambda Z=Z: hidden_layer(Z, Sigma()))


@pytest.mark.parametrize("where", ["input", "correction"])
def test_an_error_in_a_thread_is_raised_and_torch_gets_its_threads_back(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "WORTH_SHARING", 0)
    n, m = 3 * PART, 2 * PART

    def rows(width: int, bad: bool, first: int, last: int) -> Tensor:
        if bad and first > 0:
            raise KeyError("in a thread")
        return torch.ones(last - first, width, dtype=torch.float64)

    S, St = sampled(m, n)[1]
    A = DenseRows(lambda a, b: rows(6, where == "input", a, b), (n, 6))
    with thread_count(3):
        with pytest.raises(KeyError, match="in a thread"):
            hidden_layer(
                Affine(((A, draw(6, 5)),)), Sigma(),
                summed=NeighborSum(S, St, correction=lambda a, b: rows(5, where == "correction", a, b)),
            )  # fmt: skip
        assert (torch.get_num_threads(), parallel.num_threads()) == (3, 3)
