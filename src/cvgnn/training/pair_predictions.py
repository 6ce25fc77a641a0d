"""Predictions for pairs of nodes as a table, from a table of pairs with the user's own node ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from cvgnn.data import Graph
from cvgnn.data.io.mistakes import Mistakes
from cvgnn.data.io.table_file import positions
from cvgnn.data.io.table_formats import open_file
from cvgnn.errors import require
from cvgnn.training.predictions import NodeTable, node_names
from cvgnn.training.run import Run
from cvgnn.utils.formatting import join_printable

_ENDS = ("source", "target")


def read_pairs(graph: Graph, file: Path) -> np.ndarray:
    """The pairs of nodes in a table with the columns `source` and `target`, int64 `[n, 2]`.

    Args:
        graph: of the nodes.
        file: `.csv`, `.parquet` or another kind of table; other columns are not read.
    """
    require(file.is_file(), f"{file} is missing; --edges is a table of pairs with the columns source and target")
    table = open_file(file, "a table for --edges")
    for name in _ENDS:
        has = join_printable(table.columns[:20])[:200]
        table.require(name in table.columns, f"has no column {name!r}; its columns are: {has}")
    mistakes = Mistakes()
    columns = table.read_columns(names=_ENDS, numbers=(), others=(), mistakes=mistakes)[0]
    # All ids are looked up at once, in one hash table of pyarrow's, and not one by one in Python.
    known = pa.array(node_names(graph, None))
    pairs = np.empty((len(columns["source"]), 2), dtype=np.int64)
    for end, name in enumerate(_ENDS):
        pairs[:, end] = positions(columns[name], known)

        # Called for the rows that are reported only, so no text is made for the others.
        def what(row: int, column: pa.Array = columns[name]) -> str:
            cell = column[row].as_py()
            wrong = "is empty" if cell is None else f"{join_printable([cell])[:80]} is not a node of the graph"
            return f"{wrong}; its node ids are such as {known[0]}"

        mistakes.cells(table, np.flatnonzero(pairs[:, end] < 0), name, what)
    mistakes.check()
    require(len(pairs) > 0, f"{file} names no pair of nodes; write one in each row")
    return pairs


@torch.no_grad()
def pair_predictions(run: Run, pairs: np.ndarray) -> NodeTable:
    """`source`, `target` and what the task predicts for each pair, by exact inference.

    Args:
        run: a finished run of a task of pairs.
        pairs: int64 `[n, 2]`.
    """
    task, readout, classes = run.task, run.model.readout, run.result["class_names"]
    # A piece at a time: embeddings of all pairs would not fit where their columns do.
    parts = [task.prediction_columns(rows, None, classes, readout) for rows in run.pair_rows(pairs)]
    names = node_names(run.graph, None)
    ends = {name: names[pairs[:, end]] for end, name in enumerate(_ENDS)}
    return NodeTable(ends | {name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
