"""Tables with typical mistakes: one report names all of them, and nothing is trained on nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cvgnn.data.io import read_graph
from cvgnn.data.split import RandomSplit
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import CvgnnError

COLUMNS = ("id", "age", "income", "city", "joined", "member", "label", "split")
ROWS = [
    [f"n{i}", str(20 + i), str(1000 * i + 500), ("Rome", "Oslo")[i % 2], f"2024-01-{i + 1:02}", ("yes", "no")[i % 3 == 0],
     ("a", "b")[i % 2], ("train", "train", "train", "val", "test")[i % 5]]
    for i in range(20)
]  # fmt: skip
EDGES = [["n0", "n1", "1"], ["n1", "n2", "2"], ["n2", "n3", "0.5"]]

Cell = tuple[int, str, str]

# Cells of the nodes (row from 0, column, new text), cells of the edges, and parts of the report.
CASES: list[tuple[str, list[Cell], list[Cell], list[str]]] = [
    *(
        (f"{column}: {text!r}", [(6, column, text)], [], [f"line 8, column '{column}': {text!r} is no number"])
        for column in ("age", "income")
        for text in ("abc", "12a", "1 2", "1.2.3", "--5", "12 years", "twelve", "5%", "$5", "0x1G", "1e", "O5", "4O", "l7", "@")
    ),
    *(
        (f"joined: {text!r}", [(6, "joined", text)], [], [f"line 8, column 'joined': {text!r} is no date"])
        for text in ("soon", "2024-13-01", "2024-02-30", "01.02.2024", "2024", "yesterday", "2024-1-1", "today", "Jan 5", "0000-00-00")
    ),
    *(
        (f"member: {text!r}", [(8, "member", text)], [], [f"column 'member': {text!r} is neither true nor false"])
        for text in ("maybe", "2", "yess", "-1", "both")
    ),
    *(
        (f"split: {text!r}", [(6, "split", text)], [], [f"line 8, column 'split': unknown split {text!r}"])
        for text in ("trian", "tets", "holdout", "1", "val1", "T")
    ),
    *((f"id twice {i}", [(i, "id", "n0")], [], [f"line {i + 2}, column 'id': 'n0' was listed before"]) for i in (4, 9)),
    *((f"no id {i}", [(i, "id", "")], [], ["nothing where the node's id must be"]) for i in (4, 19)),
    *((f"no label {i}", [(i, "label", "")], [], [f"line {i + 2}, column 'label': nothing"]) for i in (0, 3, 4)),
    *(
        (f"{end} {text!r}", [], [(1, end, text)], [f"edges.csv, line 3, column {end!r}: "])
        for end in ("source", "target")
        for text in ("n99", "", "N1", "0", "n01", "n1.0", "x", "?", "n20", "n-1", "n1 ", "None")
    ),
    *(
        (f"weight {text!r}", [], [(1, "weight", text)], ["edges.csv, line 3, column 'weight': "])
        for text in ("0", "-1", "", "nan", "inf", "two", "-inf", "1e400", "NA", "1,5", "-0.0")
    ),
    *(
        (f"infinite {text}", [(6, "income", text)], [], ["line 8, column 'income': "])
        for text in ("inf", "-inf", "1e300", "Infinity")
    ),
    (
        "several at once",
        [(2, "age", "x"), (6, "income", "y"), (8, "joined", "z"), (9, "split", "w")],
        [(0, "source", "q"), (1, "weight", "-3")],
        ["6 mistakes in the tables:", "'x' is no number", "'y' is no number", "'z' is no date", "unknown split 'w'",
         "'q' is no node", "-3; weights must be positive"],
    ),
    (
        "decimal commas everywhere",
        [(i, "income", f'"{i},50"') for i in range(20)],
        [],
        ["column 'income': '0,50' looks like a number in another notation"],
    ),
    (
        "days and months that may be swapped",
        [(i, "joined", f"0{i % 9 + 1}/0{i % 7 + 1}/2024") for i in range(20)],
        [],
        ["column 'joined': '01/01/2024': the dates may be day/month or month/day"],
    ),
    ("no training nodes", [(i, "split", "val") for i in range(20)], [], ["column 'split': no row is 'train'"]),
    ("more than twenty", [], [(i % 3, "source", "q") for i in range(3)], ["3 mistakes in the tables"]),
]  # fmt: skip


def write(folder: Path, nodes: list[Cell], edges: list[Cell]) -> None:
    rows, ends = [list(row) for row in ROWS], [list(row) for row in EDGES]
    for row, column, text in nodes:
        rows[row][COLUMNS.index(column)] = text
    for row, column, text in edges:
        ends[row][("source", "target", "weight").index(column)] = f'"{text}"' if "," in text else text
    for name, header, lines in (("nodes", COLUMNS, rows), ("edges", ("source", "target", "weight"), ends)):
        (folder / f"{name}.csv").write_text("\n".join(map(",".join, [header, *lines])) + "\n")


def test_the_table_without_mistakes_is_read(tmp_path: Path) -> None:
    write(tmp_path, [], [])
    assert read_graph(tmp_path).num_nodes == 20


@pytest.mark.parametrize(("nodes", "edges", "parts"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_report_names_all_mistakes(nodes: list[Cell], edges: list[Cell], parts: list[str], tmp_path: Path) -> None:
    write(tmp_path, nodes, edges)
    with pytest.raises(CvgnnError) as caught:
        read_graph(tmp_path)
    for part in parts:
        assert part in str(caught.value)


def test_there_are_a_hundred_cases() -> None:
    assert len(CASES) >= 100


def test_the_first_twenty_are_told_and_the_others_counted(tmp_path: Path) -> None:
    write(tmp_path, [], [])
    with (tmp_path / "edges.csv").open("a") as file:
        file.writelines(f"n0,x{i},1\n" for i in range(50))
    with pytest.raises(CvgnnError) as caught:
        read_graph(tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == "50 mistakes in the tables:"
    assert len(lines) == 22
    assert lines[-1] == "  ... and 30 more"


def test_rows_of_another_length_are_all_told(tmp_path: Path) -> None:
    write(tmp_path, [], [])
    with (tmp_path / "nodes.csv").open("a") as file:
        file.write("m1,1\nm2,1,2,3,4,5,6,7,8,9\n")
    with pytest.raises(CvgnnError, match=r"2 mistakes(.|\n)*line 22: 2 fields(.|\n)*line 23: 10 fields"):
        read_graph(tmp_path)


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
        (TableOptions(ignore=("x", "y"), label_kind="number"), "label 'x' is not a number"),
    ):
        with pytest.raises(CvgnnError, match=sentence):
            read_graph(tmp_path, tables=wrong, split=split)
    with pytest.raises(CvgnnError, match="unknown label_kind 'many'"):
        TableOptions(label_kind="many")  # type: ignore[arg-type]


def test_mistakes_in_an_option(tmp_path: Path) -> None:
    write(tmp_path, [], [])
    with pytest.raises(CvgnnError, match=r"unknown column 'cty'.*did you mean 'city'"):
        read_graph(tmp_path, tables=TableOptions(category=("cty",)))
    with pytest.raises(CvgnnError, match="is in two of the options"):
        TableOptions(category=("city",), ignore=("city",))
