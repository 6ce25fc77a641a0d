"""Graph classification: the literal loss, batches, resuming, learning by structure alone, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cvgnn
from cvgnn.cli.inspect_command import describe
from cvgnn.cli.main import main
from cvgnn.config import TrainConfig
from cvgnn.data import Graph, RandomSplit, from_arrays, from_graphs
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose.trainers import in_float64
from cvgnn.reference import ReferenceTrainer
from cvgnn.reference.graph_loss import graph_loss
from cvgnn.reference.optimizers import ReferenceOptimizer
from cvgnn.rng import Purpose, derive
from cvgnn.sampling import GraphItems
from cvgnn.training.tasks import GraphClassification
from cvgnn.training.tasks.graph_tasks import POOLS
from cvgnn.training.trainer_builder import build_trainer
from tests.faults.harness import assert_same_run
from tests.raw_draws import raw_draws

LR = 0.05


def ring_or_star(rng: np.random.Generator, y: int) -> dict[str, Any]:
    """A ring (0) or a star (1) of 6 to 11 nodes, some with another node attached; all features are 1."""
    n, extra = int(rng.integers(6, 12)), int(rng.integers(0, 4))
    edges = np.stack([np.arange(n), (np.arange(n) + 1) % n]) if y == 0 else np.stack([np.zeros(n - 1, int), np.r_[1:n]])
    attached = np.stack([rng.integers(0, n, extra), np.arange(n, n + extra)])
    return {"edge_index": np.concatenate([edges, attached], axis=1), "x": np.ones((n + extra, 1), np.float32), "y": y}


def rings_and_stars(count: int, **options: Any) -> Graph:
    rng = np.random.default_rng(0)
    return from_graphs([ring_or_star(rng, i % 2) for i in range(count)], **options)


def small_set(dtype: type = np.float64) -> Graph:
    """Seven graphs of 1 to 7 nodes with random edges and features, three classes.

    Weights are random too: two nodes of the same neighborhood would have the same output, and where they are the
    maximum of a graph, it has no derivative.
    """
    rng, graphs = np.random.default_rng(3), []
    for n in range(1, 8):
        edges = np.stack(np.nonzero(np.triu(rng.random((n, n)) < 0.6, k=1)))
        weight = rng.uniform(0.5, 2.0, edges.shape[1])
        graphs.append({"edge_index": edges, "edge_weight": weight, "x": rng.normal(size=(n, 4)).astype(dtype)})
    return from_graphs(graphs, y=[0, 1, 2, 2, 1, 0, 1], train_ids=[0, 2, 3, 4, 6], val_ids=[1], test_ids=[5])


GRAPH = small_set()
OPTIONS: dict[str, Any] = {"hidden": 8, "batch_size": 2, "epochs": 3, "threads": 1}


@pytest.mark.parametrize("estimator", ["cvd", "exact"])
@pytest.mark.parametrize("batches", ["shuffle", "replacement"])
@pytest.mark.parametrize("pool", POOLS)
def test_the_literal_loss_and_gradient(pool: str, batches: str, estimator: str) -> None:
    """Twelve steps of Algorithm 1, its loss written out graph by graph: all weights to 1e-10."""
    config = TrainConfig(
        task="graph", pool=pool, batches=batches, estimator=estimator, optimizer="sgd", beta1=0.0, lr=LR, dropout=0.0,
        weight_decay=0.0, hidden=5, layers=3, batch_size=3,
    )  # fmt: skip
    trainer = build_trainer(GRAPH, config)
    task, readout = trainer.task, trainer.model.readout
    assert isinstance(task, GraphClassification)
    assert readout is not None
    head = {name: p.detach().numpy().copy() for name, p in readout.named_parameters()}
    params = {
        name: p.detach().numpy().copy()
        for name, p in trainer.model.named_parameters()
        if not name.startswith("readout.")
    }
    state: dict[str, Any] = {}

    def loss(h: np.ndarray, nodes: np.ndarray) -> tuple[float, np.ndarray]:
        """`nodes` are the "labels" of the batch's nodes: graph after graph, repeats repeated."""
        rows, graphs = 0, []
        for b in state["ids"]:
            size = int((GRAPH.graph_ids == b).sum())
            assert nodes[rows : rows + size].tolist() == (GRAPH.graph_ids == b).nonzero().flatten().tolist()
            graphs.append(list(range(rows, rows + size)))
            rows += size
        value, dh, state["grads"] = graph_loss(h, graphs, GRAPH.y.numpy()[state["ids"]], head, pool)
        return value, dh

    A = np.zeros((GRAPH.num_nodes, GRAPH.num_nodes))
    A[np.repeat(np.arange(GRAPH.num_nodes), GRAPH.degree), GRAPH.indices] = GRAPH.edge_weight
    replica = ReferenceTrainer(
        A, GRAPH.x.numpy(), np.arange(GRAPH.num_nodes), params, K=3, fan_outs=[None, 2, 2], estimator=estimator,
        loss=loss, optimizer=ReferenceOptimizer("sgd", "torch", lr=LR, weight_decay=0.0),
    )  # fmt: skip
    steps = 0
    for epoch in range(1, 7):
        for batch in trainer.loader.epoch(epoch):
            state["ids"] = batch.ids.tolist()

            def draws(k: int, v: int, step: int = batch.step) -> list[int]:
                key = derive(config.seed, Purpose.NEIGHBORS, step, k)
                return raw_draws(key, v, config.scheme, len(replica.neighbors[v]), 2)

            mine = trainer.step(batch)
            replica.step(task.items.nodes_of(batch.ids).tolist(), draws)
            assert abs(mine - replica.loss) < 1e-10
            head |= {name: W - LR * state["grads"][name] for name, W in head.items()}
            expected = replica.params | {f"readout.{name}": W for name, W in head.items()}
            for name, p in trainer.model.named_parameters():
                np.testing.assert_allclose(p.detach().numpy(), expected[name], rtol=0, atol=1e-10)
            steps += 1
    assert steps == 12
    assert all(np.abs(W - params[name]).max() > 1e-6 for name, W in replica.params.items())


