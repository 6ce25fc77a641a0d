"""Trainers for measurements: in float64, fresh or from a run's checkpoint, stopped at given steps; their histories."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, final

import torch
from torch import Tensor

from cvgnn.config import LOSSES, TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import CvgnnError, error_context, require, require_integer
from cvgnn.lab.diagnose.gradient import NODES_PER_PIECE
from cvgnn.limits import MAX_EPOCHS
from cvgnn.nn import ESTIMATORS, MODELS, ControlVariate, each_hidden
from cvgnn.training import Diverged, Trainer, restore_trainer
from cvgnn.training.checkpoint import Checkpoints
from cvgnn.training.machine import estimate_memory
from cvgnn.training.run_folder import read_settings
from cvgnn.training.trainer import Position
from cvgnn.training.trainer_builder import build_trainer, check
from cvgnn.utils.formatting import format_bytes
from cvgnn.utils.free_memory import available_memory

# Draws for measuring are those of steps and epochs that no training reaches, so they are independent of training's.
FIRST_STEP = 1 << 48
FIRST_EPOCH = 1 << 48

T = TypeVar("T")


def in_float64(graph: Graph) -> Graph:
    """The same graph with features in float64, so that all that is computed from it is."""
    require(graph.graph_ids is None, "diagnose measures on one graph, with labels at nodes, not on a set of graphs")
    if graph.x.dtype == torch.float64:
        return graph
    return dataclasses.replace(graph, x=graph.x.to(torch.float64), PX=None, PX_normalization=None, validated=True)


def measurement_config(config: TrainConfig) -> TrainConfig:
    """The config for a training that skips no step and rounds no features: both would change what is measured."""
    # The gradients here are those of the cross entropy, of networks and estimators that the package knows.
    for name, known in {"loss": LOSSES, "class_weight": (None,), "model": MODELS, "estimator": ESTIMATORS}.items():
        value = getattr(config, name)
        require(value in known, f"diagnose cannot measure {name} {value!r}, only the built-in ones; leave it out")
    require(config.task not in ("edge", "link"), f"diagnose measures gradients over nodes, not task {config.task!r}")
    return dataclasses.replace(config, bad_step="stop", feature_dtype="float32", sampled_start=0)


def fresh_trainer(graph: Graph, config: TrainConfig) -> Trainer:
    """A trainer before its first step, in float64, without evaluation."""
    return _build(graph, dataclasses.replace(measurement_config(config), output="last"))


def start_trainer(graph: Graph, config: TrainConfig, run: Path | None) -> Trainer:
    """`trainer_of_run`, or `fresh_trainer` if there is no run."""
    return fresh_trainer(graph, config) if run is None else trainer_of_run(run, graph)


def trainer_of_run(folder: Path, graph: Graph) -> Trainer:
    """A trainer with the weights, histories and optimizer of a run's newest checkpoint, cast to float64.

    Args:
        folder: of `cvgnn train --out`; it is only read.
        graph: the graph that the run was trained on.
    """
    config = measurement_config(read_settings(folder / "config.json")[1])
    found = Checkpoints(folder / "checkpoints").newest()
    if found is None:
        raise CvgnnError(f"{folder} holds no checkpoint; train with cvgnn train --out, which saves one at its end")
    trainer = _build(graph, config, initialize=False)
    with error_context(f"the checkpoint {found.path} does not fit the graph {graph.name!r}: "):
        restore_trainer(trainer, _InFloat64(found.tensors), found.body.get("trainer"))
    if isinstance(trainer.estimator, ControlVariate):
        for history in trainer.estimator.histories:
            history.values.nan_to_num_()  # rows that the run left out, because nothing reads them
    return trainer


def recorded_settings(config: TrainConfig, run: Path | None) -> dict[str, Any]:
    """The settings of a measurement along training: how it measured, and how the network was trained.

    Args:
        config: of the measurement.
        run: folder of the run whose checkpoint was measured; its config is recorded too.
    """
    config = measurement_config(config)
    trained_as = config if run is None else read_settings(run / "config.json")[1]
    return {**config.to_dict(), "from_run": run is not None, "trained_as": trained_as.to_dict()}


def _build(graph: Graph, config: TrainConfig, *, initialize: bool = True) -> Trainer:
    """A trainer in float64; refused if a run and its exact gradient, over whole neighborhoods, need more memory."""
    check(graph, config, memory=False)
    doubled = in_float64(graph)
    batch_size = min(NODES_PER_PIECE, graph.train_ids.numel())
    whole = dataclasses.replace(config, estimator="exact", control=1.0, batch_size=batch_size)
    needed = {**estimate_memory(doubled, config), "a batch": estimate_memory(doubled, whole)["a batch"]}
    total, free = sum(needed.values()), available_memory()
    if free is not None and total > free:
        raise CvgnnError(
            f"diagnosing in float64 takes about {format_bytes(total)} of memory beside the graph, and "
            f"{format_bytes(free)} are free; a smaller hidden than {config.hidden} takes less, and a part of the graph"
        )
    trainer = build_trainer(doubled, config, initialize=initialize)
    trainer.evaluator = None
    return trainer


def train_until(trainer: Trainer, steps: Sequence[int]) -> Iterator[int]:
    """Train, and pause after each of these numbers of further steps; yields the number.

    Args:
        trainer: trained while this is iterated over, starting with the batch that follows its `iterations`.
        steps: numbers of steps from here; 0 pauses before the first.
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
            trainer.train_epoch(epoch, after_step=after_step)  # continues an epoch that was paused
            epoch += 1
        except _Pause:
            yield done


