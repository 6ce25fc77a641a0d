"""What `diagnose estimator` says: tables, and the finding in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cvgnn.diagnose.measure import Measured, Moment, Resampling
from cvgnn.diagnose.record import Table
from cvgnn.diagnose.statistics import CONFIDENCE, Interval, Split, Units, jackknife, mean_of, part_of
from cvgnn.diagnose.words import digits, percent, spread, within
from cvgnn.diagnose.ztest import LEVEL, Tests

_NONE = 1e-12  # below this share of ||grad F||^2 a part is rounding


def tables(moments: Sequence[Moment], tests: Tests, plan: Resampling) -> list[Table]:
    """Along training, by layer, the layers' outputs, and the test of unbiasedness."""
    found = [_along_training(moments, plan), _by_layer(moments[-1], plan)]
    if moments[-1].measured[0].outputs:
        found.append(_outputs(moments[-1]))
    return [*found, _tests(tests)] if tests else found


def _errors(m: Measured, part: str, plan: Resampling) -> list[str]:
    """The cells of a part of the gradient, relative to its exact squared norm."""
    norm2 = m.gradient_norm2[part] or 1.0
    names = ("bias2", "neighbors", "mse") if plan.batch == "fixed" else ("bias2", "batch", "neighbors", "mse")
    return [_cell(part_of(m.gradient[part], name), norm2) for name in names]


def _cell(found: Interval, norm2: float) -> str:
    return "0" if abs(found.value) < _NONE * norm2 else spread(found, norm2)


def _header(plan: Resampling) -> list[str]:
    batch = [] if plan.batch == "fixed" else ["batch variance"]
    return ["bias^2", *batch, "neighbor variance", "squared error", "cosine"]


def _along_training(moments: Sequence[Moment], plan: Resampling) -> Table:
    rows = []
    for moment in moments:
        factors = {id(cv): f for cv, _, f in pairs(moment)}
        for m in moment.measured:
            ratio = factors.get(id(m))
            rows.append(
                [
                    str(moment.step),
                    m.variant.label,
                    digits(m.gradient_norm2["all"] ** 0.5),
                    *_errors(m, "all", plan),
                    spread(mean_of(m.cosines["all"])),
                    "-" if ratio is None else within(ratio),
                ]
            )
    what = "that batch" if plan.batch == "fixed" else "all training nodes"
    over = f"{plan.draws} draws" if plan.batch == "fixed" else f"{plan.batches} batches of {plan.draws} draws each"
    caption = (
        f"The gradient of a step against the exact one of {what}, along training: parts of E||G - grad F||^2, relative "
        f"to ||grad F||^2, and the cosine of G and grad F. ± {100 * CONFIDENCE:.0f} % intervals by the jackknife, from "
        f"{over}; bias^2 and the batch's part are estimated without bias and may fall below 0. ns/cv: how many times "
        "larger the neighbor variance of ns is."
    )
    return Table(caption=caption, header=["step", "estimator", "||grad F||", *_header(plan), "ns/cv"], rows=rows)


def _by_layer(moment: Moment, plan: Resampling) -> Table:
    rows = [
        [m.variant.label, part.removeprefix("layer "), *_errors(m, part, plan), spread(mean_of(m.cosines[part]))]
        for m in moment.measured
        for part in m.gradient
        if part != "all"
    ]
    caption = (
        f"The same by layer, after step {moment.step}: the gradient by W^(k) and its bias, relative to its own norm."
    )
    return Table(caption=caption, header=["estimator", "layer", *_header(plan)], rows=rows)


def _outputs(moment: Moment) -> Table:
    rows = []
    for m in moment.measured:
        for name, units in m.outputs.items():
            norm2 = m.output_norm2[name] or 1.0
            cells = [_cell(part_of(units, part), norm2) for part in ("bias2", "neighbors", "mse")]
            rows.append([m.variant.label, name, *cells])
    caption = (
        f"What the layers compute for the batch's own nodes after step {moment.step}: A^(k), the estimate of P H^(k), "
        "and Z^(k+1) = A^(k) W^(k) + b; relative to the exact squared norm."
    )
    return Table(caption=caption, header=["estimator", "output", "bias^2", "variance", "squared error"], rows=rows)


