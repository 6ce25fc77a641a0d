"""Graphs from SciPy, PyTorch Geometric and NetworkX. Each converter makes arrays and calls `from_arrays`."""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from cvgnn.data.array_converter import GraphOptions, checked_csr, from_arrays, split_mask
from cvgnn.data.edge_split import with_edge_labels
from cvgnn.data.graph import Graph
from cvgnn.data.node_ids import name_nodes, number_labels
from cvgnn.data.sparse_features import SparseFeatures
from cvgnn.data.split import SPLITS, RandomSplit
from cvgnn.errors import CvgnnError, require, unknown_name
from cvgnn.utils.formatting import join_printable
from cvgnn.utils.optional_import import import_optional


def as_graph(
    data: Any,
    *,
    x: Any = None,
    y: Any = None,
    train_ids: Any = None,
    val_ids: Any = None,
    test_ids: Any = None,
    allow_unlabelled: bool = False,
) -> Any:
    """A graph from what PyG, NetworkX or SciPy hold; a `Graph`, and what is none of these, as it is.

    Args:
        data: a `Graph`, a PyG `Data`, a NetworkX graph or a SciPy adjacency matrix.
        x, y: features and labels of all nodes, for SciPy; for NetworkX instead of the node attributes `x` and `y`.
        train_ids, val_ids, test_ids: node ids, for the same; instead of the attribute `split`.
        allow_unlabelled: whether labels may be missing, because they are not learned.
    """
    given = {"x": x, "y": y, "train_ids": train_ids, "val_ids": val_ids, "test_ids": test_ids}
    given = {name: value for name, value in given.items() if value is not None}
    package = type(data).__module__.partition(".")[0]
    pyg, networkx = sys.modules.get("torch_geometric.data"), sys.modules.get("networkx")
    if package == "scipy":
        missing = [name for name in (("x",) if allow_unlabelled else ("x", "y")) if name not in given]
        require(not missing, f"a SciPy matrix holds the edges alone; give {' and '.join(missing)} too")
        return from_scipy(data, **{"y": None, **given})
    if networkx is not None and isinstance(data, networkx.Graph):
        keys: dict[str, Any] = {"feature_key": "x", "label_key": "y", "split_key": "split"}
        if "x" in given:
            del keys["feature_key"]
        if allow_unlabelled and not any("y" in values for _, values in data.nodes(data=True)):
            given = {"y": np.full(len(data), -1), "split": RandomSplit(allow_unlabelled=True), **given}
        if "y" in given:
            del keys["label_key"]
        held_by_nodes = {str(name): None for _, values in data.nodes(data=True) for name in values}
        for argument in ("feature_key", "label_key"):
            name = keys.get(argument)
            require(
                name is None or name in held_by_nodes or not len(data),
                f"no node has an attribute {name!r}; nodes have: "
                f"{', '.join(held_by_nodes)[:200] or 'none'}; give {name} as an array, or "
                f"cvgnn.data.from_networkx(G, {argument}=...)",
            )
        if "train_ids" in given or not any("split" in values for _, values in data.nodes(data=True)):
            del keys["split_key"]
        return from_networkx(data, **keys, **given)
    held = "a graph made by cvgnn" if isinstance(data, Graph) else "a PyG Data" if package == "torch_geometric" else ""
    if given:
        name = next(iter(given))
        why = f"{held} holds its own" if held else "it goes with a SciPy matrix or a NetworkX graph as graph"
        raise CvgnnError(f"{name} has no use here: {why}; leave it out")
    # Also what is no Data: from_pyg says what is wrong with it.
    if pyg is not None and package == "torch_geometric":
        return from_pyg(data, split=RandomSplit(allow_unlabelled=allow_unlabelled))
    return data


