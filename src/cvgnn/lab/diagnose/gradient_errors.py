"""Errors of gradients and layer outputs, from repeated draws at given weights and histories, for several estimators."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError, require, require_integer, require_known
from cvgnn.lab.diagnose.error_split import (
    BatchMoments,
    ErrorSplit,
    batch_errors,
    batch_moments,
    draw_errors,
    given_batch_errors,
    part,
)
from cvgnn.lab.diagnose.estimates import Array, Estimate, mean_of
from cvgnn.lab.diagnose.gradient import Objective, batch_gradient, layer_slices, with_dropout
from cvgnn.lab.diagnose.trainers import FIRST_EPOCH, FIRST_STEP
from cvgnn.limits import check_fan_out
from cvgnn.nn import CONTROL_VARIATES, ESTIMATORS, ControlVariate, Estimator, Network, SampledSum, exact_trace
from cvgnn.sampling import SCHEMES, Batch, BatchLoader, NeighborSampler
from cvgnn.training import Trainer

BATCH_KINDS = ("resampled", "fixed")


@final
@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to estimate a gradient.

    Args:
        estimator: `cv`, `ns` or `exact`.
        scheme: how neighbors are drawn.
        fan_out: as `NeighborSampler` takes it; all neighbors for `exact`.
    """

    estimator: str
    scheme: str
    fan_out: tuple[int, ...]

    @property
    def drawn(self) -> str:
        """The fan-out as text: that of all hops, or of each one with the batch's own first."""
        return "all" if set(self.fan_out) == {-1} else "-".join(map(fan_out_text, self.fan_out))

    @property
    def suffix(self) -> str:
        """The scheme for legends; empty for the default one."""
        return "" if self.scheme == "without-replacement" else f" ({self.scheme})"

    @property
    def label(self) -> str:
        """For legends: `cv 2`, `ns 5 (paper)`."""
        return self.estimator if self.estimator == "exact" else f"{self.estimator} {self.drawn}{self.suffix}"

    def loader(self, trainer: Trainer, plan: Resampling) -> BatchLoader:
        """Batches for this variant, of the training nodes and in the mode of a trainer."""
        theirs = trainer.loader
        sampler = NeighborSampler(
            theirs.sampler.propagation,
            num_neighbors=self.fan_out[0] if len(self.fan_out) == 1 else self.fan_out,
            num_layers=trainer.model.num_layers,
            scheme=self.scheme,  # type: ignore[arg-type]
            control=self.estimator in CONTROL_VARIATES,
            seed=plan.seed,
        )
        return BatchLoader(theirs.train_ids, sampler, batch_size=plan.batch_size, mode=theirs.mode, seed=plan.seed)

    def aggregator(self, trainer: Trainer) -> Estimator:
        """The estimator; the control variate has the trainer's own histories as they are."""
        if self.estimator not in CONTROL_VARIATES:
            return SampledSum(trainer.estimator.features)
        estimator = copy.copy(trainer.estimator)  # shares the histories
        assert isinstance(estimator, ControlVariate)
        estimator.separate_dropout = self.estimator == "cvd"
        return estimator


def fan_out_text(D: int) -> str:
    """A fan-out as text.

    >>> fan_out_text(2), fan_out_text(-1)
    ('2', 'all')
    """
    return "all" if D == -1 else str(D)


def variants(
    config: TrainConfig, estimators: Sequence[str], schemes: Sequence[str], fan_outs: Sequence[Sequence[int]]
) -> list[Variant]:
    """Each estimator with each scheme and each fan-out; `exact`, which draws nothing, once.

    Args:
        config: gives the scheme and the fan-out where none is listed.
        estimators: names.
        schemes: names, or empty.
        fan_outs: each one number, or one for each hop, the batch's own first; or empty.
    """
    require(len(estimators) > 0, f"name at least one estimator: {', '.join(ESTIMATORS)}")
    for kind, names, known in (("estimator", estimators, ESTIMATORS), ("scheme", schemes, SCHEMES)):
        for name in names:
            require_known(kind, name, known)
    for fan_out in fan_outs:
        require(
            len(fan_out) in (1, config.hops),
            f"fan-out has {len(fan_out)} numbers, {tuple(fan_out)}, but {config.layers} layers sample at {config.hops} "
            "hops: give one number, or one for each hop, joined by commas",
        )
    found = []
    for scheme, fan_out in itertools.product(schemes or [config.scheme], fan_outs or [config.num_neighbors]):
        try:
            for D in fan_out:
                check_fan_out(D, scheme)
        except CvgnnError as error:
            raise CvgnnError(str(error).replace("num_neighbors", "--fan-outs") if fan_outs else str(error)) from None
        for estimator in estimators:
            drawn = ("without-replacement", (-1,)) if estimator == "exact" else (scheme, tuple(fan_out))
            found.append(Variant(estimator=estimator, scheme=drawn[0], fan_out=drawn[1]))
    return list(dict.fromkeys(found))


