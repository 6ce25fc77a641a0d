"""The kernels of streaming ingest and the same in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from cvgnn.ops.id_kernels import UNKNOWN, IdTable, group_entries, hash_integers, hash_strings
from cvgnn.rng import MASK, mix

TOP = int(UNKNOWN)


def make_key(z: int) -> int:
    return mix(z) | TOP if mix(z) not in (0, TOP) else TOP | 1


def key_of(text: bytes, seed: int) -> int:
    h, whole = seed, len(text) // 8 * 8
    for i in range(0, whole, 8):
        h = mix(h ^ int.from_bytes(text[i : i + 8], "little"))
    word = len(text)
    for byte in text[whole:]:
        word = (word << 8 | byte) & MASK
    return make_key(h ^ word)


def test_keys_of_strings() -> None:
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 256, length, dtype=np.uint8).tobytes() for length in (*range(40), 700)]
    offsets = np.cumsum([0, *map(len, texts)])
    data = np.frombuffer(b"".join(texts), np.uint8)
    assert hash_strings(offsets, data, 11).tolist() == [key_of(text, 11) for text in texts]
    assert hash_strings(offsets[7:], data, 12).tolist() == [key_of(text, 12) for text in texts[7:]]


def test_keys_of_integers() -> None:
    values = np.array([0, 1, -1, 2**63 - 1, -(2**63), 5])
    assert hash_integers(values, 5).tolist() == [make_key(5 ^ (v & MASK)) for v in values.tolist()]


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_a_table_gives_the_numbers_of_known_keys(parts: int) -> None:
    keys = hash_integers(np.arange(5000), 3)
    asked = np.concatenate([keys[::-3], hash_integers(np.arange(10_000, 10_100), 3), [UNKNOWN]])
    found = asked.copy()
    for part in range(parts):
        table = IdTable(keys.size, part, parts)
        for row in range(0, keys.size, 700):
            assert not table.insert(keys[row : row + 700], row).size
        table.resolve(found)
    number = {key: i for i, key in enumerate(keys.tolist())}
    assert found.tolist() == [number.get(key, key) for key in asked.tolist()]
    assert (found.view(np.int64)[-101:] < 0).all()


def test_keys_that_are_there_twice() -> None:
    keys = hash_integers(np.array([5, 6, 5, 7, 6, 5]), 0)
    table = IdTable(6)
    assert table.insert(keys[:3], 0).tolist() == [[0, 2]]
    assert table.insert(keys[3:], 3).tolist() == [[1, 4], [0, 5]]


@pytest.mark.parametrize("weighted", [False, True])
def test_entries_in_buckets(weighted: bool) -> None:
    rng = np.random.default_rng(1)
    keys, low, shift = rng.integers(3 << 40, (3 << 40) + 1000, 500), 3 << 40, 6
    weight = rng.random(500) if weighted else None
    grouped, weights, starts = group_entries(keys, weight, low, shift, 20)
    order = np.argsort((keys - low) >> shift, kind="stable")
    assert grouped.tolist() == keys[order].tolist()
    assert (weights is None) == (weight is None)
    if weights is not None and weight is not None:
        assert weights.tolist() == weight[order].tolist()
    assert starts.tolist() == np.searchsorted((keys - low >> shift)[order], np.arange(21)).tolist()
