"""The gradient chained by hand against autograd's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn.functional import cross_entropy

from cvgnn.errors import CvgnnError
from cvgnn.experiments.machine import thread_count
from cvgnn.graph import Graph, Propagation, SparseFeatures
from cvgnn.nn import (
    GCN,
    ByHand,
    ControlVariate,
    Estimator,
    SampledSum,
    check_labels,
    exact_hidden,
    loss_and_gradient,
    small,
)
from cvgnn.ops import layer_kernels as kernels
from cvgnn.ops import threads as parallel
from cvgnn.sampling import BatchLoader, FeatureSource, LayerInput, NeighborSampler, propagate_features
from tests.build import graph_from_dense, random_adjacency


def setting(
    K: int = 2,
    *,
    estimator: str = "cv",
    sparse: bool = False,
    mode: str = "shuffle",
    storage: torch.dtype | None = None,
    nodes: int = 40,
    batch_size: int = 7,
    **model_options: object,
) -> tuple[Graph, GCN, Estimator, BatchLoader]:
    graph = graph_from_dense(random_adjacency(nodes, mean_degree=5, weighted=True, seed=0), features=5)
    if sparse:
        x = csr_array(np.where(graph.x > 0.5, graph.x, 0.0))  # type: ignore[operator]
        features = SparseFeatures(*(torch.from_numpy(part) for part in (x.indptr, x.indices, x.data)), 5)
        graph = dataclasses.replace(graph, x=features, validated=False, built=False)
    propagation = Propagation(graph)
    source = propagate_features(graph, propagation)
    options = {"norm": "layer", "dropout": 0.3, **model_options}
    model = GCN(in_channels=5, hidden_channels=4, out_channels=3, num_layers=K, dtype=torch.float64, **options)  # type: ignore[arg-type]
    sampler = NeighborSampler(propagation, num_neighbors=2, num_layers=K, control=estimator == "cv")
    loader = BatchLoader(graph.train_ids, sampler, batch_size=batch_size, mode=mode)  # type: ignore[arg-type]
    if estimator == "ns":
        return graph, model, SampledSum(source), loader
    cv = ControlVariate(source, model.hidden_widths, storage=storage)
    cv.initialize(exact_hidden(model, source, propagation))
    for history in cv.histories:
        history.values.add_(torch.randn(history.values.shape, generator=torch.Generator().manual_seed(1)))
    return graph, model, cv, loader


@pytest.fixture(params=["small", "wide"])
def last_layer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to compute the last layer: as one compiled call, and by torch."""
    if request.param == "wide":
        monkeypatch.setattr(small, "LARGEST", 0)


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
        {"sparse": True, "storage": torch.bfloat16},
        {"sparse": True, "smoothing": 0.3, "input_dropout": 0.5},
        {"input_dropout": 0.5},
        {"input_dropout": 0.5, "sparse": True, "K": 3},
        {"smoothing": 0.3},
        {"smoothing": 0.3, "mode": "replacement", "K": 1},
    ],
    ids=str,
)
def test_loss_gradient_and_staged_writes_are_autograds(options: dict) -> None:
    smoothing = options.get("smoothing", 0.0)
    graph, model, estimator, loader = setting(**{k: v for k, v in options.items() if k != "smoothing"})
    for batch in loader.epoch(1):
        value = loss_and_gradient(model, batch, estimator, graph.y, smoothing=smoothing).value
        staged = {k: H.clone() for k, (_, H) in getattr(estimator, "_staged", {}).items()}
        mine = [p.grad for p in model.parameters()]
        logits = batch.select(model(batch, estimator))
        expected = cross_entropy(logits, graph.y[batch.ids], label_smoothing=smoothing)
        assert abs(value - float(expected.detach())) < 1e-12
        for a, b in zip(mine, torch.autograd.grad(expected, list(model.parameters())), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
        for k, (_, H) in getattr(estimator, "_staged", {}).items():
            torch.testing.assert_close(staged[k], H, rtol=0, atol=1e-14)
        assert set(staged) == set(getattr(estimator, "_staged", {}))


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
    monkeypatch.setattr(parallel, "WORTH_SHARING", 1)
    monkeypatch.setattr(
        parallel, "WORTH_TWO_ROUNDS", 1 if options.get("K") == 3 else 10**12
    )  # one or two parts for each thread
    monkeypatch.setattr(small, "LARGEST", 0)
    smoothing = options.get("smoothing", 0.0)
    graph, model, estimator, loader = setting(
        **{k: v for k, v in options.items() if k != "smoothing"}, nodes=4000, batch_size=700
    )
    with thread_count(threads):
        batch = next(iter(loader.epoch(1)))
        n = batch.inputs.numel()
        assert (len(parallel.row_ranges(n, 1, multiple=kernels.rows_in_part(n))) > 1) == (threads > 1)
        value = loss_and_gradient(model, batch, estimator, graph.y, smoothing=smoothing).value
    mine = [p.grad for p in model.parameters()]
    expected = cross_entropy(batch.select(model(batch, estimator)), graph.y[batch.ids], label_smoothing=smoothing)
    assert abs(value - float(expected.detach())) < 1e-12
    for a, b in zip(mine, torch.autograd.grad(expected, list(model.parameters())), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", [3, 150, 399])
def test_the_first_bad_label_of_all_parts(position: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WORTH_SHARING", 1)
    monkeypatch.setattr(small, "LARGEST", 0)
    graph, model, estimator, loader = setting(nodes=1500, batch_size=400)
    batch = next(iter(loader.epoch(1)))
    labels = graph.y.clone()
    labels[batch.ids[position:]] = 7
    with thread_count(3), pytest.raises(CvgnnError, match=f"node {int(batch.ids[position])} has no label"):
        loss_and_gradient(model, batch, estimator, labels)


def hooked(model: GCN) -> None:
    model.register_forward_hook(lambda *_: None)


def hooked_backwards(model: GCN) -> None:
    model.register_full_backward_pre_hook(lambda *_: None)


def frozen(model: GCN) -> None:
    model.layer(0).weight.requires_grad_(False)


def hooked_parameter(model: GCN) -> None:
    model.layer(0).weight.register_hook(lambda g: g)


def hooked_gradient(model: GCN) -> None:
    model.layer(0).weight.register_post_accumulate_grad_hook(lambda p: None)


def parametrized(model: GCN) -> None:
    torch.nn.utils.parametrizations.weight_norm(model.layer(1), "weight")


def shared(model: GCN) -> None:
    model.layer(2).weight = model.layer(1).weight


def replaced(model: GCN) -> None:
    model.forward = lambda *_: None  # type: ignore[method-assign, assignment]


CHANGES = [hooked, hooked_backwards, frozen, hooked_parameter, hooked_gradient, parametrized, shared, replaced]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_what_autograd_is_needed_for(change: Callable[[GCN], None]) -> None:
    _, model, _, _ = setting(K=4)
    assert ByHand.of(model) is not None
    change(model)
    assert ByHand.of(model) is None


def test_another_model_is_autograds() -> None:
    assert ByHand.of(torch.nn.Linear(2, 2)) is None


@pytest.mark.usefixtures("last_layer")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("label", [3, -1])
def test_a_label_that_is_no_class(label: int, sparse: bool) -> None:
    graph, model, estimator, loader = setting(sparse=sparse)
    batch = next(iter(loader.epoch(1)))
    labels = graph.y.clone()
    labels[batch.ids[2]] = label
    with pytest.raises(CvgnnError, match=rf"node {int(batch.ids[2])} has no label in 0\.\.2"):
        loss_and_gradient(model, batch, estimator, labels)


@pytest.mark.usefixtures("last_layer")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [1e3, 1e9, 1e300])
def test_large_logits_lose_nothing(scale: float, sparse: bool) -> None:
    graph, model, estimator, loader = setting(dropout=0.0, sparse=sparse)
    with torch.no_grad():
        model.layer(1).weight.mul_(scale)
    batch = next(iter(loader.epoch(1)))
    value = loss_and_gradient(model, batch, estimator, graph.y).value
    expected = cross_entropy(batch.select(model(batch, estimator)), graph.y[batch.ids])
    assert value == pytest.approx(float(expected.detach()), rel=1e-12)


@pytest.mark.usefixtures("last_layer")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_none_shows(value: float, sparse: bool) -> None:
    graph, model, estimator, loader = setting(sparse=sparse)
    with torch.no_grad():
        model.layer(1).weight[0] = value
    batch = next(iter(loader.epoch(1)))
    loss = loss_and_gradient(model, batch, estimator, graph.y)
    assert not math.isfinite(loss.value)
    assert loss.norm is None


@pytest.mark.usefixtures("last_layer")
def test_labels_of_the_training_nodes_alone_are_refused() -> None:
    graph, model, estimator, loader = setting()
    batch = next(iter(loader.epoch(1)))
    with pytest.raises(CvgnnError, match="has no label"):
        loss_and_gradient(model, batch, estimator, graph.y[: int(batch.ids.max())])
    with pytest.raises(CvgnnError, match="an int64 vector with one entry for each of the 40 nodes"):
        check_labels(graph.y[graph.train_ids], 40)


def test_a_batch_for_another_depth_is_refused() -> None:
    graph, model, estimator, _ = setting(K=2)
    *_, loader = setting(K=3)
    batch = next(iter(loader.epoch(1)))
    for step in (lambda: model(batch, estimator), lambda: loss_and_gradient(model, batch, estimator, graph.y)):
        with pytest.raises(CvgnnError, match="the batch was drawn for 3 layers, the model has 2"):
            step()


def test_inputs_that_do_not_fit_the_block_are_refused() -> None:
    graph, model, estimator, loader = setting()
    batch = next(iter(loader.epoch(1)))
    more = torch.cat([batch.inputs, batch.inputs[:1]])
    for inputs in (batch.inputs[:-1], more):
        with pytest.raises(CvgnnError, match=f"the batch has {inputs.numel()} inputs, but its first block"):
            loss_and_gradient(model, dataclasses.replace(batch, inputs=inputs), estimator, graph.y)


class Wrong(FeatureSource):
    """Gives what `answer` makes of the right rows."""

    def __init__(self, right: FeatureSource, answer: Callable[[LayerInput], LayerInput], sparse: bool) -> None:
        self.right, self.answer, self.sparse = right, answer, sparse

    def rows(self, ids: torch.Tensor) -> LayerInput:
        return self.answer(self.right.rows(ids))

    def span(self, first: int, last: int) -> LayerInput:
        return self.right.span(first, last)


@pytest.mark.parametrize(
    ("sparse", "says", "answer", "said"),
    [
        (True, False, lambda A: A, r"must be a tensor of \d+ rows, not SparseInput \(a source of sparse rows says so"),
        (False, True, lambda A: A, "features with sparse = True must give rows as a SparseInput, not Tensor"),
        (False, False, lambda A: A[1:], r"must be a tensor of \d+ rows, not \["),
    ],
    ids=["sparse", "dense", "one row less"],
)
def test_a_source_of_ones_own_that_gives_something_else(
    sparse: bool, says: bool, answer: Callable[[LayerInput], LayerInput], said: str
) -> None:
    graph, model, estimator, loader = setting(sparse=sparse)
    estimator.features = Wrong(estimator.features, answer, says)
    with pytest.raises(CvgnnError, match=said):
        loss_and_gradient(model, next(iter(loader.epoch(1))), estimator, graph.y)


@pytest.mark.parametrize("sparse", [False, True])
def test_an_estimator_of_other_widths_is_refused(sparse: bool) -> None:
    graph, model, estimator, loader = setting(sparse=sparse)
    other = ControlVariate(estimator.features, [9])
    with pytest.raises(CvgnnError, match="give the estimator the model's hidden widths"):
        loss_and_gradient(model, next(iter(loader.epoch(1))), other, graph.y)


def test_sparse_features_and_a_model_of_another_width_are_refused() -> None:
    graph, _, estimator, loader = setting(sparse=True)
    other = GCN(in_channels=3, hidden_channels=4, out_channels=3, dtype=torch.float64)
    with pytest.raises(CvgnnError, match=r"a weight matrix for 5 features must be torch\.float64 of 5 rows"):
        loss_and_gradient(other, next(iter(loader.epoch(1))), estimator, graph.y)
    with pytest.raises(CvgnnError, match=r"ids must lie in 0\.\.39; found 40"):
        estimator.features.rows(torch.tensor([0, 40])).matmul(torch.ones(5, 2, dtype=torch.float64))


def test_a_replaced_norm_is_refused() -> None:
    _graph, model, estimator, loader = setting()
    model.layer(0).norm = torch.nn.BatchNorm1d(4)  # type: ignore[assignment]
    with pytest.raises(CvgnnError, match="must be the LayerNorm it was built with"):
        model(next(iter(loader.epoch(1))), estimator)


def test_a_loss_that_is_not_a_number_is_told() -> None:
    graph, model, estimator, loader = setting()
    with torch.no_grad():
        model.layer(1).weight[0, 0] = float("nan")
    assert math.isnan(loss_and_gradient(model, next(iter(loader.epoch(1))), estimator, graph.y).value)
