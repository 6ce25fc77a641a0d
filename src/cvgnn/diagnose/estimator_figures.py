"""What `diagnose estimator` draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cvgnn.diagnose.estimator_tables import pairs
from cvgnn.diagnose.measure import Measured, Moment, Resampling
from cvgnn.diagnose.record import Figure, Line
from cvgnn.diagnose.statistics import CONFIDENCE, Interval, Units, part_of


def figures(moments: Sequence[Moment], plan: Resampling) -> list[Figure]:
    """Along training, where there are several moments; by fan-out, where there are several; else of the one moment."""
    later = [moment for moment in moments if moment.step > 0]
    found = ([] if len(later) < 2 else _training_figures(later, plan)) + _fan_out_figure(moments[-1])
    return found or _moment_figures(moments[-1], plan)


def _training_figures(moments: Sequence[Moment], plan: Resampling) -> list[Figure]:
    band = f"Band: {100 * CONFIDENCE:.0f} % interval."

    def curves(value: Callable[[Measured], Interval]) -> list[Line]:
        drawn: dict[str, list[tuple[int, Interval]]] = {}
        for moment in moments:
            for m in moment.measured:
                if m.variant.estimator != "exact":
                    drawn.setdefault(m.variant.label, []).append((moment.step, value(m)))
        return [line(name, points) for name, points in drawn.items()]

    def of(units: Callable[[Measured], Units], part: str) -> Callable[[Measured], Interval]:
        return lambda m: part_of(units(m), part)

    size = [(moment.step, _flat(moment.measured[0].gradient_norm2["all"])) for moment in moments]
    batch = [(moment.step, _flat(part_of(moment.measured[0].gradient["all"], "batch").value)) for moment in moments]
    references = [line("||grad F||^2", size, reference=True)]
    if any(p.value > 0 for _, p in batch):
        references.append(line("the batch's variance", batch, reference=True))
    found = [
        Figure(
            key="variance",
            title="Variance due to the neighbors drawn",
            caption=f"E||G - E[G | batch]||^2 of the whole gradient along training; dashed, for comparison, the "
            f"batch's part and the exact gradient's squared norm. {band}",
            x_label="step",
            y_label="variance of the gradient",
            lines=[*curves(of(lambda m: m.gradient["all"], "neighbors")), *references],
            log_x=True,
            log_y=True,
        ),
        Figure(
            key="bias",
            title="Squared bias",
            caption=f"||E[G] - grad F||^2 along training; estimated without bias, and left out where that is not above "
            f"0. Dashed: ||grad F||^2. {band}",
            x_label="step",
            y_label="squared bias of the gradient",
            lines=[*curves(of(lambda m: m.gradient["all"], "bias2")), references[0]],
            log_x=True,
            log_y=True,
        ),
    ]
    factors: dict[str, list[tuple[int, Interval]]] = {}
    for moment in moments:
        for cv, _, ratio in pairs(moment):
            if ratio is not None:
                factors.setdefault(cv.variant.label.removeprefix("cv "), []).append((moment.step, ratio))
    if factors:
        steps = [moments[0].step, moments[-1].step]
        one = Line(name="no difference", x=steps, y=[1.0, 1.0], reference=True)
        found.insert(
            1,
            Figure(
                key="factor",
                title="What the control variate gains",
                caption=f"Neighbor variance of ns over that of cv with the same fan-out, by the same batches and "
                f"draws. Above the dashed line cv is better. {band}",
                x_label="step",
                y_label="variance of ns / variance of cv",
                lines=[*(line(f"fan-out {name}", points) for name, points in factors.items()), one],
                log_x=True,
                log_y=True,
            ),
        )
    return found


def _fan_out_figure(moment: Moment) -> list[Figure]:
    drawn: dict[str, list[tuple[int, Interval]]] = {}
    for m in moment.measured:
        if m.variant.estimator != "exact" and len(m.variant.fan_out) == 1 and m.variant.fan_out[0] > 0:
            named = "" if m.variant.scheme == "without-replacement" else f" ({m.variant.scheme})"
            point = (m.variant.fan_out[0], part_of(m.gradient["all"], "neighbors"))
            drawn.setdefault(f"{m.variant.estimator}{named}", []).append(point)
    several = {name: sorted(points) for name, points in drawn.items() if len(points) > 1}
    if not several:
        return []
    return [
        Figure(
            key="fan-out",
            title="Variance by fan-out",
            caption=f"Variance due to the neighbors drawn, after step {moment.step}. The histories are those that "
            "training with its own fan-out has left.",
            x_label="neighbors drawn for a node",
            y_label="variance of the gradient",
            lines=[line(name, points) for name, points in several.items()],
            log_x=True,
            log_y=True,
        )
    ]


def _moment_figures(moment: Moment, plan: Resampling) -> list[Figure]:
    """The variance by layer, and how the cosines are spread over batches, of every way to estimate."""
    drawing = [m for m in moment.measured if m.variant.estimator != "exact"]
    by_layer = [_by_layer(m.variant.label, m, "neighbors") for m in drawing]
    batch = _by_layer("the batch's variance", moment.measured[0], "batch", reference=True)
    cosines = []
    for m in moment.measured:
        y = sorted(m.cosines["all"].tolist())
        cosines.append(Line(name=m.variant.label, x=[100 * (i + 0.5) / len(y) for i in range(len(y))], y=y))
    of_what, more = "batches", " A batch's is the mean over its draws of neighbors."
    if plan.batch == "fixed":
        of_what, more = "draws", ""
    found = [
        Figure(
            key="cosine",
            title=f"How much of a step goes downhill, after step {moment.step}",
            caption=f"Cosine of a step's gradient G and grad F for each of the {of_what}, sorted; below the dashed "
            f"line steps go uphill.{more}",
            x_label=f"share of the {of_what} at or below, in %",
            y_label="cosine of G and grad F",
            lines=[*cosines, Line(name="neither up nor down", x=[0.0, 100.0], y=[0.0, 0.0], reference=True)],
        )
    ]
    if any(curve.x for curve in by_layer):
        found.insert(
            0,
            Figure(
                key="layers",
                title=f"Variance by layer, after step {moment.step}",
                caption="Variance of the gradient by W^(k) due to the neighbors drawn, relative to its own squared "
                f"norm; dashed, for comparison, the batch's part. Band: {100 * CONFIDENCE:.0f} % interval.",
                x_label="layer k, 0 is the first",
                y_label="variance / squared norm",
                lines=[*by_layer, batch] if batch.x else by_layer,
                log_y=True,
            ),
        )
    return found


def _by_layer(name: str, m: Measured, part: str, *, reference: bool = False) -> Line:
    """A part of the squared error of each layer's gradient, relative to that gradient's squared norm."""
    points = []
    for k in range(len(m.gradient) - 1):
        units, size = m.gradient[f"layer {k}"], m.gradient_norm2[f"layer {k}"] or 1.0
        points.append((k, Interval(*(value / size for value in part_of(units, part)))))
    return line(name, points, reference=reference, log_x=False)


def line(name: str, points: Sequence[tuple[int, Interval]], *, reference: bool = False, log_x: bool = True) -> Line:
    """A curve with its band, without the points that logarithmic axes have no place for."""
    kept = [(x, p) for x, p in points if (x > 0 or not log_x) and p.value > 0]
    bare = reference or all(p.low == p.high for _, p in kept)
    return Line(
        name=name,
        x=[x for x, _ in kept],
        y=[p.value for _, p in kept],
        low=[] if bare else [p.low for _, p in kept],
        high=[] if bare else [p.high for _, p in kept],
        reference=reference,
    )


def _flat(value: float) -> Interval:
    return Interval(value, value, value)
