"""Find run folders and diagnoses, and read them. A run that cannot be read is skipped with a message."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import CvgnnError, require
from cvgnn.lab.diagnose.record import FILE_NAME, Diagnosis, read_diagnosis
from cvgnn.lab.sweep.jobs import non_default, train_argv
from cvgnn.lab.sweep.pool import metric_of
from cvgnn.training import EpochRecord
from cvgnn.training.run_folder import read_metrics, read_object, read_settings
from cvgnn.training.tasks import METRICS, result_keys
from cvgnn.utils.checked_json import short

_MAX_DEPTH = 4  # folders below the given one: OUT/runs/NAME, and some around it
_LARGEST = 1e100  # keeps the sums of numbers that tables and charts use finite

T = TypeVar("T")


@final
@dataclass(frozen=True, kw_only=True)
class RunData:
    """The content of a run folder.

    Args:
        path: the folder.
        dataset: the graph's name, with the options of its source that differ from the defaults.
        source, config: the graph's source and the training options.
        records: the completed epochs.
        result: the content of result.json; None for an unfinished run.
        failure: the reason why a sweep gave the run up, if it did.
        command: the command that started the run, its sweep or its search; None for a Python call.
        machine: pairs of names and values for hardware and versions; None if not recorded.
        changed: time of the last write to the folder, in seconds.
    """

    path: Path
    dataset: str
    source: GraphSource
    config: TrainConfig
    records: Sequence[EpochRecord]
    result: dict[str, Any] | None
    failure: str | None
    command: str | None
    machine: tuple[tuple[str, str], ...] | None
    changed: float

    @property
    def metric(self) -> str:
        """The metric by which the run is compared: it selects the best epoch, and is the first of a record."""
        if self.result is not None:
            return metric_of(self.result)
        measured = next(iter(self.records[0].metrics)).partition("_")[2] if self.records else self.config.metric
        return measured if measured in METRICS else "accuracy"

    @property
    def state(self) -> str:
        """finished, failed or unfinished."""
        return "finished" if self.result is not None else "failed" if self.failure is not None else "unfinished"

    @property
    def repeat_command(self) -> str:
        """The command that repeats the run, whatever started it."""
        return shlex.join(["cvgnn", "train", *train_argv(non_default(self.source) | non_default(self.config))])


@final
@dataclass(frozen=True)
class RunCollection:
    """The runs and diagnoses in some folders, and an error message for each one that was skipped."""

    runs: Sequence[RunData]
    skipped: Sequence[str]
    diagnoses: Sequence[tuple[Path, Diagnosis]] = ()


def collect(folders: Sequence[Path]) -> RunCollection:
    """Read every run and diagnosis in or below the folders; a folder that is reached twice counts once.

    Args:
        folders: of `cvgnn train --out`, `cvgnn sweep`, `cvgnn reproduce`, `cvgnn diagnose --out`, or their parents.
    """
    for folder in folders:
        require(
            folder.is_dir(),
            f"there is no folder {folder}; give folders that cvgnn train, sweep or reproduce has written",
        )
    skipped: list[str] = []
    run_folders, diagnosis_folders = _folders_with("config.json", folders), _folders_with(FILE_NAME, folders)
    runs = _read_all(run_folders, _read_run, skipped)
    diagnoses = _read_all(diagnosis_folders, lambda path: (path, read_diagnosis(path / FILE_NAME)), skipped)
    where = ", ".join(map(str, folders))
    require(
        bool(run_folders or diagnosis_folders),
        f"no runs in {where}; give folders that cvgnn train --out, sweep or reproduce has written, or diagnose --out",
    )
    found = f"{len(run_folders)} runs" if run_folders else f"{len(diagnosis_folders)} diagnoses"
    require(bool(runs or diagnoses), f"none of the {found} in {where} can be read; the first: {''.join(skipped[:1])}")
    return RunCollection(_with_unique_names(runs), skipped, diagnoses)


def _folders_with(file_name: str, folders: Iterable[Path]) -> list[Path]:
    """Folders with a file of this name, in or below the given ones, in the order of their names."""
    paths: dict[Path, Path] = {}
    for folder in folders:
        for name, below, files in os.walk(folder):
            here = Path(name)
            if file_name in files:
                paths.setdefault(here.resolve(), here)
            # A run folder holds no other run, but it may hold diagnoses.
            is_leaf = file_name in files and file_name != FILE_NAME
            stop = is_leaf or len(here.relative_to(folder).parts) >= _MAX_DEPTH
            below[:] = [] if stop else sorted(b for b in below if not b.startswith(".") and b != "checkpoints")
    return list(paths.values())


def _read_all(paths: Iterable[Path], read: Callable[[Path], T], skipped: list[str]) -> list[T]:
    values = []
    for path in paths:
        try:
            values.append(read(path))
        except CvgnnError as error:
            skipped.append(str(error))
        except OSError as error:  # no permission, or another process is removing the folder
            skipped.append(f"cannot read {path}: {error.strerror}")
    return values


def _read_run(path: Path) -> RunData:
    source, config = read_settings(path / "config.json")
    records = read_metrics(path / "metrics.jsonl")
    result = _read_result(path / "result.json")
    known, parent = result or {}, path.parent.parent
    if config.threads is None and type(known.get("threads")) is int:
        config = dataclasses.replace(config, threads=known["threads"])  # a run with a chosen number is no other setting
    # A sweep or a search records command and machine once, for all its runs, when it ends.
    shared = (_read_if_valid(parent / "table.json") or _read_if_valid(parent / "search.json") or {}
              if path.parent.name == "runs" else {})  # fmt: skip
    failure = None if result is not None else _read_if_valid(path / "failure.json")
    command, machine = (known.get(name) or shared.get(name) for name in ("command", "machine"))
    return RunData(
        path=path,
        dataset=_dataset_name(source, known.get("dataset")),
        source=source,
        config=config,
        records=records,
        result=result,
        failure=None if failure is None else str(failure.get("reason"))[:500],
        command=str(command)[:5000] if command else None,
        machine=tuple((str(k)[:80], str(v)[:200]) for k, v in machine.items()) if isinstance(machine, dict) else None,
        changed=max((f.stat().st_mtime for f in path.iterdir() if f.suffix in (".json", ".jsonl")), default=0.0),
    )


def _read_result(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    result = read_object(file)
    metric = metric_of(result)
    require(metric in METRICS, f"{file}: metric is {short(metric)}; the file is damaged")
    ends = (0.0, 1.0) if METRICS[metric].share else (-_LARGEST, _LARGEST)
    ranges = dict.fromkeys(result_keys(metric).values(), ends)
    ranges |= dict.fromkeys(("train_seconds", "eval_seconds", "peak_rss_bytes"), (0.0, _LARGEST))
    for name, (least, most) in ranges.items():
        value = result.get(name)
        valid = value is None or (type(value) in (int, float) and least <= value <= most)
        require(valid, f"{file}: {name} is {short(value)}; the file is damaged")
    return result


def _read_if_valid(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file that may be missing or damaged."""
    try:
        return read_object(file) if file.is_file() else None
    except CvgnnError:
        return None


def _with_unique_names(runs: Sequence[RunData]) -> list[RunData]:
    """The runs. Where graphs from several files have the same name, the path is added to it; where runs on one graph
    are compared by several metrics, so is the metric, unless it is the accuracy."""
    places = Counter(name for name, _ in {(run.dataset, run.source.graph) for run in runs})
    metrics = Counter(name for name, _ in {(run.dataset, run.metric) for run in runs})
    named = []
    for run in runs:
        place = f" ({run.source.graph or 'named data set'})" if places[run.dataset] > 1 else ""
        metric = f" ({run.metric})" if metrics[run.dataset] > 1 and run.metric != "accuracy" else ""
        named.append(dataclasses.replace(run, dataset=run.dataset + place + metric))
    return named


def _dataset_name(source: GraphSource, recorded: object) -> str:
    """The graph's name, and the options of its source that differ from the defaults."""
    name = recorded if isinstance(recorded, str) and recorded else source.name or Path(source.graph or "graph").stem
    name = name if name.isprintable() else repr(name)
    changes = [
        option if value is True else f"{option}={value}"
        for option, value in non_default(source).items()
        if option not in ("dataset", "root", "graph")
    ]
    return name[:100] + (f" ({', '.join(changes)})" if changes else "")
