"""Labelled edges and link prediction: literal losses and gradients, no leak, resume, predictions, bad input."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

import cvgnn
from cvgnn.cli.main import main
from cvgnn.config import TrainConfig
from cvgnn.data import Graph, Propagation, from_edges, with_edge_labels
from cvgnn.data.store import write_store
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose.trainers import fresh_trainer
from cvgnn.nn import exact_logits
from cvgnn.ops.row_sum import Rows
from cvgnn.training.tasks import EdgeClassification, LinkPrediction, task_of
from cvgnn.training.tasks.edge_tasks import PairOptions
from cvgnn.training.trainer_builder import build_trainer
from tests.build import graph_from_dense, random_adjacency

HEADS: list[Any] = ["dot", "hadamard-mlp", "concat-mlp"]


def small_graph(n: int = 40, seed: int = 1) -> Graph:
    return graph_from_dense(random_adjacency(n, mean_degree=5, weighted=False, seed=seed), features=6, seed=seed)


def labelled(graph: Graph, classes: int = 2, count: int = 60, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, graph.num_nodes, size=(2, count))
    label = rng.integers(0, classes, size=count)
    label[:classes] = np.arange(classes)
    return with_edge_labels(graph, pairs, label)


def dense(rows: Rows, columns: int) -> Tensor:
    indptr, indices, weight = rows.tensors
    matrix = torch.zeros(rows.num_rows, columns, dtype=torch.float64)
    for i in range(rows.num_rows):
        for j in range(int(indptr[i]), int(indptr[i + 1])):
            matrix[i, int(indices[j])] += 1.0 if weight is None else weight[j]
    return matrix


def literal_score(head: str, a: Tensor, b: Tensor, W: dict[str, Tensor], *, both: bool) -> Tensor:
    """The score of one pair, as the docs state it."""
    if head == "dot":
        return (a * b).sum().reshape(1)

    def mlp(v: Tensor) -> Tensor:
        hidden = torch.clamp(W["readout.mlp.0.weight"] @ v + W["readout.mlp.0.bias"], min=0)
        return W["readout.mlp.2.weight"] @ hidden + W["readout.mlp.2.bias"]

    if head == "hadamard-mlp":
        return mlp(a * b)
    return (mlp(torch.cat([a, b])) + mlp(torch.cat([b, a]))) / 2 if both else mlp(torch.cat([a, b]))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("estimator", ["exact", "cvd"])
@pytest.mark.parametrize("task", ["link", "edge", "weighted edge"])
def test_loss_and_gradient_of_five_steps_are_the_literal_ones(task: str, estimator: str, head: str) -> None:
    """Dense matrices, one pair at a time, in float64: the network of two layers, eq. 5, head, and cross entropy."""
    classes = 2 if head == "dot" else 3
    whole, class_weight = labelled(small_graph(), classes), "balanced" if task == "weighted edge" else None
    task = task.split()[-1]
    config = TrainConfig(
        task=task, head=head, estimator=estimator, hidden=5, dropout=0.0, batch_size=7, num_neighbors=1, seed=3,
        class_weight=class_weight,
    )  # fmt: skip
    trainer = build_trainer(whole, config)
    pairs_task, model = trainer.task, trainer.model
    graph = pairs_task.graph
    n = graph.num_nodes
    A = torch.eye(n, dtype=torch.float64)
    for v in range(n):
        A[v, graph.indices[graph.indptr[v] : graph.indptr[v + 1]].long()] = 1.0
    scale = A.sum(dim=1).rsqrt()
    Pmatrix = scale[:, None] * A * scale
    for batch in list(trainer.loader.epoch(1))[:5]:
        W = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
        history = _history(trainer)
        trainer.step(batch)
        H = torch.clamp(Pmatrix @ graph.x @ W["layers.0.weight"] + W["layers.0.bias"], min=0)
        block = batch.block(1)
        S = dense(block.sampled, block.sources.numel()) @ H[block.sources]
        if estimator == "cvd":
            S = S + (
                Pmatrix[block.targets] @ history - dense(block.sampled, block.sources.numel()) @ history[block.sources]
            )
        Z = S @ W["layers.1.weight"] + W["layers.1.bias"]
        place, losses, weights = batch.place, [], []
        assert place is not None
        for i in range(place.shape[1]):
            score = literal_score(head, Z[place[0, i]], Z[place[1, i]], W, both=task == "link")
            if task == "link":
                sign = 1 if i < batch.ids.numel() else -1
                losses.append(torch.log(1 + torch.exp(-sign * score[0])))
            else:
                assert isinstance(pairs_task, EdgeClassification)
                logits = torch.cat([torch.zeros(1, dtype=torch.float64), score]) if head == "dot" else score
                c = int(pairs_task.labels[batch.ids[i]])
                counts = [int((pairs_task.y[pairs_task.ids["train"]] == k).sum()) for k in range(classes)]
                weights.append(1.0 if class_weight is None else sum(counts) / (classes * counts[c]))
                losses.append(weights[-1] * (torch.log(torch.exp(logits).sum()) - logits[c]))
        loss = torch.stack(losses).sum() / (sum(weights) or len(losses))
        loss.backward()  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, W[name].grad, rtol=1e-10, atol=1e-10)


def _history(trainer: Any) -> Tensor:
    histories = getattr(trainer.estimator, "histories", ())
    return histories[0].values.clone() if len(histories) else torch.empty(0)


def random_links() -> Graph:
    """Edges and features without any pattern: held-out edges cannot be predicted."""
    rng = np.random.default_rng(5)
    n = 600
    return from_edges(
        rng.integers(0, n, size=(2, 900)),
        x=torch.from_numpy(rng.normal(size=(n, 32))),
        y=np.zeros(n, int),
        train_ids=[0],
    )


def test_held_out_edges_left_in_the_graph_would_leak() -> None:
    """On noise the AUC is a coin's, unless validation and test edges stay in P."""
    graph = random_links()
    run = cvgnn.fit(
        graph, task="link", head="dot", val_edges=0.15, test_edges=0.35, epochs=8, dropout=0.0, estimator="exact",
        eval_every=8,
    )  # fmt: skip
    task, model = run.task, run.model
    held = task.pairs["test"][:, : task.sizes()["test"]]  # type: ignore[attr-defined]
    rows = {
        name: exact_logits(model, cvgnn.propagate_features(g, P), P)
        for name, g in (("hidden", task.graph), ("kept", graph))
        for P in [Propagation(g)]
    }
    auc = {name: task.evaluate(z, ["roc_auc"], model.readout)["test_roc_auc"] for name, z in rows.items()}
    assert auc["hidden"] is not None
    assert auc["kept"] is not None
    assert 0.4 < auc["hidden"] < 0.6
    assert auc["kept"] > 0.8
    assert auc["hidden"] == run.result["test_roc_auc"]
    # No prediction knows them either.
    score = run.predict_proba(held.T)
    assert torch.allclose(score, (rows["hidden"][held[0].long()] * rows["hidden"][held[1].long()]).sum(1).sigmoid())


