"""Dense features of .npz and .pt files: standardised where their scales differ, fitted on training nodes, kept by runs
and stores."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import cvgnn
from cvgnn.cli.main import main
from cvgnn.data.io import read_graph, standardize
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError
from tests.data.io.customers import write_customers
from tests.data.io.writers import dense_of

N = 200


def arrays(scale: float = 1e5, **more: Any) -> dict[str, Any]:
    """Two columns of different scale, one of 0 and 1, and labels that depend on them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N)
    x = np.stack(
        [40 + 10 * rng.normal(size=N) + 15 * y, scale * (3 + rng.normal(size=N)), rng.integers(0, 2, N)], axis=1
    )
    mask = np.arange(N) % 5
    split = {"train_mask": mask < 3, "val_mask": mask == 3, "test_mask": mask == 4}
    return {"edge_index": rng.integers(0, N, (2, 2 * N)), "x": x.astype(np.float32), "y": y, **split, **more}


def write(path: Path, **changes: Any) -> Path:
    fields = arrays() | changes
    if path.suffix == ".pt":
        torch.save({name: torch.from_numpy(value) for name, value in fields.items()}, path)
    else:
        np.savez(path, **fields)
    return path


@pytest.mark.parametrize("name", ["g.npz", "g.pt"])
def test_columns_of_different_scale_are_standardised_on_training_nodes(name: str, tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / name))
    x, raw, train = dense_of(graph), arrays()["x"].astype(np.float64), graph.train_ids.numpy()
    by_hand = (raw - raw[train].mean(axis=0)) / raw[train].std(axis=0)
    assert np.allclose(x[:, :2], by_hand[:, :2], atol=1e-5)
    assert np.array_equal(x[:, 2], raw[:, 2])  # 0 and 1 stay
    changed = arrays()["x"]
    changed[np.arange(N) % 5 >= 3] *= 7
    other = read_graph(write(tmp_path / name, x=changed))
    assert other.preprocessing == graph.preprocessing
    assert np.array_equal(dense_of(other)[train], x[train])


@pytest.mark.parametrize(
    "x",
    [
        np.eye(N, dtype=np.float32),
        (np.random.default_rng(1).random((N, 30)) < 0.2).astype(np.float32)
        * np.geomspace(1, 1e5, 30, dtype=np.float32),
        np.random.default_rng(1).normal(size=(N, 4)).astype(np.float32) * np.array([1, 2, 5, 9], dtype=np.float32),
    ],
    ids=["sparse", "bag of words", "in scale"],
)
def test_other_features_stay_as_they_are(x: np.ndarray, tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "g.npz", x=x))
    assert graph.preprocessing is None
    assert np.array_equal(dense_of(graph), x)


def test_preprocess_none_keeps_them_and_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = read_graph(write(tmp_path / "g.npz"), tables=TableOptions(preprocess="none"))
    assert np.array_equal(dense_of(graph), arrays()["x"])
    with caplog.at_level(logging.WARNING, "cvgnn"):
        cvgnn.fit(graph, defaults="fixed", epochs=1)
        assert "columns differ in scale by a factor of" in caplog.text
        caplog.clear()
        run = cvgnn.fit(standardize(graph), defaults="fixed", epochs=20)
        assert "differ in scale" not in caplog.text
    assert run.result["test_accuracy"] > 0.7


def test_predict_applies_the_fit_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, run = write(tmp_path / "g.npz"), str(tmp_path / "run")
    assert main(["train", "--graph", str(path), "--out", run, "--epochs", "3"]) == 0
    stored = json.loads(Path(run, "preprocessing.json").read_text())
    new = write(tmp_path / "new.npz", x=arrays()["x"] * np.float32(1.5))
    assert np.allclose(
        dense_of(read_graph(new, preprocessing=stored))[:, 0],
        (arrays()["x"][:, 0] * 1.5 - stored["columns"][0]["mean"]) / stored["columns"][0]["std"],
        atol=1e-4,
    )
    assert main(["predict", run, "--graph", str(new)]) == 0
    narrow = write(tmp_path / "narrow.npz", x=arrays()["x"][:, :2])
    capsys.readouterr()
    assert main(["predict", run, "--graph", str(narrow)]) == 2
    assert "the model was trained on 3 columns (x0, x1, x2, ...), and this graph has 2" in capsys.readouterr().err


