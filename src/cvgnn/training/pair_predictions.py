"""Predictions for pairs of nodes as a table, from a table of pairs with the user's own node ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from cvgnn.data import Graph
from cvgnn.data.io.table_file import CsvFile, ParquetFile, positions
from cvgnn.errors import require
from cvgnn.training.predictions import NodeTable, node_names
from cvgnn.training.run import Run
from cvgnn.utils.formatting import join_printable

_ENDS = ("source", "target")


def read_pairs(graph: Graph, file: Path) -> np.ndarray:
    """The pairs of nodes in a table with the columns `source` and `target`, int64 `[n, 2]`.

    Args:
        graph: of the nodes.
        file: `.csv`, `.tsv` or `.parquet`; other columns are not read.
    """
    require(file.is_file(), f"{file} is missing; --edges is a table of pairs with the columns source and target")
    table = ParquetFile(file) if file.suffix == ".parquet" else CsvFile(file)
    table.require_columns(*_ENDS)
    columns = table.read(names=_ENDS, numbers=(), dtype=np.float32)[0]
    known = pa.array(node_names(graph, None))
    pairs = np.empty((len(columns["source"]), 2), dtype=np.int64)
    for end, name in enumerate(_ENDS):
        pairs[:, end] = positions(columns[name], known)
        missing = np.flatnonzero(pairs[:, end] < 0)
        if missing.size:
            row = int(missing[0])
            cell = columns[name][row].as_py()
            what = "is empty" if cell is None else f"{join_printable([cell])[:80]} is not a node of the graph"
            raise table.error(row, name, f"{what}; its node ids are such as {known[0]}")
    require(len(pairs) > 0, f"{file} names no pair of nodes; write one in each row")
    return pairs


@torch.no_grad()
def pair_predictions(run: Run, pairs: np.ndarray) -> NodeTable:
    """`source`, `target` and what the task predicts for each pair, by exact inference.

    Args:
        run: a finished run of a task of pairs.
        pairs: int64 `[n, 2]`.
    """
    parts = [run.task.prediction_columns(rows, None, None, run.model.readout) for rows in run.pair_rows(pairs)]
    names = node_names(run.graph, None)
    ends = {name: names[pairs[:, end]] for end, name in enumerate(_ENDS)}
    return NodeTable(ends | {name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
