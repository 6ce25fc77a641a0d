"""`cvgnn train`: one training run from the shell."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cvgnn.cli.options import parse
from cvgnn.config import GraphSource, TrainConfig


@dataclass(frozen=True, kw_only=True)
class TrainCommand:
    """Train a graph convolutional network on a data set and report its accuracy.

    The defaults train the bundled CiteSeer graph in a few seconds.
    --out DIR keeps config.json, metrics.jsonl, result.json and weights.safetensors.
    """

    source: Annotated[GraphSource, tyro.conf.arg(name="")] = dataclasses.field(default_factory=GraphSource)

    out: Path | None = None
    """Folder for the run's files, new or empty; nothing is written if not given."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=TrainConfig)


def train_command(words: Sequence[str]) -> int:
    """Parse the options, train, show progress, print the result."""
    command = parse(TrainCommand, words, prog="cvgnn train")

    # Only now: torch takes seconds to import, and --help or a wrong word should not wait for it.
    from cvgnn._version import __version__
    from cvgnn.cli.console import Console
    from cvgnn.experiments.folder import RunFolder
    from cvgnn.experiments.run import check, train
    from cvgnn.experiments.source import load_source
    from cvgnn.training import EpochRecord, Recorder

    config = command.config
    folder = None if command.out is None else RunFolder(command.out)
    graph = load_source(command.source)
    check(graph, config)
    if folder is not None:
        folder.write_config({"version": __version__, **command.source.to_dict(), **config.to_dict()})
    with Recorder(None if folder is None else folder.metrics) as recorder, Console(graph, config) as console:

        def on_epoch(record: EpochRecord) -> None:
            recorder.write(record)
            console.show(record)

        run = train(graph, config, on_epoch=on_epoch)
    if folder is not None:
        folder.write_result(run.result, run.model)
    console.summary(run.result, command.out)
    return 0
