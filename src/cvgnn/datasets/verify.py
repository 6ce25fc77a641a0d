"""A loaded data set against what is published of it: the paper's Table 2, and upstream's split sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from cvgnn.datasets.catalog import CATALOG, SYNTHETIC, Counts
from cvgnn.datasets.registry import load
from cvgnn.errors import CvgnnError, unknown_name

if TYPE_CHECKING:
    from cvgnn.graph import Graph


@final
@dataclass(frozen=True, kw_only=True)
class Check:
    """One count.

    Args:
        column: what is counted.
        published: the number there should be.
        found: the number there is.
        source: who published it.
    """

    column: str
    published: int
    found: int
    source: str

    @property
    def passed(self) -> bool:
        """Whether they agree."""
        return self.published == self.found


def verify(name: str, root: str | Path | None = None) -> list[Check]:
    """Load a data set and compare its counts, column by column.

    Table 2 counts as edges the entries of `A + I`: both directions of each edge and one self loop a node. For
    ogbn-arxiv it prints 1,335,586 = 1,166,243 + 169,343: each citation once, so there the directed graph is counted.

    Args:
        name: of the data set.
        root: as for `load`.

    >>> [(check.column, check.found) for check in verify("citeseer")][:2]
    [('nodes', 3327), ('features', 3703)]
    """
    if name in SYNTHETIC:
        raise CvgnnError(f"dataset {name!r} is generated, so there is nothing to verify; known: {', '.join(CATALOG)}")
    if name not in CATALOG:
        raise unknown_name("dataset", name, CATALOG)
    return compare(load(name, root, directed=name == "ogbn-arxiv"), CATALOG[name].counts)


def compare(graph: Graph, counts: Counts) -> list[Check]:
    """The counts of a graph beside the published ones.

    Args:
        graph: directed if it is ogbn-arxiv.
        counts: what is published.
    """
    if graph.directed != (graph.name.startswith("ogbn-arxiv")):
        raise CvgnnError(f"Table 2 counts the directed graph for ogbn-arxiv alone, so {graph.name!r} does not compare")
    if counts.table2_edges is None:
        source, edges = "upstream", 2 * counts.edges + counts.nodes
    else:
        source, edges = "Table 2", counts.table2_edges
    rows = [
        ("nodes", counts.nodes, graph.num_nodes, source),
        ("features", counts.features, graph.num_features, source),
        ("edges, with self loops", edges, graph.num_edges + graph.num_nodes, source),
        ("classes", counts.classes, graph.num_classes, source),
    ]
    split = (graph.train_ids, graph.val_ids, graph.test_ids)
    for part, published, ids in zip(("training", "validation", "test"), counts.split, split, strict=True):
        rows.append((f"{part} nodes", published, ids.numel(), "upstream"))
    return [Check(column=c, published=p, found=f, source=s) for c, p, f, s in rows]
