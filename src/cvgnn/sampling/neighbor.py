"""Neighbor sampling: receptive fields and the stochastic matrices `P^(k)` of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from cvgnn.errors import require
from cvgnn.graph import Propagation, Rows
from cvgnn.rng import Purpose, derive
from cvgnn.sampling import kernels
from cvgnn.sampling.block import Block
from cvgnn.sampling.schemes import Scheme, scheme_code


def fan_outs(num_neighbors: int | Sequence[int], num_layers: int) -> tuple[int, ...]:
    """`D^(k)` for `k = 1..K-1` from PyG's `num_neighbors` (a number, or one per hop, the batch's own hop first).

    >>> fan_outs(2, num_layers=3)
    (2, 2)
    >>> fan_outs([10, 5], num_layers=3)
    (5, 10)
    """
    require(num_layers >= 1, f"layers must be at least 1, not {num_layers}")
    hops = num_layers - 1
    each = (num_neighbors,) * max(hops, 1) if isinstance(num_neighbors, int) else tuple(num_neighbors)
    for D in each:
        require(D == -1 or D >= 1, f"num_neighbors must be at least 1, or -1 for all neighbors; it is {D}")
    if isinstance(num_neighbors, int):
        return each[:hops]
    require(
        len(each) == hops,
        f"num_neighbors has {len(each)} entries, but {num_layers} layers sample at {hops} hops (layer 0 is exact): "
        f"give {hops} entries or one number",
    )
    return each[::-1]


@final
class NeighborSampler:
    """Draws the receptive fields and `P^(k)`, `k = K-1..1`, as a pure function of (seed, step, layer, node).

    A sampler owns a scratch array of `N` integers, so one sampler serves one thread at a time.

    Args:
        propagation: `P`.
        num_neighbors: fan-out: a number, or one per hop with the batch's own hop first, `K - 1` in all; -1 = all.
        num_layers: `K`.
        scheme: see `cvgnn.sampling.schemes`.
        control: whether blocks carry the rows of `P - P^` that the control variate needs.
        seed: of the run.
    """

    def __init__(
        self,
        propagation: Propagation,
        *,
        num_neighbors: int | Sequence[int],
        num_layers: int,
        scheme: Scheme = "without-replacement",
        control: bool = True,
        seed: int = 0,
    ) -> None:
        self.fan_outs = fan_outs(num_neighbors, num_layers)
        self.scheme = scheme
        self.control = control
        self.seed = seed
        self._code = scheme_code(scheme)
        weight = propagation.edge_weight
        self._structure = (
            propagation.indptr.numpy(),
            propagation.indices.numpy(),
            np.empty(0, propagation.left.numpy().dtype) if weight is None else weight.numpy(),
            propagation.left.numpy(),
            propagation.right.numpy(),
        )
        self._local = np.full(propagation.num_nodes, -1, dtype=np.int32)

    def sample(self, ids: Tensor, step: int) -> tuple[Block, ...]:
        """The blocks of layers `1..K-1` for a batch.

        Args:
            ids: int64 `[n]`, distinct node ids, `r^(K)`.
            step: `t`.

        Returns:
            `blocks[k-1]` for layer `k`; `blocks[0].sources` is `r^(1)`.
        """
        blocks: list[Block] = []
        targets = ids
        for k in range(len(self.fan_outs), 0, -1):
            blocks.append(self._sample_layer(targets, step, k))
            targets = blocks[-1].sources
        return tuple(reversed(blocks))

    def _sample_layer(self, targets: Tensor, step: int, k: int) -> Block:
        key = np.uint64(derive(self.seed, Purpose.NEIGHBORS, step, k))
        D = self.fan_outs[k - 1]
        sources, *parts = (
            torch.from_numpy(array)
            for array in kernels.sample_block(
                targets.numpy(), *self._structure, D, self._code, key, self.control, self._local
            )
        )
        return Block(sources, Rows(*parts[0:3]), Rows(*parts[3:6]), Rows(*parts[6:9]) if self.control else None)
