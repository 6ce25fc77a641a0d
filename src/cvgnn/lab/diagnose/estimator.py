"""`diagnose estimator`: bias and variance of gradients and layer outputs, along training, for several estimators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cvgnn.config import TrainConfig
from cvgnn.data import Graph, Propagation
from cvgnn.errors import require, require_integer
from cvgnn.lab.diagnose import estimator_views, gradient_errors, trainers
from cvgnn.lab.diagnose.estimates import CONFIDENCE
from cvgnn.lab.diagnose.gradient_errors import Resampling, Variant, VariantErrors, always_the_same
from cvgnn.lab.diagnose.record import Diagnosis
from cvgnn.lab.diagnose.ztest import LEVEL, Projections, Tests, aggregation_test, corrected, unbiased
from cvgnn.nn import CONTROL_VARIATES, ControlVariate, exact_hidden
from cvgnn.sampling.neighbor import fan_outs as fan_outs_by_layer
from cvgnn.training import Diverged, Trainer
from cvgnn.training.machine import run_threads
from cvgnn.utils.progress import ProgressCallback, no_progress


def diagnose_estimator(
    graph: Graph,
    config: TrainConfig,
    *,
    estimators: Sequence[str] = ("cv", "ns"),
    schemes: Sequence[str] = (),
    fan_outs: Sequence[Sequence[int]] = (),
    steps: Sequence[int] = (1, 4, 16, 64, 256),
    batch: str = "resampled",
    batches: int = 64,
    draws: int = 4,
    test_draws: int = 200,
    run: Path | None = None,
    progress: ProgressCallback = no_progress,
) -> Diagnosis:
    """Measure how far the gradients of training steps are from the exact ones, and why. In float64.

    Without dropout, where `cv` and `cvd` are the same; if training has dropout, its variance after the last step is
    measured too, for the estimators named and for `cvd`, `cv` and `exact`.

    Args:
        graph: what is trained on.
        config: how; dropout is as it says while training. Its seed is that of the measurement too.
        estimators, schemes, fan_outs: compared each with each; the config's scheme and fan-out if none are listed.
            A fan-out is one number, or one for each hop with the batch's own first.
        steps: after how many steps of training to measure; counted from the checkpoint, if there is a run.
        batch: `"resampled"` or `"fixed"`; see `cvgnn.lab.diagnose.gradient_errors.Resampling`.
        batches, draws: how many batches, and draws of neighbors for each.
        test_draws: how often all rows of `P^` are drawn for the test of unbiasedness.
        run: folder of a run whose newest checkpoint gives weights and histories; fresh weights if not given.
        progress: called with the current activity and the share of the work that is done.
    """
    batches = 1 if batch == "fixed" else batches
    plan = Resampling(batch=batch, batches=batches, draws=draws, batch_size=config.batch_size, seed=config.seed)
    require_integer("test_draws", test_draws, at_least=10, at_most=100_000)
    require(config.layers > 1, "a network of one layer samples no neighbors, so there is nothing to compare")
    chosen = gradient_errors.variants(config, estimators, schemes, fan_outs)
    found: list[VariantErrors] = []
    projections: list[Projections] = []
    done = itertools.count(1)
    total = (len(set(steps)) * len(chosen) + 3) * plan.batches  # 3: under dropout, a little more or less
    with run_threads(graph, config):
        trainer = trainers.start_trainer(graph, config, run)
        gradient_errors.require_histories(trainer, chosen)

        def after_batch() -> None:
            progress(f"drawing gradients after step {trainer.iterations}", min(0.9, 0.9 * next(done) / total))

        def measure_all_variants(_: int) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # reported as divergence, below
                measured = [gradient_errors.measure(trainer, v, plan, after_batch=after_batch) for v in chosen]
            if not np.isfinite([(m.gradient_norm2["all"], m.split.mse) for m in measured]).all():
                what = "the gradients after it are infinite or NaN, or their squares are"
                raise Diverged(trainer.iterations, what, [])
            found.extend(measured)
            projections[:] = _projections(trainer, config.seed)  # of the last step that was measured

        diverged = trainers.measure_along_training(trainer, steps, measure_all_variants)
        masked = {
            v: gradient_errors.variance_under_dropout(trainer, v, plan, after_batch=after_batch)
            for v in (_under_dropout(trainer, config, chosen) if diverged is None else [])
        }
        P = trainer.loader.sampler.propagation
        tests = _tests(P, chosen, projections, draws=test_draws, seed=config.seed, progress=progress)
    loader = chosen[0].loader(trainer, batch_size=plan.batch_size, seed=plan.seed)
    same_batch = plan.fixed or always_the_same(loader)
    tables, charts = estimator_views.tables(found, tests, plan), estimator_views.charts(found, plan)
    verdict = estimator_views.verdict(found, tests, same_batch=same_batch) + trainers.divergence_note(diverged)
    data = _data(found, tests, plan)
    if masked:
        at: dict[str, Any] = {"dropout": trainer.model.dropout, "step": trainer.iterations}
        norm2 = found[-1].gradient_norm2["all"]
        shown, more_charts, sentence = estimator_views.dropout_views(masked, norm2=norm2, **at)
        tables.insert(1, shown)
        charts, verdict = charts + more_charts, verdict + sentence
        data["dropout"] = at | {"variances": [{"label": v.label, "variance": found} for v, found in masked.items()]}
    return Diagnosis(
        kind="estimator",
        dataset=graph.name,
        settings={
            **trainers.recorded_settings(config, run),
            "batch": batch,
            "resamples": plan.batches,
            "draws": draws,
            "test_draws": test_draws,
            "steps": list(dict.fromkeys(m.step for m in found)),
            "variants": [variant.label for variant in chosen],
            "diverged": None if diverged is None else diverged.step,
        },
        verdict=verdict,
        tables=tables,
        figures=charts,
        data=data,
    )


def _under_dropout(trainer: Trainer, config: TrainConfig, chosen: Sequence[Variant]) -> list[Variant]:
    """What to measure under dropout, if there is any: the chosen variants, with `cvd`, `cv` and `exact` beside them."""
    sampled = [v for v in chosen if v.estimator != "exact"]
    if trainer.model.dropout == 0.0 or not sampled:
        return []
    control = CONTROL_VARIATES if isinstance(trainer.estimator, ControlVariate) else ()
    names = list(dict.fromkeys([*control, *(v.estimator for v in chosen), "exact"]))
    schemes, fan_outs = (list(dict.fromkeys(getattr(v, name) for v in sampled)) for name in ("scheme", "fan_out"))
    return gradient_errors.variants(config, names, schemes, fan_outs)


def _projections(trainer: Trainer, seed: int) -> list[Projections]:
    """The projections of the test of unbiasedness for each hidden layer, at the trainer's weights and histories."""
    estimator = trainer.estimator
    hidden = exact_hidden(trainer.model, estimator.features, trainer.loader.sampler.propagation)
    histories = estimator.histories if isinstance(estimator, ControlVariate) else [None] * len(hidden)
    return [
        Projections(H, None if history is None else history.values.to(H.dtype), seed=seed)
        for H, history in zip(hidden, histories, strict=True)
    ]


