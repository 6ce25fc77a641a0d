"""Stateless randomness: SplitMix64 itself, and keys that differ wherever they should."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cvgnn.rng import GOLDEN, MASK, Purpose, derive, mix, numpy_generator


def test_mix_is_splitmix64() -> None:
    """The published first outputs for seed 1234567; output i is the finalizer at seed + i times the golden gamma."""
    outputs = [mix((1234567 + i * GOLDEN) & MASK) for i in range(1, 6)]
    assert outputs == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_mix_stays_in_64_bits_and_is_injective() -> None:
    values = [*range(1000), *(MASK - i for i in range(1000)), *(1 << i for i in range(10, 64))]
    mixed = [mix(z) for z in values]
    assert all(0 <= m <= MASK for m in mixed)
    assert len(set(mixed)) == len(set(values))


def test_mix_changes_about_half_of_the_bits() -> None:
    flips = [
        (mix(z) ^ mix(z ^ (1 << bit))).bit_count()
        for z in (derive(i, Purpose.SPLIT) for i in range(200))
        for bit in range(64)
    ]
    assert 31.9 < np.mean(flips) < 32.1
    assert min(flips) > 10


def test_keys_differ_for_every_seed_purpose_and_place() -> None:
    places = [p for n in range(4) for p in itertools.product(range(6), repeat=n)]
    keys = [derive(seed, purpose, *place) for seed in range(4) for purpose in Purpose for place in places]
    assert len(set(keys)) == len(keys) == 4 * len(Purpose) * (1 + 6 + 36 + 216)
    assert all(0 <= key <= MASK for key in keys)


def test_the_order_of_coordinates_counts() -> None:
    permuted = {derive(0, Purpose.NEIGHBORS, *place) for place in itertools.permutations((0, 1, 2, 3, 4))}
    assert len(permuted) == 120


def test_seed_and_coordinate_do_not_swap() -> None:
    assert derive(1, Purpose.WEIGHTS, 2) != derive(2, Purpose.WEIGHTS, 1)
    assert derive(int(Purpose.TAU), Purpose.DROPOUT) != derive(int(Purpose.DROPOUT), Purpose.TAU)


def test_large_coordinates_count_whole() -> None:
    keys = {derive(2**63 + i, Purpose.TAU, 2**40 + j) for i in range(30) for j in range(30)}
    assert len(keys) == 900


def test_keys_are_fixed_for_good() -> None:
    """A change here changes every published result."""
    assert derive(0, Purpose.WEIGHTS) == 5091125774398135993
    assert derive(7, Purpose.NEIGHBORS, 3, 1) == 12338299268195898459


def test_purposes_have_distinct_numbers() -> None:
    assert len({int(purpose) for purpose in Purpose}) == len(Purpose.__members__)


def test_numpy_generator_is_reproducible() -> None:
    def draw(*place: int, seed: int = 3, purpose: Purpose = Purpose.BATCHES) -> list[int]:
        return numpy_generator(seed, purpose, *place).integers(0, 2**62, size=8).tolist()

    first = draw(5)
    np.random.default_rng(0).random(10)
    assert draw(5) == first
    others = [draw(4), draw(5, 0), draw(5, seed=4), draw(5, purpose=Purpose.SPLIT)]
    assert all(other != first for other in others)


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_numpy_generator_is_uniform(seed: int) -> None:
    draws = numpy_generator(seed, Purpose.SYNTHETIC).integers(0, 10, size=20_000)
    counts = np.bincount(draws, minlength=10)
    assert ((counts - 2000) ** 2 / 2000).sum() < 27.9  # chi-square, 9 degrees of freedom: 0.1 %


def test_nothing_reads_or_moves_numpys_global_state() -> None:
    before = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    numpy_generator(0, Purpose.BATCHES, 1).permutation(100)
    assert (np.random.get_state(legacy=False)["state"]["key"] == before).all()  # noqa: NPY002
