"""`cvgnn diagnose history`: age and error of the histories along training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from cvgnn.cli.diagnosing import (
    DiagnoseCommand,
    finish,
    given,
    measuring,
    parse_diagnose,
    refuse_changes,
    say_left_out,
    source_and_config,
)
from cvgnn.cli.options import option


@dataclass(frozen=True, kw_only=True)
class HistoryCommand(DiagnoseCommand):
    """Measure how old the histories are, and how far from what they stand for, along training.

    cvgnn diagnose history --batch-size 20 --steps 1 10 100 1000 --out d/history
    Trains as the options say, in float64, and looks at the histories after each of the --steps.
    With --run DIR it looks at those of the run's newest checkpoint, and trains on from there if --steps are given.
    """

    steps: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...")] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    """Look after so many steps of training; with --run counted from its checkpoint, and 0 if not given."""


def history_command(words: Sequence[str]) -> int:
    """Parse the options, train and look, print and write."""
    command = parse_diagnose(HistoryCommand, words, kind="history")
    started = time.monotonic()

    from cvgnn.diagnose import diagnose_history

    graph, config = source_and_config(command, words)
    if command.run is not None:
        refuse_changes(command, free=("threads",))
    if config.bad_step != "stop" and given(words, "--bad-step"):
        say_left_out(["--bad-step"])  # a training that leaves out steps is not the one that is asked about
    steps = (0,) if command.run is not None and option(words, "--steps") is None else command.steps
    with measuring(command, graph) as tell:
        diagnosis = diagnose_history(graph, config, steps=steps, run=command.run, tell=tell)
    return finish(diagnosis, command, words, started=started)
