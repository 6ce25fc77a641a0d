"""Threads: Python threads share the rows of a training step, and each runs torch on one thread.

Waking a sleeping thread takes tens of microseconds, as long as a small operation runs (docs/benchmarks/threads.md). So
a thread is woken for a chain of operations on its rows, not for each of them: `run_ranges`. `one_torch_thread` keeps
torch's own threads asleep meanwhile, and `torch_threads` wakes them for single large operations. (Threads that spin
instead of sleeping would wake at once, but slow down everything else on the machine: docs/design.md.)

Kernels and torch's operations release the GIL, so plain Python threads run them in parallel. numba's own threading
layers are not used: its default one aborts the process when two Python threads call it at once.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import SimpleQueue
from typing import TypeAlias

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
    """How many threads the ranges of `run_ranges` get in this thread; None for as many as torch has."""

    size: int | None = None


_team = _Team()
_NO_CHANGE = nullcontext()
Task: TypeAlias = Callable[[], object]
_Done: TypeAlias = SimpleQueue[BaseException | None]


class _Helpers:
    """Threads that wait for tasks. An executor's futures would take longer than waking a thread does."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[tuple[Task, _Done]] = SimpleQueue()
        self.count = 0
        self.lock = threading.Lock()

    def run(self, mine: Task, others: Sequence[Task]) -> None:
        """Run the caller's share, and the others' in helpers; return when all are done, or raise the first error."""
        done: _Done = SimpleQueue()
        with self.lock:
            while self.count < len(others):
                threading.Thread(target=self._serve, daemon=True, name=f"cvgnn-{self.count}").start()
                self.count += 1
        for other in others:
            self.tasks.put((other, done))
        try:
            mine()
        finally:
            errors = [done.get() for _ in others]
        for error in errors:
            if error is not None:
                raise error

    def _serve(self) -> None:
        while True:
            task, done = self.tasks.get()
            error = _error_of(task)
            del task  # it holds the matrices of its step
            done.put(error)
            del done, error


def _error_of(task: Task) -> BaseException | None:
    try:
        task()
    except BaseException as error:
        return error
    return None


_helpers = _Helpers()
# After a fork the parent's threads are gone, and one of them may have held the lock.
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_helpers.__init__)


def num_threads() -> int:
    """The number of threads for wide operations."""
    return _team.size or torch.get_num_threads()


@contextmanager
def _threads(*, team: int | None, torch_size: int) -> Iterator[None]:
    """Set the two numbers of threads; restore them at the end."""
    before = _team.size, torch.get_num_threads()
    _team.size = team
    torch.set_num_threads(torch_size)
    try:
        yield
    finally:
        _team.size = before[0]
        torch.set_num_threads(before[1])


def one_torch_thread() -> AbstractContextManager[None]:
    """Run torch on one thread, except for operations within `torch_threads`."""
    size = torch.get_num_threads()
    return _NO_CHANGE if size == 1 else _threads(team=size, torch_size=1)


def torch_threads(work: int) -> AbstractContextManager[None]:
    """Run torch on all threads if an operation of `work` multiply-adds gains by it."""
    size = _team.size or 1
    return _NO_CHANGE if size == 1 or work < WORTH_SHARING else _threads(team=size, torch_size=size)


def run_rows(kernel: Callable[[int, int], object], num_rows: int, *, width: int, multiple: int = 1) -> None:
    """Call `kernel(first, last)` on ranges that together are `0..num_rows`, in parallel if the work is large enough.

    Args:
        kernel: computes rows `first..last-1`; releases the GIL; ranges must not depend on each other.
        num_rows: the number of rows.
        width: elements of memory that a row reads.
        multiple: ranges start at multiples of this.

    >>> seen = []
    >>> run_rows(lambda first, last: seen.append((first, last)), 10, width=1)
    >>> seen
    [(0, 10)]
    """
    threads = num_threads() if MEMORY_COST * num_rows * width >= WORTH_SHARING else 1
    if threads == 1:
        kernel(0, num_rows)
        return
    share = -(-num_rows // (threads * multiple)) * multiple
    tasks = [
        functools.partial(kernel, first, min(first + share, num_rows)) for first in range(0, max(num_rows, 1), share)
    ]
    _helpers.run(tasks[0], tasks[1:])


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
    return [(first, min(first + share, num_rows)) for first in range(0, max(num_rows, 1), share)]


def run_ranges(task: Callable[[int, int, int], object], ranges: Sequence[tuple[int, int]]) -> None:
    """Call `task(i, first, last)` for the `i`-th of `ranges`, in parallel if there are threads.

    Args:
        task: runs kernels and torch operations without gradients; in parallel, each task runs torch on one thread.
            Ranges must not depend on each other. After an error no further range starts.
        ranges: see `row_ranges`.
    """
    threads = min(num_threads(), len(ranges)) if len(ranges) > 1 else 1
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
            for _ in ranges:  # use up the numbers, so that no thread starts another range
                next(number)
            raise

    def work_elsewhere() -> None:
        # torch keeps both settings per thread. The first one is also what new threads start with; `_threads` below
        # sets that again at the end.
        if torch.get_num_threads() > 1:
            torch.set_num_threads(1)
        with torch.no_grad():
            work()

    with _threads(team=1, torch_size=1):
        _helpers.run(work, [work_elsewhere] * (threads - 1))
