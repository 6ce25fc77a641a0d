"""Learning-rate schedules: what the rate is multiplied by in an epoch, a pure function of the epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

from cvgnn.errors import unknown_name

Schedule = Literal["constant", "cosine", "linear"]
SCHEDULES: tuple[str, ...] = get_args(Schedule)

Factor = Callable[[int], float]


def make_schedule(name: Schedule, *, epochs: int) -> Factor | None:
    """The factor of each epoch, counted from 1; None where the rate stays as it is.

    Both others begin at 1 and would be 0 in the epoch after the last: `"cosine"` is `(1 + cos(pi s)) / 2`, `"linear"`
    is `1 - s`, with `s = (epoch - 1) / epochs`.

    Args:
        name: `"constant"`, `"cosine"` or `"linear"`.
        epochs: how many there will be.

    >>> factor = make_schedule("linear", epochs=4)
    >>> [factor(epoch) for epoch in (1, 2, 3, 4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    if name not in SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULES)
    if name == "cosine":
        return lambda epoch: 0.5 * (1.0 + math.cos(math.pi * (epoch - 1) / epochs))
    if name == "linear":
        return lambda epoch: 1.0 - (epoch - 1) / epochs
    return None
