"""`cvgnn train`: one training run from the shell."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from cvgnn.cli.argv import is_given, option, parse
from cvgnn.config import CheckpointPlan, GraphSource, TrainConfig
from cvgnn.errors import CvgnnError, require, require_integer, require_number
from cvgnn.registry import plugin_options

if TYPE_CHECKING:
    from cvgnn.training import Callback
    from cvgnn.training.processes import Processes


@dataclass(frozen=True, kw_only=True)
class TrainCommand:
    """Train a graph neural network on a data set and report its accuracy.

    The defaults train the bundled CiteSeer graph in a few seconds.
    --out DIR keeps config.json, metrics.jsonl, result.json, weights.safetensors and the run's checkpoints.
    --resume DIR continues a run that was stopped or killed, with the same result as without the stop.
    """

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Path | None = None
    """Folder for the run's files, new or empty; nothing is written if not given."""

    resume: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Continue the run in this folder, with its own options; the number of epochs may grow."""

    settings: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Read options from this .toml file, or from the config.json of another run; options given here override them."""

    defaults: Literal["auto", "fixed", "paper"] | None = None
    """Values of the options that are not given: auto = chosen from the size and the labels of the graph (the default
    with --graph), fixed = those in this help (else), paper = the paper's."""

    plan: Annotated[CheckpointPlan, tyro.conf.arg(name="")] = dataclasses.field(default_factory=CheckpointPlan)

    tensorboard: Annotated[tuple[Path, ...] | None, tyro.conf.arg(metavar="[DIR]")] = None
    """Also write event files for TensorBoard into this folder, by default tensorboard/ in the run's folder."""

    check_memory: bool = True
    """Refuse a run that does not fit into memory, before it starts."""

    ranks: int = 1
    """Start so many processes on this machine, for a graph that cvgnn partition has written (docs/distributed.md)."""

    timeout: float = 300.0
    """With several ranks: seconds after which a rank that does not answer ends the run."""

    exact: bool = False
    """With --resume: refuse other versions of cvgnn, torch or numpy and another processor, which may change the last
    bits of the result; without this option they are a warning."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=TrainConfig)


def train_command(argv: Sequence[str]) -> int:
    """Parse the options, train with a progress bar, print the result."""
    command = _parse(argv)
    require_integer("ranks", command.ranks, at_least=1)
    require_number("timeout", command.timeout, "a number of at least 1", at_least=1.0)

    # Imported here: torch takes seconds to import, and --help or a wrong option should not wait for it.
    from cvgnn.distributed.partition import Partition, is_partition
    from cvgnn.distributed.ranks import Ranks, world_size
    from cvgnn.distributed.sharded_run import ShardedProcesses
    from cvgnn.training.processes import ONE

    path, started = command.source.graph, world_size()
    if path is None or not is_partition(path):
        require(
            max(command.ranks, started) == 1,
            "several ranks train on a partitioned graph; make one with 'cvgnn partition' and name it with --graph",
        )
        return _train(command, argv, ONE)
    require(1 in (started, command.ranks) or started == command.ranks, f"{started} ranks run; leave --ranks out")
    with closing(Ranks(command.timeout)) as ranks:
        return _train(command, argv, ShardedProcesses(Partition(path), ranks))


def _train(command: TrainCommand, argv: Sequence[str], processes: Processes) -> int:
    from cvgnn.cli.console import TrainProgress
    from cvgnn.cli.output import given_globally, only_errors, set_result
    from cvgnn.distributed.sharded_run import RankLog, ShardedProcesses, launch
    from cvgnn.training.defaults import choose_config
    from cvgnn.training.graph_source import load_source, report_lost_graph
    from cvgnn.training.run import train
    from cvgnn.training.run_folder import RunFolder
    from cvgnn.training.trainer_builder import check

    config, path, leads = command.config, command.resume or command.out, processes.rank == 0
    sharded = processes if isinstance(processes, ShardedProcesses) else None
    if not leads:
        only_errors()
    events = _event_folder(command)
    # torchrun starts the same command again after a failure (--max-restarts): it continues the run that it finds.
    restarted = command.out is not None and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    resume = command.resume is not None or (restarted and (command.out / "config.json").is_file())  # type: ignore[operator]
    folder = None if path is None else RunFolder(path, resume=resume)
    for name in ("check_memory", "exact"):
        value = getattr(command, name)
        require(isinstance(value, bool), f"{name} must be True or False, not {value!r}")
    from_file = command.resume is not None or command.settings is not None
    graph = (
        load_source(command.source, trusted=not from_file or option(argv, "--root") is not None)
        if sharded is None
        else sharded.graph(command.source)
    )
    defaults = command.defaults or ("fixed" if from_file or command.source.graph is None else "auto")
    if defaults != "fixed":
        require(not from_file, "--defaults has no use with --resume or --settings, which hold every option")
        given = {name: value for name, value in vars(config).items() if is_given(argv, name)}
        config = choose_config(graph, defaults, given)
    check(graph, config, memory=command.check_memory and sharded is None)
    callbacks: list[Callback] = []
    if sharded is not None:
        sharded.check(config, ranks=command.ranks)
        if command.ranks > sharded.ranks.size:
            return launch(command.ranks, ["train", *argv, *given_globally(), *plugin_options()])
        sharded.require_equal({**config.to_dict(), "out": str(path)})
        callbacks += [] if path is None else [RankLog(path, sharded)]
    console = TrainProgress(graph, config, ignore_write_errors=folder is not None)
    if leads:
        console.header()
        callbacks.append(console)
    if events is not None and leads:
        from cvgnn.training.tensorboard import TensorBoard

        callbacks.append(TensorBoard(events, config, options=command.source.to_dict(), resume=resume))
    advice = "start again" if path is None else f"continue with: cvgnn train --resume {path}"
    with report_lost_graph(command.source, advice):
        run = train(
            graph,
            config,
            callbacks=callbacks,
            folder=folder,
            source=command.source,
            plan=command.plan,
            command=shlex.join(["cvgnn", "train", *argv, *plugin_options()]),
            exact=command.exact,
            processes=processes,
        )
    if leads:
        console.summary(run.result, path)
        set_result({**run.result, "out": None if path is None else str(path)})
    return 0


def _event_folder(command: TrainCommand) -> Path | None:
    """The folder for TensorBoard's event files; None without --tensorboard."""
    if command.tensorboard is None:
        return None
    from cvgnn.training.tensorboard import require_tensorboard

    require_tensorboard()
    require(len(command.tensorboard) < 2, f"--tensorboard takes one folder, not {len(command.tensorboard)}")
    if command.tensorboard:
        return command.tensorboard[0]
    run = command.resume or command.out
    if run is None:
        raise CvgnnError("--tensorboard writes into the run's folder; give --out, or name a folder: --tensorboard DIR")
    folder = run / "tensorboard"
    require(not folder.is_symlink(), f"{folder} is a link; a run writes inside its own folder: remove the link")
    return folder


def _parse(argv: Sequence[str]) -> TrainCommand:
    """The command; its defaults come from the run folder or file that it names."""
    resume, settings = option(argv, "--resume"), option(argv, "--settings")
    require(resume != "", "--resume needs the folder of a run, such as --resume runs/a")
    require(resume is None or settings is None, "give either --resume or --settings, not both")
    file = Path(resume) / "config.json" if resume is not None else Path(settings) if settings is not None else None
    if file is None or "--help" in argv or "-h" in argv:
        return parse(TrainCommand, argv, prog="cvgnn train")
    from cvgnn.training.resume import check_resume_options
    from cvgnn.training.run_folder import check_is_folder, read_settings

    if resume is not None:
        check_is_folder(Path(resume))
    source, config = read_settings(file)
    default = TrainCommand(source=source, config=config)
    command = parse(TrainCommand, argv, prog="cvgnn train", default=default)
    if resume is not None:
        require(command.out is None, "--resume continues in its own folder; leave --out out")
        then, now = ({**c.source.to_dict(), **c.config.to_dict()} for c in (default, command))
        check_resume_options(then, now, folder=Path(resume))
    return command
