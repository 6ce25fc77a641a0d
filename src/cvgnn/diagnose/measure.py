"""Gradients and layer outputs, drawn again and again at given weights and histories, beside the exact ones."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from cvgnn.diagnose.gradient import FullGradient, batch_gradient, layer_slices, without_dropout
from cvgnn.diagnose.statistics import Array, Batches, Draws, GivenBatches, Moments, Units, moments
from cvgnn.diagnose.subject import FIRST_EPOCH, FIRST_STEP
from cvgnn.diagnose.variants import Variant
from cvgnn.errors import require_integer, unknown_name
from cvgnn.nn import Estimator, Network, exact_trace
from cvgnn.sampling import Batch, BatchLoader
from cvgnn.training import Trainer

BATCH_KINDS = ("resampled", "fixed")


@final
@dataclass(frozen=True, kw_only=True)
class Resampling:
    """How often to draw.

    Args:
        batch: `"resampled"`: batches and neighbors are drawn, and the exact gradient is that of all training nodes;
            `"fixed"`: one batch, only neighbors are drawn, and the exact gradient is that of the batch.
        batches: `R_b`; 1 if the batch is fixed.
        draws: `R_n`, for each batch.
        batch_size: nodes in a batch.
        seed: of the draws.
    """

    batch: str
    batches: int
    draws: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.batch not in BATCH_KINDS:
            raise unknown_name("batch", self.batch, BATCH_KINDS)
        require_integer("batches", self.batches, at_least=1 if self.batch == "fixed" else 3, at_most=10_000)
        require_integer("draws", self.draws, at_least=3 if self.batch == "fixed" else 2, at_most=10_000)


@final
@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was found for one way to estimate, at one moment of training.

    Args:
        variant: the way.
        gradient: for the errors of `G`, by part: `all`, and `layer 0` to `layer K-1`.
        gradient_norm2: `||grad F||^2` by part.
        cosines: of `G` and `grad F` by part, a mean for each unit.
        outputs: for the errors of `A^(k)` and `Z^(k+1)` on the batch's nodes, a node's on average.
        output_norm2: the same's exact squared norms.
    """

    variant: Variant
    gradient: dict[str, Units]
    gradient_norm2: dict[str, float]
    cosines: dict[str, Array]
    outputs: dict[str, Units]
    output_norm2: dict[str, float]


@final
@dataclass(frozen=True)
class Moment:
    """A moment of training: after which step, and what was measured there."""

    step: int
    measured: list[Measured]


def measure(
    trainer: Trainer, variant: Variant, plan: Resampling, *, after_batch: Callable[[], None] = lambda: None
) -> Measured:
    """Draw batches and neighbors, and compare with the exact gradient and outputs. Nothing of the trainer changes.

    Args:
        trainer: holds weights and histories; its own batches and draws are others than those here.
        variant: how to estimate.
        plan: how often.
        after_batch: called when the draws for a batch are done.
    """
    fixed, labels, smoothing = plan.batch == "fixed", trainer.labels, trainer.label_smoothing
    loader, estimator = variant.loader(trainer, batch_size=plan.batch_size, seed=plan.seed), variant.aggregator(trainer)
    exact = _Exact(trainer, plan)
    g = exact.batch(first_batch(loader)) if fixed else exact.full()
    parts = {f"layer {k}": piece for k, piece in enumerate(layer_slices(trainer.model))}
    gradients: dict[str, list[Moments]] = {name: [] for name in parts}
    outputs: dict[str, list[Draws]] = {name: [] for name in exact.rows}
    output_norms: dict[str, list[float]] = {name: [] for name in exact.rows}
    G = np.empty((plan.draws, len(g)))
    for ids, batches in _drawn(loader, plan):
        nodes = torch.from_numpy(np.unique(ids.numpy())) if loader.mode == "replacement" else ids
        errors: dict[str, list[Array]] = {name: [] for name in exact.rows}
        for r, batch in enumerate(batches):
            found = batch_gradient(trainer.model, batch, estimator, labels, label_smoothing=smoothing)
            G[r] = found.vector
            for name, rows in batch_outputs(trainer.model, batch, estimator).items():
                error = rows[: nodes.numel()] - exact.rows[name][nodes]
                errors[name].append(error.numpy().reshape(-1) / nodes.numel() ** 0.5)
        g_b = g if fixed else exact.batch(ids)
        for name, part in parts.items():
            gradients[name].append(moments(G[:, part], g[part], g_b[part]))
        for name, of_draws in errors.items():
            outputs[name].append(Draws(np.stack(of_draws)))
            output_norms[name].append(float(exact.rows[name][nodes].square().sum()) / nodes.numel())
        after_batch()
    by_part: dict[str, Units]
    if fixed:
        by_part = {name: Draws(G[:, part] - g[part]) for name, part in (("all", slice(None)), *parts.items())}
    else:
        layers = {name: Batches(found, alike=always_the_same(loader)) for name, found in gradients.items()}
        by_part = {"all": functools.reduce(operator.add, layers.values()), **layers}
    norm2 = {name: float(np.square(g[part]).sum()) for name, part in parts.items()}
    norm2 = {"all": sum(norm2.values()), **norm2}
    return Measured(
        variant=variant,
        gradient=by_part,
        gradient_norm2=norm2,
        cosines=_cosines(gradients, norm2, by_draw=fixed),
        outputs={
            name: each[0] if fixed else GivenBatches([draws.split() for draws in each])
            for name, each in outputs.items()
        },
        output_norm2={name: float(np.mean(each)) for name, each in output_norms.items()},
    )


