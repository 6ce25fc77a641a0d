"""Independent measurements (one for each seed, say) in several processes; the numbers do not depend on how many."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

from cvgnn.errors import CvgnnError, require_integer
from cvgnn.experiments.machine import thread_count

Job = TypeVar("Job")
Result = TypeVar("Result")

Tell = Callable[[str, float], None]
"""Told what is being done, and which share of it (0..1) is."""


def silent(what: str, share: float) -> None:
    """A `Tell` that says nothing."""


def measure_all(
    measure: Callable[[Any, Job], Result],
    shared: Any,
    jobs: Sequence[Job],
    *,
    workers: int = 1,
    tell: Tell = silent,
    what: str = "measuring",
    cost: Callable[[Job], float] = lambda job: 1.0,
) -> list[Result]:
    """`[measure(shared, job) for job in jobs]`, each on one thread.

    Args:
        measure: a function of a module, so that another process finds it; its result must hold no tensors.
        shared: what all jobs need, such as the graph.
        jobs: what tells them apart.
        workers: processes at a time; 1 works in this one.
        tell: told of progress.
        what: in words, for `tell`.
        cost: how long a job takes compared with the others; the longest begin first.
    """
    require_integer("workers", workers, at_least=1)
    results: list[Result | None] = [None] * len(jobs)
    total, done = sum(map(cost, jobs)), 0.0
    tell(what, 0.0)
    order = sorted(range(len(jobs)), key=lambda i: -cost(jobs[i]))
    for i, result in (
        _here(measure, shared, jobs, order) if workers == 1 else _there(measure, shared, jobs, order, workers)
    ):
        results[i] = result
        done += cost(jobs[i])
        tell(what, done / total)
    return results  # type: ignore[return-value]


def _here(
    measure: Callable[[Any, Job], Result], shared: Any, jobs: Sequence[Job], order: Sequence[int]
) -> Iterator[tuple[int, Result]]:
    for i in order:
        with thread_count(1):
            result = measure(shared, jobs[i])
        yield i, result


def _there(
    measure: Callable[[Any, Job], Result], shared: Any, jobs: Sequence[Job], order: Sequence[int], workers: int
) -> Iterator[tuple[int, Result]]:
    # As bytes: torch would hand over tensors in shared memory, which containers have little of.
    content = pickle.dumps((measure, shared))
    context = multiprocessing.get_context("spawn")
    ended, held = context.Pipe(duplex=False)  # closed when this process closes it, or ends in whatever way
    with ended, held, ProcessPoolExecutor(
        min(workers, len(jobs)), mp_context=context, initializer=_end_with, initargs=(ended,)
    ) as pool:  # fmt: skip
        try:
            with _interrupts_wait():
                running = {pool.submit(_in_process, content, jobs[i]): i for i in order}
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            raise CvgnnError("a process was ended, perhaps for lack of memory; try --workers 1") from None
        except BaseException:
            held.close()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C is heard afterwards; processes that are started meanwhile never hear it, not even before `_end_with`."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(ended: Connection) -> None:
    """Leave Ctrl-C, which goes to the whole group, to the process that started this one, and end when it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        ended.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _in_process(content: bytes, job: Any) -> Any:
    measure, shared = pickle.loads(content)  # from the process that started this one
    torch.set_num_threads(1)
    return measure(shared, job)
