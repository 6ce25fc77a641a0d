"""`cvgnn predict`: classes, probabilities or embeddings from a finished run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cvgnn.cli.options import parse
from cvgnn.config import GraphSource


@dataclass(frozen=True, kw_only=True)
class PredictCommand:
    """Predict the class of nodes with the model of a finished run.

    Prints CSV with the columns node, class and probability, or writes a file with --out.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Folder that cvgnn train --out has written."""

    nodes: str | None = None
    """Node ids separated by commas, or a file with one id a line; all nodes if not given."""

    embeddings: int | None = None
    """Write the representations of this layer instead: 1 is the first hidden layer, K the logits."""

    out: Path | None = None
    """File to write: .csv, .parquet or .npy; printed as CSV if not given."""

    graph: Path | None = None
    """The graph, if it is no longer where the run read it, or another labelled one with the same features."""

    root: Path | None = None
    """Folder with the data set's raw files, if it is no longer where the run read it."""


def predict_command(words: Sequence[str]) -> int:
    """Parse the options, predict, print or write."""
    command = parse(PredictCommand, words, prog="cvgnn predict")

    from cvgnn.errors import CvgnnError
    from cvgnn.experiments.predictions import check_format, embeddings, find_nodes, predictions, read_node_list
    from cvgnn.experiments.saved import read_run

    if command.embeddings is not None and not isinstance(command.embeddings, int):
        raise CvgnnError(f"embeddings must be the number of a layer, not {command.embeddings!r}")
    if command.out is not None:
        check_format(command.out)
    saved = read_run(command.run)
    if command.graph is not None:
        saved = read_run(command.run, source=GraphSource(graph=command.graph))
    elif command.root is not None:
        saved = read_run(command.run, source=GraphSource(dataset=saved.source.name, root=command.root))
    run = saved.restore()
    ids = None if command.nodes is None else find_nodes(run.graph, read_node_list(command.nodes))
    table = predictions(run, ids) if command.embeddings is None else embeddings(run, command.embeddings, ids)
    if command.out is None:
        table.write_csv(sys.stdout)
    else:
        table.write(command.out)
        print(f"{len(table)} nodes written to {command.out}", file=sys.stderr)
    return 0
