"""The curvature of `F`: Hessian-vector products by differentiating twice, and the largest eigenvalue (Assumption 1).

Legend: `F(W)` as in `cvgnn.diagnose.gradient`; `rho` the Lipschitz constant of `grad F`. ReLU makes `F` smooth in
pieces only, so `grad F` jumps where an entry of `Z` changes its sign, and no `rho` holds everywhere: what is found here
is the curvature of the piece that a point lies in, a local estimate from below.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cvgnn.diagnose.gradient import without_dropout
from cvgnn.graph import Propagation
from cvgnn.nn import Network, SampledSum
from cvgnn.ops.backend import plain
from cvgnn.sampling import BatchLoader, FeatureSource, NeighborSampler


class Curvature(NamedTuple):
    """The result of a power iteration.

    Args:
        value: the largest absolute eigenvalue that was found, `||H v||` for the last `v` of norm 1.
        change: by which share it changed in the last round: how far it may be from the end.
        rounds: products that were taken.
    """

    value: float
    change: float
    rounds: int


@final
class Hessian:
    """The Hessian of `F` at a network's weights, as a product with vectors.

    Args:
        features, propagation: rows of `P X`, and `P`.
        labels: int64 `[N]`.
        ids: the nodes of the sum, int64: the training nodes.
        num_layers: `K`.
        weight_decay: L2 coefficient that belongs to `F`.
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
    ) -> None:
        sampler = NeighborSampler(propagation, num_neighbors=-1, num_layers=num_layers, control=False)
        self._batch = BatchLoader(ids, sampler, batch_size=ids.numel()).batch(ids, step=0)
        self._estimator = SampledSum(features)
        self._labels = labels[ids]
        self._weight_decay = weight_decay

    def loss(self, model: Network) -> Tensor:
        """`F(W)`, differentiable twice by the parameters."""
        with plain(), without_dropout(model):  # plain operations have all derivatives, the fused ones one
            logits = model(self._batch, self._estimator)
        F: Tensor = cross_entropy(logits, self._labels)
        if self._weight_decay:
            F = F + 0.5 * self._weight_decay * torch.stack([p.square().sum() for p in model.parameters()]).sum()
        return F

    def gradient(self, model: Network) -> Tensor:
        """`grad F(W)` as one vector `[d]`, differentiable."""
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(self.loss(model), parameters, create_graph=True)
        return torch.cat([g.reshape(-1) for g in gradients])

    def times(self, model: Network, vector: Tensor) -> Tensor:
        """`H v`, `[d]`."""
        return _times(self.gradient(model), model, vector)

    def largest(self, model: Network, *, rounds: int = 30, tolerance: float = 1e-3, seed: int = 0) -> Curvature:
        """The largest absolute eigenvalue by power iteration; from below, the more rounds the closer.

        Args:
            model: holds `W`.
            rounds: products at most.
            tolerance: end when the value changes by less than this share.
            seed: of the first vector.
        """
        gradient = self.gradient(model)
        first = np.random.Generator(np.random.Philox(key=seed)).standard_normal(gradient.numel())
        v = torch.from_numpy(first).to(gradient.dtype)
        value, change = 0.0, float("inf")
        for done in range(1, rounds + 1):
            v = v / v.norm()
            v = _times(gradient, model, v)
            before, value = value, float(v.norm())
            if value == 0.0:
                return Curvature(0.0, 0.0, done)
            change = abs(value - before) / value
            if change < tolerance:
                break
        return Curvature(value, change, done)


def _times(gradient: Tensor, model: Network, vector: Tensor) -> Tensor:
    parameters = list(model.parameters())
    products = torch.autograd.grad(gradient @ vector, parameters, retain_graph=True, materialize_grads=True)
    return torch.cat([p.reshape(-1) for p in products])
