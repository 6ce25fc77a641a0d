"""Small writers of the forms that cvgnn reads, for round trips; and the comparison of two graphs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import torch
from scipy import sparse

from cvgnn.data import Graph, SparseFeatures
from cvgnn.utils.optional_import import import_optional


def pyg_data() -> Any:
    """The module torch_geometric.data, imported as cvgnn does it: without the warnings of its own imports."""
    return import_optional("torch_geometric.data", extra="pyg", purpose="the tests")


def assert_same(a: Graph, b: Graph) -> None:
    """Every array of two graphs, its dtype, and everything else but their names."""
    for field in ("indptr", "indices", "edge_weight", "y", "train_ids", "val_ids", "test_ids"):
        left, right = getattr(a, field), getattr(b, field)
        assert (left is None) == (right is None), field
        if left is not None:
            assert left.dtype == right.dtype, field
            assert torch.equal(left, right), field
    assert type(a.x) is type(b.x)
    assert a.x.dtype == b.x.dtype
    if isinstance(a.x, SparseFeatures) and isinstance(b.x, SparseFeatures):
        assert a.x.shape == b.x.shape
        for part in ("indptr", "indices", "values"):
            assert torch.equal(getattr(a.x, part), getattr(b.x, part)), part
    else:
        assert torch.equal(a.x, b.x)  # type: ignore[arg-type]
    assert (a.node_names is None) == (b.node_names is None)
    if a.node_names is not None:
        assert a.node_names.dtype.kind == b.node_names.dtype.kind  # type: ignore[union-attr]
        assert a.node_names.tolist() == b.node_names.tolist()  # type: ignore[union-attr]
    assert (a.num_classes, a.class_names, a.directed, a.split) == (b.num_classes, b.class_names, b.directed, b.split)


def edges_of(graph: Graph) -> tuple[np.ndarray, np.ndarray | None]:
    """`[2, m]` with the weights; an undirected edge once."""
    target = np.repeat(np.arange(graph.num_nodes), graph.degree.numpy())
    source = graph.indices.numpy().astype(np.int64)
    keep = np.full(len(source), True) if graph.directed else source < target
    weight = None if graph.edge_weight is None else graph.edge_weight.numpy()[keep]
    return np.stack([source[keep], target[keep]]), weight


def dense_of(graph: Graph) -> np.ndarray:
    return (graph.x.to_dense() if isinstance(graph.x, SparseFeatures) else graph.x).numpy()


def names_of(graph: Graph) -> list[Any]:
    return list(range(graph.num_nodes)) if graph.node_names is None else graph.node_names.tolist()


def labels_of(graph: Graph) -> list[str]:
    """As text, empty where unknown."""
    return ["" if c < 0 else str(c) if graph.class_names is None else graph.class_names[c] for c in graph.y.tolist()]


def split_of(graph: Graph) -> list[str]:
    words = [""] * graph.num_nodes
    for part in ("train", "val", "test"):
        for node in getattr(graph, f"{part}_ids").tolist():
            words[node] = part
    return words


def write_npz(graph: Graph, path: Path, *, split: bool = True, masks: bool = False, csr: bool = False) -> Path:
    edge_index, weight = edges_of(graph)
    arrays: dict[str, Any] = {"y": graph.y.numpy(), "num_classes": graph.num_classes}
    arrays |= {"edges": edge_index.T.astype(np.int32)} if csr else {"edge_index": edge_index}
    if csr:
        x = sparse.csr_array(dense_of(graph))
        arrays |= {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr, "x_shape": np.array(x.shape)}
    else:
        arrays["x"] = np.asfortranarray(dense_of(graph))
    optional_parts = {"edge_weight": weight, "node_names": graph.node_names, "class_names": graph.class_names}
    arrays |= {key: value for key, value in optional_parts.items() if value is not None}
    for part in ("train", "val", "test") if split else ():
        ids = getattr(graph, f"{part}_ids").numpy()
        arrays |= {f"{part}_mask": np.isin(np.arange(graph.num_nodes), ids)} if masks else {f"{part}_ids": ids}
    np.savez_compressed(path, **arrays)
    return path


def write_csv(graph: Graph, folder: Path, *, split: bool = True, features_file: bool = False) -> Path:
    folder.mkdir()
    edge_index, weight = edges_of(graph)
    names, x = names_of(graph), dense_of(graph)
    columns = [f"f{i}" for i in range(x.shape[1])]
    with (folder / "edges.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(["source", "target"] if weight is None else ["source", "target", "weight"])
        for i, (u, v) in enumerate(edge_index.T.tolist()):
            writer.writerow([names[u], names[v]] if weight is None else [names[u], names[v], repr(float(weight[i]))])
    known = zip(names, labels_of(graph), split_of(graph), strict=True)
    with (folder / "nodes.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        head = ["id", *([] if features_file else columns), "label", *(["split"] if split else [])]
        writer.writerow(head)
        for (name, label, part), row in zip(known, x.tolist(), strict=True):
            writer.writerow([name, *([] if features_file else row), label, *([part] if split else [])])
    if features_file:  # in another order than the nodes
        with (folder / "features.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
            writer.writerow([*columns, "id"])
            for name, row in reversed(list(zip(names, x.tolist(), strict=True))):
                writer.writerow([*row, name])
    return folder


def write_columns(columns: dict[str, Any] | pa.Table, path: Path, *, streamed: bool = False, rows: int = 120) -> None:
    """Write a table as Parquet, Feather or Arrow, by its ending, in batches of so many rows."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, path, compression="zstd", chunksize=rows)
    else:
        with (pa.ipc.new_stream if streamed else pa.ipc.new_file)(path, table.schema) as writer:
            writer.write_table(table, rows)


