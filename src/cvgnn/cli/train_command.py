"""`cvgnn train`: one training run from the shell."""

from __future__ import annotations

import dataclasses
import os
import shlex
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from cvgnn._version import __version__
from cvgnn.cli.argv import is_given, option
from cvgnn.cli.config_file import as_toml
from cvgnn.cli.console import TrainProgress
from cvgnn.cli.options import TrainCommand
from cvgnn.cli.output import given_globally, only_errors, set_result
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.distributed.partition import Partition, is_partition
from cvgnn.distributed.ranks import Ranks
from cvgnn.distributed.sharded_run import RankLog, ShardedProcesses, check_ranks, launch
from cvgnn.errors import CvgnnError, require
from cvgnn.registry import plugin_options
from cvgnn.training import Callback
from cvgnn.training.defaults import choose_config
from cvgnn.training.graph_source import load_source, report_lost_graph
from cvgnn.training.processes import ONE, Processes
from cvgnn.training.run import train
from cvgnn.training.run_folder import RunFolder
from cvgnn.training.tensorboard import TensorBoard, require_tensorboard
from cvgnn.training.trainer_builder import check


def train_command(command: TrainCommand, argv: Sequence[str]) -> int:
    """Train with a progress bar, print the result."""
    path = command.source.graph
    path = path if path is not None and is_partition(path) else None
    check_ranks(path, command.ranks)
    if path is None:
        return _train(command, argv, ONE)
    with closing(Ranks(command.timeout)) as ranks:
        return _train(command, argv, ShardedProcesses(Partition(path), ranks))


def _train(command: TrainCommand, argv: Sequence[str], processes: Processes) -> int:
    config, path, leads = command.config, command.resume or command.out, processes.rank == 0
    sharded = processes if isinstance(processes, ShardedProcesses) else None
    if not leads:
        only_errors()
    events = _event_folder(command)
    # torchrun starts the same command again after a failure (--max-restarts): it continues the run that it finds.
    # Its count may differ between hosts, so that of any rank counts.
    restarts = processes.most(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
    restarted = restarts > 0 and command.out is not None and (command.out / "config.json").is_file()
    resume = command.resume is not None or restarted
    folder = None if path is None else RunFolder(path, resume=resume)
    from_file = command.resume is not None or command.settings is not None
    trusted = not from_file or option(argv, "--root") is not None
    started = time.perf_counter()
    if sharded is None:
        graph = load_source(command.source, trusted=trusted, task=config.task)
    else:
        graph = sharded.graph(command.source, config.task)
    defaults = command.defaults or ("fixed" if from_file else "auto")
    if defaults != "fixed":
        require(not from_file, "--defaults has no use with --resume or --settings, which hold every option")
        given = {name: value for name, value in vars(config).items() if is_given(argv, name)}
        config = choose_config(graph, defaults, given)
    if command.print_config:
        if leads:
            print(_settings(command, config), end="")
        return 0
    check(graph, config, memory=command.check_memory and sharded is None)
    callbacks: list[Callback] = []
    if sharded is not None:
        sharded.check(config, ranks=command.ranks)
        if command.ranks > sharded.ranks.size:
            return launch(command.ranks, ["train", *argv, *given_globally(), *plugin_options()])
        plan = dataclasses.asdict(command.plan)
        sharded.require_equal({**config.to_dict(), **plan, "out": str(path), "resume": resume, "exact": command.exact})
        callbacks += [] if path is None else [RankLog(path, sharded)]
    console = TrainProgress(graph, config, ignore_write_errors=folder is not None)
    if leads:
        console.header()
        callbacks.append(console)
    if events is not None and leads:
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
            started=started,
            processes=processes,
        )
    if leads:
        console.summary(run.result, path)
        set_result({**run.result, "out": None if path is None else str(path)})
    return 0


def _settings(command: TrainCommand, config: TrainConfig) -> str:
    """What `--print-config` prints: every option that decides the result."""
    default = TrainConfig().to_dict()
    own = {name: value for name, value in command.source.to_dict().items() if value != getattr(GraphSource(), name)}
    # TOML has no None; the command line reads the word.
    values = {
        name: "None" if value is None and default[name] is not None else value
        for name, value in config.to_dict().items()
    }
    return as_toml({**own, "defaults": "fixed", **values}, f"cvgnn train --config FILE, cvgnn {__version__}")


def _event_folder(command: TrainCommand) -> Path | None:
    """The folder for TensorBoard's event files; None without --tensorboard."""
    if command.tensorboard is None:
        return None

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
