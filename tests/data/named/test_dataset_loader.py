"""Named data sets, from the package, from folders laid out in the known ways, and from a server."""

from __future__ import annotations

import dataclasses
import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from cvgnn.data import Graph, SparseFeatures
from cvgnn.data.named import load
from cvgnn.data.named.catalog import CATALOG, SYNTHETIC
from cvgnn.data.named.catalog import PLANETOID_SUFFIXES as SUFFIXES
from cvgnn.data.named.dataset_loader import DATASETS
from cvgnn.errors import CvgnnError
from tests.data.named import pyg
from tests.data.named.layouts import small, write_arxiv, write_flickr, write_reddit
from tests.data.named.server import Page, Server

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
    assert DATASETS[:6] == ("citeseer", "cora", "pubmed", "ogbn-arxiv", "flickr", "reddit")  # the default comes first


def test_names_are_known_without_torch() -> None:
    code = (
        "import sys; from cvgnn.data.named import DATASETS, load; print(sorted({'torch', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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


@pytest.mark.parametrize("name", ["corra", "Cora", "", "reddit2"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        load(name)
    assert str(caught.value).startswith(f"unknown dataset {name!r}; known: citeseer, cora, pubmed")


@pytest.mark.parametrize("name", ["cora", "pubmed"])
def test_what_is_not_bundled_needs_a_root_or_the_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVGNN_OFFLINE", "1")
    with pytest.raises(CvgnnError) as caught:
        load(name)
    sentence = str(caught.value)
    assert f"dataset {name!r} is not bundled" in sentence
    for suffix in SUFFIXES:
        assert f"ind.{name}.{suffix}" in sentence
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


@pytest.mark.parametrize("name", SHAPES)
def test_torch_geometric_reads_the_real_files_alike(planetoid_folder: Path, tmp_path: Path, name: str) -> None:
    link_files(planetoid_folder, tmp_path / "raw", name)
    pyg.assert_same(load(name, planetoid_folder), pyg.read("Planetoid", tmp_path / "raw", tmp_path / "pyg", PYG[name]))


WRITERS = {"ogbn-arxiv": write_arxiv, "flickr": write_flickr, "reddit": write_reddit}
PLACES = {
    "ogbn-arxiv": ["", "arxiv", "ogbn_arxiv", "ogbn-arxiv", "raw/arxiv", "ogbn-arxiv/raw/arxiv"],
    "flickr": ["", "flickr", "Flickr/raw", "flickr/raw", "raw"],
    "reddit": ["", "reddit", "Reddit/raw", "reddit/raw", "raw"],
}


@pytest.mark.parametrize(("name", "place"), [(name, place) for name, places in PLACES.items() for place in places])
def test_a_root_is_used_as_it_is(tmp_path: Path, home: Path, name: str, place: str) -> None:
    g = small(symmetric=name != "ogbn-arxiv")
    WRITERS[name](tmp_path / "root" / place, g)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    graph = load(name, tmp_path / "root")
    assert graph.name == name
    assert (graph.num_nodes, graph.num_edges) == (23, len(g.pairs()))
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
    assert not home.exists()


def serve(server: Server, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `server` serve the files in `folder` as upstream does, and the catalog name it."""
    dataset = CATALOG[name]
    items = []
    for item in dataset.downloads:
        if item.is_archive:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as file:
                for member in dataset.files:
                    file.write(folder / member, f"{dataset.inner}/{member}" if dataset.inner else member)
                file.writestr(f"{dataset.inner or 'docs'}/README.md", "not wanted")
            data = buffer.getvalue()
        else:
            data = (folder / item.file).read_bytes()
        server.pages[f"/{name}/{item.file}"] = Page(data, stop_after=[len(data) // 3])
        items.append(dataclasses.replace(item, url=server.url(f"/{name}/{item.file}")))
    monkeypatch.setitem(CATALOG, name, dataclasses.replace(dataset, downloads=tuple(items)))


@pytest.mark.parametrize("name", ["cora", "ogbn-arxiv", "flickr", "reddit"])
def test_from_upstream_to_a_graph_and_then_offline(
    server: Server,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    request: pytest.FixtureRequest,
) -> None:
    """Every transfer breaks once on the way."""
    if name == "cora":
        source = request.getfixturevalue("planetoid_folder")
    else:
        source = WRITERS[name](tmp_path, small(symmetric=name != "ogbn-arxiv"))
    serve(server, name, source, monkeypatch)
    expected = load(name, source)
    assert not home.exists()
    assert_same(load(name), expected)
    assert len(server.requests) == 2 * len(CATALOG[name].downloads)
    monkeypatch.setenv("CVGNN_OFFLINE", "1")
    assert_same(load(name), expected)
    assert_same(load(name, home), expected)  # the cache folder is a root like any other
    files = {path.name for path in home.rglob("*") if path.is_file()}
    kept = {"parsed.npz"} if name == "ogbn-arxiv" else set()
    assert files == {".lock", *(Path(file).name for file in CATALOG[name].files), *kept}


def test_a_wrong_file_from_upstream_is_refused(
    server: Server, planetoid_folder: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    serve(server, "cora", planetoid_folder, monkeypatch)
    server.pages["/cora/ind.cora.graph"] = Page((planetoid_folder / "ind.citeseer.graph").read_bytes())
    with pytest.raises(CvgnnError, match=r"ind\.cora\.graph: its SHA-256 should be .*so it was deleted; fetch by hand"):
        load("cora")
    assert not (home / "cora" / "raw" / "ind.cora.graph").exists()
    assert (home / "cora" / "raw" / "ind.cora.x").exists()


def test_arxiv_directed_and_undirected(tmp_path: Path) -> None:
    g = small(symmetric=False)
    write_arxiv(tmp_path, g)
    undirected, directed = load("ogbn-arxiv", tmp_path), load("ogbn-arxiv", tmp_path, directed=True)
    assert (undirected.name, undirected.directed) == ("ogbn-arxiv", False)
    assert (directed.name, directed.directed) == ("ogbn-arxiv (directed)", True)
    assert directed.num_edges == len(set(g.edges))
    assert undirected.num_edges == len(g.pairs())


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_names_go_to_their_generator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path, name: str
) -> None:
    from cvgnn.data.named import synthetic

    asked: list[tuple[str, Path]] = []
    monkeypatch.setattr(synthetic, "load_preset", lambda name, root: asked.append((name, root)))
    load(name)
    load(name, tmp_path)
    assert asked == [(name, home), (name, tmp_path)]


@pytest.mark.parametrize("name", ["citeseer", "cora", "flickr", "reddit", "synthetic-arxiv"])
def test_the_others_have_no_directions(name: str) -> None:
    with pytest.raises(CvgnnError, match="has no directions; directed=True is for ogbn-arxiv"):
        load(name, directed=True)
