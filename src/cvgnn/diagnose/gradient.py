"""Gradients as flat vectors: the exact one of `F` over all training nodes, and the stochastic one of a batch.

Legend: `F(W) = 1/|V_L| sum_{v in V_L} f(y_v, Z^(K)[v]) [+ weight_decay/2 ||W||^2]` with full neighborhoods and without
dropout (eq. 3); `G` its estimate from a batch. Measuring changes nothing: neither weights nor `.grad`s nor histories.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cvgnn.graph import Propagation
from cvgnn.nn import Estimator, Network, SampledSum
from cvgnn.sampling import Batch, BatchLoader, FeatureSource, NeighborSampler
from cvgnn.training.trainer import check_labels

NODES_PER_PIECE = 1 << 14
"""Of the exact gradient: so many nodes with all their neighbors are in memory at a time."""


class Gradient(NamedTuple):
    """A loss, and its gradient by all parameters, one after another as `model.parameters()` has them: `[d]`."""

    loss: float
    vector: Tensor


def layer_slices(model: Network) -> list[slice]:
    """Where in a flat gradient the parameters of each layer stand, layer 0 first."""
    slices, start = [], 0
    for k in range(model.num_layers):
        size = sum(p.numel() for p in model.layer(k).parameters())
        slices.append(slice(start, start + size))
        start += size
    return slices


def flat_weights(model: Network) -> Tensor:
    """`W` as one vector `[d]`, a copy."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def batch_gradient(
    model: Network,
    batch: Batch,
    estimator: Estimator,
    labels: Tensor,
    *,
    weight_decay: float = 0.0,
    label_smoothing: float = 0.0,
) -> Gradient:
    """`G`, the gradient that a training step would compute from this batch, without dropout.

    Args:
        model: holds `W`.
        batch: the drawn nodes, receptive fields and sampled matrices.
        estimator: exact, sampled or control variate; what it stages is thrown away.
        labels: int64 `[N]`.
        weight_decay: L2 coefficient, added to the gradient.
        label_smoothing: share of each label that the loss spreads over all classes.
    """
    with without_dropout(model):
        logits = batch.select(model(batch, estimator))
    estimator.discard()
    loss = cross_entropy(logits, labels[batch.ids], label_smoothing=label_smoothing)
    vector = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
    value = float(loss.detach())
    if weight_decay:
        W = flat_weights(model)
        value += 0.5 * weight_decay * float(W @ W)
        vector += weight_decay * W
    return Gradient(value, vector)


@final
class FullGradient:
    """`F` and its exact gradient over given nodes; neighborhoods are laid out once, for many calls.

    Args:
        features, propagation: rows of `P X`, and `P`.
        labels: int64 `[N]`.
        ids: the nodes of the sum, int64: the training nodes.
        num_layers: `K`.
        weight_decay: L2 coefficient that belongs to `F`.
        label_smoothing: share of each label that the loss spreads over all classes.
    """

    def __init__(
        self,
        features: FeatureSource,
        propagation: Propagation,
        labels: Tensor,
        ids: Tensor,
        *,
        num_layers: int,
        weight_decay: float = 0.0,
        label_smoothing: float = 0.0,
    ) -> None:
        check_labels(labels, propagation.num_nodes)
        sampler = NeighborSampler(propagation, num_neighbors=-1, num_layers=num_layers, control=False)
        loader = BatchLoader(ids, sampler, batch_size=NODES_PER_PIECE)
        self._pieces = [loader.batch(piece, step=0) for piece in torch.split(ids, NODES_PER_PIECE)]
        self._estimator = SampledSum(features)
        self._labels = labels
        self._options = {"weight_decay": weight_decay, "label_smoothing": label_smoothing}
        self._num_nodes = ids.numel()

    def __call__(self, model: Network) -> Gradient:
        """`F(W)` and `grad F(W)`."""
        loss, vector = 0.0, torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
        for piece in self._pieces:
            part = batch_gradient(model, piece, self._estimator, self._labels, **self._options)
            share = piece.ids.numel() / self._num_nodes
            loss += share * part.loss
            vector += share * part.vector.double()
        return Gradient(loss, vector)


@contextlib.contextmanager
def without_dropout(model: Network) -> Iterator[None]:
    """Without dropout; the mode is as before afterwards."""
    mode = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(mode)
