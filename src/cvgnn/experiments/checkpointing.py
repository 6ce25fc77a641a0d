"""When a run's state is saved, and how a later process takes it up again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

from cvgnn import disk
from cvgnn.checkpoint import Checkpoint, Checkpoints
from cvgnn.config import CheckpointPlan
from cvgnn.errors import CvgnnError, Stopped, require
from cvgnn.experiments.identity import differences
from cvgnn.experiments.machine import processor
from cvgnn.experiments.stop import StopRequest
from cvgnn.training import EpochRecord, Trainer, as_row, from_row, restore_trainer, trainer_state
from cvgnn.training.guard import weights_are_finite


@final
class Checkpointer:
    """Saves a trainer's state as planned, on request, and at the end.

    Args:
        checkpoints: where to.
        identity: of the run; see `cvgnn.experiments.identity`.
        plan: when to.
        epochs: how many the run has; the state after the last is saved in any case.
        stop: a request to stop is met after the step at hand, by saving and raising `Stopped`.
        found: the checkpoint to begin from, or None to begin at the beginning.
        records: its `earlier_records`.
        say: told what could not be saved.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        identity: dict[str, Any],
        *,
        plan: CheckpointPlan,
        epochs: int,
        stop: StopRequest,
        found: Checkpoint | None,
        records: list[EpochRecord],
        say: Callable[[str], None],
    ) -> None:
        self._checkpoints = checkpoints
        self._identity = identity
        self._plan = plan
        self._epochs = epochs
        self._stop = stop
        self._found = found
        self._records = records
        self._say = say
        self._saved_at = time.monotonic()
        self._on_disk: tuple[int, int] | None = None  # iterations and epoch of the last checkpoint

    @property
    def resumes(self) -> bool:
        """Whether there is an earlier state to begin from."""
        return self._found is not None

    def begin(self, trainer: Trainer) -> list[EpochRecord]:
        """Put the trainer where the earlier process left it; returns the records of the epochs that are done."""
        self._saved_at = time.monotonic()
        if self._found is not None:
            try:
                restore_trainer(trainer, self._found.tensors, self._found.body.get("trainer"))
                require(
                    len(self._records) == trainer.position.epoch - 1
                    and all(record.epoch == i for i, record in enumerate(self._records, start=1)),
                    "its records are not those of the epochs that are done",
                )
            except CvgnnError as error:
                raise _useless(self._found, error) from None
            self._found = None  # its file may be removed from now on
            self._on_disk = (trainer.iterations, trainer.position.epoch)
        return self._records

    def after_step(self, trainer: Trainer, records: list[EpochRecord]) -> None:
        """Save if it is time to, or if the run is to stop."""
        minutes = self._plan.checkpoint_minutes
        if self._stop.signal_number is not None:
            self._leave(trainer, records)
        elif minutes and time.monotonic() - self._saved_at >= 60 * minutes:
            self.save(trainer, records)

    def after_epoch(self, trainer: Trainer, records: list[EpochRecord]) -> None:
        """Save if it is time to, at the end, or if the run is to stop."""
        done, every = records[-1].epoch, self._plan.checkpoint_epochs
        last = done == self._epochs
        if last or (every and done % every == 0):
            self.save(trainer, records)
        if self._stop.signal_number is not None and not last:
            self._leave(trainer, records)

    def save(self, trainer: Trainer, records: list[EpochRecord]) -> bool:
        """Save the state; False, and a word about why, if that was not possible. Bad weights are never saved."""
        where = (trainer.iterations, trainer.position.epoch)
        if where == self._on_disk:
            return True
        if not weights_are_finite(trainer.model):
            return False
        tensors, numbers = trainer_state(trainer)
        body = {
            "identity": self._identity,
            "processor": processor(),
            "trainer": numbers,
            "records": [as_row(record) for record in records],
        }
        try:
            self._checkpoints.save(tensors, body)
        except (OSError, ValueError) as error:  # ValueError: a sum that JSON has no number for
            kept = "none before it" if self._checkpoints.last is None else f"the one before, {self._checkpoints.last},"
            reason = disk.reason(error) if isinstance(error, OSError) else str(error)
            self._say(f"the checkpoint after step {trainer.iterations} was not written: {reason}; {kept} is kept")
            return False
        finally:
            self._saved_at = time.monotonic()
        self._on_disk = where
        return True

    def _leave(self, trainer: Trainer, records: list[EpochRecord]) -> None:
        number = self._stop.signal_number
        assert number is not None
        saved = self.save(trainer, records)
        p, folder = trainer.position, self._checkpoints.folder.parent
        where = f"epoch {p.epoch}, {p.steps} of its {trainer.loader.steps_per_epoch} steps done"
        state = "" if saved else ", its last steps not saved"
        raise Stopped(number, f"stopped in {where}{state}; go on with: cvgnn train --resume {folder}")


def earlier_records(found: Checkpoint | None) -> list[EpochRecord]:
    """The records of the epochs that were done when a checkpoint was saved; none without one."""
    if found is None:
        return []
    try:
        rows = found.body.get("records")
        require(isinstance(rows, list), "it has no list of records")
        return [from_row(row) for row in rows or []]
    except CvgnnError as error:
        raise _useless(found, error) from None


def _useless(found: Checkpoint, error: CvgnnError) -> CvgnnError:
    return CvgnnError(f"the checkpoint {found.path} does not hold a run's state: {error}")


def matching(found: Checkpoint | None, identity: dict[str, Any], *, say: Callable[[str], None]) -> None:
    """Refuse to go on from a checkpoint of another run, with what differs."""
    if found is None:
        return
    then = found.body.get("identity")
    if not isinstance(then, dict):
        raise CvgnnError(f"the checkpoint {found.path} does not say which run it belongs to")
    changes = differences(then, identity)
    if changes:
        raise CvgnnError(
            f"cannot go on from {found.path}: {'; '.join(changes)}. Use what was used then, or start a new run in "
            "another folder (epochs alone may grow)"
        )
    machine = found.body.get("processor")
    if machine != processor():
        say(f"this run was begun on another processor ({str(machine)[:80]}): results may differ in the last bits")
