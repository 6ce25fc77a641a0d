"""`diagnose estimator`: bias and variance of gradients and layer outputs, along training, for several estimators."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import require, require_integer
from cvgnn.lab.diagnose import estimates, gradient_errors, trainers
from cvgnn.lab.diagnose.error_split import ErrorSplit, part
from cvgnn.lab.diagnose.estimates import CONFIDENCE, Array, Estimate, digits, mean_of, rough_percent, spread
from cvgnn.lab.diagnose.gradient_errors import Resampling, Variant, VariantErrors, fan_out_text
from cvgnn.lab.diagnose.record import (
    ChartLine,
    Diagnosis,
    DiagnosisTable,
    LineChart,
    band_line,
    band_lines,
    caption,
    line_chart,
)
from cvgnn.lab.diagnose.ztest import LEVEL, Projections, Tests, all_tests, projections_at, smallest_p, unbiased
from cvgnn.nn import CONTROL_VARIATES
from cvgnn.training import Diverged
from cvgnn.training.machine import run_threads
from cvgnn.utils.progress import ProgressCallback, no_progress

_ZERO = 1e-12  # a part below this share of ||grad F||^2 is rounding
_BAND = f"Band: {100 * CONFIDENCE:.0f} % interval."


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
    projections: list[Projections] = []  # at the last step that was measured
    done = itertools.count(1)
    total = (len(set(steps)) * len(chosen) + 3) * plan.batches  # 3: under dropout, a little more or less
    with run_threads(graph, config):
        trainer = trainers.start_trainer(graph, config, run)
        gradient_errors.require_histories(trainer, chosen)

        def after_batch() -> None:
            progress(f"drawing gradients after step {trainer.iterations}", min(0.9, 0.9 * next(done) / total))

        def measure_all_variants(_: int) -> list[VariantErrors]:
            nonlocal projections
            with np.errstate(over="ignore", invalid="ignore"):  # reported as divergence, below
                measured = [gradient_errors.measure(trainer, v, plan, after_batch=after_batch) for v in chosen]
            if not np.isfinite([(m.gradient_norm2["all"], m.split.mse) for m in measured]).all():
                what = "the gradients after it are infinite or NaN, or their squares are"
                raise Diverged(trainer.iterations, what, [])
            projections = projections_at(trainer, config.seed)
            return measured

        by_step, diverged = trainers.measure_along_training(trainer, steps, measure_all_variants)
        found = list(itertools.chain.from_iterable(by_step))
        masked = {
            v: gradient_errors.variance_under_dropout(trainer, v, plan, after_batch=after_batch)
            for v in (gradient_errors.variants_under_dropout(trainer, config, chosen) if diverged is None else [])
        }
        P = trainer.loader.sampler.propagation
        tests = all_tests(P, chosen, projections, draws=test_draws, seed=config.seed, progress=progress)
    loader = chosen[0].loader(trainer, plan)
    same_batch = plan.fixed or gradient_errors.always_the_same(loader)
    shown, drawn = _tables(found, tests, plan), _charts(found, plan)
    text = verdict(found, tests, same_batch=same_batch) + trainers.divergence_note(diverged)
    data = _data(found, tests, plan)
    if masked:
        at: dict[str, Any] = {"dropout": trainer.model.dropout, "step": trainer.iterations}
        norm2 = found[-1].gradient_norm2["all"]
        table, charts, sentence = _dropout_views(masked, norm2=norm2, **at)
        shown.insert(1, table)
        drawn, text = drawn + charts, text + sentence
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
        verdict=text,
        tables=shown,
        figures=drawn,
        data=data,
    )


def _data(found: Sequence[VariantErrors], tests: Tests, plan: Resampling) -> dict[str, Any]:
    """Every number, unrounded."""
    ratios = [(cv.step, cv.variant.label, ratio) for cv, ratio in gains(found)]
    moments = [
        {
            "step": step,
            "ns_over_cv": {label: ratio for at, label, ratio in ratios if at == step},
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


def gains(found: Sequence[VariantErrors]) -> list[tuple[VariantErrors, Estimate | None]]:
    """Each `cv` or `cvd` that has an `ns` with the same step, scheme and fan-out, and how much larger the latter's
    neighbor variance is."""
    ns = {(m.step, m.variant.scheme, m.variant.fan_out): m for m in found if m.variant.estimator == "ns"}
    controlled = [m for m in found if m.variant.estimator in CONTROL_VARIATES]
    others = [(m, ns.get((m.step, m.variant.scheme, m.variant.fan_out))) for m in controlled]
    return [(m, factor(other.gradient["all"], m.gradient["all"])) for m, other in others if other is not None]


def factor(above: Array, below: Array) -> Estimate | None:
    """The ratio of two neighbor variances, from the same batches and draws; None where the second is rounding."""
    variances, smaller = (errors[:, ErrorSplit._fields.index("neighbors")] for errors in (above, below))
    if smaller[0] <= _ZERO * max(variances[0], 1e-300):
        return None
    return estimates.jackknife(variances / smaller, positive=True)


def _last(found: Sequence[VariantErrors]) -> list[VariantErrors]:
    """The errors after the last step."""
    return [m for m in found if m.step == found[-1].step]


def _drawing(found: Sequence[VariantErrors]) -> list[VariantErrors]:
    """Those that draw neighbors."""
    return [m for m in found if m.variant.estimator != "exact"]


def _tables(found: Sequence[VariantErrors], tests: Tests, plan: Resampling) -> list[DiagnosisTable]:
    """Along training, by layer, the layers' outputs, and the test of unbiasedness."""
    last = _last(found)
    shown = [_along_training(found, plan), _by_layer(last, plan)]
    if last[0].outputs:
        shown.append(_outputs(last))
    return [*shown, _test_table(tests)] if tests else shown


