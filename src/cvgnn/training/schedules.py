"""Learning-rate schedules: a factor of the learning rate, as a pure function of the epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

from cvgnn.errors import require_known

Schedule = Literal["constant", "cosine", "linear"]
SCHEDULES: tuple[str, ...] = get_args(Schedule)

Factor = Callable[[int], float]


def make_schedule(name: Schedule, *, epochs: int) -> Factor | None:
    """The factor of each epoch, counted from 1; None for `"constant"`.

    `"cosine"` is `(1 + cos(pi s)) / 2` and `"linear"` is `1 - s`, with `s = (epoch - 1) / epochs`: both start at 1 and
    would be 0 in the epoch after the last.

    Args:
        name: `"constant"`, `"cosine"` or `"linear"`.
        epochs: the total.

    >>> factor = make_schedule("linear", epochs=4)
    >>> [factor(epoch) for epoch in (1, 2, 3, 4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    require_known("schedule", name, SCHEDULES)
    # Over all epochs and not over all that are left: a resumed run continues on the same curve.
    if name == "cosine":
        return lambda epoch: 0.5 * (1.0 + math.cos(math.pi * (epoch - 1) / epochs))
    if name == "linear":
        return lambda epoch: 1.0 - (epoch - 1) / epochs
    return None
