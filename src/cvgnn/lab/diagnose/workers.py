"""Independent measurements (one per seed, for example) in several processes; the numbers do not depend on how many."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from cvgnn.errors import require, require_integer
from cvgnn.lab.process_pool import ProcessPool
from cvgnn.training.machine import thread_count
from cvgnn.utils.progress import ProgressCallback, no_progress

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

_POLL_SECONDS = 60.0


def measure_all(
    measure: Callable[[Any, JobT], ResultT],
    shared: Any,
    jobs: Sequence[JobT],
    *,
    workers: int = 1,
    progress: ProgressCallback = no_progress,
    activity: str = "measuring",
    cost: Callable[[JobT], float] = lambda job: 1.0,
) -> list[ResultT]:
    """`[measure(shared, job) for job in jobs]`, each on one thread.

    Args:
        measure: a function of a module, so that another process can import it; its result must hold no tensors.
        shared: what all jobs need, such as the graph.
        jobs: what distinguishes them.
        workers: processes at a time; 1 works in this one.
        progress: called after every job.
        activity: for `progress`.
        cost: how long a job takes compared with the others; the longest start first.
    """
    require_integer("workers", workers, at_least=1)
    results: dict[int, ResultT] = {}
    total, done = sum(map(cost, jobs)), 0.0
    progress(activity, 0.0)
    order = sorted(range(len(jobs)), key=lambda i: -cost(jobs[i]))
    here = ((i, measure(shared, jobs[i])) for i in order)
    with thread_count(1):
        for i, result in here if workers == 1 else _in_processes(measure, shared, jobs, order, workers):
            results[i] = result
            done += cost(jobs[i])
            progress(activity, done / total)
    return [results[i] for i in range(len(jobs))]


def _in_processes(
    measure: Callable[[Any, JobT], ResultT], shared: Any, jobs: Sequence[JobT], order: Sequence[int], workers: int
) -> Iterator[tuple[int, ResultT]]:
    # As bytes: torch would hand over tensors in shared memory, which containers have little of.
    content = pickle.dumps((measure, shared))
    rest = iter(order)
    with ProcessPool[int](_run_job, stop_seconds=1.0) as pool:
        while True:
            while len(pool) < workers and (i := next(rest, None)) is not None:
                pool.start(i, content, jobs[i])
            if not len(pool):
                return
            for i, end in pool.wait(_POLL_SECONDS):
                if isinstance(end.value, Exception):
                    raise end.value
                require(end.exit_code == 0, "a process was killed, perhaps for lack of memory; try --workers 1")
                yield i, end.value[0]


def _run_job(content: bytes, job: Any) -> Any:
    """The result in a tuple, or the exception that the measurement raised."""
    measure, shared = pickle.loads(content)  # from the process that started this one
    with thread_count(1):
        try:
            return (measure(shared, job),)
        except Exception as error:
            return error
