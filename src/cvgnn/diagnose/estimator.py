"""`diagnose estimator`: bias and variance of gradients and layer outputs, along training, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cvgnn.config import TrainConfig
from cvgnn.diagnose.estimator_figures import figures
from cvgnn.diagnose.estimator_tables import pairs, tables, verdict
from cvgnn.diagnose.measure import Moment, Resampling, always_the_same, measure
from cvgnn.diagnose.record import Diagnosis
from cvgnn.diagnose.statistics import CONFIDENCE, Split, Units, mean_of, part_of
from cvgnn.diagnose.subject import fresh_trainer, recorded, stops, trainer_of_run, where_it_diverged
from cvgnn.diagnose.variants import Variant, require_histories, variants
from cvgnn.diagnose.ztest import LEVEL, Projections, Tests, aggregation_test, corrected
from cvgnn.errors import CvgnnError, require, require_integer
from cvgnn.experiments.machine import sensible_threads, thread_count
from cvgnn.graph import Graph, Propagation
from cvgnn.nn import ControlVariate, exact_hidden
from cvgnn.sampling.neighbor import fan_outs as by_layer
from cvgnn.training import Diverged, Trainer


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
    tell: Callable[[str, float], None] = lambda what, share: None,
) -> Diagnosis:
    """Measure how far the gradients of training steps are from the exact ones, and why. In float64, without dropout.

    Args:
        graph: what is trained on.
        config: how; dropout is as it says while training. Its seed is that of the measurement too.
        estimators, schemes, fan_outs: compared each with each; the config's scheme and fan-out if none are listed.
            A fan-out is one number, or one for each hop with the batch's own first.
        steps: after how many steps of training to measure; counted from the checkpoint, if there is a run.
        batch: `"resampled"` or `"fixed"`; see `cvgnn.diagnose.measure.Resampling`.
        batches, draws: how many batches, and draws of neighbors for each.
        test_draws: how often all rows of `P^` are drawn for the test of unbiasedness.
        run: folder of a run whose newest checkpoint gives weights and histories; fresh weights if not given.
        tell: told what is being done, and the share of it that is.
    """
    plan = Resampling(
        batch=batch,
        batches=1 if batch == "fixed" else batches,
        draws=draws,
        batch_size=config.batch_size,
        seed=config.seed,
    )
    require_integer("test_draws", test_draws, at_least=10, at_most=100_000)
    require(config.layers > 1, "a network of one layer samples no neighbors, so there is nothing to compare")
    chosen = variants(config, estimators, schemes, fan_outs)
    moments: list[Moment] = []
    total, done = len(set(steps)) * len(chosen) * plan.batches, 0

    def after_batch() -> None:
        nonlocal done
        done += 1
        tell(f"drawing gradients after step {trainer.iterations}", 0.9 * done / total)

    with thread_count(config.threads or sensible_threads(graph, config)):
        trainer = fresh_trainer(graph, config) if run is None else trainer_of_run(run, graph)
        require_histories(trainer, chosen)
        diverged: Diverged | None = None
        try:
            for _ in stops(trainer, steps):
                moments.append(_moment(trainer, chosen, plan, after_batch))
                projections = _projections(trainer, config.seed)  # while training stands there
        except Diverged as error:
            if not moments:
                raise CvgnnError(f"training diverged at step {error.step}: {error.what}; choose a smaller lr") from None
            diverged = error
        P = trainer.loader.sampler.propagation
        tests = _tests(P, chosen, projections, draws=test_draws, seed=config.seed, tell=tell)
    ended = "" if diverged is None else f" {where_it_diverged(diverged)}"
    settings = {
        **recorded(config, run),
        "batch": batch,
        "resamples": plan.batches,
        "draws": draws,
        "test_draws": test_draws,
        "steps": [moment.step for moment in moments],
        "variants": [variant.label for variant in chosen],
        "diverged": None if diverged is None else diverged.step,
    }
    loader = chosen[0].loader(trainer, batch_size=plan.batch_size, seed=plan.seed)
    same_batch = batch == "fixed" or always_the_same(loader)
    return Diagnosis(
        kind="estimator",
        dataset=graph.name,
        settings=settings,
        verdict=verdict(moments, tests, same_batch=same_batch) + ended,
        tables=tables(moments, tests, plan),
        figures=figures(moments, plan),
        data=_data(moments, tests, plan),
    )


def _moment(trainer: Trainer, chosen: Sequence[Variant], plan: Resampling, after_batch: Callable[[], None]) -> Moment:
    """What is measured where training stands; training that has left all numbers behind has diverged."""
    with np.errstate(over="ignore", invalid="ignore"):  # told in a sentence, below
        found = [measure(trainer, variant, plan, after_batch=after_batch) for variant in chosen]
        sizes = [m.gradient_norm2["all"] for m in found] + [m.gradient["all"].split().mse for m in found]
    if not np.isfinite(sizes).all():
        raise Diverged(trainer.iterations, "the gradients after it are infinite or NaN, or their squares are", [])
    return Moment(trainer.iterations, found)


def _projections(trainer: Trainer, seed: int) -> list[Projections]:
    """What the test of unbiasedness looks at, for each hidden layer where training stands."""
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
    tell: Callable[[str, float], None],
) -> Tests:
    """The test of unbiasedness for each scheme and fan-out, at the last moment's representations and histories."""
    wanted = {
        (variant.scheme, k, D): None
        for variant in chosen
        if variant.estimator != "exact"
        for k, D in enumerate(by_layer(list(variant.fan_out) if len(variant.fan_out) > 1 else variant.fan_out[0],
                                       len(projections) + 1, variant.scheme), start=1)
    }  # fmt: skip
    found: Tests = {}
    for i, (scheme, k, D) in enumerate(wanted):
        tell(f"testing {scheme}", 0.9 + 0.1 * i / len(wanted))
        found[scheme, k, D] = aggregation_test(P, projections[k - 1], scheme=scheme, fan_out=D, draws=draws, seed=seed)
    return corrected(found)


def _data(moments: Sequence[Moment], tests: Tests, plan: Resampling) -> dict[str, Any]:
    """Every number, unrounded."""

    def errors(units: dict[str, Units]) -> dict[str, Any]:
        return {name: {part: list(part_of(u, part)) for part in Split._fields} for name, u in units.items()}

    return {
        "confidence": CONFIDENCE,
        "units": "draws" if plan.batch == "fixed" else "batches",
        "moments": [
            {
                "step": moment.step,
                "ns_over_cv": {cv.variant.label: None if f is None else list(f) for cv, _, f in pairs(moment)},
                "variants": [
                    {
                        "label": m.variant.label,
                        "estimator": m.variant.estimator,
                        "scheme": m.variant.scheme,
                        "fan_out": list(m.variant.fan_out),
                        "gradient_norm2": m.gradient_norm2,
                        "gradient": errors(m.gradient),
                        "cosine": {name: list(mean_of(values)) for name, values in m.cosines.items()},
                        "output_norm2": m.output_norm2,
                        "outputs": errors(m.outputs),
                    }
                    for m in moment.measured
                ],
            }
            for moment in moments
        ],
        "test": {
            "level": LEVEL,
            "correction": "Holm, over all results together",
            "results": [
                {
                    "scheme": scheme,
                    "layer": k,
                    "fan_out": D,
                    "unbiased": found.unbiased,
                    "projections": [
                        {"name": name, **test._asdict(), "adjusted_p": p}
                        for name, test, p in zip(found.names, found.tests, found.adjusted, strict=True)
                    ],
                }
                for (scheme, k, D), found in tests.items()
            ],
        },
    }
