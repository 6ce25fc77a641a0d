"""Many runs on all cores: one process each, every run in its own folder, finished once and for all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, final

from cvgnn.errors import CvgnnError, Stopped, require_integer
from cvgnn.experiments.settings import read_object
from cvgnn.experiments.stop import stop_requests
from cvgnn.sweeps.jobs import Job
from cvgnn.sweeps.worker import FAILED, FAILURE, work

_TRIES = 3
_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0


@final
@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Args:
        job: which one.
        state: `"done"` now, `"before"`: done by an earlier sweep, `"failed"`.
        result: what `result.json` holds, or None.
        reason: why it failed, or None.
    """

    job: Job
    state: Literal["done", "before", "failed"]
    result: dict[str, Any] | None
    reason: str | None


def run_folder(out: Path, job: Job) -> Path:
    """Where a job's files are."""
    return out / "runs" / job.name


def run_all(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
    say: Callable[[str], None] = lambda sentence: None,
) -> list[Outcome]:
    """Finish every job that is not finished yet; results do not depend on the number of workers.

    A run that failed is listed with its reason and does not stop the others; it is tried again by the next call. A
    run whose process was killed is begun again where its last checkpoint is, three times at most. SIGINT and SIGTERM
    let the runs save their state and end with `Stopped`; a second one ends at once.

    Args:
        jobs: with different names.
        out: folder; a job's files are in `out/runs/NAME`.
        workers: processes at a time.
        on_outcome: told of each job as soon as it has ended, those of earlier calls first.
        say: told of processes that were killed.

    Returns:
        An outcome for each job, in the order of `jobs`.
    """
    require_integer("workers", workers, at_least=1)
    ended: dict[str, Outcome] = {}
    waiting: deque[tuple[Job, int]] = deque()
    for job in jobs:
        result = _result_of(run_folder(out, job))
        if result is None:
            waiting.append((job, 1))
        else:
            ended[job.name] = Outcome(job, "before", result, None)
            on_outcome(ended[job.name])
    context = _context()
    running: dict[BaseProcess, tuple[Job, int]] = {}
    with stop_requests(say) as stop:
        try:
            while waiting or running:
                while waiting and len(running) < workers and stop.signal_number is None:
                    job, attempt = waiting.popleft()
                    target = (job.to_json(), str(run_folder(out, job)), os.getpid())
                    process = context.Process(target=work, args=target, daemon=True)
                    process.start()
                    running[process] = (job, attempt)
                if stop.signal_number is not None:
                    break
                wait([process.sentinel for process in running], timeout=_LOOK_SECONDS)
                for process in [p for p in running if not p.is_alive()]:
                    job, attempt = running.pop(process)
                    outcome = _outcome(job, run_folder(out, job), process.exitcode or 0, attempt)
                    if outcome is None:
                        say(f"{job.label}: its process was killed (exit code {process.exitcode}); it is begun again")
                        waiting.append((job, attempt + 1))
                    else:
                        ended[job.name] = outcome
                        on_outcome(outcome)
        finally:
            _end(list(running))
    if stop.signal_number is not None:
        rest = len(jobs) - len(ended)
        raise Stopped(stop.signal_number, f"stopped with {rest} of {len(jobs)} runs to go; the same command goes on")
    return [ended[job.name] for job in jobs]


def _outcome(job: Job, folder: Path, exit_code: int, attempt: int) -> Outcome | None:
    """What became of a process; None if it was killed and its run should be tried again."""
    result = _result_of(folder)
    if result is not None:
        return Outcome(job, "done", result, None)
    if exit_code == FAILED:
        return Outcome(job, "failed", None, str(read_object(folder / FAILURE).get("reason")))
    if attempt < _TRIES:
        return None
    name = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
    return Outcome(job, "failed", None, f"its process ended {_TRIES} times with {name}; see {folder / 'log.txt'}")


def _result_of(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; a damaged one is not a result."""
    try:
        return read_object(folder / "result.json") if (folder / "result.json").is_file() else None
    except CvgnnError:
        return None


def _end(processes: list[BaseProcess]) -> None:
    """Ask processes to save their state and stop; those that do not are killed."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _context() -> Any:
    """Processes that begin with everything imported, where the system can fork; fresh ones elsewhere."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cvgnn.sweeps.worker"])
    return context
