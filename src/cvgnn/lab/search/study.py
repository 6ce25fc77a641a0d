"""The trials of a search as Optuna stores and chooses them, in a journal file or in any storage that Optuna knows.

Optuna is an optional package.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, final

from cvgnn.errors import CvgnnError, require
from cvgnn.lab.search.search_space import Space
from cvgnn.lab.sweep.summary import SeedResults, best_first
from cvgnn.rng import Purpose, derive
from cvgnn.training.resume import differences
from cvgnn.utils.optional_import import import_optional

with contextlib.suppress(ImportError):  # an optional package: `require_optuna` raises the error
    import optuna

_HEARTBEAT_SECONDS, _DEAD_SECONDS = 60, 300
_SQLITE_WAIT_SECONDS = 60
_ATTEMPTS, _ATTEMPT_SECONDS = 10, 0.5
_MADE_BY_OTHERS = ("already exists", "duplicate", "unique constraint")
_LONGEST_REASON = 1000
_SETTING, _CODE, _OWNER, _CONTINUES = "setting", "code", "owner", "continues"


State = Literal["complete", "pruned", "failed", "running", "waiting", "interrupted"]


@final
@dataclass(frozen=True, kw_only=True)
class Trial(SeedResults):
    """A setting of a study.

    Args:
        number: in the study.
        state: `"interrupted"`: it was stopped or killed, and continues as another trial; `"pruned"`: it was worse than
            others at the same epoch, and was ended.
        params: Optuna's parameters; all of the space's if the trial has started.
        results: for each seed, its run and metrics; empty unless complete.
        reason: of the failure, or None.
        owner: the search that runs or ran it, or None; see `search_loop.register`.
    """

    number: int
    state: State
    params: dict[str, Any]
    results: tuple[dict[str, Any], ...] = ()
    reason: str | None = None
    owner: str | None = None


def ended(trials: Iterable[Trial]) -> list[Trial]:
    """The complete and the failed trials."""
    return [trial for trial in trials if trial.state in ("complete", "failed")]


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """The complete trials by their mean on the validation set, best first; of equal settings, the first."""
    complete = [trial for trial in trials if trial.state == "complete"]
    different = {repr(sorted(trial.params.items())): trial for trial in reversed(complete)}
    return best_first(reversed(different.values()), by="validation")


def require_optuna(purpose: str = "cvgnn search") -> None:
    """Raise an error that says how to install Optuna, if it is missing."""
    import_optional("optuna", extra="search", purpose=purpose)


def hide_credentials(storage: str) -> str:
    """The name of a storage without user, password and options, to be printed.

    >>> hide_credentials("postgresql://me:secret@host/db?sslmode=require"), hide_credentials("runs/journal.log")
    ('postgresql://host/db', 'runs/journal.log')
    """
    return re.sub(r"\?.*", "", re.sub(r"://[^/]*@", "://", storage)) if "://" in storage else storage


@contextmanager
def open_study(
    name: str, storage: str, *, space: Space, sampler_seed: int | None = None, maximize: bool = True
) -> Iterator[Study]:
    """A study; a new one if the storage has none of that name.

    Args:
        name: of the study.
        storage: a URL, or the path of a journal file.
        space: what is searched.
        sampler_seed: of the choice of settings; None for a random one.
        maximize: whether the largest value is the best.
    """
    require_optuna()

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with _storage_errors(storage), _no_warnings():
            opened = _open(storage)
            goal: Literal["maximize", "minimize"] = "maximize" if maximize else "minimize"
            study = optuna.create_study(storage=opened, study_name=name, direction=goal, load_if_exists=True)
        try:
            yield Study(study, opened, hide_credentials(storage), space, sampler_seed, maximize)
        finally:
            with contextlib.suppress(Exception):  # all results are written by now
                opened.remove_session()
                if isinstance(opened, optuna.storages.RDBStorage):
                    opened.engine.dispose()
    finally:
        optuna.logging.set_verbosity(verbosity)


@final
@dataclass
class Study:
    """The trials of a search, which other processes and machines may share; made by `open_study`.

    Args:
        study, storage: Optuna's.
        location: the storage without user and password, for messages.
        space: what is searched.
        sampler_seed: of the choice of settings; None for a random one.
        maximize: whether the largest value is the best.
    """

    study: optuna.Study
    storage: optuna.storages.BaseStorage
    location: str
    space: Space
    sampler_seed: int | None
    maximize: bool
    _own: dict[int, optuna.Trial] = field(default_factory=dict)
    _last_heartbeat: float = field(default_factory=time.monotonic)

    def check(self, setting: dict[str, Any], code: dict[str, Any], *, warn: Callable[[str], None]) -> None:
        """Store the setting of a new study; raise an error if the study has another, and warn if the code has changed.

        Args:
            setting: flat JSON values that are the same for all trials of a study.
            code: hash of the code, and versions.
            warn: called with a message.
        """
        where = f"the study {self.study.study_name!r} in {self.location}"
        with _storage_errors(self.location):
            then = self.study.user_attrs
            if _SETTING not in then:
                require(not self.trials(), f"{where} was not made by cvgnn search; give another --study")
                self.study.set_user_attr(_CODE, code)
                self.study.set_user_attr(_SETTING, setting)
                return
        changes = "; ".join(differences(then[_SETTING], setting))
        require(not changes, f"{where} is another search: {changes}. Use the same options, or another --study")
        same = (self.study.direction.name == "MAXIMIZE") == self.maximize
        require(same, f"{where} was begun for a metric of the other direction; give another --study")
        if then.get(_CODE) != code:
            warn(f"{where} was started with other code or versions; its trials are kept")

    def ask(self, owner: str) -> Trial:
        """The next setting to try: of an interrupted trial, else a new one.

        Args:
            owner: the search that asks; see `search_loop.register`.
        """

        with _storage_errors(self.location), _no_warnings():
            if isinstance(self.storage, optuna.storages.RDBStorage):
                optuna.storages.fail_stale_trials(self.study)
            # Stateless, as all randomness here: a choice depends on the seed, on the trials so far and on their number.
            index = sum(trial.state not in ("interrupted", "waiting") for trial in self.trials())
            seed = None if self.sampler_seed is None else derive(self.sampler_seed, Purpose.SEARCH, index) % 2**32
            self.study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            trial = self.study.ask({**self.space})
            trial.set_user_attr(_OWNER, owner)
            self._own[trial.number] = trial
            self._send_heartbeat(trial)
        return Trial(number=trial.number, state="running", params=dict(trial.params), owner=owner)

    def complete(self, number: int, results: Sequence[dict[str, Any]]) -> None:
        """End a trial whose runs are finished; its value is their mean metric on the validation set."""
        mean = SeedResults(results).mean("val")
        self._tell(self._own.pop(number), "FAIL" if mean is None else "COMPLETE", mean, results=list(results))

    def fail(self, number: int, reason: str) -> None:
        """End a trial that cannot be finished."""
        self._tell(self._own.pop(number), "FAIL", reason=reason[:_LONGEST_REASON])

    def enqueue(self, params: dict[str, Any]) -> None:
        """Let the next trial try these parameters."""
        with _storage_errors(self.location):
            self.study.enqueue_trial(params)

    def prune_by_median(self, *, first_trials: int, first_epochs: int) -> None:
        """From now on a trial falls behind if it is worse than the median of the others at the same epoch.

        Args:
            first_trials, first_epochs: that never fall behind.
        """
        self.study.pruner = optuna.pruners.MedianPruner(n_startup_trials=first_trials, n_warmup_steps=first_epochs)

    def falls_behind(self, number: int, value: float, epoch: int) -> bool:
        """Report a trial's best value so far; whether it is not worth to go on."""
        trial = self._own[number]
        with _storage_errors(self.location):
            trial.report(value, epoch)
            return trial.should_prune()

    def prune(self, number: int) -> None:
        """End a trial that has fallen behind."""
        self._tell(self._own.pop(number), "PRUNED")

    def release(self, trial: Trial) -> bool:
        """Let the next search that asks continue a trial; False if it has ended or another process has released it."""
        own = self._own.pop(trial.number, trial.number)
        released = self._tell(own, "FAIL")
        if released:
            with _storage_errors(self.location):
                _enqueue_again(self.study, trial)
        return released

    def trials(self) -> list[Trial]:
        """All trials of the study, of all searches."""
        with _storage_errors(self.location):
            trials = self.study.get_trials(deepcopy=False)
        continued = {trial.user_attrs.get(_CONTINUES) for trial in trials}
        return [_trial(trial, interrupted=trial.number in continued) for trial in trials]

    def heartbeat(self) -> None:
        """Show other machines, if the storage has heartbeats, that this process is alive; at most once a minute."""
        if time.monotonic() - self._last_heartbeat > _HEARTBEAT_SECONDS:
            self._last_heartbeat = time.monotonic()
            with _storage_errors(self.location):
                for trial in self._own.values():
                    self._send_heartbeat(trial)

    def _send_heartbeat(self, trial: optuna.Trial) -> None:
        # Only databases have heartbeats. In a journal, trials of dead processes are found by `search_loop.dead_owners`.
        if isinstance(self.storage, optuna.storages.RDBStorage):
            self.storage.record_heartbeat(trial._trial_id)

    def _tell(self, trial: optuna.Trial | int, state: str, value: float | None = None, **attributes: Any) -> bool:
        """End a trial; False if it has ended before: after a long pause, such as a laptop's sleep, another machine may
        have taken it over."""
        with _storage_errors(self.location):
            try:
                for name, attribute in attributes.items():
                    assert isinstance(trial, optuna.Trial)
                    trial.set_user_attr(name, attribute)
                self.study.tell(trial, value, state=optuna.trial.TrialState[state])
            except (ValueError, RuntimeError):
                number = trial if isinstance(trial, int) else trial.number
                if not self.study.get_trials(deepcopy=False)[number].state.is_finished():
                    raise
                return False
        return True


