"""A search: it asks a study for trials, trains their runs on all cores, and gives the study their results.

Each search has a lock file in its folder, and its name is the owner of its trials. The lock dies with the process. A
trial belongs to the folder that has its runs: the next search in that folder continues the trial as soon as the lock is
free; searches in other folders, perhaps on other machines, leave it alone.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from cvgnn.errors import CvgnnError
from cvgnn.lab.search.search_plan import SearchPlan
from cvgnn.lab.search.study import Study, Trial, ended
from cvgnn.lab.sweep.jobs import Job
from cvgnn.lab.sweep.pool import Outcome, run_each
from cvgnn.lab.sweep.result_tables import prepare
from cvgnn.utils.file_lock import lock_file

_FOLDER = "searching"


@final
@dataclass
class Search:
    """The trials of this process.

    Args:
        plan: what is searched.
        study: perhaps shared with searches of other processes and machines.
        owner: the name of this search; see `register`.
        trials: how many the study shall have; those of all searches count, failed ones too.
        on_trial: called with each trial that this search has ended.
    """

    plan: SearchPlan
    study: Study
    owner: str
    trials: int
    on_trial: Callable[[Trial], None] = lambda trial: None
    _open: dict[int, tuple[Trial, list[Job]]] = field(default_factory=dict)  # the trials that have not ended
    _queue: deque[Job] = field(default_factory=deque)
    _requested: set[str] = field(default_factory=set)  # names of the runs in the queue, running or finished
    _results: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the finished runs, by name
    _enough: bool = False

    def take_over(self, out: Path) -> int:
        """Release the trials of searches in this folder that were killed, so that they continue; how many."""
        dead = dead_owners(out)
        left = [trial for trial in self.study.trials() if trial.state == "running" and trial.owner in dead]
        count = sum(map(self.study.release, left))
        for owner in dead:
            unregister(out, owner)
        return count

    def run(self, out: Path, *, workers: int, command: str | None, warn: Callable[[str], None]) -> int | None:
        """Run until the study has all its trials, or until a signal; returns its number, or None.

        A trial that has not ended then is released, and its runs have saved their state.
        """
        stopped = run_each(
            self.next_job,
            out,
            workers=workers,
            command=command,
            on_outcome=self.record,
            warn=warn,
            on_poll=self.study.heartbeat,
        )
        for trial, _ in self._open.values():
            self.study.release(trial)
        return stopped

    def next_job(self) -> Job | None:
        """A run to start now: of an open trial, else of a new one; None if there are enough trials."""
        while True:
            while self._queue:
                job = self._queue.popleft()
                if any(job in jobs for _, jobs in self._open.values()):
                    return job
                self._requested.remove(job.name)  # its trial has failed
            if not self._more():
                return None
            self._ask()

    def record(self, outcome: Outcome) -> None:
        """End the trials that have waited for this run."""
        job, result = outcome.job, outcome.result
        if result is not None:
            self._results[job.name] = {"seed": job.config.seed, "run": job.name, **self.plan.kept(result)}
        else:
            self._requested.remove(job.name)  # another trial may try it again
        for trial, jobs in list(self._open.values()):
            if job in jobs and result is None:
                self._fail(trial, f"seed {job.config.seed}: {outcome.reason}")
            else:
                self._complete(trial, jobs)

    def _more(self) -> bool:
        """Whether the study needs another trial; once it does not, it never will."""
        if not self._enough:
            trials = self.study.trials()
            running = [trial for trial in trials if trial.state == "running" and trial.owner is not None]
            self._enough = len(ended(trials)) + len(running) >= self.trials
        return not self._enough

    def _ask(self) -> None:
        trial = self.study.ask(self.owner)
        try:
            jobs = self.plan.jobs(trial)
        except CvgnnError as error:  # values that do not go together
            self._fail(trial, str(error))
            return
        self._open[trial.number] = (trial, jobs)
        new = [job for job in jobs if job.name not in self._requested]  # equal settings share their runs
        self._queue.extend(new)
        self._requested.update(job.name for job in new)
        self._complete(trial, jobs)

    def _complete(self, trial: Trial, jobs: list[Job]) -> None:
        if all(job.name in self._results for job in jobs):
            del self._open[trial.number]
            results = tuple(self._results[job.name] for job in jobs)
            self.study.complete(trial.number, results)
            self.on_trial(replace(trial, state="complete", results=results))

    def _fail(self, trial: Trial, reason: str) -> None:
        self._open.pop(trial.number, None)
        self.study.fail(trial.number, reason)
        self.on_trial(replace(trial, state="failed", reason=reason))


@contextmanager
def register(out: Path) -> Iterator[str]:
    """A new name for this process, and its lock file.

    The file stays if the process is killed or fails, so that the next search knows whose trials it continues.
    """
    name = secrets.token_hex(8)
    prepare(out, _FOLDER)
    with lock_file(out / _FOLDER / name, wait=False):
        yield name
        unregister(out, name)


def dead_owners(out: Path) -> set[str]:
    """The searches in this folder that were killed: no process holds their locks."""
    return {file.name for file in (out / _FOLDER).glob("*") if _is_free(file)}


def unregister(out: Path, name: str) -> None:
    """Remove the lock file of a search that has ended."""
    with contextlib.suppress(OSError):
        (out / _FOLDER / name).unlink()


def _is_free(file: Path) -> bool:
    with lock_file(file, wait=False) as free:
        return free
