"""Limits of options, shared by the config and the samplers; importing them needs no torch."""

from __future__ import annotations

from typing import Any

from cvgnn.errors import require

MAX_THREADS = 512
MAX_LAYERS = 100
MAX_HIDDEN = 2**20
MAX_BATCH = 2**31 - 1
MAX_EPOCHS = 1_000_000
MAX_DRAWS = 10_000


def check_fan_out(fan_out: Any, scheme: str) -> None:
    """Raise unless `fan_out` is a number of neighbors that the scheme can draw."""
    whole = isinstance(fan_out, int) and not isinstance(fan_out, bool)
    require(
        whole and (fan_out == -1 or 1 <= fan_out < 2**31),
        f"num_neighbors must be whole numbers of at least 1, or -1 for all neighbors, not {fan_out!r}",
    )
    require(
        scheme == "without-replacement" or fan_out <= MAX_DRAWS,
        f"num_neighbors must be at most {MAX_DRAWS} for the scheme {scheme}, which draws that often whatever the "
        f"degree, not {fan_out}; use -1 for all neighbors",
    )
