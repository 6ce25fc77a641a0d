"""Tables of labelled pairs, of a split of edges, and of sets of graphs: what is read, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

from cvgnn.cli.main import main
from cvgnn.data import Graph, RandomSplit
from cvgnn.data.io import read_graph
from cvgnn.data.store import open_store, write_store
from cvgnn.data.store.header import HEADER
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError
from cvgnn.training.tasks import task_of
from cvgnn.utils.checked_json import add_checksum

NODES = "id,size,weight\na,1,5\nb,2,3\nc,3,9\nd,4,1\ne,5,2\n"
EDGES = "source,target\na,b\nb,c\nc,d\nd,e\n"
PAIRS = "source,target,label,split\na,c,good,train\nc,a,bad,train\nb,d,good,val\ne,a,,\nd,b,bad,test\n"
ATOMS = "id,graph,charge\n1,x,0.5\n0,y,1.5\n0,x,2.5\n1,y,3.5\n2,y,4.5\n0,z,1.0\n"
BONDS = "graph,source,target\nx,0,1\ny,0,1\ny,1,2\n"
GRAPHS = "id,label,split\nz,ring,val\ny,path,train\nx,ring,train\n"
FOLDERS: dict[str, dict[str, str]] = {
    "edge": {"nodes": NODES, "edges": EDGES, "edge_labels": PAIRS},
    "link": {"nodes": NODES, "edges": "source,target,split\na,b,train\nb,c,val\nc,d,test\nd,e,\n"},
    "graph": {"nodes": ATOMS, "edges": BONDS, "graphs": GRAPHS},
}


def write(folder: Path, tables: dict[str, str], *, parquet: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text)
        if parquet:
            pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / f"{name}.csv"), folder / f"{name}.parquet")
            (folder / f"{name}.csv").unlink()
    return folder


def assert_equal(one: Graph, other: Graph) -> None:
    for name in ("indptr", "indices", "x", "y", "train_ids", "val_ids", "edge_label_index", "edge_label", "edge_split"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None and theirs is None) or torch.equal(mine, theirs), name
    for name in ("node_names", "graph_names"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert (one.class_names, one.edge_class_names) == (other.class_names, other.edge_class_names)


@pytest.mark.parametrize("task", FOLDERS)
def test_csv_parquet_and_store_are_the_same_graph(task: str, tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "csv", FOLDERS[task]))
    assert task_of(graph) == task
    assert_equal(read_graph(write(tmp_path / "parquet", FOLDERS[task], parquet=True)), graph)
    write_store(graph, tmp_path / "store", propagate="symmetric")
    assert_equal(open_store(tmp_path / "store"), graph)
    assert_equal(read_graph(tmp_path / "store"), graph)


def test_labelled_pairs(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path, FOLDERS["edge"]))
    assert graph.edge_label_index is not None
    assert graph.edge_label_index.tolist() == [[0, 2, 1, 4, 3], [2, 0, 3, 0, 1]]
    assert graph.edge_label is not None
    assert graph.edge_label.tolist() == [1, 0, 1, -1, 0]
    assert graph.edge_class_names == ("bad", "good")
    assert graph.edge_split is not None
    assert graph.edge_split.tolist() == [0, 0, 1, -1, 2]
    assert str(graph).endswith("2 dense features, no labels, 5 pairs)")
    assert graph.num_edges == 8  # the pairs are no edges


def test_labels_in_the_table_of_edges(tmp_path: Path) -> None:
    edges = "source,target,amount,label\na,b,5,ok\nb,c,7,fraud\nc,zz,1,ok\nd,e,2,\n"
    folder = write(tmp_path, {"nodes": NODES.replace("\n", ",k\n").replace("weight,k", "weight,label"), "edges": edges})
    with pytest.raises(CvgnnError, match="'zz' is no node"):
        read_graph(folder)
    graph = read_graph(folder, tables=TableOptions(unknown_edges="drop"))
    assert graph.edge_label is not None
    assert graph.edge_label.tolist() == [1, 0, -1]
    assert graph.edge_class_names == ("fraud", "ok")
    with pytest.raises(CvgnnError, match="labels at nodes and labels at edges, so the task is not clear"):
        task_of(graph)
    named = read_graph(folder, tables=TableOptions(unknown_edges="drop", edge_label_column="amount"))
    assert named.edge_class_names == ("2", "5", "7")


def test_a_set_of_graphs(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "local", FOLDERS["graph"]), tables=TableOptions(preprocess="none"))
    assert graph.graph_ids is not None
    assert graph.graph_ids.tolist() == [0, 1, 1, 1, 2, 2]  # in the order of the table of graphs
    assert graph.graph_names is not None
    assert graph.graph_names.tolist() == ["z", "y", "x"]
    assert graph.node_names is not None
    assert graph.node_names.tolist() == ["z/0", "y/0", "y/1", "y/2", "x/1", "x/0"]
    assert torch.as_tensor(graph.x).flatten().tolist() == [1.0, 1.5, 3.5, 4.5, 0.5, 2.5]
    assert graph.y.tolist() == [1, 0, 1]
    assert (graph.train_ids.tolist(), graph.val_ids.tolist()) == ([1, 2], [0])
    assert graph.indices.tolist() == [2, 1, 3, 2, 5, 4]

    # The same labels and split in all rows of a graph, node ids that are different everywhere.
    rows = [line.split(",") for line in ATOMS.splitlines()[1:]]
    of = {line.split(",")[0]: line.split(",", 1)[1] for line in GRAPHS.splitlines()[1:]}
    nodes = "".join(f"{g}/{i},{g},{charge},{of[g]}\n" for i, g, charge in rows)
    bonds = "".join(f"{g}/{u},{g}/{v}\n" for g, u, v in (line.split(",") for line in BONDS.splitlines()[1:]))
    tables = {"nodes": f"id,graph,charge,label,split\n{nodes}", "edges": f"source,target\n{bonds}"}
    other = read_graph(write(tmp_path / "wide", tables), tables=TableOptions(preprocess="none"))
    assert other.graph_names is not None
    assert other.graph_names.tolist() == ["x", "y", "z"]  # in the order of the nodes
    assert other.y.tolist() == [1, 0, 1]
    assert (other.train_ids.tolist(), other.val_ids.tolist()) == ([0, 1], [2])


def test_columns_are_fitted_on_the_nodes_of_training_graphs(tmp_path: Path) -> None:
    atoms = "id,graph,charge\n" + "".join(f"{i},{g},{10**i * k}\n" for i, g in enumerate("xyz") for k in (i,))
    atoms += "3,x,7\n4,y,8\n5,z,999\n"
    graph = read_graph(write(tmp_path, {"nodes": atoms, "edges": "source,target\n0,3\n1,4\n", "graphs": GRAPHS}))
    train = np.array([0, 10, 7, 8])
    x = torch.as_tensor(graph.x).flatten()  # graph z comes first
    assert x[2:].tolist() == pytest.approx(((np.array([10, 8, 0, 7]) - train.mean()) / train.std()).tolist(), abs=1e-5)


def test_an_npz_of_each(tmp_path: Path) -> None:
    x, edges = np.eye(4), np.array([[0, 2], [1, 3]])
    np.savez(tmp_path / "g.npz", x=x, edge_index=edges, y=[1, 0], graph_ids=[0, 0, 1, 1], graph_names=["p", "q"])
    names = read_graph(tmp_path / "g.npz").graph_names
    assert names is not None
    assert names.tolist() == ["p", "q"]
    np.savez(tmp_path / "l.npz", x=x, edge_index=edges, edge_label_index=edges, edge_split=["train", "val"])
    graph = read_graph(tmp_path / "l.npz")
    assert task_of(graph) == "link"
    np.savez(tmp_path / "u.npz", x=x, edge_index=edges)
    with pytest.raises(CvgnnError, match="it has no y"):
        read_graph(tmp_path / "u.npz")
    assert str(read_graph(tmp_path / "u.npz", split=RandomSplit(allow_unlabelled=True))).endswith("no labels)")


def changed(task: str, table: str, old: str, new: str) -> dict[str, str]:
    text = FOLDERS[task][table]
    assert old in text
    return {**FOLDERS[task], table: text.replace(old, new, 1)}


BAD: list[tuple[str, dict[str, str], str]] = [
    ("edge", changed("edge", "edge_labels", "a,c", "a,zz"), "line 2, column 'target': 'zz' is no node"),
    ("edge", changed("edge", "edge_labels", "a,c", ",c"), "line 2, column 'source': nothing where a node's id must be"),
    ("edge", changed("edge", "edge_labels", "good,train", "good,dev2"), "unknown split 'dev2'; known: train, val, test"),
    ("edge", changed("edge", "edge_labels", "source", "from_node"), "has no column 'source'"),
    ("edge", changed("edge", "edge_labels", "label,split", "kind,part"), "has neither a column 'label' nor a column 'split'"),
    ("edge", changed("edge", "edge_labels", "label", "split"), "has two columns 'split'"),
    ("edge", {**FOLDERS["edge"], "edge_labels": ""}, "edge_labels.csv"),
    ("edge", changed("edge", "edge_labels", "a,c,good,train", "a,c,good"), "line 2"),
    ("edge", changed("edge", "edges", "a,b", "a,zz"), "edges.csv, line 2, column 'target': 'zz' is no node"),
    ("edge", {"nodes": NODES, "edges": "source,target,label\na,b,-1\nb,c,0\n"}, "-1 is no class; leave the cell empty"),
    ("link", {"nodes": NODES, "edges": EDGES}, "has no column 'label'.*only --task link needs none"),
    ("link", changed("link", "edges", "b,c,val", "b,c,held"), "edges.csv, line 3, column 'split': unknown split 'held'"),
    ("link", changed("link", "edges", "a,b", "a,q"), "'q' is no node"),
    ("link", changed("link", "edges", "d,e,", "c,b,test"), r"the pair \(b, c\) is in split 'val', but the same edge is listed"),
    ("link", changed("link", "edges", "b,c,val", "b,b,val"), r"the pair \(b, b\) is in split 'val', but it is no edge"),
    ("link", {**FOLDERS["link"], "edge_labels": "source,target,split\na,d,val\n"}, r"\(a, d\) is in split 'val', but it is no edge"),
    ("link", {**FOLDERS["link"], "edge_labels": "source,target\na,b\n"}, "neither a column 'label' nor a column 'split'"),
    ("link", {**FOLDERS["link"], "edges": "source,target,split\na,b,val\nb,c,val\nc,d,test\nd,e,test\n"}, "no edge is left to train on"),
    ("link", changed("link", "edges", "split", "weight"), "edges.csv, line 2, column 'weight': 'train' is no number"),
    ("link", {**FOLDERS["link"], "edges": "source,target,split\n"}, "task 'link' predicts edges and this graph has none"),
    ("graph", changed("graph", "nodes", "1,x", "1,w"), "line 2, column 'graph': 'w' is no graph; graphs are listed in graphs.csv"),
    ("graph", changed("graph", "nodes", "1,x", "1,"), "line 2, column 'graph': nothing where the id of the node's graph"),
    ("graph", changed("graph", "nodes", "0,z,1.0\n", ""), "graphs.csv, line 2, column 'id': 'z' has no node"),
    ("graph", changed("graph", "graphs", "y,path", "z,path"), "'z' was listed before, at line 2"),
    ("graph", changed("graph", "graphs", "ring,val", ",val"), "nothing, but the graph is in the val split"),
    ("graph", changed("graph", "graphs", "split", "part").copy() | {"graphs": "id,kind\nx,1\ny,2\nz,1\n"}, "graphs.csv has no column 'label'"),
    ("graph", changed("graph", "nodes", "id,graph", "id,set_of"), "nodes.csv has no column 'graph'"),
    ("graph", changed("graph", "edges", "y,1,2", "y,1,7"), "'y/7' is no node"),
    ("graph", changed("graph", "edges", "graph,source,target", "g,source,target"), "where ids count within graphs, give the edges"),
    ("graph", changed("graph", "graphs", "y,path,train\nx,ring,train", "y,path,\nx,ring,"), "no row is 'train'; mark the training graphs"),
    ("graph", {"nodes": "id,graph,c,label\n0,x,1,r\n1,x,2,s\n2,y,1,r\n", "edges": "source,target\n0,1\n"}, "line 3, column 'label': 's', but the first node of its graph has 'r'"),
    ("graph", {"nodes": "id,graph,c,label\n0,x,1,r\n1,y,2,s\n2,y,1,s\n", "edges": "source,target\n0,1\n"}, "the edge leads to a node of another graph"),
    ("graph", {"nodes": "id,graph,c,label\n0,x,1,\n1,y,2,\n", "edges": "source,target\n0,0\n"}, "no graph has a label"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "tables", "sentence"), BAD, ids=[sentence for *_, sentence in BAD])
def test_bad_tables(task: str, tables: dict[str, str], sentence: str, tmp_path: Path, capsys: Any) -> None:
    folder = write(tmp_path / "bad", tables)
    words = [] if sentence.startswith("has no column 'label'") else ["--task", task]
    assert main(["train", "--graph", str(folder), "--epochs", "1", *words]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(sentence, said), said
    assert "Traceback" not in said


def test_ten_bad_tables_for_each_task() -> None:
    assert all(sum(task == each for each, *_ in BAD) >= 10 for task in FOLDERS)


@pytest.mark.parametrize("task", ["edge", "graph"])
def test_a_damaged_store_is_refused(task: str, tmp_path: Path) -> None:
    """A header that is right and an array that is not: what compiled code and heads rely on is checked."""
    write_store(read_graph(write(tmp_path / "csv", FOLDERS[task])), tmp_path / "store")
    name, bad = {"edge": ("edge_label_index", 99), "graph": ("graph_ids", 7)}[task]
    array = np.load(tmp_path / "store" / f"{name}.npy", mmap_mode="r+")
    array.reshape(-1)[-1] = bad
    array.flush()
    with pytest.raises(CvgnnError, match=r"99|7 after 2"):
        read_graph(tmp_path / "store")
    body = json.loads((tmp_path / "store" / HEADER).read_text())
    del body["sha256"]
    del body["arrays"]["edge_label" if task == "edge" else "graph_ids"]
    (tmp_path / "store" / HEADER).write_text(add_checksum(body))
    with pytest.raises(CvgnnError, match=r"edge_label|graph_names"):
        open_store(tmp_path / "store")
