from __future__ import annotations

import hashlib
import os
import pickle
import pickletools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.data import Graph, SparseFeatures
from cvgnn.data.named import planetoid
from cvgnn.data.named.catalog import PLANETOID_SHA256 as SHA256
from cvgnn.data.named.catalog import PLANETOID_SUFFIXES as SUFFIXES
from cvgnn.data.named.planetoid import read_planetoid
from cvgnn.errors import CvgnnError

# name: nodes, edges, features, classes, train, validation, test
COUNTS = {
    "cora": (2708, 5278, 1433, 7, 140, 500, 1000),
    "citeseer": (3327, 4552, 3703, 6, 120, 500, 1000),
    "pubmed": (19717, 44324, 500, 3, 60, 500, 1000),
}
NAMES = tuple(COUNTS)
UNPICKLED = ("y", "ty", "ally", "tx", "allx", "graph")
# CiteSeer's nodes without features and label.
MISSING = [2407, 2489, 2553, 2682, 2781, 2953, 3042, 3063, 3212, 3214, 3250, 3292, 3305, 3306, 3309]


@pytest.fixture(scope="module")
def read(planetoid_folder: Path) -> Callable[[str], Graph]:
    known: dict[str, Graph] = {}

    def read_once(name: str) -> Graph:
        if name not in known:
            known[name] = read_planetoid(planetoid_folder, name)
        return known[name]

    return read_once


@pytest.fixture
def fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], Path]:
    """Writes one of Cora's files into a folder of our own and has the checksum table accept it."""
    folder = tmp_path / "raw"
    folder.mkdir()

    def write(suffix: str, data: bytes) -> Path:
        path = folder / f"ind.cora.{suffix}"
        path.write_bytes(data)
        monkeypatch.setitem(SHA256, path.name, hashlib.sha256(data).hexdigest())
        return folder

    return write


def literal_load(folder: Path, name: str, suffix: str) -> Any:
    """Plain pickle, after a check of the checksum against the folder's own list."""
    data = (folder / f"ind.{name}.{suffix}").read_bytes()
    sums = dict(line.split()[::-1] for line in (folder.parent / "SHA256SUMS").read_text().splitlines())
    assert hashlib.sha256(data).hexdigest() == sums[f"planetoid/ind.{name}.{suffix}"]
    with warnings.catch_warnings():
        # The module name in the pickle, scipy.sparse.csr, is deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        return pickle.loads(data, encoding="latin1")


def pairs(graph: Graph) -> set[tuple[int, int]]:
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree)
    entries = list(zip(rows.tolist(), graph.indices.tolist(), strict=True))
    assert len(set(entries)) == len(entries)
    return set(entries)


def test_the_checksum_table_is_the_published_list(planetoid_folder: Path) -> None:
    published = {}
    for line in (planetoid_folder.parent / "SHA256SUMS").read_text().splitlines():
        checksum, path = line.split()
        if path.startswith("planetoid/"):
            published[path.removeprefix("planetoid/")] = checksum
    assert published == SHA256
    assert set(SHA256) == {f"ind.{name}.{suffix}" for name in NAMES for suffix in SUFFIXES}


