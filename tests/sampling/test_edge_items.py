"""Negative edges: their exact distribution by enumeration, never an edge, a pure function of seed and step."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.errors import CvgnnError
from cvgnn.sampling.edge_items import EdgeItems, NegativeSampler
from tests.build import graph_from_dense
from tests.tiny import DIRECTED_WITH_LOOPS, TRIANGLE_WITH_TAIL, WITH_ISOLATED

TINY = {
    "tail": (TRIANGLE_WITH_TAIL, False),
    "isolated": (WITH_ISOLATED, False),
    "directed": (DIRECTED_WITH_LOOPS, True),
}


class EveryOutcome:
    """In the place of a generator: every raw draw of two integers once, all equally likely."""

    def integers(self, low: int, high: int, size: tuple[int, int]) -> np.ndarray:
        return np.array(list(itertools.product(range(low, high), repeat=2))).T


@pytest.mark.parametrize("method", ["uniform", "degree"])
@pytest.mark.parametrize("name", TINY)
def test_the_draw_has_its_distribution(name: str, method: Any) -> None:
    A, directed = TINY[name]
    graph = graph_from_dense(A, directed=directed)
    sampler = NegativeSampler(graph, method, degrees=graph, seed=0)
    matrix = (np.array(A) != 0) & ~np.eye(len(A), dtype=bool)  # [target, source]
    out_degree, in_degree = matrix.sum(axis=0), matrix.sum(axis=1)
    weight = np.outer(out_degree, in_degree) if method == "degree" else np.ones(matrix.shape)  # [source, target]
    weight = np.where(matrix.T | np.eye(len(A), dtype=bool), 0, weight)
    pairs = sampler.accepted(*sampler.candidates(EveryOutcome(), 0))  # type: ignore[arg-type]
    counts = np.zeros(matrix.shape)
    np.add.at(counts, tuple(pairs), 1)
    np.testing.assert_array_equal(counts, weight)
    # The loop over rounds keeps it: 40,000 real draws, within five standard deviations everywhere.
    n, p = 40_000, weight / weight.sum()
    drawn = np.zeros(matrix.shape)
    np.add.at(drawn, tuple(sampler.draw(n, 3).numpy()), 1)
    assert (drawn[p == 0] == 0).all()
    assert (np.abs(drawn - n * p) <= 5 * np.sqrt(n * p * (1 - p))).all()


def test_draws_are_functions_of_seed_and_step() -> None:
    graph = graph_from_dense(WITH_ISOLATED)
    one, same, other = (NegativeSampler(graph, "uniform", degrees=graph, seed=seed) for seed in (1, 1, 2))
    other.draw(7, 5)
    assert torch.equal(one.draw(50, 4), same.draw(50, 4))
    assert not torch.equal(one.draw(50, 4), one.draw(50, 5))
    assert not torch.equal(one.draw(50, 4), other.draw(50, 4))


def test_a_complete_graph_has_no_negatives() -> None:
    graph = graph_from_dense(1 - np.eye(4))
    with pytest.raises(CvgnnError, match="nearly all pairs of 4 nodes are edges"):
        NegativeSampler(graph, "uniform", degrees=graph, seed=0).draw(1, 0)


def test_a_batch_has_the_endpoints_of_its_edges_and_then_of_its_negatives() -> None:
    graph = graph_from_dense(TRIANGLE_WITH_TAIL)
    negatives = NegativeSampler(graph, "uniform", degrees=graph, seed=0)
    items = EdgeItems(torch.tensor([[0, 1, 3], [2, 2, 4]], dtype=torch.int32), negatives=negatives)
    nodes, place = items.targets(torch.tensor([2, 0]), step=9, repeats=False)
    assert place is not None
    assert nodes.tolist() == sorted(set(nodes.tolist()))
    assert nodes[place[:, :2]].tolist() == [[3, 0], [4, 2]]
    assert torch.equal(nodes[place[:, 2:]], negatives.draw(2, 9))
    assert items.nodes.tolist() == [0, 1, 2, 3, 4]
