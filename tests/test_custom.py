"""Parts of the user's own in `fit`: inputs, models, estimators, optimizers, losses, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, multi_margin_loss, relu

import cvgnn
from cvgnn.cli.main import main
from cvgnn.errors import CvgnnError
from cvgnn.nn import exact_logits
from cvgnn.sampling import Batch
from cvgnn.training.trainer import EpochRecord
from tests.logs import logged

N, F, C = 60, 5, 3
RNG = np.random.default_rng(0)
UPPER = np.triu(RNG.random((N, N)) < 0.1, k=1)
A = sparse.csr_array((UPPER | UPPER.T).astype(np.float64))
X = RNG.normal(size=(N, F)).astype(np.float32)
Y = RNG.integers(0, C, size=N)
SPLIT = {"train_ids": np.arange(0, 30), "val_ids": np.arange(30, 45), "test_ids": np.arange(45, 60)}
GRAPH = cvgnn.data.as_graph(A, x=X, y=Y, **SPLIT)
OPTIONS: dict[str, Any] = {"epochs": 3, "hidden": 4, "batch_size": 10, "threads": 1}


def weights(run: cvgnn.Run) -> Tensor:
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


# What fit takes as a graph


def in_networkx() -> nx.Graph:
    G = nx.from_scipy_sparse_array(A, edge_attribute="unused")
    for v in G:
        split = next(name for name in ("train", "val", "test") if v in SPLIT[f"{name}_ids"])
        G.nodes[v].update(x=X[v], y=int(Y[v]), split=split)
    return G


def in_pyg() -> Any:
    data = pytest.importorskip("torch_geometric.data")
    masks = {key.replace("ids", "mask"): torch.from_numpy(np.isin(np.arange(N), ids)) for key, ids in SPLIT.items()}
    edges = torch.from_numpy(np.stack(A.tocoo().coords)).long()
    return data.Data(x=torch.from_numpy(X), edge_index=edges, y=torch.from_numpy(Y), **masks)


@pytest.mark.parametrize("make", [in_networkx, in_pyg])
def test_other_libraries_graphs_are_taken_as_they_are(make: Callable[[], Any]) -> None:
    expected = cvgnn.fit(GRAPH, **OPTIONS)
    assert torch.equal(weights(cvgnn.fit(make(), **OPTIONS)), weights(expected))


def test_a_scipy_matrix_with_features() -> None:
    run = cvgnn.fit(A, x=X, y=Y, **SPLIT, **OPTIONS)
    assert torch.equal(weights(run), weights(cvgnn.fit(GRAPH, **OPTIONS)))
    assert cvgnn.fit(A, x=sparse.csr_array(X), y=Y, **OPTIONS).graph.val_ids.numel() == 12  # a random split


def test_networkx_with_arrays() -> None:
    G = nx.from_scipy_sparse_array(A, edge_attribute="unused")
    assert torch.equal(weights(cvgnn.fit(G, x=X, y=Y, **SPLIT, **OPTIONS)), weights(cvgnn.fit(GRAPH, **OPTIONS)))


@pytest.mark.parametrize(
    ("graph", "options", "said"),
    [
        (A, {}, "a SciPy matrix holds the edges alone; give x and y too"),
        (A, {"x": X}, "give y too"),
        (GRAPH, {"y": Y}, "y has no use here: a graph made by cvgnn holds its own; leave it out"),
        ("cora", {"y": Y}, "y has no use here: it goes with a SciPy matrix or a NetworkX graph as graph"),
        ("cora", {}, "NetworkX graph or a SciPy matrix, not 'cora'"),
        (nx.path_graph(3), {}, "no node has an attribute 'x'; nodes have: none; give x as an array, or "),
        (nx.karate_club_graph(), {"x": np.eye(34)}, "attribute 'y'; nodes have: club; give y as an array, or "),
    ],
    ids=str,
)
def test_incomplete_graphs(graph: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        cvgnn.fit(graph, **options)
    assert said in str(caught.value)


# The model: exact inference runs what trains, or training is refused


class Scaled(cvgnn.GCN):
    """A forward of its own that exact inference can run."""

    def forward(self, batch: Batch, estimator: cvgnn.Estimator) -> Tensor:
        return 3 * super().forward(batch, estimator) + 1


class Written(cvgnn.GCN):
    """A forward written out, with `aggregate`."""

    def forward(self, batch: Batch, estimator: cvgnn.Estimator) -> Tensor:
        H = relu(estimator.input(batch) @ self.layers[0].weight + 0.5)
        return estimator.aggregate(1, batch, H) @ self.layers[1].weight


class Centred(cvgnn.GCN):
    """Its logits depend on what else is in the batch."""

    def forward(self, batch: Batch, estimator: cvgnn.Estimator) -> Tensor:
        Z = super().forward(batch, estimator)
        return Z - Z.mean(dim=0)


class ReadsTheBatch(cvgnn.GCN):
    """It cannot run without a batch."""

    def forward(self, batch: Batch, estimator: cvgnn.Estimator) -> Tensor:
        return super().forward(batch, estimator) + batch.ids.numel()


class OwnTrace(cvgnn.GCN):
    """The same through `trace`."""

    def trace(self, batch: Any, estimator: Any, **options: Any) -> Any:
        for name, value in super().trace(batch, estimator, **options):
            yield name, value - value.mean(dim=0) if name == "Z^(2)" else value


class Noisy(cvgnn.GCN):
    def forward(self, batch: Batch, estimator: cvgnn.Estimator) -> Tensor:
        return super().forward(batch, estimator) * torch.rand(())


@pytest.mark.parametrize("kind", [Scaled, Written])
def test_a_forward_of_ones_own_is_evaluated_as_it_is_trained(kind: type[cvgnn.GCN]) -> None:
    """The blocker: it was trained with its own forward and evaluated with GCN's, silently."""
    run = cvgnn.fit(GRAPH, model=kind, dropout=0.0, estimator="exact", **OPTIONS)
    assert run.trainer is not None
    batch = run.trainer.loader.batch(GRAPH.train_ids[:7], step=1)
    with torch.no_grad():
        trained = run.model(batch, run.trainer.estimator)
    exact = exact_logits(run.model, run.features, run.propagation)
    torch.testing.assert_close(exact[:7], trained, rtol=0, atol=1e-5)
    torch.testing.assert_close(run.predict_proba([2]), trained.softmax(dim=1)[[2]], rtol=0, atol=1e-5)
    plain = cvgnn.GCN(in_channels=F, hidden_channels=4, out_channels=C)
    plain.load_state_dict(run.model.state_dict())
    assert (exact_logits(plain, run.features, run.propagation) - exact).abs().max() > 0.1
    with pytest.raises(CvgnnError, match="has its own forward or a hook, so its hidden layers are not known"):
        run.embed(1)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Centred, r"Centred cannot be evaluated exactly: with all neighbors and without dropout, .* differ by"),
        (OwnTrace, r"OwnTrace cannot be evaluated exactly: with all neighbors"),
        (Noisy, r"Noisy cannot be evaluated exactly: with all neighbors"),
        (ReadsTheBatch, r"ReadsTheBatch cannot be evaluated exactly: .* where batch is None \(AttributeError"),
    ],
)
def test_what_cannot_be_evaluated_exactly_is_refused_before_training(kind: type[cvgnn.GCN], said: str) -> None:
    steps: list[EpochRecord] = []
    with pytest.raises(CvgnnError, match=said):
        cvgnn.fit(GRAPH, model=kind, on_epoch=steps.append, **OPTIONS)
    assert steps == []