def variants_under_dropout(trainer: Trainer, config: TrainConfig, chosen: Sequence[Variant]) -> list[Variant]:
    """What to measure under dropout, if there is any: the chosen variants, with `cvd`, `cv` and `exact` beside them."""
    sampled = [v for v in chosen if v.estimator != "exact"]
    if trainer.model.dropout == 0.0 or not sampled:
        return []
    control = CONTROL_VARIATES if isinstance(trainer.estimator, ControlVariate) else ()
    names = list(dict.fromkeys([*control, *(v.estimator for v in chosen), "exact"]))
    schemes, fan_outs = (list(dict.fromkeys(getattr(v, name) for v in sampled)) for name in ("scheme", "fan_out"))
    return variants(config, names, schemes, fan_outs)


def require_histories(trainer: Trainer, chosen: Sequence[Variant]) -> None:
    """Refuse to measure the control variate where training has kept no histories."""
    require(
        isinstance(trainer.estimator, ControlVariate) or all(v.estimator not in CONTROL_VARIATES for v in chosen),
        "cv cannot be measured: training without it has left no histories; train with --estimator cv, or measure "
        "--estimators ns exact",
    )


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
        require_known("batch", self.batch, BATCH_KINDS)
        require_integer("batches", self.batches, at_least=1 if self.fixed else 3, at_most=10_000)
        require_integer("draws", self.draws, at_least=3 if self.fixed else 2, at_most=10_000)

    @property
    def fixed(self) -> bool:
        """Whether there is one batch."""
        return self.batch == "fixed"


@final
@dataclass(frozen=True, kw_only=True)
class VariantErrors:
    """The errors of one variant after some step of training.

    Args:
        step: after how many steps.
        variant: the way to estimate.
        gradient: the errors of `G` by part (`all`, and `layer 0` to `layer K-1`) as `batch_errors` gives them.
        gradient_norm2: `||grad F||^2` by part.
        cosines: of `G` and `grad F` by part, a mean for each unit.
        outputs: the errors of `A^(k)` and `Z^(k+1)` on the batch's nodes, mean over the nodes.
        output_norm2: the same's exact squared norms.
    """

    step: int
    variant: Variant
    gradient: dict[str, Array]
    gradient_norm2: dict[str, float]
    cosines: dict[str, Array]
    outputs: dict[str, Array]
    output_norm2: dict[str, float]

    def part(self, name: str, of: str = "all") -> Estimate:
        """A part of the squared error of a part of the gradient, by its name in `ErrorSplit`."""
        return part(self.gradient[of], name)

    @property
    def split(self) -> ErrorSplit:
        """The parts of the squared error of the whole gradient."""
        return ErrorSplit(*self.gradient["all"][0].tolist())

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""

        def estimates(errors: dict[str, Array]) -> dict[str, Any]:
            return {of: {name: part(found, name) for name in ErrorSplit._fields} for of, found in errors.items()}

        return {
            "label": self.variant.label,
            **vars(self.variant),
            "gradient_norm2": self.gradient_norm2,
            "gradient": estimates(self.gradient),
            "cosine": {name: mean_of(values) for name, values in self.cosines.items()},
            "output_norm2": self.output_norm2,
            "outputs": estimates(self.outputs),
        }


def measure(
    trainer: Trainer, variant: Variant, plan: Resampling, *, after_batch: Callable[[], None] = lambda: None
) -> VariantErrors:
    """Draw batches and neighbors, and compare with the exact gradient and outputs. The trainer does not change.

    Args:
        trainer: holds weights and histories; its own batches and draws are others than those here.
        variant: how to estimate.
        plan: how often.
        after_batch: called when the draws for a batch are done.
    """
    model, objective, rows = trainer.model, Objective(trainer), exact_outputs(trainer)
    loader, estimator = variant.loader(trainer, plan), variant.aggregator(trainer)
    full = objective.batch(model, first_batch(loader)) if plan.fixed else objective(model).vector
    g = full.numpy()
    layers = {f"layer {k}": piece for k, piece in enumerate(layer_slices(model))}
    moments: dict[str, list[BatchMoments]] = {name: [] for name in layers}
    outputs: dict[str, list[Array]] = {name: [] for name in rows}
    output_norms: dict[str, list[float]] = {name: [] for name in rows}
    G = np.empty((plan.draws, len(g)))
    for ids, batches in redrawn_batches(loader, plan):
        nodes = torch.from_numpy(np.unique(ids.numpy())) if loader.mode == "replacement" else ids
        deviations: dict[str, list[Array]] = {name: [] for name in rows}
        for r, batch in enumerate(batches):
            G[r] = batch_gradient(model, batch, estimator, trainer.task).vector
            for name, values in batch_outputs(model, batch, estimator).items():
                error = values[: nodes.numel()] - rows[name][nodes]
                deviations[name].append(error.numpy().reshape(-1) / nodes.numel() ** 0.5)
        g_b = g if plan.fixed else objective.batch(model, ids).numpy()
        for name, layer in layers.items():
            moments[name].append(batch_moments(G[:, layer], g[layer], g_b[layer]))
        for name, of_draws in deviations.items():
            outputs[name].append(draw_errors(np.stack(of_draws)))
            output_norms[name].append(float(rows[name][nodes].square().sum()) / nodes.numel())
        after_batch()
    if plan.fixed:
        gradient = {name: draw_errors(G[:, layer] - g[layer]) for name, layer in layers.items()}
        output = {name: errors for name, (errors,) in outputs.items()}
    else:
        gradient = {name: batch_errors(found, alike=always_the_same(loader)) for name, found in moments.items()}
        output = {name: given_batch_errors(np.stack(errors)[:, 0]) for name, errors in outputs.items()}
    norm2 = {name: float(np.square(g[layer]).sum()) for name, layer in layers.items()}
    norm2 = {"all": sum(norm2.values()), **norm2}
    return VariantErrors(
        step=trainer.iterations,
        variant=variant,
        gradient={"all": np.sum(list(gradient.values()), axis=0), **gradient},
        gradient_norm2=norm2,
        cosines=_cosines(moments, norm2, by_draw=plan.fixed),
        outputs=output,
        output_norm2={name: float(np.mean(each)) for name, each in output_norms.items()},
    )


