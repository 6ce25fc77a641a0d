"""Checkpoints: the files that hold a run's state, and the callback that writes and restores them.

`checkpoints/000007/state.safetensors` holds the tensors, `checkpoint.json` beside it everything else, with the SHA-256
of the tensor file and of itself. A checkpoint folder appears complete or not at all; the last two are kept.

The histories of a partitioned graph are in `shard-0003.safetensors` and so on, each written by the rank that has the
shard. A rank of a resumed run reads those of its own shards, so the number of ranks may change.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cvgnn._version import __version__
from cvgnn.config import CheckpointPlan, GraphSource, TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import CvgnnError, Stopped, error_context, require
from cvgnn.limits import MAX_THREADS
from cvgnn.training.callbacks import Callback
from cvgnn.training.guard import Diverged, weights_are_finite
from cvgnn.training.machine import processor
from cvgnn.training.processes import ONE, Processes
from cvgnn.training.resume import check_same_run, identity, tensor_bytes
from cvgnn.training.run_folder import RunFolder, as_row, from_row
from cvgnn.training.trainer import EpochRecord, Trainer
from cvgnn.training.training_state import restore_trainer, trainer_state
from cvgnn.utils import atomic_files
from cvgnn.utils.checked_json import add_checksum, has_valid_checksum, parse_object, short
from cvgnn.utils.stop_signals import StopRequest

_log = logging.getLogger(__name__)

FORMAT = "cvgnn-checkpoint"
VERSION = 1
BODY, TENSORS = "checkpoint.json", "state.safetensors"
_MAX_BODY = 1 << 29
_MAX_HEADER = 1 << 24
_KEYS = {"format", "version", "cvgnn", "tensors_sha256", "body", "sha256"}
_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class Checkpoint(NamedTuple):
    """A valid checkpoint: its folder, the body of its JSON file, and its tensors, mapped from disk."""

    path: Path
    body: dict[str, Any]
    tensors: Mapping[str, Tensor]


@final
class Checkpoints:
    """The folder with a run's checkpoints. One run at a time may use it.

    Args:
        folder: made by the first `save`.
        processes: of the run. All of them call `save` and `newest`; rank 0 gives a checkpoint its name.
    """

    def __init__(self, folder: Path, processes: Processes = ONE) -> None:
        self.folder, self._processes = folder, processes
        self.last: Path | None = None
        """The newest checkpoint known to be valid: the last that was saved or read."""
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise CvgnnError(f"{folder} is a link or a file; a run keeps its checkpoints in a folder: remove it")

    def save(self, tensors: Mapping[str, Tensor], body: dict[str, Any]) -> Path:
        """Write a checkpoint, then remove all others but the last valid one before it. An `OSError` removes none.

        Args:
            tensors: written without a copy.
            body: JSON values.
        """
        leads, together = self._processes.rank == 0, self._processes.together
        partial = self.folder / together(lambda: self._start() if leads else "")[0]
        files = {_shard_file(s): _of_shard(s, tensors) for s in self._processes.shards}
        in_shards = {name for file in files.values() for name in file}
        files[TENSORS] = {name: tensor for name, tensor in tensors.items() if name not in in_shards}
        if not leads:
            del files[TENSORS]  # weights and optimizer are the same everywhere
        try:
            written = together(lambda: {name: _write(partial / name, content) for name, content in files.items()})
            shards = {name: digest for part in written for name, digest in part.items()}
            target = self.folder / together(lambda: self._commit(partial, shards, body) if leads else "")[0]
        except BaseException:
            if leads:
                shutil.rmtree(partial, ignore_errors=True)
            raise
        before, self.last = self.last, target
        return self._remove_others(before, target) if leads else target

    def _start(self) -> str:
        """Create a folder for a new checkpoint; returns its name."""
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            atomic_files.sync_folder(self.folder.parent)
        for unfinished in self.folder.glob(".*.partial"):  # of a process that was killed
            if _is_ours(unfinished):
                shutil.rmtree(unfinished, ignore_errors=True)
        partial = self.folder / f".{secrets.token_hex(4)}.partial"
        partial.mkdir()
        return partial.name

    def _commit(self, partial: Path, files: dict[str, str], body: dict[str, Any]) -> str:
        """Write the JSON file of a checkpoint whose tensors are written, and give its folder its name."""
        # Never the number of a checkpoint that is there, valid or not: a number once read means one state.
        number = max((int(path.name) for path in self._numbered()), default=0) + 1
        digest = files.pop(TENSORS)
        body = {**body, "shards": files} if files else body
        text = {"format": FORMAT, "version": VERSION, "cvgnn": __version__, "tensors_sha256": digest, "body": body}
        atomic_files.write_new(partial / BODY, add_checksum(text, indent=None))
        # All files and their names are on disk before the rename, which makes the checkpoint valid at once.
        atomic_files.sync_folder(partial)
        atomic_files.rename(partial, self.folder / f"{number:06d}")
        return f"{number:06d}"

    def _remove_others(self, before: Path | None, target: Path) -> Path:
        try:
            atomic_files.sync_folder(self.folder)
        except OSError as error:  # until its name is on disk, a power failure may lose the new one: keep the others
            reason = atomic_files.describe_error(error)
            _log.warning("the checkpoint %s may not survive a power failure yet: %s", target, reason)
            return target
        for path in self._numbered():
            if path not in (before, target) and _is_ours(path):
                self._remove(path)
        return target

    def newest(self) -> Checkpoint | None:
        """The newest valid checkpoint; a damaged one is skipped with a logged warning. None if the folder has none.

        An error if there are checkpoints and none is valid, or if one is of another version or cannot be read: a run
        that started from the beginning would in the end remove them.
        """
        names = self._processes.exchange([path.name for path in self._numbered()])[0]
        numbered = sorted((self.folder / name for name in names), key=lambda path: int(path.name), reverse=True)
        for path in numbered:
            checkpoint, damage = None, ""
            try:
                checkpoint = _read(path, self._processes.shards)
            except CvgnnError:
                raise
            except ValueError as error:
                damage = str(error)
            # Valid is what every process can read.
            damaged = [each for each in self._processes.exchange(damage) if each]
            if damaged:
                _log.warning("the checkpoint %s is damaged and not used: %s", path, damaged[0])
            else:
                self.last = path
                return checkpoint
        require(
            not numbered,
            f"no checkpoint in {self.folder} is valid; restore one from a copy, or start a new run in another folder",
        )
        return None

    def _numbered(self) -> list[Path]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise CvgnnError(f"cannot list {self.folder}: {error.strerror}; check its permissions") from None
        return [self.folder / name for name in names if re.fullmatch("[0-9]{6,15}", name)]

    def _remove(self, path: Path) -> None:
        """Remove a checkpoint; one that cannot be removed stays."""
        # Renamed first: a process that is killed within rmtree must not leave half a checkpoint under a valid name.
        with contextlib.suppress(OSError):
            gone = self.folder / f".{secrets.token_hex(4)}.partial"
            atomic_files.rename(path, gone)
            shutil.rmtree(gone, ignore_errors=True)


def _is_ours(path: Path) -> bool:
    """Whether a folder holds nothing but the files of a checkpoint, so that it may be removed."""
    try:
        return not path.is_symlink() and all(
            name in (BODY, TENSORS) or re.fullmatch(r"shard-\d{4,}\.safetensors", name) for name in os.listdir(path)
        )
    except OSError:
        return False


def _shard_file(shard: int) -> str:
    return f"shard-{shard:04d}.safetensors"


def _of_shard(shard: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name.startswith(f"estimator.shards.{shard}.")}


def _write(path: Path, tensors: Mapping[str, Tensor]) -> str:
    with atomic_files.create(path) as file:
        digest = write_tensors(file, tensors)
        atomic_files.sync(file)
    return digest


def _read(path: Path, shards: Sequence[int] = ()) -> Checkpoint:
    """The checkpoint in a folder, with the histories of some shards.

    `ValueError` if it is damaged, `CvgnnError` if a valid one cannot be used.
    """
    try:
        content = parse_object(atomic_files.read_bytes(path / BODY, _MAX_BODY))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{BODY} is missing") from None
    except OSError as error:
        if error.errno == errno.EINVAL:  # a pipe or a device in its place
            raise ValueError(f"{BODY} cannot be read ({error.strerror})") from None
        raise CvgnnError(f"cannot read {path / BODY}: {error.strerror}; check the disk and its permissions") from None
    except ValueError as error:
        raise ValueError(f"{BODY} {error}") from None
    if not has_valid_checksum(content):
        raise ValueError(f"{BODY} does not match its own checksum")
    if (content.get("format"), version := content.get("version")) != (FORMAT, VERSION):
        raise CvgnnError(
            f"{path / BODY} is of version {short(version)}, and this cvgnn reads version {VERSION}; resume with the "
            "cvgnn that wrote it"
        )
    complete = content.keys() == _KEYS and isinstance(content["body"], dict)
    digests = {TENSORS: content.get("tensors_sha256")}
    if shards and complete:
        of_shards = content["body"].get("shards")
        complete = isinstance(of_shards, dict)
        digests |= {_shard_file(s): of_shards.get(_shard_file(s)) for s in shards} if complete else {}
    if not (complete and all(isinstance(d, str) and re.fullmatch("[0-9a-f]{64}", d) for d in digests.values())):
        raise ValueError(f"{BODY} lacks fields of a checkpoint, or has others")
    tensors: dict[str, Tensor] = {}
    for name, digest in digests.items():
        tensors |= read_tensors(path / name, sha256=digest)
    return Checkpoint(path, content["body"], tensors)


def write_tensors(file: BinaryIO, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors in the safetensors format; returns the file's SHA-256.

    Args:
        file: open for writing, empty.
        tensors: on the CPU; contiguous ones, such as histories, are not copied.
    """
    # Not `safetensors.torch.save_file`: the SHA-256 is computed while writing, and tests can make each write fail. Its
    # older versions also copied every tensor first, so histories would be in memory twice.
    # The widest types come first, so that each tensor is aligned, as the format requires.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header, end = {}, 0
    for name, tensor in ordered:
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # padded, so that the data starts at a multiple of 8 bytes
    start = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(start)
    atomic_files.write(file, start)
    for _, tensor in ordered:
        for piece in tensor_bytes(tensor):
            atomic_files.write(file, piece)
            digest.update(piece)
    return digest.hexdigest()


