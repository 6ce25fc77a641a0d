"""`cvgnn predict`: classes, probabilities or embeddings from a finished run."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from cvgnn.cli.argv import parse
from cvgnn.config import GraphSource
from cvgnn.data.table_options import TableOptions

if TYPE_CHECKING:
    from cvgnn.training.predictions import NodeTable
    from cvgnn.training.run import Run


@dataclass(frozen=True, kw_only=True)
class PredictCommand:
    """Predict the class, the labels or the numbers of nodes with the model of a finished run.

    Prints CSV, or writes a file with --out. The columns: node = its own id, class = the predicted one, probability =
    that of the class, label = the true class, split = train, val or test, and p_CLASS = the probability of each class.
    Several labels a node are in the column labels, separated by |, and numbers in the column prediction.
    A run of task graph has one row a graph, and graph = its number instead of node.
    A few --nodes cost their neighborhood, not the graph; so do --new ones, which are not in it (see docs/inductive.md).
    Tasks edge and link predict for pairs of nodes, --edges; the columns: source, target, and score and probability of a
    link, or class and its probability.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder that cvgnn train --out has written."""

    nodes: str | None = None
    """Node ids separated by commas, or a file with one id per line; all nodes if not given. For a run of task graph:
    numbers of graphs."""

    edges: Path | None = None
    """Tasks edge and link: table of pairs of nodes, .csv or .parquet, with the columns source and target."""

    columns: tuple[str, ...] = ()
    """Columns to write, in this order: node, class, probability, label, split, p_CLASS for one class, or
    probabilities for all of these; all columns if not given."""

    embeddings: int | None = None
    """Write the representations of this layer instead: 1 is the first hidden layer, K the logits."""

    out: Path | None = None
    """File to write: .csv, .parquet or .npy; printed as CSV if not given."""

    force: bool = False
    """Replace the file of --out if it exists."""

    graph: Path | None = None
    """The graph, if it is no longer where the run read it, or another one with the same features or columns, which
    needs neither labels nor a split."""

    new: tuple[Path, ...] = ()
    """Predict new nodes instead, which are not in the graph: a table of them (id, features) and one of their edges
    (source, target, perhaps weight) to nodes of the graph and among themselves."""

    unknown_edges: Literal["error", "drop"] | None = None
    """What to do with an edge of --graph or --new whose node is unknown: report an error, or leave the edge out; as the
    run did if not given."""

    root: Path | None = None
    """Folder with the data set's raw files, if it is no longer where the run read it."""


def predict_command(argv: Sequence[str]) -> int:
    """Parse the options, predict, print or write."""
    command = parse(PredictCommand, argv, prog="cvgnn predict")

    from cvgnn.errors import CvgnnError, require
    from cvgnn.training.predictions import check_format, embeddings, find_nodes, predictions, read_node_list
    from cvgnn.training.run import read_preprocessing, read_run

    if command.embeddings is not None and not isinstance(command.embeddings, int):
        raise CvgnnError(f"embeddings must be the number of a layer, not {command.embeddings!r}")
    columns = [name for text in command.columns for name in text.split(",") if name]
    require(
        not command.columns or (bool(columns) and command.embeddings is None),
        "--columns chooses columns of predictions, and not of embeddings; leave it out, or name a column",
    )
    require(isinstance(command.force, bool), f"force must be True or False, not {command.force!r}")
    if command.out is not None:
        check_format(command.out, overwrite=command.force)
    run = read_run(command.run, source=_source(command))
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
    table = predictions(run, ids, columns) if command.embeddings is None else embeddings(run, command.embeddings, ids)
    return written(command, table, f"{item}s")


def _source(command: PredictCommand) -> GraphSource | None:
    """Where the graph is now, with --unknown-edges where it is a folder of tables."""
    from cvgnn.errors import require
    from cvgnn.training.run_folder import check_is_folder, read_settings

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
    from cvgnn.errors import require
    from cvgnn.training.pair_predictions import pair_predictions, read_pairs

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
    from cvgnn.cli.output import is_json, set_result

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
    from cvgnn.training.run_folder import check_is_folder, read_settings

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
    from cvgnn.data.store import is_store

    return graph.is_dir() and not is_store(graph)
