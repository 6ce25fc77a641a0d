"""Threads: torch's for wide operations only, and the same number of Python threads for compiled kernels.

Waking a sleeping thread takes tens of microseconds, as long as a small operation runs (docs/benchmarks/threads.md). A
training step is a few wide operations and many small ones, so `mostly_one_thread` runs torch on one thread and `wide`
hands the others to the operations that are worth it. (Threads that spin instead of sleeping would be woken at once,
and slow down everything else on the machine: docs/design.md.)

Kernels release the GIL, so plain Python threads run them side by side. numba's own threading layers are not used: the
one that comes with it aborts the process when two Python threads call it at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

WORTH_SHARING = 20_000_000
"""Multiply-adds from which an operation gains by a second thread."""

COST_OF_MOVING = 32
"""An element that comes from memory takes as long as so many multiply-adds of a product."""

_AS_IT_IS = nullcontext()
_team = threading.local()
_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_pools.clear)  # a child has no threads but its own


def team_size() -> int:
    """How many threads wide operations get."""
    size: int | None = getattr(_team, "size", None)
    return size or torch.get_num_threads()


@contextmanager
def mostly_one_thread() -> Iterator[None]:
    """Run torch on one thread, but for what is `wide`; then on as many as before."""
    size = torch.get_num_threads()
    if size == 1:
        yield
        return
    torch.set_num_threads(1)
    _team.size = size
    try:
        yield
    finally:
        _team.size = None
        torch.set_num_threads(size)


def wide(work: int) -> AbstractContextManager[None]:
    """Run torch on all threads if an operation of `work` multiply-adds is worth it."""
    size = getattr(_team, "size", None)
    return _AS_IT_IS if size is None or work < WORTH_SHARING else _all_threads(size)


@contextmanager
def _all_threads(size: int) -> Iterator[None]:
    torch.set_num_threads(size)
    try:
        yield
    finally:
        torch.set_num_threads(1)


def worth_sharing(num_rows: int, width: int) -> bool:
    """Whether a pass over so many rows of `width` elements gains by a second thread."""
    return COST_OF_MOVING * num_rows * width >= WORTH_SHARING


def over_rows(kernel: Callable[[int, int], object], num_rows: int, *, width: int, multiple: int = 1) -> None:
    """Call `kernel(first, last)` on ranges that together are `0..num_rows`, at the same time where that pays.

    Args:
        kernel: computes rows `first..last-1`; releases the GIL; ranges must not depend on each other.
        num_rows: how many rows there are.
        width: elements in a row, to tell what pays.
        multiple: ranges begin at multiples of this.

    >>> seen = []
    >>> over_rows(lambda first, last: seen.append((first, last)), 10, width=1)
    >>> seen
    [(0, 10)]
    """
    threads = team_size() if worth_sharing(num_rows, width) else 1
    if threads == 1:
        kernel(0, num_rows)
        return
    pool = _pools.get(threads)
    if pool is None:
        pool = _pools[threads] = ThreadPoolExecutor(threads - 1, thread_name_prefix="cvgnn")
    share = -(-num_rows // (threads * multiple)) * multiple
    waiting = [pool.submit(kernel, first, min(first + share, num_rows)) for first in range(share, num_rows, share)]
    try:
        kernel(0, min(share, num_rows))
    finally:
        for other in waiting:
            other.result()
