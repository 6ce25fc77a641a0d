"""`cvgnn diagnose estimator`: bias and variance of a step's gradient."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

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
from cvgnn.errors import CvgnnError, require_integer

_STEPS = (1, 4, 16, 64, 256)
_MEASURING = ("seed", "batch_size", "num_neighbors", "scheme", "threads")


@dataclass(frozen=True, kw_only=True)
class EstimatorCommand(DiagnoseCommand):
    """Measure how far a step's gradient is from the exact one, and why: bias, the batch, the neighbors drawn.

    cvgnn diagnose estimator --batch-size 20 --estimators cv ns --fan-outs 2 5 --out d/estimator
    Trains as the options say, stops after the --steps, and draws batches and neighbors again and again at those weights
    and histories. In float64 and without dropout; dropout is as configured while training.
    With --run DIR the weights and histories are those of the run's newest checkpoint.
    """

    estimators: Annotated[tuple[str, ...], tyro.conf.arg(metavar="{cv,ns,exact} ...")] = ("cv", "ns")
    """Estimators to compare."""

    schemes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SCHEME ...")] = ()
    """Ways to draw neighbors to compare; --scheme if none are named."""

    fan_outs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="INT ...")] = ()
    """Fan-outs to compare, for several hops joined by commas (10,5); --num-neighbors if none are named."""

    steps: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...")] = _STEPS
    """Measure after so many steps of training; with --run counted from its checkpoint, and 0 if not given."""

    batch: Literal["resampled", "fixed"] = "resampled"
    """resampled = batches are drawn too, against the gradient of all training nodes; fixed = one, against its own."""

    resamples: int = 64
    """Batches drawn, at each step."""

    draws: int = 4
    """Draws of neighbors for each batch."""

    test_draws: int = 200
    """Draws of all rows of P^ for the test of unbiasedness."""


def estimator_command(words: Sequence[str]) -> int:
    """Parse the options, measure, print and write."""
    command = parse_diagnose(EstimatorCommand, words, kind="estimator")
    fan_outs = [_numbers(word) for word in command.fan_outs]
    if command.batch != "fixed":
        require_integer("--resamples", command.resamples, at_least=3, at_most=10_000)
    started = time.monotonic()

    # Only now: torch takes seconds to import, and --help or a wrong word should not wait for it.
    from cvgnn.diagnose import diagnose_estimator

    graph, config = source_and_config(command, words)
    if command.run is not None:
        refuse_changes(command, free=_MEASURING)
    if config.bad_step != "stop" and given(words, "--bad-step"):
        say_left_out(["--bad-step"])  # a training that leaves out steps is not the one that is asked about
    steps = (0,) if command.run is not None and option(words, "--steps") is None else command.steps
    with measuring(command, graph) as tell:
        diagnosis = diagnose_estimator(
            graph,
            config,
            estimators=command.estimators,
            schemes=command.schemes,
            fan_outs=fan_outs,
            steps=steps,
            batch=command.batch,
            batches=command.resamples,
            draws=command.draws,
            test_draws=command.test_draws,
            run=command.run,
            tell=tell,
        )
    return finish(diagnosis, command, words, started=started)


def _numbers(word: str) -> list[int]:
    try:
        return [int(part) for part in word.split(",")]
    except ValueError:
        raise CvgnnError(
            f"--fan-outs must be whole numbers, such as 2 5 or, for two hops, 10,5; not {word!r}"
        ) from None
