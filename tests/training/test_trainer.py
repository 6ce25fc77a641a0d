"""The training loop against the literal replica of Algorithm 1, step by step in float64."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch

from cvgnn.data import Graph, Propagation
from cvgnn.errors import CvgnnError
from cvgnn.nn import GCN, MODELS, ControlVariate, Estimator, SampledSum, exact_hidden, refresh_statistics
from cvgnn.nn.sampled_start import SampledStart
from cvgnn.ops.dropout import Dropout
from cvgnn.optim import make_optimizer
from cvgnn.reference import ReferenceTrainer, Spec
from cvgnn.reference.losses import Loss, binary_cross_entropy, softmax_cross_entropy, squared_error
from cvgnn.reference.optimizers import ReferenceOptimizer
from cvgnn.rng import Purpose, derive
from cvgnn.sampling import Batch, BatchLoader, NeighborSampler, propagate_features
from cvgnn.sampling.features import LateSource
from cvgnn.training import (
    Evaluator,
    MultiLabelClassification,
    NodeClassification,
    NodeRegression,
    Task,
    Trainer,
)
from tests.build import graph_from_dense, random_adjacency, sparse_features
from tests.optim.variants import STATE_NAMES, used
from tests.raw_draws import raw_draws

N = 18
SEED = 11


@dataclass(frozen=True)
class Case:
    """One variant of Algorithm 1."""

    K: int = 2
    optimizer: str = "adam"
    form: str = "paper"
    norm: str = "layer"
    bias: bool = True
    weight_decay: float = 0.0
    weighted: bool = False
    estimator: str = "cv"
    control: float = 1.0
    scheme: str = "without-replacement"
    normalization: str = "symmetric"
    mode: str = "shuffle"
    dropout: float = 0.0
    input_dropout: float = 0.0
    feature_norm: str = "none"
    smoothing: float = 0.0
    task: str = "node"
    class_weight: str | None = None
    init: str = "uniform"
    sparse: bool = False
    D: int = 2
    model: str = "gcn"
    residual: bool = False
    activation: str = "relu"
    jk: str = "last"
    input_layer: bool = False
    start: int = 0
    steps: int = 50
    lr: float = 0.05

    @property
    def aggregation(self) -> str:
        return {"sage": "mean", "gin": "sum"}.get(self.model, self.normalization)

    @property
    def spec(self) -> Spec:
        """What the replica must know."""
        first = ("linear",) if self.input_layer or self.model == "gcnii" else ()
        return Spec(first + (self.model,) * self.K, norm=self.norm, activation=self.activation, jk=self.jk)


BASE = Case()
OPTIMIZERS = ["sgd", "heavy-ball", "adam", "amsgrad", "adagrad"]
CASES = [
    Case(K=K, optimizer=o, form=f, norm=norm, bias=norm == "layer", weight_decay=wd, weighted=w)
    for K in (1, 2, 3)
    for o in OPTIMIZERS
    for f in ("paper", "torch")
    for norm, wd, w in (("layer", 0.0, False), ("none", 0.01, True), ("layer", 0.01, True), ("none", 0.0, False))
]
CASES += [
    replace(BASE, K=3, estimator=e, scheme=s) for e in ("cv", "ns") for s in ("with-replacement", "paper", "released")
]
CASES += [replace(BASE, K=3, estimator=e) for e in ("ns", "exact")]
CASES += [replace(BASE, K=K, mode="replacement") for K in (1, 2, 3)]
CASES += [replace(BASE, K=3, dropout=0.4, scheme=s) for s in ("without-replacement", "released")]
CASES += [
    replace(BASE, K=K, estimator="cvd", dropout=p, scheme=s, control=c, D=D)
    for K in (1, 2, 3)
    for p, s, c, D in (
        (0.2, "without-replacement", 1.0, 1),
        (0.5, "with-replacement", 1.0, 2),
        (0.8, "without-replacement", 0.5, 2),
        (0.5, "released", 0.0, 3),
        (0.0, "without-replacement", 0.5, 1),
    )
]
CASES += [replace(BASE, K=3, estimator="cv", dropout=0.4, control=0.5)]
CASES += [
    replace(BASE, K=K, input_dropout=0.6, dropout=p, sparse=s, feature_norm=n, init="glorot", smoothing=e)
    for K, p, e in ((1, 0.0, 0.3), (2, 0.4, 0.1), (3, 0.0, 0.0))
    for s in (False, True)
    for n in ("none", "row", "l2")
]
CASES += [
    replace(BASE, K=K, task=t, class_weight=w, mode=m, dropout=p, smoothing=e)
    for t, w, e in (
        ("node", "balanced", 0.0),
        ("node", "0.5,2,0", 0.2),
        ("multilabel", None, 0.0),
        ("multilabel", "balanced", 0.0),
        ("multilabel", "0.5,2,0", 0.0),
        ("regression", None, 0.0),
    )
    for K, m, p in ((2, "replacement", 0.0), (3, "shuffle", 0.3))
]
SPARSE = [
    replace(BASE, sparse=True, optimizer=o, form=f, norm=n, bias=n == "layer", mode=m, dropout=p, estimator=e)
    for o, f, n, m, p, e in (
        ("amsgrad", "torch", "layer", "shuffle", 0.4, "cv"),
        ("amsgrad", "torch", "none", "replacement", 0.0, "cv"),
        ("sgd", "torch", "none", "shuffle", 0.4, "ns"),
        ("adam", "paper", "layer", "replacement", 0.0, "exact"),
    )
]
CASES += SPARSE
CASES += [replace(BASE, K=3, normalization="random-walk", weighted=True), replace(BASE, K=3, D=-1), replace(BASE, D=1)]
CASES += [
    # Three steps an epoch: three of the start, and six after it.
    replace(
        BASE, model=m, K=K, start=D, estimator=e, dropout=p, input_dropout=p, scheme=s, sparse=x, weighted=w, mode=b,
        feature_norm=f, steps=9,
    )
    for m, K, D, e, p, s, x, w, b, f in (
        ("gcn", 1, 1, "cv", 0.4, "without-replacement", False, False, "shuffle", "none"),
        ("gcn", 2, 2, "cvd", 0.4, "without-replacement", False, True, "replacement", "row"),
        ("gcn", 3, 3, "cv", 0.0, "with-replacement", True, True, "shuffle", "l2"),
        ("gcn", 2, 1, "exact", 0.0, "without-replacement", True, False, "shuffle", "none"),
        ("gcn", 2, -1, "ns", 0.4, "without-replacement", False, False, "shuffle", "none"),
        ("sage", 2, 1, "cvd", 0.4, "without-replacement", False, False, "shuffle", "none"),
        ("sage", 3, 2, "cv", 0.0, "released", True, True, "replacement", "none"),
        ("gin", 2, 2, "cvd", 0.0, "without-replacement", False, True, "shuffle", "none"),
    )
]  # fmt: skip


MODEL_NAMES = ("gcn", "sage", "gin", "gcnii")
# Must show 1 of the engine: every layer type, depth, norm, estimator, dropout, weights, sparse and dense features.
# (GIN with ReLU and four hidden units dies: its inner layer must be seen to move.)
AMSGRAD = Case(optimizer="amsgrad", form="torch", steps=30)
LAYERS = [
    replace(
        AMSGRAD,
        model=m,
        K=K,
        norm=n,
        estimator=e,
        residual=r,
        dropout=p,
        input_dropout=p,
        weighted=w,
        sparse=s,
        activation="elu" if m == "gin" else "relu",
        # Four GCNII layers double a rounding error every other step at 0.05: 1.0e-10 after 30 steps; at 0.02, 7e-13.
        lr=0.02 if m == "gcnii" else 0.05,
    )
    for m in MODEL_NAMES
    for K in (1, 2, 3, 4)
    for n in ("none", "layer", "batch")
    for e, r, p, w, s in (
        ("cvd", True, 0.4, True, False),
        ("cv", True, 0.4, True, False),
        ("cv", False, 0.0, False, True),
        ("ns", True, 0.0, False, True),
        ("exact", False, 0.4, True, False),
    )
]
LAYERS += [
    Case(
        model=m,
        K=K,
        activation=a,
        jk=j,
        input_layer=i,
        norm="layer",
        dropout=0.3,
        residual=r,
        steps=30,
        estimator="cvd" if r else "cv",
    )
    for m in MODEL_NAMES
    for K, a, j, i, r in (
        (2, "elu", "concat", False, True),
        (3, "gelu", "last", True, False),
        (3, "elu", "concat", True, True),
        (1, "gelu", "concat", True, False),
    )
]


class Pair:
    """The library's parts and the replica, built for one case from the same start."""

    def __init__(self, case: Case) -> None:
        A = random_adjacency(N, mean_degree=4, weighted=case.weighted, seed=4)
        self.case = case
        self.graph = graph_from_dense(A, features=5)
        X = self.graph.x.numpy()
        if case.sparse:
            kept = np.where(np.abs(X) > 0.3, X, 0.0)
            self.graph, X = replace(self.graph, x=sparse_features(kept)), kept
        self.propagation = Propagation(self.graph, normalization=case.aggregation)
        if case.feature_norm != "none":
            X = X / np.maximum(np.linalg.norm(X, {"row": 1, "l2": 2}[case.feature_norm], axis=1, keepdims=True), 1e-300)
        self.model = MODELS[case.model](
            in_channels=5, hidden_channels=4, out_channels=3, num_layers=case.K, norm=case.norm, bias=case.bias,
            residual=case.residual, activation=case.activation, jk=case.jk, input_layer=case.input_layer,
            dropout=case.dropout, input_dropout=case.input_dropout, init=case.init, seed=SEED, dtype=torch.float64,
        )  # fmt: skip
        aggregated, own = self.model.reads
        self.features = propagate_features(
            self.graph, self.propagation, feature_norm=case.feature_norm, aggregated=aggregated, own=own
        )
        if self.model.has_statistics:
            refresh_statistics(self.model, self.features, self.propagation)
        self.estimator = self._estimator()
        self.fan_out = fan_out = -1 if case.estimator == "exact" else case.D
        self.sampler = NeighborSampler(
            self.propagation, num_neighbors=fan_out, num_layers=self.model.num_layers, scheme=case.scheme, seed=SEED
        )
        numbers = {"beta1": 0.9, "beta2": 0.99, "nu_min": 1e-4}
        given = used(case.optimizer, case.form, **numbers)
        common = {"lr": case.lr, "weight_decay": case.weight_decay}
        task, loss = self._task()
        loader = BatchLoader(self.graph.train_ids, self.sampler, batch_size=4, mode=case.mode, seed=SEED)
        self.start = None if case.start == 0 else self._start(loader.steps_per_epoch)
        self.model.readout = task.make_readout(seed=SEED, dtype=torch.float64)
        self.trainer = Trainer(
            model=self.model,
            estimator=self.estimator,
            loader=loader,
            optimizer=make_optimizer(case.optimizer, self.model.parameters(), form=case.form, **common, **given),
            task=task,
            statistics_every=4,
            start=self.start,
        )
        params = {name: p.detach().numpy().copy() for name, p in self.model.named_parameters()}
        self.replica_optimizer = ReferenceOptimizer(case.optimizer, case.form, **common, **given)
        self.replica = ReferenceTrainer(
            A, X, task.y.numpy(), params, K=self.model.num_layers,
            fan_outs=[case.start or None] + [fan_out] * (self.model.num_layers - 1), scheme=case.scheme, estimator=case.estimator,
            normalization=case.aggregation, loss=loss, optimizer=self.replica_optimizer,
            control=case.control, spec=case.spec, statistics_every=4 if case.norm == "batch" else 0,
            start_steps=0 if self.start is None else self.start.steps,
        )  # fmt: skip

    def _task(self) -> tuple[Task, Loss]:
        """The task of the case on this graph, with labels of its own, and the literal loss."""
        case, rng = self.case, np.random.default_rng(7)
        train, options = self.graph.train_ids.numpy(), {"class_weight": case.class_weight}
        if case.task == "node":
            y = self.graph.y.numpy()[train]
            balanced = len(train) / (3 * np.maximum(np.bincount(y, minlength=3), 1))
            weight = {None: None, "balanced": balanced}.get(case.class_weight, np.array([0.5, 2.0, 0.0]))
            made = NodeClassification(self.graph, label_smoothing=case.smoothing, **options)
            return made, functools.partial(softmax_cross_entropy, smoothing=case.smoothing, weight=weight)
        if case.task == "multilabel":
            Y = (rng.random((N, 3)) < 0.4).astype(np.int8)
            positive = Y[train].sum(axis=0)
            balanced = (len(train) - positive) / np.maximum(positive, 1)
            weight = {None: None, "balanced": balanced}.get(case.class_weight, np.array([0.5, 2.0, 0.0]))
            graph = replace(self.graph, y=torch.from_numpy(Y))
            return MultiLabelClassification(graph, **options), functools.partial(binary_cross_entropy, weight=weight)
        y = rng.normal(size=(N, 3)) * [1.0, 50.0, 0.0] + [0.0, 1000.0, 2.0]  # the last does not vary
        scale = np.where(y[train].std(axis=0) > 0, y[train].std(axis=0), 1.0)
        graph = replace(self.graph, y=torch.from_numpy(y))
        return NodeRegression(graph), functools.partial(squared_error, center=y[train].mean(axis=0), scale=scale)

    def _start(self, steps: int) -> SampledStart:
        own = propagate_features(self.graph, self.propagation, feature_norm=self.case.feature_norm, aggregated=False)
        sampler = NeighborSampler(
            self.propagation, num_neighbors=self.case.start, scheme=self.case.scheme, control=False, seed=SEED
        )

        def finish() -> None:
            self.estimator.initialize(exact_hidden(self.model, self.features, self.propagation))

        no_row = LateSource(own, lambda: pytest.fail("a sampled start read P X"))
        return SampledStart(no_row, sampler, steps=steps, finish=finish)

    def _estimator(self) -> Estimator:
        if self.case.estimator in ("ns", "exact"):
            return SampledSum(self.features)
        cv = ControlVariate(
            self.features, self.model.hidden_widths, separate_dropout=self.case.estimator == "cvd",
            control=self.case.control, dtype=torch.float64,
        )  # fmt: skip
        cv.initialize(exact_hidden(self.model, self.features, self.propagation))
        return cv

    def step(self, batch: Batch) -> None:
        """One step of both on the same draws and masks."""
        case, replica = self.case, self.replica

        def draws(k: int, v: int) -> list[int]:
            key = derive(SEED, Purpose.NEIGHBORS, batch.step, k)
            D = case.start if k == 0 else self.fan_out
            return raw_draws(key, v, case.scheme, len(replica.neighbors[v]), D)

        masks: dict[int | str, np.ndarray] = {}
        K = self.model.num_layers
        for k in (0, "x", *range(1, K + 1)):
            p, width = (case.input_dropout, 5) if k in (0, "x") else (case.dropout, 4)
            if p:
                drop = Dropout.at(p, seed=SEED, step=batch.step, k=0 if k == "x" else k, own=k == "x")
                nodes = (
                    batch.inputs if k in (0, "x") else torch.unique(batch.ids) if batch.place is not None else batch.ids
                )
                if k not in (0, "x") and k < K:
                    nodes = batch.block(k).sources
                masks[k] = np.full((N, width), np.nan)
                masks[k][nodes.numpy()] = drop.mask((len(nodes), width), torch.float64).numpy()
        loss = self.trainer.step(batch)
        replica.step(batch.ids.tolist(), draws, masks or None)
        assert abs(float(loss) - replica.loss) < 1e-10

    def compare(self) -> None:
        """Parameters, momenta, second moments and histories agree to 1e-10."""
        case = self.case
        rtol = 1e-12 if case.model == "gin" else 0.0  # four sums over neighbors without a norm reach hundreds
        names = STATE_NAMES.get((case.optimizer, case.form), (None, None))
        for j, (name, p) in enumerate(self.model.named_parameters()):
            close(p.detach(), self.replica.params[name], rtol)
            state = self.trainer.optimizer.state[p]
            for key, expected in zip(names, (self.replica_optimizer.M[j], self.replica_optimizer.V[j]), strict=True):
                if key is not None:
                    close(state[key], expected, rtol)
        if isinstance(self.estimator, ControlVariate) and self.replica.t > self.replica.start_steps:
            for k in range(1, self.model.num_layers):
                close(self.estimator.history(k).values, self.replica.Hbar[k], rtol)


