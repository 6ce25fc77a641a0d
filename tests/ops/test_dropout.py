"""Dropout masks: what they are a function of, how often they drop, and that nothing is correlated that should not be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.ops.dropout import Dropout, scramble
from cvgnn.ops.fused_layer import Sigma, hidden_layer
from cvgnn.ops.row_input import SparseInput, drop_dense
from cvgnn.ops.row_sum import Rows


def mask(
    p: float = 0.3, *, shape: tuple[int, int] = (200, 50), seed: int = 0, step: int = 1, k: int = 1
) -> torch.Tensor:
    return Dropout.at(p, seed=seed, step=step, k=k).mask(shape, torch.float64)


def test_a_mask_is_a_function_of_seed_step_and_layer() -> None:
    zero, kept = mask().unique().tolist()
    assert zero == 0.0
    assert kept == pytest.approx(1 / 0.7, abs=1e-9)
    assert torch.equal(mask(), mask())
    assert not any(torch.equal(mask(), other) for other in (mask(seed=1), mask(step=2), mask(k=2)))


def test_a_mask_does_not_depend_on_the_size_of_the_batch() -> None:
    assert torch.equal(mask(shape=(30, 20)), mask(shape=(200, 50))[:30, :20])


@pytest.mark.parametrize("p", [0.01, 0.2, 0.5, 0.9])
def test_how_often(p: float) -> None:
    """In all, in each row and in each column, within five standard deviations of p."""
    dropped = (mask(p, shape=(2000, 500)) == 0).double()
    spread = math.sqrt(p * (1 - p))
    assert abs(float(dropped.mean()) - p) < 5 * spread / math.sqrt(dropped.numel())
    assert float((dropped.mean(0) - p).abs().max()) < 5 * spread / math.sqrt(2000)
    assert float((dropped.mean(1) - p).abs().max()) < 5 * spread / math.sqrt(500)
    # Rows and columns scatter as independent draws do: their means neither too far apart nor too close together.
    assert float(dropped.mean(0).var()) == pytest.approx(p * (1 - p) / 2000, rel=0.4)
    assert float(dropped.mean(1).var()) == pytest.approx(p * (1 - p) / 500, rel=0.2)


def test_neighboring_entries_rows_steps_layers_and_seeds_are_uncorrelated() -> None:
    shape = (1000, 256)
    kept = mask(0.5, shape=shape) - 1.0  # +-1
    limit = 5 / math.sqrt(kept.numel())
    for lag in (1, 2, 3, 8, 16, 64, 128):
        assert abs(float((kept[:, lag:] * kept[:, :-lag]).mean())) < 1.5 * limit
        assert abs(float((kept[lag:] * kept[:-lag]).mean())) < 1.5 * limit
    for other in (mask(0.5, shape=shape, step=2), mask(0.5, shape=shape, k=2), mask(0.5, shape=shape, seed=1)):
        assert abs(float((kept * (other - 1.0)).mean())) < limit


@pytest.mark.parametrize("p", [1e-12, 0.1, 0.5, 1 - 1e-12])
def test_a_mask_is_unbiased_to_the_last_bit(p: float) -> None:
    """The probability to be kept times the scale is 1, also where p is too extreme for 32 bits."""
    drop = Dropout(p, key=0)
    assert (2**32 - drop.threshold) / 2**32 * drop.scale == pytest.approx(1.0, abs=1e-15)
    assert abs(drop.threshold / 2**32 - p) <= 2**-32


def test_scrambling_is_a_bijection_that_mixes() -> None:
    numbers = np.arange(1 << 16, dtype=np.uint32)[None]
    scrambled = scramble(numbers)
    assert np.unique(scrambled).size == numbers.size
    for bit in range(16):
        flipped = scramble(numbers ^ np.uint32(1 << bit)) ^ scrambled
        changed = np.unpackbits(flipped.view(np.uint8)).mean()
        assert 0.45 < changed < 0.55


def test_scrambling_is_the_same_in_signed_64_bits() -> None:
    """As `mask` computes it, on devices without unsigned numbers, up to the largest of 32 bits."""
    numbers = np.random.default_rng(0).integers(0, 2**32, size=5000, dtype=np.uint32)
    numbers[:2] = 0, 2**32 - 1
    assert scramble(torch.from_numpy(numbers.astype(np.int64))).tolist() == scramble(numbers).tolist()


@pytest.mark.parametrize("start", [1, 170, 10**9])
def test_a_mask_from_a_row_on_is_that_part_of_the_whole(start: int) -> None:
    drop = Dropout(0.3, key=2**64 - 3)
    part = drop.mask((20, 50), torch.float64, start=start)
    if start < 1000:
        assert torch.equal(part, drop.mask((start + 20, 50), torch.float64)[start:])
    row, column = torch.meshgrid(torch.arange(start, start + 20), torch.arange(50), indexing="ij")
    assert torch.equal(part, drop.entries(row, column))
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(part.flatten()[order], drop.entries(row.flatten()[order], column.flatten()[order]))


@pytest.mark.parametrize("key", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_any_64_bits_are_a_key(key: int) -> None:
    """The compiled code has unsigned numbers, torch signed ones."""
    drop, ones = Dropout(0.5, key), torch.ones(40, 30, dtype=torch.float64)
    assert torch.equal(drop.mask((40, 30), torch.float64), drop_dense(ones.clone(), drop, 0))


def test_training_and_its_plain_twin_drop_the_same() -> None:
    """In `H` after the activation, too: an entry is dropped in both or in none."""
    drop, Z = Dropout(0.6, key=5), torch.ones(300, 17, dtype=torch.float64)
    sent = hidden_layer(Z, Sigma(), drop=drop).own
    assert sent is not None
    assert torch.equal(sent, drop.mask((300, 17), torch.float64))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_rows_have_the_mask_of_their_numbers(activation: Any) -> None:
    """A row with a number of its own has the mask that it would have at that position, forward and backward."""
    numbers = torch.tensor([7, 0, 299, 12, 3])
    whole, part = Dropout(0.6, key=5), Dropout(0.6, 5, numbers)
    mask = whole.mask((300, 17), torch.float64)[numbers]
    assert torch.equal(part.mask((5, 17), torch.float64), mask)
    assert torch.equal(part.mask((2, 17), torch.float64, start=3), mask[3:])
    assert torch.equal(drop_dense(torch.ones(5, 17, dtype=torch.float64), part, 0), mask)
    Z = torch.randn(5, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    out = hidden_layer(Z, Sigma(activation=activation), drop=part, own=True)
    assert out.own is not None
    torch.testing.assert_close(out.own, out.H * mask, rtol=0, atol=1e-14)
    (given,) = torch.autograd.grad(out.own.sum(), Z)
    plain = getattr(torch.nn.functional, activation)(Z) * mask
    torch.testing.assert_close(given, torch.autograd.grad(plain.sum(), Z)[0], rtol=0, atol=1e-13)
    ids = torch.arange(5)
    dense = torch.ones(5, 17, dtype=torch.float64)
    sparse = SparseInput(
        Rows(torch.arange(0, 86, 17), torch.arange(17, dtype=torch.int32).repeat(5), dense.flatten()),
        ids,
        num_columns=17,
    )
    torch.testing.assert_close(sparse.dropped(part).tensor(torch.float64), mask)
