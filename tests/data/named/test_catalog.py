"""What is said of each data set, against the paper and against torch_geometric's own tables."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cvgnn.data.named.catalog import CATALOG, GRAPH_SETS, PLANETOID_SHA256, SYNTHETIC

PAPER_NAMES = {
    "cora": "Cora",
    "citeseer": "CiteSeer",
    "ogbn-arxiv": "ogbn-arxiv",
    "flickr": "Flickr",
    "reddit": "Reddit",
}


def test_the_paper_says_the_same(shared_data: Path) -> None:
    """Table 2: nodes, features, edges, classes."""
    (text,) = [path.read_text(encoding="utf-8") for path in (shared_data.parent / "paper").glob("*.txt")]
    table = text[text.index("Dataset & Nodes  & Features & Edges & Class") :].split("\\botrule")[0]
    for name, paper_name in PAPER_NAMES.items():
        row = re.search(rf"^\s*{paper_name}\s*&(.*)\\\\", table, flags=re.MULTILINE)
        assert row is not None
        printed = [int(number.replace(",", "")) for number in row[1].split("&")]
        c = CATALOG[name].counts
        assert printed == [c.nodes, c.features, c.table2_edges, c.classes], name
    without = [name for name, d in CATALOG.items() if d.counts.table2_edges is None]
    assert without == ["pubmed", "ppi", "yelp", "amazon", "mutag", "proteins"]


@pytest.mark.parametrize("name", CATALOG)
def test_counts_fit_together(name: str) -> None:
    c = CATALOG[name].counts
    if c.table2_edges is not None:
        directions = 1 if name == "ogbn-arxiv" else 2
        assert c.table2_edges == directions * c.edges + c.nodes
    assert sum(c.split) <= c.nodes
    if name in ("ogbn-arxiv", "flickr", "reddit"):
        assert sum(c.split) == c.nodes


@pytest.mark.parametrize("name", CATALOG)
def test_downloads_bring_every_file(name: str) -> None:
    dataset = CATALOG[name]
    assert dataset.name == name
    if name in GRAPH_SETS:  # the user brings the files
        assert dataset.downloads == ()
    elif any(item.is_archive for item in dataset.downloads):
        assert len(dataset.downloads) == 1
    else:
        assert [item.file for item in dataset.downloads] == ([] if name == "ppi" else list(dataset.files))
    for item in dataset.downloads:
        assert urlsplit(item.url).scheme in ("http", "https")
        assert item.sha256 == PLANETOID_SHA256.get(item.file)  # none is invented
        assert item.max_bytes <= 4 * 10**9
    assert dataset.places[0] == ""
    # Every place where a load puts files is a place where a load finds them.
    assert f"raw/{dataset.inner}".rstrip("/") in dataset.places


def test_torch_geometric_serves_the_same_files() -> None:
    """Read as text: importing it takes seconds."""
    spec = importlib.util.find_spec("torch_geometric")
    if spec is None or spec.origin is None:
        pytest.skip("torch_geometric is not installed")
    folder = Path(spec.origin).parent / "datasets"
    reddit, planetoid = ((folder / f"{n}.py").read_text() for n in ("reddit", "planetoid"))
    for name, module in (("flickr", "flickr"), ("yelp", "yelp"), ("amazon", "amazon_products")):
        text = (folder / f"{module}.py").read_text()
        names = {"adj_full": "adj_full.npz", "feats": "feats.npy", "class_map": "class_map.json", "role": "role.json"}
        theirs = {names[what]: identifier for what, identifier in re.findall(r"(\w+)_id = '(.*)'", text)}
        assert theirs == {item.file: re.findall(r"id=(.*)&", item.url)[0] for item in CATALOG[name].downloads}
        if name != "flickr":
            c = CATALOG[name].counts
            counts = [int(n.replace(",", "")) for n in re.findall(r"^ +(?:\* )?- ([\d,]+)$", text, flags=re.MULTILINE)]
            assert counts == [c.nodes, 2 * c.edges + (name == "yelp"), c.features, c.classes]
    assert f"url = '{CATALOG['reddit'].downloads[0].url}'" in reddit
    assert f"url = '{CATALOG['cora'].downloads[0].url.removesuffix('/ind.cora.x')}'" in planetoid


def test_synthetic_sizes_are_the_presets() -> None:
    from cvgnn.data.named.synthetic import PRESETS

    assert list(PRESETS) == list(SYNTHETIC)
    for name, preset in PRESETS.items():
        c = SYNTHETIC[name]
        assert (preset.num_nodes, preset.num_edges) == (c.nodes, 2 * c.edges)
        assert (preset.num_features, preset.num_classes) == (c.features, c.classes)
        assert (preset.train, preset.val, preset.test) == c.split
