"""Loss and gradient of a network: the compiled passes against plain torch, and against Algorithm 1 written out."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, layer_norm
from torch.nn.utils import parametrizations, parametrize

from cvgnn.data import Graph, Propagation, SparseFeatures
from cvgnn.errors import CvgnnError
from cvgnn.nn import GCN, GCNII, GIN, SAGE, Affine, ControlVariate, Estimator, Network, SampledSum, exact_hidden
from cvgnn.ops import fused_layer as fused_module
from cvgnn.ops import layer_kernels as kernels
from cvgnn.ops import threads as parallel
from cvgnn.ops.backend import plain
from cvgnn.ops.dropout import Dropout
from cvgnn.optim import make_optimizer
from cvgnn.sampling import Batch, BatchLoader, FeatureSource, LayerInput, NeighborSampler, propagate_features
from cvgnn.training import NodeClassification, Trainer
from cvgnn.training.machine import thread_count
from tests.build import graph_from_dense, random_adjacency

Setting = tuple[Graph, Network, Estimator, BatchLoader]
Objective = Callable[[Tensor, Tensor], Tensor]


@functools.cache
def graph_of(nodes: int, sparse: bool) -> Graph:
    graph = graph_from_dense(random_adjacency(nodes, mean_degree=5, weighted=True, seed=0), features=5)
    if sparse:
        x = csr_array(np.where(graph.x > 0.5, graph.x, 0.0))  # type: ignore[operator]
        features = SparseFeatures(*(torch.from_numpy(part) for part in (x.indptr, x.indices, x.data)), 5)
        graph = dataclasses.replace(graph, x=features, validated=False, built=False)
    return graph


def setting(
    K: int = 2,
    *,
    network: Callable[..., Network] = GCN,
    estimator: str = "cvd",
    sparse: bool = False,
    mode: str = "shuffle",
    storage: torch.dtype | None = None,
    nodes: int = 40,
    batch_size: int = 7,
    **model_options: object,
) -> Setting:
    graph = graph_of(nodes, sparse)
    options = {"norm": "layer", "dropout": 0.3, **model_options}
    model = network(in_channels=5, hidden_channels=4, out_channels=3, num_layers=K, dtype=torch.float64, **options)
    propagation = Propagation(graph, normalization=model.normalization or "symmetric")  # type: ignore[arg-type]
    aggregated, own = model.reads
    source = propagate_features(graph, propagation, aggregated=aggregated, own=own)
    sampler = NeighborSampler(
        propagation, num_neighbors=2, num_layers=model.num_layers, control=estimator != "ns"
    )  # fmt: skip
    loader = BatchLoader(graph.train_ids, sampler, batch_size=batch_size, mode=mode)  # type: ignore[arg-type]
    if estimator == "ns":
        return graph, model, SampledSum(source), loader
    cv = ControlVariate(source, model.hidden_widths, separate_dropout=estimator == "cvd", storage=storage)
    cv.initialize(exact_hidden(model, source, propagation))
    for history in cv.histories:
        history.values.add_(torch.randn(history.values.shape, generator=torch.Generator().manual_seed(1)))
    return graph, model, cv, loader


class Result(NamedTuple):
    loss: float
    gradients: dict[str, Tensor | None]
    staged: list[Tensor]


def gradients_of(model: Network, loss: Tensor) -> dict[str, Tensor | None]:
    model.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad for name, p in model.named_parameters()}


def computed(
    model: Network, batch: Batch, estimator: Estimator, labels: Tensor, objective: Objective = cross_entropy,
    *, twin: bool = False,
) -> Result:  # fmt: skip
    """By the network, compiled or, as its `twin`, plain."""
    with plain() if twin else nullcontext():
        loss = objective(batch.select(model(batch, estimator)), labels[batch.ids])
        gradients = gradients_of(model, loss)
    staged = [H.clone() for H in estimator.staged()]
    estimator.discard()
    return Result(float(loss.detach()), gradients, staged)


def literal(
    model: Network, batch: Batch, estimator: Estimator, labels: Tensor, objective: Objective = cross_entropy
) -> Result:
    """Lines 6 to 11 of Algorithm 1 for a GCN, from dense matrices, by torch's operations alone."""

    def dropped(A: Tensor, k: int) -> Tensor:
        p = model.dropout if k else model.input_dropout
        if p == 0.0:
            return A
        return A * Dropout.at(p, seed=model.seed, step=batch.step, k=k).mask((A.shape[0], A.shape[1]), A.dtype)

    rows = estimator.features.rows(batch.inputs)
    A, staged = dropped(rows if isinstance(rows, Tensor) else rows.tensor(torch.float64), 0), []
    for k in range(1, model.num_layers + 1):
        layer = model.layer(k - 1)
        Z = A @ layer.weight if layer.bias is None else A @ layer.weight + layer.bias
        if k < model.num_layers:
            norm: Any = layer.norm
            H = torch.relu(Z if norm is None else layer_norm(Z, (Z.shape[1],), norm.weight, norm.bias))
            block = batch.block(k)
            A = block.sampled.dense(len(H)) @ dropped(H, k)
            if isinstance(estimator, ControlVariate):
                if estimator.separate_dropout:
                    assert block.mask is not None
                    A = block.sampled.dense(len(H)) @ H + block.mask.sampled.dense(len(H)) @ (dropped(H, k) - H)
                history = estimator.history(k).values.double()
                assert block.remainder is not None
                A = A + block.remainder.dense(len(history)) @ history
                staged.append(H.detach())
    loss = objective(batch.select(Z), labels[batch.ids])
    return Result(float(loss.detach()), gradients_of(model, loss), staged)


