"""Threads: a training step's rows are shared between Python threads, each of which runs torch on one thread.

Waking a sleeping thread takes tens of microseconds, as long as a small operation runs (docs/benchmarks/threads.md). So
a thread is woken for a chain of operations on its rows, not for each of them: `run_ranges`. `one_torch_thread` keeps
torch's own threads asleep meanwhile, and `torch_threads` wakes them for single operations that are worth it. (Threads
that spin instead of sleeping would be woken at once, and slow down everything else on the machine: docs/design.md.)

Kernels and torch's operations release the GIL, so plain Python threads run them side by side. numba's own threading
layers are not used: the one that comes with it aborts the process when two Python threads call it at once.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

WORTH_SHARING = 20_000_000
"""Multiply-adds from which an operation gains by a second thread."""

MEMORY_COST = 32
"""An element that comes from memory takes as long as so many multiply-adds of a product."""

WORTH_TWO_ROUNDS = 40 * WORTH_SHARING
"""Multiply-adds from which two parts for each thread cost nothing that counts."""

MAX_IMBALANCE = 1.25
"""How much larger than their mean the largest part may be; else torch shares operations better, one by one."""

_AS_IT_IS = nullcontext()
_team = threading.local()
_pools: dict[int, ThreadPoolExecutor] = {}
_making = threading.Lock()


def _begin_anew() -> None:
    """A child has no threads but its own, and another may have held the lock."""
    global _making
    _pools.clear()
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_begin_anew)


def num_threads() -> int:
    """How many threads wide operations get."""
    size: int | None = getattr(_team, "size", None)
    return size or torch.get_num_threads()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run torch on one thread, but for operations within `torch_threads`; then on as many as before."""
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


def torch_threads(work: int) -> AbstractContextManager[None]:
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
    return MEMORY_COST * num_rows * width >= WORTH_SHARING


def run_rows(kernel: Callable[[int, int], object], num_rows: int, *, width: int, multiple: int = 1) -> None:
    """Call `kernel(first, last)` on ranges that together are `0..num_rows`, at the same time where that pays.

    Args:
        kernel: computes rows `first..last-1`; releases the GIL; ranges must not depend on each other.
        num_rows: how many rows there are.
        width: elements in a row, to tell what pays.
        multiple: ranges begin at multiples of this.

    >>> seen = []
    >>> run_rows(lambda first, last: seen.append((first, last)), 10, width=1)
    >>> seen
    [(0, 10)]
    """
    threads = num_threads() if worth_sharing(num_rows, width) else 1
    if threads == 1:
        kernel(0, num_rows)
        return
    pool = _pool(threads)
    share = -(-num_rows // (threads * multiple)) * multiple
    others = [pool.submit(kernel, first, min(first + share, num_rows)) for first in range(share, num_rows, share)]
    _together(lambda: kernel(0, min(share, num_rows)), others)


def row_ranges(num_rows: int, work: int, *, multiple: int = 1) -> list[tuple[int, int]]:
    """Ranges `first..last-1` that together are `0..num_rows`, for `run_ranges`.

    One for each thread, or one in all where sharing does not pay or would be uneven; two for each where there is much
    to do, because some rows take longer than others, and some threads are disturbed.

    Args:
        num_rows: how many rows there are.
        work: multiply-adds for a row.
        multiple: ranges begin at multiples of this.

    >>> row_ranges(1000, 10)
    [(0, 1000)]
    """
    total = num_rows * work
    count = 1 if total < WORTH_SHARING or num_threads() == 1 else num_threads() * (1 if total < WORTH_TWO_ROUNDS else 2)
    share = max(1, -(-num_rows // (count * multiple))) * multiple
    if share * count > MAX_IMBALANCE * num_rows:
        return [(0, num_rows)]
    return [(first, min(first + share, num_rows)) for first in range(0, max(num_rows, 1), share)]


def run_ranges(task: Callable[[int, int, int], object], ranges: Sequence[tuple[int, int]]) -> None:
    """Call `task(i, first, last)` for each of `ranges`, the `i`-th, at the same time where there are threads.

    Args:
        task: kernels, and torch's operations, without gradients; with more than one range and thread they run on one
            thread. Ranges must not depend on each other. After an error no further range is begun.
        ranges: see `row_ranges`.
    """
    threads = min(num_threads(), len(ranges))
    if threads == 1:
        for i, (first, last) in enumerate(ranges):
            task(i, first, last)
        return
    number = itertools.count()

    def work() -> None:
        try:
            while (i := next(number)) < len(ranges):
                task(i, *ranges[i])
        except BaseException:
            for _ in ranges:
                next(number)
            raise

    def work_elsewhere() -> None:
        # What torch keeps for each thread. The first line also sets what threads begin with that are started later,
        # but `one_torch_thread` sets that again: it is left after this.
        if torch.get_num_threads() > 1:
            torch.set_num_threads(1)
        with torch.no_grad():
            work()

    with one_torch_thread(), _alone():
        _together(work, [_pool(threads).submit(work_elsewhere) for _ in range(threads - 1)])


def _together(mine: Callable[[], object], others: Sequence[Future[object]]) -> None:
    """Do one's own share; leave when all are done, with the first error of any."""
    try:
        mine()
    finally:
        wait(others)
    for other in others:
        other.result()


def _pool(threads: int) -> ThreadPoolExecutor:
    """One thread less than `threads`: the caller works too."""
    with _making:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads - 1, thread_name_prefix="cvgnn")
        return _pools[threads]


@contextmanager
def _alone() -> Iterator[None]:
    """No thread but this one for what is called meanwhile."""
    size = getattr(_team, "size", None)
    _team.size = 1
    try:
        yield
    finally:
        _team.size = size
