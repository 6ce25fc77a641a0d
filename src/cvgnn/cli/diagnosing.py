"""What the subcommands of `cvgnn diagnose` share: the options that name a subject, progress, what is left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import tyro

from cvgnn.cli.options import option, parse
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import CvgnnError, require

if TYPE_CHECKING:
    from cvgnn.diagnose import Diagnosis
    from cvgnn.graph import Graph

Tell = Callable[[str, float], None]
"""Told what is being done, and which share of it (0..1) is."""

_BAR_AFTER_SECONDS = 2.0
_LINE_EVERY_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class DiagnoseCommand:
    """The options of every subcommand; each has its own besides."""

    run: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of a run (cvgnn train --out): its graph and options are taken; words given here win."""

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for diagnosis.json, new or empty, or with an earlier diagnosis of this kind; cvgnn report shows it."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=TrainConfig)


T = TypeVar("T", bound=DiagnoseCommand)


def parse_diagnose(command: type[T], words: Sequence[str], *, kind: str) -> T:
    """The command that the words spell, its defaults those of the run that `--run` names; `--out` is looked at.

    Args:
        command: a dataclass with the options of `DiagnoseCommand` and its own.
        words: what stands behind the subcommand's name.
        kind: the subcommand's name.
    """
    if words and not words[0].startswith("-"):
        words = ["--run", *words]  # the folder of a run, named at once
    run = option(words, "--run")
    require(run != "", "--run needs the folder of a run, such as --run runs/a")
    default = None
    if run is not None and "--help" not in words and "-h" not in words:
        from cvgnn.experiments.settings import read_settings

        require(os.path.isdir(run), f"no run folder at {run}; give a folder that cvgnn train --out has written")
        source, config = read_settings(Path(run) / "config.json")
        if any(option(words, word) is not None for word in ("--graph", "--dataset")):
            source = GraphSource()  # the run's graph is named anew, wherever it was
        default = dataclasses.replace(command(), source=source, config=config)
    parsed = parse(command, words, prog=f"cvgnn diagnose {kind}", default=default)
    if parsed.out is not None:
        refuse_occupied(parsed.out, kind)
        _make(parsed.out)
    return parsed


def given(words: Sequence[str], name: str) -> bool:
    """Whether an option is among the words, spelled with hyphens or underscores.

    >>> given(["--batch_size=3"], "--batch-size")
    True
    """
    return any(option(words, f"--{word}") is not None for word in (name[2:], name[2:].replace("-", "_")))


def say_left_out(names: Sequence[str]) -> None:
    """Say which options have no use, if there are any."""
    if names:
        print(f"cvgnn: left out, because it has no use in this measurement: {', '.join(names)}", file=sys.stderr)


def refuse_changes(command: DiagnoseCommand, *, free: Sequence[str]) -> None:
    """Refuse options that would make another network or training than the run's whose checkpoint is taken.

    Args:
        command: with the run's folder.
        free: names of the options that say how to measure, which may be others than the run's.
    """
    from cvgnn.experiments.settings import read_settings

    assert command.run is not None
    _, then = read_settings(command.run / "config.json")
    for field in dataclasses.fields(TrainConfig):
        before, now = getattr(then, field.name), getattr(command.config, field.name)
        if field.name not in free and before != now:
            name = f"--{field.name.replace('_', '-')}"
            raise CvgnnError(
                f"{name} was {before} in the run in {command.run} and cannot be {now} now; leave it out, or diagnose "
                "without --run, from fresh weights"
            )


def _make(out: Path) -> None:
    """Make the folder before the work, so that none is lost where it cannot be written to."""
    from cvgnn import disk

    try:
        out.mkdir(parents=True, exist_ok=True)
        require(os.access(out, os.W_OK | os.X_OK), f"cannot write to {out}: it is read-only; choose another --out")
    except OSError as error:
        raise CvgnnError(f"cannot write to {out}: {disk.reason(error)}; choose another --out") from None


def source_and_config(command: DiagnoseCommand, words: Sequence[str]) -> tuple[Graph, TrainConfig]:
    """The graph, in float64, and how to train on it."""
    from cvgnn.diagnose.subject import in_float64
    from cvgnn.experiments.source import load_source

    trusted = command.run is None or option(words, "--root") is not None
    return in_float64(load_source(command.source, trusted=trusted)), command.config


