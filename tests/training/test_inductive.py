"""Inductive training sees the training nodes and the edges among them, and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import cvgnn
from cvgnn.config import TrainConfig
from cvgnn.data import Propagation, SparseFeatures
from cvgnn.data.subgraph import induced_subgraph
from cvgnn.errors import CvgnnError
from cvgnn.nn import ControlVariate
from cvgnn.training.guard import Diverged
from cvgnn.training.machine import estimate_memory
from cvgnn.training.run import read_run
from tests.build import graph_from_dense, random_adjacency, sparse_features

N = 60


def graph(*, weighted: bool = False, directed: bool = False, y: Any = None, sparse: bool = False) -> cvgnn.Graph:
    A = random_adjacency(N, mean_degree=6, weighted=weighted, seed=3)
    made = graph_from_dense(np.triu(A) if directed else A, features=5, directed=directed)
    if sparse:
        made = dataclasses.replace(made, x=sparse_features(made.x.numpy() * (made.x.numpy() > 0)))  # type: ignore[union-attr]
    if y is None:
        return made
    labels = torch.as_tensor(y)
    return dataclasses.replace(made, y=labels, num_classes=1 if labels.dim() == 1 else labels.shape[1])


def with_other_test_nodes(g: cvgnn.Graph) -> cvgnn.Graph:
    """The same graph as the training nodes see it: their features, labels and edges among them; the rest differs."""
    rng = np.random.default_rng(7)
    other = torch.from_numpy(np.setdiff1d(np.arange(N), g.train_ids.numpy()))
    row = torch.arange(N).repeat_interleave(g.degree).numpy()
    train = np.zeros(N, dtype=bool)
    train[g.train_ids.numpy()] = True
    kept = train[row] & train[g.indices.numpy()]
    more = np.stack([rng.choice(other.numpy(), 40), rng.integers(N, size=40)])
    edges = np.concatenate([np.stack([g.indices.numpy()[kept], row[kept]]), more], axis=1)
    old = [] if g.edge_weight is None else g.edge_weight.numpy()[kept]
    sums = more.sum(axis=0) + np.abs(more[0] - more[1])
    x = g.x.to_dense().clone() if isinstance(g.x, SparseFeatures) else g.x.clone()
    x[other] = torch.from_numpy(rng.normal(size=(len(other), 5)))
    y = g.y.clone()
    y[other] = y[other].flip(0)
    return cvgnn.from_edges(
        edges, x=sparse_features(x.numpy()) if isinstance(g.x, SparseFeatures) else x, y=y, num_classes=g.num_classes,
        edge_weight=None if g.edge_weight is None else np.concatenate([old, 0.5 + sums % 5]),
        train_ids=g.train_ids, val_ids=g.val_ids, directed=g.directed,
    )  # fmt: skip


def test_the_subgraph() -> None:
    whole = graph(weighted=True)
    part = induced_subgraph(whole, whole.train_ids)
    part.check_structure()
    ids = whole.train_ids
    A, B = (sparse.csr_array((g.edge_weight, g.indices, g.indptr)).toarray() for g in (whole, part))
    np.testing.assert_array_equal(A[ids][:, ids], B)
    assert torch.equal(part.x, whole.x[ids])  # type: ignore[index,arg-type]
    assert torch.equal(part.y[part.train_ids], whole.y[ids])
    assert part.val_ids.numel() == 0


@pytest.mark.parametrize("estimator", ["cvd", "cv", "ns", "exact"])
@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gcnii"])
def test_what_is_hidden_changes_no_weight(model: str, estimator: str) -> None:
    options: dict[str, Any] = {"epochs": 3, "hidden": 6, "batch_size": 8, "output": "last", "norm": "batch"}
    g = graph(weighted=model != "sage", directed=model == "gin", sparse=model == "gcnii")
    runs = [
        cvgnn.fit(each, inductive=True, model=model, estimator=estimator, **options)
        for each in (g, with_other_test_nodes(g))
    ]
    for name, tensor in runs[0].model.state_dict().items():
        assert torch.equal(tensor, runs[1].model.state_dict()[name]), name
    outside = cvgnn.fit(g, model=model, estimator=estimator, **options).model.state_dict()
    assert not all(torch.equal(tensor, outside[name]) for name, tensor in runs[0].model.state_dict().items())


def test_training_is_that_of_the_subgraph_and_evaluation_that_of_the_whole() -> None:
    g = graph()
    run = cvgnn.fit(g, inductive=True, epochs=3, hidden=6, output="last")
    alone = cvgnn.fit(induced_subgraph(g, g.train_ids), epochs=3, hidden=6, output="last")
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, alone.model.state_dict()[name]), name
    assert run.trainer is not None
    assert isinstance(run.trainer.estimator, ControlVariate)
    sizes = {len(tensor) for name, tensor in run.trainer.estimator.state_dict().items() if tensor.dim() == 2}
    assert sizes == {g.train_ids.numel()}  # no history of a node that is hidden
    assert run.propagation.num_nodes == run.graph.num_nodes == N
    rows = cvgnn.exact_logits(run.model, cvgnn.propagate_features(g, Propagation(g)), Propagation(g))
    assert torch.equal(run.outputs(), rows)
    accuracy = (rows.argmax(dim=1) == g.y)[g.val_ids].double().mean()
    assert run.result["output_val_accuracy"] == pytest.approx(float(accuracy))


@pytest.mark.parametrize(
    "y",
    [(np.arange(N)[:, None] % [2, 3] == 0).astype(np.int8), np.linspace(-1, 3, N)[:, None]],
    ids=["multilabel", "regression"],
)
def test_other_tasks(y: np.ndarray, tmp_path: Path) -> None:
    g = graph(y=y)
    run = cvgnn.fit(g, inductive=True, epochs=3, hidden=6, class_weight="balanced" if y.dtype == np.int8 else None)
    assert len(run.predict()) == N
    run.save(tmp_path / "run")
    assert torch.equal(read_run(tmp_path / "run", g).outputs(), run.outputs())


@pytest.mark.parametrize("estimator", ["cvd", "ns"])
def test_resume_to_the_same_bits(tmp_path: Path, estimator: str) -> None:
    g = graph()
    options: dict[str, Any] = {"inductive": True, "hidden": 6, "batch_size": 8, "estimator": estimator}
    whole = cvgnn.fit(g, epochs=5, **options)
    cvgnn.fit(g, epochs=2, out=tmp_path / "run", checkpoint_epochs=1, **options)
    resumed = cvgnn.fit(g, epochs=5, resume=tmp_path / "run")
    assert resumed.config.inductive
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
    with pytest.raises(CvgnnError, match="inductive"):
        cvgnn.fit(g, epochs=5, resume=tmp_path / "run", inductive=False)


def test_the_nodes_of_a_diverged_batch_are_the_users() -> None:
    g = graph()
    g.x[g.train_ids[-1]] = 1e300  # type: ignore[index]
    with pytest.raises(Diverged) as raised:
        cvgnn.fit(g, defaults="fixed", inductive=True, epochs=2, hidden=6, optimizer="sgd", lr=1e3)
    assert set(raised.value.ids) <= set(g.train_ids.tolist())
    assert max(raised.value.ids) > g.train_ids.numel()


@pytest.mark.parametrize("sparse_x", [False, True])
def test_memory(sparse_x: bool) -> None:
    g, n = graph(sparse=sparse_x), 30
    whole, part = (estimate_memory(g, TrainConfig(inductive=inductive)) for inductive in (False, True))
    assert part["histories"] * N == whole["histories"] * n
    assert part["P X"] == whole["P X"]
    own = 8 * N * 5 if not sparse_x else 12 * g.x.values.numel()  # type: ignore[union-attr]
    assert part["training subgraph"] == (own + whole["P X"]) * n // N


def test_mistakes() -> None:
    g = graph()
    with pytest.raises(CvgnnError, match="inductive must be True or False, not 'yes'"):
        cvgnn.fit(g, inductive="yes")
    with pytest.raises(CvgnnError, match="inductive makes the task for the training nodes; give a class"):
        cvgnn.fit(g, inductive=True, task=cvgnn.NodeClassification(g))
    task = cvgnn.NodeClassification(g)
    task.items.kind = "edge"
    with pytest.raises(CvgnnError, match="inductive hides nodes, so it needs a task with labels at nodes, not 'node'"):
        cvgnn.fit(g, inductive=True, task=task)
