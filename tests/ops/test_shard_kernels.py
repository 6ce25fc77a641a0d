"""Draws by shard: one shard is the whole graph, and several make up the same matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.data import Propagation
from cvgnn.distributed.partition import Partition, partition_graph
from cvgnn.distributed.ranks import Ranks
from cvgnn.distributed.shard_sampler import ShardSampler
from cvgnn.sampling import NeighborSampler
from tests.distributed.test_sharded_trainer import small_graph

TARGETS = torch.tensor([3, 150, 7, 99, 42, 199, 0])


def dense(rows: Any, columns: np.ndarray, n: int) -> np.ndarray:
    out = np.zeros((len(rows.indptr) - 1, n))
    at = np.repeat(np.arange(len(out)), np.diff(rows.indptr))
    np.add.at(out, (at, columns[rows.indices]), rows.weight)
    return out


@pytest.mark.parametrize("shards", [1, 8])
@pytest.mark.parametrize(
    ("scheme", "D"), [("without-replacement", 2), ("with-replacement", 3), ("without-replacement", -1)]
)
def test_the_draws_of_all_shards_are_those_of_the_whole_graph(tmp_path: Path, shards: int, scheme: Any, D: int) -> None:
    graph = small_graph(weighted=True)
    partition_graph(graph, tmp_path / "p", shards=shards, method="range")  # keeps the ids, and so the draws
    partition, n = Partition(tmp_path / "p"), graph.num_nodes
    options: Any = {"num_neighbors": D, "num_layers": 2, "scheme": scheme, "control": True, "seed": 5}
    (whole,) = NeighborSampler(Propagation(graph), **options).sample_unchecked(TARGETS, 9)
    own = [partition.shard(s) for s in range(shards)]
    (block,) = ShardSampler(partition, own, Ranks(), normalization="symmetric", **options).sample_unchecked(TARGETS, 9)
    sources = whole.sources.numpy()
    expected = dense(whole.sampled, sources, n), dense(whole.remainder, np.arange(n), n)
    sampled, remainder = np.zeros((2, len(TARGETS), n))
    for shard, part in zip(own, block.parts, strict=True):
        mine = part.sources.numpy() + shard.low
        assert ((mine >= shard.low) & (mine < shard.high)).all()
        sampled += dense(part.sampled, mine, n)
        remainder += dense(part.remainder, np.arange(shard.low, shard.high), n)
        back = dense(part.transposed, np.arange(len(TARGETS)), len(TARGETS))
        assert np.array_equal(back.T, dense(part.sampled, np.arange(len(mine)), len(mine)))
    order = block.order.numpy()
    assert np.array_equal(block.targets[order], TARGETS)
    assert np.array_equal(sampled[order], expected[0])
    np.testing.assert_allclose(remainder[order], expected[1], rtol=0, atol=1e-15)
    assert (expected[0] != 0).any()
    if shards == 1:
        assert np.array_equal(np.sort(block.parts[0].sources), np.sort(sources))