def test_no_negative_of_any_split_or_step_is_an_edge() -> None:
    graph = small_graph()
    task = LinkPrediction(graph, negatives="degree", pairs=PairOptions(val_edges=0.1, test_edges=0.2))
    true = {(int(u), v) for v in range(40) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
    drawn = [task.pairs[split].chunk(2, dim=1)[1] for split in ("train", "val", "test")]
    for step in range(1, 30):
        nodes, place = task.items.targets(task.items.ids, step, repeats=False)
        assert place is not None
        drawn.append(nodes[place[:, len(task.items) :]])
    pairs = {tuple(pair) for part in drawn for pair in part.T.tolist()}
    assert len(pairs) > 500
    assert not pairs & true


def test_hits_and_mrr_by_counting() -> None:
    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.integers(0, 12, size=60).astype(float)).split([25, 35])  # with ties
    task = LinkPrediction(small_graph(), hits_k=3)
    positive, negative = (part.tolist() for part in scores)
    third = sorted(negative, reverse=True)[2]
    assert task._measure("hits_at_k", *scores) == sum(p > third for p in positive) / 25
    ranks = [1 + sum(n > p for n in negative) + sum(n == p for n in negative) / 2 for p in positive]
    assert task._measure("mrr", *scores) == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert task._measure("hits_at_k", scores[0], scores[1][:2]) is None


