"""MUTAG and PROTEINS, on small files in the layout of the TU data sets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cvgnn.config import GraphSource
from cvgnn.data import RandomSplit
from cvgnn.data.named import load
from cvgnn.data.named.catalog import Counts
from cvgnn.data.named.dataset_loader import compare
from cvgnn.errors import CvgnnError
from cvgnn.training.graph_source import load_source
from cvgnn.utils.optional_import import import_optional

EDGES = "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n7, 8\n8, 7\n9, 10\n10, 9\n"
FILES = {
    "A": EDGES,
    "graph_indicator": "1\n1\n1\n2\n2\n3\n4\n4\n5\n5\n",
    "graph_labels": "1\n-1\n1\n-1\n-1\n",
    "node_labels": "0\n3\n5\n0\n0\n3\n3\n3\n0\n5\n",
}
ATTRIBUTES = "1.0, 5\n2.0, 5\n3.0, 5\n4.0, 5\n5.0, 5\n6.0, 5\n7.0, 5\n8.0, 5\n9.0, 5\n10.0, 5\n"


def write(folder: Path, prefix: str = "MUTAG", **changes: str | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**FILES, **changes}.items():
        if text is not None:
            (folder / f"{prefix}_{name}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("place", ["", "MUTAG", "MUTAG/raw", "MUTAG/MUTAG/raw"])
def test_a_set_of_graphs(tmp_path: Path, place: str) -> None:
    write(tmp_path / place)
    graph = load("mutag", tmp_path)
    assert str(graph) == "Graph(mutag: 5 graphs, 10 nodes, 5 edges, 3 dense features, 2 classes, split 3/1/1)"
    assert graph.graph_ids is not None
    assert graph.graph_ids.tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 4, 4]
    assert (graph.y.tolist(), graph.class_names) == ([1, 0, 1, 0, 0], ("-1", "1"))
    assert graph.indptr.tolist() == [0, 1, 3, 4, 5, 6, 6, 7, 8, 9, 10]
    assert graph.indices.tolist() == [1, 0, 2, 1, 4, 3, 7, 6, 9, 8]
    assert isinstance(graph.x, torch.Tensor)
    assert graph.x.argmax(dim=1).tolist() == [0, 1, 2, 0, 0, 1, 1, 1, 0, 2]
    assert graph.x.sum(dim=1).tolist() == [1.0] * 10
    assert all(c.passed for c in compare(graph, Counts(10, 5, 3, 2, (3, 1, 1))))


def test_attributes_are_standardised_by_the_training_graphs(tmp_path: Path) -> None:
    graph = load("proteins", write(tmp_path, "PROTEINS", node_attributes=ATTRIBUTES))
    assert graph.num_features == 5
    assert isinstance(graph.x, torch.Tensor)
    mine = graph.x[:, 3].double()
    known = torch.arange(1.0, 11.0, dtype=torch.float64)[graph.train_nodes]
    expected = (torch.arange(1.0, 11.0, dtype=torch.float64) - known.mean()) / known.std(correction=0)
    torch.testing.assert_close(mine, expected, rtol=0, atol=1e-6)
    assert graph.x[:, 4].tolist() == [0.0] * 10  # it does not vary


def test_the_split_is_the_users(tmp_path: Path) -> None:
    write(tmp_path)
    source = GraphSource(dataset="mutag", root=tmp_path, split_seed=4, train_fraction=0.4, val_fraction=0.2)
    graph = load_source(source)
    assert graph.split == "random: seed 4, fractions 0.4/0.2/0.4"
    same = load("mutag", tmp_path, split=RandomSplit(seed=4, train=0.4, val=0.2))
    assert same.train_ids.tolist() == graph.train_ids.tolist()
    with pytest.raises(CvgnnError, match="dataset 'citeseer' has its own split"):
        load("citeseer", split=RandomSplit())


def test_nothing_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVGNN_HOME", str(tmp_path))
    with pytest.raises(CvgnnError, match=r"'mutag' is not downloaded by cvgnn; put MUTAG_A\.txt, .*--root"):
        load("mutag")
    write(tmp_path / "mutag" / "raw")
    assert load("mutag").num_nodes == 10


BROKEN = [
    ({"A": None}, "MUTAG_A.txt is missing in the folder"),
    ({"A": "1, 2, 3\n"}, "MUTAG_A.txt is broken .it has 3 columns, not 2"),
    ({"A": "1, x\n"}, "MUTAG_A.txt is broken"),
    ({"A": "1, 11\n"}, "do not fit together: .*10"),
    ({"A": "1, 4\n"}, "do not fit together: nodes .* have an edge, but graph_ids puts them into graphs"),
    ({"A": "0, 1\n"}, "do not fit together: .*-1"),
    ({"graph_indicator": FILES["graph_indicator"].replace("3", "4")}, "graph_ids must ascend from 0 without a gap"),
    ({"graph_labels": "1\n-1\n1\n"}, "y must have one label per graph, .5."),
    ({"node_labels": "0\n"}, "MUTAG_node_labels.txt has 1 lines, but MUTAG_graph_indicator.txt has 10"),
    ({"node_labels": "0.5\n" * 10}, "MUTAG_node_labels.txt is broken"),
    ({"node_attributes": "1.0\n"}, "MUTAG_node_attributes.txt has 1 lines, but there are 10 nodes"),
    ({"node_attributes": "nan\n" * 10}, "x has a NaN or infinite value at node 0"),
]


@pytest.mark.parametrize(("changes", "message"), BROKEN, ids=[message[:30] for _, message in BROKEN])
def test_broken_files(tmp_path: Path, changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
        load("mutag", write(tmp_path, **changes))


def test_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match=r"MUTAG_graph_labels\.txt is broken .it is empty"):
        load("mutag", write(tmp_path, graph_labels=""))


@pytest.mark.parametrize(("prefix", "attributes"), [("MUTAG", False), ("PROTEINS", True)])
def test_the_same_set_as_pyg_reads(tmp_path: Path, prefix: str, attributes: bool) -> None:
    """Labels and attributes of edges are there, as in the real files; PyG puts attributes before labels."""
    edges = EDGES.count("\n")
    more = {"edge_labels": "0\n2\n" * (edges // 2), "edge_attributes": "0.5, 1\n" * edges}
    write(tmp_path / "raw", prefix, **more, node_attributes=ATTRIBUTES if attributes else None)
    theirs, slices, sizes = import_optional("torch_geometric.io.tu", extra="pyg", purpose="the tests").read_tu_data(
        str(tmp_path / "raw"), prefix
    )
    mine = load(prefix.lower(), tmp_path)
    assert isinstance(mine.x, torch.Tensor)
    assert mine.y.tolist() == theirs.y.tolist()
    assert mine.graph_ids is not None
    assert mine.graph_ids.bincount().cumsum(0).tolist() == slices["x"][1:].tolist()
    wide = sizes["num_node_attributes"]
    label = theirs.x[:, wide:]
    assert (
        mine.x[:, : mine.num_features - wide].tolist() == label[:, label.any(dim=0)].tolist()
    )  # 1, 2 and 4 occur nowhere
    if attributes:
        values = theirs.x[:, :wide]
        known = values[mine.train_nodes]
        scaled = (values - known.mean(dim=0)) / known.std(dim=0, correction=0).clamp_min(1e-30)
        torch.testing.assert_close(mine.x[:, -wide:], scaled, rtol=0, atol=1e-5)
    start = slices["x"][:-1]
    target = torch.repeat_interleave(torch.arange(mine.num_nodes), mine.degree)
    pairs = {(int(u), int(v)) for u, v in zip(mine.indices, target, strict=True)}
    of_edge = torch.repeat_interleave(torch.arange(len(start)), slices["edge_index"].diff())
    assert pairs == {(int(u), int(v)) for u, v in (theirs.edge_index + start[of_edge]).T}
