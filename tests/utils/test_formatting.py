"""Sizes as text."""

from __future__ import annotations

import re

import pytest

from cvgnn.utils.formatting import format_bytes


@pytest.mark.parametrize("gib", [0.0, 1e-6, 0.004, 0.5, 3.0, 9.99, 10.0, 12.3, 1234.5])
def test_formatted(gib: float) -> None:
    number, unit = format_bytes(int(gib * 2**30)).split(" ")
    assert re.fullmatch(r"[0-9]+(\.[0-9]+)?", number)
    sizes = {"GiB": 1.0, "MiB": 2**-10, "KiB": 2**-20, "bytes": 1 / 2**30}
    assert float(number) * sizes[unit] == pytest.approx(gib, rel=0.06)
