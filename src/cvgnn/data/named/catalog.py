"""The catalog of named data sets: published counts, raw files, and the addresses that serve them.

Counts of nodes, features, classes and edges come from Table 2 of the paper. The counts of PubMed and all split sizes
come from upstream (Planetoid, OGB, the documentation of PyG and DGL). A checksum is listed only where it is known.

Importing this module loads neither torch nor scipy, so that listing the names is fast.
"""

from __future__ import annotations

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
        nodes, features, classes: as in Table 2 of the paper. Nodes of a set of graphs are those of all.
        edges: undirected edges, each counted once. For ogbn-arxiv: the directed citations that upstream lists.
        split: number of training, validation and test nodes; of a set of graphs, the graphs of its random split.
        table2_edges: the edge column of Table 2, None if the data set is not in the table. Table 2 counts the entries
            of `A + I`: both directions of each edge and one self loop per node. For ogbn-arxiv, one direction only.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    split: tuple[int, int, int]
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
        downloads: the downloads that together contain all files; none where the user has to bring them.
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


def _tu(upstream_name: str, counts: Counts, *parts: str) -> Dataset:
    """A set of graphs in the layout of the TU data sets. No checksum of their archives is known to us."""
    name = upstream_name.lower()
    return Dataset(
        name=name,
        counts=counts,
        files=tuple(f"{upstream_name}_{part}.txt" for part in ("A", "graph_indicator", "graph_labels", *parts)),
        places=("", upstream_name, f"{upstream_name}/raw", f"{upstream_name}/{upstream_name}/raw", name, "raw"),
        downloads=(),
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
    Dataset(
        name="flickr",
        counts=_FLICKR,
        files=("adj_full.npz", "feats.npy", "class_map.json", "role.json"),
        places=("", "flickr", "Flickr/raw", "flickr/raw", "Flickr", "raw"),
        downloads=(  # PyG's identifiers
            _google_drive("1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy", "adj_full.npz", 64 * _MB),
            _google_drive("1join-XdvX3anJU_MLVtick7MgeAQiWIZ", "feats.npy", 1000 * _MB),
            _google_drive("1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9", "class_map.json", 64 * _MB),
            _google_drive("1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7", "role.json", 64 * _MB),
        ),
    ),
    Dataset(
        name="reddit",
        counts=_REDDIT,
        files=("reddit_data.npz", "reddit_graph.npz"),
        places=("", "reddit", "Reddit/raw", "reddit/raw", "Reddit", "raw", "raw/reddit"),
        downloads=(Download(url="https://data.dgl.ai/dataset/reddit.zip", file="reddit.zip", max_bytes=4000 * _MB),),
    ),
    _tu("MUTAG", Counts(3371, 3721, 7, 2, (113, 38, 37)), "node_labels"),
    _tu("PROTEINS", Counts(43471, 81044, 4, 2, (668, 222, 223)), "node_labels", "node_attributes"),
)

CATALOG: dict[str, Dataset] = {dataset.name: dataset for dataset in _DATASETS}
GRAPH_SETS = {"mutag": "MUTAG", "proteins": "PROTEINS"}
"""The data sets that are sets of graphs, and how their raw files are named."""

# Sizes of the synthetic presets: a small graph, and graphs of the sizes of the real ones. synthetic-arxiv has the
# edges of ogbn-arxiv after it is made undirected.
SYNTHETIC: dict[str, Counts] = {
    "synthetic-20k": Counts(20000, 150000, 64, 16, (6000, 4000, 10000)),
    "synthetic-flickr": replace(_FLICKR, table2_edges=None),
    "synthetic-arxiv": replace(_ARXIV, edges=1157799, table2_edges=None),
    "synthetic-reddit": replace(_REDDIT, table2_edges=None),
}
