"""The catalog of named data sets: published counts, raw files, and the addresses that serve them.

Counts of nodes, features, classes and edges come from Table 2 of the paper. The counts of PubMed and all split sizes
come from upstream (Planetoid, OGB, the documentation of PyG and DGL). A checksum is listed only where it is known.

Importing this module loads neither torch nor scipy, so that listing the names is fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import final

DATA_FOLDER = resources.files("cvgnn.data.named") / "data"  # files that come with the package

PLANETOID_SUFFIXES = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
# In the format of `sha256sum`, so that `sha256sum -c planetoid.sha256` checks a folder of raw files.
_CHECKSUM_LINES = (DATA_FOLDER / "planetoid.sha256").read_text(encoding="ascii").splitlines()
PLANETOID_SHA256: dict[str, str] = {file: checksum for checksum, file in map(str.split, _CHECKSUM_LINES)}

_PLANETOID_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
_MB = 10**6


@final
@dataclass(frozen=True)
class Counts:
    """The sizes of a data set.

    Args:
        nodes, features, classes: as in Table 2 of the paper.
        edges: undirected edges, each counted once. For ogbn-arxiv: the directed citations that upstream lists.
        split: number of training, validation and test nodes; empty where upstream gives shares only.
        table2_edges: the edge column of Table 2, None if the data set is not in the table. Table 2 counts the entries
            of `A + I`: both directions of each edge and one self loop per node. For ogbn-arxiv, one direction only.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    split: tuple[int, ...]
    table2_edges: int | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Download:
    """One file that upstream serves.

    Args:
        url: its address.
        file: its name in the raw folder.
        max_bytes: upper bound of its size, and of the size of each file in it if it is an archive.
        sha256: its checksum, None if it is not known.
    """

    url: str
    file: str
    max_bytes: int
    sha256: str | None = None

    @property
    def is_archive(self) -> bool:
        """Whether it is a zip archive with the raw files in it."""
        return self.file.endswith(".zip")


@final
@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A named data set.

    Args:
        name: the name that users write.
        counts: its published sizes.
        files: upstream's raw files, relative to the folder that holds them.
        inner: name of that folder in upstream's archive, "" if the files are at its top.
        places: sub-folders of a root that may hold the files, the most likely first; "" is the root itself.
        downloads: the downloads that together contain all files.
        bundled: whether it comes with the package.
    """

    name: str
    counts: Counts
    files: tuple[str, ...]
    inner: str = ""
    places: tuple[str, ...]
    downloads: tuple[Download, ...]
    bundled: bool = False

    @property
    def members(self) -> list[str]:
        """The files as upstream's archive names them."""
        return [f"{self.inner}/{file}" if self.inner else file for file in self.files]


def _planetoid(pyg_name: str, counts: Counts, *, bundled: bool = False) -> Dataset:
    name = pyg_name.lower()
    files = tuple(f"ind.{name}.{suffix}" for suffix in PLANETOID_SUFFIXES)
    return Dataset(
        name=name,
        counts=counts,
        files=files,
        places=("", "planetoid", f"{pyg_name}/raw", f"{name}/raw", name, "raw"),
        downloads=tuple(
            Download(url=f"{_PLANETOID_URL}/{file}", file=file, max_bytes=16 * _MB, sha256=PLANETOID_SHA256[file])
            for file in files
        ),
        bundled=bundled,
    )


def _graphsaint(name: str, pyg_name: str, counts: Counts, identifiers: Sequence[str], *, feature_mb: int) -> Dataset:
    """A data set in the four files of GraphSAINT; `identifiers` are PyG's, of the files in this order."""
    files = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
    limits = (2 * feature_mb, feature_mb, 1000, 64)
    downloads = zip(identifiers, files, limits, strict=bool(identifiers))
    return Dataset(
        name=name,
        counts=counts,
        files=files,
        places=("", name, f"{pyg_name}/raw", f"{name}/raw", pyg_name, "raw"),
        downloads=tuple(_google_drive(identifier, file, limit * _MB) for identifier, file, limit in downloads),
    )


def _google_drive(identifier: str, file: str, max_bytes: int) -> Download:
    url = f"https://drive.usercontent.google.com/download?id={identifier}&confirm=t"
    return Download(url=url, file=file, max_bytes=max_bytes)


