"""`cvgnn diagnose bound`: the constants of Theorem 1, and the bounds they give."""

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
class BoundCommand(DiagnoseCommand):
    """Measure the constants of Theorem 1 along runs, and put both sides of every theorem beside each other.

    Every step is looked at: exact and stochastic gradient, both moments, and Lemma 1's identity; at some iterates the
    curvature (power iteration on Hessian-vector products) and the bias. The optimizers are in the paper's form, batches
    are drawn with replacement, without dropout. With the usual --nu-min of 1e-8 the bounds of the adaptive optimizers
    are astronomical; a larger --nu-min brings them down. If neither --run nor --batch-size is
    given, a batch has a tenth of the training nodes, at most 256. --optimizer, --lr and --epochs have no use here.
    """

    optimizers: tuple[str, ...] = ("sgd", "heavy-ball", "adam", "amsgrad", "adagrad")
    """Which."""

    steps: int = 256
    """The length T of the runs."""

    eta: float | None = None
    """alpha = eta / sqrt(T); if not given, such that lr is 0.8 (sgd, heavy-ball) or 0.05 (others)."""

    seeds: int = 2
    """How many seeds, from --seed on."""

    points: int = 3
    """Iterates of each run at which curvature and bias are measured, at least 2: the first and the last."""

    draws: int = 16
    """Neighbor draws for the bias."""

    workers: int | None = None
    """Processes at a time, all cores if not given; the numbers do not depend on it."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=theory_config)


def bound_command(words: Sequence[str]) -> int:
    """Parse the options, measure, print and write; returns the exit code."""
    command = parse_diagnose(BoundCommand, words, kind="bound")

    from cvgnn.diagnose.bound_vs_theory import diagnose_bound

    started = time.monotonic()
    graph, config = source_and_config(command, words)
    config = with_batch_size(config, graph, command, words)
    say_unused(config, words, optimizers=command.optimizers)
    with measuring(command, graph) as tell:
        diagnosis = diagnose_bound(
            graph,
            config,
            optimizers=command.optimizers,
            steps=command.steps,
            etas=None if command.eta is None else dict.fromkeys(command.optimizers, command.eta),
            seeds=command.seeds,
            points=command.points,
            draws=command.draws,
            workers=processes(command.workers, graph),
            tell=tell,
        )
    return finish(diagnosis, command, words, started=started)
