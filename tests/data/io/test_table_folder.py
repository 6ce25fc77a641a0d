"""Folders of tables: how ids, labels and splits are understood."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cvgnn.data import Graph
from cvgnn.data.io import read_graph
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError
from tests.data.io.writers import assert_same, write_columns


def csv_graph(folder: Path, nodes: str, edges: str = "source,target\n") -> Graph:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return read_graph(folder, tables=TableOptions(preprocess="none"))


def test_names_keep_the_order_of_the_nodes_and_labels_are_sorted(tmp_path: Path) -> None:
    graph = csv_graph(
        tmp_path,
        "id,f,label,split\nzoe,1,dog,train\nadam,2,,\nmia,3,cat,val\nben,4,dog,test\n",
        "source,target\nadam,zoe\nmia,ben\n",
    )
    assert graph.node_names is not None
    assert graph.node_names.tolist() == ["zoe", "adam", "mia", "ben"]
    assert graph.class_names == ("cat", "dog")
    assert graph.y.tolist() == [1, -1, 0, 1]
    assert graph.indices.tolist() == [1, 0, 3, 2]
    assert (graph.train_ids.tolist(), graph.val_ids.tolist(), graph.test_ids.tolist()) == ([0], [2], [3])


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["0", "1", "2"], None),
        (["1", "2", "3"], [1, 2, 3]),
        (["2", "0", "1"], [2, 0, 1]),
        (["900", "-7", "0"], [900, -7, 0]),
        (["01", "2", "3"], ["01", "2", "3"]),
        (["1", "x", "2"], ["1", "x", "2"]),
        ([str(2**63), "1", "2"], [str(2**63), "1", "2"]),
    ],
)
def test_node_ids(ids: list[str], names: list[object] | None, tmp_path: Path) -> None:
    rows = "".join(f"{name},{i},0\n" for i, name in enumerate(ids))
    graph = csv_graph(tmp_path, f"id,f,label\n{rows}", f"source,target\n{ids[0]},{ids[2]}\n")
    assert (None if graph.node_names is None else graph.node_names.tolist()) == names
    assert graph.degree.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("labels", "y", "names"),
    [
        (["1", "0", "2"], [1, 0, 2], None),
        (["2", "10", "2"], [0, 1, 0], ("2", "10")),
        (["1", "2", ""], [0, 1, -1], ("1", "2")),
        (["b", "10", "a"], [2, 0, 1], ("10", "a", "b")),
        (["x", "x", "x"], [0, 0, 0], ("x",)),
    ],
)
def test_labels(labels: list[str], y: list[int], names: tuple[str, ...] | None, tmp_path: Path) -> None:
    rows = "".join(f"{i},1,{label}\n" for i, label in enumerate(labels))
    graph = csv_graph(tmp_path, f"id,f,label\n{rows}")
    assert graph.y.tolist() == y
    assert graph.class_names == names
    assert graph.num_classes == len(set(labels) - {""})


def test_edges_in_any_listing_are_one_graph(tmp_path: Path) -> None:
    """In one direction or both, once or several times, with self loops or without."""
    nodes = "id,f,label\n0,1,0\n1,2,1\n2,3,0\n"
    plain = csv_graph(tmp_path / "plain", nodes, "source,target\n0,1\n1,2\n")
    messy = csv_graph(tmp_path / "messy", nodes, "source,target\n1,0\n2,1\n1,2\n0,1\n1,1\n0,1\n")
    ones = csv_graph(tmp_path / "ones", nodes, "target,weight,source\n1,1,0\n2,1.0,1\n")
    assert_same(plain, messy)
    assert_same(plain, ones)
    directed = read_graph(tmp_path / "plain", directed=True)
    assert (directed.indptr.tolist(), directed.indices.tolist()) == ([0, 0, 1, 2], [0, 1])


def test_a_self_loop_may_have_any_weight(tmp_path: Path) -> None:
    graph = csv_graph(tmp_path, "id,f,label\n0,1,0\n1,2,1\n", "source,target,weight\n0,0,2\n0,0,3\n0,1,4\n1,0,4\n")
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [4.0, 4.0]


def test_csv_as_spreadsheets_write_it(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_bytes(b'\xef\xbb\xbf id , f,label\r\n"Smith, A.",1e-1,x\r\n\r\n"new\nline", 2,y\r\n')
    (tmp_path / "edges.csv").write_bytes(b'source,target\r\n"new\nline","Smith, A."\r\n')
    graph = read_graph(tmp_path, tables=TableOptions(preprocess="none"))
    assert graph.node_names is not None
    assert graph.node_names.tolist() == ["Smith, A.", "new\nline"]
    assert torch.equal(graph.x, torch.tensor([[0.1], [2.0]]))  # type: ignore[arg-type]
    assert graph.num_edges == 2


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_tables_as_pandas_and_polars_write_them(form: str, tmp_path: Path) -> None:
    """Integers with gaps are floats there; words may be categories or views; features may be of any numeric type."""
    part = pa.array(["train", None, "test"])
    nodes = pa.table(
        {
            "id": pa.array([10, 11, 12], pa.int32()),
            "label": pa.array([1.0, float("nan"), 0.0]),
            "split": part.dictionary_encode() if form == "parquet" else part.cast(pa.string_view()),
            "a": pa.array([True, False, True]),
            "b": pa.array([1, 2, 3], pa.uint8()),
            "c": pa.array([[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]], pa.list_(pa.float64(), 2)),
        }
    )
    write_columns(nodes, tmp_path / f"nodes.{form}", rows=2)
    write_columns({"source": [10, 11], "target": [12.0, 10.0]}, tmp_path / f"edges.{form}")
    graph = read_graph(tmp_path, tables=TableOptions(preprocess="none"))
    assert graph.node_names is not None
    assert graph.node_names.tolist() == [10, 11, 12]
    assert graph.y.tolist() == [1, -1, 0]
    assert graph.class_names is None
    assert (graph.train_ids.tolist(), graph.test_ids.tolist()) == ([0], [2])
    assert torch.equal(graph.x, torch.tensor([[1, 1, 0.5, 1.5], [0, 2, 2.5, 3.5], [1, 3, 4.5, 5.5]]))  # type: ignore[arg-type]
    assert graph.degree.tolist() == [2, 1, 1]


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (pa.array([9, 3, 7], pa.uint64()), [9, 3, 7]),
        (pa.array([2**63, 3, 7], pa.uint64()), [str(2**63), "3", "7"]),
        (pa.array([-9, 3, 7], pa.int8()), [-9, 3, 7]),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["parquet", "arrow", "stream.arrow", "feather"])
def test_integer_ids_stay_integers(ids: pa.Array, names: list[object], form: str, tmp_path: Path) -> None:
    """Unless one does not fit into int64."""
    how = {"streamed": form == "stream.arrow", "rows": 2}
    form = form.rpartition(".")[2]
    write_columns({"id": ids, "label": [0, 1, 0], "f": [1.0, 2.0, 3.0]}, tmp_path / f"nodes.{form}", **how)
    write_columns({"source": ids.take([0]), "target": ids.take([2])}, tmp_path / f"edges.{form}", **how)
    graph = read_graph(tmp_path, tables=TableOptions(preprocess="none"))
    assert graph.node_names is not None
    assert graph.node_names.tolist() == names
    assert graph.degree.tolist() == [1, 0, 1]


def test_the_line_of_a_conflicting_weight(tmp_path: Path) -> None:
    """Self loops do not count, and the later of the two lines is named."""
    edges = "source,target,weight\n1,1,9\n2,0,4\n0,0,3\n1,2,5\n0,2,6\n"
    with pytest.raises(CvgnnError, match=r"line 6, column 'weight': 6, but line 3 gives the same edge weight 4"):
        csv_graph(tmp_path, "id,f,label\n0,1,0\n1,2,1\n2,3,0\n", edges)


def test_csv_and_parquet_may_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,label\na,x\nb,y\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    pq.write_table(pa.table({"id": ["b", "a"], "x": [[3.0, 4.0], [1.0, 2.0]]}), tmp_path / "features.parquet")
    assert torch.equal(
        read_graph(tmp_path, tables=TableOptions(preprocess="none")).x, torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    )  # type: ignore[arg-type]


def test_more_rows_than_one_batch_of_parquet(tmp_path: Path) -> None:
    n = 10_000
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2)).astype(np.float32)
    columns = {"id": np.arange(n), "label": rng.integers(0, 3, size=n), "a": x[:, 0], "b": list(x[:, 1:])}
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": np.arange(n - 1), "target": np.arange(1, n)}), tmp_path / "edges.parquet")
    graph = read_graph(tmp_path, tables=TableOptions(preprocess="none"))
    assert torch.equal(graph.x, torch.from_numpy(x))  # type: ignore[arg-type]
    assert graph.y.tolist() == columns["label"].tolist()
    assert graph.num_edges == 2 * (n - 1)


def test_a_table_without_edges_and_a_single_node(tmp_path: Path) -> None:
    graph = csv_graph(tmp_path, "id,f,label\n0,1,0\n")
    assert (graph.num_nodes, graph.num_edges, graph.train_ids.tolist()) == (1, 0, [0])


def test_sparse_features_from_wide_tables(tmp_path: Path) -> None:
    columns = ",".join(f"f{i}" for i in range(50))
    rows = "".join(f"{v}," + ",".join("1" if i == v else "0" for i in range(50)) + ",0\n" for v in range(3))
    graph = csv_graph(tmp_path, f"id,{columns},label\n{rows}")
    assert "50 sparse features" in str(graph)