def test_a_run_without_preprocessing_predicts_on_arrays_as_they_are(tmp_path: Path) -> None:
    path, run = write(tmp_path / "g.npz"), tmp_path / "run"
    options = ["--graph", str(path), "--preprocess", "none", "--epochs", "1", "--out", str(run)]
    assert main(["train", *options]) == 0
    assert not (run / "preprocessing.json").exists()
    assert np.array_equal(dense_of(cvgnn.load_run(run).graph), arrays()["x"])


def rows(out: str) -> dict[str, list[float]]:
    """The probabilities of each node in what `cvgnn predict` prints."""
    return {row[0]: [float(p) for p in row[5:]] for row in list(csv.reader(io.StringIO(out)))[1:]}


def test_a_store_keeps_the_preprocessing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trained on a store, a run predicts on new tables as one that was trained on the tables."""
    raw = write_customers(tmp_path / "raw", 300)
    text = (raw / "nodes.csv").read_text().replace("id,age", "customer,age", 1).replace(",label,", ",tier,", 1)
    (raw / "nodes.csv").write_text(text)
    names = ["--id-column", "customer", "--label-column", "tier"]
    new = tmp_path / "new"
    new.mkdir()
    (new / "nodes.csv").write_text("customer,joined,income,age,region\nx,2024-05-01,41000,33,moon\ny,,70000,,east\n")
    (new / "edges.csv").write_text("source,target\nx,y\n")
    assert main(["convert", str(raw), str(tmp_path / "store"), *names]) == 0
    found = []
    for graph, options in ((raw, names), (tmp_path / "store", [])):
        run = str(tmp_path / f"run-{graph.name}")
        assert main(["train", "--graph", str(graph), "--out", run, "--epochs", "2", *options]) == 0
        capsys.readouterr()
        assert main(["predict", run, "--graph", str(new)]) == 0
        found.append(rows(capsys.readouterr().out))
        assert main(["predict", run, "--graph", str(tmp_path / "store"), "--nodes", "c0"]) == 0
    assert found[0].keys() == {"x", "y"}
    assert found[0] == found[1]


def test_a_store_with_other_features_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, other = write_customers(tmp_path / "raw", 300), write_customers(tmp_path / "other", 200)
    assert main(["convert", str(other), str(tmp_path / "store")]) == 0
    assert main(["train", "--graph", str(raw), "--out", str(tmp_path / "run"), "--epochs", "1"]) == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "run"), "--graph", str(tmp_path / "store")]) == 2
    assert "were fitted on other data than the run's" in capsys.readouterr().err
    with pytest.raises(CvgnnError, match="which the model uses"):
        read_graph(raw, preprocessing=read_graph(write(tmp_path / "g.npz")).preprocessing)


def in_memory(kind: str) -> tuple[Any, dict[str, Any]]:
    """The arrays as a graph of another library, with the arguments that `fit` needs besides."""
    a = arrays()
    split = {f"{part}_ids": np.flatnonzero(a[f"{part}_mask"]) for part in ("train", "val", "test")}
    if kind == "arrays":
        return cvgnn.data.from_arrays(a["edge_index"], x=a["x"], y=a["y"], **split), {}
    if kind == "pyg":
        data = pytest.importorskip("torch_geometric.data")
        return data.Data(**{name: torch.from_numpy(value) for name, value in a.items()}), {}
    u, v = a["edge_index"]
    if kind == "scipy":
        A = sparse.coo_array((np.ones(2 * len(u)), (np.r_[u, v], np.r_[v, u])), shape=(N, N)).tocsr()
        A.data[:] = 1
        return A, {"x": a["x"], "y": a["y"], **split}
    networkx = pytest.importorskip("networkx")
    G = networkx.Graph()
    G.add_nodes_from(range(N))
    G.add_edges_from(zip(u.tolist(), v.tolist(), strict=True))
    return G, {"x": a["x"], "y": a["y"], **split}


@pytest.mark.parametrize("kind", ["arrays", "pyg", "scipy", "networkx"])
def test_auto_standardises_a_graph_in_memory(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As the same arrays from a file; a loaded, a resumed and a predicting run apply the same fit."""
    graph, more = in_memory(kind)
    options: dict[str, Any] = {"epochs": 3, "threads": 1}
    with caplog.at_level(logging.INFO, "cvgnn"):
        run = cvgnn.fit(graph, **more, defaults="auto", out=tmp_path / "run", **options)
    assert "differ in scale by a factor of" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    from_file = read_graph(write(tmp_path / "g.npz"))
    assert run.graph.preprocessing == from_file.preprocessing
    assert torch.equal(run.graph.x, from_file.x)  # type: ignore[arg-type]
    raw = cvgnn.data.as_graph(graph, **more)
    loaded = cvgnn.load_run(tmp_path / "run", raw)
    assert torch.equal(loaded.predict_proba(), run.predict_proba())
    # A graph that was standardised before is not standardised twice, nor is one of other data accepted.
    assert torch.equal(cvgnn.load_run(tmp_path / "run", standardize(raw)).predict_proba(), run.predict_proba())
    other = cvgnn.data.from_arrays(arrays()["edge_index"], x=arrays(scale=2e5)["x"], y=arrays()["y"])
    with pytest.raises(CvgnnError, match="were fitted on other data than the run's"):
        cvgnn.load_run(tmp_path / "run", standardize(other))
    run.save(tmp_path / "saved")
    assert torch.equal(cvgnn.load_run(tmp_path / "saved", raw).predict_proba(), run.predict_proba())
    longer = cvgnn.fit(raw, resume=tmp_path / "run", epochs=5)
    assert torch.equal(
        longer.predict_proba(), cvgnn.fit(raw, defaults="auto", **options | {"epochs": 5}).predict_proba()
    )
    # New nodes are given as the user has them.
    new = run.outputs_new(arrays()["x"][:2], [[N, N + 1], [0, 1]])
    standard = torch.from_numpy(dense_of(from_file)[:2])
    by_hand = dataclasses.replace(run, graph=dataclasses.replace(run.graph, preprocessing=None, validated=True))
    assert torch.equal(new, by_hand.outputs_new(standard, [[N, N + 1], [0, 1]]))
    with pytest.raises(CvgnnError, match="trained on 3 columns"):
        run.predict_new(arrays()["x"][:2, :2], [[N], [0]])


