"""Streaming ingest writes the same store, to the byte, as reading into memory, however little memory it has."""

from __future__ import annotations

import gzip
import itertools
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from cvgnn.data import RandomSplit
from cvgnn.data.io import csv_file, read_graph, table_file, table_parts
from cvgnn.data.io.table_folder import FolderReader
from cvgnn.data.store import StoreWriter, edge_buckets, id_map, ingest, write_store
from cvgnn.data.store.id_map import IdMap
from cvgnn.data.store.ingest import ingest_tables
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError
from cvgnn.ops.id_kernels import UNKNOWN, hash_strings
from tests.data.io.writers import write_columns

N, M = 300, 2000
SPLIT = RandomSplit(seed=3)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each table has many batches and each array many blocks."""
    monkeypatch.setattr(csv_file, "_CSV_BLOCK", 1 << 12)
    monkeypatch.setattr(table_file, "_ARROW_ROWS", 97)
    monkeypatch.setattr(csv_file, "_BATCH_ROWS", 89)
    monkeypatch.setattr(table_parts, "_NPY_ENTRIES", 200)
    monkeypatch.setattr(ingest, "_ROWS", 500)
    monkeypatch.setattr(edge_buckets, "_CHUNK", 256)


def ids(kind: str, rng: np.random.Generator) -> list[Any]:
    names: dict[str, Any] = {
        "text": [f"n{i:03}" + "é" * (i % 3) for i in range(N)],
        "integers": (np.unique(rng.integers(0, 10**12, 2 * N))[rng.permutation(N)] - 5 * 10**11).tolist(),
        "numbers": list(range(N)),
        "shuffled": rng.permutation(N).tolist(),
        "mixed": [*range(N - 1), "x7"],
        "floats": [f"{i * 7}.0" for i in range(N)],
    }
    return list(names[kind])


def make(
    kind: str = "text", *, weighted: bool = False, seed: int = 0
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Columns of nodes and edges, with columns of every kind, gaps, self loops, and edges in both directions."""
    rng = np.random.default_rng(seed)
    names = ids(kind, rng)
    split = rng.choice(["train", "val", "test", ""], N, p=[0.5, 0.2, 0.2, 0.1]).tolist()
    label = [
        c if part or rng.random() < 0.5 else "" for c, part in zip(rng.choice(["b", "a", "c"], N), split, strict=True)
    ]
    nodes: dict[str, list[Any]] = {
        "id": names,
        "age": [*np.round(rng.normal(40, 10, N - 1), 2).tolist(), ""],
        "income": np.round(rng.lognormal(8, 3, N), 3).tolist(),
        "region": rng.choice(["north", "south", "west", ""], N).tolist(),
        "word": [f"w{i}" for i in rng.integers(0, 100, N)],
        "member": rng.choice(["yes", "no"], N).tolist(),
        "since": [f"20{i % 20 + 10}-0{i % 9 + 1}-11" for i in rng.integers(0, 99, N)],
        "same": [1.5] * N,
        "late": [*["1.50"] * (N - 1), "odd"],
        "label": label,
        "split": split,
    }
    ends = np.minimum(rng.integers(0, N, (2, M)), rng.integers(0, N, (2, M)))
    ends[1, :20] = ends[0, :20]
    ends[:, 20:200] = ends[::-1, 200:380]
    pair = np.minimum(*ends) * N + np.maximum(*ends)
    edges: dict[str, list[Any]] = {"source": [names[i] for i in ends[0]], "target": [names[i] for i in ends[1]]}
    if weighted:
        edges["weight"] = (pair % 7 + 0.1).tolist()
    return nodes, edges


