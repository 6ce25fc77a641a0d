"""Histories: made exact, which rows of them training reads, and how many steps it takes to write those."""

from __future__ import annotations

import torch
from torch import Tensor

from cvgnn.nn import ControlVariate, each_hidden
from cvgnn.training import Trainer


def refresh(trainer: Trainer) -> None:
    """Make the histories exact at the trainer's weights, as at the beginning of a run."""
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


def steps_to_refresh(trainer: Trainer, *, share: float, most: int) -> tuple[int, float]:
    """After how many steps that share of the history rows that training reads has been written, layer by layer.

    Only batches and neighbors are drawn; nothing is trained.

    Args:
        trainer: its loader draws.
        share: of the rows, in the layer where it takes longest.
        most: give up after so many.

    Returns:
        The number of steps, and the share that was reached.
    """
    rows = readable_rows(trainer)
    written = [torch.zeros_like(read) for read in rows]
    reached, step, epoch = 0.0, 0, 0
    while step < most:
        epoch += 1
        for batch in trainer.loader.epoch(epoch):
            step += 1
            for seen, block in zip(written, batch.blocks, strict=True):
                seen[block.sources] = True
            reached = min(float(s[r].double().mean()) for s, r in zip(written, rows, strict=True))
            if reached >= share or step == most:
                return step, reached
    return step, reached
