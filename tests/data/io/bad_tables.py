"""Tables with mistakes that people make: what the folder holds, and what the report must say.

Each case changes a good folder. An error names every mistake; a case of `TOLD` can be trained on, and a line of the log
tells what is odd.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ["id", "age", "income", "city", "joined", "member", "label", "split"]
ROWS = [
    [f"n{i}", str(20 + i * 7 % 31), str(1000 * (i * 3 % 17) + 500), ("Rome", "Oslo", "Lima")[i % 3],
     f"2024-01-{i + 1:02}", ("yes", "no")[i % 4 == 0], ("a", "b")[i * i % 5 % 2],
     ("train", "train", "train", "val", "test")[i % 5]]
    for i in range(40)
    if i < 30
]  # fmt: skip
ENDS = [[f"n{i}", f"n{(i + 1) % 30}", str(1 + i % 3)] for i in range(30)]

Files = dict[str, str | bytes | None]
"""Contents by name; None removes a file of the good folder."""


def csv(rows: list[list[str]], header: list[str], delimiter: str = ",") -> str:
    return "".join(delimiter.join(row) + "\n" for row in [header, *rows])


def nodes(*cells: tuple[int, str, str], drop: str = "", rename: dict[str, str] | None = None) -> str:
    """The good table of nodes with other cells (row from 0, column, text), columns dropped or renamed."""
    rows = [list(row) for row in ROWS]
    for row, column, text in cells:
        rows[row][COLUMNS.index(column)] = f'"{text}"' if "," in text else text
    keep = [i for i, name in enumerate(COLUMNS) if name not in drop.split()]
    names = [(rename or {}).get(COLUMNS[i], COLUMNS[i]) for i in keep]
    return csv([[row[i] for i in keep] for row in rows], names)


def edges(*cells: tuple[int, int, str], header: str = "source,target,weight", more: str = "") -> str:
    """The good table of edges with other cells (row, column from 0, text) and lines at the end."""
    rows = [list(row) for row in ENDS]
    for row, column, text in cells:
        rows[row][column] = f'"{text}"' if "," in text else text
    return csv(rows, header.split(",")) + more


def every(column: str, text: Callable[[int], str]) -> str:
    """The good table of nodes with a whole column replaced."""
    return nodes(*((i, column, text(i)) for i in range(30)))


def parquet(**columns: Any) -> bytes:
    """The good table of nodes as Parquet, with other or further columns."""
    good: dict[str, Any] = {name: [row[i] for row in ROWS] for i, name in enumerate(COLUMNS)}
    stream = io.BytesIO()
    pq.write_table(pa.table(good | columns), stream)
    return stream.getvalue()


def as_parquet(**columns: Any) -> Files:
    return {"nodes.csv": None, "nodes.parquet": parquet(**columns)}


def two_columns_alike() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]), stream)
    return stream.getvalue()


NODES, EDGES = nodes(), edges()
SLIM = nodes(drop="age income city joined member")
LINES = NODES.splitlines(keepends=True)


def with_lines(**lines: str) -> str:
    """The good table of nodes with other lines: `L3="..."` replaces the third."""
    changed = list(LINES)
    for name, text in lines.items():
        changed[int(name[1:]) - 1] = text
    return "".join(changed)


def integers(first: int, first_in_edges: int) -> Files:
    """Integer ids that count from one number in the nodes and from another in the edges."""
    rows = [[str(i + first), *row[1:]] for i, row in enumerate(ROWS)]
    ends = [[str(i + first_in_edges), str((i + 1) % 30 + first_in_edges), "1"] for i in range(30)]
    return {"nodes.csv": csv(rows, COLUMNS), "edges.csv": csv(ends, ["source", "target", "weight"])}


ERRORS: list[tuple[str, Files, list[str]]] = [
    # Files
    ("no table of nodes", {"nodes.csv": None}, ["it has no nodes.csv and no nodes.parquet", "it holds: edges.csv"]),
    ("no table of edges", {"edges.csv": None}, ["it has no edges.csv and no edges.parquet"]),
    ("an empty folder", {"nodes.csv": None, "edges.csv": None}, ["it has no nodes.csv", "it holds: nothing"]),
    ("a workbook beside it", {"nodes.csv": None, "nodes.xlsx": b"PK\3\4"}, ["no nodes.csv", "edges.csv, nodes.xlsx"]),
    ("capital letters in the file's name", {"nodes.csv": None, "Nodes.CSV": NODES}, ["it holds: Nodes.CSV, edges.csv"]),
    ("two tables of nodes", {"nodes.tsv": NODES}, ["it has both nodes.csv and nodes.tsv"]),
    ("an empty file", {"nodes.csv": ""}, ["nodes.csv is empty; its first line must name the columns"]),
    ("blank lines only", {"nodes.csv": "\n\n   \n"}, ["nodes.csv is empty"]),
    ("both files empty", {"nodes.csv": "", "edges.csv": ""}, ["2 mistakes", "nodes.csv is empty", "edges.csv is empty"]),
    ("no rows", {"nodes.csv": LINES[0]}, ["nodes.csv has no rows"]),
    ("a workbook named csv", {"nodes.csv": b"PK\3\4" + bytes(99)}, ["nodes.csv is no CSV file but an Excel workbook"]),
    ("an old workbook named csv", {"nodes.csv": b"\xd0\xcf\x11\xe0" + bytes(9)}, ["Excel workbook; save it as CSV"]),
    ("gzip named csv", {"nodes.csv": gzip.compress(NODES.encode())}, ["compressed by gzip; name it nodes.csv.gz"]),
    ("Parquet named csv", {"nodes.csv": parquet()}, ["a Parquet file; name it nodes.parquet"]),
    ("an HTML page", {"edges.csv": "<!DOCTYPE html><title>404</title>"}, ["edges.csv is no CSV file but HTML or XML"]),
    ("JSON", {"edges.csv": '[{"source": "n0", "target": "n1"}]'}, ["edges.csv is no CSV file but JSON"]),
    ("a picture", {"nodes.csv": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"}, ["it holds zero bytes, as binary files do"]),
    ("gz that is not gz", {"nodes.csv": None, "nodes.csv.gz": NODES}, ["not compressed as its name says (.gz)"]),
    ("truncated gz", {"nodes.csv": None, "nodes.csv.gz": gzip.compress(NODES.encode())[:200]}, ["nodes.csv.gz is damaged"]),
    ("zst that is not zst", {"edges.csv": None, "edges.csv.zst": EDGES}, ["edges.csv.zst is damaged, or not compressed"]),
    ("CSV named parquet", {"nodes.csv": None, "nodes.parquet": NODES}, ["nodes.parquet is damaged, or no Parquet file"]),
    ("truncated Parquet", {"nodes.csv": None, "nodes.parquet": parquet()[:900]}, ["nodes.parquet is damaged"]),
    ("an empty Parquet file", {"nodes.csv": None, "nodes.parquet": b""}, ["nodes.parquet is damaged, or no Parquet file"]),
    ("swapped files", {"nodes.csv": EDGES, "edges.csv": NODES}, ["it looks like a table of edges: are the two files swapped?", "edges.csv has no column 'source'", "edges.csv has no column 'target'"]),
    ("the same file twice", {"edges.csv": NODES}, ["edges.csv has no column 'source'", "edges.csv has no column 'target'"]),
    # Header
    ("no header in the nodes", {"nodes.csv": "".join(LINES[1:])}, ["no column 'id'", "no column 'label'", "its first line looks like a row of data"]),
    ("no header in the edges", {"edges.csv": EDGES.partition("\n")[2]}, ["edges.csv has no column 'source'", "looks like a row of data"]),
    ("no id column", {"nodes.csv": nodes(drop="id")}, ["nodes.csv has no column 'id'; its columns are: age, income"]),
    ("a column renamed", {"nodes.csv": nodes(rename={"id": "customer"})}, ["no column 'id'", "name it with --id-column"]),
    ("a column misspelled", {"nodes.csv": nodes(rename={"label": "lable"})}, ["no column 'label'", "did you mean 'lable'?"]),
    ("columns missing in both files", {"nodes.csv": nodes(drop="id label"), "edges.csv": edges(header="a,b,weight")}, ["4 mistakes", "no column 'id'", "no column 'label'", "no column 'source'", "no column 'target'"]),
    ("a column twice", {"nodes.csv": nodes(rename={"income": "age"})}, ["nodes.csv has two columns 'age'"]),
    ("two columns twice, and one missing", {"nodes.csv": nodes(rename={"income": "age", "member": "city", "label": "x"})}, ["3 mistakes", "two columns 'age'", "two columns 'city'", "no column 'label'"]),
    ("the id twice", {"nodes.csv": nodes(rename={"age": "id"})}, ["nodes.csv has two columns 'id'"]),
    ("no features", {"nodes.csv": SLIM}, ["nodes.csv has no features: no column besides id, label and split"]),
    ("Excel's line sep=;", {"nodes.csv": "sep=;\n" + NODES}, ["line 1: 'sep=;' is a note of Excel's; remove the line"]),
    ("a title above the header", {"nodes.csv": "Customers of 2024\n" + NODES}, ["no column 'id'", "it has one column only"]),
    ("a comment above the header", {"edges.csv": "# exported by us\n" + EDGES}, ["no column 'source'", "its columns are: # exported by us"]),
    ("one column of edges", {"edges.csv": "source\nn0\n"}, ["edges.csv has no column 'target'", "it has one column only"]),
    ("a weight misspelled", {"edges.csv": edges(header="source,target,wieght")}, ["unknown column 'wieght'", "did you mean 'weight'?"]),
    # Structure of the text
    ("spaces between cells", {"nodes.csv": NODES.replace(",", " ")}, ["it has one column only: separate columns by a comma"]),
    ("colons between cells", {"nodes.csv": NODES.replace(",", ":")}, ["no column 'id'", "it has one column only"]),
    ("semicolons below a header with commas", {"nodes.csv": LINES[0] + "".join(LINES[1:]).replace(",", ";")}, ["30 mistakes", "line 2: 1 fields, but the first line names 8 columns", "... and 10 more"]),
    ("a short row", {"nodes.csv": with_lines(L5="n3,41,9500\n")}, ["nodes.csv, line 5: 3 fields, but the first line names 8 columns"]),
    ("a comma without quotes", {"nodes.csv": with_lines(L4=LINES[3].replace("Lima", "Lima, Peru"))}, ["line 4: 9 fields", "a cell that holds ',' needs quotes"]),
    ("a decimal comma without quotes", {"nodes.csv": with_lines(L4=LINES[3].replace(",34,", ",34,5,"))}, ["line 4: 9 fields"]),
    ("several rows of another length", {"nodes.csv": with_lines(L3="n1,1\n", L9="n7\n", L12=LINES[11][:-1] + ",x,y\n")}, ["3 mistakes", "line 3: 2 fields", "line 9: 1 fields", "line 12: 10 fields"]),
    ("a delimiter at the end of each row", {"nodes.csv": LINES[0] + "".join(line[:-1] + ",\n" for line in LINES[1:])}, ["30 mistakes", "line 2: 9 fields"]),
    ("the header again, in the middle", {"nodes.csv": "".join(LINES[:9]) + LINES[0] + "".join(LINES[9:])}, ["line 10: the names of the columns again; remove the line"]),
    ("the header of edges again", {"edges.csv": edges(more="source,target,weight\n")}, ["edges.csv, line 32: the names of the columns again"]),
    ("a quote that is not closed", {"nodes.csv": with_lines(L4=LINES[3].replace("Lima", '"Lima'))}, ["nodes.csv, line 4: a quote is not closed"]),
    ("a quote that is not closed at the end", {"nodes.csv": NODES + '"n30,1\n'}, ["nodes.csv, line 32: a quote is not closed"]),
    ("text after a quote", {"nodes.csv": with_lines(L4=LINES[3].replace("Lima", '"Li"ma'))}, ["nodes.csv, line 4: ',' expected after '\"'"]),
    ("two broken quotes and a short row", {"nodes.csv": with_lines(L4=LINES[3].replace("Lima", '"Lima'), L8='n6,"x"\n', L20=LINES[19].replace("Rome", '"Rome'))}, ["3 mistakes", "line 4: a quote", "line 8: 2 fields", "line 20: a quote"]),
    ("broken quotes in both files", {"nodes.csv": with_lines(L4=LINES[3].replace("Lima", '"Lima')), "edges.csv": edges(more='n0,"n1\n')}, ["2 mistakes", "nodes.csv, line 4: a quote", "edges.csv, line 32: a quote"]),
    ("a quote in the header", {"nodes.csv": NODES.replace("city", '"city', 1)}, ["nodes.csv, line 1: a quote is not closed"]),
    ("zero bytes", {"edges.csv": edges(more="n0,n\x005,1\n")}, ["edges.csv is no CSV file: it holds zero bytes"]),
    ("bytes of no encoding", {"nodes.csv": NODES.replace("Oslo", "Osl\x81").encode("latin1")}, ["nodes.csv is not UTF-8 text"]),
    # Ids
    ("an id twice", {"nodes.csv": nodes((6, "id", "n2"))}, ["line 8, column 'id': 'n2' was listed before, at line 4"]),
    ("an id twice with two splits", {"nodes.csv": NODES + LINES[1].replace("train", "test")}, ["line 32, column 'id': 'n0' was listed before, at line 2"]),
    ("the file appended to itself", {"nodes.csv": NODES + "".join(LINES[1:])}, ["30 mistakes", "'n0' was listed before", "... and 10 more"]),
    ("ids missing", {"nodes.csv": nodes((6, "id", ""), (9, "id", ""))}, ["2 mistakes", "line 8, column 'id': nothing where", "line 11, column 'id'"]),
    ("empty rows of Excel's", {"nodes.csv": NODES + ",,,,,,,\n,,,,,,,\n"}, ["2 mistakes", "line 32, column 'id': nothing where the node's id must be"]),
    ("an id of two thousand letters", {"nodes.csv": nodes((6, "id", "x" * 2000))}, ["line 8, column 'id': 2000 characters"]),
    ("ids in the edges end in a space", {"edges.csv": edges((1, 1, "n2 "))}, ["line 3, column 'target': 'n2 ' is no node, but 'n2' is"]),
    ("ids in capitals", {"edges.csv": edges((1, 0, "N1"), (4, 1, "N5"))}, ["2 mistakes", "'N1' is no node, but 'n1' is", "'N5' is no node, but 'n5' is"]),
    ("ids with a no-break space", {"edges.csv": edges((1, 0, "n1\u00a0"))}, ["is no node, but 'n1' is"]),
    ("a byte order mark within the file", {"edges.csv": edges((1, 0, "\ufeffn1"))}, ["is no node, but 'n1' is"]),
    ("leading zeros lost", {"nodes.csv": NODES.replace("\nn", "\n00"), "edges.csv": edges().replace("n", "")}, ["column 'source': '0' is no node, but '000' is"]),
    ("Excel's 1.23E+11", {"edges.csv": edges((1, 0, "1.23E+11"))}, ["column 'source': '1.23E+11' is no node"]),
    ("edges count from 1, nodes from 0", integers(0, 1), ["'30' is no node (nodes count from 0: do the edges count from 1?)"]),
    ("edges count from 0, nodes from 1", integers(1, 0), ["'0' is no node (nodes count from 1: do the edges count from 0?)"]),
    ("ids with a fraction", as_parquet(id=[i + 0.5 for i in range(30)]), ["30 mistakes", "row 1, column 'id': 0.5 is neither an integer nor a string"]),
    # Edges
    ("edges to nodes that are not there", {"edges.csv": edges((1, 0, "x1"), (1, 1, "x2"), (7, 1, "x1"))}, ["3 mistakes", "line 3, column 'source': 'x1' is no node", "line 3, column 'target': 'x2'", "line 9, column 'target': 'x1'"]),
    ("an edge without an end", {"edges.csv": edges((3, 1, ""))}, ["line 5, column 'target': nothing where a node's id must be"]),
    ("two nodes in one cell", {"edges.csv": edges((3, 1, "n1;n2"))}, ["line 5, column 'target': 'n1;n2' is no node"]),
    ("row numbers instead of ids", {"edges.csv": edges().replace("n", "")}, ["60 mistakes", "'0' is no node"]),
    ("edges with two weights", {"edges.csv": edges(more="n1,n0,9\nn2,n1,8\nn3,n2,3\n")}, ["2 mistakes", "line 32, column 'weight': 9, but line 2 gives the same edge weight 1", "line 33, column 'weight': 8, but line 3"]),
    ("a negative weight", {"edges.csv": edges((2, 2, "-1"), (5, 2, "0"))}, ["2 mistakes", "line 4, column 'weight': -1; weights must be positive", "line 7, column 'weight': 0;"]),
    ("weights missing", {"edges.csv": edges((2, 2, ""), (5, 2, "NaN"))}, ["2 mistakes", "line 4, column 'weight': nothing where a number must be"]),
    ("an infinite weight", {"edges.csv": edges((2, 2, "inf"))}, ["line 4, column 'weight': inf is not a finite number"]),
    ("a word for a weight", {"edges.csv": edges((2, 2, "strong"))}, ["line 4, column 'weight': 'strong' is no number"]),
    ("a decimal comma in a weight", {"edges.csv": edges((2, 2, "0,5"))}, ["line 4, column 'weight': '0,5' is no number"]),
    # Labels and split
    ("no labels", {"nodes.csv": every("label", lambda _: "")}, ["column 'label': no node has a label"]),
    ("labels that are all NA", {"nodes.csv": every("label", lambda _: "NA")}, ["column 'label': no node has a label"]),
    ("-1 for unknown labels", {"nodes.csv": every("label", lambda i: str(i % 3 - 1))}, ["column 'label': -1 is no class; leave the cell empty", "(10 rows)"]),
    ("an id as label", {"nodes.csv": "id,f,label\n" + "".join(f"n{i},{i % 7},c{i}\n" for i in range(90)), "edges.csv": "source,target\nn0,n1\n"}, ["90 different labels in 90 rows"]),
    ("labels missing in the split", {"nodes.csv": nodes((0, "label", ""), (4, "label", ""))}, ["2 mistakes", "line 2, column 'label': nothing, but the node is in the train split", "line 6, column 'label'"]),
    ("unknown splits", {"nodes.csv": nodes((0, "split", "trian"), (3, "split", "holdout"), (8, "split", "holdout"))}, ["2 mistakes", "line 2, column 'split': unknown split 'trian'", "did you mean 'train'?", "line 5, column 'split': unknown split 'holdout'", "(2 rows)"]),
    ("numbers as splits", {"nodes.csv": every("split", lambda i: str(i % 3))}, ["unknown split '0'", "unknown split '1'", "unknown split '2'", "no row is 'train'"]),
    ("a node in two splits", {"nodes.csv": nodes((0, "split", "train;test"))}, ["unknown split 'train;test'"]),
    ("no training nodes", {"nodes.csv": every("split", lambda _: "val")}, ["column 'split': no row is 'train'; mark the training nodes"]),
    # Features
    ("a word for a number", {"nodes.csv": nodes((6, "age", "forty"))}, ["line 8, column 'age': 'forty' is no number"]),
    ("words in several columns", {"nodes.csv": nodes((6, "age", "old"), (7, "income", "much"), (9, "age", "??"))}, ["3 mistakes", "line 8, column 'age': 'old'", "line 11, column 'age': '??'", "line 9, column 'income': 'much'"]),
    ("Excel's errors", {"nodes.csv": nodes((6, "age", "#REF!"), (7, "income", "#DIV/0!"))}, ["2 mistakes", "'#REF!' is no number", "'#DIV/0!' is no number"]),
    ("the letter O for a zero", {"nodes.csv": nodes((6, "age", "4O"))}, ["line 8, column 'age': '4O' is no number"]),
    ("words and numbers in one column", {"nodes.csv": every("age", lambda i: str(i) if i % 5 else "unknown")}, ["6 mistakes", "line 2, column 'age': 'unknown' is no number"]),
    ("decimal commas", {"nodes.csv": every("income", lambda i: f"{i * 37},50")}, ["column 'income': '0,50' looks like a number in another notation"]),
    ("decimal commas beside semicolons", {"nodes.csv": nodes().replace(",", ";").replace("500;", "500,5;")}, ["column 'income': '500,5' looks like a number in another notation"]),
    ("thousands separators", {"nodes.csv": every("income", lambda i: f"{i + 1},{i:03}")}, ["column 'income': '1,000' looks like a number"]),
    ("thousands by spaces", {"nodes.csv": every("income", lambda i: f"{i + 1} {i:03}")}, ["column 'income': '1 000' looks like a number"]),
    ("currencies", {"nodes.csv": every("income", lambda i: f"${i * 37}")}, ["column 'income': '$0' looks like a number"]),
    ("percentages", {"nodes.csv": every("age", lambda i: f"{i * 37 % 100}%")}, ["column 'age': '0%' looks like a number"]),
    ("units", {"nodes.csv": every("age", lambda i: f"{50 + i} kg")}, ["column 'age': '50 kg' looks like a number"]),
    ("a unit in one cell", {"nodes.csv": nodes((6, "age", "40 years"))}, ["line 8, column 'age': '40 years' is no number"]),
    ("a date that does not exist", {"nodes.csv": nodes((6, "joined", "2024-02-30"))}, ["line 8, column 'joined': '2024-02-30' is no date of the column's form, 2024-01-31"]),
    ("dates of three forms", {"nodes.csv": every("joined", lambda i: (f"2024-03-{i + 1:02}", f"{i + 1:02}.03.2024", f"{i + 1:02}-Mar-2024")[i % 3])}, ["20 mistakes", "'02.03.2024' is no date of the column's form, 2024-01-31", "'03-Mar-2024' is no date"]),
    ("day and month may be swapped", {"nodes.csv": every("joined", lambda i: f"0{i % 9 + 1}/0{i % 7 + 1}/2024")}, ["'01/01/2024': the dates may be day/month or month/day"]),
    ("a number that Excel took for a date", {"nodes.csv": nodes((6, "age", "03-Apr"))}, ["line 8, column 'age': '03-Apr' is no number"]),
    ("neither true nor false", {"nodes.csv": nodes((8, "member", "maybe"))}, ["line 10, column 'member': 'maybe' is neither true nor false"]),
    ("infinite numbers", {"nodes.csv": nodes((6, "income", "inf"), (7, "income", "-Infinity"))}, ["2 mistakes", "line 8, column 'income': inf is not a finite number", "line 9, column 'income': -inf"]),
    ("a number beyond all bounds", {"nodes.csv": nodes((6, "income", "1e300"))}, ["line 8, column 'income': inf is not a finite number"]),
    ("only names of people", {"nodes.csv": "id,name,label\n" + "".join(f"n{i},Ann {i},{'ab'[i % 2]}\n" for i in range(50)), "edges.csv": "source,target\nn0,n1\n"}, ["no column that can be a feature", "name: 30 different values in 30 cells"]),
    # A third table
    ("features in two tables", {"features.csv": "id,f\nn0,1\n"}, ["nodes.csv has features (age, income, city) and there is features.csv"]),
    ("features of too few nodes", {"nodes.csv": SLIM, "features.csv": "id,f\n" + "".join(f"n{i},{i}\n" for i in range(28))}, ["2 mistakes", "no row for node 'n28'", "no row for node 'n29'"]),
    ("features of unknown nodes", {"nodes.csv": SLIM, "features.csv": "id,f\n" + "".join(f"n{i},{i}\n" for i in range(32))}, ["2 mistakes", "line 32, column 'id': 'n30' is no node", "line 33, column 'id': 'n31'"]),
    ("features of a node twice", {"nodes.csv": SLIM, "features.csv": "id,f\nn0,7\n" + "".join(f"n{i},{i}\n" for i in range(30))}, ["features.csv, line 3, column 'id': 'n0' was listed before, at line 2"]),
    ("features without ids", {"nodes.csv": SLIM, "features.csv": "f,g\n1,2\n"}, ["features.csv has no column 'id'"]),
    # Parquet
    ("a nested column", as_parquet(place=[{"x": 1.0, "y": 2.0}] * 30), ["column 'place': holds struct<", "name it in --ignore"]),
    ("two columns that are no features", as_parquet(blob=[b"x"] * 30, length=pa.array([1] * 30, pa.duration("s"))), ["2 mistakes", "column 'blob': holds binary", "column 'length': holds duration"]),
    ("lists of different lengths", as_parquet(vector=[[1.0, 2.0]] * 28 + [[1.0], [1.0, 2.0, 3.0]]), ["2 mistakes", "row 29, column 'vector': 1 numbers, but the first row has 2", "row 30"]),
    ("lists with gaps", as_parquet(vector=[[1.0, 2.0]] * 28 + [[1.0, None], None]), ["column 'vector': nothing where a number must be"]),
    ("lists of words", as_parquet(tags=[["a", "b"]] * 30), ["column 'tags': holds list<", "lists must hold numbers"]),
    ("a list as label", as_parquet(label=[["a"]] * 30), ["column 'label': holds list<", "it must hold integers or strings"]),
    ("two columns of one name in Parquet", {"nodes.csv": None, "nodes.parquet": two_columns_alike()}, ["nodes.parquet has two columns 'id'", "has no column 'label'"]),
    ("infinite numbers in all rows", {"nodes.csv": every("age", lambda _: "1e999")}, ["30 mistakes", "is not a finite number"]),
    # Both files at once
    ("mistakes everywhere", {"nodes.csv": nodes((2, "age", "x"), (5, "joined", "z"), (9, "split", "w"), (11, "income", "1e999")), "edges.csv": edges((0, 0, "q"), (1, 2, "-3"))}, ["6 mistakes", "'x' is no number", "'z' is no date", "unknown split 'w'", "'1e999' is not a finite number", "'q' is no node", "-3; weights must be positive"]),
    ("more than twenty", {"edges.csv": edges(more="".join(f"n0,x{i},1\n" for i in range(50)))}, ["50 mistakes in the tables:", "... and 30 more"]),
]  # fmt: skip

TOLD: list[tuple[str, Files, list[str]]] = [
    ("a measured number as label", {"nodes.csv": "id,f,label\n" + "".join(f"n{i},{i % 7},{i / 7:.3f}\n" for i in range(90)), "edges.csv": "source,target\nn0,n1\n"}, ["column 'label' holds numbers to predict"]),
    ("row numbers of pandas", {"nodes.csv": "".join(f"{i - 1 if i else ''},{line}" for i, line in enumerate(LINES))}, ["column 1 has no name and is left out"]),
    ("Unnamed: 0", {"nodes.csv": "".join(f"{i - 1 if i else 'Unnamed: 0'},{line}" for i, line in enumerate(LINES))}, ["Unnamed: 0 has no name and is left out"]),
    ("a delimiter at the end of every line", {"nodes.csv": "".join(line[:-1] + ",\n" for line in LINES)}, ["column 9 has no name and is left out"]),
    ("a column that counts the rows", {"nodes.csv": every("age", lambda i: str(i + 1))}, ["column 'age' counts the rows; name it in --ignore"]),
    ("Windows-1252", {"nodes.csv": NODES.replace("Oslo", "Örebro").encode("cp1252")}, ["is not UTF-8 (line 3); it is read as Windows-1252"]),
    ("one line of another encoding", {"nodes.csv": NODES.encode() + LINES[1].replace("n0", "nö").encode("latin1"), "edges.csv": edges(more="nö,n0,1\n")}, ["is not UTF-8 (line 32)"]),
    ("integers written as 1.0", {"nodes.csv": integers(0, 0)["nodes.csv"], "edges.csv": csv([[f"{i}.0", f"{(i + 1) % 30}.0"] for i in range(30)], ["source", "target"])}, ["column 'source' holds integers, written as 1.0"]),
    ("self loops", {"edges.csv": edges(more="n1,n1,1\nn2,n2,1\n")}, ["2 edges lead from a node to itself and are left out"]),
    ("only self loops", {"edges.csv": "source,target\nn1,n1\n"}, ["30 of 30 nodes have no edge"]),
    ("no edges", {"edges.csv": "source,target\n"}, ["30 of 30 nodes have no edge"]),
    ("further columns of edges", {"edges.csv": "source,target,kind,when\nn0,n1,a,b\n" + "".join(f"n{i},n0,a,b\n" for i in range(30))}, ["edges.csv: not used: kind, when"]),
    ("one class", {"nodes.csv": every("label", lambda _: "a")}, ["all labels are a, so there is nothing to learn"]),
    ("a class without training nodes", {"nodes.csv": nodes((3, "label", "c"), (8, "label", "c"))}, ["1 classes have no training node: c; they are never predicted"]),
    ("a label misspelled once", {"nodes.csv": nodes((6, "label", "aa"))}, ["1 classes have a single node: aa; is the label misspelled?"]),
    ("a label for each node", {"nodes.csv": every("label", lambda i: f"x{i}").replace(",train", ",").replace(",val", ",").replace(",test", ",").replace("split", "spare")}, ["30 nodes have 30 different labels; is the label another column?"]),
    ("labels in capitals", {"nodes.csv": nodes((6, "label", "A"), (7, "label", "A"))}, ["labels differ in case or spaces alone: 'A' and 'a'"]),
    ("labels with spaces", {"nodes.csv": nodes((6, "label", "a "), (7, "label", "a "))}, ["labels differ in case or spaces alone: 'a' and 'a '"]),
    ("labels with fractions", {"nodes.csv": every("label", lambda i: ("1.5", "2.5", "3")[i % 3])}, ["labels such as 1.5 are numbers with a fraction"]),
    ("labels of floats", {"nodes.csv": every("label", lambda i: ("0.0", "1.0", "")[i % 3]).replace(",train", ",").replace(",val", ",").replace(",test", ",").replace("split", "spare")}, ["column 'label' holds integers, written as 1.0"]),
    ("NA as label", {"nodes.csv": nodes((6, "label", "N/A"), (6, "split", ""))}, ["1 labels such as 'N/A' are read as unknown"]),
    ("a copy of the label with a gap", {"nodes.csv": every("city", lambda i: ROWS[i][6].upper() if i % 9 else "")}, ["column 'city' alone tells the label of every training node"]),
    ("a copy of the label", {"nodes.csv": every("city", lambda i: ROWS[i][6].upper())}, ["column 'city' alone tells the label of every training node"]),
    ("no validation nodes", {"nodes.csv": every("split", lambda i: ("train", "test")[i % 2])}, ["the val split is empty"]),
    ("no test nodes", {"nodes.csv": every("split", lambda i: ("train", "val")[i % 2])}, ["the test split is empty"]),
    ("-999 for missing", {"nodes.csv": nodes(*((i, "age", "-999") for i in (0, 5, 10, 15)))}, ["column 'age' is -999 in 4 training nodes"]),
    ("9999-12-31 for no date", {"nodes.csv": nodes(*((i, "joined", "9999-12-31") for i in (0, 5, 10)))}, ["column 'joined' has dates as late as 9999-12-31; leave the cell empty if it is missing"]),
    ("categories in capitals", {"nodes.csv": nodes((0, "city", "ROME"))}, ["values of column 'city' differ in case or spaces alone"]),
    ("features that never change", {"nodes.csv": "id,f,label\n" + "".join(f"n{i},7,{'ab'[i % 2]}\n" for i in range(30))}, ["no column differs between training nodes"]),
    ("an empty column", {"nodes.csv": every("age", lambda _: "")}, ["age     dropped   no training node has a value"]),
    ("blank cells", {"nodes.csv": nodes((0, "age", "  "), (5, "age", " "))}, ["age     number    standardised", "% missing, with an indicator"]),
    ("Excel's #N/A", {"nodes.csv": nodes((0, "age", "#N/A"), (5, "age", "#N/A"))}, ["age     number    standardised", "% missing, with an indicator"]),
    ("a column of names", {"nodes.csv": every("city", lambda i: f"Street {i}")}, ["city    dropped  18 different values in 18 cells"]),
    ("capitals in the header", {"nodes.csv": nodes(rename={"id": "ID", "label": "Label"})}, ["column 'ID' is the id", "column 'Label' is the label"]),
    ("UTF-16 without its mark", {"nodes.csv": NODES.encode("utf-16-le")}, ["columns of nodes.csv, fitted on 18 training nodes"]),
    ("time zones", as_parquet(seen=pa.array(range(30), pa.timestamp("s", "Europe/Oslo"))), ["seen    date      age in days"]),
    ("huge integers", {"nodes.csv": every("income", lambda i: str(10**20 + i * 10**18))}, ["income  number    standardised"]),
]  # fmt: skip
