"""Flickr, Reddit, PPI, Yelp and Amazon on small files in upstream's layouts, against torch_geometric's readers and by hand."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from cvgnn import fit
from cvgnn.data import Graph
from cvgnn.data.named import load
from cvgnn.data.named.raw_layouts import read_graphsaint, read_reddit
from cvgnn.errors import CvgnnError
from tests.data.named import pyg
from tests.data.named.layouts import Small, matrix, small, write_flickr, write_reddit


def read_flickr(folder: Path) -> Graph:
    return read_graphsaint(folder, "flickr")


READ = {"flickr": (write_flickr, read_flickr, "Flickr"), "reddit": (write_reddit, read_reddit, "Reddit")}


def assert_is(g: Graph, expected: Small) -> None:
    """Entry by entry, from the lists the files were made of."""
    pairs = {(v, int(u)) for v in range(g.num_nodes) for u in g.indices[g.indptr[v] : g.indptr[v + 1]]}
    assert pairs == expected.pairs()
    assert g.num_edges == len(pairs)
    assert torch.equal(torch.as_tensor(g.x), torch.from_numpy(expected.x))
    assert g.x.dtype == torch.float32
    assert g.y.tolist() == expected.y
    assert g.num_classes == max(expected.y) + 1
    for ids, wanted in ((g.train_ids, expected.train), (g.val_ids, expected.val), (g.test_ids, expected.test)):
        assert ids.tolist() == sorted(wanted)
    assert not g.directed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", READ)
def test_small_files_are_read_as_torch_geometric_reads_them(tmp_path: Path, kind: str, dtype: type) -> None:
    write, read, pyg_name = READ[kind]
    expected = small(symmetric=True, loops=True)
    folder = write(tmp_path / "raw", expected, dtype)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    g = read(folder)
    assert g.name == kind
    assert_is(g, expected)
    pyg.assert_same(g, pyg.read(pyg_name, folder, tmp_path / "pyg"))
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("kind", READ)
def test_an_edge_in_one_direction_counts_in_both(tmp_path: Path, kind: str) -> None:
    write, read, _ = READ[kind]
    expected = small(1, symmetric=False)
    assert_is(read(write(tmp_path, expected)), expected)


@pytest.mark.parametrize("kind", READ)
def test_either_sparse_format_serves(tmp_path: Path, kind: str) -> None:
    write, read, _ = READ[kind]
    expected = small(2, symmetric=True)
    folder = write(tmp_path, expected)
    file = folder / ("adj_full.npz" if kind == "flickr" else "reddit_graph.npz")
    for form in (matrix(expected).tocoo(), matrix(expected).tocsr(), matrix(expected).astype(np.int8).tocsr()):
        sp.save_npz(file, form)
        assert_is(read(folder), expected)


def test_a_node_outside_the_split_may_lack_a_label(tmp_path: Path) -> None:
    g = small(symmetric=True)
    gone = g.test.pop()
    write_flickr(tmp_path, g)
    classes = json.loads((tmp_path / "class_map.json").read_text())
    del classes[str(gone)]
    (tmp_path / "class_map.json").write_text(json.dumps(classes))
    assert read_flickr(tmp_path).y[gone] == -1


def change_json(file: str, change: Callable[[dict], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        value = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(change(value) or value))

    return apply


def change_npz(file: str, **arrays: object) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        with np.load(folder / file) as stored:
            kept = {key: stored[key] for key in stored}
        kept.update(arrays)
        np.savez(folder / file, **{key: np.asarray(value) for key, value in kept.items() if value is not None})

    return apply


def overwrite(file: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes(data) and None


def cut(file: str, by: int) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:-by]) and None


def save(file: str, array: np.ndarray) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / file, array, allow_pickle=True)


def update(**values: object) -> Callable[[dict], object]:
    return lambda value: {**value, **values}


def plain_array(folder: Path) -> None:
    with (folder / "reddit_data.npz").open("wb") as file:
        np.save(file, np.zeros(3))


FLICKR = {
    "adj missing": (lambda folder: (folder / "adj_full.npz").unlink(), r"the file adj_full\.npz is missing in the folder"),
    "adj cut": (cut("adj_full.npz", 100), r"adj_full\.npz is broken .*; take it again from its source"),
    "adj is text": (overwrite("adj_full.npz", b"hello"), r"adj_full\.npz is broken \(File is not a zip file\)"),
    "adj is a pickle": (overwrite("adj_full.npz", pickle.dumps([1, 2])), r"adj_full\.npz is broken \(File is not a zip file\)"),
    "adj without indices": (change_npz("adj_full.npz", indices=None), r"adj_full\.npz is broken \(no array 'indices', only .*indptr"),
    "adj not square": (change_npz("adj_full.npz", shape=[23, 22]), r"adj_full\.npz has shape \[23, 22\]; with 23 nodes it must be"),
    "adj too large": (change_npz("adj_full.npz", shape=[24, 24]), r"has shape \[24, 24\]"),
    "adj offsets fall": (change_npz("adj_full.npz", indptr=[0, 5, 3] + [9] * 21), r"the content of .*adj_full\.npz is not a sparse matrix of shape \[23, 23\]"),
    "adj offsets short": (change_npz("adj_full.npz", indptr=[0, 1]), r"the content of .*adj_full\.npz is not a sparse matrix of shape \[23, 23\]: index pointer size 2 should be 24"),
    "adj offsets floats": (change_npz("adj_full.npz", indptr=np.zeros(24)), r"'indptr' and 'indices' in .*adj_full\.npz must be integers, not float64 and int32"),
    "adj column too large": (change_npz("adj_full.npz", indptr=[0] + [1] * 23, indices=[23], data=[1]), r"the content of .*adj_full\.npz is not a sparse matrix of shape \[23, 23\]"),
    "feats missing": (lambda folder: (folder / "feats.npy").unlink(), r"the file feats\.npy is missing"),
    "feats cut": (cut("feats.npy", 8), r"feats\.npy is broken"),
    "feats empty": (overwrite("feats.npy", b""), r"feats\.npy is broken"),
    "feats pickled": (save("feats.npy", np.array([[1, "a"], [2, None]], dtype=object)), r"feats\.npy is broken"),
    "feats a vector": (save("feats.npy", np.zeros(23)), r"feats\.npy must be a matrix of numbers, not float64 of shape \[23\]"),
    "feats words": (save("feats.npy", np.full((23, 2), "a")), r"feats\.npy must be a matrix of numbers, not <U1"),
    "feats NaN": (save("feats.npy", np.where(np.eye(23, 5) > 0, np.nan, 1.0)), r"do not fit together: x has a NaN or infinite value at node 0, column 0"),
    "feats huge": (save("feats.npy", np.full((23, 2), 1e300)), r"x has a NaN or infinite value at node 0"),
    "classes not json": (overwrite("class_map.json", b"{"), r"class_map\.json is broken"),
    "classes a list": (overwrite("class_map.json", b"[1]"), r"class_map\.json is broken \(is not a JSON object\)"),
    "class of nobody": (change_json("class_map.json", update(**{"23": 1})), r"class_map\.json names node '23', which does not exist; ids lie in 0\.\.22"),
    "class of a word": (change_json("class_map.json", update(x=1)), r"class_map\.json names node 'x'"),
    "class a list": (change_json("class_map.json", update(**{"3": [0, 1]})), r"the class of node '3' in .*class_map\.json must be a number 0, 1, \.\.\., not \[0, 1\]"),
    "class negative": (change_json("class_map.json", update(**{"3": -2})), r"the class of node '3' in .* not -2"),
    "class missing": (change_json("class_map.json", lambda value: {k: v for k, v in value.items() if k != "0"}), r"do not fit together: \w+_ids names node 0, which has no label"),
    "role missing": (change_json("role.json", lambda value: {"tr": value["tr"], "va": value["va"]}), r"'te' in .*role\.json must be a list of node ids"),
    "role out of range": (change_json("role.json", update(te=[99])), r"do not fit together: test_ids must lie in 0\.\.22; found 99"),
    "role negative": (change_json("role.json", update(te=[-1])), r"do not fit together: test_ids must lie in 0\.\.22; found -1"),
    "role a word": (change_json("role.json", update(te=["a"])), r"'te' in .*role\.json must be a list of node ids, not 'a'"),
    "role overlapping": (change_json("role.json", lambda value: {**value, "te": value["tr"]}), r"node \d+ is in both train_ids and test_ids"),
    "role without test nodes": (change_json("role.json", update(te=[])), None),
    "role without training": (change_json("role.json", update(tr=[])), r"the training split is empty"),
}  # fmt: skip
REDDIT = {
    "graph missing": (lambda folder: (folder / "reddit_graph.npz").unlink(), r"the file reddit_graph\.npz is missing"),
    "graph cut": (cut("reddit_graph.npz", 100), r"reddit_graph\.npz is broken"),
    "graph id too large": (change_npz("reddit_graph.npz", row=[0, 1], col=[1, 23]), r"edge 1 in .*reddit_graph\.npz, \(1, 23\), names a node that does not exist; ids must lie in 0\.\.22"),
    "graph id negative": (change_npz("reddit_graph.npz", row=[0, -4], col=[1, 2]), r"edge 1 in .*, \(-4, 2\), names a node"),
    "graph id beyond int32": (change_npz("reddit_graph.npz", row=[0, 1], col=[1, 2**32 + 1]), r"edge 1 in .*, \(1, 4294967297\), names a node"),
    "graph id beyond int64": (change_npz("reddit_graph.npz", row=np.array([0, 2**64 - 1], dtype=np.uint64), col=[1, 2]), r"edge 1 in .*, \(18446744073709551615, 2\), names a node"),
    "graph ragged": (change_npz("reddit_graph.npz", row=[0, 1], col=[1]), r"must be two integer vectors of one length"),
    "graph of floats": (change_npz("reddit_graph.npz", row=[0.5], col=[1.5]), r"must be two integer vectors of one length, not float64"),
    "graph of objects": (change_npz("reddit_graph.npz", row=np.array([None])), r"reddit_graph\.npz is broken"),
    "graph without col": (change_npz("reddit_graph.npz", col=None), r"reddit_graph\.npz is broken \(no array 'col', only "),
    "graph without shape": (change_npz("reddit_graph.npz", shape=None), r"reddit_graph\.npz is broken \(no array 'shape', only "),
    "data cut": (cut("reddit_data.npz", 300), r"reddit_data\.npz is broken"),
    "data is a plain array": (plain_array, r"reddit_data\.npz is broken \(File is not a zip file\)"),
    "labels of floats": (change_npz("reddit_data.npz", label=np.zeros(23)), r"'label' in .* must be 23 integers, not float64"),
    "types too few": (change_npz("reddit_data.npz", node_types=[1, 2, 3]), r"'node_types' in .* must be 23 integers, not int64 of shape \[3\]"),
    "features too few": (change_npz("reddit_data.npz", feature=np.zeros((22, 3))), r"'feature' in .*reddit_data\.npz has 22 rows for 23 labels"),
    "features a vector": (change_npz("reddit_data.npz", feature=np.zeros(23)), r"'feature' in .* must be a matrix of numbers"),
    "no features": (change_npz("reddit_data.npz", feature=None), r"reddit_data\.npz is broken \(no array 'feature', only "),
    "no training nodes": (change_npz("reddit_data.npz", node_types=[3] * 23), r"the training split is empty"),
    "negative labels": (change_npz("reddit_data.npz", label=[-5] * 23), r"do not fit together: y gives node 0 the class -"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "case"), [*(("flickr", c) for c in FLICKR), *(("reddit", c) for c in REDDIT)])
def test_malformed_files_give_a_sentence(tmp_path: Path, kind: str, case: str) -> None:
    write, read, _ = READ[kind]
    folder = write(tmp_path / "raw", small(symmetric=True))
    damage, sentence = (FLICKR if kind == "flickr" else REDDIT)[case]
    damage(folder)
    if sentence is None:  # an empty test split is allowed
        assert read(folder).test_ids.numel() == 0
        return
    with pytest.raises(CvgnnError, match=sentence) as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def test_several_labels_a_node(tmp_path: Path) -> None:
    """PPI, Yelp and Amazon: a list of zeros and ones for each node."""
    g = small(symmetric=True)
    labels = {str(v): [int(v % 2 == 0), 1, int(v > 20)] for v in range(g.num_nodes)}
    gone = g.test[0]
    roles = {"tr": g.train, "va": g.val, "te": g.test[1:]}
    del labels[str(gone)]
    write_flickr(tmp_path, g)
    (tmp_path / "role.json").write_text(json.dumps(roles))
    (tmp_path / "class_map.json").write_text(json.dumps(labels))
    for name in ("ppi", "yelp", "amazon"):
        graph = load(name, tmp_path)
        assert (graph.name, graph.num_classes, graph.label_kind) == (name, 3, "labels")
        expected = [labels.get(str(v), [-1, -1, -1]) for v in range(g.num_nodes)]
        assert graph.y.tolist() == expected
        assert graph.test_ids.tolist() == sorted(g.test[1:])
    run = fit(graph, epochs=1, threads=1)
    assert run.task.name == "multilabel"
    for wrong, sentence in (
        ([0, 1], r"the labels of node '3' in .* must be 3 zeros or ones, not \[0, 1\]"),
        ([0, 1, 2], r"must be 3 zeros or ones, not \[0, 1, 2\]"),
        (1, "must be 3 zeros or ones, not 1"),
        ([0, 1, "1"], "must be 3 zeros or ones"),
    ):
        (tmp_path / "class_map.json").write_text(json.dumps({**labels, "3": wrong}))
        with pytest.raises(CvgnnError, match=sentence):
            load("ppi", tmp_path)


def test_ppi_has_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVGNN_HOME", str(tmp_path / "home"))
    with pytest.raises(CvgnnError, match=r"dataset 'ppi' is not downloaded by cvgnn; put adj_full.npz, feats.npy"):
        load("ppi")
    assert not (tmp_path / "home").exists()