def test_the_fixed_defaults_only_warn(caplog: pytest.LogCaptureFixture) -> None:
    graph, _ = in_memory("arrays")
    run = cvgnn.fit(graph, defaults="fixed", epochs=1)
    assert run.graph is graph
    assert 'fit(defaults="auto")' in caplog.text


def test_new_nodes_in_a_table_for_a_run_on_arrays(tmp_path: Path) -> None:
    """In the order of the features, whatever their names."""
    run = tmp_path / "run"
    path = write(tmp_path / "g.npz")
    assert main(["train", "--graph", str(path), "--out", str(run), "--epochs", "3"]) == 0
    rows = "".join(f"new{i},{','.join(map(str, row))}\n" for i, row in enumerate(arrays()["x"][:2].tolist()))
    (tmp_path / "nodes.csv").write_text(f"id,age,income,member\n{rows}")
    (tmp_path / "edges.csv").write_text("source,target\nnew0,0\nnew1,1\n")
    out = tmp_path / "p.csv"
    files = [str(tmp_path / "nodes.csv"), str(tmp_path / "edges.csv")]
    assert main(["predict", str(run), "--new", *files, "--out", str(out), "--columns", "node,p_1"]) == 0
    loaded = cvgnn.load_run(run)
    by_hand = loaded.outputs_new(arrays()["x"][:2], [[N, N + 1], [0, 1]]).softmax(dim=1)[:, 1]
    written = list(csv.reader(io.StringIO(out.read_text())))
    assert [row[0] for row in written] == ["node", "new0", "new1"]
    assert np.allclose([float(row[1]) for row in written[1:]], by_hand.detach().numpy(), atol=1e-5)