def _tests(
    P: Propagation,
    chosen: Sequence[Variant],
    projections: Sequence[Projections],
    *,
    draws: int,
    seed: int,
    progress: ProgressCallback,
) -> Tests:
    """The test of unbiasedness for each scheme and fan-out."""
    wanted: dict[tuple[str, int, int], None] = {}
    for v in chosen:
        if v.estimator != "exact":
            fan_out = list(v.fan_out) if len(v.fan_out) > 1 else v.fan_out[0]
            by_layer = fan_outs_by_layer(fan_out, len(projections) + 1, v.scheme)
            wanted |= {(v.scheme, k, D): None for k, D in enumerate(by_layer, start=1)}
    found: Tests = {}
    for i, (scheme, k, D) in enumerate(wanted):
        progress(f"testing {scheme}", 0.9 + 0.1 * i / len(wanted))
        found[scheme, k, D] = aggregation_test(P, projections[k - 1], scheme=scheme, fan_out=D, draws=draws, seed=seed)
    return corrected(found)


def _data(found: Sequence[VariantErrors], tests: Tests, plan: Resampling) -> dict[str, Any]:
    """Every number, unrounded."""
    gains = [(cv.step, cv.variant.label, ratio) for cv, ratio in estimator_views.gains(found)]
    moments = [
        {
            "step": step,
            "ns_over_cv": {label: ratio for at, label, ratio in gains if at == step},
            "variants": [m.to_dict() for m in measured],
        }
        for step, measured in itertools.groupby(found, key=lambda m: m.step)
    ]
    results = []
    for (scheme, k, D), result in tests.items():
        of_test = {"scheme": scheme, "layer": k, "fan_out": D, "unbiased": unbiased(result)}
        results.append({**of_test, "projections": [test._asdict() for test in result]})
    test = {"level": LEVEL, "correction": "Holm, over all results together", "results": results}
    return {
        "confidence": CONFIDENCE, "units": "draws" if plan.fixed else "batches", "moments": moments, "test": test,
    }  # fmt: skip
