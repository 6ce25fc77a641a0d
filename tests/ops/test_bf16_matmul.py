"""Features in bfloat16: products against sums written out in float64, and training against a literal twin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, layer_norm

from cvgnn.data import Propagation
from cvgnn.nn import GCN, ControlVariate, exact_hidden, exact_logits
from cvgnn.ops import bf16_matmul as rounded
from cvgnn.ops import fused_layer as fused_module
from cvgnn.ops import threads as parallel
from cvgnn.ops.affine import Affine
from cvgnn.ops.backend import plain
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.fused_layer import affine
from cvgnn.ops.matmul import product, weight_gradient
from cvgnn.ops.row_input import DenseRows
from cvgnn.sampling import Batch, BatchLoader, NeighborSampler, propagate_features
from cvgnn.training import NodeClassification, Trainer
from cvgnn.training.machine import thread_count
from tests.build import graph_from_dense, random_adjacency

ULP = 2.0**-7  # between two bfloat16 numbers, relative to the smaller; rounding errs by half of it


def bits(x: Tensor) -> Tensor:
    """Rounded to 8 significant bits."""
    return x.bfloat16().double()


@pytest.fixture(params=["native", "float32"], autouse=True)
def multiplied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to multiply: as the processor does bfloat16, and from float32 matrices where it does not."""
    if request.param == "native" and not rounded.is_native():
        pytest.skip("this processor does not multiply bfloat16")
    monkeypatch.setattr(rounded, "is_native", lambda: request.param == "native")
    return str(request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("n", "d_in", "d_out"), [(0, 3, 2), (1, 1, 1), (7, 5, 3), (300, 500, 64), (40, 3, 200), (256, 9, 20), (900, 30, 20)]
)
def test_factors_and_result_have_eight_bits(n: int, d_in: int, d_out: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(n)
    A = torch.randn(n, d_in, generator=generator).bfloat16()
    W, dZ = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((d_in, d_out), (n, d_out)))
    found = {"A W": product(A, W), "A^T dZ": weight_gradient(A, dZ)}
    sums = {"A W": (A.double(), bits(W)), "A^T dZ": (A.double().t(), bits(dZ))}
    for name, Z in found.items():
        left, right = sums[name]
        expected, size = left @ right, left.abs() @ right.abs()
        assert Z.dtype == dtype
        assert Z.shape == expected.shape
        parts = 2 if name == "A^T dZ" and n > 256 else 1  # that are rounded and then added
        assert parts == 2 or torch.equal(Z, Z.bfloat16().to(dtype))
        # half a unit for each rounding, and what float32 sums are off by: it counts where terms cancel
        largest = expected.abs() if parts == 1 else size
        assert bool(((Z.double() - expected).abs() <= ULP / 2 * largest + 1e-5 * size).all())


def test_integers_are_exact() -> None:
    """Sums that eight bits can hold: one wrong term would show."""
    generator = torch.Generator().manual_seed(0)
    A, W = (torch.randint(-2, 3, shape, generator=generator).double() for shape in ((50, 12), (12, 9)))
    assert torch.equal(product(A.bfloat16(), W), A @ W)
    assert torch.equal(weight_gradient(A.bfloat16(), A[:, :4].contiguous()), A.t() @ A[:, :4])


def test_few_shapes_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN keeps compiled code for each, so batches of all sizes must not make new ones."""
    shapes = set()
    multiply = torch.mm

    def seen(a: Tensor, b: Tensor, **options: Any) -> Tensor:
        shapes.add((a.shape, b.shape))
        return multiply(a, b, **options)

    monkeypatch.setattr(rounded, "is_native", lambda: True)
    monkeypatch.setattr(rounded.torch, "mm", seen)
    W = torch.ones(3, 2)
    for n in range(1, 1025):
        A = torch.ones(n, 3).bfloat16()
        rounded.bf16_product(A, W)
        rounded.bf16_gradient(A, torch.ones(n, 2), torch.float32)
    assert len(shapes) == 2 * (4 + 8 - 1)  # of whole rows, and of the rest, 256 being one of both


@pytest.mark.parametrize("way", ["torch", "fused", "plain"])
def test_gradient_of_the_differentiable_product(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "fused":
        for module in (parallel, fused_module):
            monkeypatch.setattr(module, "WORTH_SHARING", 0)
        monkeypatch.setattr(parallel, "MAX_IMBALANCE", 0.0)  # one range
    A = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    W = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
    b = torch.zeros(3, requires_grad=True)
    weight = torch.randn(6, 3, generator=torch.Generator().manual_seed(2))
    rows = DenseRows(lambda first, last: A[first:last].clone(), (6, 5))
    with plain() if way == "plain" else thread_count(2):
        Z = affine(Affine(((rows, W),), b))
        assert ("_LayerFunction" in str(Z.grad_fn)) == (way == "fused")
        dW, db = torch.autograd.grad((Z * weight).sum(), [W, b])
    assert torch.equal(Z, product(A, W) + b)
    assert torch.equal(dW, weight_gradient(A, weight))
    torch.testing.assert_close(db, weight.sum(dim=0))


class Literal(torch.autograd.Function):
    """`round(round(A) round(W))`, and backwards the same of `A^T dZ`."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, W: Tensor) -> Tensor:
        ctx.A = A
        return bits(A @ bits(W))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, bits(ctx.A.t() @ bits(grads[0]))