def test_a_layer_that_mixes_rows_is_refused() -> None:
    class Mixing(cvgnn.nn.GCNConv):
        def forward(self, inputs: Any) -> Any:
            Z = cvgnn.ops.fused_layer.affine(super().forward(inputs))
            return Z / Z.std()

    model = cvgnn.Network(Mixing, in_channels=F, out_channels=C, hidden_channels=4)
    with pytest.raises(CvgnnError, match="Network cannot be evaluated exactly"):
        cvgnn.fit(GRAPH, model=model, epochs=1)


def test_a_hook_is_run_in_evaluation_too() -> None:
    model = cvgnn.GCN(in_channels=F, out_channels=C, hidden_channels=4)
    features = cvgnn.propagate_features(GRAPH, P := cvgnn.Propagation(GRAPH))
    plain = exact_logits(model, features, P)
    model.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert torch.equal(exact_logits(model, features, P), 2 * plain)


def test_a_dropout_in_a_layer_is_off_in_evaluation() -> None:
    class Dropping(cvgnn.nn.GCNConv):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.drop = nn.Dropout(0.5)

        def forward(self, inputs: Any) -> Any:
            return self.drop(cvgnn.ops.fused_layer.affine(super().forward(inputs)))

    model = cvgnn.Network(Dropping, in_channels=F, out_channels=C, hidden_channels=4)
    features = cvgnn.propagate_features(GRAPH, P := cvgnn.Propagation(GRAPH))
    assert torch.equal(exact_logits(model, features, P), exact_logits(model, features, P))
    assert model.layer(0).drop.training


