"""Where every number comes from: all settings, all runs, their commands, machines and versions."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.report.reading import RunData
from cvgnn.report.settings import Setting, in_words, varying
from cvgnn.report.tables import Cell, Table
from cvgnn.sweeps.tables import percent

_ACCURACIES = ("val_accuracy", "test_accuracy", "max_test_accuracy")


def settings_table(settings: Sequence[Setting]) -> Table:
    """A row for every setting."""
    names = list(dict.fromkeys(("optimizer", *varying(settings))))
    header = ["data set", "options", "runs", "seeds", "validation", "test at best validation",
              "highest test (paper's protocol)", "training s a run"]  # fmt: skip
    rows = []
    for s in settings:
        seconds = s.mean("train_seconds")
        seeds = ", ".join(str(run.config.seed) for run in s.runs)
        state = "" if s.complete else f"{len(s.runs) - len(s.finished)} not finished, and not counted here"
        rows.append(
            [
                Cell(s.dataset),
                Cell(in_words(s, names)),
                Cell(str(len(s.finished)), small=state),
                Cell(seeds),
                *(Cell(percent(s.mean(key), s.deviation(key))) for key in _ACCURACIES),
                Cell("-" if seconds is None else f"{seconds:.2f}"),
            ]
        )
    return Table("All settings; accuracies in %, mean ± standard deviation over finished runs.", header, rows)


def runs_table(settings: Sequence[Setting]) -> Table:
    """A row for every run: its numbers, and the command that makes them again."""
    runs = [run for setting in settings for run in setting.runs]
    machines, commands = _numbered(map(_machine, runs)), _numbered(run.command for run in runs)
    header = ["data set", "optimizer", "seed", "state", "epochs", "best epoch", "validation %",
              "test % at best validation", "highest test %", "training s", "evaluation s", "peak MiB", "threads",
              "command", "machine", "folder", "this run alone"]  # fmt: skip
    rows = []
    for run in runs:
        r = run.result or {}
        cells = [
            run.dataset,
            run.config.optimizer,
            str(run.config.seed),
            run.state,
            str(len(run.records)),
            _number(r.get("best_epoch"), "d"),
            *(percent(r.get(key)) for key in _ACCURACIES),
            _number(r.get("train_seconds"), ".2f"),
            _number(r.get("eval_seconds"), ".2f"),
            _number((r.get("peak_rss_bytes") or 0) / 2**20 or None, ".0f"),
            _number(r.get("threads"), "d"),
            f"C{commands[run.command]}" if run.command is not None else "Python",
            f"M{machines[_machine(run)]}" if run.machine is not None else "not recorded",
            str(run.path),
        ]
        made = [*map(Cell, cells), Cell(repeat(run), code=True)]
        made[3] = Cell(run.state, small=run.failure or "")
        rows.append(made)
    return Table("All runs.", header, rows)


def commands_table(settings: Sequence[Setting]) -> Table:
    """The commands that were typed, C1, C2, ..., and on which machine."""
    runs = [run for setting in settings for run in setting.runs]
    machines = _numbered(map(_machine, runs))
    runs_of: dict[str, list[RunData]] = {}
    for run in runs:
        if run.command is not None:
            runs_of.setdefault(run.command, []).append(run)
    rows = []
    for number, (command, mine) in enumerate(runs_of.items(), start=1):
        where = sorted({machines[_machine(run)] for run in mine if run.machine is not None})
        on = ", ".join(f"M{n}" for n in where) or "not recorded"
        rows.append([Cell(f"C{number}"), Cell(command, code=True), Cell(str(len(mine))), Cell(on)])
    return Table("Commands, as they were typed.", ["", "command", "runs in this report", "machine"], rows)


def machines_table(settings: Sequence[Setting]) -> Table:
    """The machines and versions, M1, M2, ..."""
    machines = _numbered(_machine(run) for setting in settings for run in setting.runs)
    names = list(dict.fromkeys(name for machine in machines for name, _ in machine))
    rows = []
    for machine, number in machines.items():
        said = dict(machine)
        rows.append([Cell(f"M{number}"), *(Cell(said.get(name, "-")) for name in names)])
    return Table("Machines and versions.", ["", *names], rows)


def repeat(run: RunData) -> str:
    """The command that does a run again, whatever started it."""
    words = ["cvgnn", "train"]
    for given, usual in ((run.source, GraphSource()), (run.config, TrainConfig())):
        for field in dataclasses.fields(given):
            value = getattr(given, field.name)
            if value != getattr(usual, field.name):
                words += [f"--{field.name.replace('_', '-')}", *_words(value)]
    threads = (run.result or {}).get("threads")
    if run.config.threads is None and type(threads) is int:
        words += ["--threads", str(threads)]
    return shlex.join(words)


def _words(value: Any) -> list[str]:
    return [str(part) for part in value] if isinstance(value, tuple) else [str(value)]


def _machine(run: RunData) -> tuple[tuple[str, str], ...] | None:
    return None if run.machine is None else tuple(run.machine.items())


def _number(value: Any, form: str) -> str:
    right = type(value) is int or (type(value) is float and form != "d")
    return format(value, form) if right else "-"


def _numbered(values: Iterable[Any]) -> dict[Any, int]:
    """The values but None, each once, numbered from 1."""
    return {value: number for number, value in enumerate((v for v in dict.fromkeys(values) if v is not None), start=1)}
