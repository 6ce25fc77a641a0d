"""The objective `F`, its exact gradient and its curvature, and the gradient of a batch, as flat vectors.

Legend: `F(W) = 1/|V_L| sum_{v in V_L} f(y_v, Z^(K)[v]) [+ weight_decay/2 ||W||^2]` with full neighborhoods and without
dropout (eq. 3); `G` its estimate from a batch; `rho` the Lipschitz constant of `grad F` (Assumption 1). Measuring
changes nothing: neither weights nor `.grad`s nor histories.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.nn import Estimator, Network, SampledSum
from cvgnn.ops.backend import plain
from cvgnn.sampling import Batch, BatchLoader, NeighborSampler
from cvgnn.training import Task, Trainer

NODES_PER_PIECE = 1 << 14
"""The exact gradient keeps this many nodes with all their neighbors in memory at a time."""


class Gradient(NamedTuple):
    """A loss, and its gradient by all parameters in the order of `model.parameters()`: `[d]`."""

    loss: float
    vector: Tensor


class Curvature(NamedTuple):
    """The result of a power iteration.

    Args:
        value: the largest absolute eigenvalue, `||H v||` for the last `v` of norm 1.
        change: relative change of it in the last round.
        rounds: number of products.
    """

    value: float
    change: float
    rounds: int


def layer_slices(model: Network) -> list[slice]:
    """The positions of each layer's parameters in a flat gradient, layer 0 first."""
    slices, start = [], 0
    for k in range(model.num_layers):
        size = sum(p.numel() for p in model.layer(k).parameters())
        slices.append(slice(start, start + size))
        start += size
    return slices


def flat_weights(model: Network) -> Tensor:
    """`W` as one vector `[d]`, a copy."""
    return _flat([p.detach() for p in model.parameters()])


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


def batch_gradient(
    model: Network, batch: Batch, estimator: Estimator, task: Task, *, dropout: bool = False
) -> Gradient:
    """`G`, the gradient that a training step would compute from this batch, without weight decay.

    Args:
        model: holds `W`.
        batch: the drawn nodes, receptive fields and sampled matrices.
        estimator: exact, sampled or control variate; the history rows that it stages are discarded.
        task: the loss.
        dropout: whether with the masks of step `batch.step`.
    """
    loss = _loss(model, batch, estimator, task, dropout=dropout)
    return Gradient(float(loss.detach()), _flat(torch.autograd.grad(loss, list(model.parameters()))))


def _loss(model: Network, batch: Batch, estimator: Estimator, task: Task, *, dropout: bool = False) -> Tensor:
    with with_dropout(model, dropout):
        rows = model(batch, estimator)
    estimator.discard()
    return task.loss(rows, batch, model.readout)


@final
class Objective:
    """`F` over the training nodes of a trainer; neighborhoods are laid out once, for many calls.

    ReLU makes `F` smooth in pieces only: `grad F` jumps where an entry of `Z` changes its sign, and no `rho` holds
    everywhere. The curvature is that of the piece in which the weights lie, a local estimate from below.

    Args:
        trainer: has the graph, the training nodes and the task; its model is not kept.
        weight_decay: L2 coefficient that belongs to `F`.
    """

    def __init__(self, trainer: Trainer, *, weight_decay: float = 0.0) -> None:
        theirs = trainer.loader
        sampler = NeighborSampler(
            theirs.sampler.propagation, num_neighbors=-1, num_layers=trainer.model.num_layers, control=False
        )
        self._loader = BatchLoader(theirs.train_ids, sampler, batch_size=NODES_PER_PIECE, mode=theirs.mode)
        self._estimator = SampledSum(trainer.estimator.features)
        self._task = trainer.task
        self._weight_decay = weight_decay

    @cached_property
    def _pieces(self) -> list[tuple[float, Batch]]:
        """Parts of the training nodes, and each one's share of `F`."""
        ids = self._loader.train_ids
        pieces = torch.split(ids, NODES_PER_PIECE)
        return [(piece.numel() / ids.numel(), self._loader.batch(piece, step=0)) for piece in pieces]

    def __call__(self, model: Network) -> Gradient:
        """`F(W)` and `grad F(W)`."""
        W = flat_weights(model).double()
        loss, vector = 0.5 * self._weight_decay * float(W @ W), self._weight_decay * W
        for share, batch in self._pieces:
            part = batch_gradient(model, batch, self._estimator, self._task)
            loss += share * part.loss
            vector += share * part.vector.double()
        return Gradient(loss, vector)

    def batch(self, model: Network, ids: Tensor) -> Tensor:
        """The exact gradient over some of the training nodes, without weight decay, `[d]`."""
        batch = self._loader.batch(ids, step=0)
        return batch_gradient(model, batch, self._estimator, self._task).vector

    def differentiable_gradient(self, model: Network) -> Tensor:
        """`grad F(W)` as one vector `[d]` that autograd can differentiate again."""
        parameters = list(model.parameters())
        gradient = self._weight_decay * _flat(parameters)
        for share, batch in self._pieces:
            with plain():  # plain operations have all derivatives, the fused ones only the first
                loss = share * _loss(model, batch, self._estimator, self._task)
            gradient = gradient + _flat(torch.autograd.grad(loss, parameters, create_graph=True))
        return gradient

    def hessian_product(self, model: Network, vector: Tensor) -> Tensor:
        """The Hessian of `F` times a vector, `[d]`."""
        return _derivative(self.differentiable_gradient(model), model, vector)

    def curvature(self, model: Network, *, rounds: int = 30, tolerance: float = 1e-3, seed: int = 0) -> Curvature:
        """The largest absolute eigenvalue of the Hessian by power iteration: from below, closer with more rounds.

        Args:
            model: holds `W`.
            rounds: products at most.
            tolerance: stop when the relative change is smaller.
            seed: of the first vector.
        """
        gradient = self.differentiable_gradient(model)
        first = np.random.Generator(np.random.Philox(key=seed)).standard_normal(gradient.numel())
        v = torch.from_numpy(first).to(gradient.dtype)
        value, change = 0.0, float("inf")
        for done in range(1, rounds + 1):
            v = _derivative(gradient, model, v / v.norm())
            before, value = value, float(v.norm())
            if value == 0.0:
                return Curvature(0.0, 0.0, done)
            change = abs(value - before) / value
            if change < tolerance:
                break
        return Curvature(value, change, done)


def _derivative(gradient: Tensor, model: Network, vector: Tensor) -> Tensor:
    parameters = list(model.parameters())
    return _flat(torch.autograd.grad(gradient @ vector, parameters, retain_graph=True, materialize_grads=True))


@contextlib.contextmanager
def with_dropout(model: Network, training: bool) -> Iterator[None]:
    """Switch dropout on or off; afterwards the mode is as before."""
    mode = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(mode)