def from_scipy(
    adjacency: Any,
    *,
    x: Any,
    y: Any,
    directed: bool = False,
    node_names: Sequence[Any] | np.ndarray | None = None,
    **options: Unpack[GraphOptions],
) -> Graph:
    """Build a `Graph` from a SciPy sparse adjacency matrix.

    Entries that are all 1 (or True) make an unweighted graph, others are edge weights. Explicit zeros and the diagonal
    are dropped; duplicate entries are summed, as everywhere in SciPy. A matrix that is not symmetric is an error,
    because it is unclear which half is meant: make it symmetric (`A.maximum(A.T)`), or give `directed=True`.

    Args:
        adjacency: any `scipy.sparse` matrix or array `[N, N]`; entry `(i, j)` is an edge from `i` to `j`, the
            convention of SciPy, NetworkX and PyG.
        x, y, node_names: as in `from_arrays`.
        directed: keep the directions; messages go from `i` to `j`.
        options: `train_ids`, `val_ids`, `test_ids`, `split`, `num_classes`, `name`, `class_names`, as in `from_arrays`.

    >>> from scipy import sparse
    >>> from_scipy(sparse.csr_array([[0, 1], [1, 0]]), x=np.eye(2), y=[0, 1], train_ids=[0], test_ids=[1])
    Graph(graph: 2 nodes, 1 edges, 2 dense features, 2 classes, split 1/0/1)
    """
    from scipy import sparse

    require(
        sparse.issparse(adjacency),
        f"adjacency must be a scipy.sparse matrix, not {type(adjacency).__name__}; see scipy.sparse.csr_array",
    )
    require(adjacency.dtype.kind in "biuf", f"adjacency must hold real numbers, not {adjacency.dtype}")
    shape = tuple(adjacency.shape)
    require(len(shape) == 2 and shape[0] == shape[1], f"adjacency must be square; it has shape {list(shape)}")
    csr = adjacency.tocsr()
    csr = checked_csr(csr.data, csr.indices, csr.indptr, shape, "adjacency").astype(np.float64)  # a copy
    csr.sum_duplicates()
    row, column = csr.tocoo().coords
    csr.data[row == column] = 0
    csr.eliminate_zeros()
    row, column = csr.tocoo().coords
    bad = np.flatnonzero(~(np.isfinite(csr.data) & (csr.data > 0)))
    if bad.size:
        i, j, weight = row[bad[0]], column[bad[0]], csr.data[bad[0]]
        raise CvgnnError(f"adjacency[{i}, {j}] is {weight:g}; edge weights must be positive and finite")
    one_sided = np.empty((0, 2)) if directed else np.transpose((csr != csr.T).nonzero())
    if len(one_sided):
        i, j = one_sided[0]
        raise CvgnnError(
            f"adjacency is not symmetric: entries [{i}, {j}] and [{j}, {i}] differ; make it symmetric "
            "(A.maximum(A.T)), or give directed=True"
        )
    edge_index = np.stack([row, column])
    return from_arrays(edge_index, x=x, y=y, edge_weight=csr.data, directed=directed, node_names=node_names, **options)


def from_pyg(data: Any, *, split: RandomSplit | None = None, directed: bool = False, name: str = "graph") -> Graph:
    """Build a `Graph` from a homogeneous `torch_geometric.data.Data`, or from a dict with the same keys.

    Args:
        data: `edge_index` `[2, m]`, `x` `[N, F]` dense or sparse, `y` `[N]` or `[N, 1]`; optionally `edge_weight` (or
            `edge_attr` with one number per edge) and the boolean masks `train_mask`, `val_mask`, `test_mask`. Classes
            of pairs, `edge_label_index` `[2, M]` and `edge_label` `[M]`, need no `y`; `edge_split` `[M]` is as in
            `with_edge_labels`. Other fields are ignored.
        split: the random split where `data` has no `train_mask`; `RandomSplit()` if not given.
        directed: keep the directions; else an edge listed in one direction counts in both.
        name: for messages and records.
    """
    if isinstance(data, Mapping):
        fields = dict(data)
    else:
        pyg = import_optional("torch_geometric.data", extra="pyg", purpose="from_pyg")
        require(
            isinstance(data, pyg.Data),
            f"data must be a torch_geometric.data.Data (one kind of node and edge), not {type(data).__name__}",
        )
        fields = data.to_dict()
    if fields.get("edge_index") is None and fields.get("adj_t") is not None:
        raise CvgnnError("data has adj_t but no edge_index; load it without the ToSparseTensor transform")
    edge_index, x = (_tensor(fields, key) for key in ("edge_index", "x"))
    options: GraphOptions = {"split": split, "name": name}
    pairs = fields.get("edge_label_index") is not None
    if fields.get("y") is None and (pairs or (split is not None and split.allow_unlabelled)):
        y, options["split"] = None, None
    else:
        y = _tensor(fields, "y")
        y = y.squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y
        options["train_ids"], options["val_ids"], options["test_ids"] = (split_mask(fields, p, len(y)) for p in SPLITS)
    graph = from_arrays(edge_index, x=x, y=y, edge_weight=_pyg_weight(fields), directed=directed, **options)
    return _with_pyg_pairs(graph, fields) if pairs else graph


