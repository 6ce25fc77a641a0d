"""The charts of how runs classify: F1 of each class, and how probabilities agree with the share of right answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cvgnn.lab.report import run_groups
from cvgnn.lab.report.charts import Chart, ChartView, Curve, Panel, PanelRow
from cvgnn.lab.report.run_groups import RunGroup, best

_MOST_CLASSES = 60  # that still have room on an axis
_MOST_BINS = 100
_F1 = "F1 of each class in the best setting by validation; mean over runs, from the lowest to the highest."
_RELIABILITY = (
    "A point is a bin of nodes by the probability of their predicted class: the share of them that is right. On the "
    "grey line both agree. The best setting by validation, its first run."
)


def evaluation_charts(groups: Sequence[RunGroup]) -> list[Chart]:
    """A panel for each data set whose results have a table of the classes, or a calibration."""
    f1, reliability = [], []
    for part in run_groups.by_dataset(groups):
        chosen = best(part, by="validation")
        results = [] if chosen is None else chosen.results
        columns = [c for c in (_shares(result, "per_class", "f1") for result in results) if c is not None]
        if columns and len(columns[0]) <= _MOST_CLASSES and len({len(c) for c in columns}) == 1:
            names = results[0].get("class_names")
            named = isinstance(names, list) and len(names) == len(columns[0])
            ticks = [str(name)[:20] for name in names or ()] if named else [str(c) for c in range(len(columns[0]))]
            each = list(zip(*columns, strict=True))
            curve = Curve.over_runs(list(range(len(ticks))), each, label=part[0].dataset)
            f1.append(
                Panel(part[0].dataset, "percent", [curve], points=True, y_label="F1", x_label="class", x_ticks=ticks)
            )
        for result in results[:1]:
            x, y = (_shares(result, "calibration", name, gaps=True) for name in ("confidence", "accuracy"))
            pairs = zip(x or (), y or (), strict=False)
            bins = [(p, share) for p, share in pairs if p is not None and share is not None]
            if bins and len(bins) <= _MOST_BINS:
                confidence, right = [p for p, _ in bins], [[share] for _, share in bins]
                points = Curve.over_runs(confidence, right, label=part[0].dataset)
                line = Curve.over_runs([0.0, 1.0], [[0.0], [1.0]], label="right as often as said", reference=True)
                reliability.append(Panel(part[0].dataset, "percent", [points, line], y_label="accuracy"))
    charts = []
    if f1:
        charts.append(Chart("classes", "F1 by class", _F1, "class", [ChartView("", [PanelRow("", f1)])]))
    if reliability:
        rows = [PanelRow("", reliability)]
        x_label = "probability of the predicted class"
        charts.append(Chart("reliability", "Calibration", _RELIABILITY, x_label, [ChartView("", rows)]))
    return charts


def _shares(result: dict[str, Any], table: str, name: str, *, gaps: bool = False) -> list[float | None] | None:
    """A list of shares from result.json, which may come from anybody; None if it is not there or is something else."""
    values = result.get(table)
    column = values.get(name) if isinstance(values, dict) else None
    if not isinstance(column, list):
        return None
    valid = all((v is None and gaps) or (type(v) in (int, float) and 0 <= v <= 1) for v in column)
    return column if valid else None
