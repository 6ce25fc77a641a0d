"""Answers are those of `Run` and of `cvgnn predict`, whatever the task, looked up or computed for the request."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.cli.main import main
from cvgnn.errors import CvgnnError
from cvgnn.serving import predictor as module
from cvgnn.serving.predictor import Limits, Predictor
from cvgnn.training.predictions import UnknownItem
from cvgnn.training.run import read_preprocessing, read_run
from tests.data.io.customers import write_customers
from tests.serving.runs import NAMES, F, N, small_graph, small_run
from tests.training.test_edge_tasks import random_links
from tests.training.test_graph_tasks import small_set


@pytest.fixture(scope="module", params=["looked up", "computed"])
def predictor(request: pytest.FixtureRequest) -> Predictor:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "computed":
            patch.setattr(module, "available_memory", lambda: 0)
        made = Predictor(small_run())
    assert (made.run.known is None) == (request.param == "computed")
    return made


def test_nodes_of_the_graph(predictor: Predictor) -> None:
    run, ids = predictor.run, [7, 0, 7]
    rows = predictor.predict({"nodes": [NAMES[i] for i in ids]})["predictions"]
    probabilities = dataclasses.replace(run, known=None).predict_proba(ids)
    names = ["blue", "green", "red"]
    assert list(rows[0]) == ["node", "class", "probability", *(f"p_{name}" for name in names)]
    assert [row["node"] for row in rows] == [NAMES[i] for i in ids]
    assert [row["class"] for row in rows] == [names[c] for c in probabilities.argmax(dim=1).tolist()]
    found = np.array([[row[f"p_{name}"] for name in names] for row in rows])
    np.testing.assert_allclose(found, probabilities, atol=1e-6)
    label = predictor.predict({"nodes": [NAMES[3]], "columns": ["label", "split"]})["predictions"]
    assert label == [{"label": "green", "split": "test"}]


def test_embeddings(predictor: Predictor) -> None:
    for layer in (1, 2):
        answer = predictor.embed({"nodes": NAMES[:3], "layer": layer})
        expected = dataclasses.replace(predictor.run, known=None).embed(layer, [0, 1, 2])
        np.testing.assert_allclose(answer["embeddings"], expected, atol=1e-6)
        assert answer["nodes"] == NAMES[:3]
    with pytest.raises(CvgnnError, match=r"layer must lie in 1\.\.2"):
        predictor.embed({"nodes": NAMES[:3], "layer": 3})


def test_new_nodes(predictor: Predictor) -> None:
    """As `Run.predict_new`; a new node may name another one; an object of features is a sparse list."""
    nodes = [
        {"id": "a", "features": {"1": 2.5, "4": -1}, "neighbors": [NAMES[3], NAMES[8], "b"]},
        {"id": "b", "features": [0.5, 0, 1, 0, 2], "neighbors": []},
        {"features": [1] * F},
    ]
    rows = predictor.predict_new({"nodes": nodes})["predictions"]
    x = np.array([[0, 2.5, 0, 0, -1], [0.5, 0, 1, 0, 2], [1] * F], np.float32)
    expected = predictor.run.outputs_new(x, [[3, 8, N + 1], [N, N, N]]).softmax(dim=1)
    np.testing.assert_allclose([[row[f"p_{c}"] for c in ("blue", "green", "red")] for row in rows], expected, atol=1e-6)
    assert [row["node"] for row in rows] == ["a", "b", "new2"]


def test_a_neighborhood(predictor: Predictor) -> None:
    found = predictor.neighborhood(NAMES[5])
    graph = predictor.run.graph
    around = graph.indices[graph.indptr[5] : graph.indptr[6]].tolist()
    assert found["degree"] == len(around)
    assert sorted(row["node"] for row in found["rows"][1:]) == sorted(NAMES[i] for i in around)
    assert {j for i, j in found["edges"] if i == 0} == set(range(1, len(around) + 1))
    assert abs(sum(found["probabilities"].values()) - 1) < 1e-5


@pytest.mark.parametrize(
    ("ask", "body", "message"),
    [
        ("predict", {"nodes": [NAMES[0][:-1]]}, "is not in the graph; its node ids are such as"),
        ("predict", {"nodes": [True]}, "an id is a text or a whole number, not True"),
        ("predict", {"nodes": ["a\0"]}, "an id is a text or a whole number"),
        ("predict", {"nodes": NAMES[:11]}, "nodes has 11 entries; a request may have 10"),
        ("predict", {"ids": [1]}, "unknown name in the request 'ids'; known: nodes, columns"),
        ("predict", {"nodes": NAMES[:1], "columns": ["klass"]}, "unknown column 'klass'.*did you mean 'class'"),
        ("predict_new", {"nodes": [{"features": [1] * 4}]}, r"nodes\[0\].features must be a list of 5 numbers"),
        ("predict_new", {"nodes": [{"features": [1e39] * F}]}, "1e.39 is larger than a float32"),
        ("predict_new", {"nodes": [{"features": {"5": 1}}]}, r"the names of columns are 0..4"),
        ("predict_new", {"nodes": [{"id": NAMES[2], "features": {}}]}, "is in the graph already; ask for it by its id"),
        ("predict_new", {"nodes": [{"features": {}, "weights": []}]}, "the graph's edges have no weights"),
        ("predict_new", {"nodes": [{"features": {}, "neighbors": ["nobody"]}]}, "'nobody' is not in the graph"),
        ("predict_new", {"nodes": [{"features": {}, "neighbors": NAMES[:13]}]}, "a request may name 12 neighbors"),
    ],
)  # fmt: skip
def test_what_is_refused(predictor: Predictor, ask: str, body: dict[str, Any], message: str) -> None:
    strict = object.__new__(Predictor)
    vars(strict).update(vars(predictor), limits=Limits(ids=10, neighbors=12))
    with pytest.raises(CvgnnError, match=message):
        getattr(strict, ask)(body)


def test_too_much_work_is_refused() -> None:
    """A neighborhood that would read more than the limit, or, where outputs are not stored, a quarter of the graph."""
    made = Predictor(small_run(layers=3, num_neighbors=(2, 2)), limits=Limits(entries=20))
    made.predict({"nodes": NAMES[:30]})  # looked up
    with pytest.raises(CvgnnError, match="within 2 hops of these nodes there are more than 20 edges"):
        made.predict_new({"nodes": [{"features": {}, "neighbors": NAMES[:9]}]})
    made.run = dataclasses.replace(made.run, known=None)
    with pytest.raises(CvgnnError, match="within 3 hops of these nodes there are more than 20 edges"):
        made.predict({"nodes": NAMES[:30]})


def test_columns_of_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new customer gets from JSON what `cvgnn predict --new` gives it from files: the run's own preprocessing."""
    folder = write_customers(tmp_path / "customers", 300)
    out = tmp_path / "run"
    assert main(["--quiet", "train", "--graph", str(folder), "--epochs", "3", "--out", str(out)]) == 0
    cells = [
        {"age": 41, "income": 52000.5, "region": "south", "joined": "2023-05-04"},
        {"age": None, "income": "31000", "region": "nowhere", "joined": ""},
    ]
    header = "id,age,income,region,joined"
    (tmp_path / "new.csv").write_text(f"{header}\nx1,41,52000.5,south,2023-05-04\nx2,,31000,nowhere,\n")
    (tmp_path / "edges.csv").write_text("source,target\nx1,c5\nx2,c9\nx1,x2\n")
    capsys.readouterr()
    assert main(["predict", str(out), "--new", str(tmp_path / "new.csv"), str(tmp_path / "edges.csv")]) == 0
    expected = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    made = Predictor(read_run(out), preprocessing=read_preprocessing(out))
    assert made.describe()["columns"] == {"age": "number", "income": "number", "region": "category", "joined": "date"}
    nodes = [
        {"id": "x1", "columns": cells[0], "neighbors": ["c5", "x2"]},
        {"id": "x2", "columns": cells[1], "neighbors": ["c9"]},
    ]
    rows = made.predict_new({"nodes": nodes})["predictions"]
    for row, one in zip(rows, expected, strict=True):
        assert (row["node"], row["class"]) == (one["node"], one["class"])
        assert row["p_gold"] == pytest.approx(float(one["p_gold"]), abs=1e-6)
    for changed, message in (
        ({"age": "old"}, "new node 'x1', column 'age': 'old' is no number"),
        ({"age": [1]}, "column 'age' holds a text, a number, true, false or null"),
        ({"agee": 3}, "unknown column in .*'agee'.*did you mean 'age'"),
    ):
        with pytest.raises(CvgnnError, match=message):
            made.predict_new({"nodes": [{"id": "x1", "columns": cells[0] | changed}]})
    with pytest.raises(CvgnnError, match="lacks 'income', which the model uses; null if unknown"):
        made.predict_new({"nodes": [{"columns": {"age": 1}}]})


