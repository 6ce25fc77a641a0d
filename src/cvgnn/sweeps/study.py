"""The trials of a search as Optuna keeps and chooses them, in a journal file or in any storage that it knows.

Only this file knows Optuna, which is imported when a study is opened.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, final

from cvgnn.errors import CvgnnError, require
from cvgnn.experiments.identity import differences
from cvgnn.graph.convert import optional
from cvgnn.rng import Purpose, derive
from cvgnn.sweeps.space import Choices, Space
from cvgnn.sweeps.summary import KEYS, mean_of
from cvgnn.sweeps.trials import State, Trial

if TYPE_CHECKING:
    import optuna

T = TypeVar("T")

_BEAT_SECONDS, _DEAD_SECONDS = 60, 300
_SQLITE_WAIT_SECONDS = 60
_ATTEMPTS, _ATTEMPT_SECONDS = 10, 0.5
_MADE_BY_OTHERS = ("already exists", "duplicate", "unique constraint")
_LONGEST_REASON = 1000
_SETTING, _CODE, _OWNER, _RESULTS, _REASON, _CONTINUES = "setting", "code", "owner", "results", "reason", "continues"


def require_optuna() -> None:
    """Refuse, with what to do, where Optuna is missing."""
    optional("optuna", extra="search", purpose="cvgnn search")


def shown_storage(storage: str) -> str:
    """A storage as it may be shown: without user, password and options.

    >>> shown_storage("postgresql://me:secret@host/db?sslmode=require"), shown_storage("runs/journal.log")
    ('postgresql://host/db', 'runs/journal.log')
    """
    return re.sub(r"\?.*", "", re.sub(r"://[^/]*@", "://", storage)) if "://" in storage else storage


@contextmanager
def open_study(name: str, storage: str, *, space: Space, sampler_seed: int | None = None) -> Iterator[Study]:
    """A study, begun if there is none of that name.

    Args:
        name: of the study.
        storage: a URL, or the path of a journal file.
        space: what is searched.
        sampler_seed: of the choice of settings; None for another one each time.
    """
    require_optuna()
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with _told(storage), _without_warnings():
            kept = _opened(storage)
            found = optuna.create_study(storage=kept, study_name=name, direction="maximize", load_if_exists=True)
        try:
            yield Study(found, kept, shown=shown_storage(storage), space=space, sampler_seed=sampler_seed)
        finally:
            with contextlib.suppress(Exception):  # what is to be said has been said
                kept.remove_session()
                if isinstance(kept, optuna.storages.RDBStorage):
                    kept.engine.dispose()
    finally:
        optuna.logging.set_verbosity(verbosity)


@final
class Study:
    """Asks for settings to try, and is told what came of them; made by `open_study`."""

    def __init__(
        self,
        study: optuna.Study,
        storage: optuna.storages.BaseStorage,
        *,
        shown: str,
        space: Space,
        sampler_seed: int | None,
    ) -> None:
        import optuna

        self._study = study
        self._beating = storage if isinstance(storage, optuna.storages.RDBStorage) else None
        self._shown = shown
        self._distributions = _distributions(space)
        self._seed = sampler_seed
        self._mine: dict[int, optuna.Trial] = {}
        self._beaten_at = time.monotonic()

    def begin(self, setting: dict[str, Any], code: dict[str, Any], *, say: Callable[[str], None]) -> None:
        """Note what is searched; refuse to mix it with another search, and say if the code has changed.

        Args:
            setting: flat JSON values that are the same for all trials of a study.
            code: versions of what computes.
            say: told of other code.
        """
        where = f"the study {self._study.study_name!r} in {self._shown}"
        with _told(self._shown):
            then = self._study.user_attrs
            if _SETTING not in then:
                require(not self.trials(), f"{where} was not made by cvgnn search; give another --study")
                self._study.set_user_attr(_CODE, code)
                self._study.set_user_attr(_SETTING, setting)
                return
        changes = differences(then[_SETTING], setting)
        require(
            not changes, f"{where} is another search: {'; '.join(changes)}. Use what was used then, or another --study"
        )
        if then.get(_CODE) != code:
            say(f"{where} was begun with other code or versions; its trials are kept as they are")

    def ask(self, owner: str) -> Trial:
        """A setting to try next: one that was interrupted, else a new one.

        Args:
            owner: who asks; see `owners`.
        """
        import optuna

        with _told(self._shown), _without_warnings():
            if self._beating is not None:
                optuna.storages.fail_stale_trials(self._study)
            index = sum(trial.state not in ("interrupted", "waiting") for trial in self.trials())
            self._study.sampler = self._sampler(index)
            trial = self._study.ask(self._distributions)
            trial.set_user_attr(_OWNER, owner)
            self._mine[trial.number] = trial
            self._beat(trial)
        return Trial(number=trial.number, state="running", params=dict(trial.params), owner=owner)

    def complete(self, number: int, results: Sequence[dict[str, Any]]) -> None:
        """A trial's runs are done; its value is their mean validation accuracy."""
        self._end(number, _RESULTS, list(results), mean_of(results, KEYS["validation"]))

    def fail(self, number: int, reason: str) -> None:
        """A trial cannot be finished."""
        self._end(number, _REASON, reason[:_LONGEST_REASON], None)

    def give_back(self, trial: Trial) -> bool:
        """Let whoever asks next go on with a trial that is not finished; False if somebody else has done so."""
        import optuna

        self._mine.pop(trial.number, None)
        with _told(self._shown):
            try:
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            except (ValueError, RuntimeError):
                if self._is_finished(trial.number):
                    return False
                raise
            self._study.enqueue_trial(trial.params, user_attrs={_CONTINUES: trial.number})
        return True

    def trials(self) -> list[Trial]:
        """All trials of the study, whoever asked for them."""
        with _told(self._shown):
            found = self._study.get_trials(deepcopy=False)
        continued = {trial.user_attrs.get(_CONTINUES) for trial in found}
        return [_trial(trial, interrupted=trial.number in continued) for trial in found]

    def beat(self) -> None:
        """Tell other machines, where the storage can, that this process is still at its trials."""
        if time.monotonic() - self._beaten_at > _BEAT_SECONDS:
            self._beaten_at = time.monotonic()
            with _told(self._shown):
                for trial in self._mine.values():
                    self._beat(trial)

    def _beat(self, trial: optuna.Trial) -> None:
        if self._beating is not None:
            self._beating.record_heartbeat(trial._trial_id)

    def _end(self, number: int, name: str, attribute: Any, value: float | None) -> None:
        import optuna

        trial = self._mine.pop(number)
        state = optuna.trial.TrialState.FAIL if value is None else optuna.trial.TrialState.COMPLETE
        with _told(self._shown):
            try:
                trial.set_user_attr(name, attribute)
                self._study.tell(trial, value, state=state)
            except (ValueError, RuntimeError):
                # Away for long, asleep perhaps, so that another machine took the trial over? The runs are kept.
                if not self._is_finished(number):
                    raise

    def _is_finished(self, number: int) -> bool:
        return self._study.get_trials(deepcopy=False)[number].state.is_finished()

    def _sampler(self, index: int) -> optuna.samplers.BaseSampler:
        """Stateless, as all randomness here: a choice depends on the seed, on the trials so far and on their number."""
        import optuna

        seed = None if self._seed is None else derive(self._seed, Purpose.SEARCH, index) % 2**32
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