# Nodes, edges, features, classes, split, edges in Table 2.
_CITESEER = Counts(3327, 4552, 3703, 6, (120, 500, 1000), 12431)
_CORA = Counts(2708, 5278, 1433, 7, (140, 500, 1000), 13264)
_PUBMED = Counts(19717, 44324, 500, 3, (60, 500, 1000))
_ARXIV = Counts(169343, 1166243, 128, 40, (90941, 29799, 48603), 1335586)
_FLICKR = Counts(89250, 449878, 500, 7, (44625, 22312, 22313), 989006)
_REDDIT = Counts(232965, 57307946, 602, 41, (153431, 23831, 55703), 114848857)

# Several labels a node; as GraphSAINT and PyG publish them, the real files were not at hand. PyG counts 13,954,819
# entries for Yelp, an odd number: one of them is a self loop, which is not counted here.
_PPI = Counts(14755, 225270, 50, 121, ())
_YELP = Counts(716847, 6977409, 300, 100, ())
_AMAZON = Counts(1569960, 132169734, 200, 107, ())

_DATASETS = (
    _planetoid("CiteSeer", _CITESEER, bundled=True),  # the bundled one is the default and leads every list
    _planetoid("Cora", _CORA),
    _planetoid("PubMed", _PUBMED),
    Dataset(
        name="ogbn-arxiv",
        counts=_ARXIV,
        files=(
            *(f"raw/{file}.csv.gz" for file in ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list")),
            *(f"split/time/{part}.csv.gz" for part in ("train", "valid", "test")),
        ),
        inner="arxiv",
        places=("", "arxiv", "ogbn_arxiv", "ogbn-arxiv", "raw/arxiv", "ogbn-arxiv/raw/arxiv", "ogbn_arxiv_pyg"),
        downloads=(
            Download(
                url="http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip", file="arxiv.zip", max_bytes=512 * _MB
            ),
        ),
    ),
    _graphsaint(
        "flickr",
        "Flickr",
        _FLICKR,
        (
            "1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy",
            "1join-XdvX3anJU_MLVtick7MgeAQiWIZ",
            "1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9",
            "1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7",
        ),
        feature_mb=1000,
    ),
    Dataset(
        name="reddit",
        counts=_REDDIT,
        files=("reddit_data.npz", "reddit_graph.npz"),
        places=("", "reddit", "Reddit/raw", "reddit/raw", "Reddit", "raw", "raw/reddit"),
        downloads=(Download(url="https://data.dgl.ai/dataset/reddit.zip", file="reddit.zip", max_bytes=4000 * _MB),),
    ),
    _graphsaint("ppi", "PPI", _PPI, (), feature_mb=100),  # only in a folder of GraphSAINT's authors
    _graphsaint(
        "yelp",
        "Yelp",
        _YELP,
        (
            "1Juwx8HtDwSzmVIJ31ooVa1WljI4U5JnA",
            "1Zy6BZH_zLEjKlEFSduKE5tV9qqA_8VtM",
            "1VUcBGr0T0-klqerjAjxRmAqFuld_SMWU",
            "1NI5pa5Chpd-52eSmLW60OnB3WS5ikxq_",
        ),
        feature_mb=2000,
    ),
    _graphsaint(
        "amazon",
        "AmazonProducts",
        _AMAZON,
        (
            "17qhNA8H1IpbkkR-T2BmPQm8QNW5do-aa",
            "10SW8lCvAj-kb6ckkfTOC5y0l8XXdtMxj",
            "1LIl4kimLfftj4-7NmValuWyCQE8AaE7P",
            "1npK9xlmbnjNkV80hK2Q68wTEVOFjnt4K",
        ),
        feature_mb=2000,
    ),
)

CATALOG: dict[str, Dataset] = {dataset.name: dataset for dataset in _DATASETS}

# Sizes of the synthetic presets: a small graph, and graphs of the sizes of the real ones. synthetic-arxiv has the
# edges of ogbn-arxiv after it is made undirected.
SYNTHETIC: dict[str, Counts] = {
    "synthetic-20k": Counts(20000, 150000, 64, 16, (6000, 4000, 10000)),
    "synthetic-flickr": replace(_FLICKR, table2_edges=None),
    "synthetic-arxiv": replace(_ARXIV, edges=1157799, table2_edges=None),
    "synthetic-reddit": replace(_REDDIT, table2_edges=None),
}