@pytest.mark.parametrize("task", ["link", "edge"])
def test_a_resumed_run_ends_with_the_same_bits(task: str, tmp_path: Path) -> None:
    graph = labelled(small_graph())
    options: dict[str, Any] = {"task": task, "hidden": 8, "batch_size": 9, "head": "concat-mlp", "num_neighbors": 1}
    calm = cvgnn.fit(graph, epochs=6, **options)

    class Stop(cvgnn.Callback):
        def on_step(self, trainer: cvgnn.Trainer) -> None:
            if trainer.iterations == 11:  # within an epoch
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cvgnn.fit(graph, epochs=6, out=tmp_path / "run", callbacks=[Stop()], checkpoint_minutes=1e-9, **options)
    resumed = cvgnn.fit(graph, resume=tmp_path / "run")
    assert resumed.records[-1].metrics == calm.records[-1].metrics
    for name, value in calm.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])
    pairs = [[0, 1], [5, 3], [0, 1]]
    loaded = cvgnn.load_run(tmp_path / "run", graph)
    assert torch.equal(loaded.predict_proba(pairs), calm.predict_proba(pairs))
    assert loaded.predict(pairs).shape == (3,)
    other = labelled(graph, seed=7) if task == "edge" else small_graph(seed=2)
    with pytest.raises(CvgnnError, match="the graph's content has changed"):
        cvgnn.fit(other, resume=tmp_path / "run", epochs=7)


def test_a_link_has_one_score_in_both_directions() -> None:
    run = cvgnn.fit(small_graph(), task="link", head="concat-mlp", epochs=1, hidden=8)
    assert torch.equal(run.predict_proba([[0, 7]]), run.predict_proba([[7, 0]]))


def write_npz(folder: Path, **more: Any) -> Path:
    graph = small_graph(n=60)
    target = np.repeat(np.arange(60), graph.degree.numpy())
    arrays = {
        "edge_index": np.stack([graph.indices.numpy(), target]), "x": graph.x.numpy(), "y": graph.y.numpy(),
        "node_names": np.array([f"n{i}" for i in range(60)]), **more,
    }  # fmt: skip
    np.savez(folder / "graph.npz", **arrays)
    return folder / "graph.npz"


