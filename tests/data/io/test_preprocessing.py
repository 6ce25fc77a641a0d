"""From the columns of a table to features: fitted on training nodes, stored with the run, applied to new tables."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cvgnn
from cvgnn.cli.main import main
from cvgnn.data import Graph, RandomSplit
from cvgnn.data.io import read_graph
from cvgnn.data.io.preprocessing import Preprocessing
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError
from tests.data.io.customers import write_customers
from tests.data.io.writers import dense_of


def table(
    folder: Path, nodes: str | bytes, edges: str = "source,target\n", name: str = "nodes.csv", **options: Any
) -> Graph:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(nodes if isinstance(nodes, bytes) else nodes.encode())
    (folder / "edges.csv").write_text(edges)
    return read_graph(folder, tables=TableOptions(**options))


def column(graph: Graph, name: str) -> dict[str, Any]:
    assert graph.preprocessing is not None
    found: dict[str, Any] = next(c for c in graph.preprocessing["columns"] if c["name"] == name)
    return found


def many(values: list[Any], head: str = "id,f,label,split") -> str:
    """A table with a row for each value, all in training."""
    return head + "\n" + "".join(f"{i},{value},{i % 2},train\n" for i, value in enumerate(values))


def test_customers_train_as_well_as_data_prepared_by_hand(tmp_path: Path) -> None:
    raw = read_graph(write_customers(tmp_path / "raw", 2000))
    hand = read_graph(write_customers(tmp_path / "hand", 2000, prepared=True), tables=TableOptions(preprocess="none"))
    mean = {}
    for name, graph in {"raw": raw, "hand": hand}.items():
        runs = [cvgnn.fit(graph, epochs=40, seed=seed) for seed in range(3)]
        mean[name] = np.mean([run.result["test_accuracy"] for run in runs])
    assert mean["raw"] > 0.7
    assert mean["raw"] > mean["hand"] - 0.01


def test_predict_reads_new_rows_as_the_run_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_customers(tmp_path / "raw", 300)
    run = str(tmp_path / "run")
    assert main(["train", "--graph", str(tmp_path / "raw"), "--out", run, "--epochs", "2"]) == 0
    new = tmp_path / "new"
    new.mkdir()
    (new / "nodes.csv").write_text("id,joined,income,age,region\nx,2024-05-01,41000,33,moon\ny,,70000,,east\n")
    (new / "edges.csv").write_text("source,target\nx,y\n")
    capsys.readouterr()
    assert main(["predict", run, "--graph", str(new)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["node", "x", "y"]
    stored = json.loads(Path(run, "preprocessing.json").read_text())
    x = dense_of(read_graph(new, preprocessing=stored))
    widths = [2, 2, 5, 4]  # age, income, region, joined, each with its indicator
    age, _, region, joined = np.split(x, np.cumsum(widths)[:-1], axis=1)
    assert age[:, 1].tolist() == [0, 1]
    assert region.tolist() == [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]  # an unseen value is none of the known ones
    assert joined[:, 3].tolist() == [0, 1]
    (new / "nodes.csv").write_text("id,age\nx,1\ny,2\n")
    assert main(["predict", run, "--graph", str(new)]) == 2
    assert "has no column income, region, joined, which the model uses" in capsys.readouterr().err


def test_only_training_nodes_are_fitted(tmp_path: Path) -> None:
    folder = write_customers(tmp_path / "a", 400)
    before = read_graph(folder)
    lines = (folder / "nodes.csv").read_text().splitlines()
    for i, line in enumerate(lines):
        cells = line.split(",")
        if cells[-1] in ("val", "test"):
            cells[1:5] = ["1000000", "-5", "mars", "1901-01-01"] if i % 2 else ["", "", "", ""]
            lines[i] = ",".join(cells)
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    after = read_graph(folder)
    assert after.preprocessing == before.preprocessing
    assert np.array_equal(dense_of(after)[after.train_ids], dense_of(before)[before.train_ids])


@pytest.mark.parametrize(
    ("values", "options", "kind", "how"),
    [
        ([*range(100, 120)], {}, "number", "standardised"),
        ([-1, 1] * 10, {}, "number", "kept"),
        ([0, 1] * 10, {}, "number", "kept"),
        ([0] * 15 + [50, 60, 70, 80, 90], {}, "number", "scaled"),
        ([1] * 10 + [2] * 9 + [10**6], {}, "number", "quantiles"),
        (["yes", "no"] * 10, {}, "boolean", None),
        (["True", "false"] * 10, {}, "boolean", None),
        (["a", "b", "c", "d"] * 5, {}, "category", None),
        ([1, 2, 3, 4] * 5, {"category": ["f"]}, "category", None),
        ([f"v{i % 70}" for i in range(200)], {}, "category", None),
        ([f"2024-03-{day:02}" for day in range(1, 21)], {}, "date", None),
        ([f"2024-03-{day:02}T08:30:00Z" for day in range(1, 21)], {}, "date", None),
        ([f"{day:02}.03.2024" for day in range(1, 21)], {}, "date", None),
        ([f"03/{day:02}/2024" for day in range(1, 29)], {}, "date", None),
        (["red car", "blue bus"] * 10, {"text": ["f"]}, "text", None),
        ([7] * 20, {}, "number", "kept"),  # the only column: it stays, constant as it is
    ],
)
def test_kinds(values: list[Any], options: dict[str, Any], kind: str, how: str | None, tmp_path: Path) -> None:
    graph = table(tmp_path, many(values), **options)
    found = column(graph, "f")
    assert (found["kind"], found.get("how")) == (kind, how)
    again = Preprocessing.from_dict(json.loads(json.dumps(graph.preprocessing)))
    assert again.to_dict() == graph.preprocessing
    assert np.isfinite(dense_of(graph)).all()
    assert np.abs(dense_of(graph)).max() <= 10


def test_columns_that_are_no_features(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = ["Ann Lee", "Bob Ray"] * 40
    rows = "".join(f"{i},{i % 7},3,,{name} {i},{i % 2},{i % 2}\n" for i, name in enumerate(names))
    with caplog.at_level(logging.INFO, "cvgnn"):
        graph = table(tmp_path, f"id,f,same,empty,name,copy,label\n{rows}")
    reasons = {name: column(graph, name)["why"] for name in ("same", "empty", "name")}
    assert reasons["same"] == "constant, 3"
    assert reasons["empty"] == "no training node has a value"
    assert "48 different values in 48 cells; --text" in reasons["name"]
    assert "column 'copy' alone tells the label of every training node" in caplog.text
    assert "constant, 3" in caplog.text


def test_aliases_and_column_options(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    edges = "src,dst,when\n0,1,x\n1,9,y\n"
    nodes = "node_id,f,class,fold\n0,5,a,training\n1,7,b,validation\n2,6,a,train\n"
    with caplog.at_level(logging.INFO, "cvgnn"):
        graph = table(tmp_path / "a", nodes, edges, ignore=["when"], unknown_edges="drop")
    assert (graph.train_ids.tolist(), graph.val_ids.tolist(), graph.num_edges) == ([0, 2], [1], 2)
    for text in ("column 'node_id' is the id", "'class' is the label", "'src' is the source", "'validation' is val"):
        assert text in caplog.text
    assert "1 of 2 edges left out" in caplog.text
    nodes = "key,f,kind,part\n0,5,a,train\n1,7,b,val\n2,6,a,train\n"
    chosen = {"id_column": "key", "label_column": "kind", "split_column": "part"}
    ends = {"source_column": "p", "target_column": "q", "weight_column": "w"}
    graph = table(tmp_path / "b", nodes, "p,q,w\n0,1,2.5\n", **chosen, **ends)
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [2.5, 2.5]
    with pytest.raises(CvgnnError, match=r"--ignore: .*unknown column 'zz'"):
        table(tmp_path / "b", nodes, "p,q\n", ignore=["zz"], **chosen)


def test_a_time_column_makes_the_split(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i},2024-01-{30 - i:02},{i % 2}\n" for i in range(10))
    graph = table(tmp_path, f"id,f,day,label\n{rows}", split_by="day")
    assert (graph.train_ids.tolist(), graph.test_ids.tolist()) == ([4, 5, 6, 7, 8, 9], [0, 1])
    assert graph.split == "by day: fractions 0.6/0.2/0.2"
    assert graph.num_features == 1


def test_a_node_without_a_time_is_in_no_part_of_the_split(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = "".join(f"{i},{i},{'' if i == 3 else 2000 + i},{i % 2}\n" for i in range(11))
    graph = table(tmp_path, f"id,f,time,label\n{rows}", split_by="time")
    assert "1 labelled nodes have no 'time'; they are in no part of the split" in caplog.text
    assert graph.train_ids.tolist() == [0, 1, 2, 4, 5, 6]
    assert graph.test_ids.tolist() == [9, 10]
    for cell, sentence in (
        ("", "no labelled node has a date or a number"),
        ("03/04/2024", "may be day/month or month"),
    ):
        with pytest.raises(CvgnnError, match=sentence):
            table(tmp_path, "id,f,time,label\n" + f"0,1,{cell},0\n1,2,{cell},1\n", split_by="time")


NODES = "id,f,label\nä,5,x\nb,7,y\nc,6,x\n"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("nodes.csv", NODES.replace(",", ";").encode()),
        ("nodes.tsv", NODES.replace(",", "\t").encode()),
        ("nodes.csv", NODES.replace(",", "|").encode()),
        ("nodes.csv", NODES.encode("cp1252")),
        ("nodes.csv", NODES.encode("utf-16")),
        ("nodes.csv.gz", gzip.compress(NODES.encode())),
        ("nodes.tsv.gz", gzip.compress(NODES.replace(",", "\t").encode())),
        ("nodes.csv.zst", pa.compress(NODES.encode(), "zstd", asbytes=True)),
    ],
    ids=["semicolon", "tab", "bar", "Windows-1252", "UTF-16", "gzip", "tab and gzip", "zstd"],  # gzip has a time in it
)
def test_delimiters_encodings_and_compression(name: str, data: bytes, tmp_path: Path) -> None:
    graph = table(tmp_path, data, "source,target\nb,c\n", name)
    assert graph.node_names is not None
    assert graph.node_names.tolist() == ["ä", "b", "c"]


def test_parquet_columns_of_every_kind(tmp_path: Path) -> None:
    nodes = {
        "id": [1, 2, 3, 4],
        "label": ["a", "b", "a", "b"],
        "split": ["train", "train", "train", "test"],
        "amount": [10.0, None, 300.0, float("nan")],
        "when": pa.array([0, 86_400_000_000, None, 5], pa.timestamp("us", "UTC")),
        "city": pa.array(["Rome", "Oslo", None, "Lima"]).dictionary_encode(),
        "vector": [[0.5, 1.5]] * 4,
    }
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": [1], "target": [2]}), tmp_path / "edges.parquet")
    graph = read_graph(tmp_path)
    kinds = [column(graph, name)["kind"] for name in ("amount", "when", "city", "vector")]
    assert kinds == ["number", "date", "category", "vector"]


@pytest.mark.parametrize(
    "change",
    [
        {"columns": 3},
        {"columns": [{"name": "f"}]},
        {"version": 9},
        {"columns": [{"name": "f", "kind": "number", "how": "kept", "missing": 0, "mean": 0, "std": 0, "fill": 0}]},
    ],
)
def test_a_damaged_preprocessing_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    graph = table(tmp_path, many([*range(20)]))
    with pytest.raises(CvgnnError, match="the stored preprocessing is damaged"):
        read_graph(tmp_path, preprocessing={**(graph.preprocessing or {}), **change})


def test_options_of_tables_for_another_graph_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edge_index=[[0], [1]], x=np.eye(2), y=[0, 1])
    with pytest.raises(CvgnnError, match="is no folder of tables, so ignore would do nothing"):
        read_graph(tmp_path / "g.npz", tables=TableOptions(ignore=("a",)))


def test_codes_with_leading_zeros_are_categories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In CSV, quoted CSV and Parquet; "7" and "007" are other values, and other nodes."""
    zips = ["00123", "123", "10115", "04109"]
    rows = [(f"{i:03}", zips[i % 4], f"{i % 7}", f"0.{i}", i % 2) for i in range(80)]
    rows[0] = ("7", *rows[0][1:])
    names = ("id", "zip", "n", "f", "label")
    text = "\n".join(",".join(map(str, row)) for row in (names, *rows))
    found = []
    for kind in ("csv", "quoted", "parquet"):
        folder = tmp_path / kind
        folder.mkdir()
        if kind == "parquet":
            columns = {name: [row[j] for row in rows] for j, name in enumerate(names)}
            pq.write_table(pa.table(columns), folder / "nodes.parquet")
        else:
            quoted = text.replace(",", '","').replace("\n", '"\n"') if kind == "quoted" else text
            (folder / "nodes.csv").write_text(f'"{quoted}"' if kind == "quoted" else text)
        (folder / "edges.csv").write_text("source,target\n7,007\n007,008\n")
        graph = read_graph(folder)
        assert graph.node_names is not None
        assert graph.node_names[[0, 7]].tolist() == ["7", "007"]
        assert graph.degree[[0, 7, 8]].tolist() == [1, 2, 1]
        found.append(graph.preprocessing)
    fitted = Preprocessing.from_dict(found[0])
    assert found[1:] == found[:2]
    assert [column["kind"] for column in fitted.columns] == ["category", "number", "number"]
    assert fitted.columns[0]["values"] == sorted(zips)
    assert main(["inspect", str(tmp_path / "csv")]) == 0
    assert "one-hot: 4 values (codes with leading zeros; --numeric reads them as numbers)" in capsys.readouterr().out
    as_numbers = read_graph(tmp_path / "csv", tables=TableOptions(numeric=("zip",))).preprocessing
    assert as_numbers is not None
    assert as_numbers["columns"][0]["kind"] == "number"
    # A table to predict on in which no code has a zero.
    new = tmp_path / "new"
    new.mkdir()
    (new / "nodes.csv").write_text("id,zip,n,f\na,10115,1,0.5\nb,99999,1,0.5\nc,,1,0.5\n")
    (new / "edges.csv").write_text("source,target\na,b\n")
    x = dense_of(read_graph(new, preprocessing=found[0], split=RandomSplit(allow_unlabelled=True)))
    assert x[:, :4].tolist() == [[float(z == "10115") for z in sorted(zips)], [0] * 4, [0] * 4]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["007", "7.5", "12", "3"], "number"),  # zeros before a measured number
        (["0", "10", "20", "30"], "number"),
        (["0.5", "0.25", "00.5", "1"], "number"),
        (["007", "12", "1234 AB", "3"], "category"),
        (["007", "x", "y", "z"], "category"),
        (["01", "02", "", "NA"], "category"),
        (["0930", "1215", "2359", "0000"], "category"),
    ],
)
def test_what_is_a_code(cells: list[str], kind: str, tmp_path: Path) -> None:
    rows = "".join(f"{i},{cells[i % 4]},{i % 2},{i % 3}\n" for i in range(60))
    (tmp_path / "nodes.csv").write_text(f"id,c,label,f\n{rows}")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    fitted = read_graph(tmp_path).preprocessing
    assert fitted is not None
    assert fitted["columns"][0]["kind"] == kind
