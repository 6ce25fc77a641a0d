from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import torch

import cvgnn
from cvgnn.data import Graph
from cvgnn.errors import CvgnnError
from cvgnn.training import NodeClassification
from cvgnn.training import predictions as module
from cvgnn.training.predictions import NodeTable, embeddings, find_nodes, predictions, read_node_list
from cvgnn.training.run import Run

NAMES = np.array(["ann", "bob", "cy", "dee", "eve"])


def run(names: np.ndarray | None = NAMES, classes: list[str] | None = None) -> cvgnn.Run:
    x = torch.eye(5)
    graph = cvgnn.from_edges(
        [[0, 1, 2, 3], [1, 2, 3, 4]],
        x=x,
        y=[0, 0, 1, 1, 1],
        train_ids=[0, 4],
        val_ids=[1],
        node_names=names,
        class_names=classes,
    )
    return cvgnn.fit(graph, epochs=2, hidden=4)


def test_predictions_carry_the_users_names() -> None:
    trained = run(classes=["no", "yes"])
    table = predictions(trained, np.array([3, 0]))
    probabilities, classes = trained.predict_proba([3, 0]).max(dim=1)
    assert table.columns["node"].tolist() == ["dee", "ann"]
    assert table.columns["class"].tolist() == [["no", "yes"][c] for c in classes.tolist()]
    assert table.columns["probability"].tolist() == probabilities.tolist()
    assert len(predictions(trained)) == 5