def test_labelled_edges_are_learned_from_a_file_and_predicted_by_name(tmp_path: Path, capsys: Any) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 60, size=(2, 900))
    x = small_graph(n=60).x.numpy()
    label = ((x[pairs[0], 0] > 0).astype(int) + (x[pairs[1], 0] > 0)).astype(np.int64)
    file = write_npz(tmp_path, edge_label_index=pairs, edge_label=label)
    options = ["--task", "edge", "--defaults", "fixed", "--epochs", "40", "--model", "sage", "--head", "concat-mlp"]
    assert main(["train", "--graph", str(file), "--out", str(tmp_path / "run"), "--dropout", "0", *options]) == 0
    (tmp_path / "pairs.csv").write_text("source,target,note\n" + "".join(f"n{u},n{v},x\n" for u, v in pairs.T))
    out = tmp_path / "out.csv"
    assert main(["predict", str(tmp_path / "run"), "--edges", str(tmp_path / "pairs.csv"), "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert list(rows[0]) == ["source", "target", "class", "probability", "p_0", "p_1", "p_2"]
    assert [(row["source"], row["target"]) for row in rows] == [(f"n{u}", f"n{v}") for u, v in pairs.T]
    right = np.mean([int(row["class"]) == c for row, c in zip(rows, label, strict=True)])
    assert right > 0.8
    # A store has the same pairs, and trains to the same bits.
    assert main(["convert", str(file), str(tmp_path / "store")]) == 0
    words = ["train", "--graph", str(tmp_path / "store"), "--dropout", "0", "--out", str(tmp_path / "stored"), *options]
    assert main(words) == 0
    weights = [(tmp_path / run / "weights.safetensors").read_bytes() for run in ("run", "stored")]
    assert weights[0] == weights[1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    file = write_npz(folder)
    for task in ("link", "node"):
        words = ["train", "--graph", str(file), "--task", task, "--epochs", "1", "--defaults", "fixed"]
        assert main([*words, "--out", str(folder / task)]) == 0
    (folder / "good.csv").write_text("source,target\nn1,n2\n")
    (folder / "unknown.csv").write_text("source,target\nn1,n2\nn1,n99\n")
    (folder / "columns.csv").write_text("a,b\nn1,n2\n")
    (folder / "empty.csv").write_text("source,target\n")
    return {path.stem: path for path in folder.iterdir()}


def test_a_table_of_links(finished: dict[str, Path], capsys: Any) -> None:
    capsys.readouterr()
    assert main(["predict", str(finished["link"]), "--edges", str(finished["good"])]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header == "source,target,score,probability"
    source, target, score, probability = line.split(",")
    assert (source, target) == ("n1", "n2")
    assert float(probability) == pytest.approx(1 / (1 + np.exp(-float(score))), rel=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_another_graph_is_used_whole(head: str, tmp_path: Path, capsys: Any) -> None:
    """Its own split, or a random share of its edges, is for `evaluate` alone; the run's own graph hides its edges."""
    file, run = write_npz(tmp_path), tmp_path / "run"
    words = ["train", "--graph", str(file), "--task", "link", "--head", head, "--epochs", "2", "--defaults", "fixed"]
    assert main([*words, "--out", str(run)]) == 0
    (tmp_path / "pairs.csv").write_text("source,target\n0,1\n2,0\n3,4\n")
    ring = from_edges([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]], x=small_graph(n=60).x[:5], y=[-1] * 5, train_ids=[])
    for name, other in {
        "random": small_graph(n=50, seed=3),
        "split": with_edge_labels(ring, [[0, 2], [1, 3]], edge_split=["val", "test"]),
        "triangle": from_edges([[0, 1, 2, 3], [1, 2, 0, 4]], x=small_graph(n=60).x[:5], y=[-1] * 5, train_ids=[]),
    }.items():
        write_store(other, tmp_path / name)
        capsys.readouterr()
        assert main(["predict", str(run), "--graph", str(tmp_path / name), "--edges", str(tmp_path / "pairs.csv")]) == 0
        printed = [float(line.split(",")[2]) for line in capsys.readouterr().out.splitlines()[1:]]
        loaded = cvgnn.load_run(run, other)
        P = Propagation(other)
        rows = exact_logits(loaded.model, cvgnn.propagate_features(other, P), P)
        readout = loaded.model.readout
        assert readout is not None
        expected = readout(rows[torch.tensor([[0, 2, 3], [1, 0, 4]])]).squeeze(1)
        assert printed == pytest.approx(expected.tolist(), abs=1e-6)
        assert torch.allclose(loaded.predict_proba([[0, 1], [2, 0], [3, 4]]), expected.sigmoid(), atol=1e-6)
    with pytest.raises(CvgnnError, match="link prediction needs a sparse graph"):
        cvgnn.load_run(run, from_edges(torch.ones(5, 5).nonzero().T, x=ring.x, y=[-1] * 5, train_ids=[])).evaluate()
    other, own = small_graph(n=50, seed=3), cvgnn.read_graph(file)
    loaded, trained = cvgnn.load_run(run, other), cvgnn.load_run(run)
    for moved, same in ((trained.on(other), loaded), (trained.on(own), trained)):
        assert moved.predict_proba([[0, 1]]).tolist() == pytest.approx(same.predict_proba([[0, 1]]).tolist(), abs=1e-6)
    found = loaded.evaluate()["metrics"]
    assert found["test_roc_auc"] is not None
    assert trained.on(other).evaluate()["metrics"] == pytest.approx(found)
    moved = tmp_path / "moved.npz"
    moved.write_bytes(file.read_bytes())
    (tmp_path / "named.csv").write_text("source,target\nn0,n1\nn2,n0\n")
    said = []
    for where in ([], ["--graph", str(moved)]):
        capsys.readouterr()
        assert main(["predict", str(run), *where, "--edges", str(tmp_path / "named.csv")]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    result = cvgnn.load_run(run).result
    assert cvgnn.load_run(run).evaluate()["metrics"]["test_roc_auc"] == pytest.approx(result["test_roc_auc"])


BAD_PREDICTIONS = {
    "a node that is not there": (["link", "--edges", "unknown"], "n99 is not a node of the graph"),
    "other columns": (["link", "--edges", "columns"], "has no column 'source'"),
    "no pairs": (["link", "--edges", "empty"], "no"),
    "no table": (["link"], "name a table with --edges"),
    "pairs for a node task": (["node", "--edges", "good"], "--edges is for runs of task edge or link"),
    "pairs of new nodes": (
        ["link", "--edges", "good", "--new", "empty", "good"],
        "--new predicts for new nodes, and a run of task 'link' has no labels at nodes",
    ),
    "nodes beside pairs": (["link", "--edges", "good", "--nodes", "n1"], "--edges goes neither with --nodes"),
}


@pytest.mark.parametrize("name", BAD_PREDICTIONS)
def test_a_bad_table_of_pairs_is_refused(name: str, finished: dict[str, Path], capsys: Any) -> None:
    words, sentence = BAD_PREDICTIONS[name]
    capsys.readouterr()
    code = main(["predict", *(str(finished.get(word, word)) for word in words)])
    said = capsys.readouterr().err
    assert code == 2, said
    assert sentence in said
    assert "Traceback" not in said


def fit(graph: Graph, **options: Any) -> cvgnn.Run:
    return cvgnn.fit(graph, epochs=1, **options)


BAD_INPUTS: dict[str, dict[str, tuple[Any, str]]] = {
    "edge": {
        "no labelled edges": (lambda g: EdgeClassification(g), "this graph has none; give edge_label_index"),
        "dot with three classes": (
            lambda g: EdgeClassification(labelled(g, 3), pairs=PairOptions(head="dot")), "the edges have 3"
        ),
        "a pair outside": (lambda g: with_edge_labels(g, [[0], [40]], [1]), r"pair 0 of edge_label_index, \(0, 40\)"),
        "labels of another length": (lambda g: with_edge_labels(g, [[0], [1]], [1, 0]), r"shape \[2, M\]"),
        "labels that are no integers": (lambda g: with_edge_labels(g, [[0], [1]], [0.5]), "must hold integers"),
        "a class below -1": (lambda g: with_edge_labels(g, [[0], [1]], [-2]), "numbered from 0, or -1"),
        "neither labels nor split": (lambda g: with_edge_labels(g, [[0], [1]]), "give edge_label, or edge_split"),
        "an unknown split": (
            lambda g: with_edge_labels(g, [[0], [1]], [1], edge_split=["dev"]), "edge_split holds 'dev'; it must be"
        ),
        "a split of another length": (
            lambda g: with_edge_labels(g, [[0], [1]], [1], edge_split=[0, 1]), r"edge_split must be \[1\], 0, 1 or 2"
        ),
        "no training pair": (
            lambda g: fit(with_edge_labels(g, [[0], [1]], [1], edge_split=["val"]), task="edge"),
            "the training split is empty",
        ),
        "shares beside a split": (
            lambda g: fit(with_edge_labels(g, [[0], [1]], [1], edge_split=["train"]), task="edge", val_edges=0.2),
            "have their own split, so val_edges would do nothing",
        ),
        "weights for other classes": (
            lambda g: fit(labelled(g), task="edge", class_weight=[1.0, 2.0, 3.0]),
            "class_weight has 3 numbers, but the graph has 2 classes",
        ),
        "a temperature": (lambda g: fit(labelled(g), task="edge", calibrate=True), "calibrate has no use with task 'edge'"),
        "another task's metric": (lambda g: fit(labelled(g), task="edge", metric="mrr"), "metric of task 'edge' 'mrr'"),
    },
    "link": {
        "no edge": (lambda g: LinkPrediction(graph_from_dense(np.zeros((3, 3)))), "this graph has none"),
        "all edges held out": (
            lambda g: LinkPrediction(g, pairs=PairOptions(val_edges=0.5, test_edges=0.5)), "must sum to less than 1, not 0.5"
        ),
        "more hits than negatives": (lambda g: LinkPrediction(g, metric="hits_at_k", hits_k=99), "lower hits_k"),
        "another task's metric": (lambda g: LinkPrediction(g, metric="mse"), "metric of task 'link'"),
        "class weights": (
            lambda g: cvgnn.fit(g, task="link", class_weight="balanced"), "class_weight has no use with task 'link'"
        ),
        "a temperature": (lambda g: fit(g, task="link", calibrate=True), "calibrate has no use with task 'link'"),
        "a held-out pair that is no edge": (
            lambda g: fit(with_edge_labels(g, [[0], [0]], edge_split=["val"]), task="link"),
            r"the pair \(0, 0\) is in split 'val', but it is no edge of the graph",
        ),
        "an edge in two splits": (
            lambda g: fit(with_edge_labels(g, *both_ways(g), edge_split=["val", "test"]), task="link"),
            "but the same edge is listed in another split",
        ),
        "shares beside a split": (
            lambda g: fit(with_edge_labels(g, [[0], [1]], edge_split=["train"]), task="link", test_edges=0.2),
            "have their own split, so test_edges would do nothing",
        ),
        "a diagnosis": (lambda g: fresh_trainer(g, TrainConfig(task="link")), "diagnose measures gradients over nodes"),
        "an unknown head": (lambda g: cvgnn.fit(g, task="link", head="bilinear"), "head"),
        "no pairs to predict": (
            lambda g: cvgnn.fit(g, task="link", epochs=1, output="last").predict(), "predicts for pairs of nodes"
        ),
        "nodes in place of pairs": (
            lambda g: cvgnn.fit(g, task="link", epochs=1).predict_proba([1, 2]), r"shape \[n, 2\], not torch.int64"
        ),
        "a pair of another graph": (
            lambda g: cvgnn.fit(g, task="link", epochs=1).predict_proba([[1, 99]]), "node 99 does not exist"
        ),
    },
}  # fmt: skip


def both_ways(graph: Graph) -> tuple[Any]:
    """An edge of the graph in both directions."""
    u, v = int(graph.indices[0]), int((graph.indptr <= 0).sum()) - 1
    return ([[u, v], [v, u]],)


@pytest.mark.parametrize(("task", "name"), [(task, name) for task, cases in BAD_INPUTS.items() for name in cases])
def test_bad_input_is_refused(task: str, name: str) -> None:
    assert len(BAD_INPUTS[task]) >= 10
    call, sentence = BAD_INPUTS[task][name]
    with pytest.raises(CvgnnError, match=sentence):
        call(small_graph())


def test_the_user_s_own_split() -> None:
    graph = small_graph()
    target = np.repeat(np.arange(40), graph.degree.numpy())
    edges = np.stack([graph.indices.numpy(), target])[:, graph.indices.numpy() < target]
    part = np.arange(edges.shape[1]) % 5 % 3  # 0, 1, 2, 0, 1
    # Either direction of an edge names it, and those that are not named are for training.
    named = with_edge_labels(graph, np.where(part % 2, edges, edges[::-1])[:, part > 0], edge_split=part[part > 0])
    task = LinkPrediction(named)
    assert task.sizes() == {"train": (part == 0).sum(), "val": (part == 1).sum(), "test": (part == 2).sum()}
    assert task.split == "given"
    held = {tuple(pair) for pair in edges[:, part == 2].T.tolist()}
    assert {tuple(pair) for pair in task.pairs["test"].chunk(2, dim=1)[0].T.tolist()} == held
    assert task.graph.num_edges == 2 * (part == 0).sum()
    assert task_of(dataclasses.replace(named, y=-torch.ones(40, dtype=torch.int64), validated=True)) == "link"

    classes = with_edge_labels(
        graph, edges, np.where(part, "b", "a"), edge_split=np.array(["train", "val", "test"])[part]
    )
    run = cvgnn.fit(classes, task="edge", epochs=1, class_weight="balanced")
    assert run.task.sizes() == {split: (part == code).sum() for code, split in enumerate(("train", "val", "test"))}
    assert run.result["class_names"] == ["a", "b"]
    assert run.result["split"] == "given"
    assert run.result["per_class"]["nodes"] == [0, (part == 2).sum()]


def test_a_graph_without_labels_trains_for_links(tmp_path: Path) -> None:
    networkx, pyg = pytest.importorskip("networkx"), pytest.importorskip("torch_geometric.data")
    graph = small_graph()
    A = sp.csr_array((np.ones(graph.num_edges), graph.indices.numpy(), graph.indptr.numpy()), shape=(40, 40))
    target = torch.arange(40).repeat_interleave(graph.degree)
    data = pyg.Data(x=graph.x, edge_index=torch.stack([graph.indices.long(), target]))
    nx = networkx.from_scipy_sparse_array(A)
    networkx.set_node_attributes(nx, dict(enumerate(graph.x.tolist())), "x")
    np.savez(tmp_path / "g.npz", x=graph.x.numpy(), edge_index=data.edge_index.numpy())
    torch.save(data.to_dict(), tmp_path / "g.pt")
    options: dict[str, Any] = {"task": "link", "epochs": 2, "hidden": 8}
    auc = [cvgnn.fit(data, **options).result["test_roc_auc"], cvgnn.fit(A, x=graph.x, **options).result["test_roc_auc"]]
    auc.append(cvgnn.fit(dataclasses.replace(graph, edge_weight=None), **options).result["test_roc_auc"])
    assert len(set(auc)) == 1
    assert cvgnn.fit(nx, **options).result["test_roc_auc"] is not None
    for name in ("g.npz", "g.pt"):
        words = ["train", "--graph", str(tmp_path / name), "--task", "link", "--epochs", "1", "--preprocess", "none"]
        assert main(words) == 0
    with pytest.raises(CvgnnError, match="data has no y"):
        cvgnn.fit(data)
    # Classes of pairs in PyG's fields, as RandomLinkSplit writes them.
    data.edge_label_index, data.edge_label = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), torch.tensor([0.0, 1, 1, 0])
    assert cvgnn.fit(data, epochs=1, output="last").task.name == "edge"


def test_labels_of_nodes_and_of_edges() -> None:
    """Which of them are to be learned is asked for."""
    graph = small_graph()
    classes, split = labelled(graph), with_edge_labels(graph, *both_ways(graph), edge_split=["test", "test"])
    for given, tasks in ((classes, ["node", "edge"]), (split, ["node", "link"])):
        with pytest.raises(CvgnnError, match=f"the task is not clear: give task '{tasks[0]}' .*, or '{tasks[1]}'"):
            fit(given)
        assert [fit(given, task=task, output="last").task.name for task in tasks] == tasks
    nothing = with_edge_labels(graph, [[0], [1]], [-1])
    assert fit(nothing).task.name == "node"
    bare = dataclasses.replace(nothing, y=torch.full_like(graph.y, -1), train_ids=torch.empty(0, dtype=torch.int64),
                               val_ids=graph.val_ids[:0], test_ids=graph.test_ids[:0], built=True)  # fmt: skip
    with pytest.raises(CvgnnError, match="neither a node nor an edge has a label"):
        fit(bare)


def test_classes_of_pairs_of_another_graph() -> None:
    graph, other = labelled(small_graph()), small_graph(seed=3)
    for head in HEADS:
        run = fit(graph, task="edge", head=head)
        assert run.on(other).predict([[0, 1], [2, 3]]).shape == (2,)
