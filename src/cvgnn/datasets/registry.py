"""Named data sets: from a name, and where needed a folder with upstream's raw files, to a `Graph`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cvgnn.datasets.catalog import CATALOG, SYNTHETIC
from cvgnn.datasets.fetch import raw_folder
from cvgnn.datasets.home import cache_folder
from cvgnn.errors import CvgnnError, unknown_name

if TYPE_CHECKING:
    from cvgnn.graph import Graph

DATASETS: tuple[str, ...] = (*CATALOG, *SYNTHETIC)


def load(name: str, root: str | Path | None = None, *, directed: bool = False) -> Graph:
    """A named data set as a `Graph`.

    Args:
        name: `"citeseer"` (bundled), `"cora"` or `"pubmed"` with the Planetoid public split, `"ogbn-arxiv"` with OGB's
            split by time, `"flickr"` with GraphSAINT's split, `"reddit"` with that of DGL and PyG; or a synthetic graph
            of the size of one of these, `"synthetic-flickr"`, `"synthetic-arxiv"`, `"synthetic-reddit"`, or of
            20,000 nodes, `"synthetic-20k"`.
        root: folder with upstream's raw files, at its top or where PyG, OGB or GraphSAINT put them below it; nothing
            is written there. None for the cache folder (`CVGNN_HOME`), which is filled by downloading. For a synthetic
            graph: the folder in which it is generated on first use.
        directed: leave ogbn-arxiv directed, as the paper's released code did.

    >>> load("citeseer")
    Graph(citeseer: 3327 nodes, 4552 edges, 3703 sparse features, 6 classes, split 120/500/1000)
    """
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    if directed and name != "ogbn-arxiv":
        raise CvgnnError(f"dataset {name!r} has no directions; directed=True is for ogbn-arxiv")
    # Readers are imported here: they need torch, and a list of names should not wait for it.
    if name in SYNTHETIC:
        from cvgnn.datasets.synthetic import load_preset

        return load_preset(name, cache_folder() if root is None else Path(root))
    dataset = CATALOG[name]
    if dataset.bundled and root is None:
        from cvgnn.datasets.build import to_graph
        from cvgnn.datasets.bundled import load_bundled_citeseer

        return to_graph(load_bundled_citeseer())
    folder = raw_folder(dataset, None if root is None else Path(root))
    if name == "ogbn-arxiv":
        from cvgnn.datasets.ogb import read_arxiv

        # What was parsed is kept in the cache folder only, never in a folder of the user's.
        parsed = cache_folder() / name / "parsed.npz" if root is None else None
        return read_arxiv(folder, directed=directed, parsed=parsed)
    if name in ("flickr", "reddit"):
        from cvgnn.datasets.saint import read_flickr, read_reddit

        return read_flickr(folder) if name == "flickr" else read_reddit(folder)
    from cvgnn.datasets.build import to_graph
    from cvgnn.datasets.planetoid import read_planetoid

    return to_graph(read_planetoid(folder, name))