def write_columnar(
    graph: Graph,
    folder: Path,
    form: str = "parquet",
    *,
    split: bool = True,
    lists: bool = False,
    streamed: bool = False,
) -> Path:
    """A folder of tables as Parquet or Arrow."""
    folder.mkdir()
    edge_index, weight = edges_of(graph)
    names, x = np.array(names_of(graph)), dense_of(graph)
    edges: dict[str, Any] = {"source": names[edge_index[0]], "target": names[edge_index[1]]}
    edges |= {} if weight is None else {"weight": weight}
    write_columns({key: pa.array(value) for key, value in edges.items()}, folder / f"edges.{form}", streamed=streamed)
    nodes: dict[str, Any] = {"id": pa.array(names), "label": pa.array([label or None for label in labels_of(graph)])}
    nodes |= {"split": pa.array([part or None for part in split_of(graph)], pa.string())} if split else {}
    if lists:
        features = {"id": nodes["id"], "x": pa.array(x.tolist(), pa.list_(pa.float32()))}
        write_columns(features, folder / f"features.{form}", streamed=streamed)
    else:
        nodes |= {f"f{i}": pa.array(x[:, i]) for i in range(x.shape[1])}
    write_columns(nodes, folder / f"nodes.{form}", streamed=streamed)
    return folder


def to_pyg(graph: Graph, *, split: bool = True, sparse_x: bool = False) -> Any:
    edge_index, weight = edges_of(graph)
    x = torch.from_numpy(dense_of(graph))
    data = pyg_data().Data(
        x=x.to_sparse() if sparse_x else x, edge_index=torch.from_numpy(edge_index), y=graph.y.unsqueeze(1)
    )
    if weight is not None:
        data.edge_attr = torch.from_numpy(weight).unsqueeze(1)
    for part in ("train", "val", "test") if split else ():
        mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
        mask[getattr(graph, f"{part}_ids")] = True
        data[f"{part}_mask"] = mask
    return data


def to_scipy(graph: Graph) -> Any:
    """Entry (i, j) is an edge from i to j: the transpose of the graph's CSR, which has a row for each target."""
    n = graph.num_nodes
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight.numpy()
    return sparse.csr_array((weight, graph.indices.numpy(), graph.indptr.numpy()), shape=(n, n)).T


def to_networkx(graph: Graph) -> Any:
    edge_index, weight = edges_of(graph)
    names, x = names_of(graph), dense_of(graph)
    G = nx.DiGraph() if graph.directed else nx.Graph()
    labels = labels_of(graph)
    for i, part in enumerate(split_of(graph)):
        label = labels[i] if graph.class_names is not None else int(labels[i] or -1)
        G.add_node(
            names[i], x=x[i].tolist(), **({"label": label} if labels[i] else {}), **({"split": part} if part else {})
        )
    for i, (u, v) in enumerate(edge_index.T.tolist()):
        G.add_edge(names[u], names[v], **({} if weight is None else {"weight": float(weight[i])}))
    return G
