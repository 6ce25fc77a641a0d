"""The folder of a run: config.json, metrics.jsonl, result.json, weights.safetensors and checkpoints/.

config.json and metrics.jsonl are read and written here; `cvgnn.training.checkpoint` has the checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar, final

from safetensors.torch import save
from torch import nn

from cvgnn._version import __version__
from cvgnn.config import REGISTERED, GraphSource, TrainConfig
from cvgnn.data.split import SPLITS
from cvgnn.errors import CvgnnError, error_context, require, unknown_name
from cvgnn.training.callbacks import Callback
from cvgnn.training.tasks import is_share, metric_keys
from cvgnn.training.trainer import EpochRecord, Trainer
from cvgnn.utils import atomic_files
from cvgnn.utils.checked_json import check_values, parse_json, parse_object, short
from cvgnn.utils.file_lock import lock_folder
from cvgnn.utils.formatting import join_printable

T = TypeVar("T")

_log = logging.getLogger(__name__)
_MAX_JSON = 1 << 24
_MAX_TOML = 1 << 16  # more than anybody writes; tomllib may take time that grows with the square of the length
_MAX_METRICS = 1 << 28  # bytes: more than a million epochs
_MAX_NUMBER = 1e100  # in metrics.jsonl: sums of such numbers are finite
_MAX_LENGTH = 4096  # characters of a path, or entries of a list
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_COUNTS = ("epoch", "iterations", "skipped_steps")
_SECONDS = ("train_seconds", "eval_seconds")


@final
class RunFolder:
    """A folder for the files of one run, which one process at a time may write to.

    Args:
        path: checked here. The folder of a new run is created, with its parents, by `opened`.
        resume: whether it must hold an earlier run; if not, a folder that is not empty is refused, so that no earlier
            run is overwritten.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self._resume = resume
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        if resume:
            check_is_folder(path)
        parent = next((parent for parent in (path, *path.parents) if parent.exists()), Path("."))
        require(parent.is_dir(), f"cannot use {path} as output folder: Not a directory; choose another --out")
        self._refuse_occupied()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Create the folder of a new run, and lock it against other processes."""
        with contextlib.ExitStack() as stack:
            with _report_errors(self.path):
                if not self.path.is_dir():
                    self.path.mkdir(parents=True, exist_ok=True)
                    atomic_files.sync_folder(self.path.parent)
                stack.enter_context(lock_folder(self.path))
            self._refuse_occupied()  # again: another process may have been faster
            for leftover in self.path.glob(".*.partial"):  # of a process that was killed
                with contextlib.suppress(OSError):
                    leftover.unlink()
            yield

    @property
    def has_config(self) -> bool:
        """Whether a run was started here: it writes its config first."""
        return (self.path / "config.json").is_file()

    @property
    def has_result(self) -> bool:
        """Whether the run is finished."""
        return (self.path / "result.json").is_file()

    def write_config(self, source: GraphSource, config: TrainConfig) -> None:
        """Write config.json: everything needed to repeat the run. An equal one is not written again."""
        data = _json({"version": __version__, **source.to_dict(), **config.to_dict()})
        file = self.path / "config.json"
        with _report_errors(self.path, resume=self._resume):
            if not (self._resume and file.is_file() and file.read_bytes() == data):
                atomic_files.write_file(file, data)

    def write_preprocessing(self, preprocessing: dict[str, Any] | None) -> None:
        """Write preprocessing.json: how the columns of a table became features, to read other tables alike."""
        if preprocessing is not None:
            with _report_errors(self.path, resume=self._resume):
                atomic_files.write_file(self.path / "preprocessing.json", _json(preprocessing))

    def remove_result(self) -> None:
        """Remove result.json because the run continues: a folder with a result is complete."""
        with _report_errors(self.path, resume=True):
            (self.path / "result.json").unlink(missing_ok=True)

    def write_result(self, result: dict[str, Any], model: nn.Module) -> None:
        """Write weights.safetensors, then result.json: a folder with a result is complete."""
        weights = save({name: t.contiguous() for name, t in model.state_dict().items()})
        # In this order: whoever sees result.json may rely on the weights.
        hint = f", then get it from the last checkpoint with: cvgnn train --resume {self.path}"
        failed = f"the run is done, but its result cannot be written to {self.path}"
        with error_context(after=hint), atomic_files.report_errors(failed):
            atomic_files.write_file(self.path / "weights.safetensors", weights)
            atomic_files.write_file(self.path / "result.json", _json(result))

    def _refuse_occupied(self) -> None:
        if self._resume:
            return
        # A .partial file is what a killed process left: it does not make the folder another run's.
        with _report_errors(self.path):
            occupied = self.path.exists() and any(not p.name.endswith(".partial") for p in self.path.iterdir())
        hint = f", or continue its run: cvgnn train --resume {self.path}" if self.has_config else ""
        require(not occupied, f"output folder {self.path} is not empty; choose another --out, or empty it first{hint}")


def check_is_folder(path: Path) -> None:
    """Refuse a path that is no run folder."""
    # Not Path.is_dir, which raises for a path with a NUL character.
    require(os.path.isdir(path), f"no run folder at {path}; give a folder that cvgnn train --out has written")


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _report_errors(path: Path, *, resume: bool = False) -> AbstractContextManager[None]:
    """Turn an `OSError` into a `CvgnnError` with a way out."""
    if resume:
        return atomic_files.report_errors(f"cannot resume in {path}")
    return atomic_files.report_errors(f"cannot use {path} as output folder", "choose another --out")


# config.json and TOML files


def read_settings(file: Path) -> tuple[GraphSource, TrainConfig]:
    """Graph source and config from a .toml file, or from the config.json of a run; both have the names of the options.

    Paths in a .toml file are relative to its folder.
    """
    toml = file.suffix == ".toml"
    stored = read_toml(file) if toml else read_object(file)
    stored.pop("version", None)
    source_names = {f.name for f in dataclasses.fields(GraphSource)}
    known = sorted(source_names | TrainConfig.__dataclass_fields__.keys())
    # A config.json may come from anybody: what is printed of it is bounded and escaped.
    for name, value in stored.items():
        if name not in known:
            raise CvgnnError(f"{file}: {unknown_name('option', name[:80], known)}")
        size = len(value) if isinstance(value, str | list | dict) else 0
        require(size <= _MAX_LENGTH, f"{file}: {name} has {size} characters or entries; at most {_MAX_LENGTH} are read")
    of_source = {name: stored.pop(name) for name in source_names if name in stored}
    try:
        return GraphSource(**source_fields(of_source, file.parent if toml else Path())), TrainConfig(**stored)
    except CvgnnError as error:
        own = any(str(error).startswith(f"unknown {kind} ") for kind in REGISTERED)
        hint = "; if it is your own, name the module that registers it with --plugin" if own else ""
        raise CvgnnError(f"{file}: {str(error)[:500]}{hint}") from None


def source_fields(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Fields of a `GraphSource` from a file, with `root` and `graph` as paths relative to `folder`."""
    fields = dict(values)
    for name, kind in (("dataset", "name"), ("root", "path"), ("graph", "path")):
        if (value := fields.get(name)) is not None:
            require(_may_be_path(value), f"{name} must be a {kind}, not {short(value)}")
            fields[name] = folder / value if kind == "path" else value
    return fields


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file of a run."""
    return _parse(file, _MAX_JSON, parse_object)


def read_toml(file: Path) -> dict[str, Any]:
    """The content of a TOML file of moderate size."""
    return _parse(file, _MAX_TOML, _parse_toml)


def toml_line(name: str, value: Any) -> str:
    """An option as a line of a TOML file.

    >>> toml_line("num_neighbors", [2, 5]), toml_line("graph", "ü")
    ('num_neighbors = [2, 5]', 'graph = "ü"')
    """
    # Strings, numbers, booleans and lists are the same in JSON and TOML, but for JSON's escapes of non-ASCII.
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def _parse_toml(data: bytes) -> dict[str, Any]:
    try:
        value = tomllib.loads(data.decode("utf-8"))
        check_values(value)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"is not valid TOML ({join_printable([str(error)[:120]])})") from None
    return value


def _parse(file: Path, most: int, parse: Callable[[bytes], T]) -> T:
    toml = file.suffix == ".toml"  # written by hand; every other file is ours
    try:
        return parse(atomic_files.read_bytes(file, most))
    except FileNotFoundError:
        if toml:
            raise CvgnnError(f"there is no file {file}; give a .toml or .json file with the options of a run") from None
        raise CvgnnError(f"{file} is missing: the run is not finished, or this is not a run folder") from None
    except OSError as error:
        raise CvgnnError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise CvgnnError(f"{file} {error}; {'correct it' if toml else 'the file is damaged'}") from None


def _may_be_path(value: object) -> bool:
    try:
        return isinstance(value, str) and not _CONTROL.search(value) and bool(os.fsencode(value))
    except UnicodeEncodeError:
        return False


# metrics.jsonl


def as_row(record: EpochRecord) -> dict[str, Any]:
    """A record as a flat JSON object; metrics are null where not measured, and so is a loss that is not finite."""
    return {
        "epoch": record.epoch,
        "iterations": record.iterations,
        "loss": record.loss if math.isfinite(record.loss) else None,  # JSON has no NaN
        **record.metrics,
        "train_seconds": round(record.train_seconds, 6),
        "eval_seconds": round(record.eval_seconds, 6),
        "skipped_steps": record.skipped_steps,
    }


def from_row(row: Any) -> EpochRecord:
    """The record that `as_row` made the row of."""
    require(isinstance(row, dict), "a record must be a JSON object")
    splits, found = tuple(f"{split}_" for split in SPLITS), [name for name in row if name not in _SECONDS]
    measured = dict.fromkeys(name.partition("_")[2] for name in found if name.startswith(splits))
    metrics = metric_keys(measured or ["accuracy"])
    for name in (*_COUNTS, *_SECONDS, "loss", *metrics):
        require(name in row, f"a record lacks {name!r}")
        value = row[name]
        if name in _COUNTS:  # type(...) is int, because True is an instance of int
            valid = type(value) is int and value >= 0
        else:
            valid = (value is None and name not in _SECONDS) or (type(value) in (int, float) and math.isfinite(value))
        require(valid, f"a record's {name} is {short(value)}")
    return EpochRecord(
        **{name: row[name] for name in (*_COUNTS, *_SECONDS)},
        loss=math.nan if row["loss"] is None else row["loss"],
        metrics={name: row[name] for name in metrics},
    )


@final
class MetricsLog(Callback):
    """Appends each epoch to metrics.jsonl. A full disk does not stop training: missing lines are written later.

    Args:
        path: of the file, which is replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._complete = True  # whether the file holds all lines

    def on_start(self, trainer: Trainer, records: Sequence[EpochRecord]) -> None:
        """Write the epochs that an earlier process has trained."""
        self._lines = [_line(record) for record in records]
        with atomic_files.report_errors(f"cannot write {self._path}"):
            self._rewrite()

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Append the epoch."""
        self._lines.append(_line(record))
        try:
            if self._complete:
                # Opened for each epoch, so that nothing needs to be closed however the run ends.
                with self._path.open("ab", buffering=0) as file:
                    atomic_files.write(file, self._lines[-1])
            else:
                self._rewrite()
        except OSError as error:
            self._complete = False
            reason = atomic_files.describe_error(error)
            _log.warning("epoch %d is not in %s yet: %s; it is written later", record.epoch, self._path, reason)

    def on_end(self, trainer: Trainer, error: BaseException | None) -> None:
        """Write the missing lines, if that is possible now."""
        if not self._complete:
            with contextlib.suppress(OSError):
                self._rewrite()

    def _rewrite(self) -> None:
        atomic_files.write_file(self._path, b"".join(self._lines))
        self._complete = True


def _line(record: EpochRecord) -> bytes:
    return (json.dumps(as_row(record)) + "\n").encode()


def read_metrics(file: Path) -> list[EpochRecord]:
    """The epochs in a metrics.jsonl, without a last line that is still being written; none if there is no file."""
    if not os.path.lexists(file):
        return []
    lines = _parse(file, _MAX_METRICS, lambda data: data.split(b"\n"))
    records: list[EpochRecord] = []
    # What follows the last newline is empty, or a line that is still being written.
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = from_row(parse_json(line))
        except ValueError as error:
            raise CvgnnError(f"{file}, line {number}: {error}; the file is damaged") from None
        measured = {name: value for name, value in record.metrics.items() if value is not None}
        valid = all(0 <= value <= 1 or not is_share(name) for name, value in measured.items())
        valid &= all(abs(value) <= _MAX_NUMBER for value in measured.values())
        valid &= record.epoch > (records[-1].epoch if records else 0) and 0 <= record.train_seconds < _MAX_NUMBER
        valid &= not abs(record.loss) > _MAX_NUMBER and record.epoch < _MAX_NUMBER
        require(valid, f"{file}, line {number}: its numbers cannot be an epoch's; the file is damaged")
        records.append(record)
    return records
