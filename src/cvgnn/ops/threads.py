"""Threads: Python threads share the rows of a training step, and each runs torch on one thread.

Waking a sleeping thread takes tens of microseconds, as long as a small operation runs (docs/benchmarks/threads.md). So
a thread is woken for a chain of operations on its rows, not for each of them: `run_ranges`. `one_torch_thread` keeps
torch's own threads asleep meanwhile, and `torch_threads` wakes them for single large operations. (Threads that spin
instead of sleeping would wake at once, but slow down everything else on the machine: docs/design.md.)

Kernels and torch's operations release the GIL, so plain Python threads run them in parallel. numba's own threading
layers are not used: its default one aborts the process when two Python threads call it at once.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import SimpleQueue

import torch

WORTH_SHARING = 20_000_000
"""Multiply-adds from which an operation gains by a second thread: the one threshold of the package."""

MEMORY_COST = 32
"""An element read from memory takes as long as this many multiply-adds of a product."""

WORTH_TWO_ROUNDS = 40 * WORTH_SHARING
"""Multiply-adds from which the overhead of two ranges per thread is negligible."""

MAX_IMBALANCE = 1.25
"""The largest allowed ratio of the largest range to the mean; above it torch balances single operations better."""


class _Team(threading.local):
    """How many threads the ranges of `run_ranges` get in this thread, None for as many as torch has; and what to call
    when they are free."""

    size: int | None = None
    when_free: Callable[[], object] | None = None


_team = _Team()
_NO_CHANGE = nullcontext()
_tasks: SimpleQueue[Callable[[], object]] = SimpleQueue()
_helpers: list[threading.Thread] = []
_starting = threading.Lock()


def _forget_helpers() -> None:
    """Forget the parent's threads after a fork; one of them may have held the lock."""
    global _tasks, _starting
    _tasks, _starting = SimpleQueue(), threading.Lock()
    _helpers.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forget_helpers)


def num_threads() -> int:
    """The number of threads for wide operations."""
    return _team.size or torch.get_num_threads()


@contextmanager
def _threads(*, team: int | None, torch_size: int, when_free: Callable[[], object] | None = None) -> Iterator[None]:
    """Set the two numbers of threads; restore them at the end."""
    before = _team.size, _team.when_free, torch.get_num_threads()
    _team.size, _team.when_free = team, when_free
    torch.set_num_threads(torch_size)
    try:
        yield
    finally:
        _team.size, _team.when_free = before[:2]
        torch.set_num_threads(before[2])


def one_torch_thread(*, when_free: Callable[[], object] | None = None) -> AbstractContextManager[None]:
    """Run torch on one thread, except for operations within `torch_threads`.

    Args:
        when_free: called where an operation says that it is the last with work for several threads. It may
            `ask_for_help`: a helper begins as soon as it finds no more of that operation's ranges. A thread that sleeps
            and is woken later begins 0.1 ms later.
    """
    size = torch.get_num_threads()
    return _NO_CHANGE if size == 1 else _threads(team=size, torch_size=1, when_free=when_free)


def torch_threads(work: int) -> AbstractContextManager[None]:
    """Run torch on all threads if an operation of `work` multiply-adds gains by it."""
    size = _team.size or 1
    return _NO_CHANGE if size == 1 or work < WORTH_SHARING else _threads(team=size, torch_size=size)


def run_rows(
    kernel: Callable[[int, int], object], num_rows: int, *, width: int, multiple: int = 1, rounds: int = 1
) -> None:
    """Call `kernel(first, last)` on ranges that together are `0..num_rows`, in parallel if the work is large enough.

    Args:
        kernel: computes rows `first..last-1`; releases the GIL; ranges must not depend on each other.
        num_rows: the number of rows.
        width: elements of memory that a row reads.
        multiple: ranges start at multiples of this.
        rounds: ranges per thread; several where a thread may come late.

    >>> seen = []
    >>> run_rows(lambda first, last: seen.append((first, last)), 10, width=1)
    >>> seen
    [(0, 10)]
    """
    if MEMORY_COST * num_rows * width < WORTH_SHARING or (threads := num_threads()) == 1:
        kernel(0, num_rows)
        return
    share = max(1, -(-num_rows // (threads * rounds * multiple))) * multiple
    run_ranges(lambda _, first, last: kernel(first, last), _split(num_rows, share))


def row_ranges(num_rows: int, work: int, *, multiple: int = 1) -> list[tuple[int, int]]:
    """Ranges `first..last-1` that together are `0..num_rows`, for `run_ranges`.

    One per thread; a single one if the work is too small or the ranges would be uneven; two per thread if there is
    much work, because some rows take longer than others and the system interrupts threads.

    Args:
        num_rows: the number of rows.
        work: multiply-adds per row.
        multiple: ranges start at multiples of this.

    >>> row_ranges(1000, 10)
    [(0, 1000)]
    """
    total, threads = num_rows * work, num_threads()
    if total < WORTH_SHARING or threads == 1:
        return [(0, num_rows)]
    count = threads if total < WORTH_TWO_ROUNDS else 2 * threads
    share = max(1, -(-num_rows // (count * multiple))) * multiple
    if share * count > MAX_IMBALANCE * num_rows:
        return [(0, num_rows)]
    return _split(num_rows, share)


def _split(num_rows: int, share: int) -> list[tuple[int, int]]:
    return [(first, min(first + share, num_rows)) for first in range(0, max(num_rows, 1), share)]


def run_ranges(
    task: Callable[[int, int, int], object], ranges: Sequence[tuple[int, int]], *, last: bool = False
) -> None:
    """Call `task(i, first, last)` for the `i`-th of `ranges`, in parallel if there are threads.

    Args:
        task: runs kernels and torch operations without gradients; in parallel, each task runs torch on one thread.
            Ranges must not depend on each other. After an error no further range starts.
        ranges: see `row_ranges`.
        last: whether what follows runs on one thread, see `one_torch_thread`.
    """
    threads = min(num_threads(), len(ranges)) if len(ranges) > 1 else 1
    free = _team.when_free if last else None
    if threads == 1:
        if free is not None:
            free()
        for i, (a, b) in enumerate(ranges):
            task(i, a, b)
        return
    number, done, errors = itertools.count(), SimpleQueue[None](), list[BaseException]()

    def work() -> None:
        with torch.no_grad():  # torch keeps this and its number of threads per thread
            while (i := next(number)) < len(ranges):
                try:
                    # This is also what new threads start with; `_threads` below sets it again at the end.
                    if torch.get_num_threads() > 1:
                        torch.set_num_threads(1)
                    if not errors:
                        task(i, *ranges[i])
                except BaseException as error:
                    errors.append(error)
                done.put(None)

    with _threads(team=1, torch_size=1):
        ask_for_help(work, threads - 1)
        if free is not None:
            free()
        work()
        # Ranges are waited for, not helpers: one that wakes up too late finds nothing left to do.
        for _ in ranges:
            done.get()
    if errors:
        raise errors[0]


def ask_for_help(task: Callable[[], object], count: int = 1) -> None:
    """Let so many other threads run the task. (An executor's futures would take longer than waking a thread does.)"""
    with _starting:
        while len(_helpers) < count:
            _helpers.append(threading.Thread(target=_serve, args=(_tasks,), name="cvgnn", daemon=True))
            _helpers[-1].start()
    for _ in range(count):
        _tasks.put(task)


def _serve(tasks: SimpleQueue[Callable[[], object]]) -> None:
    while True:
        tasks.get()()  # no variable: it would keep the task's matrices until the next one
