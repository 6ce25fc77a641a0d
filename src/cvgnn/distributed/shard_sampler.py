"""Neighbor draws of a partitioned graph: every rank draws for all targets, and keeps what lies in its own shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.data import Rows
from cvgnn.data.propagation import NORMALIZATIONS, Aggregation, scales
from cvgnn.distributed.partition import Partition, Shard
from cvgnn.distributed.ranks import Ranks
from cvgnn.ops.fused_layer import MaskWeights
from cvgnn.ops.shard_kernels import sample_shard
from cvgnn.rng import Purpose, stream
from cvgnn.sampling.batch import Block
from cvgnn.sampling.neighbor import fan_outs
from cvgnn.sampling.schemes import Scheme, scheme_code


@final
@dataclass(frozen=True, eq=False)
class ShardedBlock:
    """One sampled layer of all own shards.

    Args:
        parts: for each own shard a `Block` whose rows are all targets and whose sources are its own, counted from the
            shard's first node.
        targets: int64 `[m]`, node ids of `r^(k+1)`, ordered by shard.
        counts: targets of each of the `V` shards.
        order: int64 `[m]`, where the given targets stand in `targets`.
    """

    parts: tuple[Block, ...]
    targets: Tensor
    counts: tuple[int, ...]
    order: Tensor | None = None

    @property
    def sources(self) -> Tensor:
        """No node ids: the sources are in `parts`."""
        return self.targets[:0]


@final
class ShardSampler:
    """Draws `P^(k)` for the own shards, as a pure function of (seed, step, layer, node); see `NeighborSampler`.

    Args:
        partition: the graph.
        shards: the own ones.
        ranks: the processes, which tell each other the sources that are targets of the layer below.
        normalization: of `P`.
        num_neighbors, num_layers, scheme, control, seed: as for `NeighborSampler`.
    """

    def __init__(
        self,
        partition: Partition,
        shards: Sequence[Shard],
        ranks: Ranks,
        *,
        normalization: Aggregation,
        num_neighbors: int | Sequence[int],
        num_layers: int,
        scheme: Scheme,
        control: bool,
        seed: int,
    ) -> None:
        self.partition, self.shards, self.ranks = partition, shards, ranks
        self.scheme, self.control, self.seed = scheme, control, seed
        self.fan_outs = fan_outs(num_neighbors, num_layers, scheme)
        self.num_nodes = partition.graph.num_nodes
        dtype = partition.graph.x.dtype
        left, right = (side.to(dtype).numpy() for side in scales(partition.row_sums, normalization))
        self.left, self.right, self.self_loop = left, right, normalization in NORMALIZATIONS
        largest = max(1, int(partition.degree.max()))
        self._drawn = tuple(D if D == -1 or scheme != "without-replacement" else min(D, largest) for D in self.fan_outs)
        self._local = [np.full(shard.high - shard.low, -1, dtype=np.int32) for shard in shards]
        self.propagation: Any = None  # no rank has all of P

    def check_ids(self, ids: Tensor) -> None:
        """Ids come from the partition's own split, which is checked."""

    def sample_unchecked(self, ids: Tensor, step: int) -> tuple[ShardedBlock, ...]:
        """The blocks of layers `1..K-1` for distinct node ids."""
        order: Tensor | None
        targets, counts, order = self.by_shard(ids)
        blocks: list[ShardedBlock] = []
        for k in range(len(self.fan_outs), 0, -1):
            parts = tuple(self._sample(i, targets, step, k) for i in range(len(self.shards)))
            blocks.append(ShardedBlock(parts, targets, counts, order))
            if k > 1:  # the sources are the targets of the layer below
                targets, counts = self._all_sources(parts)
            order = None
        return tuple(reversed(blocks))

    def by_shard(self, ids: Tensor) -> tuple[Tensor, tuple[int, ...], Tensor]:
        """Ids ordered by shard, how many each shard has, and where each id has gone."""
        owner = np.searchsorted(self.partition.starts, ids.numpy(), side="right") - 1
        by_owner = np.argsort(owner, kind="stable")
        place = np.empty_like(by_owner)
        place[by_owner] = np.arange(len(by_owner))
        counts = np.bincount(owner, minlength=self.partition.num_shards)
        return ids[torch.from_numpy(by_owner)], tuple(counts.tolist()), torch.from_numpy(place)

    def _sample(self, i: int, targets: Tensor, step: int, k: int) -> Block:
        shard, key = self.shards[i], np.uint64(stream(self.seed, Purpose.NEIGHBORS))
        sources, *matrices, mask, t_mask = sample_shard(
            targets.numpy(), shard.low, shard.high, *shard.columns, shard.before, self.partition.degree, self.left,
            self.right, self.self_loop, self._drawn[k - 1], scheme_code(self.scheme), key, step, k, self.control,
            self._local[i],
        )  # fmt: skip
        sampled, transposed, remainder = (Rows.of(*arrays) for arrays in matrices)
        if not self.control:
            return Block(torch.from_numpy(sources), sampled, transposed)
        weights = MaskWeights(sampled.with_weight(mask), transposed.with_weight(t_mask))
        return Block(torch.from_numpy(sources), sampled, transposed, remainder, weights)

    def _all_sources(self, parts: Sequence[Block]) -> tuple[Tensor, tuple[int, ...]]:
        own = torch.tensor([part.sources.numel() for part in parts])
        counts = torch.cat(self.ranks.gather_equal(own))
        mine = torch.cat([part.sources + shard.low for part, shard in zip(parts, self.shards, strict=True)])
        by_rank = counts.view(self.ranks.size, -1).sum(dim=1).tolist()
        return self.ranks.gather(mine, by_rank), tuple(counts.tolist())
