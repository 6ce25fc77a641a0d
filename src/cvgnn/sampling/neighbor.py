"""Neighbor sampling: receptive fields and the stochastic matrices `P^(k)` of one step."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.data import Propagation, Rows
from cvgnn.errors import CvgnnError, require, require_integer
from cvgnn.limits import MAX_DRAWS, check_fan_out
from cvgnn.ops import sampling_kernels as kernels
from cvgnn.ops.fused_layer import MaskWeights
from cvgnn.rng import Purpose, stream
from cvgnn.sampling.batch import Block
from cvgnn.sampling.schemes import Scheme, scheme_code


def fan_outs(num_neighbors: int | Sequence[int], num_layers: int, scheme: str) -> tuple[int, ...]:
    """`D^(k)` for `k = 1..K-1` from PyG's `num_neighbors` (a number, or one per hop, the batch's own hop first).

    >>> fan_outs(2, num_layers=3, scheme="without-replacement")
    (2, 2)
    >>> fan_outs([10, 5], num_layers=3, scheme="without-replacement")
    (5, 10)
    """
    hops = require_integer("num_layers", num_layers, at_least=1) - 1
    if not isinstance(num_neighbors, list | tuple):
        check_fan_out(num_neighbors, scheme)
        return (num_neighbors,) * hops  # type: ignore[return-value]
    for D in num_neighbors:
        check_fan_out(D, scheme)
    require(
        len(num_neighbors) == hops,
        f"num_neighbors has {len(num_neighbors)} entries, but {num_layers} layers sample at {hops} hops (layer 0 is "
        f"exact): give {hops} entries or one number",
    )
    return tuple(num_neighbors[::-1])  # PyG counts hops from the batch, the paper layers from the input


@final
class NeighborSampler:
    """Draws the receptive fields and `P^(k)`, `k = K-1..1`, as a pure function of (seed, step, layer, node).

    A sampler owns a scratch array of `N` integers, so it serves one thread at a time; others wait.

    Args:
        propagation: `P`.
        num_neighbors: fan-out: a number, or one per hop with the batch's own hop first, `K - 1` in all; -1 = all.
        num_layers: `K`.
        scheme: see `cvgnn.sampling.schemes`.
        control: whether blocks carry what the control variate needs: the rows of `P - P^`, the mask's weights.
        seed: of the run.
    """

    def __init__(
        self,
        propagation: Propagation,
        *,
        num_neighbors: int | Sequence[int] = 2,
        num_layers: int = 2,
        scheme: Scheme = "without-replacement",
        control: bool = True,
        seed: int = 0,
    ) -> None:
        self._code = scheme_code(scheme)
        self.fan_outs = fan_outs(num_neighbors, num_layers, scheme)
        self.scheme = scheme
        self.control = control
        self.seed = require_integer("seed", seed, at_least=0)
        self.propagation = propagation
        self.num_nodes = propagation.num_nodes
        weight = propagation.edge_weight
        # Made once: wrapping tensors in arrays takes time, and every layer of every step would do it.
        self._structure = (
            propagation.indptr.numpy(),
            propagation.indices.numpy(),
            np.empty(0, propagation.left.numpy().dtype) if weight is None else weight.numpy(),
            propagation.left.numpy(),
            propagation.right.numpy(),
            propagation.self_loop,
            np.empty(0, np.int32) if propagation.draw_ids is None else propagation.draw_ids.numpy(),
        )
        self._make_scratch()
        # Without replacement a larger fan-out than the largest degree draws nothing more, but would size the buffers.
        largest = int(propagation.indptr.diff().max()) if scheme == "without-replacement" else MAX_DRAWS
        self._drawn = tuple(D if D == -1 else min(D, max(largest, 1)) for D in self.fan_outs)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy needs: everything but the scratch and its lock, which belong to this one."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_local")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_scratch()

    def _make_scratch(self) -> None:
        self._lock = threading.Lock()  # a loader draws ahead in another thread
        # The node ids' places in a block. The kernel resets what it wrote, so a batch does not cost N writes.
        self._local = np.full(self.num_nodes, -1, dtype=np.int32)

    def sample(self, ids: Tensor, step: int) -> tuple[Block, ...]:
        """The blocks of layers `1..K-1` for a batch.

        Args:
            ids: int64 `[n]`, distinct node ids, `r^(K)`.
            step: `t`.

        Returns:
            `blocks[k-1]` for layer `k`; `blocks[0].sources` is `r^(1)`.
        """
        self.check_ids(ids)
        return self.sample_unchecked(ids, step)

    def entries(self, num_targets: int) -> int:
        """The approximate number of entries of `P` that a batch of `num_targets` nodes of average degree reads."""
        # An upper estimate: receptive fields are taken as trees, in which no two nodes share a neighbor.
        degree = self.propagation.indices.numel() / self.num_nodes
        total, n = 0.0, float(num_targets)
        for D in reversed(self.fan_outs):
            drawn = degree if D == -1 else min(D, degree)
            # The rows of P - P^ hold all neighbors, not only those drawn.
            total += n * (1 + max(drawn, degree if self.control else 0.0))
            n *= 1 + drawn
        return round(total)

    def check_ids(self, ids: Tensor) -> None:
        """Refuse ids that compiled code, which checks nothing, must not see."""
        require(
            isinstance(ids, Tensor) and ids.dim() == 1 and ids.dtype == torch.int64,
            f"ids must be an int64 tensor of node ids, not {ids if not isinstance(ids, Tensor) else ids.dtype}",
        )
        if ids.numel():
            low, high = int(ids.min()), int(ids.max())
            require(
                low >= 0 and high < self.num_nodes,
                f"ids must lie in 0..{self.num_nodes - 1}; found {low if low < 0 else high}",
            )
            require(np.unique(ids.numpy()).size == ids.numel(), "ids must be distinct; name each node once")

    def sample_unchecked(self, ids: Tensor, step: int) -> tuple[Block, ...]:
        """`sample` for ids that were checked before, as a loader's are."""
        blocks: list[Block] = []
        targets = ids
        # Algorithm 1, line 5, from the batch down: layer k's sources r^(k) are the targets of layer k-1.
        for k in range(len(self.fan_outs), 0, -1):
            blocks.append(self.sample_layer(targets, step, k))
            targets = blocks[-1].sources
        return tuple(reversed(blocks))

    def sample_layer(self, targets: Tensor, step: int, k: int) -> Block:
        """The block of layer `k` for its targets, `r^(k+1)`; layer 0, which is not part of `sample`, has the last
        fan-out."""
        key, D = np.uint64(stream(self.seed, Purpose.NEIGHBORS)), self._drawn[k - 1]
        with self._lock:
            try:
                sources, *matrices, mask, t_mask = kernels.sample_block(
                    targets.numpy(), *self._structure, D, self._code, key, step, k, self.control, self._local
                )
            except OverflowError:
                raise CvgnnError(
                    "a batch reads more than 2^31 entries of P; choose a smaller batch_size or num_neighbors"
                ) from None
        sampled, transposed, remainder = (Rows.of(*arrays) for arrays in matrices)
        if not self.control:
            return Block(torch.from_numpy(sources), sampled, transposed)
        weights = MaskWeights(sampled.with_weight(mask), transposed.with_weight(t_mask))
        return Block(torch.from_numpy(sources), sampled, transposed, remainder, weights)
