"""`cvgnn predict`: classes, probabilities or embeddings from a finished run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cvgnn.cli.argv import parse
from cvgnn.config import GraphSource


@dataclass(frozen=True, kw_only=True)
class PredictCommand:
    """Predict the class, the labels or the numbers of nodes with the model of a finished run.

    Prints CSV, or writes a file with --out. The columns: node = its own id, class = the predicted one, probability =
    that of the class, label = the true class, split = train, val or test, and p_CLASS = the probability of each class.
    Several labels a node are in the column labels, separated by |, and numbers in the column prediction.
    A run of task graph has one row a graph, and graph = its number instead of node.
    A few --nodes cost their neighborhood, not the graph.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder that cvgnn train --out has written."""

    nodes: str | None = None
    """Node ids separated by commas, or a file with one id per line; all nodes if not given. For a run of task graph:
    numbers of graphs."""

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
    """The graph, if it is no longer where the run read it, or another labelled one with the same features."""

    root: Path | None = None
    """Folder with the data set's raw files, if it is no longer where the run read it."""


def predict_command(argv: Sequence[str]) -> int:
    """Parse the options, predict, print or write."""
    command = parse(PredictCommand, argv, prog="cvgnn predict")

    from cvgnn.cli.output import is_json, set_result
    from cvgnn.errors import CvgnnError, require
    from cvgnn.training.predictions import check_format, embeddings, find_nodes, predictions, read_node_list
    from cvgnn.training.run import read_run

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
    run = read_run(command.run, source=moved_source(command.run, command.graph, command.root))
    item = run.task.items.kind if command.embeddings is None else "node"
    ids = None if command.nodes is None else find_nodes(run.graph, read_node_list(command.nodes), item=item)
    table = predictions(run, ids, columns) if command.embeddings is None else embeddings(run, command.embeddings, ids)
    if command.out is None and is_json():
        set_result({name: column.tolist() for name, column in table.columns.items()})
    elif command.out is None:
        table.write_csv(sys.stdout)
    else:
        table.write(command.out)
        print(f"{len(table)} {item}s written to {command.out}", file=sys.stderr)
        set_result({f"{item}s": len(table), "out": str(command.out)})
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
        return GraphSource(graph=graph, **(stored.table_options() if graph.is_dir() else {}))
    return GraphSource(dataset=stored.name, root=root)