def _error_columns(plan: Resampling) -> dict[str, str]:
    """Headings and the parts of the squared error below them."""
    batch = {} if plan.fixed else {"batch variance": "batch"}
    return {"bias^2": "bias2", **batch, "neighbor variance": "neighbors", "squared error": "mse"}


def _error_cells(m: VariantErrors, of: str, plan: Resampling) -> list[str]:
    """The parts of the squared error of a part of the gradient, and its cosine."""
    norm2 = m.gradient_norm2[of] or 1.0
    cells = [_cell(m.part(name, of), norm2) for name in _error_columns(plan).values()]
    return [*cells, spread(mean_of(m.cosines[of]))]


def _cell(found: Estimate, norm2: float) -> str:
    return "0" if abs(found.value) < _ZERO * norm2 else spread(found, norm2)


def _along_training(found: Sequence[VariantErrors], plan: Resampling) -> DiagnosisTable:
    ratios = {id(cv): ratio for cv, ratio in gains(found)}
    rows = []
    for m in found:
        ratio, norm = ratios.get(id(m)), digits(m.gradient_norm2["all"] ** 0.5)
        gain = "-" if ratio is None else "{} [{}, {}]".format(*map(digits, ratio))
        rows.append([str(m.step), m.variant.label, norm, *_error_cells(m, "all", plan), gain])
    what = "that batch" if plan.fixed else "all training nodes"
    over = f"{plan.draws} draws" if plan.fixed else f"{plan.batches} batches of {plan.draws} draws each"
    header = ["step", "estimator", "||grad F||", *_error_columns(plan), "cosine", "ns/cv"]
    text = caption("estimator", "along_training", what=what, over=over, confidence=f"{100 * CONFIDENCE:.0f}")
    return DiagnosisTable(text, header, rows)


def _by_layer(last: Sequence[VariantErrors], plan: Resampling) -> DiagnosisTable:
    rows = [
        [m.variant.label, part.removeprefix("layer "), *_error_cells(m, part, plan)]
        for m in last
        for part in m.gradient
        if part != "all"
    ]
    text = caption("estimator", "by_layer", step=last[0].step)
    return DiagnosisTable(text, ["estimator", "layer", *_error_columns(plan), "cosine"], rows)


def _outputs(last: Sequence[VariantErrors]) -> DiagnosisTable:
    columns = {"bias^2": "bias2", "variance": "neighbors", "squared error": "mse"}
    rows = []
    for m in last:
        for name, errors in m.outputs.items():
            norm2 = m.output_norm2[name] or 1.0
            rows.append([m.variant.label, name, *(_cell(part(errors, column), norm2) for column in columns.values())])
    text = caption("estimator", "outputs", step=last[0].step)
    return DiagnosisTable(text, ["estimator", "output", *columns], rows)