def _open(storage: str) -> optuna.storages.BaseStorage:
    from optuna.storages.journal import JournalFileBackend, JournalRedisBackend
    from sqlalchemy.exc import SQLAlchemyError

    storages = optuna.storages
    if "://" not in storage:
        backend = JournalFileBackend(storage)
        _repair(Path(storage))
        return storages.JournalStorage(backend)
    if storage.startswith("redis"):
        return storages.JournalStorage(JournalRedisBackend(storage))
    renamed = "heartbeat_stale_trial_callback" in inspect.signature(storages.RDBStorage).parameters  # since Optuna 4.9
    options: dict[str, Any] = {
        "heartbeat_interval": _HEARTBEAT_SECONDS,
        "grace_period": _DEAD_SECONDS,
        "heartbeat_stale_trial_callback" if renamed else "failed_trial_callback": _enqueue_again,
    }
    if storage.startswith("sqlite"):
        options["engine_kwargs"] = {"connect_args": {"timeout": _SQLITE_WAIT_SECONDS}}
    for _ in range(_ATTEMPTS - 1):
        try:
            return storages.RDBStorage(storage, **options)
        except SQLAlchemyError as error:
            # Another machine may be making the tables of the same new database.
            if not any(text in str(error).lower() for text in _MADE_BY_OTHERS):
                raise
            time.sleep(_ATTEMPT_SECONDS)
    return storages.RDBStorage(storage, **options)