def test_a_batch_is_all_nodes_of_its_graphs() -> None:
    items = GraphItems(torch.tensor([0, 2]), torch.tensor([0, 0, 1, 2, 2, 2]))
    assert items.nodes.tolist() == [0, 1, 3, 4, 5]
    assert items.sizes.tolist() == [2, 1, 3]
    once = items.targets(torch.tensor([2, 0]), 1, repeats=False)
    assert (once.nodes.tolist(), once.place) == ([3, 4, 5, 0, 1], None)
    twice = items.targets(torch.tensor([2, 0, 2]), 1, repeats=True)
    assert twice.place is not None
    assert twice.nodes[twice.place].tolist() == [3, 4, 5, 0, 1, 3, 4, 5]


@pytest.mark.parametrize("pool", POOLS)
def test_classes_that_differ_by_structure_alone(pool: str) -> None:
    """Rings against stars, all features 1: at least 95 % of the test graphs."""
    run = cvgnn.fit(
        rings_and_stars(200), pool=pool, model="gin", hidden=16, dropout=0.0, weight_decay=0.0, epochs=40,
        batch_size=32, threads=1,
    )  # fmt: skip
    assert run.result["task"] == "graph"
    assert run.result["test_accuracy"] >= 0.95
    assert sum(run.result["per_class"]["nodes"]) == 40


def test_metrics_and_predictions_are_those_of_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = cvgnn.fit(GRAPH, pool="set", class_weight="balanced", out=tmp_path / "run", output="last", **OPTIONS)
    classes, chances = run.predict(), run.predict_proba()
    assert (classes.shape, chances.shape, chances.requires_grad) == ((7,), (7, 3), False)
    right = (classes == GRAPH.y)[GRAPH.train_ids].double().mean()
    assert run.evaluate()["metrics"]["train_accuracy"] == pytest.approx(float(right))
    torch.testing.assert_close(run.predict_proba([5, 1]), chances[[5, 1]])
    again = cvgnn.load_run(tmp_path / "run", GRAPH)
    assert torch.equal(again.predict_proba(), chances)
    with pytest.raises(CvgnnError, match=r"graph 7 does not exist; ids must lie in 0\.\.6"):
        run.predict([7])


def npz(folder: Path, graph: Graph, **changes: Any) -> Path:
    target = np.repeat(np.arange(graph.num_nodes), graph.degree)
    arrays = {
        "edge_index": np.stack([graph.indices.numpy(), target]), "x": graph.x.numpy(), "y": graph.y.numpy(),
        "graph_ids": graph.graph_ids.numpy(), "edge_weight": graph.edge_weight.numpy(),
        **{f"{s}_ids": getattr(graph, f"{s}_ids").numpy() for s in ("train", "val", "test")}, **changes,
    }  # fmt: skip
    np.savez(folder / "set.npz", **{name: array for name, array in arrays.items() if array is not None})
    return folder / "set.npz"


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, run = npz(tmp_path, GRAPH), str(tmp_path / "run")
    options = ["--epochs", "2", "--hidden", "8", "--threads", "1", "--defaults", "fixed"]
    assert main(["train", "--graph", str(file), "--pool", "sum", *options, "--out", run]) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["task"] == "graph"
    capsys.readouterr()
    assert main(["predict", run]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "graph,class,probability,label,split,p_0,p_1,p_2"
    assert [line.split(",")[0] for line in lines[1:]] == [str(i) for i in range(7)]
    assert [line.split(",")[4] for line in lines[1:4]] == ["train", "val", "train"]
    assert main(["predict", run, "--nodes", "5,2", "--columns", "graph,label"]) == 0
    assert capsys.readouterr().out == "graph,label\n5,0\n2,2\n"
    assert main(["evaluate", run]) == 0
    assert "7 graphs, 28 nodes" in describe(cvgnn.read_graph(file))[0]
    capsys.readouterr()
    assert main(["predict", run, "--nodes", "9"]) == 2
    assert "graph '9' is not in the graph; its graph ids are 0..6" in capsys.readouterr().err


@pytest.mark.parametrize("pool", ["mean", "set"])
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, pool: str) -> None:
    graph = small_set(np.float32)
    cvgnn.fit(graph, pool=pool, out=tmp_path / "a", **OPTIONS)
    resumed = cvgnn.fit(graph, resume=tmp_path / "a", epochs=6)
    whole = cvgnn.fit(graph, pool=pool, out=tmp_path / "b", **OPTIONS | {"epochs": 6})
    mine, theirs = resumed.model.state_dict(), whole.model.state_dict()
    assert any(name.startswith("readout.") for name in mine)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_a_random_split_is_by_graph() -> None:
    graph = rings_and_stars(50, split=RandomSplit(seed=2))
    assert [ids.numel() for ids in (graph.train_ids, graph.val_ids, graph.test_ids)] == [30, 10, 10]
    assert graph.train_nodes.numel() == int(torch.isin(graph.graph_ids, graph.train_ids).sum())
    assert graph.split == "random: seed 2, fractions 0.6/0.2/0.2"
    balanced = rings_and_stars(50, split=RandomSplit(per_class=5))
    assert balanced.y[balanced.train_ids].tolist().count(1) == 5


