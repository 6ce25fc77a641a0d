"""What is known of each named data set before a byte of it is read: counts, raw files, where upstream serves them.

Counts of nodes, features, classes and edges are the paper's Table 2; those of PubMed and of all splits are upstream's
(Planetoid, OGB, PyG's and DGL's documentation). A checksum stands here only where it is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from cvgnn.datasets.planetoid import NAMES as PLANETOID
from cvgnn.datasets.planetoid import SHA256, SUFFIXES

_MB = 10**6


@final
@dataclass(frozen=True, kw_only=True)
class Counts:
    """The sizes of a data set.

    Args:
        nodes, features, classes: as in the paper's Table 2.
        edges: each undirected edge once; for ogbn-arxiv the citations as upstream lists them, each once.
        split: training, validation and test nodes.
        table2_edges: the paper's edge column, None where Table 2 leaves the data set out. It counts the entries of
            `A + I`: both directions of each edge and a self loop a node; ogbn-arxiv's edges only as they are directed.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    split: tuple[int, int, int]
    table2_edges: int | None


@final
@dataclass(frozen=True, kw_only=True)
class Download:
    """One file that upstream serves.

    Args:
        url: where it is.
        file: its name in the raw folder.
        max_bytes: more than this is not upstream's file.
        sha256: its checksum, None where it is not known.
        archive: whether it is a zip with the data set's files in it.
    """

    url: str
    file: str
    max_bytes: int
    sha256: str | None = None
    archive: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A named data set.

    Args:
        name: as users write it.
        counts: its sizes.
        files: upstream's raw files, relative to the folder that holds them.
        edges_file: the one with the edges, which names the data set in messages.
        inner: that folder's name in upstream's archive, "" where the files lie at its top.
        places: sub-folders of a root where the files are looked for, the likeliest first; "" is the root itself.
        downloads: what to fetch to have all files.
        max_file_bytes: no raw file is larger.
        bundled: whether it comes with the package.
    """

    name: str
    counts: Counts
    files: tuple[str, ...]
    edges_file: str
    inner: str = ""
    places: tuple[str, ...]
    downloads: tuple[Download, ...]
    max_file_bytes: int
    bundled: bool = False


def _planetoid(name: str, pyg_name: str, counts: Counts) -> Dataset:
    url = "https://github.com/kimiyoung/planetoid/raw/master/data"
    files = tuple(f"ind.{name}.{suffix}" for suffix in SUFFIXES)
    return Dataset(
        name=name,
        counts=counts,
        files=files,
        edges_file=f"ind.{name}.graph",
        places=("", "planetoid", f"{pyg_name}/raw", f"{name}/raw", name, "raw"),
        downloads=tuple(
            Download(url=f"{url}/{file}", file=file, max_bytes=16 * _MB, sha256=SHA256[file]) for file in files
        ),
        max_file_bytes=16 * _MB,
        bundled=name == "citeseer",
    )


def _google_drive(identifier: str, file: str, max_bytes: int) -> Download:
    url = f"https://drive.usercontent.google.com/download?id={identifier}&confirm=t"
    return Download(url=url, file=file, max_bytes=max_bytes)


_ARXIV = Dataset(
    name="ogbn-arxiv",
    counts=Counts(
        nodes=169343, edges=1166243, features=128, classes=40, split=(90941, 29799, 48603), table2_edges=1335586
    ),
    files=(
        "raw/edge.csv.gz",
        "raw/node-feat.csv.gz",
        "raw/node-label.csv.gz",
        "raw/num-node-list.csv.gz",
        "raw/num-edge-list.csv.gz",
        "split/time/train.csv.gz",
        "split/time/valid.csv.gz",
        "split/time/test.csv.gz",
    ),
    edges_file="raw/edge.csv.gz",
    inner="arxiv",
    places=("", "arxiv", "ogbn_arxiv", "ogbn-arxiv", "raw/arxiv", "ogbn-arxiv/raw/arxiv", "ogbn_arxiv_pyg"),
    downloads=(
        Download(
            url="http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",
            file="arxiv.zip",
            max_bytes=512 * _MB,
            archive=True,
        ),
    ),
    max_file_bytes=512 * _MB,
)

_FLICKR = Dataset(
    name="flickr",
    counts=Counts(nodes=89250, edges=449878, features=500, classes=7, split=(44625, 22312, 22313), table2_edges=989006),
    files=("adj_full.npz", "feats.npy", "class_map.json", "role.json"),
    edges_file="adj_full.npz",
    places=("", "flickr", "Flickr/raw", "flickr/raw", "Flickr", "raw"),
    downloads=(  # PyG's identifiers
        _google_drive("1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy", "adj_full.npz", 64 * _MB),
        _google_drive("1join-XdvX3anJU_MLVtick7MgeAQiWIZ", "feats.npy", 1000 * _MB),
        _google_drive("1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9", "class_map.json", 64 * _MB),
        _google_drive("1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7", "role.json", 64 * _MB),
    ),
    max_file_bytes=1000 * _MB,
)

_REDDIT = Dataset(
    name="reddit",
    counts=Counts(
        nodes=232965, edges=57307946, features=602, classes=41, split=(153431, 23831, 55703), table2_edges=114848857
    ),
    files=("reddit_data.npz", "reddit_graph.npz"),
    edges_file="reddit_graph.npz",
    places=("", "reddit", "Reddit/raw", "reddit/raw", "Reddit", "raw", "raw/reddit"),
    downloads=(
        Download(url="https://data.dgl.ai/dataset/reddit.zip", file="reddit.zip", max_bytes=4000 * _MB, archive=True),
    ),
    max_file_bytes=4000 * _MB,
)

_COUNTS = {
    "cora": Counts(nodes=2708, edges=5278, features=1433, classes=7, split=(140, 500, 1000), table2_edges=13264),
    "citeseer": Counts(nodes=3327, edges=4552, features=3703, classes=6, split=(120, 500, 1000), table2_edges=12431),
    "pubmed": Counts(nodes=19717, edges=44324, features=500, classes=3, split=(60, 500, 1000), table2_edges=None),
}
_PYG_NAMES = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
# The bundled one first: it is the default and leads every list.
_ORDER = ("citeseer", *(name for name in PLANETOID if name != "citeseer"))

CATALOG: dict[str, Dataset] = {
    **{name: _planetoid(name, _PYG_NAMES[name], _COUNTS[name]) for name in _ORDER},
    **{dataset.name: dataset for dataset in (_ARXIV, _FLICKR, _REDDIT)},
}

# Generated by `cvgnn.datasets.synthetic`: a small one, and those in the sizes of the real ones; arxiv's in those it has
# when undirected.
SYNTHETIC: dict[str, Counts] = {
    "synthetic-20k": Counts(
        nodes=20000, edges=150000, features=64, classes=16, split=(6000, 4000, 10000), table2_edges=None
    ),
    "synthetic-flickr": replace(_FLICKR.counts, table2_edges=None),
    "synthetic-arxiv": replace(_ARXIV.counts, edges=1157799, table2_edges=None),
    "synthetic-reddit": replace(_REDDIT.counts, table2_edges=None),
}
