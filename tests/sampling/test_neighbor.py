from __future__ import annotations

import pytest
import torch

from cvgnn.data import Propagation
from cvgnn.errors import CvgnnError
from cvgnn.sampling import SCHEMES, NeighborSampler
from cvgnn.sampling.neighbor import fan_outs
from tests.build import graph_from_dense, random_adjacency

A = random_adjacency(40, mean_degree=6, weighted=False, seed=1)
PROPAGATION = Propagation(graph_from_dense(A))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_receptive_fields(scheme: str) -> None:
    """`r^(k)` starts with `r^(k+1)` and adds neighbors of it only; every layer has its own fan-out."""
    sampler = NeighborSampler(PROPAGATION, num_neighbors=[1, 3], num_layers=3, scheme=scheme, seed=5)
    ids = torch.tensor([7, 0, 39])
    first, second = sampler.sample(ids, step=4)
    assert second.targets.tolist() == [7, 0, 39]
    assert first.targets.tolist() == second.sources.tolist()
    for block, D in ((second, 1), (first, 3)):
        assert len(set(block.sources.tolist())) == block.sources.numel()
        for i, v in enumerate(block.targets.tolist()):
            a, b = block.sampled.indptr[i], block.sampled.indptr[i + 1]
            drawn = block.sources[block.sampled.indices[a:b].long()].tolist()
            assert drawn[0] == v
            assert 0 <= len(drawn) - 1 <= D
            assert all(A[v, u] for u in drawn[1:])


def test_a_draw_depends_on_seed_step_layer_and_node_alone() -> None:
    """A node's neighbors are the same in whatever batch it comes, and differ across seed, step and layer."""

    def row(block: object, v: int) -> list[int]:
        i = block.targets.tolist().index(v)  # type: ignore[attr-defined]
        a, b = block.sampled.indptr[i], block.sampled.indptr[i + 1]  # type: ignore[attr-defined]
        return block.sources[block.sampled.indices[a:b].long()].tolist()  # type: ignore[attr-defined]

    def sample(ids: list[int], step: int, seed: int = 0) -> tuple[object, ...]:
        return NeighborSampler(PROPAGATION, num_neighbors=2, num_layers=3, seed=seed).sample(torch.tensor(ids), step)

    for step in range(1, 20):
        assert row(sample([0], step)[1], 0) == row(sample([3, 0, 9], step)[1], 0)
    base = [row(sample([0], t)[1], 0) for t in range(1, 20)]
    assert base != [row(sample([0], t + 100)[1], 0) for t in range(1, 20)]
    assert base != [row(sample([0], t, seed=1)[1], 0) for t in range(1, 20)]
    assert base != [row(sample([0], t)[0], 0) for t in range(1, 20)]


def test_one_layer_samples_nothing() -> None:
    assert NeighborSampler(PROPAGATION, num_neighbors=2, num_layers=1).sample(torch.tensor([1]), 1) == ()


def test_control_is_optional() -> None:
    sampler = NeighborSampler(PROPAGATION, num_neighbors=2, num_layers=2, control=False)
    assert sampler.sample(torch.tensor([0]), 1)[0].remainder is None


@pytest.mark.parametrize(
    ("num_neighbors", "num_layers", "said"),
    [
        (0, 2, "num_neighbors must be whole numbers of at least 1, or -1 for all neighbors, not 0"),
        (-2, 2, "not -2"),
        (0, 1, "not 0"),
        ([2, 2], 2, "num_neighbors has 2 entries, but 2 layers sample at 1 hops"),
        ([2, 0], 3, "not 0"),
        (2.0, 2, "not 2.0"),
        ("2", 2, "not '2'"),
        (None, 2, "not None"),
        (True, 2, "not True"),
        ([2.5], 2, "not 2.5"),
        (10**30, 2, f"not {10**30}"),
        (2, 2.0, "layers must be a whole number of at least 1, not 2.0"),
        (2, 0, "layers must be a whole number of at least 1, not 0"),
    ],
)
def test_impossible_fan_outs(num_neighbors: int | list[int], num_layers: int, said: str) -> None:
    with pytest.raises(CvgnnError, match=said):
        fan_outs(num_neighbors, num_layers, "without-replacement")


def test_unknown_scheme() -> None:
    with pytest.raises(CvgnnError, match="unknown scheme 'papr'; known: without-replacement, with-replacement, paper"):
        NeighborSampler(PROPAGATION, num_neighbors=2, num_layers=2, scheme="papr")  # type: ignore[arg-type]


def test_absurd_fan_outs() -> None:
    """Without replacement a huge fan-out is all neighbors; the other schemes would draw that often, so they refuse."""
    huge = NeighborSampler(PROPAGATION, num_neighbors=2**31 - 1, num_layers=2)
    every = NeighborSampler(PROPAGATION, num_neighbors=-1, num_layers=2)
    ids = torch.tensor([0, 5])
    assert huge.sample(ids, 1)[0].sources.equal(every.sample(ids, 1)[0].sources)
    for scheme in ("with-replacement", "paper", "released"):
        with pytest.raises(CvgnnError, match=f"must be at most 10000 for the scheme {scheme}"):
            NeighborSampler(PROPAGATION, num_neighbors=10_001, num_layers=2, scheme=scheme)  # type: ignore[arg-type]


def test_a_seed_is_a_whole_number() -> None:
    with pytest.raises(CvgnnError, match=r"seed must be a whole number of at least 0, not 1\.5"):
        NeighborSampler(PROPAGATION, num_neighbors=2, num_layers=2, seed=1.5)  # type: ignore[arg-type]