def _repair(journal: Path) -> None:
    """Remove an incomplete line at a journal's end, which a full disk may leave: nothing could be appended to it."""
    from optuna.storages.journal import JournalFileSymlinkLock

    if journal.read_bytes()[-1:] not in (b"", b"\n"):
        lock = JournalFileSymlinkLock(str(journal))
        lock.acquire()  # another process may have been writing the line
        try:
            with journal.open("rb+") as file:
                file.truncate(file.read().rfind(b"\n") + 1)
        finally:
            lock.release()


def _enqueue_again(study: optuna.Study, trial: optuna.trial.FrozenTrial | Trial) -> None:
    study.enqueue_trial(trial.params, user_attrs={_CONTINUES: trial.number})


def _trial(trial: optuna.trial.FrozenTrial, *, interrupted: bool) -> Trial:
    attributes, name = trial.user_attrs, "interrupted" if interrupted else trial.state.name.lower()
    results = attributes.get("results")
    if name == "fail" or (
        name == "complete" and not (isinstance(results, list) and all(isinstance(r, dict) for r in results))
    ):
        name = "failed"  # by cvgnn, or ended by another program
    return Trial(
        number=trial.number,
        state=cast(State, name),
        params=dict(trial.params),
        results=tuple(results) if results and name == "complete" else (),
        reason=str(attributes.get("reason", "unknown")) if name == "failed" else None,
        owner=attributes.get(_OWNER),
    )


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Ignore Optuna's warnings about its experimental features."""

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with Study.optimize")
        yield


@contextmanager
def _storage_errors(storage: str) -> Iterator[None]:
    """Turn errors of a storage, whose drivers have exceptions of their own, into a `CvgnnError`."""
    try:
        yield
    except CvgnnError:
        raise
    except Exception as error:
        message = (error.strerror if isinstance(error, OSError) else None) or str(error)
        lines = message.replace(storage, hide_credentials(storage)).strip().splitlines()
        what = lines[0][:300].rstrip(".") if lines else type(error).__name__
        if isinstance(error, ImportError) and isinstance(error.__cause__, ImportError):
            what = f"its driver is missing (pip install {error.__cause__.name})"
        location = hide_credentials(storage)
        raise CvgnnError(
            f"cannot use {location} for the study: {what}; check --storage, then repeat the command to continue"
        ) from None
