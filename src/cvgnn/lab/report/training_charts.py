"""The charts of training runs: metric and loss by epoch, metric by training time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from cvgnn.lab.recipes import PAPER_OPTIMIZERS
from cvgnn.lab.report import run_groups
from cvgnn.lab.report.charts import Chart, ChartView, Curve, Panel, PanelRow, axis_span
from cvgnn.lab.report.colors import COLORS, DASHES, CurveStyle, curve_style
from cvgnn.lab.report.run_groups import KEYS, TUNED, Choice, RunGroup, best, count, partition, seeds
from cvgnn.training import EpochRecord
from cvgnn.training.tasks import METRICS

MAX_CURVES = 10  # in a panel: two methods for each of the paper's optimizers
_Value = Callable[[EpochRecord], float | None]

_VIEWS: dict[Choice, str] = {
    "validation": "best settings by validation",
    "test": "best settings by test (the paper's way)",
}
_SPLITS = {"train": "training", "val": "validation", "test": "test"}


@final
@dataclass(frozen=True)
class CurveCandidate:
    """A setting that may get a curve.

    Args:
        label: the curve's name.
        family: the optimizer, if there are several methods: its curves share a color if there are too few colors.
        group: the setting's runs.
        settings: the number of settings of which this one is the best.
    """

    label: str
    family: str
    group: RunGroup
    settings: int

    def note(self, numeric: Iterable[str]) -> str:
        """The tuned options and the runs behind the curve."""
        runs = self.group.runs
        parts = [
            self.group.describe(dict.fromkeys((*TUNED, *numeric))),
            f"{count(len(runs), 'run')}, seed{'s' * (len(runs) > 1)} {seeds(runs[:12])}" + ", ..." * (len(runs) > 12),
            f"best of {self.settings} settings" if self.settings > 1 else "",
            "on different machines or versions" if len({run.machine for run in runs} - {None}) > 1 else "",
            ", ".join([f"{run.state} after epoch {len(run.records)}" for run in runs if run.result is None][:3]),
        ]
        return "; ".join(filter(None, parts))


def candidates(groups: Sequence[RunGroup], variants: Sequence[str], by: Choice) -> list[CurveCandidate]:
    """All possible curves of a data set: the best setting of each method; if there is one method, every setting.

    Args:
        groups: the settings on the data set.
        variants: the `variant_options` of the whole report.
        by: the criterion for the best; where no run is finished, the setting with the most epochs is taken.
    """
    methods = partition(groups, lambda g: g.method(variants))
    if len(methods) > 1 or len(groups) == 1:
        return [CurveCandidate(m[0].method(variants), m[0].optimizer, _representative(m, by), len(m)) for m in methods]
    options = run_groups.numeric_options(groups)
    return [CurveCandidate(label := group.describe(options), label, group, 1) for group in groups]


def _representative(groups: Sequence[RunGroup], by: Choice) -> RunGroup:
    return best(groups, by=by) or max(groups, key=lambda g: sum(len(run.records) for run in g.runs))


def select(possible: Sequence[CurveCandidate], by: Choice) -> list[CurveCandidate]:
    """The candidates that are drawn: the best of each optimizer, and the best of the others as far as there is room."""
    scores = {c: c.group.score(by) for c in possible}
    ranked = sorted(possible, key=lambda c: -math.inf if (score := scores[c]) is None else score, reverse=True)
    best_of = {c.group.optimizer: c for c in reversed(ranked)}
    kept = list(dict.fromkeys((*best_of.values(), *ranked)))[: max(MAX_CURVES, len(best_of))]
    return [c for c in possible if c in kept]


def curve_styles(families: Mapping[str, str]) -> dict[str, CurveStyle]:
    """The color and dash of each curve, the same in all charts. Up to eight curves differ in both; of more, those of an
    optimizer share a color and differ in the dash. The paper's optimizers come first.

    Args:
        families: `CurveCandidate.family` for each label.

    >>> list(curve_styles({"sgd": "sgd", "lion": "lion", "adam": "adam"}))
    ['adam', 'sgd', 'lion']
    """
    order = [*PAPER_OPTIMIZERS, *families.values()]
    labels = sorted(families, key=lambda label: order.index(families[label]))
    if len(labels) <= len(COLORS):
        return {label: curve_style(number) for number, label in enumerate(labels)}
    hues = list(dict.fromkeys(families[label] for label in labels))
    variants = {label: label.removeprefix(families[label]) for label in labels}
    dashes = list(dict.fromkeys(variants.values()))
    if len(hues) <= len(COLORS) and len(dashes) <= len(DASHES):
        return {label: (hues.index(families[label]), dashes.index(variants[label])) for label in labels}
    per_color = min(math.ceil(len(labels) / len(COLORS)), len(DASHES))
    return {label: (n // per_color % len(COLORS), n % per_color) for n, label in enumerate(labels)}


def full_labels(
    drawn: Iterable[Sequence[CurveCandidate]], styles: Mapping[str, CurveStyle], options: Sequence[str]
) -> dict[str, str]:
    """For each label the text of the legend: it also names the options in which curves of the same color differ.

    Args:
        drawn: the curves of each data set; where an optimizer's options differ between data sets, the lists below the
            panels name them instead.
        styles: from `curve_styles`.
        options: the numeric options that vary.
    """
    longer: dict[str, set[str]] = {}
    for curves in drawn:
        for curve in curves:
            mates = [c.group for c in curves if styles[c.label][0] == styles[curve.label][0]]
            differing = [name for name in options if len(run_groups.levels(mates, name)) > 1]
            missing = [name for name in differing if curve.group.describe([name]) not in curve.label]
            text = ", ".join(filter(None, (curve.label, curve.group.describe(missing))))
            longer.setdefault(curve.label, set()).add(text)
    return {label: texts.pop() if len(texts) == 1 else label for label, texts in longer.items()}


def training_charts(groups: Sequence[RunGroup]) -> list[Chart]:
    """All charts of the runs that have data."""
    variants, numeric = run_groups.variant_options(groups), run_groups.numeric_options(groups)
    parts = {part[0].dataset: part for part in run_groups.by_dataset(groups)}
    possible = {by: {dataset: candidates(part, variants, by) for dataset, part in parts.items()} for by in KEYS}
    drawn = {by: {name: select(curves, by) for name, curves in possible[by].items()} for by in KEYS}
    counts = [(name, len(drawn["validation"][name]), len(curves)) for name, curves in possible["validation"].items()]
    omitted = omission_note(counts)
    chosen = any(c.settings > 1 for curves in drawn["validation"].values() for c in curves)
    views = [by for by in KEYS if by == "validation" or chosen or omitted]  # one where there is nothing to choose
    styles = curve_styles({c.label: c.family for by in views for curves in drawn[by].values() for c in curves})

    labels = {by: full_labels(drawn[by].values(), styles, numeric) for by in views}

    def panel(by: Choice, dataset: str, values: str, key: str) -> Panel:
        group = parts[dataset][0]
        curves = []
        for candidate in drawn[by][dataset]:
            curve = mean_curve(candidate.group, _value(values, group.metric), seconds=key == "seconds")
            note = candidate.note(numeric) if key == "accuracy" else ""
            curves.append(replace(curve, label=labels[by][candidate.label], style=styles[candidate.label], note=note))
        curves = [curve for curve in curves if curve.x]
        if values == "loss":  # one panel per data set: they stand side by side
            return Panel(dataset, "number", curves, y_label="loss")
        span = axis_span(curves, larger_is_better=METRICS[group.metric].larger_is_better)
        return Panel(f"{_SPLITS[values]} {group.metric}", group.unit, curves, span, y_label=group.metric)

    def chart(key: str, title: str, values: Sequence[str]) -> Chart:
        made = []
        for by in views:
            rows = [PanelRow(dataset, [panel(by, dataset, value, key) for value in values]) for dataset in parts]
            rows = [row for row in rows if any(panel.curves for panel in row.panels)]  # type: ignore[union-attr]
            if key == "loss" and rows:
                rows = [PanelRow("", [row.panels[0] for row in rows])]
            if rows:
                made.append(ChartView(_VIEWS[by], rows))
        caption = ("A curve is its method's best setting. " * chosen + omitted) if key == "accuracy" else ""
        return Chart(key, title, caption, "seconds of training" if key == "seconds" else "epoch", made)

    name = run_groups.metric_word(groups).capitalize()
    charts = [
        chart("accuracy", f"{name} by epoch", ("train", "val", "test")),
        chart("loss", "Training loss by epoch", ("loss",)),
        chart("seconds", f"{name} against seconds", ("val", "test")),
    ]
    return [made for made in charts if made.views]


def _value(name: str, metric: str) -> _Value:
    """The loss of an epoch, or its metric on a split; None where it is not known."""
    if name == "loss":
        return lambda record: record.loss if math.isfinite(record.loss) else None
    return lambda record: record.metrics.get(f"{name}_{metric}")


def mean_curve(group: RunGroup, value: _Value, *, seconds: bool = False) -> Curve:
    """Mean, lowest and highest value over the runs, for every epoch that one of them has.

    Args:
        group: the runs.
        value: the number to take from an epoch's record.
        seconds: whether x is the mean training time up to the epoch instead of its number.
    """
    by_epoch: dict[int, list[EpochRecord]] = {}
    for run in group.runs:
        for record in run.records:
            by_epoch.setdefault(record.epoch, []).append(record)
    x: list[float] = []
    values: list[list[float]] = []
    clock = 0.0
    for epoch, records in sorted(by_epoch.items()):
        clock += statistics.fmean(record.train_seconds for record in records)
        known = [v for record in records if (v := value(record)) is not None]
        if known:
            x.append(float(f"{clock:.6g}") if seconds else epoch)
            values.append(known)
    return Curve.over_runs(x, values).thinned()


def omission_note(counts: Sequence[tuple[str, int, int]]) -> str:
    """A sentence on the curves that are not drawn.

    Args:
        counts: for each data set its name, the number of curves that are drawn, and of all curves.

    >>> omission_note([("cora", 10, 15), ("citeseer", 5, 5)])
    'Left out: 5 of 15 curves on cora; the best are drawn, at least one of every optimizer. '
    """
    omitted = [f"{total - drawn} of {total} curves on {name}" for name, drawn, total in counts if drawn < total]
    return f"Left out: {', '.join(omitted)}; the best are drawn, at least one of every optimizer. " if omitted else ""
