"""The catalog of named data sets: published counts, raw files, and the addresses that serve them (`data/catalog.toml`).

Importing this module loads neither torch nor scipy, so that listing the names is fast.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any, final

DATA_FOLDER = resources.files("cvgnn.data.named") / "data"  # files that come with the package

PLANETOID_SUFFIXES = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
# In the format of `sha256sum`, so that `sha256sum -c planetoid.sha256` checks a folder of raw files.
_CHECKSUM_LINES = (DATA_FOLDER / "planetoid.sha256").read_text(encoding="ascii").splitlines()
PLANETOID_SHA256: dict[str, str] = {file: checksum for checksum, file in map(str.split, _CHECKSUM_LINES)}


@final
@dataclass(frozen=True)
class Counts:
    """The sizes of a data set.

    Args:
        nodes, features, classes: as in Table 2 of the paper. Nodes of a set of graphs are those of all.
        edges: undirected edges, each counted once. For ogbn-arxiv: the directed citations that upstream lists.
        split: number of training, validation and test nodes, empty where upstream gives shares only; of a set of
            graphs, the graphs of its random split.
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


def _dataset(
    *, downloads: tuple[dict[str, Any], ...] = (), url: str = "", max_bytes: int = 0, **fields: Any
) -> Dataset:
    files = fields["files"] if url else ()  # without addresses, the user puts the files there
    items = downloads or [{"url": url + file, "file": file, "max_bytes": max_bytes} for file in files]
    served = tuple(Download(**item, sha256=PLANETOID_SHA256.get(item["file"])) for item in items)
    return Dataset(downloads=served, **fields)


# Tables of the file by name, their lists as tuples: the catalog is not to be changed.
_ENTRIES: dict[str, dict[str, Any]] = {
    name: {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    for name, entry in tomllib.loads((DATA_FOLDER / "catalog.toml").read_text(encoding="utf-8")).items()
}
for _entry in _ENTRIES.values():
    _entry["counts"] = Counts(**_entry["counts"] | {"split": tuple(_entry["counts"]["split"])})

CATALOG: dict[str, Dataset] = {
    name: _dataset(name=name, **entry) for name, entry in _ENTRIES.items() if "synthetic" not in entry
}
SYNTHETIC: dict[str, Counts] = {name: entry["counts"] for name, entry in _ENTRIES.items() if "synthetic" in entry}
SYNTHETIC_OPTIONS: dict[str, dict[str, Any]] = {name: _ENTRIES[name]["synthetic"] for name in SYNTHETIC}
GRAPH_SETS = {"mutag": "MUTAG", "proteins": "PROTEINS"}
"""The data sets that are sets of graphs, and how their raw files are named."""