def _test_table(tests: Tests) -> DiagnosisTable:
    rows = []
    for (scheme, k, D), found in tests.items():
        size, name = max(((abs(t.z), t.name) for t in found if t.z is not None), default=(None, "-"))
        p = smallest_p(found)
        finding = "exact" if p is None else "no bias found" if unbiased(found) else "BIASED"
        rows.append([scheme, fan_out_text(D), str(k), digits(size), name, digits(p), finding])
    header = ["scheme", "fan-out", "layer", "largest |z|", "projection", "p", "finding"]
    return DiagnosisTable(caption("estimator", "test", level=LEVEL), header, rows)


def _charts(found: Sequence[VariantErrors], plan: Resampling) -> list[LineChart]:
    """Along training, if there are several steps; by fan-out, if there are several; else of the one step."""
    later = [m for m in found if m.step > 0]
    along = _training_charts(later) if len({m.step for m in later}) > 1 else []
    return along + _fan_out_chart(_last(found)) or _one_step_charts(_last(found), plan)


def _training_charts(found: Sequence[VariantErrors]) -> list[LineChart]:
    firsts = [next(group) for _, group in itertools.groupby(found, key=lambda m: m.step)]
    steps = [float(m.step) for m in firsts]
    norm = ChartLine("||grad F||^2", steps, [m.gradient_norm2["all"] for m in firsts], reference=True)
    by_batch = [m.split.batch for m in firsts]
    batch = [ChartLine("the batch's variance", steps, by_batch, reference=True)] if max(by_batch) > 0 else []
    variance, bias = (
        band_lines((m.variant.label, m.step, m.part(name)) for m in _drawing(found)) for name in ("neighbors", "bias2")
    )
    ratios = band_lines(
        (f"fan-out {cv.variant.label.removeprefix('cv ')}", cv.step, ratio)
        for cv, ratio in gains(found)
        if ratio is not None
    )
    one = ChartLine("no difference", [steps[0], steps[-1]], [1.0, 1.0], reference=True)
    charts = [line_chart("estimator", "variance", [*variance, norm, *batch], band=_BAND)]
    if ratios:
        charts.append(line_chart("estimator", "factor", [*ratios, one], band=_BAND))
    return [*charts, line_chart("estimator", "bias", [*bias, norm], band=_BAND)]


def _fan_out_chart(last: Sequence[VariantErrors]) -> list[LineChart]:
    lines = _by_fan_out((m.variant, m.part("neighbors")) for m in _drawing(last))
    return [line_chart("estimator", "fan-out", lines, step=last[0].step)] if lines else []


def _by_fan_out(found: Iterable[tuple[Variant, Estimate]]) -> list[ChartLine]:
    """A curve for each estimator and scheme with several fan-outs; those of several hops have no place on the axis."""
    drawn = [(v, variance) for v, variance in found if len(v.fan_out) == 1 and v.fan_out[0] > 0]
    drawn.sort(key=lambda each: each[0].fan_out)
    lines = band_lines((f"{v.estimator}{v.suffix}", v.fan_out[0], variance) for v, variance in drawn)
    return [line for line in lines if len(line.x) > 1]


def _one_step_charts(last: Sequence[VariantErrors], plan: Resampling) -> list[LineChart]:
    """The variance by layer, and the distribution of the cosines over batches, of every variant."""
    step, units, more = last[0].step, "batches", " A batch's is the mean over its draws of neighbors."
    if plan.fixed:
        units, more = "draws", ""
    lines = [band_line(m.variant.label, _layer_points(m, "neighbors")) for m in _drawing(last)]
    batch = band_line("the batch's variance", _layer_points(last[0], "batch"), reference=True)
    lines += [batch] if max(batch.y) > 0 else []
    layers = line_chart("estimator", "layers", lines, step=step, band=_BAND)
    cosines = []
    for m in last:
        y = sorted(m.cosines["all"].tolist())
        cosines.append(ChartLine(m.variant.label, [100 * (i + 0.5) / len(y) for i in range(len(y))], y))
    cosines.append(ChartLine("neither up nor down", [0.0, 100.0], [0.0, 0.0], reference=True))
    cosine = line_chart("estimator", "cosine", cosines, step=step, units=units, more=more)
    return [layers, cosine] if any(line.x for line in layers.lines if not line.reference) else [cosine]


def _layer_points(m: VariantErrors, name: str) -> list[tuple[float, Estimate]]:
    """A part of the squared error of each layer's gradient, relative to that gradient's squared norm."""
    layers = [(float(k), f"layer {k}") for k in range(len(m.gradient) - 1)]
    return [(k, Estimate(*(v / (m.gradient_norm2[of] or 1.0) for v in m.part(name, of)))) for k, of in layers]


