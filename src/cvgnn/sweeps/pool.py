"""Many runs on all cores: one process each, every run in its own folder, finished once and for all."""

from __future__ import annotations

import multiprocessing
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
from cvgnn.sweeps.worker import FAILED, FAILURE, IN_USE, work

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
    command: str | None = None,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
    say: Callable[[str], None] = lambda sentence: None,
) -> list[Outcome]:
    """Finish every job that is not finished yet; results do not depend on the number of workers.

    A run that failed is listed with its reason and does not stop the others; it is tried again by the next call.
    SIGINT and SIGTERM let the runs save their state and end with `Stopped`; a second one ends at once.

    Args:
        jobs: with different names.
        out: folder; a job's files are in `out/runs/NAME`.
        workers: processes at a time.
        command: that asked for the jobs; each run that is begun now keeps it for the record.
        on_outcome: told of each job as soon as it has ended, those of earlier calls first.
        say: told of processes that were killed.

    Returns:
        An outcome for each job, in the order of `jobs`.
    """
    require_integer("workers", workers, at_least=1)
    ended: dict[str, Outcome] = {}

    def note(outcome: Outcome) -> None:
        ended[outcome.job.name] = outcome
        on_outcome(outcome)

    waiting: deque[Job] = deque()
    for job in jobs:
        result = _result_of(run_folder(out, job))
        if result is None:
            waiting.append(job)
        else:
            note(Outcome(job, "before", result, None))
    stopped = run_each(
        lambda: waiting.popleft() if waiting else None,
        out,
        workers=workers,
        command=command,
        on_outcome=note,
        say=say,
    )
    if stopped is not None:
        rest = len(jobs) - len(ended)
        raise Stopped(stopped, f"stopped with {rest} of {len(jobs)} runs to go; the same command goes on")
    return [ended[job.name] for job in jobs]


def run_each(
    next_job: Callable[[], Job | None],
    out: Path,
    *,
    workers: int,
    command: str | None,
    on_outcome: Callable[[Outcome], None],
    say: Callable[[str], None],
    meanwhile: Callable[[], None] = lambda: None,
) -> int | None:
    """Run jobs as they are handed out, until there is none and none is running.

    A run whose process was killed is begun again where its last checkpoint is, three times at most; one that another
    process is at is waited for. A signal to stop lets the runs save their state.

    Args:
        next_job: asked whenever a process is free; None if there is nothing to run now.
        out, workers, command, on_outcome, say: see `run_all`.
        meanwhile: called about twice a second.

    Returns:
        The number of the signal that stopped it, or None.
    """
    context = _context()
    running: dict[BaseProcess, tuple[Job, int]] = {}
    again: deque[tuple[Job, int]] = deque()
    with stop_requests(say) as stop:
        try:
            while stop.signal_number is None:
                while len(running) < workers and stop.signal_number is None:
                    fresh = next_job()
                    if fresh is None and not again:
                        break
                    job, attempt = again.popleft() if fresh is None else (fresh, 1)
                    folder = run_folder(out, job)
                    result = _result_of(folder)
                    if result is not None:
                        on_outcome(Outcome(job, "before", result, None))
                        continue
                    target = (job.to_json(), str(folder), command)
                    process = context.Process(target=work, args=target, daemon=True)
                    process.start()
                    running[process] = (job, attempt)
                if not running:
                    break
                wait([process.sentinel for process in running], timeout=_LOOK_SECONDS)
                meanwhile()
                for process in [p for p in running if not p.is_alive()]:
                    job, attempt = running.pop(process)
                    outcome = _outcome(job, run_folder(out, job), process.exitcode or 0, attempt)
                    if outcome is not None:
                        on_outcome(outcome)
                    elif process.exitcode == IN_USE:
                        say(f"{job.label}: another process is at this run; waiting for it")
                        again.append((job, attempt))
                    else:
                        say(f"{job.label}: its process {_how(process.exitcode or 0)}; it is begun again")
                        again.append((job, attempt + 1))
        finally:
            _end(list(running))
    return stop.signal_number


def _outcome(job: Job, folder: Path, exit_code: int, attempt: int) -> Outcome | None:
    """What became of a process; None if its run should be tried again."""
    result = _result_of(folder)
    if result is not None:
        return Outcome(job, "done", result, None)
    if exit_code == FAILED:
        return Outcome(job, "failed", None, str(read_object(folder / FAILURE).get("reason")))
    if attempt < _TRIES or exit_code == IN_USE:
        return None
    reason = f"its process {_how(exit_code)} in each of {_TRIES} tries; see {folder / 'log.txt'}"
    return Outcome(job, "failed", None, reason)


def _how(exit_code: int) -> str:
    """How a process ended that should not have, in words."""
    return f"was killed ({signal.Signals(-exit_code).name})" if exit_code < 0 else f"ended with exit code {exit_code}"


def _result_of(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; a damaged one, or one that lacks what a run has found, is not a result."""
    try:
        found = read_object(folder / "result.json") if (folder / "result.json").is_file() else {}
    except CvgnnError:
        return None
    return found if "test_accuracy" in found else None


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