def write(folder: Path, tables: dict[str, dict[str, list[Any]]], form: str) -> Path:
    """Write tables as csv, csv.gz, parquet, arrow, feather, or as folders of several files of these."""
    folder.mkdir(parents=True)
    for name, columns in tables.items():
        suffix = form.removeprefix("many ")
        length = len(next(iter(columns.values())))
        cuts = [0, length // 3, length // 2, length] if form.startswith("many") else [0, length]
        if len(cuts) > 2:
            (folder / name).mkdir()
        for i, (a, b) in enumerate(itertools.pairwise(cuts)):
            path = folder / (f"{name}/part-{i}.{suffix}" if len(cuts) > 2 else f"{name}.{suffix}")
            part = {column: cells[a:b] for column, cells in columns.items()}
            if suffix in ("parquet", "arrow", "feather"):
                table = pa.table({c: cells if not _mixed(columns[c]) else [str(v) if v != "" else None for v in cells]
                                  for c, cells in part.items()})  # fmt: skip
                write_columns(table, path, streamed=i == 1)
            else:
                rows = [",".join(part), *(",".join(map(str, row)) for row in zip(*part.values(), strict=True))]
                text = ("\n".join(rows) + "\n").encode()
                path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    return folder


def _mixed(cells: list[Any]) -> bool:
    return len({type(cell) for cell in cells}) > 1 or isinstance(cells[0], str)


def files(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in store.iterdir()}


def assert_equal(folder: Path, tmp_path: Path, *, memory: int = 40_000, **options: Any) -> None:
    """The stores of both ways have the same bytes."""
    propagate = options.pop("propagate", None)
    write_store(read_graph(folder, split=SPLIT, **options), tmp_path / "whole", propagate=propagate)
    ingest_tables(folder, tmp_path / "streamed", memory=memory, split=SPLIT, propagate=propagate, **options)
    whole, streamed = files(tmp_path / "whole"), files(tmp_path / "streamed")
    assert whole.keys() == streamed.keys()
    for name, content in whole.items():
        assert content == streamed[name], name
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("csv", "text"), ("csv", "mixed"), ("csv", "floats"), ("csv.gz", "integers"), ("parquet", "text"),
        ("parquet", "integers"), ("parquet", "numbers"), ("parquet", "floats"), ("many csv", "shuffled"),
        ("many csv", "numbers"), ("many csv", "mixed"), ("many parquet", "text"), ("many parquet", "shuffled"),
        ("arrow", "integers"), ("feather", "text"), ("many arrow", "shuffled"),
    ],
)  # fmt: skip
def test_equal_to_the_byte(form: str, kind: str, tmp_path: Path) -> None:
    nodes, edges = make(kind)
    assert_equal(write(tmp_path / "in", {"nodes": nodes, "edges": edges}, form), tmp_path)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("directed", [False, True])
def test_weights_and_directions(form: str, directed: bool, tmp_path: Path) -> None:
    nodes, edges = make(weighted=True)
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, form)
    assert_equal(folder, tmp_path, directed=directed, propagate="random-walk")


def test_weights_that_are_all_one_count_as_none(tmp_path: Path) -> None:
    nodes, edges = make()
    assert_equal(write(tmp_path / "in", {"nodes": nodes, "edges": edges | {"weight": [1.0] * M}}, "csv"), tmp_path)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["text", "integers"])
