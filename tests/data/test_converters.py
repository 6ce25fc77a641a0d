"""Graphs from SciPy, NetworkX and PyG: round trips over random graphs, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy import sparse

from cvgnn.data import Graph, RandomSplit, from_networkx, from_pyg, from_scipy, to_pyg
from cvgnn.errors import CvgnnError
from tests.data.io import writers
from tests.data.io.strategies import graphs
from tests.data.io.writers import assert_same, pyg_data

TWO: dict[str, Any] = {"x": np.eye(2, dtype=np.float32), "y": [0, 1], "train_ids": [0], "test_ids": [1]}


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_scipy_round_trip(graph: Graph) -> None:
    A = writers.to_scipy(graph)
    for form in (A, A.tocoo(), A.tolil(), sparse.csr_matrix(A)):
        again = from_scipy(
            form,
            x=sparse.csr_array(writers.dense_of(graph)),
            y=graph.y,
            train_ids=graph.train_ids,
            val_ids=graph.val_ids,
            test_ids=graph.test_ids,
            num_classes=graph.num_classes,
            directed=graph.directed,
            node_names=graph.node_names,
            class_names=graph.class_names,
        )
        assert_same(again, graph)


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_networkx_round_trip(graph: Graph) -> None:
    G = writers.to_networkx(graph)
    again = from_networkx(G, feature_key="x", label_key="label", split_key="split", directed=graph.directed)
    assert_same(again, graph)
    arrays = from_networkx(
        G,
        x=writers.dense_of(graph),
        y=graph.y,
        train_ids=graph.train_ids,
        val_ids=graph.val_ids,
        test_ids=graph.test_ids,
        num_classes=graph.num_classes,
        directed=graph.directed,
        class_names=graph.class_names,
    )
    assert_same(arrays, graph)


@settings(max_examples=40, deadline=None)
@given(graph=graphs(names=False))
def test_pyg_round_trip(graph: Graph) -> None:
    data = writers.to_pyg(graph)
    again = from_pyg(data, directed=graph.directed)
    for field in ("indptr", "indices", "y", "train_ids", "val_ids", "test_ids"):
        assert torch.equal(getattr(again, field), getattr(graph, field)), field
    assert (again.edge_weight is None) == (graph.edge_weight is None)
    if again.edge_weight is not None and graph.edge_weight is not None:
        assert torch.equal(again.edge_weight, graph.edge_weight)
    assert type(again.x) is type(graph.x)
    assert np.array_equal(writers.dense_of(again), writers.dense_of(graph))
    assert again.num_classes == graph.num_classes
    assert_same(again, from_pyg(data.to_dict(), directed=graph.directed))
    assert_same(again, from_pyg(writers.to_pyg(graph, sparse_x=True), directed=graph.directed))
    assert_same(again, from_pyg(to_pyg(graph), directed=graph.directed))


def test_scipy_entries() -> None:
    """Zeros and the diagonal are dropped, entries stored twice add up, the direction is from row to column."""
    zero = sparse.coo_array(([1.0, 1.0, 0.0, 0.0, 9.0], ([0, 1, 0, 2, 2], [1, 0, 2, 0, 2])), shape=(3, 3))
    three = TWO | {"x": np.eye(3, dtype=np.float32), "y": [0, 1, 0]}
    graph = from_scipy(zero, **three)
    assert (graph.edge_weight, graph.indices.tolist()) == (None, [1, 0])
    twice = sparse.coo_array(([1, 1, 2], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    graph = from_scipy(twice, **TWO)
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [2.0, 2.0]
    assert twice.nnz == 3  # as it was
    truth = from_scipy(sparse.csr_array([[False, True], [True, False]]), **TWO)
    assert truth.edge_weight is None
    one_way = from_scipy(sparse.csr_array([[0, 1], [0, 0]]), directed=True, **TWO)
    assert one_way.degree.tolist() == [0, 1]  # node 1 hears from node 0


def test_networkx_names_and_attributes() -> None:
    G = nx.Graph()
    G.add_node(("a", 1), x=1.5, kind="b", part="train")
    G.add_node(frozenset(), x=np.float32(2.5), kind="a", part="test")
    G.add_node("c", x=[3.5])
    G.add_edge(("a", 1), "c", weight=1)
    graph = from_networkx(G, feature_key="x", label_key="kind", split_key="part")
    assert graph.node_names is not None
    assert graph.node_names.tolist() == ["('a', 1)", "frozenset()", "c"]
    assert (graph.y.tolist(), graph.class_names, graph.edge_weight) == ([1, 0, -1], ("a", "b"), None)
    assert (graph.train_ids.tolist(), graph.test_ids.tolist()) == ([0], [1])
    assert writers.dense_of(graph).tolist() == [[1.5], [2.5], [3.5]]


def test_networkx_kinds_of_graphs() -> None:
    y = [0, 1, 0]
    x = np.eye(3)
    multi = nx.MultiGraph([(0, 1), (0, 1), (1, 2), (2, 2)])
    assert_same(from_networkx(multi, x=x, y=y), from_networkx(nx.path_graph(3), x=x, y=y))
    one_way = from_networkx(nx.DiGraph([(0, 1), (1, 2)]), x=x, y=y, directed=True)
    assert one_way.degree.tolist() == [0, 1, 1]
    G = nx.Graph()
    G.add_nodes_from(np.int64(v) for v in (5, 3, 4))
    G.add_edge(5, 3, weight=2.0)
    G.add_edge(3, 4, weight=1.0)
    graph = from_networkx(G, x=x, y=y)
    assert graph.node_names is not None
    assert graph.node_names.tolist() == [5, 3, 4]
    assert graph.edge_weight is not None
    assert from_networkx(G, x=x, y=y, weight_key=None).edge_weight is None


def test_pyg_optional_fields() -> None:
    geometric = pyg_data()
    edge_index = torch.tensor([[0, 1], [1, 2]])
    data = geometric.Data(x=torch.eye(3), edge_index=edge_index, y=torch.tensor([[0], [1], [0]]), pos=torch.ones(3, 3))
    graph = from_pyg(data, split=RandomSplit(seed=8))
    assert graph.split == RandomSplit(seed=8).describe()
    data.edge_weight, data.edge_attr = torch.tensor([2.0, 3.0]), torch.ones(2, 7)
    weighted = from_pyg(data)
    assert weighted.edge_weight is not None
    assert weighted.edge_weight.tolist() == [2, 2, 3, 3]
    data.val_mask = torch.tensor([True, False, False])
    data.train_mask = torch.tensor([False, True, False])
    masked = from_pyg(data, split=RandomSplit(seed=8))
    assert (masked.split, masked.train_ids.tolist(), masked.val_ids.tolist()) == ("given", [1], [0])
    from torch_geometric import EdgeIndex

    data.edge_index = EdgeIndex(edge_index, sparse_size=(3, 3))
    assert torch.equal(from_pyg(data).indices, graph.indices)


def nodes(**attributes: list[Any]) -> nx.Graph:
    """A path of two nodes with attributes; None leaves one out."""
    G = nx.path_graph(2)
    for key, values in attributes.items():
        nx.set_node_attributes(G, {v: value for v, value in enumerate(values) if value is not None}, key)
    return G


def weighted(*weights: Any) -> nx.Graph:
    G = nx.path_graph(len(weights) + 1)
    for i, weight in enumerate(weights):
        if weight is not None:
            G[i][i + 1]["weight"] = weight
    return G


def matrix(*rows: list[Any]) -> Any:
    return sparse.csr_array(np.array(rows))


def damaged() -> Any:
    A = matrix([0, 1], [1, 0])
    A.indices = np.array([1, 7])
    return A


NX = {"x": np.eye(2), "y": [0, 1]}
REFUSED: list[tuple[str, Callable[[], Graph], str]] = [
    ("scipy: not square", lambda: from_scipy(sparse.csr_array((2, 3)), **TWO), "adjacency must be square; it has shape [2, 3]"),
    ("scipy: numpy", lambda: from_scipy(np.eye(2), **TWO), "adjacency must be a scipy.sparse matrix, not ndarray"),
    ("scipy: a vector", lambda: from_scipy(sparse.coo_array([1, 2]), **TWO), "adjacency must be square; it has shape [2]"),
    ("scipy: one direction", lambda: from_scipy(matrix([0, 1], [0, 0]), **TWO), "adjacency is not symmetric: entries [0, 1] and [1, 0] differ"),
    ("scipy: two weights", lambda: from_scipy(matrix([0, 2], [3, 0]), **TWO), "adjacency is not symmetric: entries [0, 1] and [1, 0] differ"),
    ("scipy: negative weight", lambda: from_scipy(matrix([0, -1], [-1, 0]), **TWO), "adjacency[0, 1] is -1; edge weights must be positive and finite"),
    ("scipy: NaN", lambda: from_scipy(matrix([0, np.nan], [1, 0]), **TWO), "adjacency[0, 1] is nan; edge weights must be positive and finite"),
    ("scipy: complex", lambda: from_scipy(matrix([0, 1j], [1j, 0]), **TWO), "adjacency must hold real numbers, not complex128"),
    ("scipy: damaged", lambda: from_scipy(damaged(), **TWO), "adjacency is not a sparse matrix of shape [2, 2]"),
    ("scipy: another size", lambda: from_scipy(matrix([0] * 3, [0] * 3, [0, 1, 0]), directed=True, **TWO), "edge 0 of edge_index, (2, 1), names a node that does not exist"),
    ("networkx: a list", lambda: from_networkx([(0, 1)], **NX), "G must be a networkx graph, not list"),
    ("networkx: directed", lambda: from_networkx(nx.DiGraph([(0, 1)]), **NX), "G is a DiGraph; give directed=True to keep its directions, or G.to_undirected()"),
    ("networkx: empty", lambda: from_networkx(nx.Graph(), **NX), "G has no nodes"),
    ("networkx: no features", lambda: from_networkx(nodes(), y=[0, 1]), "give either x or feature_key"),
    ("networkx: no labels", lambda: from_networkx(nodes(), x=np.eye(2)), "give either y or label_key"),
    ("networkx: two features", lambda: from_networkx(nodes(x=[1, 2]), feature_key="x", **NX), "give either x or feature_key"),
    ("networkx: two splits", lambda: from_networkx(nodes(), split_key="s", train_ids=[0], **NX), "give either split_key or train_ids, not both"),
    ("networkx: feature missing", lambda: from_networkx(nodes(x=[1, None]), feature_key="x", y=[0, 1]), "node 1 has no attribute 'x' (its features)"),
    ("networkx: ragged features", lambda: from_networkx(nodes(x=[[1, 2], [3]]), feature_key="x", y=[0, 1]), "node 1: x has 1 numbers, but the nodes before it have 2"),
    ("networkx: features of words", lambda: from_networkx(nodes(x=["a", "b"]), feature_key="x", y=[0, 1]), "node 0: x must be a number or a list of numbers, not 'a'"),
    ("networkx: features of matrices", lambda: from_networkx(nodes(x=[np.eye(2)] * 2), feature_key="x", y=[0, 1]), "node 0: x must be a list of numbers; it has shape [2, 2]"),
    ("networkx: NaN", lambda: from_networkx(nodes(x=[1.0, float("nan")]), feature_key="x", y=[0, 1]), "x has a NaN or infinite value at node 1, column 0"),
    ("networkx: label a fraction", lambda: from_networkx(nodes(c=[0.5, 1]), label_key="c", x=np.eye(2)), "node 0: c must be an integer or a string, not 0.5"),
    ("networkx: negative label", lambda: from_networkx(nodes(c=[0, -1]), label_key="c", x=np.eye(2)), "node 1: c is -1; leave it out where the label is unknown"),
    ("networkx: unknown split", lambda: from_networkx(nodes(s=["train", "valid"]), split_key="s", **NX), "node 1: unknown s 'valid'; known: train, val, test"),
    ("networkx: no training nodes", lambda: from_networkx(nodes(s=["val", "test"]), split_key="s", **NX), "the training split is empty"),
    ("networkx: weights on some edges", lambda: from_networkx(weighted(2.0, None), x=np.eye(3), y=[0, 1, 0]), "edge (1, 2) has weight None; weights must be positive numbers, on all edges or on none"),
    ("networkx: negative weight", lambda: from_networkx(weighted(-2.0), **NX), "edge (0, 1) has weight -2.0; weights must be positive numbers"),
    ("networkx: weight a word", lambda: from_networkx(weighted("2"), **NX), "edge (0, 1) has weight '2'; weights must be positive numbers"),
    ("networkx: names that look alike", lambda: from_networkx(nx.Graph([(1, "1")]), **NX), "nodes 1 and '1' have the same name, 1; rename one"),
    ("pyg: a list", lambda: from_pyg([1]), "data must be a torch_geometric.data.Data (one kind of node and edge), not list"),
    ("pyg: several kinds of nodes", lambda: from_pyg(pyg_data().HeteroData()), "not HeteroData"),
    ("pyg: nothing", lambda: from_pyg(pyg_data().Data()), "data has no edge_index; it has: nothing"),
    ("pyg: no labels", lambda: from_pyg({"edge_index": torch.zeros(2, 0), "x": torch.eye(2)}), "data has no y; it has: edge_index, x"),
    ("pyg: edges of floats", lambda: from_pyg({"edge_index": torch.rand(2, 1), "x": torch.eye(2), "y": torch.tensor([0, 1])}), "edge_index must hold integers, not float32"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused_in_one_sentence(make: Callable[[], Graph], message: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("package", "make", "message"),
    [
        ("networkx", lambda: from_networkx(None, x=1, y=1), "from_networkx needs the package networkx: pip install 'cvgnn[networkx]'"),
        ("torch_geometric", lambda: from_pyg(None), "from_pyg needs the package torch_geometric: pip install 'cvgnn[pyg]'"),
    ],
)  # fmt: skip
def test_a_missing_package(
    package: str, make: Callable[[], Graph], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CvgnnError) as caught:
        make()
    assert str(caught.value) == message