def close(mine: torch.Tensor, expected: np.ndarray, rtol: float = 0.0) -> None:
    np.testing.assert_allclose(mine.numpy(), expected, rtol=rtol, atol=1e-10)


def short(case: Case) -> str:
    """The fields that are not the default."""
    return "-".join(f"{f.name}={getattr(case, f.name)}" for f in fields(case) if getattr(case, f.name) != f.default)


@pytest.mark.parametrize("case", CASES + LAYERS, ids=short)
def test_fifty_steps_of_algorithm_1(case: Case) -> None:
    """Must show 2."""
    pair = Pair(case)
    start = {name: W.copy() for name, W in pair.replica.params.items()}
    steps = 0
    for epoch in range(1, 100):
        for batch in pair.trainer.loader.epoch(epoch):
            pair.step(batch)
            pair.compare()
            steps += 1
            if steps == case.steps:
                moved = {name: np.abs(W - start[name]).max() for name, W in pair.replica.params.items()}
                assert all(change > 1e-3 for change in moved.values()), moved
                return


def make_trainer(graph: Graph, *, keep_tau: bool = False, evaluate: bool = True) -> Trainer:
    propagation = Propagation(graph)
    features = propagate_features(graph, propagation)
    model = GCN(
        in_channels=3, hidden_channels=4, out_channels=3, norm="layer", dropout=0.0, seed=SEED, dtype=torch.float64
    )
    sampler = NeighborSampler(propagation, num_neighbors=2, num_layers=2, control=False, seed=SEED)
    return Trainer(
        model=model,
        estimator=SampledSum(features),
        loader=BatchLoader(graph.train_ids, sampler, batch_size=4, seed=SEED),
        optimizer=torch.optim.RMSprop(model.parameters()),
        task=NodeClassification(graph),
        evaluator=Evaluator(NodeClassification(graph), features, propagation) if evaluate else None,
        seed=SEED,
        keep_tau=keep_tau,
    )