class _Pause(Exception):
    """Training pauses within an epoch."""


def measure_along_training(
    trainer: Trainer, steps: Sequence[int], measure: Callable[[int], T]
) -> tuple[list[T], Diverged | None]:
    """What `measure` returns after each number of steps, and the divergence that ended training early, if one did.

    It is a `CvgnnError` if nothing was measured before.
    """
    found: list[T] = []
    try:
        for done in train_until(trainer, steps):
            found.append(measure(done))
    except Diverged as error:
        if not found:
            raise CvgnnError(f"training diverged at step {error.step}: {error.what}; choose a smaller lr") from None
        return found, error
    return found, None


def divergence_note(error: Diverged | None) -> str:
    """A sentence to append to the verdict of a measurement that ended early.

    >>> divergence_note(Diverged(7, "the loss is nan", [3]))
    ' Training diverged at step 7: the loss is nan. What is shown was measured before; choose a smaller lr for more.'
    """
    if error is None:
        return ""
    measured = "What is shown was measured before; choose a smaller lr for more."
    return f" Training diverged at step {error.step}: {error.what}. {measured}"


@final
class _InFloat64(Mapping[str, Tensor]):
    """The tensors of a checkpoint, float32 ones cast; scalars, such as a count of steps, and bfloat16 are not.

    Args:
        tensors: as they are in the file; each is read when it is needed, so that only one copy is in memory.
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


def refresh(trainer: Trainer) -> None:
    """Make the histories exact at the trainer's weights, as at the start of a run."""
    estimator = trainer.estimator
    if isinstance(estimator, ControlVariate):
        estimator.initialize(each_hidden(trainer.model, estimator.features, trainer.loader.sampler.propagation))
        for history in estimator.histories:
            history.written.fill_(trainer.iterations)


def readable_rows(trainer: Trainer) -> list[Tensor]:
    """For each hidden layer `k = 1..K-1` the nodes whose history a step can read: bool `[N]`."""
    propagation = trainer.loader.sampler.propagation
    indptr, indices = propagation.indptr.long(), propagation.indices.long()
    owner = torch.repeat_interleave(torch.arange(propagation.num_nodes), indptr.diff())
    reached = torch.zeros(propagation.num_nodes, dtype=torch.bool)
    reached[trainer.loader.train_ids] = True
    rows: list[Tensor] = []
    for _ in range(trainer.model.num_layers - 1):
        reached = reached.clone()
        reached[indices[reached[owner]]] = True
        rows.insert(0, reached)
    return rows


def readable_ages(trainer: Trainer, rows: Sequence[Tensor]) -> list[Tensor]:
    """For each hidden layer the ages in steps of these history rows; none without the control variate."""
    estimator = trainer.estimator
    histories = estimator.histories if isinstance(estimator, ControlVariate) else []
    return [history.age(trainer.iterations)[read] for history, read in zip(histories, rows, strict=False)]


def steps_to_refresh(trainer: Trainer, *, share: float, most: int) -> tuple[int, float]:
    """The number of steps until that share of the history rows that training reads has been written.

    Only batches and neighbors are drawn; nothing is trained.

    Args:
        trainer: its loader draws.
        share: of the rows, in the layer where it takes longest.
        most: give up after so many steps.

    Returns:
        The number of steps, and the share that was reached.
    """
    rows = readable_rows(trainer)
    written = [torch.zeros_like(read) for read in rows]
    batches = itertools.chain.from_iterable(map(trainer.loader.epoch, itertools.count(1)))
    for step, batch in enumerate(batches, start=1):
        for seen, block in zip(written, batch.blocks, strict=True):
            seen[block.sources] = True
        reached = min(float(s[r].double().mean()) for s, r in zip(written, rows, strict=True))
        if reached >= share or step == most:
            break
    return step, reached
