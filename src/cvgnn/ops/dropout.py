"""Dropout masks as pure functions of (seed, step, layer, row, column); the compiled twin is in `model/kernels.py`.

A row gets 64 bits of SplitMix64; their halves are the start and the (odd) stride of a sequence of 32-bit numbers, one
for each column, which a bijection scrambles (two multiply-xorshift rounds, Ellis's `lowbias32`). An entry is dropped
where the result is below `p 2^32`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgnn.rng import GOLDEN, MASK, Purpose, derive, mix

SCRAMBLE = ((16, 0x7FEB352D), (15, 0x846CA68B))
"""Shift and factor of each round."""


class Dropout(NamedTuple):
    """What is dropped of `H^(k)` at one step.

    Args:
        p: probability of an entry to be dropped.
        key: 64 bits, from (seed, step, layer).
    """

    p: float
    key: int

    @property
    def threshold(self) -> int:
        """An entry is dropped where its 32 random bits are below this: `p 2^32`, but never all and never none."""
        return min(max(1, round(self.p * 2**32)), 2**32 - 1)

    @property
    def scale(self) -> float:
        """What kept entries are multiplied by: one over the probability to be kept, 1/(1-p) up to 2^-32."""
        return 2**32 / (2**32 - self.threshold)

    @classmethod
    def at(cls, p: float, *, seed: int, step: int, k: int) -> Dropout:
        """Of layer `k` at a step of a run."""
        return cls(p, derive(seed, Purpose.DROPOUT, step, k))

    def mask(self, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """Literal: 0 with probability `p`, else 1/(1-p), for each entry of `H^(k)[r^(k)]`."""
        states = np.array([mix((self.key + (row + 1) * GOLDEN) & MASK) for row in range(shape[0])], dtype=np.uint64)
        start, stride = (states & np.uint64(0xFFFFFFFF)).astype(np.uint32), (states >> np.uint64(32)).astype(np.uint32)
        columns = np.arange(shape[1], dtype=np.uint32)
        bits = scramble(columns * (stride | np.uint32(1))[:, None] + start[:, None])
        return torch.from_numpy(np.where(bits < self.threshold, 0.0, self.scale)).to(dtype)


def scramble(u: np.ndarray[tuple[int, int], np.dtype[np.uint32]]) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """A bijection of the 32-bit numbers that changes every bit with every bit."""
    for shift, factor in SCRAMBLE:
        u = (u ^ (u >> np.uint32(shift))) * np.uint32(factor)
    return u ^ (u >> np.uint32(16))
