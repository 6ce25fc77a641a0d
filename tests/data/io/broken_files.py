"""Broken files, one per line: how to make the file, and the expected error message."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tests.data.io import writers
from tests.data.io.writers import pyg_data

Make = Callable[[Path], Path]

GOOD: dict[str, Any] = {
    "edge_index": np.array([[0, 1, 2], [1, 2, 3]]),
    "x": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], dtype=np.float32),
    "y": np.array([0, 1, 0, 1]),
    "train_ids": np.array([0, 1]),
    "val_ids": np.array([2]),
    "test_ids": np.array([3]),
}
CSR = {
    "x_data": np.ones(3),
    "x_indices": np.array([0, 1, 1]),
    "x_indptr": np.array([0, 1, 2, 3, 3]),
    "x_shape": np.array([4, 2]),
}
NODES = "id,f0,f1,label,split\na,1,2,cat,train\nb,3,4,dog,train\nc,5,6,cat,val\nd,7,8,,\n"
EDGES = "source,target,weight\na,b,1\nb,c,2\nc,d,3\n"


class Opens:
    """Pickled, this makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


# npz


def npz(drop: str = "", /, **changes: Any) -> Make:
    def make(folder: Path) -> Path:
        arrays = {key: value for key, value in (GOOD | changes).items() if key not in drop.split()}
        np.savez(folder / "graph.npz", **arrays)
        return folder / "graph.npz"

    return make


def member(name: str, content: bytes | Callable[[], bytes]) -> Make:
    """A good archive with one more member."""

    def make(folder: Path) -> Path:
        path = npz("y")(folder)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, content if isinstance(content, bytes) else content())
        return path

    return make


def npy(array: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), **options)
    return stream.getvalue()


def header(text: str) -> bytes:
    """An npy file with a header and nothing after it."""
    padded = text.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode()


def cut(make: Make, keep: float) -> Make:
    """The first part of a good file."""

    def made(folder: Path) -> Path:
        path = make(folder)
        target = max(path.glob("nodes.*")) if path.is_dir() else path
        data = target.read_bytes()
        target.write_bytes(data[: int(len(data) * keep)])
        return path

    return made


