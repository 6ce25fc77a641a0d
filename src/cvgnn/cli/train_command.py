"""`cvgnn train`: one training run from the shell."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from cvgnn.cli.argv import is_given, option
from cvgnn.cli.console import TrainProgress
from cvgnn.cli.options import TrainCommand
from cvgnn.cli.output import set_result
from cvgnn.errors import CvgnnError, require
from cvgnn.registry import plugin_options
from cvgnn.training import Callback
from cvgnn.training.defaults import choose_config
from cvgnn.training.graph_source import load_source, report_lost_graph
from cvgnn.training.run import train
from cvgnn.training.run_folder import RunFolder
from cvgnn.training.tensorboard import TensorBoard, require_tensorboard
from cvgnn.training.trainer_builder import check


def train_command(command: TrainCommand, argv: Sequence[str]) -> int:
    """Train with a progress bar, print the result."""

    config, path = command.config, command.resume or command.out
    events = _event_folder(command)
    folder = None if path is None else RunFolder(path, resume=command.resume is not None)
    from_file = command.resume is not None or command.settings is not None
    trusted = not from_file or option(argv, "--root") is not None
    started = time.perf_counter()
    graph = load_source(command.source, trusted=trusted, task=config.task)
    defaults = command.defaults or ("fixed" if from_file else "auto")
    if defaults != "fixed":
        require(not from_file, "--defaults has no use with --resume or --settings, which hold every option")
        given = {name: value for name, value in vars(config).items() if is_given(argv, name)}
        config = choose_config(graph, defaults, given)
    check(graph, config, memory=command.check_memory)
    console = TrainProgress(graph, config, ignore_write_errors=folder is not None)
    console.header()
    callbacks: list[Callback] = [console]
    if events is not None:
        options, resume = command.source.to_dict(), command.resume is not None
        callbacks.append(TensorBoard(events, config, options=options, resume=resume))
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
        )
    console.summary(run.result, path)
    set_result({**run.result, "out": None if path is None else str(path)})
    return 0


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
