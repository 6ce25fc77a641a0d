"""Sets of graphs in the raw layout of the TU data sets (Morris et al. 2020), such as MUTAG and PROTEINS."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cvgnn.data import Graph, RandomSplit, from_arrays
from cvgnn.data.named.raw_files import MOST_BYTES, read_errors
from cvgnn.errors import error_context, require


def read_tu(folder: Path, prefix: str, *, split: RandomSplit | None = None) -> Graph:
    """Read a set of graphs; nodes and graphs are counted from 1 in the files, and from 0 here.

    Features are the label of each node as 0 and 1, and its attributes where the set has any, of mean 0 and variance 1
    over the nodes of the training graphs. Labels and attributes of edges are not read.

    Args:
        folder: holds `PREFIX_A.txt` (an edge `u, v` in each line), `PREFIX_graph_indicator.txt` (the graph of each
            node), `PREFIX_graph_labels.txt`, `PREFIX_node_labels.txt` and perhaps `PREFIX_node_attributes.txt`.
        prefix: `"MUTAG"`, `"PROTEINS"`.
        split: the random split, by graph; `RandomSplit()` if not given. The sets come without one.
    """
    edges = _read(folder / f"{prefix}_A.txt", np.int64, 2)
    graph_of, labels, node_labels = (
        _read(folder / f"{prefix}_{name}.txt", np.int64, 1)[:, 0]
        for name in ("graph_indicator", "graph_labels", "node_labels")
    )
    n, classes = len(graph_of), np.unique(labels)
    require(
        len(node_labels) == n,
        f"{folder / prefix}_node_labels.txt has {len(node_labels)} lines, but {prefix}_graph_indicator.txt has {n}",
    )
    x = (node_labels[:, None] == np.unique(node_labels)).astype(np.float32)
    attributes = folder / f"{prefix}_node_attributes.txt"
    with error_context(f"the raw files in {folder} do not fit together: "):
        graph = from_arrays(
            edges.T - 1,
            x=x,
            y=np.searchsorted(classes, labels),
            graph_ids=graph_of - 1,
            split=split,
            name=prefix.lower(),
            class_names=[str(label) for label in classes.tolist()],
        )
        if not attributes.is_file():
            return graph
        values = _read(attributes, np.float64)
        require(len(values) == n, f"{attributes.name} has {len(values)} lines, but there are {n} nodes")
        known = values[graph.train_nodes.numpy()]
        deviation = known.std(axis=0)
        scaled = (values - known.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
        wide = np.concatenate([x, scaled.astype(np.float32)], axis=1)
        return dataclasses.replace(graph, x=torch.from_numpy(wide), built=True)


def _read(path: Path, dtype: type[np.generic], columns: int | None = None) -> np.ndarray[Any, Any]:
    """The numbers of a text file, separated by commas, `[lines, columns]`."""
    with read_errors(path):
        require(path.stat().st_size <= MOST_BYTES, "it is larger than any such file")
        with warnings.catch_warnings(action="ignore"):  # numpy warns of an empty file, which is an error here
            table: np.ndarray[Any, Any] = np.loadtxt(path, dtype=dtype, delimiter=",", ndmin=2, encoding="utf-8")
        require(len(table) > 0, "it is empty")
        width = table.shape[1]
        require(columns in (None, width), f"it has {width} columns, not {columns}")
    return table
