"""Which implementation of an operation runs: the compiled one for CPU tensors, plain torch for every other device.

Each operation of `cvgnn.ops` exists twice and computes the same numbers. The plain one is public torch only, so it
runs on every device, can be differentiated any number of times, and is what the tests compare with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor


class _State(threading.local):
    plain = False


_state = _State()


@contextmanager
def plain() -> Iterator[None]:
    """Run the plain torch implementation of every operation in this thread, on CPU tensors too.

    >>> import torch
    >>> with plain():
    ...     use_compiled(torch.zeros(1))
    False
    """
    before = _state.plain
    _state.plain = True
    try:
        yield
    finally:
        _state.plain = before


def use_compiled(tensor: Tensor) -> bool:
    """Whether the compiled implementation runs for a tensor: on the CPU, and not within `plain`."""
    return tensor.is_cpu and not _state.plain
