"""What is diagnosed: a network amid its training, in float64, fresh or from the checkpoint of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from cvgnn.checkpoint import Checkpoints
from cvgnn.config import TrainConfig
from cvgnn.diagnose.gradient import NODES_PER_PIECE
from cvgnn.errors import CvgnnError, require, require_integer
from cvgnn.experiments.memory import available_bytes, estimate, gib
from cvgnn.experiments.run import build_trainer, check
from cvgnn.experiments.session import Say, to_stderr
from cvgnn.experiments.settings import read_settings
from cvgnn.graph import Graph
from cvgnn.limits import MAX_EPOCHS
from cvgnn.training import Diverged, Trainer, restore_trainer
from cvgnn.training.trainer import Position

# Draws for measuring are those of steps and epochs that no training reaches, so they are independent of training's.
FIRST_STEP = 1 << 48
FIRST_EPOCH = 1 << 48


def in_float64(graph: Graph) -> Graph:
    """The same graph with features in float64, so that all that is computed from it is."""
    if graph.x.dtype == torch.float64:
        return graph
    return dataclasses.replace(graph, x=graph.x.to(torch.float64), PX=None, PX_normalization=None, validated=True)


def to_be_measured(config: TrainConfig) -> TrainConfig:
    """The same config for a training that stops at a step that is not finite: one without it is not what it says. Its
    features are not rounded: what is measured in float64 would hold the rounding of every product."""
    return dataclasses.replace(config, bad_step="stop", feature_dtype="float32")


def fresh_trainer(graph: Graph, config: TrainConfig) -> Trainer:
    """A run before its first step, in float64, that never looks at accuracies and leaves out no step."""
    config = dataclasses.replace(to_be_measured(config), output="last")
    check(graph, config, memory=False)
    trainer = build_trainer(_that_fits(graph, config), config)
    trainer.evaluator = None
    return trainer


def trainer_of_run(folder: Path, graph: Graph, *, say: Say = to_stderr) -> Trainer:
    """A run where its newest checkpoint left it: weights, histories and optimizer, cast to float64. It leaves out no
    step that it is trained on.

    Args:
        folder: of `cvgnn train --out`; it is only read.
        graph: what the run was trained on.
        say: told of damaged checkpoints that are passed over.
    """
    config = to_be_measured(read_settings(folder / "config.json")[1])
    found = Checkpoints(folder / "checkpoints", say=say).newest()
    if found is None:
        raise CvgnnError(f"{folder} holds no checkpoint; train with cvgnn train --out, which saves one at its end")
    check(graph, config, memory=False)
    trainer = build_trainer(_that_fits(graph, config), config, initialize=False)
    try:
        restore_trainer(trainer, _InFloat64(found.tensors), found.body.get("trainer"))
    except CvgnnError as error:
        raise CvgnnError(f"the checkpoint {found.path} does not fit the graph {graph.name!r}: {error}") from None
    trainer.evaluator = None
    return trainer


def recorded(config: TrainConfig, run: Path | None) -> dict[str, Any]:
    """What a diagnosis tells of how the numbers came about: how it measured, and how its subject was trained.

    Args:
        config: of the measurement.
        run: folder of the run that it was made of; its own config, with which it also trains on, is told too.
    """
    config = to_be_measured(config)
    trained_as = config if run is None else read_settings(run / "config.json")[1]
    return {**config.to_dict(), "from_run": run is not None, "trained_as": trained_as.to_dict()}


def _that_fits(graph: Graph, config: TrainConfig) -> Graph:
    """The graph in float64; refused where a run and its exact gradient, over whole neighborhoods, need more memory."""
    doubled = in_float64(graph)
    whole = dataclasses.replace(config, estimator="exact", batch_size=min(NODES_PER_PIECE, graph.train_ids.numel()))
    needed = {**estimate(doubled, config), "a batch": estimate(doubled, whole)["a batch"]}
    total, there = sum(needed.values()), available_bytes()
    if there is not None and total > there:
        raise CvgnnError(
            f"diagnosing in float64 takes about {gib(total)} GiB of memory beside the graph, and {gib(there)} GiB "
            f"are free; a smaller hidden than {config.hidden} takes less, and a part of the graph"
        )
    return doubled


def stops(trainer: Trainer, steps: Sequence[int]) -> Iterator[int]:
    """Train on, and stop after each of these numbers of further steps; yields the number.

    Args:
        trainer: trained while this is iterated over, from the batch that follows its `iterations` on.
        steps: numbers of steps from here; 0 stops before the first.
    """
    wanted = {require_integer("steps", step, at_least=0, at_most=MAX_EPOCHS) for step in steps}
    require(bool(wanted), "steps is empty; name at least one number of steps, such as 0")
    epochs, steps_of_epoch = divmod(trainer.iterations, trainer.loader.steps_per_epoch)
    trainer.position = Position(epoch=epochs + 1, steps=steps_of_epoch)
    done, last, epoch = 0, max(wanted), epochs + 1
    if 0 in wanted:
        yield 0

    def after_step() -> None:
        nonlocal done
        done += 1
        if done in wanted:
            raise _Pause

    while done < last:
        try:
            trainer.train_epoch(epoch, after_step=after_step)  # the rest of it, where it was left
            epoch += 1
        except _Pause:
            yield done


def where_it_diverged(error: Diverged) -> str:
    """A sentence for a finding that ends before training did.

    >>> where_it_diverged(Diverged(7, "the loss is nan", [3]))
    'Training diverged at step 7: the loss is nan. What is shown was measured before; choose a smaller lr for more.'
    """
    measured = "What is shown was measured before; choose a smaller lr for more."
    return f"Training diverged at step {error.step}: {error.what}. {measured}"


class _Pause(Exception):
    """Training is to wait, amid an epoch."""


@final
class _InFloat64(Mapping[str, Tensor]):
    """The tensors of a checkpoint, float32 ones cast; single numbers, such as a count of steps, and bfloat16 are not.

    Args:
        tensors: as they are in the file, each read when it is asked for.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._tensors[name]
        return tensor.double() if tensor.dtype == torch.float32 and tensor.dim() > 0 else tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
