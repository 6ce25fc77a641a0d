"""`cvgnn inspect`: what a graph holds, without training."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from cvgnn.cli.options import InspectCommand
from cvgnn.cli.output import graph_result, set_result
from cvgnn.data import Graph
from cvgnn.data.io.preprocessing import Preprocessing, print_table
from cvgnn.data.io.suspicions import graph_suspicions
from cvgnn.data.labels import labelled
from cvgnn.data.split import SPLITS
from cvgnn.training.graph_source import load_source

_SHOWN_CLASSES = 20


def inspect_command(command: InspectCommand, argv: Sequence[str]) -> int:
    """Read the graph, print what it holds."""
    with _printed_below() as noted:
        graph = load_source(command.graph_source(command.path), task="link" if command.unlabelled else "auto")
    found = list(dict.fromkeys([*noted, *suspicions(graph)]))
    for line in [*describe(graph), "suspicions:" if found else "suspicions: none", *(f"  {line}" for line in found)]:
        print(line)
    set_result({**graph_result(graph), "suspicions": found})
    return 0


def describe(graph: Graph) -> list[str]:
    """The lines to print about a graph."""

    n, degree = graph.num_nodes, graph.degree.numpy()
    shape = (np.ones(graph.num_edges, dtype=np.int8), graph.indices.numpy(), graph.indptr.numpy())
    count, component = connected_components(sparse.csr_array(shape, shape=(n, n)), directed=False)
    largest = int(np.bincount(component).max())
    lines = [
        str(graph),
        f"degrees: {degree.min()} to {degree.max()}, median {np.median(degree):g}, mean {degree.mean():.2f}",
        f"components: {count}, the largest with {largest} nodes ({100 * largest / n:.1f} %)",
        f"split: {graph.split}",
    ]
    lines += _label_lines(graph) if graph.train_ids.numel() else []
    if graph.edge_label is not None:
        label, part = graph.edge_label.numpy(), graph.edge_split
        counts = np.bincount(label[label >= 0]).tolist()
        names = graph.edge_class_names or range(len(counts))
        classes = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=False)) or "none"
        sizes = "random" if part is None else "/".join(str(int((part == code).sum())) for code in range(len(SPLITS)))
        lines.append(f"pairs: {len(label)}, split {sizes}, labels: {classes}")
    if graph.preprocessing is not None:
        columns = Preprocessing.from_dict(graph.preprocessing).table()
        lines += ["columns:", print_table([("column", "kind", "what it becomes"), *columns])]
    return lines


def _label_lines(graph: Graph) -> list[str]:
    """A table of the labels: nodes of each class or label, or quantiles of each target."""

    y = graph.y.numpy()
    names = graph.class_names or tuple(map(str, range(graph.num_classes)))
    unknown = int((~labelled(y)).sum())
    rows: list[tuple[str, ...]]
    if graph.label_kind == "targets":
        rows = [("target", "lowest", "median", "highest")]
        quantiles = np.nanquantile(y, [0.0, 0.5, 1.0], axis=0).T if unknown < len(y) else np.zeros((0, 3))
        rows += [(name[:40], *(f"{q:g}" for q in values)) for name, values in zip(names, quantiles, strict=False)]
        rows += [("unknown", str(unknown), "", "")] if unknown else []
    else:
        parts = [y, *(y[ids.numpy()] for ids in (graph.train_ids, graph.val_ids, graph.test_ids))]
        if y.ndim == 1:
            counts = np.stack([np.bincount(part[part >= 0], minlength=graph.num_classes) for part in parts])
        else:
            counts = np.stack([(part == 1).sum(axis=0) for part in parts])
        rows = [("class" if y.ndim == 1 else "label", "nodes", "train", "val", "test")]
        rows += [(name[:40], *map(str, c)) for name, c in zip(names[:_SHOWN_CLASSES], counts.T.tolist(), strict=False)]
        rows += [("unknown", str(unknown), "", "", "")] if unknown else []
    more = graph.num_classes - _SHOWN_CLASSES
    return [f"{graph.label_kind}:", print_table(rows), *([f"  ... and {more} more"] if more > 0 else [])]


def suspicions(graph: Graph) -> list[str]:
    """What may be a mistake in the data, though it can be trained on."""

    found = graph_suspicions(graph)
    alone = int((graph.degree == 0).sum())
    if 0 < 2 * alone <= graph.num_nodes:
        found.append(f"{alone} nodes have no edge; they are classified by their own features alone")
    if isinstance(graph.x, torch.Tensor):
        rows = np.ascontiguousarray(graph.x.numpy())
        _, repeats = np.unique(rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))), return_counts=True)
        same = int((repeats - 1).sum())
        if same:
            found.append(f"{same} nodes have the same features as another node")
    return found


@contextmanager
def _printed_below() -> Iterator[list[str]]:
    """Keep what is printed anyway out of the log; yields the suspicions that reading finds."""
    columns, noted = (logging.getLogger(f"cvgnn.data.io.{name}") for name in ("table_folder.columns", "suspicions"))
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    noted.addHandler(handler)
    columns.propagate = noted.propagate = False
    try:
        yield lines
    finally:
        columns.propagate = noted.propagate = True
        noted.removeHandler(handler)