def variance_under_dropout(
    trainer: Trainer, variant: Variant, plan: Resampling, *, after_batch: Callable[[], None] = lambda: None
) -> Estimate:
    """`E[Var(G | batch)]` over neighbor draws and dropout masks together. The trainer does not change.

    Args:
        trainer: holds weights, histories and the rate of dropout.
        variant: how to estimate; all of them get the same batches, and masks from the same source.
        plan: how often.
        after_batch: called when the draws for a batch are done.
    """
    loader, estimator = variant.loader(trainer, plan), variant.aggregator(trainer)
    found: list[Array] = []
    for _, batches in redrawn_batches(loader, plan):
        # A mask is a function of the step, and each draw is a step of its own.
        gradients = [batch_gradient(trainer.model, b, estimator, trainer.task, dropout=True) for b in batches]
        found.append(np.stack([g.vector.numpy() for g in gradients]))
        after_batch()
    zero = np.zeros_like(found[0][0])  # a variance does not depend on what the draws are compared with
    moments = [batch_moments(G, zero, zero) for G in found]
    return part(draw_errors(found[0]) if plan.fixed else batch_errors(moments), "neighbors")


@torch.no_grad()
def batch_outputs(model: Network, batch: Batch, estimator: Estimator) -> dict[str, Tensor]:
    """`A^(k)`, the estimate of `P H^(k)`, and `Z^(k+1)` for `k = 1..K-1`, without dropout.

    The rows are those of `r^(k+1)`; the batch's own nodes come first in all of them.
    """
    with with_dropout(model, False):
        found = {name.replace("S", "A"): tensor for name, tensor in model.trace(batch, estimator, linear=True)}
    estimator.discard()
    return {name: found[name] for name in _output_names(model)}


@torch.no_grad()
def exact_outputs(trainer: Trainer) -> dict[str, Tensor]:
    """`P H^(k)` and `Z^(k+1)` for `k = 1..K-1` and all nodes."""
    model, P = trainer.model, trainer.loader.sampler.propagation
    found: dict[str, Tensor] = {}
    for name, tensor in exact_trace(model, trainer.estimator.features, P, linear=True):
        found[name.replace("H", "A")] = P.product(tensor) if name.startswith("H") else tensor
    return {name: found[name] for name in _output_names(model)}


def _output_names(model: Network) -> list[str]:
    return [name for k in range(1, model.num_layers) for name in (f"A^({k})", f"Z^({k + 1})")]


def always_the_same(loader: BatchLoader) -> bool:
    """Whether every batch has the same nodes: all there are, or the only one."""
    nodes = loader.train_ids.numel()
    return nodes == 1 or (loader.mode == "shuffle" and loader.batch_size >= nodes)


def first_batch(loader: BatchLoader, number: int = 0) -> Tensor:
    """The nodes of a batch that no training draws: the first of an epoch that no training reaches."""
    return next(loader.epoch_ids(FIRST_EPOCH + number))


def redrawn_batches(loader: BatchLoader, plan: Resampling) -> Iterator[tuple[Tensor, Iterator[Batch]]]:
    """The nodes of each batch, and the batch with its neighbors drawn again and again.

    Draws depend on the position alone, so that all variants get the same batches, and draws from the same source.
    """
    for b in range(plan.batches):
        ids = first_batch(loader, b)
        first = FIRST_STEP + b * plan.draws
        yield ids, (loader.batch(ids, step) for step in range(first, first + plan.draws))


def _cosines(gradients: dict[str, list[BatchMoments]], norm2: dict[str, float], *, by_draw: bool) -> dict[str, Array]:
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
