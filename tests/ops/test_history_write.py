"""Rows written to a table, and the bits that a bfloat16 table gets."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from cvgnn.errors import CvgnnError
from cvgnn.ops import threads
from cvgnn.ops.backend import plain
from cvgnn.ops.history_write import write_rows
from cvgnn.training.machine import thread_count

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


@pytest.mark.parametrize("storage", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("given", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [0, 1, 3, 50])
def test_the_plain_twin_writes_the_same_bits(n: int, given: torch.dtype, storage: torch.dtype) -> None:
    """Also of float64 rows in a bfloat16 table: both round twice or both once."""
    generator = torch.Generator().manual_seed(n)
    ids = torch.randperm(60, generator=generator)[:n]
    rows = torch.randn(n, 19, generator=generator, dtype=given)
    written = [torch.full((60,), 2) for _ in range(2)]
    tables = [torch.ones(60, 19, dtype=storage) for _ in range(2)]
    write_rows(tables[0], ids, rows, written[0], 5)
    with plain():
        write_rows(tables[1], ids, rows, written[1], 5)
    assert torch.equal(*tables)
    assert torch.equal(*written)
    assert int((written[0] == 5).sum()) == n


def test_the_plain_twin_rounds_special_values_the_same_way() -> None:
    words = torch.where(SPECIAL >= 2**31, SPECIAL - 2**32, SPECIAL).to(torch.int32)
    rows = words.view(torch.float32)[:, None]
    n = len(rows)
    tables = [torch.ones(n, 1, dtype=torch.bfloat16) for _ in range(2)]
    write_rows(tables[0], torch.arange(n), rows, torch.zeros(n, dtype=torch.int64), 1)
    with plain():
        write_rows(tables[1], torch.arange(n), rows, torch.zeros(n, dtype=torch.int64), 1)
    number = ~rows.flatten().isnan()
    assert bits(tables[0][number]) == bits(tables[1][number])
    assert all(bool(table[~number].isnan().all()) for table in tables)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads_write_every_row_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WORTH_SHARING", 0)
    ids = torch.randperm(500, generator=torch.Generator().manual_seed(0))[:333]
    rows = torch.randn(333, 40, generator=torch.Generator().manual_seed(1))
    table, written = torch.zeros(500, 40), torch.zeros(500, dtype=torch.int64)
    with thread_count(count):
        write_rows(table, ids, rows, written, 4)
    assert torch.equal(table, torch.zeros(500, 40).index_copy(0, ids, rows))
    assert int(written.sum()) == 4 * 333


@pytest.mark.parametrize("twin", [False, True], ids=["compiled", "plain"])
@pytest.mark.parametrize(
    ("ids", "shape", "said"),
    [
        (torch.tensor([0, 1]), (2, 3), r"values must have the shape \[2, 2\], not \[2, 3\]"),
        (torch.tensor([0, 1]), (1, 2), r"values must have the shape \[2, 2\], not \[1, 2\]"),
        (torch.tensor([0, 1], dtype=torch.int32), (2, 2), r"ids must be int64, not torch\.int32"),
        (torch.tensor([0, 3]), (2, 2), r"ids must lie in 0\.\.2; found 3"),
        (torch.tensor([0, -1]), (2, 2), r"ids must lie in 0\.\.2; found -1"),
        (torch.tensor([True, False]), (2, 2), r"ids must be int64, not torch\.bool"),
    ],
)
def test_what_does_not_fit_is_not_written(ids: torch.Tensor, shape: tuple[int, int], said: str, twin: bool) -> None:
    table, written = torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)
    with plain() if twin else nullcontext(), pytest.raises(CvgnnError, match=said):
        write_rows(table, ids, torch.ones(shape), written, 1)
    assert not table.any()
    assert not written.any()