@contextlib.contextmanager
def measuring(command: DiagnoseCommand, graph: Graph) -> Iterator[Tell]:
    """Run torch on a sensible number of threads, and show progress through what is yielded, if it takes long.

    A graph that is read from disk as it is needed may be lost under way; that is told, too.
    """
    from cvgnn.experiments.lost_data import told_if_data_is_lost
    from cvgnn.experiments.machine import sensible_threads, thread_count
    from cvgnn.store import is_store

    source = command.source
    mapped = (source.name or "").startswith("synthetic") if source.graph is None else is_store(source.graph)
    guard = told_if_data_is_lost("start again") if mapped else contextlib.nullcontext()
    threads = command.config.threads or sensible_threads(graph, command.config)
    with guard, thread_count(threads), _progress() as tell:
        yield tell


def finish(diagnosis: Diagnosis, command: DiagnoseCommand, words: Sequence[str], *, started: float) -> int:
    """Print tables and verdict, write `diagnosis.json` if a folder was named; returns the exit code.

    Args:
        diagnosis: what was found; its origin is added here.
        command, words: what was asked for.
        started: `time.monotonic()` when the work began.
    """
    from cvgnn.cli.output import Output
    from cvgnn.experiments.machine import describe_machine

    seconds = round(time.monotonic() - started, 2)
    asked = shlex.join(["cvgnn", "diagnose", diagnosis.kind, *words])
    origin = {"command": asked, "machine": describe_machine(), "seconds": seconds}
    diagnosis = dataclasses.replace(diagnosis, origin={**diagnosis.origin, **origin})
    output = Output(must_go_on=command.out is not None)
    for table in diagnosis.tables:
        output.show(aligned(table.caption, table.header, table.rows))
    output.show(diagnosis.verdict)
    if command.out is not None:
        try:
            file = diagnosis.write(command.out)
        except OSError as error:
            from cvgnn import disk

            raise CvgnnError(f"cannot write to {command.out}: {disk.reason(error)}") from None
        output.show(f"written to {file} in {seconds:.1f} s; see it with: cvgnn report {command.out}")
    return 0


def aligned(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as plain text: words to the left, numbers to the right.

    >>> print(aligned("Two of them.", ["name", "size"], [["a", "1"], ["bc", "10"]]))
    Two of them.
    name  size
    a        1
    bc      10
    <BLANKLINE>
    """
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    left = [not all(_is_number(cell) for cell in column[1:]) for column in columns]
    lines = [caption]
    for row in (header, *rows):
        cells = (
            cell.ljust(width) if side else cell.rjust(width)
            for cell, width, side in zip(row, widths, left, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def refuse_occupied(out: Path, kind: str) -> None:
    """Refuse a folder that holds anything but an earlier diagnosis of the same kind, which is replaced."""
    try:
        require(not out.exists() or out.is_dir(), f"--out must be a folder, and {out} is a file")
        there = [p.name for p in out.iterdir() if not p.name.endswith(".partial")] if out.exists() else []
    except OSError as error:
        raise CvgnnError(f"cannot use {out} as output folder: {error.strerror}; choose another --out") from None
    if not there:
        return
    from cvgnn.diagnose.record import FILE_NAME
    from cvgnn.experiments.settings import read_object

    try:
        found = read_object(out / FILE_NAME).get("kind") if there == [FILE_NAME] else None
    except CvgnnError:
        found = None
    require(
        found == kind,
        f"output folder {out} holds something else than a diagnosis of kind {kind}; choose another --out, or empty it",
    )


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] in "-+<±"


@contextlib.contextmanager
def _progress() -> Iterator[Tell]:
    """A bar on a terminal, a line every ten seconds elsewhere; nothing for what takes less than two."""
    import rich.console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = rich.console.Console(highlight=False, stderr=True, force_terminal=sys.stderr.isatty())
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    due = time.monotonic() + _BAR_AFTER_SECONDS

    def tell(what: str, share: float) -> None:
        nonlocal due
        if console.is_interactive:
            if bar.live.is_started:
                bar.update(bar.task_ids[0], description=what, completed=share)
            elif time.monotonic() >= due:
                bar.update(bar.add_task(what, total=1.0), completed=share)
                bar.start()
        elif time.monotonic() >= due:
            print(f"cvgnn: {what}, {100 * share:.0f}% done", file=sys.stderr, flush=True)
            due = time.monotonic() + _LINE_EVERY_SECONDS

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()
