"""From the words that name a graph to the graph."""

from __future__ import annotations

from cvgnn.config import GraphSource
from cvgnn.datasets import load
from cvgnn.datasets.synthetic import PRESETS, VERSION
from cvgnn.errors import CvgnnError, require
from cvgnn.graph import Graph, RandomSplit
from cvgnn.store import is_store

_SPLIT_OPTIONS = ("split_seed", "train_fraction", "val_fraction", "per_class")


def load_source(source: GraphSource, *, trusted: bool = True) -> Graph:
    """The graph that a `GraphSource` names, checked where it was not checked before.

    Args:
        source: what to load.
        trusted: whether the user named it; a config.json, which may be somebody else's, must not make us write to a
            folder of its choice.
    """
    if not trusted and source.root is not None and source.name in PRESETS:
        require(
            is_store(source.root / f"{source.name}-v{VERSION}"),
            f"there is no {source.name} in {source.root}, where the run had it; give --root, to have it made there",
        )
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