def test_numbers_and_labels() -> None:
    y = np.random.default_rng(1).normal(size=N)
    made = Predictor(small_run(graph=small_graph(y=y, node_names=np.arange(N) * 10)))
    (row,) = made.predict({"nodes": [50]})["predictions"]
    assert row == {"node": 50, "prediction": pytest.approx(float(made.run.predict([5])[0]), abs=1e-6)}
    with pytest.raises(UnknownItem, match="node '7' is not in the graph; its node ids are such as 0"):
        made.predict({"nodes": [7]})
    plain = Predictor(small_run(graph=small_graph(y=y), norm="none", hidden=64))
    with pytest.raises(CvgnnError, match="the result is not finite: these features are too large"):
        plain.predict_new({"nodes": [{"features": [3e38] * F}]})
    several = Predictor(small_run(graph=small_graph(y=np.eye(3, dtype=np.int8)[np.arange(N) % 3], node_names=None)))
    (row,) = several.predict({"nodes": [5]})["predictions"]
    assert list(row) == ["node", "labels", "p_0", "p_1", "p_2"]
    assert several.neighborhood("5")["rows"][0]["label"] == "2"


def test_graphs_and_pairs() -> None:
    """Tasks whose items are not nodes answer for their own items, and refuse new nodes by name."""
    sets = Predictor(small_run(graph=small_set()))
    (row,) = sets.predict({"graphs": [2]})["predictions"]
    assert (row["graph"], row["class"]) == (2, int(sets.run.predict([2])[0]))
    with pytest.raises(CvgnnError, match="unknown name in the request 'nodes'; known: graphs, columns"):
        sets.predict({"nodes": [2]})
    links = Predictor(small_run(graph=random_links(), task="link"))
    (row,) = links.predict({"pairs": [[3, 4]]})["predictions"]
    assert row["probability"] == pytest.approx(float(links.run.predict_proba([[3, 4]])[0]), abs=1e-6)
    for made, task in ((sets, "graph"), (links, "link")):
        with pytest.raises(CvgnnError, match=f"this run predicts nothing for new nodes: its task is '{task}'"):
            made.predict_new({"nodes": []})
        json.dumps(made.describe(), allow_nan=False)


def test_no_request_changes_anything(predictor: Predictor) -> None:
    def state() -> list[torch.Tensor]:
        run = predictor.run
        known = [] if run.known is None else [*run.known.layers, run.known.last]
        P = run.propagation
        tensors = [
            *run.model.state_dict().values(),
            *known,
            run.graph.indptr,
            run.graph.indices,
            run.graph.x,
            P.left,
            P.right,
        ]
        return [tensor.clone() for tensor in tensors]

    before = state()
    predictor.predict({"nodes": NAMES[:3]})
    predictor.predict_new({"nodes": [{"features": {"0": 3}, "neighbors": NAMES[:5]}]})
    predictor.embed({"nodes": NAMES[:3]})
    predictor.neighborhood(NAMES[5])
    assert all(torch.equal(one, other) for one, other in zip(before, state(), strict=True))
