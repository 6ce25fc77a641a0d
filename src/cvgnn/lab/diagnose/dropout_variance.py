"""The variance of a step's gradient under dropout, from the neighbors drawn and the masks together, by estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from cvgnn.lab.diagnose.error_split import Batches, Draws, Units, batch_moments
from cvgnn.lab.diagnose.estimates import Estimate, digits, spread
from cvgnn.lab.diagnose.gradient import batch_gradient
from cvgnn.lab.diagnose.gradient_errors import Resampling, Variant, redrawn_batches
from cvgnn.lab.diagnose.record import DiagnosisTable, LineChart, band_line
from cvgnn.training import Trainer


@final
@dataclass(frozen=True, kw_only=True)
class DropoutVariance:
    """What neighbors and masks add to the variance of the gradient at one moment.

    Args:
        variant: the way to estimate.
        units: whose part `neighbors` is `E[Var(G | batch)]` over draws and masks.
        norm2: `||grad F||^2` without dropout.
    """

    variant: Variant
    units: Units
    norm2: float

    @property
    def variance(self) -> Estimate:
        """`E[Var(G | batch)]` with its interval."""
        return self.units.part("neighbors")


def measure_under_dropout(
    trainer: Trainer, variant: Variant, plan: Resampling, *, norm2: float, after_batch: Callable[[], None]
) -> DropoutVariance:
    """Draw neighbors and masks again and again for each batch. The trainer does not change.

    Args:
        trainer: holds weights, histories and the rate of dropout.
        variant: how to estimate; all of them get the same batches, and masks from the same source.
        plan: how often.
        norm2: `||grad F||^2`.
        after_batch: called when the draws for a batch are done.
    """
    loader, estimator = variant.loader(trainer, batch_size=plan.batch_size, seed=plan.seed), variant.aggregator(trainer)
    found: list[np.ndarray] = []
    for _, batches in redrawn_batches(loader, plan):
        # A mask is a function of the step, and each draw is a step of its own.
        gradients = [batch_gradient(trainer.model, b, estimator, trainer.task, dropout=True) for b in batches]
        found.append(np.stack([g.vector.numpy() for g in gradients]))
        after_batch()
    zero = np.zeros_like(found[0][0])  # a variance does not depend on what the draws are compared with
    units = Draws(found[0]) if plan.fixed else Batches([batch_moments(G, zero, zero) for G in found])
    return DropoutVariance(variant=variant, units=units, norm2=norm2)


def dropout_table(found: Sequence[DropoutVariance], *, dropout: float, step: int) -> DiagnosisTable:
    """The variance of each variant, relative to the exact gradient's squared norm and to exact aggregation."""
    exact = _of_exact(found)
    rows = []
    for each in found:
        variance = each.variance
        ratio = "-" if exact is None else f"{digits(variance.value / exact)}"
        rows.append([each.variant.label, spread(variance, each.norm2 or 1.0), ratio])
    caption = (
        f"Under dropout {dropout:g}, after step {step}: variance of the gradient due to neighbors and masks together, "
        "relative to ||grad F||^2 without dropout, and relative to exact aggregation, where it is due to masks alone."
    )
    return DiagnosisTable(caption, ["estimator", "variance", "/ exact"], rows)


def dropout_chart(found: Sequence[DropoutVariance], *, dropout: float, step: int) -> list[LineChart]:
    """The variance by fan-out, if there are several; exact aggregation as a line across."""
    curves: dict[str, list[tuple[float, Estimate]]] = {}
    for each in found:
        v = each.variant
        if len(v.fan_out) == 1 and v.fan_out[0] > 0:
            curves.setdefault(f"{v.estimator}{v.suffix}", []).append((v.fan_out[0], each.variance))
    lines = [band_line(name, sorted(points)) for name, points in curves.items() if len(points) > 1]
    if not lines:
        return []
    exact = next((each.variance for each in found if each.variant.estimator == "exact"), None)
    if exact is not None:
        xs = [x for line in lines for x in line.x]
        lines.append(band_line("exact", [(min(xs), exact), (max(xs), exact)], reference=True))
    caption = (
        f"Variance due to neighbors and masks, dropout {dropout:g}, after step {step}. The histories are those that "
        "training with its own fan-out has left."
    )
    labels = ("neighbors drawn for a node", "variance of the gradient")
    title = f"Variance by fan-out under dropout {dropout:g}"
    return [LineChart("dropout", title, caption, *labels, lines, log_x=True, log_y=True)]


def dropout_sentence(found: Sequence[DropoutVariance], *, dropout: float) -> str:
    """How much larger the variance of the first fan-out's estimators is than that of exact aggregation."""
    exact = _of_exact(found)
    if exact is None:
        return ""
    first = found[0].variant
    parts = [
        f"{digits(each.variance.value / exact)} ({each.variant.label})"
        for each in found
        if each.variant.estimator != "exact"
        and (each.variant.scheme, each.variant.fan_out) == (first.scheme, first.fan_out)
    ]
    what = f" Under dropout {dropout:g}, the variance due to neighbors and masks is {', '.join(parts)} times"
    return f"{what} that of exact aggregation." if parts else ""


def _of_exact(found: Sequence[DropoutVariance]) -> float | None:
    """The variance of exact aggregation, if it was measured and is above 0."""
    values = [each.variance.value for each in found if each.variant.estimator == "exact"]
    return values[0] if values and values[0] > 0 else None