# Objects and functions for each part


def test_a_network_and_its_optimizer_are_trained_in_place() -> None:
    model = cvgnn.SAGE(in_channels=F, out_channels=C, hidden_channels=4, num_layers=3)
    run = cvgnn.fit(
        GRAPH, model=model, optimizer=torch.optim.Adam(model.parameters(), 0.01), epochs=3, num_neighbors=(2, 3)
    )
    assert run.propagation.normalization == "mean"
    assert (run.config.model, run.config.layers, run.config.optimizer) == ("custom:SAGE", 3, "custom:Adam")
    assert run.trainer is not None
    assert run.trainer.model is model
    assert run.result["optimizer"] == "Adam"


def test_a_class_and_a_function_make_the_same_as_a_name() -> None:
    named = weights(cvgnn.fit(GRAPH, model="sage", optimizer="adam", lr=0.02, **OPTIONS))
    for model in (cvgnn.SAGE, lambda **options: cvgnn.SAGE(**options)):
        for optimizer in (partial(cvgnn.make_optimizer, "adam", lr=0.02, weight_decay=5e-3),):
            run = cvgnn.fit(GRAPH, model=model, optimizer=optimizer, **OPTIONS)
            assert torch.equal(weights(run), named)
    adam = cvgnn.fit(GRAPH, model="sage", optimizer=torch.optim.Adam, lr=0.02, **OPTIONS)
    torch.testing.assert_close(weights(adam), named, rtol=0, atol=1e-4)  # a class gets lr and weight_decay


def test_an_estimator_of_ones_own() -> None:
    class Plain(cvgnn.Estimator):
        """Sampling alone: the base class."""

    sampled, control = (cvgnn.fit(GRAPH, estimator=name, **OPTIONS) for name in ("ns", "cvd"))
    assert torch.equal(weights(cvgnn.fit(GRAPH, estimator=Plain, **OPTIONS)), weights(sampled))
    assert torch.equal(weights(cvgnn.fit(GRAPH, estimator=cvgnn.ControlVariate, **OPTIONS)), weights(control))
    made = cvgnn.ControlVariate(cvgnn.propagate_features(GRAPH, cvgnn.Propagation(GRAPH)), [4])
    assert torch.equal(weights(cvgnn.fit(GRAPH, estimator=made, **OPTIONS)), weights(control))


def test_a_loss_of_ones_own() -> None:
    named = weights(cvgnn.fit(GRAPH, **OPTIONS))
    same = cvgnn.fit(GRAPH, loss=lambda logits, labels: cross_entropy(logits, labels), **OPTIONS)
    assert torch.equal(weights(same), named)
    assert same.config.loss == "custom:<lambda>"
    assert not torch.equal(weights(cvgnn.fit(GRAPH, loss=multi_margin_loss, **OPTIONS)), named)


def test_class_weights() -> None:
    counts = torch.bincount(GRAPH.y[GRAPH.train_ids], minlength=C)
    balanced = (30 / (C * counts)).tolist()
    runs = [cvgnn.fit(GRAPH, class_weight=weight, **OPTIONS) for weight in ("balanced", balanced)]
    assert torch.equal(weights(runs[0]), weights(runs[1]))
    weight = torch.tensor(balanced)
    by_hand = cvgnn.fit(GRAPH, loss=lambda logits, labels: cross_entropy(logits, labels, weight=weight), **OPTIONS)
    assert torch.equal(weights(by_hand), weights(runs[0]))
    assert not torch.equal(weights(cvgnn.fit(GRAPH, **OPTIONS)), weights(runs[0]))


