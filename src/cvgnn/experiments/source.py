"""From the words that name a graph to the graph."""

from __future__ import annotations

from cvgnn.config import GraphSource
from cvgnn.datasets import load
from cvgnn.graph import Graph, RandomSplit


def load_source(source: GraphSource) -> Graph:
    """The graph that a `GraphSource` names, checked where it was not checked before."""
    if source.name is not None:
        return load(source.name, source.root, directed=source.directed)
    assert source.graph is not None
    from cvgnn.files import read_graph

    split = RandomSplit(
        seed=source.split_seed, train=source.train_fraction, val=source.val_fraction, per_class=source.per_class
    )
    return read_graph(source.graph, split=split, directed=source.directed)
