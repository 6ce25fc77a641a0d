"""Run folders and diagnoses, found and read; what cannot be read is told and left out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.diagnose.reading import read_diagnosis
from cvgnn.diagnose.record import FILE_NAME, Diagnosis
from cvgnn.errors import CvgnnError, require
from cvgnn.experiments.settings import read_object, read_settings
from cvgnn.sealed import parse_json, short
from cvgnn.training import EpochRecord, from_row

_DEEPEST = 4  # folders below the given one: OUT/runs/NAME, and some around it
_MAX_BYTES = 1 << 28  # of metrics.jsonl: more than a million epochs
_SHARES = ("val_accuracy", "test_accuracy", "max_test_accuracy")
_AMOUNTS = ("train_seconds", "eval_seconds", "peak_rss_bytes")
_LARGEST = 1e100  # of any number; their sums are finite


@final
@dataclass(frozen=True, kw_only=True)
class RunData:
    """What a run folder says.

    Args:
        path: of the folder.
        dataset: the graph's name, with what was not usual about its split.
        source, config: where the graph came from, and how it was trained on.
        records: the epochs that are done.
        result: of result.json; None for a run that is not finished.
        failure: why a sweep gave the run up, if it did.
        command: that started it, or the sweep or search that it is part of; None if it was a Python call.
        machine: hardware and versions; None if they were not recorded.
        changed: when the folder was last written to, in seconds.
    """

    path: Path
    dataset: str
    source: GraphSource
    config: TrainConfig
    records: tuple[EpochRecord, ...]
    result: dict[str, Any] | None
    failure: str | None
    command: str | None
    machine: dict[str, str] | None
    changed: float

    @property
    def state(self) -> str:
        """In a word."""
        return "finished" if self.result is not None else "failed" if self.failure is not None else "unfinished"


@final
@dataclass(frozen=True)
class Collected:
    """The runs and diagnoses in some folders, and a sentence for each one that was left out."""

    runs: tuple[RunData, ...]
    skipped: tuple[str, ...]
    diagnoses: tuple[tuple[Path, Diagnosis], ...] = ()


def collect(folders: Sequence[Path]) -> Collected:
    """Read every run and diagnosis in or below the folders; a folder that is reached twice counts once.

    Args:
        folders: of `cvgnn train --out`, `cvgnn sweep`, `cvgnn reproduce`, `cvgnn diagnose --out`, or folders that hold
            such folders.
    """
    paths: dict[Path, Path] = {}
    diagnosed: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise CvgnnError(
                f"there is no folder {folder}; give folders that cvgnn train, sweep or reproduce has written"
            )
        for path in _run_folders(folder):
            paths.setdefault(path.resolve(), path)
        for path in _diagnosed(folder):
            diagnosed.setdefault(path.resolve(), path)
    runs, diagnoses, skipped = [], [], []
    for path in paths.values():
        try:
            runs.append(_read_run(path))
        except CvgnnError as error:
            skipped.append(str(error))
        except OSError as error:  # no right to read it, or it is just being removed
            skipped.append(f"cannot read {path}: {error.strerror}")
    for path in diagnosed.values():
        try:
            diagnoses.append((path, read_diagnosis(path / FILE_NAME)))
        except CvgnnError as error:
            skipped.append(str(error))
    where = ", ".join(str(folder) for folder in folders)
    require(
        bool(paths) or bool(diagnosed),
        f"no runs in {where}; give folders that cvgnn train --out, sweep or reproduce has written, or diagnose --out",
    )
    require(
        bool(runs) or bool(diagnoses),
        f"none of the {len(paths) or len(diagnosed)} {'runs' if paths else 'diagnoses'} in {where} can be read; the "
        f"first: {(*skipped, '')[0]}",
    )
    return Collected(tuple(_told_apart(runs)), tuple(skipped), tuple(diagnoses))


def _run_folders(folder: Path) -> Iterator[Path]:
    """Folders with a config.json, in or below this one, in the order of their names."""
    for name, below, files in os.walk(folder):
        here = Path(name)
        if "config.json" in files:
            yield here
            below.clear()
            continue
        deep = len(here.relative_to(folder).parts) >= _DEEPEST
        below[:] = [] if deep else sorted(b for b in below if not b.startswith(".") and b != "checkpoints")


def _diagnosed(folder: Path) -> Iterator[Path]:
    """Folders with a diagnosis, in or below this one, also inside a run's, in the order of their names."""
    for name, below, files in os.walk(folder):
        here = Path(name)
        if FILE_NAME in files:
            yield here
        deep = len(here.relative_to(folder).parts) >= _DEEPEST
        below[:] = [] if deep else sorted(b for b in below if not b.startswith(".") and b != "checkpoints")