MODEL = cvgnn.GCN(in_channels=F, out_channels=C)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": MODEL, "hidden": 8}, "hidden has no use: model is a network, which is built already; leave it out"),
        ({"model": cvgnn.GCN(in_channels=7, out_channels=C)}, "the graph needs in_channels=5, out_channels=3"),
        ({"model": MODEL.double()}, "make them the same"),
        ({"model": nn.Linear(5, 3)}, "model must be a name or a Network"),
        ({"model": nn.Linear}, "model must be a name or a Network"),
        ({"model": lambda **options: 3}, "the model 'custom:<lambda>' must return a Network, not 3"),
        ({"model": lambda: 3}, "cannot make the model 'custom:<lambda>' with in_channels, hidden_channels"),
        ({"estimator": cvgnn.GCN}, "estimator must be a name or a Estimator"),
        ({"optimizer": torch.optim.Adam, "beta1": 0.5}, "beta1 has no use: optimizer is an object or function"),
        ({"optimizer": partial(torch.optim.Adam), "lr": 0.5}, "lr has no use"),
        ({"optimizer": torch.optim.Adam(MODEL.parameters())}, "optimizer is over other parameters than the model's"),
        ({"loss": 3}, "loss must be a name or a function of logits and labels, not 3"),
        ({"loss": lambda logits, labels: 1.0}, "loss must return one differentiable number"),
        (
            {"loss": "crossentropy"},
            "unknown loss 'crossentropy'; known: auto, cross-entropy (did you mean 'cross-entropy'?)",
        ),
        (
            {"loss": multi_margin_loss, "class_weight": "balanced"},
            "class_weight is for the cross entropy, not for your own loss; leave it out",
        ),
        ({"class_weight": [1.0, 2.0]}, "class_weight has 2 numbers, but the graph has 3 classes"),
        ({"class_weight": "1,-2,3"}, "class_weight must be 'balanced' or one number of at least 0 for each class"),
        ({"class_weight": 2}, "class_weight must be 'balanced' or a list of numbers"),
        ({"verbos": 1}, "(did you mean 'verbose'?)"),
        ({"learning_rate": 1}, "(did you mean 'lr'?)"),
        ({"batchsize": 1}, "(did you mean 'batch_size'?)"),
        ({"verbose": -1}, "verbose must be a whole number of at least 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_mistakes_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        cvgnn.fit(GRAPH, **options)
    assert said in str(caught.value)


def test_resume_and_load_need_the_same_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts: dict[str, Any] = {"model": Scaled, "loss": multi_margin_loss, "optimizer": torch.optim.AdamW}
    cvgnn.fit(GRAPH, out=tmp_path / "a", **parts, **OPTIONS)
    with pytest.raises(CvgnnError, match=r"the model of this run, 'Scaled', was a Python object.*give it again"):
        cvgnn.fit(GRAPH, resume=tmp_path / "a", epochs=5)
    with pytest.raises(CvgnnError, match="loss was 'custom:multi_margin_loss' and is 'custom:cross_entropy'"):
        cvgnn.fit(GRAPH, resume=tmp_path / "a", **{**parts, "loss": cross_entropy}, epochs=5)
    resumed = cvgnn.fit(GRAPH, resume=tmp_path / "a", **parts, epochs=5)
    assert torch.equal(weights(resumed), weights(cvgnn.fit(GRAPH, **parts, **{**OPTIONS, "epochs": 5})))
    with pytest.raises(CvgnnError, match="'Scaled', was a Python object"):
        cvgnn.load_run(tmp_path / "a", GRAPH)
    with pytest.raises(CvgnnError, match="was trained with model 'custom:Scaled', not custom:GCN"):
        cvgnn.load_run(tmp_path / "a", GRAPH, model=cvgnn.GCN)
    loaded = cvgnn.load_run(tmp_path / "a", GRAPH, model=Scaled)
    assert torch.equal(loaded.predict_proba(), resumed.predict_proba())
    assert main(["train", "--resume", str(tmp_path / "a")]) == 2
    assert "cvgnn:" in capsys.readouterr().err


# Progress and Ctrl-C


def test_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    cvgnn.fit(GRAPH, verbose=2, **OPTIONS)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 2/3", "epoch 3/3"]
    assert "val " in lines[0]
    cvgnn.fit(GRAPH, verbose=True, **OPTIONS)
    assert len(capsys.readouterr().out.splitlines()) == 3


class Interrupt(cvgnn.Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, trainer: cvgnn.Trainer) -> None:
        if trainer.iterations == self.step:
            os.kill(os.getpid(), 2)


def test_ctrl_c_returns_the_best_so_far() -> None:
    with logged() as messages:
        run = cvgnn.fit(GRAPH, callbacks=[Interrupt(8)], **{**OPTIONS, "epochs": 50})
    assert len(run.records) == 2  # three steps an epoch; the third epoch is not finished
    assert (
        f"interrupted after 2 of 50 epochs; the result is the best of them, epoch {run.result['best_epoch']}"
        in messages
    )
    assert run.result["iterations"] == 8
    same = cvgnn.fit(GRAPH, **{**OPTIONS, "epochs": 2})
    assert torch.equal(weights(run), weights(same))


def test_ctrl_c_before_any_result_ends_the_program() -> None:
    with logged(), pytest.raises(KeyboardInterrupt):
        cvgnn.fit(GRAPH, callbacks=[Interrupt(1)], **OPTIONS)
