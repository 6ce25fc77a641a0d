"""Rows written to a table, and the bits that a bfloat16 table gets."""

from __future__ import annotations

import pytest
import torch

from cvgnn.ops.history_write import write_rows

SPECIAL = torch.tensor([
    0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7FA00000,  # zeros, inf, NaN
    0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0xBF808000, 0xBF818000,  # ties, and beside them
    0x7F7FFFFF, 0xFF7FFFFF, 0x7F7F8000, 0x7F7F7FFF,  # the largest become infinite, or not
    0x00000001, 0x807FFFFF, 0x00008000, 0x00018000,  # subnormal
])  # fmt: skip


def bits(values: torch.Tensor) -> list[int]:
    return [v & 0xFFFF for v in values.view(torch.int16).flatten().tolist()]


def test_rounding_is_torchs_to_the_bit() -> None:
    drawn = torch.randint(-(2**31), 2**31, (40_000,), generator=torch.Generator().manual_seed(0))
    words = torch.cat([SPECIAL, drawn])
    words = words[: len(words) // 32 * 32].to(torch.int64)
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    rows = words.view(torch.float32).reshape(-1, 32)
    n = len(rows)
    table, written = torch.zeros(n, 32, dtype=torch.bfloat16), torch.zeros(n, dtype=torch.int64)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1))
    write_rows(table, order, rows, written, 3)
    found, expected = table[order].flatten(), rows.flatten().bfloat16()
    nan = rows.flatten().isnan()
    assert bits(found[~nan]) == bits(expected[~nan])
    assert bool(found[nan].isnan().all())
    assert int(nan.sum()) > 50
    assert written.tolist() == [3] * n


@pytest.mark.parametrize("storage", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("given", [torch.float32, torch.float64])
def test_rows_are_converted_and_others_stay(given: torch.dtype, storage: torch.dtype) -> None:
    table, written = torch.full((5, 3), 7.0, dtype=storage), torch.zeros(5, dtype=torch.int64)
    rows = torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=given).t()  # not contiguous
    write_rows(table, torch.tensor([4, 1]), rows, written, 9)
    assert torch.equal(table[[4, 1]], rows.to(storage))
    assert bool((table[[0, 2, 3]] == 7.0).all())
    assert written.tolist() == [0, 9, 0, 0, 9]