def _read_run(path: Path) -> RunData:
    source, config = read_settings(path / "config.json")
    records = _read_metrics(path / "metrics.jsonl")
    result = _read_result(path / "result.json")
    of_many = _of_many(path.parent.parent) if path.parent.name == "runs" else {}
    said, failure = result or {}, _optional(path / "failure.json")
    command, machine = said.get("command") or of_many.get("command"), said.get("machine") or of_many.get("machine")
    return RunData(
        path=path,
        dataset=_name(source, said.get("dataset")),
        source=source,
        config=config,
        records=records,
        result=result,
        failure=None if failure is None or result is not None else str(failure.get("reason"))[:500],
        command=str(command)[:5000] if command else None,
        machine={str(k)[:80]: str(v)[:200] for k, v in machine.items()} if isinstance(machine, dict) else None,
        changed=max((f.stat().st_mtime for f in path.iterdir() if f.suffix in (".json", ".jsonl")), default=0.0),
    )


def _of_many(folder: Path) -> dict[str, Any]:
    """What a sweep or a search says of itself in its folder; nothing, if it has not come to its end."""
    return _optional(folder / "table.json") or _optional(folder / "search.json") or {}


def _read_metrics(file: Path) -> tuple[EpochRecord, ...]:
    """The epochs in metrics.jsonl; a last line that is still being written is not one yet."""
    try:
        require(
            file.stat().st_size <= _MAX_BYTES, f"{file} is longer than {_MAX_BYTES >> 20} MiB; no run's metrics are"
        )
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise CvgnnError(f"cannot read {file}: {error.strerror}") from None
    records: list[EpochRecord] = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = from_row(parse_json(line))
        except ValueError as error:
            raise CvgnnError(f"{file}, line {number}: {error}; the file is damaged") from None
        shares = () if record.accuracies is None else dataclasses.astuple(record.accuracies)
        right = all(share is None or 0 <= share <= 1 for share in shares)
        right &= record.epoch > (records[-1].epoch if records else 0) and 0 <= record.train_seconds < _LARGEST
        right &= not abs(record.loss) > _LARGEST and record.epoch < _LARGEST
        require(right, f"{file}, line {number}: its numbers cannot be an epoch's; the file is damaged")
        records.append(record)
    return tuple(records)


def _read_result(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    result = read_object(file)
    for name in (*_SHARES, *_AMOUNTS):
        value = result.get(name)
        right = value is None or (type(value) in (int, float) and 0 <= value <= (1 if name in _SHARES else _LARGEST))
        require(right, f"{file}: {name} is {short(value)}; the file is damaged")
    return result


def _optional(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file that may be missing or damaged."""
    try:
        return read_object(file) if file.is_file() else None
    except CvgnnError:
        return None


def _told_apart(runs: Sequence[RunData]) -> list[RunData]:
    """The runs, with the path in the graph's name where graphs from several files have the same one."""
    files: dict[str, set[Path | None]] = {}
    for run in runs:
        files.setdefault(run.dataset, set()).add(run.source.graph)
    several = {name for name, found in files.items() if len(found) > 1}
    named = [(run, f"{run.dataset} ({run.source.graph or 'named data set'})") for run in runs]
    return [dataclasses.replace(run, dataset=name) if run.dataset in several else run for run, name in named]


def _name(source: GraphSource, known: object) -> str:
    """What to call the graph: its name, and the options of its source that are not the usual ones."""
    name = known if isinstance(known, str) and known else source.name or Path(source.graph or "graph").stem
    name = name if name.isprintable() else repr(name)
    usual, changes = GraphSource(), []
    for field in dataclasses.fields(GraphSource):
        value = getattr(source, field.name)
        if field.name not in ("dataset", "root", "graph") and value != getattr(usual, field.name):
            changes.append(field.name if value is True else f"{field.name}={value}")
    return name[:100] + (f" ({', '.join(changes)})" if changes else "")