TWO = [{"edge_index": [[0], [1]], "x": np.ones((2, 1))}, {"edge_index": [[0], [1]], "x": np.ones((3, 1))}]
ARRAYS: dict[str, Any] = {"edge_index": [[0, 2], [1, 3]], "x": np.ones((4, 1)), "y": [0, 1], "graph_ids": [0, 0, 1, 1]}


def from_two(**second: Any) -> Graph:
    return from_graphs([TWO[0], {**TWO[1], **second}], y=[0, 1])


def from_four(**changes: Any) -> Graph:
    return from_arrays(**{**ARRAYS, **changes}, train_ids=[0])


BAD = [
    (lambda: from_graphs([]), "graphs must be a list of graphs"),
    (lambda: from_graphs(TWO), "graph 0 has no y; give a dict or a PyG Data that has it"),
    (lambda: from_two(x=None), "graph 1 has no x"),
    (lambda: from_two(x=np.ones((3, 2))), "graph 1 has 2 features, but graph 0 has 1"),
    (lambda: from_two(edge_index=[[0], [3]]), r"graph 1: edge_index names node 3; its nodes are 0\.\.2"),
    (lambda: from_two(edge_weight=[1.0]), "graph 1 has edge_weight, unlike graph 0"),
    (lambda: from_four(graph_ids=[0, 1, 0, 1]), "graph_ids must ascend from 0 without a gap.*node 2 has 0 after 1"),
    (lambda: from_four(graph_ids=[1, 1, 2, 2]), "graph_ids must ascend from 0.*node 0 has 1 after nothing"),
    (lambda: from_four(edge_index=[[0, 1], [1, 2]]), "nodes 1 and 2 have an edge, but graph_ids puts them into graphs 0"),
    (lambda: from_four(graph_ids=["a", "a", "b", "b"]), "graph_ids must hold integers, 0 for the first graph"),
    (lambda: from_four(y=[0, 1, 1, 0]), r"y must have one label per graph, \[2\]"),
    (lambda: from_four(graph_ids=[0, 0, 1]), "x has 4 rows but graph_ids has 3 entries"),
    (lambda: from_arrays(**ARRAYS, train_ids=[2]), r"train_ids must lie in 0\.\.1; found 2"),
    (lambda: from_arrays(**ARRAYS, train_ids=[0], val_ids=[0]), "graph 0 is in both train_ids and val_ids"),
    (lambda: cvgnn.fit(GRAPH, task="node"), "task 'node' needs labels at nodes.* is a set of graphs.*use task 'graph'"),
    (lambda: cvgnn.fit(cvgnn.load("citeseer"), task="graph"), "task 'graph' needs a set of graphs.*'citeseer' is one"),
    (lambda: cvgnn.fit(cvgnn.load("citeseer"), pool="sum"), "pool has no use with task 'node'"),
    (lambda: cvgnn.fit(GRAPH, pool="max"), "unknown pool 'max'"),
    (lambda: cvgnn.fit(GRAPH, calibrate=True), "calibrate has no use with task 'graph'"),
    (lambda: cvgnn.fit(GRAPH, class_weight=[1.0, 2.0]), "class_weight has 2 numbers, but the graph has 3 classes"),
    (lambda: GraphClassification(from_four(y=[[0, 1], [1, 1]])), "task 'graph' needs y as an int64 vector.* not built"),
    (lambda: in_float64(GRAPH), "diagnose measures on one graph, with labels at nodes"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
        make()