def equal(ours: Result, theirs: Result) -> None:
    assert abs(ours.loss - theirs.loss) < 1e-12
    assert {k: g is None for k, g in ours.gradients.items()} == {k: g is None for k, g in theirs.gradients.items()}
    for name, gradient in ours.gradients.items():
        if gradient is not None:
            torch.testing.assert_close(gradient, theirs.gradients[name], rtol=0, atol=1e-12)
    assert len(ours.staged) == len(theirs.staged)
    for mine, other in zip(ours.staged, theirs.staged, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-14)


def smoothed(options: dict[str, Any]) -> tuple[dict[str, Any], Objective]:
    rest = {name: value for name, value in options.items() if name != "smoothing"}
    return rest, functools.partial(cross_entropy, label_smoothing=options.get("smoothing", 0.0))


@pytest.fixture(params=["few rows", "many rows"])
def last_layer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both ways to compute the last layer: by torch, and as the one function that threads share on many rows."""
    if request.param == "many rows":
        monkeypatch.setattr(fused_module, "WORTH_SHARING", 0)
    with thread_count(2):
        yield


@pytest.mark.usefixtures("last_layer")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"K": 1},
        {"K": 3},
        {"K": 4, "norm": "none", "bias": False},
        {"bias": False},
        {"norm": "none", "dropout": 0.0},
        {"estimator": "ns"},
        {"sparse": True},
        {"sparse": True, "K": 1},
        {"mode": "replacement", "K": 3},
        {"mode": "replacement", "sparse": True},
        {"sparse": True, "bias": False, "norm": "none", "dropout": 0.0},
        {"sparse": True, "estimator": "ns"},
        {"estimator": "cv"},
        {"sparse": True, "estimator": "cv", "K": 3},
        {"sparse": True, "storage": torch.bfloat16},
        {"sparse": True, "smoothing": 0.3, "input_dropout": 0.5},
        {"input_dropout": 0.5},
        {"input_dropout": 0.5, "sparse": True, "K": 3},
        {"smoothing": 0.3},
        {"smoothing": 0.3, "mode": "replacement", "K": 1},
        {"batch_size": 1},
        {"nodes": 600, "batch_size": 300, "sparse": True},
        {"nodes": 600, "batch_size": 300},
    ],
    ids=str,
)
def test_loss_gradient_and_staged_writes_are_those_of_algorithm_1(options: dict) -> None:
    options, objective = smoothed(options)
    graph, model, estimator, loader = setting(**options)
    for batch in loader.epoch(1):
        ours = computed(model, batch, estimator, graph.y, objective)
        equal(ours, computed(model, batch, estimator, graph.y, objective, twin=True))
        equal(ours, literal(model, batch, estimator, graph.y, objective))
        assert len(ours.staged) == (model.num_layers - 1 if options.get("estimator") != "ns" else 0)


@pytest.mark.parametrize("activation", ["relu", "elu", "gelu"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "options",
    [
        {"network": SAGE},
        {"network": SAGE, "K": 3, "jk": "concat"},
        {"network": GIN, "K": 3, "estimator": "ns"},
        {"network": GIN, "norm": "none", "input_layer": True},
        {"network": GCNII, "K": 4},
        {"network": GCNII, "K": 2, "norm": "batch", "jk": "concat"},
        {"residual": True, "K": 3, "input_dropout": 0.2},
        {"residual": True, "norm": "batch", "network": SAGE, "mode": "replacement"},
        {"input_layer": True, "K": 2, "bias": False},
        {"jk": "concat", "K": 1},
    ],
    ids=lambda o: "-".join(str(getattr(v, "__name__", v)) for v in o.values()),
)
def test_every_kind_of_network_is_its_plain_twin(options: dict, sparse: bool, activation: str) -> None:
    graph, model, estimator, loader = setting(**options, sparse=sparse, activation=activation)
    for batch in loader.epoch(1):
        ours = computed(model, batch, estimator, graph.y)
        equal(ours, computed(model, batch, estimator, graph.y, twin=True))
        assert all(gradient is not None for gradient in ours.gradients.values())


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"K": 3, "input_dropout": 0.5},
        {"mode": "replacement", "smoothing": 0.3},
        {"sparse": True, "K": 3, "input_dropout": 0.5},
        {"estimator": "ns", "norm": "none"},
        {"storage": torch.bfloat16},
    ],
    ids=str,
)
def test_rows_that_threads_share(options: dict, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer in parts, on a graph with more rows than a part has at least."""
    for module in (parallel, fused_module):
        monkeypatch.setattr(module, "WORTH_SHARING", 1)
    monkeypatch.setattr(
        parallel, "WORTH_TWO_ROUNDS", 1 if options.get("K") == 3 else 10**12
    )  # one or two parts for each thread
    options, objective = smoothed(options)
    graph, model, estimator, loader = setting(**options, nodes=4000, batch_size=700)
    with thread_count(threads):
        batch = next(iter(loader.epoch(1)))
        n = batch.inputs.numel()
        assert (len(parallel.row_ranges(n, 1, multiple=kernels.rows_in_part(n))) > 1) == (threads > 1)
        ours = computed(model, batch, estimator, graph.y, objective)
    equal(ours, computed(model, batch, estimator, graph.y, objective, twin=True))


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("twin", [False, True], ids=["compiled", "plain"])
def test_a_batch_without_nodes_has_no_logits(K: int, sparse: bool, twin: bool) -> None:
    _, model, estimator, loader = setting(K, sparse=sparse)
    batch = loader.batch(torch.zeros(0, dtype=torch.int64), 1)
    with plain() if twin else nullcontext():
        logits = batch.select(model(batch, estimator))
        assert logits.shape == (0, 3)
        for gradient in gradients_of(model, logits.sum()).values():
            assert gradient is None or not gradient.any()


