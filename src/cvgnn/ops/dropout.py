"""Dropout masks as pure functions of (seed, step, layer, row, column); the compiled twin is in `layer_kernels.py`.

A row gets 64 bits of SplitMix64; their halves are the start and the (odd) stride of a sequence of 32-bit numbers, one
for each column, which a bijection scrambles (two multiply-xorshift rounds, Ellis's `lowbias32`). An entry is dropped
where the result is below `p 2^32`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgnn.rng import FACTORS, GOLDEN, Purpose, derive

SCRAMBLE = ((16, 0x7FEB352D), (15, 0x846CA68B))
"""Shift and factor of each round."""

_LOW = 0xFFFFFFFF
_NO_ROWS = np.empty(0, np.int64)


class Dropout(NamedTuple):
    """What is dropped of `H^(k)` at one step.

    Args:
        p: probability of an entry to be dropped.
        key: 64 bits, from (seed, step, layer).
        rows: int64 `[n]`, the number of each row that its mask is a function of; the position of the row if None. A
            sharded run gives node ids here, because positions depend on the shards.
    """

    p: float
    key: int
    rows: Tensor | None = None

    @property
    def threshold(self) -> int:
        """An entry is dropped where its 32 random bits are below this: `p 2^32`, but never all and never none."""
        return min(max(1, round(self.p * 2**32)), 2**32 - 1)

    @property
    def scale(self) -> float:
        """What kept entries are multiplied by: one over the probability to be kept, 1/(1-p) up to 2^-32."""
        return 2**32 / (2**32 - self.threshold)

    @property
    def kernel_arguments(self) -> tuple[np.uint64, int, float, np.ndarray]:
        """Key, threshold, scale and rows, as the kernels take them; no rows stand for positions."""
        return np.uint64(self.key), self.threshold, self.scale, _NO_ROWS if self.rows is None else self.rows.numpy()

    @classmethod
    def at(cls, p: float, *, seed: int, step: int, k: int, own: bool = False, rows: Tensor | None = None) -> Dropout:
        """Of `H^(k)` at a step of a run; for `k = 0` of the rows of `P X` or, if `own`, of those of `X`."""
        return cls(p, derive(seed, Purpose.DROPOUT, step, k, *[1] * own), rows)

    def mask(
        self, shape: tuple[int, int], dtype: torch.dtype, *, device: torch.device | None = None, start: int = 0
    ) -> Tensor:
        """0 with probability `p`, else 1/(1-p), for each entry of `H^(k)[r^(k)]`: plain torch, on any device.

        Args:
            shape: rows and columns.
            dtype: of the mask.
            device: where it is computed; the CPU if not given.
            start: which row of all is the first.
        """
        row = torch.arange(start, start + shape[0], device=device)
        if self.rows is not None:
            row = self.rows[start : start + shape[0]].to(row.device)
        column = torch.arange(shape[1], device=device)
        return self.entries(row[:, None], column).to(dtype)

    def entries(self, row: Tensor, column: Tensor) -> Tensor:
        """The mask at given row numbers and columns, int64 tensors that broadcast; float64."""
        # torch has no arithmetic on uint64. int64 wraps around with the same bits; only shifts need care.
        z = (row + 1) * _signed(GOLDEN) + _signed(self.key)
        z = (z ^ _shifted(z, 30)) * _signed(FACTORS[0])
        z = (z ^ _shifted(z, 27)) * _signed(FACTORS[1])
        state = z ^ _shifted(z, 31)
        bits = scramble((column * (_shifted(state, 32) | 1) + (state & _LOW)) & _LOW)
        return (bits >= self.threshold).double() * self.scale


def scramble(u: Tensor) -> Tensor:
    """A bijection of the 32-bit numbers, here in int64, that changes every bit with every bit."""
    for shift, factor in SCRAMBLE:
        u = ((u ^ (u >> shift)) * factor) & _LOW
    return u ^ (u >> 16)


def _signed(bits: int) -> int:
    """The int64 with the bits of a uint64."""
    return bits - (1 << 64) if bits >> 63 else bits


def _shifted(z: Tensor, places: int) -> Tensor:
    """`z >> places`, filling with zeros as for uint64."""
    return (z >> places) & ((1 << (64 - places)) - 1)


NO_DROPOUT = (np.uint64(0), 0, 1.0, _NO_ROWS)
"""`Dropout.kernel_arguments` where nothing is dropped."""