def to_pyg(graph: Graph) -> Any:
    """A graph as `torch_geometric.data.Data`; `from_pyg` with the same `directed` gives it back.

    Fields are `x` (a sparse COO tensor for sparse features), `edge_index` with every undirected edge in both
    directions, `edge_weight` where edges have weights, `y`, the masks `train_mask`, `val_mask` and `test_mask`, and
    `edge_label_index`, `edge_label` and `edge_split` where pairs have labels.

    >>> from cvgnn.data.edges import from_edges
    >>> to_pyg(from_edges([[0], [1]], x=np.eye(3), y=[0, 1, 0], train_ids=[0, 1]))
    Data(x=[3, 3], edge_index=[2, 2], y=[3], train_mask=[3], val_mask=[3], test_mask=[3])
    """
    pyg = import_optional("torch_geometric.data", extra="pyg", purpose="to_pyg")
    require(graph.graph_ids is None, "to_pyg is for one graph, not for a set of graphs")
    require(graph.cutout is None, "to_pyg is for a whole graph, not for a compact one")
    x, fields = graph.x, {}
    if isinstance(x, SparseFeatures):
        places = torch.stack([torch.arange(x.shape[0]).repeat_interleave(x.indptr.diff()), x.indices.long()])
        # COO: of CSR torch warns that it is new. Sorted and without repeats, so it is coalesced as it is.
        x = torch.sparse_coo_tensor(places, x.values, tuple(x.shape), check_invariants=True, is_coalesced=True)
    for part in SPLITS:
        mask = torch.zeros(len(graph.y), dtype=torch.bool)
        mask[getattr(graph, f"{part}_ids")] = True
        fields[f"{part}_mask"] = mask
    pairs = {name: getattr(graph, name) for name in ("edge_weight", "edge_label_index", "edge_label", "edge_split")}
    target = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree)
    edge_index = torch.stack([graph.indices.long(), target])
    given = {name: value for name, value in pairs.items() if value is not None}
    return pyg.Data(x=x, edge_index=edge_index, y=graph.y, **fields, **given)


def _with_pyg_pairs(graph: Graph, fields: Mapping[str, Any]) -> Graph:
    """The graph with the labels of pairs in PyG's fields."""
    label = fields.get("edge_label")
    # RandomLinkSplit writes 0 and 1 as floating point numbers.
    if isinstance(label, Tensor) and label.is_floating_point() and bool((label == label.round()).all()):
        label = label.long()
    return with_edge_labels(graph, _tensor(fields, "edge_label_index"), label, edge_split=fields.get("edge_split"))


def _tensor(fields: Mapping[str, Any], key: str) -> Tensor:
    value = fields.get(key)
    require(value is not None, f"data has no {key}; it has: {join_printable(fields) or 'nothing'}")
    if not isinstance(value, Tensor):
        raise CvgnnError(f"data.{key} must be a tensor, not {type(value).__name__}")
    # PyG's EdgeIndex and Index are subclasses with their own operators; a sparse tensor has no as_subclass.
    return value if type(value) is Tensor else value.as_subclass(Tensor)


def _pyg_weight(fields: Mapping[str, Any]) -> Tensor | None:
    key = "edge_attr" if fields.get("edge_weight") is None else "edge_weight"
    if fields.get(key) is None:
        return None
    weight = _tensor(fields, key)
    require(
        weight.dim() == 1 or (weight.dim() == 2 and weight.shape[1] == 1),
        f"data.{key} must be one weight per edge; it has shape {list(weight.shape)} "
        "(set data.edge_weight, or remove it to train without weights)",
    )
    return weight.flatten()


