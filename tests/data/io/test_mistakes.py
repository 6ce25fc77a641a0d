"""Tables with typical mistakes: one report names all of them, and nothing is trained on silently."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cvgnn.cli.main import main
from cvgnn.data.io import read_graph
from cvgnn.data.split import RandomSplit
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError
from tests.data.io.bad_tables import EDGES, ERRORS, NODES, TOLD, Files, edges, every, nodes


def write(folder: Path, files: Files) -> Path:
    """The good folder with other files."""
    for name, content in ({"nodes.csv": NODES, "edges.csv": EDGES} | files).items():
        if content is not None:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def test_the_table_without_mistakes_is_read_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_graph(write(tmp_path, {})).num_nodes == 30
    assert caplog.records == []


@pytest.mark.parametrize(("files", "parts"), [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS])
def test_a_report_names_all_mistakes(files: Files, parts: list[str], tmp_path: Path) -> None:
    with pytest.raises(CvgnnError) as caught:
        read_graph(write(tmp_path, files))
    message = str(caught.value)
    for part in parts:
        assert part in message
    lines = message.splitlines()
    # Every line names a file or the folder; the count is that of the lines, or of those that are left out too.
    assert all(str(tmp_path) in line for line in lines if "mistakes in the tables" not in line and " more" not in line)
    if len(lines) > 1:
        left_out = [int(line.split()[2]) for line in lines if "... and " in line]
        assert int(lines[0].split()[0]) == len(lines) - 1 - len(left_out) + sum(left_out)


@pytest.mark.parametrize(("files", "parts"), [case[1:] for case in TOLD], ids=[case[0] for case in TOLD])
def test_what_is_odd_is_told(files: Files, parts: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "cvgnn"):
        graph = read_graph(write(tmp_path, files))
    assert graph.train_ids.numel() > 0
    for part in parts:
        assert part in caplog.text


def test_there_are_more_than_a_hundred_different_tables() -> None:
    names = [case[0] for case in (*ERRORS, *TOLD)]
    assert len(set(names)) == len(names) >= 150


@pytest.mark.parametrize("command", ["inspect", "train --graph", "convert"])
def test_a_report_on_the_command_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"nodes.csv": nodes((2, "age", "x"), drop=""), "edges.csv": edges((0, 0, "q"))}
    write(tmp_path, dict(bad))
    out = [str(tmp_path / "store")] if command == "convert" else []
    assert main([*command.split(), str(tmp_path), *out]) == 2
    err = capsys.readouterr().err
    assert err.startswith("cvgnn: 2 mistakes in the tables:\n  ")
    assert "Traceback" not in err


def test_an_edge_between_two_unknown_nodes_is_no_self_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, {"edges.csv": edges(more="x0,x1,1\n")})
    with caplog.at_level(logging.INFO, "cvgnn"), pytest.raises(CvgnnError, match="2 mistakes"):
        read_graph(tmp_path)
    assert "itself" not in caplog.text


def test_the_first_twenty_are_told_and_the_others_counted(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError) as caught:
        read_graph(write(tmp_path, {"edges.csv": edges(more="".join(f"n0,x{i},1\n" for i in range(50)))}))
    lines = str(caught.value).splitlines()
    assert lines[0] == "50 mistakes in the tables:"
    assert len(lines) == 22
    assert lines[-1] == "  ... and 30 more in edges.csv, column 'target'"


def test_a_bad_column_does_not_hide_the_others(tmp_path: Path) -> None:
    rows = "".join(f"{i},1.{i},{i % 2},{'train' if i < 90 else 'val'}\n" for i in range(100))
    text = f"id,f,label,split\n{rows}".replace("\n7,", "\n7,7,").replace("99,1.99", "98,1.99")
    (tmp_path / "nodes.csv").write_text(text)
    (tmp_path / "edges.csv").write_text("source,target,weight\n" + "".join(f"{i},{i + 1},-1\n" for i in range(90)))
    with pytest.raises(CvgnnError) as caught:
        read_graph(tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == "92 mistakes in the tables:"
    assert len([line for line in lines if "more" not in line]) == 21
    for part in ("line 9: 5 fields", "column 'id': '98' was listed before", "  ... and 72 more in edges.csv, column"):
        assert part in str(caught.value)


def test_more_columns_with_mistakes_than_lines(tmp_path: Path) -> None:
    names = [f"f{j}" for j in range(30)]
    rows = "".join(f"{i},{i % 2}{',x' * 30}\n" for i in range(40))
    (tmp_path / "nodes.csv").write_text(f"id,label,{','.join(names)}\n{rows}")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    with pytest.raises(CvgnnError) as caught:
        read_graph(tmp_path, tables=TableOptions(numeric=tuple(names)))
    lines = str(caught.value).splitlines()
    assert lines[0] == "1200 mistakes in the tables:"
    assert lines[1].endswith("line 2, column 'f0': 'x' is no number")
    assert lines[2:4] == ["  ... and 39 more in nodes.csv, column 'f0'", lines[1].replace("'f0'", "'f1'")]
    assert lines[-1] == "  ... and 400 more in other columns"


def test_mistakes_in_options(tmp_path: Path) -> None:
    write(tmp_path, {})
    with pytest.raises(CvgnnError) as caught:
        read_graph(tmp_path, tables=TableOptions(category=("cty",), ignore=("agee",), label_column="lab"))
    message = str(caught.value)
    for part in ("3 mistakes", "did you mean 'city'?", "did you mean 'age'?", "has no column 'lab'"):
        assert part in message
    with pytest.raises(CvgnnError, match="column 'city' is named twice, in ignore and in category"):
        TableOptions(category=("city",), ignore=("city",))
    with pytest.raises(CvgnnError, match="it is a single table; give the folder"):
        read_graph(tmp_path / "nodes.csv", tables=TableOptions(id_column="id"))
    with pytest.raises(CvgnnError, match=r"30 mistakes(.|\n)*'Rome' is no number"):
        read_graph(tmp_path, tables=TableOptions(numeric=("city",)))
    (tmp_path / "nodes.csv").write_text(nodes(drop="split"))
    with pytest.raises(CvgnnError, match=r"30 mistakes(.|\n)*'Rome' is no date and no number"):
        read_graph(tmp_path, tables=TableOptions(split_by="city"))


def test_an_id_is_no_class_and_a_measured_number_is_a_target(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n")
    rows = "".join(f"{i},{i % 9},{i * 7},{i / 7:.3f}\n" for i in range(200))
    (tmp_path / "nodes.csv").write_text(f"id,f,label,price\n{rows}")
    with pytest.raises(
        CvgnnError, match="200 different labels in 200 rows; a label is a class, not an id; name another"
    ):
        read_graph(tmp_path)
    graph = read_graph(tmp_path, tables=TableOptions(label_column="price", ignore=("label",)))
    assert graph.y.shape == (200, 1)
    assert graph.y[:, 0].tolist() == [float(f"{i / 7:.3f}") for i in range(200)]
    whole = read_graph(tmp_path, tables=TableOptions(label_kind="number", ignore=("price",)))
    assert whole.y[:, 0].tolist() == [7.0 * i for i in range(200)]


def test_several_labels_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    cells = [("a", "x|y", "1", "yes"), ("b", "y", "0", "yes"), ("c", "", "", ""), ("d", "x", "1", "no")]
    rows = "".join(f"{i},{cell},{x},{y},{len(i)}.5\n" for i, cell, x, y in cells)
    (tmp_path / "nodes.csv").write_text(f"id,label,x,y,f\n{rows}")
    options = TableOptions(ignore=("x", "y"))
    split = RandomSplit(train=0.5, val=0.25)
    one = read_graph(tmp_path, tables=options, split=split)
    several = read_graph(tmp_path, tables=TableOptions(label_columns=("x", "y"), ignore=("label",)), split=split)
    for graph in (one, several):
        assert graph.y.tolist() == [[1, 1], [0, 1], [-1, -1], [1, 0]]
        assert graph.class_names == ("x", "y")
        assert 2 not in torch.cat([graph.train_ids, graph.val_ids, graph.test_ids]).tolist()
    classes = read_graph(tmp_path, tables=TableOptions(ignore=("x", "y"), label_kind="class"), split=split)
    assert classes.class_names == ("x", "x|y", "y")
    for wrong, sentence in (
        (TableOptions(label_columns=("label", "x"), ignore=("y",)), r"label 'x\|y' in column 'label' is no number"),
        (TableOptions(label_columns=("z",)), "unknown column 'z'"),
        (TableOptions(ignore=("x", "y"), label_kind="number"), "label 'x' is no finite number"),
        (
            TableOptions(label_columns=("x", "y"), ignore=("label",), label_kind="class"),
            "one class a node, in one column",
        ),
        (TableOptions(label_columns=("x", "f"), ignore=("label",), label_kind="labels"), "columns of 0 and 1, and"),
    ):
        with pytest.raises(CvgnnError, match=sentence):
            read_graph(tmp_path, tables=wrong, split=split)
    options = TableOptions(label_columns=("x", "y"), ignore=("label",), label_kind="number")
    assert read_graph(tmp_path, tables=options, split=split).label_kind == "targets"
    single = read_graph(tmp_path, tables=TableOptions(label_columns=("x",), ignore=("label",)), split=split)
    assert single.y.tolist() == [[1], [0], [-1], [1]]
    with pytest.raises(CvgnnError, match="unknown label_kind 'many'"):
        TableOptions(label_kind="many")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"split_column": "label"},
            "column 'label' cannot be both label and split; name another one with --label-column",
        ),
        ({"label_column": "id"}, "column 'id' cannot be both id and label"),
        ({"target_column": "source"}, "column 'source' cannot be both source and target"),
        ({"weight_column": "source"}, "column 'source' cannot be both source and weight"),
        ({"split_by": "joined"}, "--split-by: .*column 'split' is the split already; leave that out with --ignore"),
        ({"split_by": "label", "ignore": ("split",)}, "--split-by: .*column 'label' is the id or a label"),
    ],
    ids=str,
)
def test_a_column_with_two_roles(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match=sentence):
        read_graph(write(tmp_path, {}), tables=TableOptions(**options))


def test_a_split_by_time_in_place_of_the_split_column(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path, {}), tables=TableOptions(split_by="joined", ignore=("split",)))
    assert graph.split.startswith("by joined")


def test_new_rows_without_a_training_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fitted = read_graph(write(tmp_path, {})).preprocessing
    assert fitted is not None
    new = tmp_path / "new"
    new.mkdir()
    write(new, {"nodes.csv": every("split", lambda _: "test")})
    assert read_graph(new, preprocessing=fitted).split.startswith("random")
    assert "no row is 'train', so its split is not used but made: random" in caplog.text


def test_lists_of_different_scale_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    x = [[float(a), float(b)] for a, b in rng.normal(size=(40, 2)) * [1.0, 5e4]]
    columns = {"id": list(range(40)), "v": x, "label": [i % 2 for i in range(40)]}
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    read_graph(tmp_path)
    assert "the entries of the lists in column 'v' differ in scale" in caplog.text
