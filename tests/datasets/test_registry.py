"""Named data sets, from the package and from folders laid out in the three known ways."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from cvgnn.datasets import load
from cvgnn.datasets.planetoid import SUFFIXES
from cvgnn.datasets.registry import DATASETS
from cvgnn.errors import CvgnnError
from cvgnn.graph import Graph, SparseFeatures

SHAPES = {  # nodes, undirected edges, features, classes, train, val, test
    "citeseer": (3327, 4552, 3703, 6, 120, 500, 1000),
    "cora": (2708, 5278, 1433, 7, 140, 500, 1000),
    "pubmed": (19717, 44324, 500, 3, 60, 500, 1000),
}
PYG = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}


def shape(g: Graph) -> tuple[int, ...]:
    split = (g.train_ids.numel(), g.val_ids.numel(), g.test_ids.numel())
    return (g.num_nodes, g.num_edges // 2, g.num_features, g.num_classes, *split)


def dense(g: Graph) -> torch.Tensor:
    return g.x.to_dense() if isinstance(g.x, SparseFeatures) else g.x


def assert_same(a: Graph, b: Graph) -> None:
    for name in ("indptr", "indices", "y", "train_ids", "val_ids", "test_ids"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert torch.equal(dense(a), dense(b))
    assert (a.name, a.num_classes, a.directed, a.edge_weight) == (b.name, b.num_classes, b.directed, b.edge_weight)


def link_files(source: Path, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in SUFFIXES:
        (folder / f"ind.{name}.{suffix}").symlink_to(source / f"ind.{name}.{suffix}")


def test_known_names() -> None:
    assert set(DATASETS) == set(SHAPES)
    assert DATASETS[0] == "citeseer"  # the default comes first in messages


def test_citeseer_is_bundled() -> None:
    g = load("citeseer")
    assert shape(g) == SHAPES["citeseer"]
    assert g.name == "citeseer"
    assert isinstance(g.x, SparseFeatures)
    assert g.train_ids.tolist() == list(range(120))


def test_bundled_citeseer_is_the_one_in_the_raw_files(planetoid_folder: Path) -> None:
    assert_same(load("citeseer"), load("citeseer", planetoid_folder))


@pytest.mark.parametrize("name", SHAPES)
def test_a_data_set_from_its_folder(planetoid_folder: Path, name: str) -> None:
    g = load(name, planetoid_folder)
    assert shape(g) == SHAPES[name]
    assert g.name == name
    assert isinstance(g.x, SparseFeatures) == (name != "pubmed")  # dense where that is the smaller form
    assert g.x.dtype == torch.float32


def test_every_way_to_lay_out_the_files_gives_the_same_graph(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "planetoid"
    link_files(source, tmp_path / "flat", "cora")
    link_files(source, tmp_path / "below" / "planetoid", "cora")
    link_files(source, tmp_path / "pyg" / PYG["cora"] / "raw", "cora")
    expected = load("cora", source)
    for root in (shared_data, tmp_path / "flat", tmp_path / "below", tmp_path / "pyg", str(tmp_path / "flat")):
        assert_same(load("cora", root), expected)


def test_pubmed_in_pygs_layout(shared_data: Path, tmp_path: Path) -> None:
    link_files(shared_data / "planetoid", tmp_path / PYG["pubmed"] / "raw", "pubmed")
    assert shape(load("pubmed", tmp_path)) == SHAPES["pubmed"]


@pytest.mark.parametrize("name", ["corra", "Cora", "", "reddit"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        load(name)
    assert str(caught.value).startswith(f"unknown dataset {name!r}; known: citeseer, cora, pubmed")


@pytest.mark.parametrize("name", ["cora", "pubmed"])
def test_what_is_not_bundled_needs_a_root(name: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        load(name)
    sentence = str(caught.value)
    assert f"dataset {name!r} is not bundled" in sentence
    assert f"ind.{name}.*" in sentence
    assert "--root" in sentence


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_a_root_without_the_files_names_the_places(tmp_path: Path, name: str, exists: bool) -> None:
    root = tmp_path if exists else tmp_path / "nowhere"
    with pytest.raises(CvgnnError) as caught:
        load(name, root)
    for place in (root, root / "planetoid", root / PYG[name] / "raw"):
        assert str(place) in str(caught.value)
    assert f"ind.{name}.graph" in str(caught.value)


def test_a_file_as_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(CvgnnError, match="no raw files of 'cora'"):
        load("cora", tmp_path / "file")


def test_a_missing_file_is_named(planetoid_folder: Path, tmp_path: Path) -> None:
    link_files(planetoid_folder, tmp_path, "cora")
    (tmp_path / "ind.cora.ty").unlink()
    with pytest.raises(CvgnnError, match=r"the file ind\.cora\.ty is missing in the folder"):
        load("cora", tmp_path)


def test_a_changed_file_is_refused(planetoid_folder: Path, tmp_path: Path) -> None:
    link_files(planetoid_folder, tmp_path, "cora")
    target = tmp_path / "ind.cora.graph"
    target.unlink()
    shutil.copyfile(planetoid_folder / "ind.citeseer.graph", target)
    with pytest.raises(CvgnnError, match=r"ind\.cora\.graph is not the known Planetoid file"):
        load("cora", tmp_path)