def from_networkx(
    G: Any,
    *,
    x: Any = None,
    y: Any = None,
    feature_key: str | None = None,
    label_key: str | None = None,
    split_key: str | None = None,
    weight_key: str | None = "weight",
    directed: bool = False,
    **options: Unpack[GraphOptions],
) -> Graph:
    """Build a `Graph` from a NetworkX graph; nodes keep their order in `G` and their names as `node_names`.

    Names that are all integers stay integers, others become strings. A `DiGraph` needs `directed=True`, or
    `G.to_undirected()`. Parallel edges count once.

    Args:
        G: `networkx.Graph`, `DiGraph`, `MultiGraph` or `MultiDiGraph`.
        x, y: as in `from_arrays`, rows in the order of `G.nodes`; or
        feature_key, label_key: names of node attributes: a number or a list of numbers, and an integer or a string
            (missing or None where unknown). Labels other than 0..C-1 are sorted, numbered and kept as `class_names`.
        split_key: name of a node attribute that is "train", "val", "test", or missing.
        weight_key: name of the edge attribute with the weights, on all edges or on none; None ignores weights.
        directed: keep the directions of a `DiGraph`.
        options: `train_ids`, `val_ids`, `test_ids`, `split`, `num_classes`, `name`, `class_names`, as in `from_arrays`;
            ids are positions in `G.nodes`.
    """
    networkx = import_optional("networkx", extra="networkx", purpose="from_networkx")
    require(isinstance(G, networkx.Graph), f"G must be a networkx graph, not {type(G).__name__}")
    require(
        directed or not G.is_directed(),
        f"G is a {type(G).__name__}; give directed=True to keep its directions, or G.to_undirected() to drop them",
    )
    require((x is None) != (feature_key is None), "give either x or feature_key (features for every node)")
    require((y is None) != (label_key is None), "give either y or label_key (a label for every node)")
    require(split_key is None or options.get("train_ids") is None, "give either split_key or train_ids, not both")
    require(len(G) > 0, "G has no nodes")
    if feature_key is not None:
        x = _feature_rows(G, feature_key)
    if label_key is not None:
        y, class_names = number_labels([_label_text(node, value, label_key) for node, value in G.nodes(data=label_key)])
        if options.get("class_names") is None:
            options["class_names"] = class_names
    if split_key is not None:
        parts = np.array([_split_name(node, value, split_key) for node, value in G.nodes(data=split_key)])
        options["train_ids"], options["val_ids"], options["test_ids"] = (np.flatnonzero(parts == s) for s in SPLITS)
    index = {node: i for i, node in enumerate(G)}
    return from_arrays(
        np.array([(index[u], index[v]) for u, v in G.edges()], dtype=np.int64).reshape(-1, 2).T,
        x=x,
        y=y,
        edge_weight=None if weight_key is None else _edge_weights(G, weight_key),
        directed=directed,
        node_names=_node_names(G),
        **options,
    )


def _edge_weights(G: Any, key: str) -> np.ndarray | None:
    edges = list(G.edges(data=key))
    if all(weight is None for _, _, weight in edges):
        return None
    for u, v, weight in edges:
        require(
            isinstance(weight, numbers.Real) and 0 < float(weight) < math.inf,
            f"edge ({u!r}, {v!r}) has {key} {weight!r}; weights must be positive numbers, on all edges or on none "
            "(weight_key=None ignores them)",
        )
    return np.array([float(weight) for _, _, weight in edges])


def _feature_rows(G: Any, key: str) -> np.ndarray:
    rows: list[np.ndarray] = []
    for node, value in G.nodes(data=key):
        require(value is not None, f"node {node!r} has no attribute {key!r} (its features)")
        try:
            row = np.atleast_1d(np.asarray(value, dtype=np.float32))
        except (TypeError, ValueError):
            raise CvgnnError(f"node {node!r}: {key} must be a number or a list of numbers, not {value!r}") from None
        require(row.ndim == 1, f"node {node!r}: {key} must be a list of numbers; it has shape {list(row.shape)}")
        rows.append(row)
        before = len(rows[0])
        require(
            len(row) == before,
            f"node {node!r}: {key} has {len(row)} numbers, but the nodes before it have {before}",
        )
    return np.stack(rows)


def _label_text(node: Any, value: Any, key: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    require(
        isinstance(value, numbers.Integral) and not isinstance(value, bool),
        f"node {node!r}: {key} must be an integer or a string, not {value!r}",
    )
    require(
        int(value) >= 0,
        f"node {node!r}: {key} is {int(value)}; leave it out where the label is unknown, and number classes from 0",
    )
    return str(int(value))


def _split_name(node: Any, value: Any, key: str) -> str:
    if value and value not in SPLITS:
        raise CvgnnError(f"node {node!r}: {unknown_name(key, value, SPLITS)}")
    return value or ""


def _node_names(G: Any) -> np.ndarray | None:
    seen: dict[str, Any] = {}
    for node in G:
        text = str(int(node)) if isinstance(node, numbers.Integral) else str(node)
        other = seen.setdefault(text, node)
        require(other is node, f"nodes {other!r} and {node!r} have the same name, {join_printable([text])}; rename one")
    return name_nodes(list(seen))
