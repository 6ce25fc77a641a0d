"""From the words that name a graph to the graph."""

from __future__ import annotations

from cvgnn.config import GraphSource
from cvgnn.datasets import load
from cvgnn.errors import CvgnnError
from cvgnn.graph import Graph, RandomSplit

_SPLIT_OPTIONS = ("split_seed", "train_fraction", "val_fraction", "per_class")


def load_source(source: GraphSource) -> Graph:
    """The graph that a `GraphSource` names, checked where it was not checked before."""
    split = RandomSplit(
        seed=source.split_seed, train=source.train_fraction, val=source.val_fraction, per_class=source.per_class
    )
    graph = _load(source, split)
    plain = GraphSource()
    asked = [name for name in _SPLIT_OPTIONS if getattr(source, name) != getattr(plain, name)]
    if asked and graph.split != split.describe():
        raise CvgnnError(
            f"the graph {graph.name!r} has its own split ({graph.split}), so {', '.join(asked)} would do nothing; "
            "leave it out"
        )
    return graph


def _load(source: GraphSource, split: RandomSplit) -> Graph:
    if source.name is not None:
        return load(source.name, source.root, directed=source.directed)
    assert source.graph is not None
    from cvgnn.files import read_graph

    return read_graph(source.graph, split=split, directed=source.directed)