def _tests(tests: Tests) -> Table:
    rows = []
    for (scheme, k, D), found in tests.items():
        tried = [(abs(t.z), name) for name, t in zip(found.names, found.tests, strict=True) if t.z is not None]
        size, name = max(tried, default=(None, "-"))
        p = found.smallest
        words = "exact" if p is None else "not told from unbiased" if found.unbiased else "BIASED"
        rows.append([scheme, drawn(D), str(k), digits(size), name, digits(p), words])
    caption = (
        "Is E[P^] = P? Projections of (P^ - P) applied to all rows; z of the one that is furthest off, and the "
        f"smallest p-value, corrected for all tests of this table together (Holm); biased if it is below {LEVEL}."
    )
    return Table(
        caption=caption, header=["scheme", "fan-out", "layer", "largest |z|", "projection", "p", "finding"], rows=rows
    )


def drawn(D: int) -> str:
    """A fan-out in words.

    >>> drawn(2), drawn(-1)
    ('2', 'all')
    """
    return "all" if D == -1 else str(D)


def pairs(moment: Moment) -> Iterator[tuple[Measured, Measured, Interval | None]]:
    """`cv` and `ns` with the same scheme and fan-out, and how much larger the neighbors' part of `ns` is."""
    ns = {(m.variant.scheme, m.variant.fan_out): m for m in moment.measured if m.variant.estimator == "ns"}
    for m in moment.measured:
        other = ns.get((m.variant.scheme, m.variant.fan_out))
        if m.variant.estimator == "cv" and other is not None:
            yield m, other, factor(other.gradient["all"], m.gradient["all"])


def factor(above: Units, below: Units) -> Interval | None:
    """How many times larger the neighbors' part of one is than that of another, by the same batches and draws.

    None where the other has none but for rounding.
    """
    at = Split._fields.index("neighbors")
    if below.split()[at] <= 1e-12 * max(above.split()[at], 1e-300):
        return None
    return jackknife(lambda keep: above.split(keep)[at] / below.split(keep)[at], len(above), positive=True)


def verdict(moments: Sequence[Moment], tests: Tests, *, same_batch: bool) -> str:
    """The finding in a few sentences; `same_batch` if every batch has the same nodes."""
    words = []
    for cv, _, _ in list(pairs(moments[-1]))[:4]:
        known = [
            (moment.step, ratio)
            for moment in moments
            for other, _, ratio in pairs(moment)
            if other.variant == cv.variant and ratio is not None
        ]
        if known:
            words.append(_gain(cv.variant.label.removeprefix("cv "), known))
    last = moments[-1]
    drawing = [m for m in last.measured if m.variant.estimator != "exact"]
    words += [_shares(m, last.step, same_batch=same_batch) for m in drawing[:2]]
    biased = [f"{scheme} with {drawn(D)}" for (scheme, _, D), found in tests.items() if not found.unbiased]
    sound = [f"{scheme} with {drawn(D)}" for (scheme, _, D), found in tests.items() if found.unbiased]
    if sound:
        words.append(f"No bias of P^ is found in {', '.join(dict.fromkeys(sound))}.")
    if biased:
        words.append(f"P^ is biased in {', '.join(dict.fromkeys(biased))}.")
    if not drawing:
        left = "and the batch is always the same: there is no error" if same_batch else "so all error is the batch's"
        words.append(f"The exact estimator draws no neighbors, {left}.")
    return " ".join(words)


def _gain(fan_out: str, known: Sequence[tuple[int, Interval]]) -> str:
    (first, least), (then, most) = (pick(known, key=lambda k: k[1].value) for pick in (min, max))
    between = f"{digits(least.value)} (step {first}) to {digits(most.value)} (step {then})"
    worse = [str(step) for step, ratio in known if ratio.high < 1]
    text = f"With a fan-out of {fan_out}, the neighbor variance of ns is "
    text += f"{digits(least.value) if len(known) == 1 else between} times that of cv"
    return text + (f"; cv is the worse one after step {', '.join(worse)}." if worse else ".")


def _shares(m: Measured, step: int, *, same_batch: bool) -> str:
    bias2, batch, neighbors, mse = m.gradient["all"].split()
    share = min(1.0, max(0.0, neighbors) / mse) if mse > 0 else 0.0
    text = f"After step {step}, {percent(share)} of the squared error of {m.variant.label} is due to neighbors"
    if same_batch:
        return f"{text}; the batch is always the same."
    if batch <= 0:
        return f"{text}; the batch's part is not told from 0."
    if neighbors + max(bias2, 0.0) < batch:
        return f"{text}: the batch matters more than the fan-out, which is enough."
    return f"{text}: more neighbors would help more than a larger batch."