def verdict(found: Sequence[VariantErrors], tests: Tests, *, same_batch: bool) -> str:
    """The finding in a few sentences; `same_batch` if every batch has the same nodes."""
    ratios: dict[str, list[tuple[int, Estimate]]] = {}
    for cv, ratio in gains(found):
        of_variant = ratios.setdefault(cv.variant.label.removeprefix("cv "), [])
        of_variant += [] if ratio is None else [(cv.step, ratio)]
    sentences = [_gain(fan_out, known) for fan_out, known in list(ratios.items())[:4] if known]
    drawing = _drawing(_last(found))
    sentences += [_shares(m, same_batch=same_batch) for m in drawing[:2]]
    for good, text in ((True, "No bias of P^ is found in"), (False, "P^ is biased in")):
        names = [f"{scheme} with {fan_out_text(D)}" for (scheme, _, D), t in tests.items() if unbiased(t) is good]
        sentences += [f"{text} {', '.join(dict.fromkeys(names))}."] if names else []
    if not drawing:
        left = "and the batch is always the same: there is no error" if same_batch else "so all error is the batch's"
        sentences.append(f"The exact estimator draws no neighbors, {left}.")
    return " ".join(sentences)


def _gain(fan_out: str, known: Sequence[tuple[int, Estimate]]) -> str:
    (first, least), (then, most) = (pick(known, key=lambda k: k[1].value) for pick in (min, max))
    between = f"{digits(least.value)} (step {first}) to {digits(most.value)} (step {then})"
    worse = [str(step) for step, ratio in known if ratio.high < 1]
    text = f"With a fan-out of {fan_out}, the neighbor variance of ns is "
    text += f"{digits(least.value) if len(known) == 1 else between} times that of cv"
    return text + (f"; cv is the worse one after step {', '.join(worse)}." if worse else ".")


def _shares(m: VariantErrors, *, same_batch: bool) -> str:
    bias2, batch, neighbors, mse = m.split
    share = min(1.0, max(0.0, neighbors) / mse) if mse > 0 else 0.0
    text = f"After step {m.step}, {rough_percent(share)} of the squared error of {m.variant.label} is due to neighbors"
    if same_batch:
        return f"{text}; the batch is always the same."
    if batch <= 0:
        return f"{text}; the batch's part cannot be distinguished from 0."
    if neighbors + max(bias2, 0.0) < batch:
        return f"{text}: the batch matters more than the fan-out, which is enough."
    return f"{text}: more neighbors would help more than a larger batch."


def _dropout_views(
    found: Mapping[Variant, Estimate], *, norm2: float, dropout: float, step: int
) -> tuple[DiagnosisTable, list[LineChart], str]:
    """The table, the chart by fan-out if there are several, and a sentence, about the variance under dropout.

    Args:
        found: the variance due to neighbors and masks of each variant.
        norm2: `||grad F||^2` without dropout.
        dropout: its rate.
        step: after which step.
    """
    exact = next((variance for v, variance in found.items() if v.estimator == "exact"), estimates.UNKNOWN)
    over_exact = {v: digits(variance.value / exact.value) for v, variance in found.items() if exact.value > 0}
    rows = [[v.label, spread(variance, norm2 or 1.0), over_exact.get(v, "-")] for v, variance in found.items()]
    text = caption("estimator", "dropout", dropout=dropout, step=step)
    shown = DiagnosisTable(text, ["estimator", "variance", "/ exact"], rows)
    lines = _by_fan_out(found.items())
    if lines:
        xs = [x for line in lines for x in line.x]
        lines.append(band_line("exact", [(min(xs), exact), (max(xs), exact)], reference=True))
    charts = [line_chart("estimator", "dropout", lines, dropout=dropout, step=step)] if lines else []
    first = next(iter(found))  # the sentence is about its scheme and fan-out
    alike = [v for v in over_exact if (v.scheme, v.fan_out) == (first.scheme, first.fan_out) and v.estimator != "exact"]
    ratios = ", ".join(f"{over_exact[v]} ({v.label})" for v in alike)
    sentence = f" Under dropout {dropout:g}, the variance due to neighbors and masks is {ratios} times that of exact"
    return shown, charts, f"{sentence} aggregation." if alike else ""
