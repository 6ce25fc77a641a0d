"""Runs on all cores: one process and one folder for each, and a finished run is never repeated."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

from cvgnn.config import CheckpointPlan
from cvgnn.errors import CvgnnError, Stopped, require_integer
from cvgnn.lab.process_pool import Ended, ProcessPool
from cvgnn.lab.sweep.jobs import Job
from cvgnn.training.graph_source import load_source
from cvgnn.training.run import train
from cvgnn.training.run_folder import RunFolder, read_object
from cvgnn.training.tasks import METRICS
from cvgnn.training.trainer_builder import check
from cvgnn.utils import atomic_files
from cvgnn.utils.file_lock import FolderInUse
from cvgnn.utils.stop_signals import stop_requests

_ATTEMPTS = 3
_POLL_SECONDS = 0.5
_LOCK_SECONDS = 30.0
_FAILURE = "failure.json"

Status = Literal["done", "failed", "stopped", "in use"]


@final
@dataclass(frozen=True)
class Outcome:
    """The end of a job.

    Args:
        job: which one.
        state: `"done"` now, `"before"`: done by an earlier sweep, `"failed"`.
        result: the content of `result.json`, or None.
        reason: of the failure, or None.
    """

    job: Job
    state: Literal["done", "before", "failed"]
    result: dict[str, Any] | None
    reason: str | None


def run_all(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int,
    command: str | None = None,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
    warn: Callable[[str], None] = lambda message: None,
) -> list[Outcome]:
    """Finish every job that is not finished yet; results do not depend on the number of workers.

    A failed run is listed with its reason and does not stop the others; the next call tries it again. After SIGINT or
    SIGTERM the runs save their state and `Stopped` is raised; a second signal ends the program at once.

    Args:
        jobs: with different names.
        out: folder; a job's files are in `out/runs/NAME`.
        workers: processes at a time.
        command: the command line, for the record of the runs that start now.
        on_outcome: called with each job that has ended; first with those of earlier calls.
        warn: called with a message when a process was killed.

    Returns:
        An outcome for each job, in the order of `jobs`.
    """
    require_integer("workers", workers, at_least=1)
    ended: dict[str, Outcome] = {}

    def record(outcome: Outcome) -> None:
        ended[outcome.job.name] = outcome
        on_outcome(outcome)

    for job in jobs:
        result = read_result(run_folder(out, job))
        if result is not None:
            record(Outcome(job, "before", result, None))
    rest = iter([job for job in jobs if job.name not in ended])
    stopped = run_each(lambda: next(rest, None), out, workers=workers, command=command, on_outcome=record, warn=warn)
    if stopped is not None:
        left = len(jobs) - len(ended)
        raise Stopped(stopped, f"stopped with {left} of {len(jobs)} runs left; the same command continues")
    return [ended[job.name] for job in jobs]


def run_each(
    next_job: Callable[[], Job | None],
    out: Path,
    *,
    workers: int,
    command: str | None,
    on_outcome: Callable[[Outcome], None],
    warn: Callable[[str], None],
    on_poll: Callable[[], None] = lambda: None,
) -> int | None:
    """Run the jobs that `next_job` returns, until it returns None and no run is left.

    A run whose process was killed starts again from its last checkpoint, at most three times. A run whose folder
    another process has locked is tried again until that process is done.

    Args:
        next_job: called whenever a process is free; None if there is nothing to start now.
        out, workers, command, on_outcome, warn: see `run_all`.
        on_poll: called about twice a second.

    Returns:
        The number of the signal that stopped the runs, or None.
    """
    again: deque[tuple[Job, int]] = deque()
    with stop_requests() as stop, ProcessPool[tuple[Job, int]](work) as processes:
        while stop.signal_number is None:
            while len(processes) < workers and stop.signal_number is None:
                fresh = next_job()
                if fresh is None and not again:
                    break
                job, attempt = again.popleft() if fresh is None else (fresh, 1)
                folder = run_folder(out, job)
                result = read_result(folder)
                if result is None:
                    processes.start((job, attempt), job, folder, command)
                else:
                    on_outcome(Outcome(job, "before", result, None))
            if not len(processes):
                break
            for (job, attempt), end in processes.wait(_POLL_SECONDS):
                outcome = outcome_of(job, run_folder(out, job), end, attempt)
                if outcome is not None:
                    on_outcome(outcome)
                elif end.value == "in use":
                    warn(f"{job.label}: another process has this run; waiting for it")
                    again.append((job, attempt))
                else:
                    warn(f"{job.label}: its process {_describe(end)}; starting it again")
                    again.append((job, attempt + 1))
            on_poll()
    return stop.signal_number


def run_folder(out: Path, job: Job) -> Path:
    """The folder of a job's files."""
    return out / "runs" / job.name


def outcome_of(job: Job, folder: Path, end: Ended, attempt: int) -> Outcome | None:
    """The outcome of a job whose process has ended; None if the job should be tried again."""
    result = read_result(folder)
    if result is not None:
        return Outcome(job, "done", result, None)
    if end.value == "failed":
        return Outcome(job, "failed", None, str(read_object(folder / _FAILURE).get("reason")))
    if attempt < _ATTEMPTS or end.value == "in use":
        return None
    reason = f"its process {_describe(end)} in each of {_ATTEMPTS} attempts; see {folder / 'log.txt'}"
    return Outcome(job, "failed", None, reason)


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None if there is none, or if it is damaged or incomplete."""
    try:
        result = read_object(folder / "result.json")
    except CvgnnError:
        return None
    metric = metric_of(result)
    return result if metric in METRICS and f"test_{metric}" in result else None


def metric_of(result: dict[str, Any]) -> str:
    """The metric that runs are compared by: it selected the best epoch. Old results have accuracies only."""
    return str(result.get("metric", "accuracy"))


def _describe(end: Ended) -> str:
    code = end.exit_code
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"


def work(job: Job, folder: Path, command: str | None) -> Status:
    """Train a job in its folder, from its last checkpoint if there is one.

    Args:
        job: what to train.
        folder: of the run; what the run prints goes to its `log.txt`, the reason of a failure to `failure.json`.
        command: the command line that asked for the run, for the record.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Open until the process ends: the traceback of an unexpected error is printed after this function.
    sys.stdout = sys.stderr = (folder / "log.txt").open("a", encoding="utf-8", buffering=1)
    return train_job(job, folder, command)


def train_job(job: Job, path: Path, command: str | None) -> Status:
    """Train a job; a `CvgnnError` is written to `failure.json`."""
    try:
        graph = load_source(job.source, task=job.config.task)
        check(graph, job.config, memory=True)
        folder = RunFolder(path, resume=True)
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                plan = CheckpointPlan(checkpoint_minutes=2.0)
                train(graph, job.config, folder=folder, source=job.source, plan=plan, command=command)
                (path / _FAILURE).unlink(missing_ok=True)
                return "done"
            except FolderInUse:  # the process of a sweep that was just killed may still be saving its state
                if time.monotonic() > deadline:
                    return "in use"
                time.sleep(0.2)
    except Stopped:
        return "stopped"
    except CvgnnError as error:
        atomic_files.write_file(path / _FAILURE, (json.dumps({"reason": str(error)}) + "\n").encode())
        return "failed"
