"""Checks of the arrays of a store: small ones whenever it is opened, all when it is written, in bounded memory."""

from __future__ import annotations

from pathlib import Path

from cvgnn.data import Graph, SparseFeatures
from cvgnn.data.graph import IDS, check_finite
from cvgnn.data.store.header import report_damage
from cvgnn.data.structure_check import check_offsets, check_split, first_bad
from cvgnn.data.structure_check import check_structure as check_arrays
from cvgnn.errors import CvgnnError, require

# `open_store` reads arrays of at most this many entries; of larger offsets and splits, only both ends.
SMALL = 1 << 20


def check_small(folder: Path, graph: Graph) -> None:
    """Check offsets, splits and labels as far as they are small, for `open_store`.

    Args:
        folder: the store, for messages.
        graph: over mapped arrays.
    """
    with report_damage(folder):
        offsets = {"indptr": (graph.indptr, graph.num_edges)}
        offsets |= {f"{form}_indptr": (m.indptr, m.indices.numel()) for form, m in _sparse_matrices(graph)}
        for name, (indptr, total) in offsets.items():
            check_offsets(f"{name}.npy", indptr.numpy(), total, ends_only=indptr.numel() > SMALL)
        _check_split(graph, limit=SMALL)


def check_indices(folder: Path, graph: Graph) -> None:
    """Check everything that compiled code relies on, in bounded memory: each index array is read once.

    Offsets, neighbors and weights as in `Graph.check_structure`, columns of sparse features, splits, labels, pairs and
    ids of graphs; not the values of features.

    Args:
        folder: the store, for messages.
        graph: over mapped arrays.
    """
    check_structure(folder, graph)
    with report_damage(folder):
        _check_split(graph)
        graph.check_edge_labels()
        if graph.graph_ids is not None:
            count, labels = graph.check_graph_ids(), len(graph.y)
            require(count == labels, f"graph_ids.npy names {count} graphs, but y.npy has {labels} labels")


def check_all(folder: Path, graph: Graph) -> None:
    """Check everything that `cvgnn.Graph` checks, for `StoreWriter.finish`; each array is read once."""
    check_indices(folder, graph)
    with report_damage(folder):
        for form, matrix in (("x", graph.x), ("PX", graph.PX)):
            if matrix is not None:
                check_finite(form, matrix)


def check_structure(folder: Path, graph: Graph) -> None:
    """Check offsets, neighbors, weights, and the offsets and columns of sparse features."""
    with report_damage(folder):
        weight = None if graph.edge_weight is None else graph.edge_weight.numpy()
        check_arrays(
            graph.indptr.numpy(), graph.indices.numpy(), weight, directed=not graph.is_symmetric, suffix=".npy"
        )
        for form, matrix in _sparse_matrices(graph):
            columns, width = matrix.indices.numpy(), matrix.num_columns
            check_offsets(f"{form}_indptr.npy", matrix.indptr.numpy(), columns.size)
            at = first_bad(columns, lambda c, width=width: (c < 0) | (c >= width))  # type: ignore[misc]
            if at is not None:
                raise CvgnnError(f"{form}_indices.npy has {columns[at]} at entry {at}; columns lie in 0..{width - 1}")


def _sparse_matrices(graph: Graph) -> list[tuple[str, SparseFeatures]]:
    return [(form, m) for form, m in (("x", graph.x), ("PX", graph.PX)) if isinstance(m, SparseFeatures)]


def _check_split(graph: Graph, *, limit: int | None = None) -> None:
    splits, item = {name: getattr(graph, name).numpy() for name in IDS}, "node" if graph.graph_ids is None else "graph"
    check_split(splits, graph.y.numpy(), graph.num_classes, limit=limit, suffix=".npy", item=item)