def _opened(storage: str) -> optuna.storages.BaseStorage:
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend, JournalRedisBackend

    if "://" not in storage:
        backend = JournalFileBackend(storage)
        _mend(storage)
        return JournalStorage(backend)
    if storage.startswith("redis"):
        return JournalStorage(JournalRedisBackend(storage))
    named = "heartbeat_stale_trial_callback" in inspect.signature(RDBStorage).parameters  # since Optuna 4.9
    options: dict[str, Any] = {"heartbeat_stale_trial_callback" if named else "failed_trial_callback": _go_on}
    if storage.startswith("sqlite"):
        options["engine_kwargs"] = {"connect_args": {"timeout": _SQLITE_WAIT_SECONDS}}
    options |= {"heartbeat_interval": _BEAT_SECONDS, "grace_period": _DEAD_SECONDS}
    return _begun_together(lambda: RDBStorage(storage, **options))


def _begun_together(make: Callable[[], T]) -> T:
    """What `make` returns; tried again where another machine makes the tables of the same new database just then."""
    from sqlalchemy.exc import SQLAlchemyError

    left = _ATTEMPTS
    while True:
        left -= 1
        try:
            return make()
        except SQLAlchemyError as error:
            if left == 0 or not any(words in str(error).lower() for words in _MADE_BY_OTHERS):
                raise
            time.sleep(_ATTEMPT_SECONDS)


def _mend(journal: str) -> None:
    """Cut off the half of a line that a full disk may leave at a journal's end; nothing could be appended to it."""
    from optuna.storages.journal import JournalFileSymlinkLock

    with open(journal, "rb+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        if file.read() not in (b"", b"\n"):
            lock = JournalFileSymlinkLock(journal)
            lock.acquire()  # somebody may have been writing it just then
            try:
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            finally:
                lock.release()


def _go_on(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
    """Let somebody go on with the trial of a machine that has not been heard of for long."""
    study.enqueue_trial(trial.params, user_attrs={_CONTINUES: trial.number})


def _distributions(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    made: dict[str, optuna.distributions.BaseDistribution] = {}
    for name, values in space.items():
        if isinstance(values, Choices):
            made[name] = CategoricalDistribution(tuple(values.named))
        elif values.whole:
            made[name] = IntDistribution(int(values.low), int(values.high), log=values.log)
        else:
            made[name] = FloatDistribution(values.low, values.high, log=values.log)
    return made


def _trial(trial: optuna.trial.FrozenTrial, *, interrupted: bool) -> Trial:
    states: dict[str, State] = {"COMPLETE": "complete", "RUNNING": "running", "WAITING": "waiting"}
    state = "interrupted" if interrupted else states.get(trial.state.name, "failed")
    results = trial.user_attrs.get(_RESULTS)
    if state == "complete" and not (isinstance(results, list) and all(isinstance(r, dict) for r in results)):
        state = "failed"  # told by something else than a search
    return Trial(
        number=trial.number,
        state=state,
        params=dict(trial.params),
        results=tuple(results or ()) if state == "complete" else (),
        reason=str(trial.user_attrs.get(_REASON, "unknown")) if state == "failed" else None,
        owner=trial.user_attrs.get(_OWNER),
    )


@contextmanager
def _without_warnings() -> Iterator[None]:
    """What Optuna says of its own experiments is not the user's business."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with Study.optimize")
        yield


@contextmanager
def _told(storage: str) -> Iterator[None]:
    """What goes wrong with a storage, in a sentence; its drivers raise whatever they like."""
    try:
        yield
    except CvgnnError:
        raise
    except Exception as error:
        said = error.strerror if isinstance(error, OSError) else None
        lines = str(said or error).replace(storage, shown_storage(storage)).strip().splitlines()
        what = lines[0][:300].rstrip(".") if lines else type(error).__name__
        if isinstance(error, ImportError) and isinstance(error.__cause__, ImportError):
            what = f"its driver is missing (pip install {error.__cause__.name})"
        raise CvgnnError(
            f"cannot use {shown_storage(storage)} for the study: {what}; check --storage, then the same command goes on"
        ) from None
