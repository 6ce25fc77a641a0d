"""Loads the graph that the options of a run name."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from cvgnn.config import IN_MEMORY, GraphSource
from cvgnn.data import Graph, RandomSplit
from cvgnn.data.named import load
from cvgnn.data.named.catalog import GRAPH_SETS
from cvgnn.data.named.synthetic import PRESETS, VERSION
from cvgnn.data.store import is_store
from cvgnn.data.table_options import TableOptions
from cvgnn.errors import require
from cvgnn.training.tasks import is_of_pairs
from cvgnn.utils.sigbus import exit_on_sigbus

_SPLIT_OPTIONS = ("split_seed", "train_fraction", "val_fraction", "per_class")


def load_source(
    source: GraphSource,
    *,
    trusted: bool = True,
    preprocessing: dict[str, Any] | None = None,
    task: str = "auto",
    predicting: bool = False,
) -> Graph:
    """The graph of a `GraphSource`.

    Args:
        source: a data set's name, or a file or folder.
        trusted: whether the user named it. A config.json may come from anybody: it must not make us write to a folder
            of its choice.
        preprocessing: of the graph that a model was trained on, to read other tables in the same way.
        task: name of the task. Those of pairs need no labels at nodes.
        predicting: whether the graph is one to predict on, so that it may have no labels.
    """
    require(
        source.dataset != IN_MEMORY,
        "this run was trained on a graph that was made in Python, so config.json does not say where it is; give the "
        "graph, as load_run(folder, graph), or --graph",
    )
    # Loading a synthetic graph writes it to its root if it is not there.
    if not trusted and source.root is not None and source.name in PRESETS:
        require(
            is_store(source.root / f"{source.name}-v{VERSION}"),
            f"there is no {source.name} in {source.root}, where the run had it; give --root to create it there",
        )
    split = split_of(source, allow_unlabelled=predicting or is_of_pairs(task))
    if source.graph is None:
        assert source.name is not None
        given = source.given()
        require(not given, f"{source.name} is no folder of tables, so {', '.join(given)} does nothing; leave it out")
        own = split if source.name in GRAPH_SETS else None
        graph = load(source.name, source.root, directed=source.directed, split=own)
    else:
        from cvgnn.data.io import read_graph

        require(
            not (source.graph / "partition.json").is_file(),
            f"{source.graph} is a partitioned graph, which only cvgnn train, predict and evaluate read; give the "
            "graph that it was made of, with --graph",
        )

        tables = TableOptions(**source.table_options())
        graph = read_graph(
            source.graph, split=split, directed=source.directed, tables=tables, preprocessing=preprocessing,
            predicting=predicting,
        )  # fmt: skip
    if graph.train_ids.numel() and graph.split != split.describe():
        refuse_split_options(source, graph.name, graph.split)
    return graph


def refuse_split_options(source: GraphSource, name: str, record: str) -> None:
    """Refuse options of a random split for a graph that has its own: the user would believe in one that was not made.

    Args:
        source: the options.
        name: of the graph.
        record: where its split comes from.
    """
    default = GraphSource()
    given = [option for option in _SPLIT_OPTIONS if getattr(source, option) != getattr(default, option)]
    if source.split_by is not None:
        given = [option for option in given if not option.endswith("_fraction")]
    require(
        not given,
        f"the graph {name!r} has its own split ({record}), so {', '.join(given)} would do nothing; leave it out",
    )


def split_of(source: GraphSource, *, allow_unlabelled: bool = False) -> RandomSplit:
    """The random split that the options of a source name."""
    return RandomSplit(
        seed=source.split_seed, train=source.train_fraction, val=source.val_fraction, per_class=source.per_class,
        allow_unlabelled=allow_unlabelled,
    )  # fmt: skip


def report_lost_graph(source: GraphSource, advice: str) -> AbstractContextManager[None]:
    """Report a graph that is lost while it is in use: a store is read from disk when its rows are needed.

    Args:
        source: of the graph; only a store, and so a synthetic data set, is mapped.
        advice: what to do, for the message.
    """
    mapped = source.name in PRESETS if source.graph is None else is_store(source.graph)
    return exit_on_sigbus(advice) if mapped else nullcontext()