def flip(make: Make, at: bytes) -> Make:
    """A good file with one byte changed, in the middle of a pattern."""

    def made(folder: Path) -> Path:
        path = make(folder)
        data = bytearray(path.read_bytes())
        data[data.index(at) + len(at) // 2] ^= 0xFF
        path.write_bytes(bytes(data))
        return path

    return made


def file(name: str, content: bytes) -> Make:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def bomb(folder: Path) -> Path:
    """128 MiB of zeros in a few hundred KiB."""
    path = npz("x")(folder)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as stream:
        stream.write(header("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 8388608)}"))
        for _ in range(128):
            stream.write(bytes(2**20))
    return path


NPZ: list[tuple[str, Make, str]] = [
    ("id out of range", npz(edge_index=[[0, 1, 9], [1, 2, 3]]), "edge 2 of edge_index, (9, 3), names a node that does not exist; ids must lie in 0..3"),
    ("negative id", npz(edge_index=[[0, -1], [1, 2]]), "edge 1 of edge_index, (-1, 2), names a node that does not exist"),
    ("edges of shape [m, 3]", npz("edge_index", edges=np.zeros((2, 3), int)), "edges must have shape [number of edges, 2]; it has [2, 3]"),
    ("edge_index of shape [3, m]", npz(edge_index=np.zeros((3, 2), int)), "edge_index must have shape [2, number of edges]; it has [3, 2]"),
    ("edges twice", npz(edges=np.zeros((1, 2), int)), "give the edges as edge_index [2, m] or as edges [m, 2], one of them; it has both"),
    ("no edges", npz("edge_index"), "it has neither"),
    ("edges of floats", npz(edge_index=[[0.5], [1.0]]), "edge_index must hold integers, not float64"),
    ("no x", npz("x"), "it has no x; it has: edge_index, y, train_ids, val_ids, test_ids"),
    ("x a vector", npz(x=np.ones(4)), "x must be a matrix [N, F]; it has shape [4]"),
    ("x too short", npz(x=np.ones((3, 2))), "x has 3 rows but y has 4 labels"),
    ("x without columns", npz(x=np.ones((4, 0))), "x has no columns"),
    ("x with NaN", npz(x=[[1, 2], [3, np.nan], [5, 6], [7, 8]]), "x has a NaN or infinite value at node 1, column 1"),
    ("x with Inf", npz(x=[[1, 2], [3, 4], [-np.inf, 6], [7, 8]]), "x has a NaN or infinite value at node 2, column 0"),
    ("x beyond float32", npz(x=[[1, 2], [3, 4], [5, 6], [1e300, 8]]), "x has a NaN or infinite value at node 3, column 0"),
    ("x of words", npz(x=[["a", "b"]] * 4), "x must hold numbers, not <U1"),
    ("x of complex numbers", npz(x=np.ones((4, 2), complex)), "x holds complex128, neither numbers nor strings"),
    ("x of dates", npz(x=np.zeros((4, 2), "M8[s]")), "x holds datetime64[s], neither numbers nor strings"),
    ("x dense and sparse", npz(**CSR), "give x or its sparse parts, not both"),
    ("sparse x without indptr", npz("x x_indptr", **CSR), "it has no x_indptr"),
    ("sparse x with a column out of range", npz("x", **(CSR | {"x_indices": [0, 1, 2]})), "x is not a sparse matrix of shape [4, 2]"),
    ("sparse x with falling offsets", npz("x", **(CSR | {"x_indptr": [0, 2, 1, 3, 3]})), "x is not a sparse matrix of shape [4, 2]"),
    ("sparse x with too few offsets", npz("x", **(CSR | {"x_indptr": [0, 1, 3]})), "x is not a sparse matrix of shape [4, 2]"),
    ("sparse x with a negative shape", npz("x", **(CSR | {"x_shape": [-4, 2]})), "x_shape must be [N, F]; it is [-4, 2]"),
    ("sparse x with offsets as floats", npz("x", **(CSR | {"x_indptr": np.zeros(5)})), "x_indptr must be a vector of integers"),
    ("sparse x of a shape beyond memory", npz("x", **(CSR | {"x_shape": [2**40, 2]})), "x is not a sparse matrix of shape [1099511627776, 2]"),
    ("no y", npz("y"), "it has no y"),
    ("y of booleans", npz(y=[False, True, False, True]), "y must hold numbers or strings, not bool"),
    ("y a matrix of classes", npz(y=3 * np.eye(4, dtype=int)), "y is a matrix of integers with 3 at node 0, column 0; several labels a node are 0 or 1"),
    ("y of three dimensions", npz(y=np.zeros((4, 1, 1), int)), "or a row of labels for each, [N, L]; it has shape [4, 1, 1]"),
    ("no nodes", npz(y=np.array([], int), x=np.ones((0, 2))), "the graph has no nodes: y is empty"),
    ("label beyond num_classes", npz(num_classes=1), "y gives node 1 the class 1; classes lie in 0..0, and -1 is unknown"),
    ("label -2", npz(y=[0, -2, 0, 1]), "y gives node 1 the class -2"),
    ("label of a billion", npz(y=[0, 1, 10**9, 1]), "y holds label 1000000000 (node 2) in a graph of 4 nodes"),
    ("label not in class_names", npz(y=["a", "b", "c", "a"], class_names=["a", "b"]), "label 'c' of node 2 is not one of class_names: a, b"),
    ("all labels unknown", npz("train_ids val_ids test_ids", y=[-1] * 4), "no node has a label, so there is nothing to split"),
    ("overlapping split", npz(val_ids=[1]), "node 1 is in both train_ids and val_ids; splits must be disjoint"),
    ("empty training split", npz(train_ids=np.array([], int)), "the training split is empty"),
    ("split out of range", npz(test_ids=[4]), "test_ids must lie in 0..3; found 4"),
    ("split names a node twice", npz(train_ids=[0, 0]), "train_ids names node 0 twice"),
    ("split of floats", npz(train_ids=[0.0]), "train_ids must hold integers, not float64"),
    ("split of an unlabelled node", npz(y=[0, -1, 0, 1]), "train_ids names node 1, which has no label (-1)"),
    ("validation without training", npz("train_ids test_ids"), "val_ids is given without train_ids"),
    ("mask of another length", npz("train_ids", train_mask=[True]), "train_mask must be one boolean per node, [4]; it is bool of shape [1]"),
    ("mask of numbers", npz("train_ids", train_mask=[1, 0, 0, 0]), "train_mask must be one boolean per node, [4]; it is int64 of shape [4]"),
    ("mask and ids", npz(train_mask=[True] * 4), "give train_ids or train_mask, not both"),
    ("weight zero", npz(edge_weight=[1.0, 0.0, 1.0]), "edge_weight has 0.0 at entry 1; weights must be positive and finite"),
    ("weight NaN", npz(edge_weight=[1.0, 1.0, np.nan]), "edge_weight has nan at entry 2; weights must be positive and finite"),
    ("weights too few", npz(edge_weight=[2.0]), "edge_weight must have one entry per edge, [3]; it has shape [1]"),
    ("weights of words", npz(edge_weight=["a", "b", "c"]), "edge_weight must hold numbers, not <U1"),
    ("directed edge with two weights", npz(edge_index=[[0, 1], [1, 0]], edge_weight=[1.0, 2.0]), "edge (0, 1) is listed with two weights, "),
    ("node name twice", npz(node_names=["a", "b", "a", "c"]), "node_names holds a twice"),
    ("node names too few", npz(node_names=["a"]), "node_names must be 4 integers or strings; it is <U1 of shape [1]"),
    ("class names too few", npz(class_names=["a"]), "classes lie in 0..0"),
    ("class names of floats", npz(class_names=[0.5, 1.5]), "class_names must be a vector of strings"),
    ("num_classes a fraction", npz(num_classes=2.5), "num_classes must be one whole number; it is float64"),
    ("misspelled key", npz("train_ids", train_id=[0]), "unknown key 'train_id'; known: edge_index"),
    ("path traversal", member("../../y.npy", npy(GOOD["y"])), "unknown key '../../y'"),
    ("absolute path", member("/tmp/y.npy", npy(GOOD["y"])), "unknown key '/tmp/y'"),
    ("no npy member", member("y.txt", b"0 1 0 1"), "unknown key 'y.txt'"),
    ("pickled objects", lambda folder: npz(y=np.array([Opens(folder / "owned")] * 4, dtype=object))(folder), "y holds pickled Python objects, which are not read"),
    ("structured array", npz(y=np.zeros(4, dtype=[("a", int)])), "y holds [('a', '<i8')], neither numbers nor strings"),
    ("newer npy version", member("y.npy", lambda: b"\x93NUMPY\x03\x00" + npy(GOOD["y"])[8:]), "y is written in version (3, 0) of the npy format"),
    ("npy of another format", member("y.npy", b"hello world"), "it is damaged, or no .npz file"),
    ("npy header that is code", member("y.npy", header("__import__('os').mkdir('owned')")), "it is damaged, or no .npz file"),
    ("header that claims a terabyte", member("y.npy", header("{'descr': '<f8', 'fortran_order': False, 'shape': (137438953472,)}")), "y claims to have shape [137438953472] of float64, but 0 bytes follow"),
    ("header with a negative shape", member("y.npy", header("{'descr': '<i8', 'fortran_order': False, 'shape': (-1, 0)}")), "y claims to have shape [-1, 0]"),
    ("zip bomb", bomb, "as a zip bomb does"),
    ("truncated", cut(npz(), 0.6), "it is damaged, or no .npz file (File is not a zip file)"),
    ("one byte changed", flip(npz(), GOOD["x"].tobytes()), "it is damaged, or no .npz file (Bad CRC-32"),
    ("text", file("graph.npz", b"0 1\n1 2\n"), "it is damaged, or no .npz file"),
    ("empty file", file("graph.npz", b""), "it is damaged, or no .npz file"),
]  # fmt: skip


# CSV


def tables(nodes: str | bytes | None = NODES, edges: str | bytes | None = EDGES, **more: str) -> Make:
    def make(folder: Path) -> Path:
        for name, text in {"nodes": nodes, "edges": edges, **more}.items():
            if text is not None:
                (folder / f"{name}.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
        return folder

    return make


SLIM = "id,label\na,0\nb,1\nc,0\nd,1\n"
CSV: list[tuple[str, Make, str]] = [
    ("no nodes.csv", tables(nodes=None), "has no nodes.csv and no nodes.parquet"),
    ("no edges.csv", tables(edges=None), "has no edges.csv and no edges.parquet"),
    ("empty file", tables(nodes=""), "nodes.csv is empty; its first line must name the columns"),
    ("no rows", tables(nodes="id,f0,label\n"), "nodes.csv has no rows: the graph has no nodes"),
    ("no id column", tables(nodes=NODES.replace("id", "key", 1)), "nodes.csv has no column 'id'; its columns are: key, f0, f1, label, split"),
    ("no label column", tables(nodes=NODES.replace("label", "kind")), "nodes.csv has no column 'label'"),
    ("no features", tables(nodes=SLIM), "nodes.csv has no features: no column besides id, label and split"),
    ("column twice", tables(nodes=NODES.replace("f1", "f0")), "nodes.csv has two columns 'f0'"),
    ("ragged row", tables(nodes=NODES.replace("b,3,4", "b,3")), "nodes.csv, line 3: 4 fields, but the first line names 5 columns"),
    ("word for a feature", tables(nodes=NODES.replace("5,6", "5,six")), "nodes.csv, line 4, column 'f1': 'six' is no number"),
    ("Inf", tables(nodes=NODES.replace("3,4", "-inf,4")), "nodes.csv, line 3, column 'f0': -inf is not a finite number"),
    ("beyond float32", tables(nodes=NODES.replace("3,4", "1e99,4")), "nodes.csv, line 3, column 'f0': inf is not a finite number"),
    ("line after an empty one", tables(nodes=NODES.replace("c,5", "\n\nc,x")), "nodes.csv, line 6, column 'f0': 'x' is no number"),
    ("no id", tables(nodes=NODES.replace("c,5", ",5")), "nodes.csv, line 4, column 'id': nothing where the node's id must be"),
    ("id twice", tables(nodes=NODES.replace("c,5", "a,5")), "nodes.csv, line 4, column 'id': 'a' was listed before, at line 2"),
    ("long id", tables(nodes=NODES.replace("c,5", "c" * 1001 + ",5")), "nodes.csv, line 4, column 'id': 1001 characters; at most 1000 are allowed"),
    ("long field", tables(nodes=NODES.replace("c,5", "c" * 200_000 + ",5")), "nodes.csv, line 4, column 'id': 200000 characters; at most 1000 are allowed"),
    ("unknown split", tables(nodes=NODES.replace("val", "vall")), "nodes.csv, line 4, column 'split': unknown split 'vall'; known: train, val, test (did you mean 'val'?)"),
    ("split without a label", tables(nodes=NODES.replace("8,,", "8,,test")), "nodes.csv, line 5, column 'label': nothing, but the node is in the test split"),
    ("no training nodes", tables(nodes=NODES.replace("train", "test")), "nodes.csv, column 'split': no row is 'train'"),
    ("no labels at all", tables(nodes="id,f0,label\na,1,\n", edges="source,target\n"), "no node has a label, so there is nothing to split"),
    ("negative label", tables(nodes=NODES.replace("cat", "0").replace("dog", "-1")), "nodes.csv, line 3, column 'label': -1 is no class; leave the cell empty where the label is unknown"),
    ("unknown source", tables(edges=EDGES.replace("b,c", "e,c")), "edges.csv, line 3, column 'source': 'e' is no node; ids are listed in nodes.csv"),
    ("no target", tables(edges=EDGES.replace("c,d", "c,")), "edges.csv, line 4, column 'target': nothing where a node's id must be"),
    ("no source column", tables(edges=EDGES.replace("source", "begin")), "edges.csv has no column 'source'"),
    ("unknown column of edges", tables(edges=EDGES.replace("weight", "wieght")), "edges.csv: unknown column 'wieght'; known: source, target, weight (did you mean 'weight'?)"),
    ("word for a weight", tables(edges=EDGES.replace("b,c,2", "b,c,two")), "edges.csv, line 3, column 'weight': 'two' is no number"),
    ("weight zero", tables(edges=EDGES.replace("b,c,2", "b,c,0")), "edges.csv, line 3, column 'weight': 0; weights must be positive"),
    ("weight NaN", tables(edges=EDGES.replace("b,c,2", "b,c,nan")), "edges.csv, line 3, column 'weight': nothing where a number must be"),
    ("two weights", tables(edges=EDGES + "b,a,5\n"), "edges.csv, line 5, column 'weight': 5, but line 2 gives the same edge weight 1"),
    ("open quote", tables(nodes=NODES + '"e,1,2,cat,\n'), "nodes.csv, line 6: a quote is not closed; write one within quotes twice"),
    ("two kinds of nodes", lambda folder: file("nodes.parquet", b"")(tables()(folder)).parent, "has both nodes.csv and nodes.parquet"),
    ("two places for features", tables(features="id,f\na,1\n"), "nodes.csv has features (f0, f1) and there is features.csv; keep one"),
    ("features of an unknown node", tables(nodes=SLIM, features="id,f\na,1\nb,1\nc,1\nd,1\ne,1\n"), "features.csv, line 6, column 'id': 'e' is no node"),
    ("features missing for a node", tables(nodes=SLIM, features="id,f\na,1\nd,1\nb,1\n"), "features.csv has no row for node 'c' of nodes.csv"),
    ("features without columns", tables(nodes=SLIM, features="id\na\n"), "features.csv has no features: no column besides id"),
    ("folder in place of a file", lambda folder: (folder / "nodes.csv").mkdir() or tables(nodes=None)(folder), "nodes.csv: Is a directory"),  # type: ignore[func-returns-value]
]  # fmt: skip


# Parquet


def parquet(edges: dict[str, Any] | None = None, **nodes: Any) -> Make:
    def make(folder: Path) -> Path:
        columns = {"id": ["a", "b", "c"], "label": [0, 1, 0], "f": [1.0, 2.0, 3.0]} | nodes
        pq.write_table(pa.table(columns), folder / "nodes.parquet")
        pq.write_table(pa.table(edges or {"source": ["a", "b"], "target": ["b", "c"]}), folder / "edges.parquet")
        return folder

    return make


def not_parquet(folder: Path) -> Path:
    parquet()(folder)
    (folder / "edges.parquet").write_text("source,target\n")
    return folder


PARQUET: list[tuple[str, Make, str]] = [
    ("text", not_parquet, "edges.parquet is damaged, or no Parquet file"),
    ("truncated", cut(parquet(), 0.7), "nodes.parquet is damaged, or no Parquet file"),
    ("unknown source", parquet({"source": ["a", "e"], "target": ["b", "c"]}), "edges.parquet, row 2, column 'source': 'e' is no node"),
    ("no target", parquet({"source": ["a", "b"], "target": ["b", None]}), "edges.parquet, row 2, column 'target': nothing where a node's id must be"),
    ("ids of another kind", parquet({"source": [0], "target": ["b"]}), "edges.parquet, row 1, column 'source': '0' is no node"),
    ("weight missing", parquet({"source": ["a"], "target": ["b"], "weight": pa.array([None], pa.float64())}), "edges.parquet, row 1, column 'weight': nothing where a number must be"),
    ("ragged lists", parquet(f=[[1.0, 2.0], [1.0], [2.0, 3.0]]), "nodes.parquet, row 2, column 'f': 1 numbers, but the first row has 2"),
    ("list with a gap", parquet(f=[[1.0, 2.0], [1.0, None], [2.0, 3.0]]), "nodes.parquet, row 2, column 'f': nothing where a number must be"),
    ("Inf in a list", parquet(f=[[1.0, 2.0], [1.0, 2.0], [2.0, float("inf")]]), "nodes.parquet, row 3, column 'f': inf is not a finite number"),
    ("id a fraction", parquet(id=[0.5, 1.0, 2.0]), "nodes.parquet, row 1, column 'id': 0.5 is neither an integer nor a string"),
    ("label a list", parquet(label=[[0], [1], [0]]), "nodes.parquet, column 'label': holds list<"),
    ("no labels", parquet(label=[None, None, None]), "no node has a label"),
    ("id twice", parquet(id=["a", "b", "a"]), "nodes.parquet, row 3, column 'id': 'a' was listed before, at row 1"),
]  # fmt: skip


# Arrow


def as_arrow(make: Make, *, streamed: bool = False) -> Make:
    """The same tables in Arrow's format."""

    def again(folder: Path) -> Path:
        for file in list(make(folder).glob("*.parquet")):
            writers.write_columns(pq.read_table(file), file.with_suffix(".arrow"), streamed=streamed)
            file.unlink()
        return folder

    return again


def named_arrow(content: bytes | None) -> Make:
    """A file of nodes that is no Arrow file: some bytes, or Parquet."""

    def make(folder: Path) -> Path:
        file = as_arrow(parquet())(folder) / "nodes.arrow"
        file.write_bytes(parquet()(folder).joinpath("nodes.parquet").read_bytes() if content is None else content)
        for other in folder.glob("*.parquet"):
            other.unlink()
        return folder

    return make


def without_end(folder: Path) -> Path:
    """Whole batches, but the mark at the end of the stream is missing: pyarrow would read on as if nothing were."""
    file = as_arrow(parquet(), streamed=True)(folder) / "nodes.arrow"
    file.write_bytes(file.read_bytes()[:-8])
    return folder


ARROW: list[tuple[str, Make, str]] = [
    *((name, as_arrow(make), message.replace("parquet", "arrow")) for name, make, message in PARQUET[2:]),
    ("empty", named_arrow(b""), "nodes.arrow is damaged, or no Arrow file"),
    ("text", named_arrow(b"id,label\n"), "nodes.arrow is damaged, or no Arrow file"),
    ("truncated", cut(as_arrow(parquet()), 0.7), "nodes.arrow is damaged, or no Arrow file"),
    ("truncated stream", cut(as_arrow(parquet(), streamed=True), 0.7), "nodes.arrow is cut off: the mark at the end of a stream is missing"),
    ("stream without its end", without_end, ".arrow is cut off: the mark at the end of a stream is missing"),
    ("Parquet", named_arrow(None), "nodes.arrow is no Arrow file but a Parquet file; name it nodes.parquet"),
    ("Feather of version 1", named_arrow(b"FEA1\0\0\0\0"), "nodes.arrow is no Arrow file but a Feather file of version 1"),
    ("Arrow as Parquet", lambda folder: as_arrow(parquet())(folder).joinpath("edges.arrow").rename(folder / "edges.parquet").parent, "edges.parquet is no Parquet file but an Arrow file; name it edges.arrow"),
    ("Arrow as CSV", lambda folder: as_arrow(parquet())(folder).joinpath("edges.arrow").rename(folder / "edges.csv").parent, "edges.csv is no CSV file but an Arrow file; name it edges.arrow"),
]  # fmt: skip


# Errors only where every feature must be a number (preprocess=none)
PLAIN: list[tuple[str, Make, str]] = [
    ("feature missing", tables(nodes=NODES.replace("5,6", ",6")), "nodes.csv, line 4, column 'f0': nothing where a number must be"),
    ("NaN", tables(nodes=NODES.replace("5,6", "5,nan")), "nodes.csv, line 4, column 'f1': nothing where a number must be"),
    ("feature missing", parquet(f=[1.0, None, 3.0]), "nodes.parquet, row 2, column 'f': nothing where a number must be"),
    ("NaN", parquet(f=[1.0, 2.0, float("nan")]), "nodes.parquet, row 3, column 'f': nothing where a number must be"),
    ("features of words", parquet(f=["x", "y", "z"]), "nodes.parquet, row 1, column 'f': 'x' is no number"),
]  # fmt: skip


# pt


def pt(content: Callable[[Path], Any], **options: Any) -> Make:
    def make(folder: Path) -> Path:
        torch.save(content(folder), folder / "graph.pt", **options)
        return folder / "graph.pt"

    return make


def fields(drop: str = "", /, **changes: Any) -> dict[str, Any]:
    good = {
        "edge_index": torch.tensor([[0, 1, 2], [1, 2, 3]]),
        "x": torch.from_numpy(GOOD["x"]),
        "y": torch.tensor([0, 1, 0, 1]),
        "train_mask": torch.tensor([True, True, False, False]),
    }
    return {key: value for key, value in (good | changes).items() if key not in drop.split()}


def bad_sparse(_: Path) -> dict[str, Any]:
    entries = torch.tensor([[0, 9], [0, 1]])
    return fields(x=torch.sparse_coo_tensor(entries, torch.ones(2), (4, 2), check_invariants=False))


def broken_data(_: Path) -> Any:
    data = pyg_data().Data()
    data.__dict__["_store"] = {"x": 1}
    return data


PT: list[tuple[str, Make, str]] = [
    ("code to run", pt(lambda folder: fields(y=Opens(folder / "owned"))), "it needs posix.mkdir to load, which is not allowed; load it where it was made and save plain tensors"),
    ("code in an old file", pt(lambda folder: fields(y=Opens(folder / "owned")), _use_new_zipfile_serialization=False), "it is damaged, or no file of torch.save"),
    ("code in a newer pickle", pt(lambda folder: fields(y=Opens(folder / "owned")), pickle_protocol=4), "not written by torch.save with its default settings"),
    ("a model", pt(lambda _: torch.nn.Linear(2, 2)), "it needs torch.nn.modules.linear.Linear to load, which is not allowed"),
    ("text", file("graph.pt", b"hello"), "it is damaged, or no file of torch.save"),
    ("empty", file("graph.pt", b""), "it is damaged, or no file of torch.save"),
    ("truncated", cut(pt(lambda _: fields()), 0.5), "it is damaged, or no file of torch.save"),
    ("another zip", lambda folder: npz()(folder).rename(folder / "graph.pt"), "it is damaged, or not written by torch.save"),
    ("one byte changed", flip(pt(lambda _: fields()), GOOD["x"].tobytes()), "it is damaged: the checksum of 'graph/data/1' inside is wrong"),
    ("a tensor", pt(lambda _: torch.ones(3)), "it holds a Tensor, neither a torch_geometric Data nor a dict of tensors"),
    ("a list of graphs", pt(lambda _: (fields(), {"x": torch.tensor([0, 2, 4])})), "it holds a data set of several graphs"),
    ("two kinds of nodes", pt(lambda _: pyg_data().HeteroData(a={"x": torch.ones(2, 2)})), "it needs torch_geometric.data.storage."),
    ("broken Data", pt(broken_data), "the Data in it is broken"),
    ("no x", pt(lambda _: fields("x")), "data has no x; it has: edge_index, y, train_mask"),
    ("no edge_index", pt(lambda _: fields("edge_index")), "data has no edge_index"),
    ("adj_t", pt(lambda _: fields("edge_index", adj_t=torch.eye(4).to_sparse())), "data has adj_t but no edge_index"),
    ("nothing", pt(lambda _: {}), "data has no edge_index; it has: nothing"),
    ("y a list", pt(lambda _: fields(y=[0, 1, 0, 1])), "data.y must be a tensor, not list"),
    ("y of infinite numbers", pt(lambda _: fields(y=torch.rand(4) / 0)), "y gives node 0 other values than it may have: they are finite"),
    ("several classes a node", pt(lambda _: fields(y=7 * torch.ones(4, 3, dtype=torch.long))), "y is a matrix of integers with 7 at node 0, column 0"),
    ("several splits", pt(lambda _: fields(train_mask=torch.ones(4, 10, dtype=torch.bool))), "train_mask must be one boolean per node, [4]; it is bool of shape [4, 10]"),
    ("mask of bytes", pt(lambda _: fields(train_mask=torch.ones(4, dtype=torch.uint8))), "train_mask must be one boolean per node, [4]; it is uint8"),
    ("empty mask", pt(lambda _: fields(train_mask=torch.zeros(4, dtype=torch.bool))), "the training split is empty"),
    ("several weights an edge", pt(lambda _: fields(edge_attr=torch.ones(3, 5))), "data.edge_attr must be one weight per edge; it has shape [3, 5]"),
    ("negative weight", pt(lambda _: fields(edge_weight=torch.tensor([1.0, -1.0, 1.0]))), "edge_weight has -1.0 at entry 1; weights must be positive and finite"),
    ("id out of range", pt(lambda _: fields(edge_index=torch.tensor([[4], [0]]))), "edge 0 of edge_index, (4, 0), names a node that does not exist"),
    ("sparse x with a row out of range", pt(bad_sparse), "graph.pt: "),
    ("one number in a petabyte", pt(lambda _: fields(x=torch.ones(1, 1).expand(4, 2**48))), "more than the"),
]  # fmt: skip


# Paths


def store(**changes: Any) -> Make:
    """A store whose header was changed."""

    def make(folder: Path) -> Path:
        from cvgnn.data.io import read_graph
        from cvgnn.data.store import write_store

        write_store(read_graph(npz()(folder)), folder / "store")
        path = folder / "store" / "header.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return folder / "store"

    return make


def dangling(folder: Path) -> Path:
    (folder / "link.npz").symlink_to(folder / "nowhere")
    return folder / "link.npz"


PATHS: list[tuple[str, Make, str]] = [
    ("nothing there", lambda folder: folder / "graph.npz", "no such file or folder; a graph is a .npz or .pt file"),
    ("dangling link", dangling, "no such file or folder; a graph is a .npz or .pt file"),
    ("empty folder", lambda folder: folder, "it has no nodes.csv and no nodes.parquet, and it is not a store"),
    ("unknown form", file("graph.gml", b""), "unknown file type '.gml'; a graph is a .npz or .pt file"),
    ("one table", file("edges.csv", b""), "it is a single table; give the folder that holds nodes.csv and edges.csv"),
    ("a device", lambda _: Path("/dev/null"), "/dev/null: it is neither a file nor a folder"),
    ("store of another version", store(version=99), "99"),
    ("store with a header that is not JSON", lambda folder: file("header.json", b"{")(folder).parent, "header.json"),
]  # fmt: skip

FILES = [
    (f"{kind}: {name}", make, message)
    for kind, cases in {"npz": NPZ, "csv": CSV, "parquet": PARQUET, "arrow": ARROW, "pt": PT, "path": PATHS}.items()
    for name, make, message in cases
]
