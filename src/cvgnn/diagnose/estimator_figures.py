"""What `diagnose estimator` draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cvgnn.diagnose.estimator_tables import pairs
from cvgnn.diagnose.measure import Measured, Moment, Resampling
from cvgnn.diagnose.record import Figure, Line
from cvgnn.diagnose.statistics import CONFIDENCE, Interval, Units, part_of


def figures(moments: Sequence[Moment], plan: Resampling) -> list[Figure]:
    """Along training, where there are several moments; by fan-out, where there are several."""
    later = [moment for moment in moments if moment.step > 0]
    return ([] if len(later) < 2 else _training_figures(later, plan)) + _fan_out_figure(moments[-1])


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
    if plan.batch != "fixed":
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


def line(name: str, points: Sequence[tuple[int, Interval]], *, reference: bool = False) -> Line:
    """A curve with its band, without the points that a logarithmic axis has no place for."""
    kept = [(x, p) for x, p in points if x > 0 and p.value > 0]
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
