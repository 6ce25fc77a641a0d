"""`cvgnn diagnose rate`: how fast the gradient falls with the number of steps."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from cvgnn.cli.diagnose_theory import processes, say_unused, theory_config, with_batch_size
from cvgnn.cli.diagnosing import DiagnoseCommand, finish, measuring, parse_diagnose, source_and_config
from cvgnn.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class RateCommand(DiagnoseCommand):
    """Measure how fast E||grad F(W_tau)||^2 falls with the length T of a run; the theorems say like T^-1/2.

    Every run is Algorithm 1 to the letter: fresh weights, alpha = eta / sqrt(T), batches drawn with replacement, the
    optimizer in the paper's form, no dropout. The gradient is the exact one, at --points iterates of each run. No
    theorem speaks of Adam; it is shown beside the others. If neither --run nor --batch-size is given, a batch has a
    tenth of the training nodes, at most 256. --optimizer, --lr, --epochs and --output have no use here.
    """

    optimizers: tuple[str, ...] = ("sgd", "heavy-ball", "adam", "amsgrad", "adagrad")
    """Which."""

    steps: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    """The lengths T, increasing."""

    eta: float | None = None
    """alpha = eta / sqrt(T); if not given, such that the shortest run has lr 0.8 (sgd, heavy-ball) or 0.05 (others)."""

    seeds: int = 5
    """How many seeds, from --seed on."""

    points: int = 16
    """Iterates of each run at which the exact gradient is computed, one in each equal piece of the run."""

    workers: int | None = None
    """Processes at a time, all cores if not given; the numbers do not depend on it."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=theory_config)


def rate_command(words: Sequence[str]) -> int:
    """Parse the options, measure, print and write; returns the exit code."""
    command = parse_diagnose(RateCommand, words, kind="rate")

    from cvgnn.diagnose.rate_vs_steps import diagnose_rate

    started = time.monotonic()
    graph, config = source_and_config(command, words)
    config = with_batch_size(config, graph, command, words)
    say_unused(config, words, optimizers=command.optimizers)
    with measuring(command, graph) as tell:
        diagnosis = diagnose_rate(
            graph,
            config,
            optimizers=command.optimizers,
            steps=command.steps,
            etas=None if command.eta is None else dict.fromkeys(command.optimizers, command.eta),
            seeds=command.seeds,
            points=command.points,
            workers=processes(command.workers, graph),
            tell=tell,
        )
    return finish(diagnosis, command, words, started=started)