def test_a_table_of_ids_in_parts_and_buckets_that_are_cut(kind: str, weighted: bool, tmp_path: Path) -> None:
    """Memory for a third of the ids, and for fewer entries than the row of a node that is in every other edge."""
    nodes, edges = make(kind, weighted=weighted)
    hub = nodes["id"][7]
    edges["source"][::2] = [hub] * (M // 2)
    if weighted:
        edges["weight"] = [2.5] * M
    folder = write(tmp_path / "in", {"nodes": {"id": nodes["id"], "f": nodes["income"], "label": [1, 0] * (N // 2)},
                                     "edges": edges}, "csv")  # fmt: skip
    assert ingest.IdMap(6000).parts == 1
    assert_equal(folder, tmp_path, memory=12_000, tables=TableOptions(preprocess="none"))


def test_options_of_tables(tmp_path: Path) -> None:
    nodes, edges = make()
    nodes["label"] = [*["3|1", "2", "1"] * (N // 3 - 1), "", "4|2", "1"]
    del nodes["split"]
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "many csv")
    tables = TableOptions(
        label_kind="labels", split_by="since", ignore=("late",), category=("age",), text=("word",), numeric=("income",)
    )
    assert_equal(folder, tmp_path, tables=tables)


@pytest.mark.parametrize("form", ["csv", "parquet", "many csv"])
def test_codes_and_columns_of_which_batches_look_like_numbers(form: str, tmp_path: Path) -> None:
    """The whole column decides whether its cells are numbers: they are other categories then."""
    nodes, edges = make()
    nodes |= {
        "postcode": [f"{i % 7 + (1000 if i < N // 2 else 100):04}" for i in range(N)],
        "rare": [*["1.50", "2.0", "1.5"] * (N // 3 - 1), "", "007", "2"],
        "size": ["1.50", "2.0", "1.5"] * (N // 3),
        "gaps": [*[""] * (N // 2), *["yes", "no"] * (N // 4)],
    }
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, form)
    assert_equal(folder, tmp_path, tables=TableOptions(category=("rare", "size")))


@pytest.mark.parametrize(
    ("tables", "split", "message"),
    [
        ({"nodes": {"graph": [0] * N}}, SPLIT, r"nodes\.csv, column 'graph': this is a set of graphs, .* one by one"),
        ({"edges": {"label": [0] * M}}, SPLIT, r"edges\.csv, column 'label': this is a graph with labelled pairs, .*--ignore"),
        ({"edges": {"split": ["train"] * M}}, SPLIT, r"edges\.csv, column 'split': .* labelled pairs"),
        ({"edge_labels": {"source": ["n000"], "target": ["n000"], "label": [1]}}, SPLIT,
         r"edge_labels\.csv, column 'label': .* labelled pairs, .* move the table away"),
        ({}, RandomSplit(allow_unlabelled=True), "without labels, .* convert it in memory .* --unlabelled"),
    ],
)  # fmt: skip
def test_refuses_at_once_what_only_memory_can(tables: Any, split: RandomSplit, message: str, tmp_path: Path) -> None:
    nodes, edges = make()
    columns = {"nodes": nodes, "edges": edges}
    folder = write(tmp_path / "in", {n: columns.get(n, {}) | tables.get(n, {}) for n in columns | tables}, "csv")
    with pytest.raises(CvgnnError, match=message):
        ingest_tables(folder, tmp_path / "out", memory=40_000, split=split)
    plan = ingest.plan_ingest(folder, split, TableOptions())
    assert plan.refusal is not None
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def test_several_columns_of_labels_and_numbers_to_predict(tmp_path: Path) -> None:
    nodes, edges = make()
    del nodes["label"], nodes["split"]
    nodes["size"], nodes["cost"] = nodes.pop("same"), [0.5 * i for i in range(N)]
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "csv")
    assert_equal(folder, tmp_path, tables=TableOptions(label_columns=("size", "cost")))


def test_edges_to_unknown_nodes_can_be_left_out(tmp_path: Path) -> None:
    nodes, edges = make("integers")
    edges["target"][5:500:7] = ["nobody"] * len(edges["target"][5:500:7])
    edges["source"][9] = ""
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "csv")
    assert_equal(folder, tmp_path, tables=TableOptions(unknown_edges="drop"))


@pytest.mark.parametrize("form", ["csv", "many parquet"])
def test_features_in_a_table_of_their_own_in_another_order(form: str, tmp_path: Path) -> None:
    nodes, edges = make()
    order = np.random.default_rng(5).permutation(N)
    features = {c: [nodes[c][i] for i in order] for c in ("id", "age", "income", "region")}
    roles = {c: nodes[c] for c in ("id", "label", "split")}
    folder = write(tmp_path / "in", {"nodes": roles, "edges": edges, "features": features}, form)
    assert_equal(folder, tmp_path, memory=20_000)


def test_lists_and_sparse_features(tmp_path: Path) -> None:
    nodes, edges = make()
    rng = np.random.default_rng(6)
    matrix = rng.random((N, 40)) * (rng.random((N, 40)) < 0.02)
    roles = {c: nodes[c] for c in ("id", "label", "split")}
    folder = write(tmp_path / "in", {"nodes": roles | {"x": matrix.tolist()}, "edges": edges}, "parquet")
    assert_equal(folder, tmp_path, memory=400_000, propagate="symmetric")
    assert (tmp_path / "streamed" / "x_indptr.npy").exists()


@pytest.mark.parametrize("by_rows", [False, True])
def test_arrays(by_rows: bool, tmp_path: Path) -> None:
    nodes, edges = make("shuffled")
    roles = {c: nodes[c] for c in ("id", "label", "split")}
    folder = write(tmp_path / "in", {"nodes": roles}, "csv")
    ends = np.array([edges["source"], edges["target"]], dtype=np.uint32)
    np.save(folder / "edges.npy", ends.T if by_rows else ends)
    np.save(folder / "features.npy", np.random.default_rng(7).normal(size=(N, 6)))
    assert_equal(folder, tmp_path, memory=400_000)


def test_quotes_and_other_encodings(tmp_path: Path) -> None:
    """What the csv module must read."""
    nodes, edges = make()
    nodes["word"][200] = '"two ""words"""'
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "csv")
    text = (folder / "edges.csv").read_text()
    (folder / "edges.csv").write_text(text, encoding="utf-16")
    assert_equal(folder, tmp_path)


def test_ids_with_one_key_get_another_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seeds = []

    def weak(offsets: np.ndarray, data: np.ndarray, seed: int) -> np.ndarray:
        seeds.append(seed)
        found: np.ndarray = hash_strings(offsets, data, seed) & np.uint64(UNKNOWN | np.uint64(0x3FFF00000000))
        return found

    monkeypatch.setattr(id_map, "hash_strings", weak)
    nodes, edges = make()
    assert_equal(write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "csv"), tmp_path)
    assert len(set(seeds)) > 1


MISTAKES: dict[str, tuple[str, int, Any, str]] = {
    "nodes id": ("nodes", 250, "n003", r"nodes.csv, line 252, column 'id': 'n003' was listed before, at line 5"),
    "no id": ("nodes", 250, "", r"nodes.csv, line 252, column 'id': nothing where the node's id must be"),
    "source": ("edges", 1500, "me", r"edges.csv, line 1502, column 'source': 'me' is no node; ids are listed in nodes"),
    "weight": ("edges", 1500, -2, r"edges.csv, line 1502, column 'weight': -2; weights must be positive"),
    "no weight": ("edges", 1500, "x", r"edges.csv, line 1502, column 'weight': 'x' is no number"),
    "split": ("nodes", 4, "trian", r"nodes.csv, line 6, column 'split': unknown split 'trian'"),
    "late": ("nodes", 299, "x" * 2000, r"nodes.csv, line 301, column 'id': 2000 characters"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_name_file_and_line(what: str, tmp_path: Path) -> None:
    table, row, cell, message = MISTAKES[what]
    nodes, edges = make(weighted=True)
    nodes["id"][3] = nodes["id"][3].rstrip("é")
    column = {"nodes id": "id", "no id": "id", "no weight": "weight", "late": "id"}.get(what, what)
    {"nodes": nodes, "edges": edges}[table][column][row] = cell
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "csv")
    with pytest.raises(CvgnnError, match=message):
        ingest_tables(folder, tmp_path / "out", memory=40_000)
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("memory", [40_000, 12_000])
def test_an_edge_with_two_weights(memory: int, tmp_path: Path) -> None:
    nodes, edges = make(weighted=True)
    edges["source"][1900], edges["target"][1900] = edges["target"][30], edges["source"][30]
    edges["weight"][1900] = 77.0
    folder = write(tmp_path / "in", {"nodes": {c: nodes[c] for c in ("id", "label", "income")}, "edges": edges}, "csv")
    with pytest.raises(
        CvgnnError, match=r"edges.csv, line 1902, column 'weight': 77, but line \d+ gives the same edge"
    ):
        ingest_tables(folder, tmp_path / "out", memory=memory, split=SPLIT)


def test_a_column_that_cannot_be_fitted_in_so_little_memory(tmp_path: Path) -> None:
    nodes, edges = make()
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "parquet")
    with pytest.raises(CvgnnError, match=r"column 'age' of the training nodes does not fit .* --memory, .* --ignore"):
        ingest_tables(folder, tmp_path / "out", memory=8000)


def test_a_disk_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, edges = make()
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "parquet")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 1000))
    with pytest.raises(
        CvgnnError, match=r"this needs about \d+\.\d KiB of disk space beside .*, and 1000 bytes are free"
    ):
        ingest_tables(folder, tmp_path / "out", memory=40_000)


KILLED = """
import os, signal, sys
from pathlib import Path
from cvgnn.data import RandomSplit
from cvgnn.data.store.ingest import ingest_tables

def kill(stage, share):
    if stage == sys.argv[3] and share > 0.4:
        os.kill(os.getpid(), signal.SIGKILL)

ingest_tables(Path(sys.argv[1]), Path(sys.argv[2]), memory=40_000, split=RandomSplit(seed=3), progress=kill)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize(
    ("stage", "before"), [("nodes", ""), ("features", "nodes"), ("edges", "nodes, features"),
                          ("sorting edges", "nodes, features, edges, rows"),
                          ("checksums", "nodes, features, edges, rows")]
)  # fmt: skip
def test_goes_on_after_a_kill(stage: str, before: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes, edges = make(weighted=True)
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "csv")
    command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / "streamed"), stage]
    assert subprocess.run(command, check=False).returncode == -9
    assert (tmp_path / ".streamed.partial").is_dir()
    with caplog.at_level(logging.INFO):
        assert_equal(folder, tmp_path)
    found = [record.message for record in caplog.records if record.message.startswith("going on")]
    assert found == ([f"going on after {before}"] if before else [])


def test_other_tables_start_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes, edges = make()
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "csv")

    def interrupt(stage: str, share: float) -> None:
        if stage == "sorting edges":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest_tables(folder, tmp_path / "streamed", memory=40_000, split=SPLIT, progress=interrupt)
    with (folder / "edges.csv").open("a") as file:
        file.write("n000,n111\n")
    assert_equal(folder, tmp_path)
    assert "the tables or options have changed; starting again" in caplog.text


def test_more_than_2_to_the_31_entries(tmp_path: Path) -> None:
    """The last buckets come after 2^31 + 7 entries, which are a hole in the file."""
    nodes, edges = make("numbers")
    folder = write(tmp_path / "in", {"nodes": nodes, "edges": edges}, "csv")
    graph, before = read_graph(folder, split=SPLIT), 2**31 + 7
    with StoreWriter(tmp_path / "out", resume=True) as writer:
        reader = FolderReader(folder, SPLIT, TableOptions(), None, training=True)
        work = ingest._Ingest(reader, writer, 40_000, "", False)
        work.ids = IdMap(40_000, ordered=True)
        work.ids.set_nodes(folder, N)
        layout = work._edges()
        first = 1 << (layout["shift"] - 32)
        assert 0 < first < N // 2
        writer.array("indptr", (N + 1,), np.int64)[: first + 1] = before
        (writer.work.parent / "indices.npy").touch()
        work.done["rows"] = {"buckets": 1, "entries": before}
        work._rows(layout)
        indptr, indices = writer.written("indptr"), writer.written("indices")
        assert indptr is not None
        assert indices is not None
        shift = before - int(graph.indptr[first])
        assert indptr[first:].tolist() == (graph.indptr[first:] + shift).tolist()
        assert indices[before:].tolist() == graph.indices[graph.indptr[first] :].tolist()
