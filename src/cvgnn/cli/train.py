"""`cvgnn train`: one training run from the shell."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from cvgnn.cli.options import option, parse
from cvgnn.config import CheckpointPlan, GraphSource, TrainConfig
from cvgnn.errors import CvgnnError, require

if TYPE_CHECKING:
    from cvgnn.cli.console import Console
    from cvgnn.training import EpochRecord


@dataclass(frozen=True, kw_only=True)
class TrainCommand:
    """Train a graph neural network on a data set and report its accuracy.

    The defaults train the bundled CiteSeer graph in a few seconds.
    --out DIR keeps config.json, metrics.jsonl, result.json, weights.safetensors and the run's checkpoints.
    --resume DIR goes on with a run that was stopped or killed, as if nothing had happened.
    """

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Path | None = None
    """Folder for the run's files, new or empty; nothing is written if not given."""

    resume: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Go on with the run in this folder, with its own options; the number of epochs may grow."""

    settings: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Take options from this .toml file, or from the config.json of another run; words given here win."""

    plan: Annotated[CheckpointPlan, tyro.conf.arg(name="")] = dataclasses.field(default_factory=CheckpointPlan)

    tensorboard: Annotated[tuple[Path, ...] | None, tyro.conf.arg(metavar="[DIR]")] = None
    """Also write event files for TensorBoard into this folder, or into tensorboard in the run's if none is named."""

    check_memory: bool = True
    """Refuse a run that does not fit into memory, before it begins."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=TrainConfig)


def train_command(words: Sequence[str]) -> int:
    """Parse the options, train, show progress, print the result."""
    command = _parse(words)

    # Only now: torch takes seconds to import, and --help or a wrong word should not wait for it.
    from cvgnn.cli.console import Console
    from cvgnn.experiments.folder import RunFolder
    from cvgnn.experiments.run import check, train
    from cvgnn.experiments.session import train_in
    from cvgnn.experiments.source import load_source

    config, path = command.config, command.resume or command.out
    events = _event_folder(command)
    folder = None if path is None else RunFolder(path, resume=command.resume is not None)
    require(isinstance(command.check_memory, bool), f"check_memory must be True or False, not {command.check_memory!r}")
    from_file = command.resume is not None or command.settings is not None
    graph = load_source(command.source, trusted=not from_file or option(words, "--root") is not None)
    check(graph, config, memory=command.check_memory)
    if folder is None:
        with _guarded(command), Console(graph, config) as console, _watched(command, console, events) as (start, show):
            start([])
            run = train(graph, config, on_epoch=show)
    else:
        with (
            folder.opened(),
            _guarded(command),
            Console(graph, config, must_go_on=True) as console,
            _watched(command, console, events) as (start, show),
        ):
            run = train_in(
                folder,
                graph,
                command.source,
                config,
                plan=command.plan,
                command=shlex.join(["cvgnn", "train", *words]),
                on_start=start,
                on_epoch=show,
                say=console.say,
            )
    console.summary(run.result, path)
    return 0


def _guarded(command: TrainCommand) -> AbstractContextManager[None]:
    """A graph that is read from disk as it is needed may be lost under way."""
    from cvgnn.store import is_store

    source, folder = command.source, command.resume or command.out
    mapped = (source.name or "").startswith("synthetic") if source.graph is None else is_store(source.graph)
    if not mapped:
        return nullcontext()
    from cvgnn.experiments.lost_data import told_if_data_is_lost

    return told_if_data_is_lost("start again" if folder is None else f"go on with: cvgnn train --resume {folder}")


def _event_folder(command: TrainCommand) -> Path | None:
    """Where TensorBoard's event files go; None if none are asked for."""
    if command.tensorboard is None:
        return None
    from cvgnn.experiments.tensorboard import require_tensorboard

    require_tensorboard()
    require(len(command.tensorboard) < 2, f"--tensorboard takes one folder, not {len(command.tensorboard)}")
    if command.tensorboard:
        return command.tensorboard[0]
    run = command.resume or command.out
    if run is None:
        raise CvgnnError("--tensorboard writes into the run's folder; give --out, or name a folder: --tensorboard DIR")
    folder = run / "tensorboard"
    require(not folder.is_symlink(), f"{folder} is a link, and a run writes inside its own folder; remove it")
    return folder


@contextmanager
def _watched(
    command: TrainCommand, console: Console, events: Path | None
) -> Iterator[tuple[Callable[[Sequence[EpochRecord]], None], Callable[[EpochRecord], None]]]:
    """Who is told of the run's beginning and of each epoch: the console, and TensorBoard's event file if asked for."""
    if events is None:
        yield (lambda earlier: None), console.show
        return
    from cvgnn.experiments.tensorboard import EventFile

    options, resume = command.source.to_dict(), command.resume is not None
    with EventFile(events, command.config, options=options, resume=resume, say=console.say) as file:

        def show(record: EpochRecord) -> None:
            console.show(record)
            file.write(record)

        yield file.begin, show


def _parse(words: Sequence[str]) -> TrainCommand:
    """The command, its defaults those of the folder or file that the words name."""
    resume, settings = option(words, "--resume"), option(words, "--settings")
    require(resume != "", "--resume needs the folder of a run, such as --resume runs/a")
    require(resume is None or settings is None, "give either --resume or --settings, not both")
    file = Path(resume) / "config.json" if resume is not None else Path(settings) if settings is not None else None
    if file is None or "--help" in words or "-h" in words:
        return parse(TrainCommand, words, prog="cvgnn train")
    from cvgnn.experiments.settings import read_settings

    if resume is not None and not os.path.isdir(resume):
        raise CvgnnError(f"no run folder at {resume}; give a folder that cvgnn train --out has written")
    source, config = read_settings(file)
    default = TrainCommand(source=source, config=config)
    command = parse(TrainCommand, words, prog="cvgnn train", default=default)
    if resume is not None:
        require(command.out is None, "--resume goes on in its own folder; leave --out out")
        _refuse_changes({**source.to_dict(), **config.to_dict()}, command, resume)
    return command


def _refuse_changes(then: dict[str, Any], command: TrainCommand, folder: str) -> None:
    """Refuse options that differ from those of the run, but for a graph that is elsewhere now and for when to end."""
    from cvgnn.experiments.identity import differences

    now = {**command.source.to_dict(), **command.config.to_dict()}
    free = {name: now[name] for name in ("epochs", "patience", "root", "graph")}
    changes = differences({**then, **free}, now)
    require(
        not changes,
        f"cannot go on with {folder}: {'; '.join(changes)}. Leave these options out, or start a new run with --out "
        "(epochs alone may grow)",
    )
    require(now["epochs"] >= then["epochs"], f"epochs may grow, not shrink from {then['epochs']} to {now['epochs']}")