GRAPH = graph_from_dense(random_adjacency(N, mean_degree=4, weighted=False, seed=5))


def test_records_of_epochs() -> None:
    trainer = make_trainer(GRAPH)
    records = list(trainer.epochs(5, eval_every=2))
    assert [r.epoch for r in records] == [1, 2, 3, 4, 5]
    assert [r.is_evaluated for r in records] == [False, True, False, True, True]
    assert [r.iterations for r in records] == [3, 6, 9, 12, 15]
    assert all(np.isfinite(r.loss) and r.train_seconds > 0 and r.eval_seconds >= 0 for r in records)
    best = max((r for r in records if r.is_evaluated), key=lambda r: (r.metrics["val_accuracy"], -r.epoch))
    assert (trainer.best.epoch, trainer.best.score) == (best.epoch, best.metrics["val_accuracy"])


def test_the_epoch_loss_is_the_mean_over_nodes() -> None:
    trainer, twin = make_trainer(GRAPH), make_trainer(GRAPH)
    losses = [(float(twin.step(batch)), batch.ids.numel()) for batch in twin.loader.epoch(1)]
    expected = sum(loss * size for loss, size in losses) / sum(size for _, size in losses)
    assert trainer.train_epoch(1) == pytest.approx(expected, rel=1e-12)
    assert len({size for _, size in losses}) > 1  # the last batch is smaller, so a mean of means would differ