def literal_loss(model: GCN, batch: Batch, cv: ControlVariate, PX: Tensor, labels: Tensor) -> Tensor:
    """Algorithm 1's loss in float64 from dense matrices, with the features and their products in eight bits."""
    A = bits(PX[batch.inputs])
    if model.input_dropout:
        drop = Dropout.at(model.input_dropout, seed=model.seed, step=batch.step, k=0)
        A = bits(A.float() * drop.mask((A.shape[0], A.shape[1]), torch.float32))
    for k in range(1, model.num_layers):
        layer, block = model.layer(k - 1), batch.block(k)
        Y = (Literal.apply(A, layer.weight) if k == 1 else A @ layer.weight) + layer.bias  # type: ignore[no-untyped-call]
        norm: Any = layer.norm
        H = torch.relu(Y if norm is None else layer_norm(Y, (Y.shape[1],), norm.weight, norm.bias))
        history = cv.history(k).values.double()
        assert block.remainder is not None
        A = block.sampled.dense(H.shape[0]) @ H + block.remainder.dense(len(history)) @ history
    last = model.layer(model.num_layers - 1)
    logits = Literal.apply(A, last.weight) if model.num_layers == 1 else A @ last.weight  # type: ignore[no-untyped-call]
    return cross_entropy(batch.select(logits + last.bias), labels[batch.ids])


@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 1}, {"num_layers": 3, "norm": "layer"}, {"input_dropout": 0.5}, {"mode": "replacement"}],
    ids=str,
)
def test_training_is_the_literal_twins_step_by_step(options: dict[str, Any]) -> None:
    """Loss and gradients at each of thirty steps, compiled and plain."""
    mode = options.pop("mode", "shuffle")
    graph = graph_from_dense(random_adjacency(40, mean_degree=5, weighted=True, seed=0), features=5)
    P = Propagation(graph)
    features = propagate_features(graph, P, storage=torch.bfloat16)
    options = {"norm": "none", "dropout": 0.0, "num_layers": 2} | options
    model = GCN(in_channels=5, hidden_channels=6, out_channels=3, dtype=torch.float64, **options)
    cv = ControlVariate(features, model.hidden_widths)
    cv.initialize(exact_hidden(model, features, P))
    sampler = NeighborSampler(P, num_neighbors=2, num_layers=model.num_layers, control=True)
    loader = BatchLoader(graph.train_ids, sampler, batch_size=7, mode=mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    trainer = Trainer(model=model, estimator=cv, loader=loader, optimizer=optimizer, task=NodeClassification(graph))
    PX, steps = P.product(graph.x), 0  # type: ignore[arg-type]
    for epoch in range(1, 100):
        for batch in loader.epoch(epoch):
            expected = literal_loss(model, batch, cv, PX, graph.y)
            gradients = torch.autograd.grad(expected, list(model.parameters()))
            with plain():
                twin = cross_entropy(batch.select(model(batch, cv)), graph.y[batch.ids])
                found = torch.autograd.grad(twin, list(model.parameters()))
            cv.discard()
            for ours, theirs in zip(found, gradients, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
            assert trainer.step(batch) == pytest.approx(float(expected.detach()), abs=1e-10)
            for p, gradient in zip(model.parameters(), gradients, strict=True):
                torch.testing.assert_close(p.grad, gradient, rtol=0, atol=1e-10)
            steps += 1
            if steps == 30:
                return


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_round_the_gradient_of_their_rows(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of `A^T dZ` are rounded before they are added: within a unit of the 8 bits of the sum of their sizes."""
    graph = graph_from_dense(random_adjacency(3000, mean_degree=5, weighted=False, seed=0), features=5)
    P = Propagation(graph)
    features = propagate_features(graph, P, storage=torch.bfloat16)
    model = GCN(in_channels=5, hidden_channels=6, out_channels=3, norm="none", dropout=0.0, dtype=torch.float64)
    cv = ControlVariate(features, model.hidden_widths)
    sampler = NeighborSampler(P, num_neighbors=2, num_layers=2, control=True)
    batch = next(iter(BatchLoader(graph.train_ids, sampler, batch_size=900).epoch(1)))
    found = []
    for number in (1, threads):
        with thread_count(number):
            loss = cross_entropy(batch.select(model(batch, cv)), graph.y[batch.ids])
            found.append(torch.autograd.grad(loss, list(model.parameters())))
        monkeypatch.setattr(parallel, "WORTH_SHARING", 1)
    first, *others = zip(*found, strict=True)
    assert not torch.equal(*first)  # or nothing was shared
    torch.testing.assert_close(first[1], first[0], rtol=0, atol=ULP * float(first[0].abs().max()))
    for one, several in others:
        torch.testing.assert_close(several, one, rtol=0, atol=1e-10)


def test_exact_inference_rounds_the_features_alone() -> None:
    graph = graph_from_dense(random_adjacency(30, mean_degree=4, weighted=False, seed=1), features=6)
    P = Propagation(graph)
    features = propagate_features(graph, P, storage=torch.bfloat16)
    model = GCN(in_channels=6, hidden_channels=5, out_channels=3, norm="none", dtype=torch.float64)
    first, last = model.layer(0), model.layer(1)
    H = torch.relu(bits(P.product(graph.x)) @ first.weight + first.bias)  # type: ignore[arg-type]
    expected = P.dense() @ H @ last.weight + last.bias
    torch.testing.assert_close(exact_logits(model, features, P), expected.detach(), rtol=0, atol=1e-12)
