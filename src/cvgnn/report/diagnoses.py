"""Diagnoses as a report shows them: the finding, figures, tables, and where the numbers come from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from cvgnn.diagnose.record import Diagnosis
from cvgnn.diagnose.record import Figure as Drawn
from cvgnn.diagnose.record import Table as Written
from cvgnn.report.charts import MOST_POINTS, Curve, Figure, Panel, Row, View, thinned
from cvgnn.report.tables import Cell, Table

_TITLES = {
    "estimator": "Bias and variance of the gradient",
    "history": "Age and error of the histories",
    "bias-vs-lr": "Bias against the learning rate",
    "rate": "Rate of convergence",
    "bound": "The bound of Theorem 1",
}


@final
@dataclass(frozen=True, kw_only=True)
class Shown:
    """A diagnosis, ready to be shown.

    Args:
        key: of its section, and for file names.
        dataset: name of the graph.
        title: what was measured, and on which graph.
        verdict: the finding in words.
        figures: each with one panel.
        tables: as the command printed them.
        origin: command, machine, versions, folder.
        settings: all that the numbers depend on.
    """

    key: str
    dataset: str
    title: str
    verdict: str
    figures: list[Figure]
    tables: list[Table]
    origin: Table
    settings: Table


def show(found: Sequence[tuple[Path, Diagnosis]]) -> list[Shown]:
    """The diagnoses in the order of their graphs, each kind once a graph unless there are several."""
    kinds = list(_TITLES)
    ordered = sorted(found, key=lambda f: (f[1].dataset, kinds.index(f[1].kind), str(f[0])))
    shown: list[Shown] = []
    taken: set[str] = set()
    for path, diagnosis in ordered:
        name = re.sub("[^a-z0-9]+", "-", f"{diagnosis.kind}-{diagnosis.dataset[:60]}".lower()).strip("-")
        key = name
        for number in range(2, len(ordered) + 2):
            if key not in taken:
                break
            key = f"{name}-{number}"
        taken.add(key)
        several = sum((d.kind, d.dataset) == (diagnosis.kind, diagnosis.dataset) for _, d in found) > 1
        dataset = diagnosis.dataset[:100] if diagnosis.dataset.isprintable() else repr(diagnosis.dataset[:100])
        title = f"{_TITLES[diagnosis.kind]}: {dataset}" + (f" ({path})" if several else "")
        shown.append(
            Shown(
                key=key,
                dataset=dataset,
                title=title,
                verdict=diagnosis.verdict,
                figures=_figures(key, diagnosis.figures),
                tables=[_table(table) for table in diagnosis.tables],
                origin=_origin(path, diagnosis),
                settings=_pairs("All settings.", diagnosis.settings),
            )
        )
    return shown


def _figures(key: str, figures: Sequence[Drawn]) -> list[Figure]:
    """A curve has one color in all figures of a diagnosis."""
    names = dict.fromkeys(line.name for reference in (False, True) for figure in figures for line in figure.lines
                          if line.reference == reference)  # fmt: skip
    color = {name: number for number, name in enumerate(names)}
    return [_figure(key, figure, color) for figure in figures]


def _figure(key: str, drawn: Drawn, color: dict[str, int]) -> Figure:
    curves = []
    for line in drawn.lines:
        keep = thinned(line.y, MOST_POINTS)
        if not keep:
            continue
        curves.append(
            Curve(
                color=color[line.name],
                label=line.name,
                x=[line.x[i] for i in keep],
                mean=[line.y[i] for i in keep],
                low=[(line.low or line.y)[i] for i in keep],
                high=[(line.high or line.y)[i] for i in keep],
                runs=[1] * len(keep),
                reference=line.reference,
            )
        )
    panel = Panel(drawn.y_label, "plain", curves, None, log_x=drawn.log_x, log_y=drawn.log_y)
    view = View("", [Row("", [panel], [])])
    return Figure(f"{key}-{drawn.key}", drawn.title, drawn.caption, drawn.x_label, [view])


def _table(written: Written) -> Table:
    return Table(written.caption, list(written.header), [[Cell(text) for text in row] for row in written.rows])


def _origin(path: Path, diagnosis: Diagnosis) -> Table:
    said = dict(diagnosis.origin)
    machine = said.pop("machine", None)
    rows = [[Cell("folder"), Cell(str(path))]]
    for name, value in said.items():
        rows.append([Cell(str(name)[:80]), Cell(_words(value)[:5000], code=name == "command")])
    if isinstance(machine, dict):
        words = ", ".join(f"{str(k)[:80]} {str(v)[:200]}" for k, v in list(machine.items())[:30])
        rows.append([Cell("machine"), Cell(words)])
    return Table("Where these numbers come from.", ["", ""], rows)


def _pairs(caption: str, values: dict[str, Any]) -> Table:
    flat: dict[str, object] = {}
    for name, value in values.items():
        flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    rows = [[Cell(str(name)[:80]), Cell(_words(value)[:300])] for name, value in list(flat.items())[:200]]
    return Table(caption, ["option", "value"], rows)


def _words(value: object) -> str:
    return ", ".join(map(str, value[:50])) if isinstance(value, list) else str(value)