def test_outputs() -> None:
    trainer = make_trainer(GRAPH, keep_tau=True)
    seen = {1: trainer.output("last")}
    for epoch in (1, 2):
        for batch in trainer.loader.epoch(epoch):
            trainer.step(batch)
            seen[batch.step + 1] = trainer.output("last")
    assert trainer.tau is not None
    assert all(torch.equal(trainer.output("tau")[n], w) for n, w in seen[trainer.tau.tau].items())


def test_an_output_that_was_not_kept_is_refused() -> None:
    trainer = make_trainer(GRAPH, evaluate=False)
    list(trainer.epochs(1))
    for which in ("best", "tau"):
        with pytest.raises(CvgnnError, match=f"output '{which}' was not kept"):
            trainer.output(which)


def test_refused_values() -> None:
    with pytest.raises(CvgnnError, match="epochs must be at least 1, not 0"):
        next(make_trainer(GRAPH).epochs(0))
    with pytest.raises(CvgnnError, match="eval_every must be at least 1, not 0"):
        next(make_trainer(GRAPH).epochs(1, eval_every=0))


def test_label_smoothing_changes_the_loss() -> None:
    smooth, plain = Pair(replace(BASE, smoothing=0.3)), Pair(BASE)
    batch = next(iter(plain.trainer.loader.epoch(1)))
    assert abs(smooth.trainer.step(batch) - plain.trainer.step(batch)) > 1e-3


def test_smoothed_labels_that_cannot_be() -> None:
    with pytest.raises(CvgnnError, match=r"label_smoothing must be a number in \[0, 1\), not 1.0"):
        NodeClassification(GRAPH, label_smoothing=1.0)
    with pytest.raises(
        CvgnnError, match="label_smoothing is for the cross entropy, not for your own loss; leave it out"
    ):
        NodeClassification(GRAPH, label_smoothing=0.1, loss=torch.nn.functional.nll_loss)
