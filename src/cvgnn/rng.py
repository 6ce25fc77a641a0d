"""Stateless random numbers: every draw is a pure function of the seed and of its purpose and coordinates.

No code in cvgnn reads or changes a global random state. A caller derives a 64-bit key from the run's seed and its
own coordinates (step, layer, epoch, ...), so a result cannot depend on threads, prefetching or on where a run was
resumed. The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
Generators", 2014). There is one for each kind of number: Python integers and NumPy arrays here, compiled code in
`ops.sampling_kernels`, int64 tensors in `ops.dropout`.
"""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import TypeVar

import numpy as np

IntegerT = TypeVar("IntegerT", int, np.ndarray)

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The multipliers of the two rounds of `mix`."""


class Purpose(IntEnum):
    """The purpose of a stream of random numbers; different purposes never share a stream."""

    WEIGHTS = 1
    BATCHES = 2
    NEIGHBORS = 3
    DROPOUT = 4
    TAU = 5
    SPLIT = 6
    SYNTHETIC = 7
    SEARCH = 8
    NEGATIVES = 9


def mix(z: IntegerT) -> IntegerT:
    """SplitMix64's finalizer on 64-bit unsigned integers: a bijection that changes every bit with every bit.

    Args:
        z: a Python integer, or a NumPy array of uint64, which wraps around by itself.

    >>> hex(mix(1)), mix(np.array([1], np.uint64)).tolist() == [mix(1)]
    ('0x5692161d100b05e5', True)
    """
    z = ((z ^ (z >> 30)) * FACTORS[0]) & MASK
    z = ((z ^ (z >> 27)) * FACTORS[1]) & MASK
    z ^= z >> 31
    return z


def derive(seed: int, purpose: Purpose, *coordinates: int) -> int:
    """A 64-bit key for one purpose at given coordinates: seed, purpose and coordinates are mixed in this order.

    >>> derive(0, Purpose.DROPOUT, 3, 1) == derive(0, Purpose.DROPOUT, 3, 1)
    True
    >>> derive(0, Purpose.DROPOUT, 3, 1) == derive(0, Purpose.DROPOUT, 1, 3)
    False
    """
    key = stream(seed, purpose)
    for value in coordinates:
        key = chain(key, value)
    return key


@functools.lru_cache(maxsize=64)
def stream(seed: int, purpose: Purpose) -> int:
    """`derive` without coordinates. The seed is mixed once more than a coordinate, so that the two cannot swap."""
    return chain(mix(mix((seed + GOLDEN) & MASK)), purpose)


def chain(key: int, value: int) -> int:
    """Add one coordinate to a key."""
    return mix((key ^ mix((value + GOLDEN) & MASK)) + GOLDEN & MASK)


def numpy_generator(seed: int, purpose: Purpose, *coordinates: int) -> np.random.Generator:
    """A NumPy generator (Philox) that starts at `derive(seed, purpose, *coordinates)`."""
    return np.random.Generator(np.random.Philox(key=derive(seed, purpose, *coordinates)))