def read_tensors(path: Path, *, sha256: str | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, mapped from disk and not copied; `ValueError` if it is damaged.

    Args:
        path: the file.
        sha256: of its bytes; not checked if None.
    """
    try:
        with atomic_files.open_regular(path) as file:
            actual = None if sha256 is None else hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
            if actual != sha256:
                raise ValueError(f"{path.name} is damaged: its SHA-256 is {actual}, not {short(sha256)}")
            # safetensors allocates as much as the header states, so an impossible size is refused first.
            file.seek(0)
            header = int.from_bytes(file.read(8), "little")
            if header > min(_MAX_HEADER, os.fstat(file.fileno()).st_size):
                raise ValueError(f"{path.name} states a header of {header} bytes")
        tensors: dict[str, Tensor] = load_file(path)
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read ({error.strerror})") from None
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that torch does not have
        raise ValueError(f"{path.name} is damaged ({short(str(error))})") from None
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise ValueError(f"{path.name} holds {short(name)} as {tensor.dtype}, which is not read")
    return tensors


@final
class Checkpointer(Callback):
    """Saves the trainer's state as planned, on request and at the end; restores it in a resumed run.

    Args:
        folder: of the run, opened. Its newest valid checkpoint is read here, and refused if it is another run's.
        graph, source, config: of the run.
        plan: when to save.
        stop: a request to stop is answered after the current step, by saving and raising `Stopped`.
        exact: see `check_same_run`.
        threads: of the run; by default the config's, the earlier process's, or what the size of a step suggests.
        processes: that train the run together.
    """

    def __init__(
        self,
        folder: RunFolder,
        graph: Graph,
        source: GraphSource,
        config: TrainConfig,
        *,
        plan: CheckpointPlan | None = None,
        stop: StopRequest | None = None,
        exact: bool = False,
        threads: int | None = None,
        processes: Processes = ONE,
    ) -> None:
        self.checkpoints, self._processes = Checkpoints(folder.checkpoints, processes), processes
        self._plan = plan or CheckpointPlan()
        self._stop = stop or StopRequest()
        self._epochs = config.epochs
        self._saved_at = time.monotonic()
        self._saved_position: tuple[int, int] | None = None  # iterations and epoch of the last checkpoint
        started = processes.exchange(folder.has_config)[0]  # rank 0's word: it is about to write the config
        checkpoint = self.checkpoint = self.checkpoints.newest() if started else None
        self.records: Sequence[EpochRecord] = [] if checkpoint is None else _records(checkpoint)
        # The earlier process's number of threads: sums are then taken in the same order, to the same bits.
        earlier = None if checkpoint is None else _threads(checkpoint)
        self.threads = threads or config.threads or earlier or processes.threads(graph, config)
        digest = processes.digest(graph, source)
        self._identity = identity(graph, source, config, threads=self.threads, digest=digest)
        done = len(self.records)
        if checkpoint is not None:
            check_same_run(checkpoint, self._identity, exact=exact)
            processes.verify(source)  # the identity has a header's checksums, not those of the bytes on disk
        elif started:
            require(
                not folder.has_result,
                f"the run in {folder.path} is finished and its checkpoints are gone, so it cannot be resumed; start a "
                "new one",
            )
            _log.info("%s holds no checkpoint yet: the run starts from the beginning", folder.path)
        require(
            config.epochs >= done,
            f"epochs must be at least {done}, the epochs that the run in {folder.path} has done, not {config.epochs}",
        )

    def restore(self, trainer: Trainer) -> list[EpochRecord]:
        """Restore the state that the earlier process saved, if it did; returns the records of its epochs."""
        if self.checkpoint is not None:
            with _named_in_errors(self.checkpoint):
                restore_trainer(trainer, self.checkpoint.tensors, self.checkpoint.body.get("trainer"))
                require(
                    [record.epoch for record in self.records] == list(range(1, trainer.position.epoch)),
                    "its records are not those of the epochs that are done",
                )
            # Closes the file: the disk space of a removed file is free only when no process has it open.
            self.checkpoint = None
            self._saved_position = (trainer.iterations, trainer.position.epoch)
        return list(self.records)

    def on_start(self, trainer: Trainer, records: Sequence[EpochRecord]) -> None:
        """Start the clock of `checkpoint_minutes`."""
        self.records = records
        self._saved_at = time.monotonic()

    def on_step(self, trainer: Trainer) -> None:
        """Save if it is time; save and raise `Stopped` if a stop was requested."""
        minutes = self._plan.checkpoint_minutes
        # Between steps weights, histories and optimizer agree; in the middle of a step they do not.
        due = int(bool(minutes) and time.monotonic() - self._saved_at >= 60 * minutes)
        wanted = self._processes.most(due if self._stop.signal_number is None else 1 + self._stop.signal_number)
        if wanted > 1:
            raise self.stopped(trainer, wanted - 1)
        if wanted:
            self.save(trainer)

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Save after every n-th epoch and after the last; stop if that was requested."""
        every, last = self._plan.checkpoint_epochs, record.epoch == self._epochs
        if last or (every and record.epoch % every == 0):
            self.save(trainer)
        # After the last epoch nothing is left to stop: the run writes its result.
        if not last and (signal_number := self._processes.most(self._stop.signal_number or 0)):
            raise self.stopped(trainer, signal_number)

    def on_end(self, trainer: Trainer, error: BaseException | None) -> None:
        """Save the end of a run that stopped early, or that diverged: its weights are those before the bad step."""
        if error is None or isinstance(error, Diverged):
            self.save(trainer)

    def save(self, trainer: Trainer) -> bool:
        """Save the state; False, and a logged warning, if that failed. Weights that are not finite are not saved."""
        position = (trainer.iterations, trainer.position.epoch)
        if position == self._saved_position:  # for example at the end, right after the last epoch's checkpoint
            return True
        if not weights_are_finite(trainer.model):
            return False
        tensors, numbers = trainer_state(trainer)
        body = {
            "identity": self._identity,
            "processor": processor(),
            "trainer": numbers,
            "records": [as_row(record) for record in self.records],
        }
        start = time.monotonic()
        try:
            path = self.checkpoints.save(tensors, body)
        except (OSError, ValueError) as error:  # ValueError: a loss sum that JSON cannot hold
            if isinstance(error, CvgnnError) and self._processes.shards:
                raise  # another rank is lost
            reason = atomic_files.describe_error(error) if isinstance(error, OSError) else str(error)
            last = self.checkpoints.last
            kept = "there is no earlier one" if last is None else f"the one before, {last}, is kept"
            _log.warning("the checkpoint after step %d was not written: %s; %s", trainer.iterations, reason, kept)
            return False
        finally:  # also after a failure: the next try comes after the usual interval, not after every step
            self._saved_at = time.monotonic()
        _log.debug("saved %s in %.2f s", path, time.monotonic() - start)
        self._saved_position = position
        return True

    def stopped(self, trainer: Trainer, signal_number: int) -> Stopped:
        """Save the state; returns the error that tells how to continue."""
        p, steps = trainer.position, trainer.loader.steps_per_epoch
        unsaved = "" if self.save(trainer) else ", its last steps not saved"
        folder = self.checkpoints.folder.parent
        message = f"stopped in epoch {p.epoch}, {p.steps} of its {steps} steps done{unsaved}"
        return Stopped(signal_number, f"{message}; continue with: cvgnn train --resume {folder}")


def _records(checkpoint: Checkpoint) -> list[EpochRecord]:
    """The records of the epochs that were done when the checkpoint was saved."""
    with _named_in_errors(checkpoint):
        rows = checkpoint.body.get("records")
        require(isinstance(rows, list), "it has no list of records")
        return [from_row(row) for row in rows or []]


def _threads(checkpoint: Checkpoint) -> int | None:
    """The number of threads that the earlier process used."""
    then = checkpoint.body.get("identity")
    threads = then.get("threads") if isinstance(then, dict) else None
    return threads if type(threads) is int and 1 <= threads <= MAX_THREADS else None


def _named_in_errors(checkpoint: Checkpoint) -> AbstractContextManager[None]:
    return error_context(f"the checkpoint {checkpoint.path} does not hold a run's state: ")
