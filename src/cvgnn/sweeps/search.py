"""A search: trials that a study asks for, their runs on all cores, and what the study is told about them."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from cvgnn.errors import CvgnnError
from cvgnn.sweeps.jobs import Job
from cvgnn.sweeps.owners import forget, is_gone
from cvgnn.sweeps.plan import Plan
from cvgnn.sweeps.pool import Outcome, run_each
from cvgnn.sweeps.study import Study
from cvgnn.sweeps.trials import Trial, ended

_KEPT = ("val_accuracy", "test_accuracy", "max_test_accuracy", "best_epoch", "train_seconds")


@final
class Search:
    """Asks a study for trials, hands out their runs, and tells the study how they ended.

    Args:
        plan: what is searched.
        study: shared, perhaps, with searches of other processes and machines.
        owner: the name of this one; see `owners`.
        trials: how many the study is to have; those of all searches count, failed ones too.
        on_trial: told of each trial that this search has ended.
    """

    def __init__(
        self,
        plan: Plan,
        study: Study,
        *,
        owner: str,
        trials: int,
        on_trial: Callable[[Trial], None] = lambda trial: None,
    ) -> None:
        self._plan = plan
        self._study = study
        self._owner = owner
        self._wanted = trials
        self._on_trial = on_trial
        self._queue: deque[Job] = deque()
        self._waiting: dict[str, list[_Progress]] = {}  # for each run that is to come, the trials that need it
        self._enough = False

    def go_on(self, out: Path) -> int:
        """Take up the trials that an earlier search in this folder left behind when it was killed; how many."""
        left = [trial for trial in self._study.trials() if trial.state == "running" and trial.owner is not None]
        gone = {trial.owner for trial in left if is_gone(out, trial.owner or "")}
        count = sum(self._study.give_back(trial) for trial in left if trial.owner in gone)
        for owner in gone:
            forget(out, owner or "")
        return count

    def run(self, out: Path, *, workers: int, command: str | None, say: Callable[[str], None]) -> int | None:
        """Run until the study has all its trials, or until a signal; returns its number, or None.

        A trial that is not finished then is given back to the study, and its runs have saved their state.
        """
        stopped = run_each(
            self.next_job,
            out,
            workers=workers,
            command=command,
            on_outcome=self.note,
            say=say,
            meanwhile=self._study.beat,
        )
        for trial in self._under_way():
            self._study.give_back(trial)
        return stopped

    def next_job(self) -> Job | None:
        """A run to start now: of a trial that is under way, else of a new one; None if there are trials enough."""
        while True:
            while self._queue:
                job = self._queue.popleft()
                if any(not progress.ended for progress in self._waiting[job.name]):
                    return job
                del self._waiting[job.name]  # nobody needs it any more
            if not self._more():
                return None
            self._ask()

    def note(self, outcome: Outcome) -> None:
        """A run has ended; tell the study if its trial has."""
        for progress in self._waiting.pop(outcome.job.name):
            if progress.ended:
                continue
            if outcome.result is None:
                progress.ended = True
                self._fail(progress.trial, f"seed {outcome.job.config.seed}: {outcome.reason}")
                continue
            progress.results[outcome.job.name] = {
                "seed": outcome.job.config.seed,
                "run": outcome.job.name,
                **{key: outcome.result.get(key) for key in _KEPT},
            }
            if len(progress.results) == len(progress.names):
                progress.ended = True
                results = tuple(progress.results[name] for name in progress.names)
                self._study.complete(progress.trial.number, results)
                self._on_trial(dataclasses.replace(progress.trial, state="complete", results=results))

    def _more(self) -> bool:
        """Whether there is a trial to be asked for; once there is none, it stays so."""
        if not self._enough:
            trials = self._study.trials()
            begun = [trial for trial in trials if trial.state == "running" and trial.owner is not None]
            self._enough = len(ended(trials)) + len(begun) >= self._wanted
        return not self._enough

    def _ask(self) -> None:
        trial = self._study.ask(self._owner)
        try:
            jobs = self._plan.jobs(trial)
        except CvgnnError as error:  # values that do not go together
            self._fail(trial, str(error))
            return
        progress = _Progress(trial, tuple(job.name for job in jobs))
        for job in jobs:
            if job.name not in self._waiting:
                self._queue.append(job)
            self._waiting.setdefault(job.name, []).append(progress)

    def _fail(self, trial: Trial, reason: str) -> None:
        self._study.fail(trial.number, reason)
        self._on_trial(dataclasses.replace(trial, state="failed", reason=reason))

    def _under_way(self) -> list[Trial]:
        found = {p.trial.number: p for needing in self._waiting.values() for p in needing}
        return [progress.trial for progress in found.values() if not progress.ended]


@final
@dataclasses.dataclass
class _Progress:
    """How far a trial is: the runs it needs, and what the ended ones found."""

    trial: Trial
    names: tuple[str, ...]
    results: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    ended: bool = False
