"""`cvgnn predict`: classes, probabilities or embeddings from a finished run."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from cvgnn.cli.options import EvaluateCommand, PredictCommand
from cvgnn.cli.output import given_globally, is_json, only_errors, set_result
from cvgnn.config import GraphSource
from cvgnn.data.store import is_store
from cvgnn.data.table_options import TableOptions
from cvgnn.distributed.partition import Partition, is_partition
from cvgnn.distributed.ranks import Ranks, world_size
from cvgnn.distributed.sharded_predictions import read_sharded_run
from cvgnn.distributed.sharded_run import check_ranks, launch
from cvgnn.errors import CvgnnError, require
from cvgnn.registry import plugin_options
from cvgnn.training.pair_predictions import pair_predictions, read_pairs
from cvgnn.training.predictions import NodeTable, check_format, embeddings, find_nodes, predictions, read_node_list
from cvgnn.training.run import Run, read_preprocessing, read_run
from cvgnn.training.run_folder import check_is_folder, read_settings


def predict_command(command: PredictCommand, argv: Sequence[str]) -> int:
    """Predict, print or write."""

    if command.embeddings is not None and not isinstance(command.embeddings, int):
        raise CvgnnError(f"embeddings must be the number of a layer, not {command.embeddings!r}")
    columns = [name for text in command.columns for name in text.split(",") if name]
    require(
        not command.columns or (bool(columns) and command.embeddings is None),
        "--columns chooses columns of predictions, and not of embeddings; leave it out, or name a column",
    )
    if command.out is not None:
        check_format(command.out, overwrite=command.force)
    if partition_of(command) is not None:
        given = {"--embeddings": command.embeddings, "--edges": command.edges, "--unknown-edges": command.unknown_edges}
        for name, value in {**given, "--new": command.new or None}.items():
            require(value is None, f"{name} needs the whole graph; give the graph that was partitioned, with --graph")
    return with_run("predict", command, argv, lambda: _source(command), functools.partial(_predict, command, columns))


def _predict(command: PredictCommand, columns: Sequence[str], run: Run, order: np.ndarray | None) -> int:
    require(
        not command.new or run.task.items.kind == "node",
        f"--new predicts for new nodes, and a run of task {run.task.name!r} has no labels at nodes; give a graph that "
        "has the new nodes, with --graph",
    )
    if command.edges is not None or (run.task.of_pairs and command.embeddings is None):
        return written(command, pair_table(command, run), "pairs")
    item = run.task.items.kind if command.embeddings is None else "node"
    ids = None if command.nodes is None else find_nodes(run.graph, read_node_list(command.nodes), item=item)
    if command.new:
        require(len(command.new) == 2, "--new takes two files: the table of new nodes, and that of their edges")
        require(command.nodes is None, "--new predicts all new nodes and no others; leave --nodes out")
        from cvgnn.data.io.new_node_tables import read_new_nodes

        given = {} if command.unknown_edges is None else {"unknown_edges": command.unknown_edges}
        options, fitted = TableOptions(**run.source.table_options() | given), read_preprocessing(command.run)
        files = command.new[0], command.new[1]
        x, edges, weight, names = read_new_nodes(*files, run.graph, options=options, preprocessing=fitted)
        run, places = run.around_new(x, edges, weight, names=names)
        ids = places.numpy()
    if ids is None and order is not None:
        ids = order
    table = predictions(run, ids, columns) if command.embeddings is None else embeddings(run, command.embeddings, ids)
    return written(command, table, f"{item}s")


def with_run(
    name: str, command: PredictCommand | EvaluateCommand, argv: Sequence[str], source: Callable[[], GraphSource | None],
    use: Callable[[Run, np.ndarray | None], int],
) -> int:  # fmt: skip
    """Read a finished run and use it. On a partitioned graph all ranks compute the outputs, and rank 0 uses them.

    Args:
        name: of the command.
        command, argv: its options.
        source: where the graph is now, see `moved_source`; not called for a partitioned graph.
        use: gets the run, and the positions of the user's nodes in it where these have another order.
    """
    path = partition_of(command)
    check_ranks(path, command.ranks)
    if path is None:
        return use(read_run(command.run, source=source()), None)
    partition = Partition(path)
    partition.own_numbers(0, max(command.ranks, world_size()))
    if command.ranks > world_size():
        return launch(command.ranks, [name, *argv, *given_globally(), *plugin_options()])
    with closing(Ranks(command.timeout, advice="start the command again")) as ranks:
        if ranks.rank > 0:
            only_errors()
        run = read_sharded_run(command.run, partition, ranks)
        return use(run, partition.user_order()) if ranks.rank == 0 else 0


def partition_of(command: PredictCommand | EvaluateCommand) -> Path | None:
    """The partitioned graph that is named, or that the run was trained on; None for another graph."""
    check_is_folder(command.run)
    place = command.graph
    if place is None and command.root is None:
        place = read_settings(command.run / "config.json")[0].graph
    return place if place is not None and is_partition(place) else None


def _source(command: PredictCommand) -> GraphSource | None:
    """Where the graph is now, with --unknown-edges where it is a folder of tables."""
    source = moved_source(command.run, command.graph, command.root)
    if command.unknown_edges is None:
        return source
    check_is_folder(command.run)
    place = source or read_settings(command.run / "config.json")[0]
    if place.graph is not None and is_tables(place.graph):
        return dataclasses.replace(place, unknown_edges=command.unknown_edges)
    require(bool(command.new), "--unknown-edges is for tables, and the graph is none; leave it out")
    return source


def pair_table(command: PredictCommand, run: Run) -> NodeTable:
    """The predictions for --edges."""

    task = run.task.name
    require(run.task.of_pairs, f"--edges is for runs of task edge or link, and this one has task {task!r}; use --nodes")
    require(command.edges is not None, f"a run of task {task!r} predicts for pairs of nodes; name a table with --edges")
    require(
        command.nodes is None and not command.columns and command.embeddings is None,
        "--edges goes neither with --nodes nor with --columns nor with --embeddings; leave them out",
    )
    assert command.edges is not None
    return pair_predictions(run, read_pairs(run.graph, command.edges))


def written(command: PredictCommand, table: NodeTable, what: str) -> int:
    """Print the table, or write it to --out."""

    if command.out is None and is_json():
        set_result({name: column.tolist() for name, column in table.columns.items()})
    elif command.out is None:
        table.write_csv(sys.stdout)
    else:
        table.write(command.out)
        print(f"{len(table)} {what} written to {command.out}", file=sys.stderr)
        set_result({what: len(table), "out": str(command.out)})
    return 0


def moved_source(run: Path, graph: Path | None, root: Path | None) -> GraphSource | None:
    """Where the graph of a run is now, read as the run read it; None for where it was.

    Args:
        run: folder of the run.
        graph: the graph, or another one.
        root: folder with the data set's raw files.
    """
    if graph is None and root is None:
        return None
    check_is_folder(run)
    stored = read_settings(run / "config.json")[0]
    if graph is not None:
        options = stored.table_options() if is_tables(graph) else {}
        return GraphSource(graph=graph, directed=stored.directed, **options)
    return GraphSource(dataset=stored.name, root=root)


def is_tables(graph: Path) -> bool:
    """Whether a graph is a folder of tables."""
    return graph.is_dir() and not is_store(graph)
