"""Splits of edges: disjoint, complete, seeded, and gone from the graph of P."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cvgnn.data import Graph
from cvgnn.data.edge_split import edge_entries, split_edges
from tests.build import graph_from_dense, random_adjacency


def edges(graph: Graph) -> set[tuple[int, int]]:
    target = np.repeat(np.arange(graph.num_nodes), graph.degree.numpy())
    return set(zip(graph.indices.tolist(), target.tolist(), strict=True))


def directed_adjacency() -> np.ndarray:
    return np.triu(random_adjacency(30, mean_degree=6, weighted=False, seed=3)) + np.eye(30, k=-1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_the_parts_are_the_edges_and_the_held_out_ones_are_not_in_the_graph(directed: bool, weighted: bool) -> None:
    A = directed_adjacency() if directed else random_adjacency(30, mean_degree=6, weighted=weighted, seed=3)
    graph = graph_from_dense(A, directed=directed)
    split = split_edges(graph, val=0.1, test=0.2, seed=5)
    train, val, test = (set(zip(*part.tolist(), strict=True)) for part in split[1:])
    count = graph.num_edges if directed else graph.num_edges // 2
    assert [len(part) for part in (train, val, test)] == [count - round(0.1 * count) - round(0.2 * count)] + [
        round(share * count) for share in (0.1, 0.2)
    ]
    assert len(train | val | test) == count
    both = train if directed else train | {(v, u) for u, v in train}
    assert edges(split.graph) == both
    split.graph.check_structure()
    if weighted and graph.edge_weight is not None:
        mine = dict(zip(sorted((v, u) for u, v in edges(graph)), graph.edge_weight.tolist(), strict=True))
        left = dict(zip(sorted((v, u) for u, v in both), split.graph.edge_weight.tolist(), strict=True))  # type: ignore[union-attr]
        assert left == {edge: mine[edge] for edge in left}


def test_the_split_is_a_function_of_its_seed() -> None:
    graph = graph_from_dense(random_adjacency(30, mean_degree=6, weighted=False, seed=3))
    one, same, other = (split_edges(graph, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.test, same.test)
    assert not torch.equal(one.test, other.test)


def test_every_pair_is_found_or_not() -> None:
    A = directed_adjacency()
    graph = graph_from_dense(A, directed=True)
    source, target = (part.ravel() for part in np.meshgrid(np.arange(30), np.arange(30)))
    found = edge_entries(graph, source, target)
    assert ((found >= 0) == (A[target, source] != 0)).all()
    there = found >= 0
    assert (graph.indices.numpy()[found[there]] == source[there]).all()