@torch.no_grad()
def batch_outputs(model: Network, batch: Batch, estimator: Estimator) -> dict[str, Tensor]:
    """`A^(k)`, the estimate of `P H^(k)`, and `Z^(k+1)` for `k = 1..K-1`, without dropout.

    The rows are those of `r^(k+1)`; the batch's own nodes come first in all of them.
    """
    with without_dropout(model):
        found = {name.replace("S", "A"): tensor for name, tensor in model.trace(batch, estimator, linear=True)}
    estimator.discard()
    return {name: found[name] for name in _names(model)}


@torch.no_grad()
def exact_outputs(trainer: Trainer) -> dict[str, Tensor]:
    """`P H^(k)` and `Z^(k+1)` for `k = 1..K-1` and all nodes."""
    model, P = trainer.model, trainer.loader.sampler.propagation
    found: dict[str, Tensor] = {}
    for name, tensor in exact_trace(model, trainer.estimator.features, P, linear=True):
        found[name.replace("H", "A")] = P.product(tensor) if name.startswith("H") else tensor
    return {name: found[name] for name in _names(model)}


def _names(model: Network) -> list[str]:
    return [name for k in range(1, model.num_layers) for name in (f"A^({k})", f"Z^({k + 1})")]


def always_the_same(loader: BatchLoader) -> bool:
    """Whether every batch has the same nodes: all there are, or the only one."""
    nodes = loader.train_ids.numel()
    return nodes == 1 or (loader.mode == "shuffle" and loader.batch_size >= nodes)


def first_batch(loader: BatchLoader, number: int = 0) -> Tensor:
    """The nodes of a batch that no training draws: the first of an epoch far away."""
    return next(loader.epoch_ids(FIRST_EPOCH + number))


def _drawn(loader: BatchLoader, plan: Resampling) -> Iterator[tuple[Tensor, Iterator[Batch]]]:
    """The nodes of each batch, and the batch with its neighbors drawn again and again.

    Numbers are drawn by place alone, so that all ways to estimate get the same batches, and draws from the same source.
    """
    for b in range(1 if plan.batch == "fixed" else plan.batches):
        ids = first_batch(loader, b)
        first = FIRST_STEP + b * plan.draws
        yield ids, (loader.batch(ids, step) for step in range(first, first + plan.draws))


def _cosines(gradients: dict[str, list[Moments]], norm2: dict[str, float], *, by_draw: bool) -> dict[str, Array]:
    """The cosines of `G` and `g`, of each draw or, on average, of each batch; 0 where one of them is."""
    products = {name: np.stack([m.products for m in found]) for name, found in gradients.items()}
    squares = {name: np.stack([m.squares for m in found]) for name, found in gradients.items()}
    for sums in (products, squares):
        sums["all"] = np.sum(list(sums.values()), axis=0)
    cosines = {}
    for name, size in norm2.items():
        scale = np.sqrt(size * squares[name])
        found = np.divide(products[name], scale, out=np.zeros_like(scale), where=scale > 0)
        cosines[name] = found[0] if by_draw else found.mean(axis=1)
    return cosines


@final
class _Exact:
    """The exact gradients, and the exact outputs of all nodes.

    Args:
        trainer, plan: as for `measure`.
    """

    def __init__(self, trainer: Trainer, plan: Resampling) -> None:
        variant = Variant(estimator="exact", scheme="without-replacement", fan_out=(-1,))
        self._loader = variant.loader(trainer, batch_size=plan.batch_size, seed=plan.seed)
        self._estimator = variant.aggregator(trainer)
        self._trainer = trainer
        self.rows = exact_outputs(trainer)

    def full(self) -> Array:
        """`grad F` over all training nodes."""
        model, labels, propagation = self._trainer.model, self._trainer.labels, self._loader.sampler.propagation
        ids, K = self._loader.train_ids, model.num_layers
        smoothing = self._trainer.label_smoothing
        full = FullGradient(self._estimator.features, propagation, labels, ids, num_layers=K, label_smoothing=smoothing)
        return full(model).vector.numpy()

    def batch(self, ids: Tensor) -> Array:
        """`grad F` over a batch."""
        drawn, labels = self._loader.batch(ids, FIRST_STEP), self._trainer.labels
        smoothing = self._trainer.label_smoothing
        found = batch_gradient(self._trainer.model, drawn, self._estimator, labels, label_smoothing=smoothing)
        return found.vector.numpy()
