"""`cvgnn diagnose bias-vs-lr`: how the gradient's bias grows with the learning rate."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args, get_type_hints

import tyro

from cvgnn.cli.diagnose_theory import processes, say_unused, theory_config, with_batch_size
from cvgnn.cli.diagnosing import DiagnoseCommand, finish, measuring, parse_diagnose, source_and_config
from cvgnn.config import TrainConfig
from cvgnn.errors import unknown_name


@dataclass(frozen=True, kw_only=True)
class BiasCommand(DiagnoseCommand):
    """Measure how the gradient's bias grows with the learning rate; Lemma 6 says like lr^1.

    The gradient of a step is biased because histories are stale, and they are staler the faster weights move. For each
    seed, --burn-in epochs are trained as the options say; from there, for every learning rate, the histories start
    exact and --steps steps are taken, until they are as old as training makes them. Then the mean of the gradient over
    batches and neighbors is compared with the exact one. Dropout is off. If neither --run nor --batch-size is given, a
    batch has a tenth of the training nodes, at most 256.
    """

    lrs: tuple[float, ...] = ()
    """Learning rates, increasing; 1e-5 to 1e-1 in half decades if not given."""

    stepper: Literal["sgd", "heavy-ball", "adam", "amsgrad", "adagrad"] = "sgd"
    """Whose steps (in the paper's form) make the histories stale; sgd is the lemma's own setting."""

    seeds: int = 5
    """How many seeds, from --seed on."""

    draws: int | None = None
    """Neighbor draws at each point; if not given, 20,000 / training nodes, at least 16 and at most 128."""

    steps: int | None = None
    """Steps with each learning rate; if not given, until 95 % of the histories that are read have been written."""

    burn_in: int = 5
    """Epochs before, as --optimizer, --lr and so on say."""

    workers: int | None = None
    """Processes at a time, all cores if not given; the numbers do not depend on it."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=theory_config)


def bias_command(words: Sequence[str]) -> int:
    """Parse the options, measure, print and write; returns the exit code."""
    command = parse_diagnose(BiasCommand, words, kind="bias-vs-lr")

    steppers = get_args(get_type_hints(BiasCommand)["stepper"])
    if command.stepper not in steppers:
        raise unknown_name("stepper", command.stepper, steppers)

    from cvgnn.diagnose.bias_vs_lr import LRS, diagnose_bias

    started = time.monotonic()
    graph, config = source_and_config(command, words)
    config = with_batch_size(config, graph, command, words)
    say_unused(config, words)
    with measuring(command, graph) as tell:
        diagnosis = diagnose_bias(
            graph,
            config,
            lrs=command.lrs or LRS,
            optimizer=command.stepper,
            seeds=command.seeds,
            draws=command.draws,
            steps=command.steps,
            burn_in=command.burn_in,
            workers=processes(command.workers, graph),
            tell=tell,
        )
    return finish(diagnosis, command, words, started=started)