@pytest.mark.parametrize("name", NAMES)
def test_counts(read: Callable[[str], Graph], name: str) -> None:
    graph = read(name)
    found = (graph.num_nodes, graph.num_edges // 2, graph.num_features, graph.num_classes)
    found += (len(graph.train_ids), len(graph.val_ids), len(graph.test_ids))
    assert graph.name == name
    assert found == COUNTS[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_keeps_its_contract(read: Callable[[str], Graph], name: str) -> None:
    graph = read(name)
    graph.check_structure()
    assert not graph.directed
    assert graph.y.unique().tolist() == list(range(graph.num_classes))
    split = torch.cat([graph.train_ids, graph.val_ids, graph.test_ids])
    assert len(split.unique()) == len(split)
    x = graph.x
    assert isinstance(x, SparseFeatures) == (name != "pubmed")  # dense where that is the smaller form
    assert x.dtype == torch.float32
    if isinstance(x, SparseFeatures):
        rows = torch.repeat_interleave(torch.arange(graph.num_nodes), x.indptr.diff())
        assert (torch.diff(rows * graph.num_features + x.indices) > 0).all()
        assert (x.values != 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_literal_reading_gives_the_same(read: Callable[[str], Graph], planetoid_folder: Path, name: str) -> None:
    objects = {suffix: literal_load(planetoid_folder, name, suffix) for suffix in SUFFIXES[:-1]}
    lines = (planetoid_folder / f"ind.{name}.test.index").read_text().splitlines()
    test_index = [int(line) for line in lines]

    edges = set()
    for u, neighbors in objects["graph"].items():
        for v in neighbors:
            if u != v:
                edges.add((min(u, v), max(u, v)))

    features: dict[int, dict[int, float]] = {}
    labels: dict[int, int] = {}
    places = (
        (objects["allx"], objects["ally"], range(len(objects["ally"]))),
        (objects["tx"], objects["ty"], test_index),
    )
    for x, one_hot, nodes in places:
        entries = x.tocoo()
        for i, node in enumerate(nodes):
            features[node] = {}
            labels[node] = one_hot[i].tolist().index(1)
        for i, column, value in zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True):
            features[nodes[i]][column] = value

    graph = read(name)
    assert pairs(graph) == edges | {(v, u) for u, v in edges}
    x = graph.x.to_dense() if isinstance(graph.x, SparseFeatures) else graph.x
    for node, row in enumerate(x.numpy()):
        columns = np.flatnonzero(row)
        expected = features.get(node, {})
        assert dict(zip(columns.tolist(), row[columns].tolist(), strict=True)) == expected
        assert graph.y[node] == labels.get(node, 0)
    num_train = len(objects["y"])
    assert graph.train_ids.tolist() == list(range(num_train))
    assert graph.val_ids.tolist() == list(range(num_train, num_train + 500))
    assert graph.test_ids.tolist() == sorted(test_index)
    # The first rows of allx and ally are x and y: the training nodes are what the files say.
    assert (objects["allx"][:num_train] != objects["x"]).nnz == 0
    assert (objects["ally"][:num_train] == objects["y"]).all()


def test_citeseer_nodes_without_features_are_in_no_split(read: Callable[[str], Graph]) -> None:
    graph = read("citeseer")
    assert isinstance(graph.x, SparseFeatures)
    assert (graph.x.indptr.diff() == 0).nonzero().flatten().tolist() == MISSING
    assert graph.y[MISSING].unique().tolist() == [0]
    in_split = torch.cat([graph.train_ids, graph.val_ids, graph.test_ids])
    assert not np.isin(MISSING, in_split).any()
    # They are called isolated, but they are not: other nodes are. Those do have features.
    assert graph.degree[MISSING].tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1]
    assert (graph.degree == 0).sum() == 48


def test_repeated_edges_and_self_loops_are_dropped(
    fill: Callable[[str, bytes], Path], read: Callable[[str], Graph], planetoid_folder: Path
) -> None:
    for suffix in SUFFIXES:
        folder = fill(suffix, (planetoid_folder / f"ind.cora.{suffix}").read_bytes())
    neighbors = literal_load(planetoid_folder, "cora", "graph")
    noisy = {u: [*ids, *ids[:1], u] for u, ids in neighbors.items()}
    fill("graph", pickle.dumps(noisy, protocol=2))
    assert pairs(read_planetoid(folder, "cora")) == pairs(read("cora"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_changed_byte_is_refused_before_unpickling(
    fill: Callable[[str, bytes], Path], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    for other in SUFFIXES:
        folder = fill(other, b"some bytes")
    path = folder / f"ind.cora.{suffix}"
    path.write_bytes(b"some bytfs")
    unpickled = []
    monkeypatch.setattr(planetoid, "_unpickle", lambda data, path: unpickled.append(path))
    with pytest.raises(CvgnnError) as caught:
        read_planetoid(folder, "cora")
    expected, found = (hashlib.sha256(data).hexdigest() for data in (b"some bytes", b"some bytfs"))
    assert str(caught.value).startswith(f"{path} is not the known Planetoid file and was not opened")
    assert f"should be {expected} but is {found}; take it again" in str(caught.value)
    assert unpickled == []


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_byte_in_a_real_file_is_refused(planetoid_folder: Path, tmp_path: Path, name: str) -> None:
    for suffix in SUFFIXES:
        data = (planetoid_folder / f"ind.{name}.{suffix}").read_bytes()
        (tmp_path / f"ind.{name}.{suffix}").write_bytes(data)
    # The last byte of the last of the files that are checked.
    path = tmp_path / f"ind.{name}.{SUFFIXES[-1]}"
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    with pytest.raises(CvgnnError, match=SHA256[path.name]):
        read_planetoid(tmp_path, name)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file_is_named(fill: Callable[[str, bytes], Path], suffix: str) -> None:
    for other in SUFFIXES:
        folder = fill(other, b"some bytes")
    (folder / f"ind.cora.{suffix}").unlink()
    with pytest.raises(CvgnnError) as caught:
        read_planetoid(folder, "cora")
    assert f"the file ind.cora.{suffix} is missing in the folder {folder}; put" in str(caught.value)


def test_a_missing_folder_and_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(CvgnnError, match="is missing in the folder"):
        read_planetoid(tmp_path / "nowhere", "pubmed")
    (tmp_path / "ind.cora.x").mkdir()
    with pytest.raises(CvgnnError, match=r"cannot read .*ind\.cora\.x: "):
        read_planetoid(tmp_path, "cora")


class Call:
    """Pickles as a call, which is how a pickle runs code."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("function", [os.system, eval, exec, getattr, np.load], ids=lambda f: f.__name__)
def test_a_malicious_pickle_does_not_run(
    fill: Callable[[str, bytes], Path], tmp_path: Path, function: Callable[..., Any], protocol: int
) -> None:
    marker = tmp_path / "marker"
    payload = {
        os.system: Call(os.system, f"echo > '{marker}'"),
        eval: Call(eval, f"open({str(marker)!r}, 'w').close()"),
        exec: Call(exec, f"open({str(marker)!r}, 'w').close()"),
        getattr: Call(getattr, "text", "upper"),
        np.load: Call(np.load, str(marker)),
    }[function]
    for suffix in SUFFIXES:
        folder = fill(suffix, pickle.dumps(payload, protocol=protocol))
    with pytest.raises(CvgnnError, match=r"asks for '.*', which no Planetoid file needs"):
        read_planetoid(folder, "cora")
    assert not marker.exists()


@pytest.mark.parametrize("malicious", UNPICKLED)
def test_a_malicious_pickle_among_real_files_does_not_run(
    fill: Callable[[str, bytes], Path], planetoid_folder: Path, tmp_path: Path, malicious: str
) -> None:
    for suffix in SUFFIXES:
        folder = fill(suffix, (planetoid_folder / f"ind.cora.{suffix}").read_bytes())
    assert read_planetoid(folder, "cora").num_nodes == 2708
    marker = tmp_path / "marker"
    fill(malicious, pickle.dumps(Call(os.system, f"echo > '{marker}'"), protocol=2))
    with pytest.raises(CvgnnError, match=rf"ind\.cora\.{malicious} asks for '.*system'"):
        read_planetoid(folder, "cora")
    assert not marker.exists()


def test_the_malicious_pickle_would_have_run(tmp_path: Path) -> None:
    # Without this the test above could pass for the wrong reason.
    marker = tmp_path / "marker"
    pickle.loads(pickle.dumps(Call(os.system, f"echo > '{marker}'"), protocol=2))
    assert marker.exists()


@pytest.mark.parametrize("name", NAMES)
def test_the_files_need_every_allowed_name_and_no_other(planetoid_folder: Path, name: str) -> None:
    needed = set()
    for suffix in SUFFIXES[:-1]:
        data = (planetoid_folder / f"ind.{name}.{suffix}").read_bytes()
        for opcode, argument, _ in pickletools.genops(data):
            assert opcode.name not in {"STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"}
            if opcode.name == "GLOBAL":
                needed.add(tuple(argument.split()))
    assert needed == set(planetoid._ALLOWED)
