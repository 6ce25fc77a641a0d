"""Load a data set by name, and compare it with its published counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cvgnn.data.named.catalog import CATALOG, GRAPH_SETS, SYNTHETIC, Counts
from cvgnn.data.named.raw_folder import raw_folder
from cvgnn.errors import CvgnnError, require, require_known
from cvgnn.utils.cache_folder import cache_folder

if TYPE_CHECKING:
    from cvgnn.data import Graph, RandomSplit

_SPLIT_IDS = {"training": "train_ids", "validation": "val_ids", "test": "test_ids"}
DATASETS: tuple[str, ...] = (*CATALOG, *SYNTHETIC)


def load(
    name: str, root: str | Path | None = None, *, directed: bool = False, split: RandomSplit | None = None
) -> Graph:
    """Load a named data set.

    Args:
        name: `"citeseer"` (bundled), `"cora"` or `"pubmed"` with the public Planetoid split, `"ogbn-arxiv"` with OGB's
            split by time, `"flickr"`, `"ppi"`, `"yelp"` and `"amazon"` with GraphSAINT's split (the last three have
            several labels a node), `"reddit"` with the split of DGL and PyG; or a synthetic graph:
            `"synthetic-flickr"`, `"synthetic-arxiv"`, `"synthetic-reddit"` have the sizes of the real ones,
            `"synthetic-20k"` has 20,000 nodes. `"mutag"` and `"proteins"` are sets of graphs; their raw files are not
            downloaded.
        root: folder with upstream's raw files, at its top or in the sub-folders that PyG, OGB or GraphSAINT use;
            nothing is written there. None for the cache folder (`CVGNN_HOME`), into which missing files are
            downloaded. For a synthetic graph: the folder in which it is generated on first use.
        directed: keep ogbn-arxiv directed, as the released code of the paper did.
        split: the random split of a set of graphs, by graph; `RandomSplit()` if not given. Others have their own.

    >>> load("citeseer")
    Graph(citeseer: 3327 nodes, 4552 edges, 3703 sparse features, 6 classes, split 120/500/1000)
    """
    require_known("dataset", name, DATASETS)
    if directed and name != "ogbn-arxiv":
        raise CvgnnError(f"dataset {name!r} has no directions; directed=True is for ogbn-arxiv")
    require(split is None or name in GRAPH_SETS, f"dataset {name!r} has its own split; leave split out")
    # The readers import torch, which takes seconds; a list of names does not need it.
    if name in SYNTHETIC:
        from cvgnn.data.named.synthetic import load_preset

        return load_preset(name, cache_folder() if root is None else Path(root))
    dataset = CATALOG[name]
    if dataset.bundled and root is None:
        from cvgnn.data.named.planetoid import load_bundled_citeseer

        return load_bundled_citeseer()
    folder = raw_folder(dataset, None if root is None else Path(root))
    if name in GRAPH_SETS:
        from cvgnn.data.named.tu_layout import read_tu

        return read_tu(folder, GRAPH_SETS[name], split=split)
    if name in ("citeseer", "cora", "pubmed"):
        from cvgnn.data.named.planetoid import read_planetoid

        return read_planetoid(folder, name)
    from cvgnn.data.named.raw_layouts import read_arxiv, read_graphsaint, read_reddit

    if name == "ogbn-arxiv":
        # Parsed arrays are kept in the cache folder only, never in a user's folder.
        parsed = cache_folder() / name / "parsed.npz" if root is None else None
        return read_arxiv(folder, directed=directed, parsed=parsed)
    return read_reddit(folder) if name == "reddit" else read_graphsaint(folder, name)


class CountCheck(NamedTuple):
    """A count of a loaded graph beside the published one.

    Args:
        column: name of the count.
        published: the published number.
        found: the number in the loaded graph.
        source: who published it.
    """

    column: str
    published: int
    found: int
    source: str

    @property
    def passed(self) -> bool:
        """Whether the two numbers agree."""
        return self.published == self.found


def verify(name: str, root: str | Path | None = None) -> list[CountCheck]:
    """Load a data set and compare its counts with the published ones.

    Table 2 counts as edges the entries of `A + I`: both directions of each edge and one self loop per node. For
    ogbn-arxiv it prints 1,335,586 = 1,166,243 + 169,343, each citation once. So the directed graph is counted there.

    Args:
        name: of the data set.
        root: as for `load`.

    >>> [(check.column, check.found) for check in verify("citeseer")][:2]
    [('nodes', 3327), ('features', 3703)]
    """
    if name in SYNTHETIC:
        raise CvgnnError(f"dataset {name!r} is generated, so there is nothing to verify; known: {', '.join(CATALOG)}")
    return compare(load(name, root, directed=name == "ogbn-arxiv"), CATALOG[name].counts)


def compare(graph: Graph, counts: Counts) -> list[CountCheck]:
    """Compare the counts of a graph with published ones.

    Args:
        graph: the directed graph for ogbn-arxiv, an undirected one for all others.
        counts: the published counts.
    """
    if graph.directed != (graph.name.startswith("ogbn-arxiv")):
        raise CvgnnError(f"Table 2 counts the directed graph for ogbn-arxiv alone, so {graph.name!r} does not compare")
    if counts.table2_edges is None:
        source, edges = "upstream", 2 * counts.edges + counts.nodes
    else:
        source, edges = "Table 2", counts.table2_edges
    item, origin = ("nodes", "upstream") if graph.graph_ids is None else ("graphs", "cvgnn")
    return [
        CountCheck("nodes", counts.nodes, graph.num_nodes, source),
        CountCheck("features", counts.features, graph.num_features, source),
        CountCheck("edges, with self loops", edges, graph.num_edges + graph.num_nodes, source),
        CountCheck("classes", counts.classes, graph.num_classes, source),
        *(
            CountCheck(f"{part} {item}", published, getattr(graph, ids).numel(), origin)
            for (part, ids), published in zip(_SPLIT_IDS.items(), counts.split, strict=False)
        ),
    ]
