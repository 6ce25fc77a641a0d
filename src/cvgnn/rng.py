"""Stateless randomness: every draw is a pure function of the seed and of what it is drawn for.

Nothing in cvgnn reads or moves a global random state. A consumer derives a 64-bit key from the run's seed and its
own coordinates (step, layer, epoch, ...), so a result cannot depend on threads, prefetching or on where a run was
resumed. The mixing function is SplitMix64's finalizer (Steele, Lea, Flood 2014).
"""

from __future__ import annotations

import functools
from enum import IntEnum

import numpy as np

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Of the two rounds of `mix`."""


class Purpose(IntEnum):
    """What a stream of random numbers is for; different purposes never share a stream."""

    WEIGHTS = 1
    BATCHES = 2
    NEIGHBORS = 3
    DROPOUT = 4
    TAU = 5
    SPLIT = 6
    SYNTHETIC = 7
    SEARCH = 8


def mix(z: int) -> int:
    """SplitMix64's finalizer on 64-bit unsigned integers: a bijection that changes every bit with every bit.

    >>> hex(mix(1))
    '0x5692161d100b05e5'
    """
    z = ((z ^ (z >> 30)) * FACTORS[0]) & MASK
    z = ((z ^ (z >> 27)) * FACTORS[1]) & MASK
    return z ^ (z >> 31)


def derive(seed: int, purpose: Purpose, *coordinates: int) -> int:
    """A 64-bit key for one purpose at one place: chained mixing of seed, purpose and coordinates.

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
    """The key for one more coordinate."""
    return mix((key ^ mix((value + GOLDEN) & MASK)) + GOLDEN & MASK)


def numpy_generator(seed: int, purpose: Purpose, *coordinates: int) -> np.random.Generator:
    """A NumPy generator (Philox) that starts at `derive(seed, purpose, *coordinates)`."""
    return np.random.Generator(np.random.Philox(key=derive(seed, purpose, *coordinates)))