# What autograd can do.


def bce(logits: Tensor, labels: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(logits, nn.functional.one_hot(labels, 3).double())


def ones_own(logits: Tensor, labels: Tensor) -> Tensor:
    """Some rows have no gradient, and some columns."""
    return (logits[::2, 1:].sin() * labels[::2, None]).square().mean() + logits[0, 0].exp()


@pytest.mark.usefixtures("last_layer")
@pytest.mark.parametrize("mode", ["shuffle", "replacement"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("objective", [bce, ones_own], ids=lambda f: f.__name__)
def test_any_loss(objective: Objective, sparse: bool, mode: str) -> None:
    graph, model, estimator, loader = setting(3, sparse=sparse, mode=mode)
    for batch in loader.epoch(1):
        ours = computed(model, batch, estimator, graph.y, objective)
        equal(ours, computed(model, batch, estimator, graph.y, objective, twin=True))
        equal(ours, literal(model, batch, estimator, graph.y, objective))


CALLS: list[str] = []


def called(name: str, result: Any = None) -> Any:
    CALLS.append(name)
    return result


def hooked(model: Network) -> None:
    model.register_forward_hook(lambda *_: called("forward"))
    model.register_forward_pre_hook(lambda *_: called("forward pre"))


def output_changed(model: Network) -> None:
    model.register_forward_hook(lambda module, args, logits: called("forward", 2 * logits.tanh()))


def hooked_backwards(model: Network) -> None:
    model.register_full_backward_pre_hook(lambda module, grads: called("backward", (3 * grads[0],)))


def hooked_layers(model: Network) -> None:
    for k in range(model.num_layers):
        model.layer(k).register_forward_hook(lambda *_: called("layer"))
        model.layer(k).register_forward_pre_hook(lambda *_: called("layer pre"))


def hooked_layers_backwards(model: Network) -> None:
    """A layer gives an `Affine`, so a hook sees the gradient of its bias; it must change nothing."""
    for k in range(model.num_layers):
        model.layer(k).register_full_backward_hook(lambda *_: called("layer"))
        model.layer(k).register_full_backward_pre_hook(lambda *_: called("layer pre"))


def layer_output_changed(model: Network) -> None:
    def change(module: nn.Module, args: Any, Z: Affine) -> Affine:
        assert Z.bias is not None
        return called("layer", Affine(tuple((A, W * 0.5) for A, W in Z.terms), Z.bias.sin()))

    for k in range(model.num_layers):
        model.layer(k).register_forward_hook(change)


def layer_output_a_tensor(model: Network) -> None:
    """A layer may compute `Z` itself; what follows is fused all the same."""

    def change(module: nn.Module, args: Any, Z: Affine) -> Tensor:
        ((A, W),) = Z.terms
        return called("layer", A @ W.cos() + Z.bias)

    for k in range(model.num_layers):
        model.layer(k).register_forward_hook(change)


def hooked_parameter(model: Network) -> None:
    for p in model.parameters():
        p.register_hook(lambda g: called("parameter", 2 * g))


def hooked_gradient(model: Network) -> None:
    def halve(p: Tensor) -> None:
        CALLS.append("gradient")
        assert p.grad is not None
        p.grad.mul_(0.5)

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(halve)


def frozen(*names: str) -> Callable[[Network], None]:
    def freeze(model: Network) -> None:
        for name in names:
            model.get_parameter(name).requires_grad_(False)

    freeze.__name__ = f"frozen {' '.join(names)}"
    return freeze


def normalized(model: Network) -> None:
    parametrizations.weight_norm(model.layer(1), "weight")


class Symmetric(nn.Module):
    """A matrix that is its own transpose."""

    def forward(self, X: Tensor) -> Tensor:
        return X.triu() + X.triu(1).t()


def parametrized(model: Network) -> None:
    parametrize.register_parametrization(model.layer(1), "weight", Symmetric())
    parametrize.register_parametrization(model.layer(0).norm, "bias", nn.Tanh())  # type: ignore[arg-type]


def shared(model: Network) -> None:
    model.layer(2).weight = model.layer(1).weight
    model.layer(1).bias = model.layer(0).bias


def tied(model: Network) -> None:
    """One parameter as bias, gain and shift of a layer."""
    norm: Any = model.layer(1).norm
    norm.weight = norm.bias = model.layer(1).bias


PARAMETERS = [
    frozen("layers.0.weight"),
    frozen("layers.3.weight", "layers.3.bias"),
    frozen("layers.1.norm.weight", "layers.2.bias"),
    frozen("layers.0.weight", "layers.0.bias", "layers.0.norm.weight", "layers.0.norm.bias", "layers.1.weight"),
    hooked_parameter,
    hooked_gradient,
    normalized,
    parametrized,
    shared,
    tied,
]
PASSES = [hooked, output_changed, hooked_backwards, hooked_layers, hooked_layers_backwards, layer_output_changed]
PASSES += [layer_output_a_tensor]
CHANGING = [output_changed, hooked_backwards, layer_output_changed, layer_output_a_tensor, hooked_parameter]
CHANGING += [hooked_gradient, parametrized, shared, tied]


no_input_has_a_gradient = pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # which torch remarks


@no_input_has_a_gradient
@pytest.mark.usefixtures("last_layer")
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("change", [*PARAMETERS, *PASSES], ids=lambda f: f.__name__)
def test_what_autograd_is_needed_for(change: Callable[[Network], None], sparse: bool) -> None:
    """Hooks, frozen, shared and parametrized parameters: loss and gradient are those of plain torch."""
    graph, model, estimator, loader = setting(K=4, sparse=sparse)
    batch = next(iter(loader.epoch(1)))
    before = computed(model, batch, estimator, graph.y)
    change(model)
    CALLS.clear()
    ours = computed(model, batch, estimator, graph.y)
    calls = list(CALLS)
    CALLS.clear()
    equal(ours, computed(model, batch, estimator, graph.y, twin=True))
    assert calls == CALLS
    if change in PARAMETERS:
        equal(ours, literal(model, batch, estimator, graph.y))
    if "hooked" in change.__name__ or "output" in change.__name__:
        assert calls
    if change in CHANGING:  # it has an effect
        gradients = zip(before.gradients.values(), ours.gradients.values(), strict=False)
        assert any(a is None or b is None or a.shape != b.shape or not torch.equal(a, b) for a, b in gradients)
    if change in (hooked, hooked_layers, hooked_layers_backwards):  # it has none
        equal(ours, before)
    for name, p in model.named_parameters():
        assert (ours.gradients[name] is not None) == p.requires_grad


@no_input_has_a_gradient
def test_backward_hooks_see_the_gradient_of_the_logits() -> None:
    graph, model, estimator, loader = setting()
    batch = next(iter(loader.epoch(1)))
    seen: list[Tensor] = []
    model.register_full_backward_pre_hook(lambda module, grads: seen.append(grads[0]))
    for twin in (False, True):
        computed(model, batch, estimator, graph.y, twin=twin)
    torch.testing.assert_close(seen[0], seen[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(seen[0].sum(), torch.tensor(0.0).double(), rtol=0, atol=1e-12)  # of a softmax


def data_replaced(model: Network) -> None:
    model.layer(0).weight.data = 2 * model.layer(0).weight.data


def parameter_replaced(model: Network) -> None:
    model.layer(1).weight = nn.Parameter(2 * model.layer(1).weight.detach())


def bias_removed(model: Network) -> None:
    model.layer(1).bias = None


def layer_replaced(model: Network) -> None:
    model.layers[0] = copy.deepcopy(model.layer(0))


def gain_replaced(model: Network) -> None:
    norm: Any = model.layer(0).norm
    norm.weight = nn.Parameter(2 * norm.weight.detach())


def not_contiguous(model: Network) -> None:
    for p in model.parameters():
        p.data = p.data.t().contiguous().t() if p.dim() == 2 else p.data.repeat_interleave(2)[::2]


CHANGES = [
    hooked_parameter, frozen("layers.1.weight"), data_replaced, parameter_replaced, bias_removed, layer_replaced,
    gain_replaced, not_contiguous,
]  # fmt: skip


@pytest.mark.usefixtures("last_layer")
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_model_that_changes_between_steps(change: Callable[[Network], None], sparse: bool) -> None:
    """What was seen of it does not count any more: the gradient is that of a model which is seen for the first time."""
    graph, used, estimator, loader = setting(sparse=sparse)
    _, fresh, other, _ = setting(sparse=sparse)
    batch = next(iter(loader.epoch(1)))
    computed(used, batch, estimator, graph.y)
    for model in (used, fresh):
        change(model)
    first, second = computed(used, batch, estimator, graph.y), computed(fresh, batch, other, graph.y)
    assert first.loss == pytest.approx(second.loss, rel=1e-14)
    for a, b in zip(first.gradients.values(), second.gradients.values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)
    equal(first, literal(used, batch, estimator, graph.y))


def test_gradients_of_one_step_outlive_the_next() -> None:
    graph, model, estimator, loader = setting(sparse=True)
    first, second = list(loader.epoch(1))[:2]
    kept = computed(model, first, estimator, graph.y).gradients
    before = {name: g.clone() for name, g in kept.items() if g is not None}
    computed(model, second, estimator, graph.y)
    assert all(torch.equal(kept[name], old) for name, old in before.items())  # type: ignore[arg-type]


def test_gradients_add_up_over_batches() -> None:
    """As autograd's do, without `zero_grad` between."""
    graph, model, estimator, loader = setting(sparse=True)
    first, second = list(loader.epoch(1))[:2]
    parts = [computed(model, batch, estimator, graph.y).gradients for batch in (first, second)]
    model.zero_grad(set_to_none=True)
    for batch in (first, second):
        cross_entropy(batch.select(model(batch, estimator)), graph.y[batch.ids]).backward()  # type: ignore[no-untyped-call]
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, parts[0][name] + parts[1][name], rtol=0, atol=1e-14)  # type: ignore[operator]


def test_a_second_derivative_is_plain_torchs() -> None:
    graph, model, estimator, loader = setting(3, activation="gelu")
    batch = next(iter(loader.epoch(1)))
    parameters = list(model.parameters())

    def penalty() -> Tensor:
        loss = cross_entropy(batch.select(model(batch, estimator)), graph.y[batch.ids])
        return sum(g.square().sum() for g in torch.autograd.grad(loss, parameters, create_graph=True))  # type: ignore[return-value]

    with pytest.raises(CvgnnError, match="a fused layer has one derivative"):
        penalty()
    with plain():
        found = torch.autograd.grad(penalty(), model.layer(0).weight)[0]
        step = 1e-5 * torch.randn(found.shape, generator=torch.Generator().manual_seed(0)).double()
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                model.layer(0).weight.add_(sign * step)
            ends.append(float(penalty().detach()))
            with torch.no_grad():
                model.layer(0).weight.sub_(sign * step)
    assert float((found * step).sum()) == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-5)


def make_trainer(**options: Any) -> Trainer:
    graph, model, estimator, loader = setting(sparse=True, **options)
    optimizer = make_optimizer("amsgrad", model.parameters(), lr=0.01)
    return Trainer(model=model, estimator=estimator, loader=loader, optimizer=optimizer, task=NodeClassification(graph))


def test_another_model() -> None:
    trainer, other = make_trainer(), make_trainer(seed=1)
    batch = next(iter(trainer.loader.epoch(1)))
    first = trainer._loss_and_gradient(batch)
    trainer.model, trainer.estimator = other.model, other.estimator
    assert trainer._loss_and_gradient(batch) == other._loss_and_gradient(batch) != first


def test_a_copy_of_a_trainer_trains_its_own_model() -> None:
    trainer = make_trainer()
    batches = list(trainer.loader.epoch(1))
    trainer.step(batches[0])
    before = [p.detach().clone() for p in trainer.model.parameters()]
    twin = copy.deepcopy(trainer)
    losses = [twin.step(batch) for batch in batches[1:]]
    assert all(torch.equal(p, old) for p, old in zip(trainer.model.parameters(), before, strict=True))
    assert [trainer.step(batch) for batch in batches[1:]] == losses
    for p, q in zip(trainer.model.parameters(), twin.model.parameters(), strict=True):
        assert torch.equal(p, q)


# Numbers that are none, or too large.


@pytest.mark.usefixtures("last_layer")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [1e3, 1e9, 1e300])
def test_large_logits_lose_nothing(scale: float, sparse: bool) -> None:
    graph, model, estimator, loader = setting(dropout=0.0, sparse=sparse)
    with torch.no_grad():
        model.layer(1).weight.mul_(scale)
    batch = next(iter(loader.epoch(1)))
    value = computed(model, batch, estimator, graph.y).loss
    assert value == pytest.approx(computed(model, batch, estimator, graph.y, twin=True).loss, rel=1e-12)
    assert value == pytest.approx(literal(model, batch, estimator, graph.y).loss, rel=1e-12)


@pytest.mark.usefixtures("last_layer")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("k", [0, 1])
def test_a_loss_that_is_none_shows(k: int, value: float, sparse: bool) -> None:
    graph, model, estimator, loader = setting(sparse=sparse)
    with torch.no_grad():
        model.layer(k).weight[0] = value
    batch = next(iter(loader.epoch(1)))
    assert not math.isfinite(computed(model, batch, estimator, graph.y).loss)


def test_a_loss_that_is_not_a_number_is_told() -> None:
    graph, model, estimator, loader = setting()
    with torch.no_grad():
        model.layer(1).weight[0, 0] = float("nan")
    assert math.isnan(computed(model, next(iter(loader.epoch(1))), estimator, graph.y).loss)


def test_a_number_that_only_the_history_would_see_is_staged() -> None:
    """An entry of `H^(1)` that dropout hides from loss and gradient: whoever commits can see it."""
    graph, model, estimator, loader = setting(norm="none")
    with torch.no_grad():
        model.layer(0).bias.fill_(math.inf)  # type: ignore[union-attr]
    assert not bool(computed(model, next(iter(loader.epoch(1))), estimator, graph.y).staged[0].isfinite().any())


# What is refused.


@pytest.mark.parametrize("position", [0, 3, 150, 399])
def test_the_first_bad_label_of_all(position: int) -> None:
    graph, *_ = setting(nodes=1500, batch_size=400)
    labels, ids = graph.y.clone(), graph.train_ids
    labels[ids[position:]] = 7
    with pytest.raises(CvgnnError, match=f"node {int(ids[position])} has no label"):
        NodeClassification(relabelled(graph, labels))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("label", [3, -1])
def test_a_label_that_is_no_class(label: int, sparse: bool) -> None:
    """Before the first step, not at the one that meets it."""
    graph, *_ = setting(sparse=sparse)
    labels, node = graph.y.clone(), int(graph.train_ids[2])
    labels[node] = label
    with pytest.raises(CvgnnError, match=rf"node {node} has no label in 0\.\.2"):
        NodeClassification(relabelled(graph, labels))


def test_labels_of_the_training_nodes_alone_are_refused() -> None:
    graph, *_, loader = setting()
    for labels in (graph.y[: int(loader.train_ids.max())], graph.y[graph.train_ids], graph.y.int()):
        with pytest.raises(CvgnnError, match="an int64 vector with one entry for each of the 40 nodes"):
            NodeClassification(relabelled(graph, labels))


def relabelled(graph: Graph, labels: Tensor) -> Graph:
    """The graph with other labels, which nothing has checked."""
    return dataclasses.replace(graph, y=labels, validated=True)


def test_a_batch_for_another_depth_is_refused() -> None:
    graph, model, estimator, _ = setting(K=2)
    *_, loader = setting(K=3)
    batch = next(iter(loader.epoch(1)))
    for step in (lambda: model(batch, estimator), lambda: computed(model, batch, estimator, graph.y, twin=True)):
        with pytest.raises(CvgnnError, match="the batch was drawn for 3 layers, the model has 2"):
            step()


def test_a_layer_more_is_noticed() -> None:
    graph, model, estimator, loader = setting()
    batch = next(iter(loader.epoch(1)))
    computed(model, batch, estimator, graph.y)
    model.layers.append(copy.deepcopy(model.layer(1)))
    with pytest.raises(CvgnnError, match="the batch was drawn for 2 layers, the model has 3"):
        computed(model, batch, estimator, graph.y)


@pytest.mark.parametrize("sparse", [False, True])
def test_inputs_that_do_not_fit_the_block_are_refused(sparse: bool) -> None:
    graph, model, estimator, loader = setting(sparse=sparse)
    batch = next(iter(loader.epoch(1)))
    more = torch.cat([batch.inputs, batch.inputs[:1]])
    for inputs in (batch.inputs[:-1], more):
        with pytest.raises(CvgnnError, match=f"the layer computed {inputs.numel()} rows of float64, but its block"):
            computed(model, dataclasses.replace(batch, inputs=inputs), estimator, graph.y)
        assert estimator.staged() == []


class Wrong(FeatureSource):
    """Gives what `answer` makes of the right rows."""

    def __init__(self, right: FeatureSource, answer: Callable[[LayerInput], LayerInput], sparse: bool) -> None:
        self.right, self.answer, self.sparse = right, answer, sparse
        self.num_features, self.num_nodes, self.dtype = right.num_features, right.num_nodes, right.dtype

    def rows(self, ids: torch.Tensor) -> LayerInput:  # type: ignore[override]
        return self.answer(self.right.rows(ids))

    def span(self, first: int, last: int) -> LayerInput:  # type: ignore[override]
        return self.right.span(first, last)


@pytest.mark.parametrize("twin", [False, True], ids=["compiled", "plain"])
@pytest.mark.parametrize(
    ("sparse", "says", "answer", "said"),
    [
        (
            True,
            False,
            lambda A: A,
            r"tensor of shape \[\d+, 5\], not SparseInput \(a source of sparse rows sets sparse",
        ),
        (False, True, lambda A: A, "features with sparse = True must give rows as a SparseInput, not Tensor"),
        (False, False, lambda A: A[1:], r"must be a tensor of shape \[\d+, 5\], not \["),
    ],
    ids=["sparse", "dense", "one row less"],
)
def test_a_custom_source_that_returns_something_else(
    sparse: bool, says: bool, answer: Callable[[LayerInput], LayerInput], said: str, twin: bool
) -> None:
    graph, model, estimator, loader = setting(sparse=sparse)
    estimator.features = Wrong(estimator.features, answer, says)
    with pytest.raises(CvgnnError, match=said):
        computed(model, next(iter(loader.epoch(1))), estimator, graph.y, twin=twin)


@pytest.mark.parametrize("sparse", [False, True])
def test_an_estimator_of_other_widths_is_refused(sparse: bool) -> None:
    graph, model, estimator, loader = setting(sparse=sparse)
    other = ControlVariate(estimator.features, [9])
    with pytest.raises(CvgnnError, match="give the estimator the model's hidden widths"):
        computed(model, next(iter(loader.epoch(1))), other, graph.y)
    assert other.staged() == []


@pytest.mark.parametrize("storage", [None, torch.bfloat16])
def test_histories_of_another_graph_are_refused(storage: torch.dtype | None) -> None:
    graph, model, estimator, loader = setting(nodes=80)
    _, _, small, _ = setting(storage=storage)
    batch = loader.batch(torch.tensor([78, 76, 74]), 1)
    small.features = estimator.features
    with pytest.raises((CvgnnError, RuntimeError), match=r"indices must lie in 0\.\.39|idx < num_embeddings"):
        computed(model, batch, small, graph.y)
    assert small.staged() == []


def test_an_error_in_a_thread_stages_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And after it everything goes on as if nothing had been."""
    for module in (parallel, fused_module):
        monkeypatch.setattr(module, "WORTH_SHARING", 1)
    graph, model, estimator, loader = setting(nodes=4000, batch_size=700)
    batch = next(iter(loader.epoch(1)))
    correction = ControlVariate.correction

    def fail(self: ControlVariate, k: int, batch: Batch, first: int = 0, last: int | None = None) -> Tensor:
        if first > 0:
            raise KeyError("in a thread")
        return correction(self, k, batch, first, last)

    values = [history.values.clone() for history in estimator.histories]  # type: ignore[attr-defined]
    with thread_count(3):
        with monkeypatch.context() as patch:
            patch.setattr(ControlVariate, "correction", fail)
            with pytest.raises(KeyError, match="in a thread"):
                model(batch, estimator)
        assert (torch.get_num_threads(), parallel.num_threads()) == (3, 3)
        assert estimator.staged() == []
        estimator.commit(1)
        histories = estimator.histories  # type: ignore[attr-defined]
        assert all(torch.equal(history.values, old) for history, old in zip(histories, values, strict=True))
        equal(
            computed(model, batch, estimator, graph.y), computed(model, batch, estimator, graph.y, twin=True)
        )  # fmt: skip


def test_sparse_features_and_a_model_of_another_width_are_refused() -> None:
    graph, _, estimator, loader = setting(sparse=True)
    batch = next(iter(loader.epoch(1)))
    other = GCN(in_channels=3, hidden_channels=4, out_channels=3, dtype=torch.float64)
    with pytest.raises(CvgnnError, match=r"a layer multiplies \[\d+, 5\] by \[3, 4\]"):
        computed(other, batch, estimator, graph.y)
    said = r"a weight matrix for 5 features must be torch\.float64 of 5 rows"
    with pytest.raises(CvgnnError, match=said):
        computed(other, batch, estimator, graph.y, twin=True)
    with pytest.raises(CvgnnError, match=said):
        computed(GCN(in_channels=5, hidden_channels=4, out_channels=3), batch, estimator, graph.y, twin=True)
    with pytest.raises(
        CvgnnError, match=r"the layer computed \d+ rows of float32, but its block .* weights of float64"
    ):
        computed(GCN(in_channels=5, hidden_channels=4, out_channels=3), batch, estimator, graph.y)
    with pytest.raises(CvgnnError, match=r"ids must lie in 0\.\.39; found 40"):
        estimator.features.rows(torch.tensor([0, 40])).matmul(torch.ones(5, 2, dtype=torch.float64))


@pytest.mark.usefixtures("last_layer")
@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("change", ["narrow", "mixed"])
def test_a_weight_that_does_not_fit_is_refused(change: str, k: int) -> None:
    """By us or by torch: nothing is computed from numbers that are not there."""
    graph, model, estimator, loader = setting()
    weight = model.layer(k).weight
    weight.data = {"narrow": weight.data[:2], "mixed": weight.data.float()}[change]
    said = r"a layer multiplies \[|shapes cannot be multiplied|same dtype|rows of float32, but its block"
    with thread_count(2), pytest.raises((CvgnnError, RuntimeError), match=said):
        computed(model, next(iter(loader.epoch(1))), estimator, graph.y)


def test_a_replaced_norm_is_refused() -> None:
    _graph, model, estimator, loader = setting()
    model.layer(0).norm = torch.nn.BatchNorm1d(4)
    with pytest.raises(CvgnnError, match="must be the LayerNorm it was built with"):
        model(next(iter(loader.epoch(1))), estimator)


def test_a_changed_eps_is_refused_after_steps_too() -> None:
    graph, model, estimator, loader = setting()
    batch = next(iter(loader.epoch(1)))
    computed(model, batch, estimator, graph.y)
    model.layer(0).norm.eps = 0.1  # type: ignore[union-attr, assignment]
    with pytest.raises(CvgnnError, match="must be the LayerNorm it was built with"):
        computed(model, batch, estimator, graph.y)