def test_a_random_split_of_another_graph_is_not_shown(tmp_path: Path) -> None:
    def drawn(nodes: int) -> Graph:
        y, ends = [0, 1] * (nodes // 2), [range(nodes - 1), range(1, nodes)]
        return cvgnn.data.from_arrays(ends, x=torch.eye(nodes)[:, :5].numpy(), y=y, split=cvgnn.data.RandomSplit())

    cvgnn.fit(drawn(10), epochs=2, hidden=4, out=tmp_path / "run")
    assert set(predictions(cvgnn.load_run(tmp_path / "run", drawn(10))).columns["split"]) == {"train", "val", "test"}
    assert set(predictions(cvgnn.load_run(tmp_path / "run", drawn(12))).columns["split"]) == {""}


def test_the_columns() -> None:
    trained = run(classes=["no", "yes, sir"])
    table = predictions(trained, np.array([3, 0]))
    assert list(table.columns) == ["node", "class", "probability", "label", "split", "p_no", "p_yes, sir"]
    assert table.columns["label"].tolist() == ["yes, sir", "no"]
    assert table.columns["split"].tolist() == ["", "train"]
    np.testing.assert_array_equal(table.columns["p_no"], trained.predict_proba([3, 0])[:, 0].numpy())
    total = table.columns["p_no"] + table.columns["p_yes, sir"]
    np.testing.assert_allclose(total, 1.0, atol=1e-6)
    assert list(predictions(trained, columns=["split", "probabilities", "node"]).columns) == [
        "split", "p_no", "p_yes, sir", "node",
    ]  # fmt: skip
    assert list(predictions(run(names=None), columns=["p_1", "label"]).columns) == ["p_1", "label"]
    with pytest.raises(CvgnnError, match=r"unknown column 'lable'; known: node, .* \(did you mean 'label'\?\)"):
        predictions(trained, columns=["lable"])


def test_unknown_labels() -> None:
    graph = run(classes=["no", "yes"]).graph
    y = graph.y.clone()
    y[3] = -1
    trained = run(classes=["no", "yes"])

    def on(other: Graph) -> Run:
        return dataclasses.replace(trained, graph=other, task=NodeClassification(other))

    named = on(dataclasses.replace(graph, y=y))
    assert predictions(named).columns["label"].tolist() == ["no", "no", "yes", "", "yes"]
    numbered = on(dataclasses.replace(graph, y=y, class_names=None))
    assert predictions(numbered).columns["label"].tolist() == [0, 0, 1, -1, 1]


def test_without_names_nodes_are_numbers() -> None:
    table = predictions(run(names=None))
    assert table.columns["node"].tolist() == [0, 1, 2, 3, 4]
    assert table.columns["class"].dtype.kind == "i"


@pytest.mark.parametrize("rows", [2, 100])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy"])
def test_files_hold_the_table(suffix: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS_PER_PIECE", rows)
    table = predictions(run(classes=["no", "yes"]))
    file = tmp_path / "new" / f"p{suffix}"
    table.write(file)
    assert [f.name for f in file.parent.iterdir()] == [file.name]
    if suffix == ".csv":
        lines = [line.split(",") for line in file.read_text().splitlines()]
        assert lines[0] == ["node", "class", "probability", "label", "split", "p_no", "p_yes"]
        columns = dict(zip(lines[0], map(list, zip(*lines[1:], strict=True)), strict=True))
        assert [float(p) for p in columns["probability"]] == table.columns["probability"].tolist()
    elif suffix == ".parquet":
        import pyarrow.parquet

        columns = pyarrow.parquet.read_table(file).to_pydict()
    else:
        array = np.load(file, allow_pickle=False)
        columns = {name: array[name].tolist() for name in array.dtype.names}
    assert columns["node"] == NAMES.tolist()
    assert columns["class"] == table.columns["class"].tolist()


def test_embeddings(tmp_path: Path) -> None:
    trained = run()
    table = embeddings(trained, 1, np.array([4, 1]))
    assert list(table.columns) == ["node", "e0", "e1", "e2", "e3"]
    table.write(tmp_path / "e.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy"), trained.embed(1, [4, 1]).numpy())
    text = io.StringIO()
    table.write_csv(text)
    assert text.getvalue().splitlines()[0] == "node,e0,e1,e2,e3"
    with pytest.raises(CvgnnError, match=r"layer must lie in 1..2"):
        embeddings(trained, 3)


def test_find_nodes() -> None:
    graph = run().graph
    assert find_nodes(graph, ["eve", "ann", "eve"]).tolist() == [4, 0, 4]
    for wrong in ("zoe", "aaa", ""):
        with pytest.raises(CvgnnError, match=f"node '{wrong}' is not in the graph; its node ids are such as ann"):
            find_nodes(graph, ["ann", wrong])
    numbers = run(names=None).graph
    assert find_nodes(numbers, ["3", "0"]).tolist() == [3, 0]
    with pytest.raises(CvgnnError, match=r"node '5' is not in the graph; its node ids are 0..4"):
        find_nodes(numbers, ["5"])
    assert find_nodes(run(names=np.array([70, 9, 8, 1000, 5])).graph, ["5", "70"]).tolist() == [4, 0]


def test_node_lists(tmp_path: Path) -> None:
    assert read_node_list("3, 14,x") == ["3", "14", "x"]
    assert read_node_list('a,"b, c"') == ["a", "b, c"]
    file = tmp_path / "ids.txt"
    file.write_bytes("\ufeffann\r\n#7\r\n\r\nb, c\r\n".encode())
    assert read_node_list(str(file)) == ["ann", "#7", "b, c"]
    file.write_text("\n")
    with pytest.raises(CvgnnError, match="names no node"):
        read_node_list(str(file))
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CvgnnError, match="cannot read the node ids"):
        read_node_list(str(file))
    for nothing in ("", " , "):
        with pytest.raises(CvgnnError, match="nodes names no node"):
            read_node_list(nothing)


def test_class_names_are_those_of_training() -> None:
    """Another graph may number its labels otherwise; the model's classes keep the names it was trained with."""
    trained = run(classes=["no", "yes"])
    other = dataclasses.replace(trained, graph=run(classes=["alpha", "beta"]).graph)
    assert set(predictions(other).columns["class"].tolist()) <= {"no", "yes"}


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = predictions(run())
    (tmp_path / "p.csv").write_text("old")

    def full(self: NodeTable, stream: IO[str]) -> None:
        stream.write("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NodeTable, "write_csv", full)
    with pytest.raises(CvgnnError, match=r"cannot write .*p\.csv: No space left on device"):
        table.write(tmp_path / "p.csv")
    assert {f.name: f.read_text() for f in tmp_path.iterdir()} == {"p.csv": "old"}


def test_unknown_endings(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match=r"the ending must be one of .csv, .parquet, .npy, not '.txt'"):
        predictions(run()).write(tmp_path / "p.txt")
