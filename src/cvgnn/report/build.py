"""The content of a report, from runs and diagnoses: figures, tables and what to say about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from cvgnn.report.charts import Figure, count, figures
from cvgnn.report.diagnoses import Shown, show
from cvgnn.report.heat import Heat, heat
from cvgnn.report.origin import commands_table, machines_table, runs_table, settings_table
from cvgnn.report.reading import Collected
from cvgnn.report.settings import Setting, group
from cvgnn.report.tables import Table, appendix_b, table_5


@final
@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a report shows.

    Args:
        summary: in a few sentences.
        warnings: about runs that are left out or not finished.
        figures: accuracy, loss and accuracy against seconds; one that has no data is missing.
        table_5: both protocols; None if no run is finished.
        appendix_b: a table for each data set with several settings.
        heat: maps for each data set with several settings.
        diagnoses: what `cvgnn diagnose` found.
        settings, runs, commands, machines: where every number comes from.
    """

    summary: str
    warnings: list[str]
    figures: list[Figure]
    table_5: Table | None
    appendix_b: list[Table]
    heat: list[Heat]
    diagnoses: list[Shown]
    settings: Table
    runs: Table
    commands: Table
    machines: Table


def build(collected: Collected) -> Report:
    """Group the runs, take means, choose the best settings, draw up the tables."""
    settings, older = group(collected.runs)
    diagnoses = show(collected.diagnoses)
    return Report(
        summary=_summary(settings, diagnoses),
        warnings=_warnings(settings, older, collected.skipped),
        figures=figures(settings),
        table_5=table_5(settings),
        appendix_b=appendix_b(settings),
        heat=heat(settings),
        diagnoses=diagnoses,
        settings=settings_table(settings),
        runs=runs_table(settings),
        commands=commands_table(settings),
        machines=machines_table(settings),
    )


def _summary(settings: list[Setting], diagnoses: list[Shown]) -> str:
    measured = f"{len(diagnoses)} {'diagnosis' if len(diagnoses) == 1 else 'diagnoses'}"
    if not settings:
        return f"{measured} of training on {_listed([shown.dataset for shown in diagnoses])}."
    runs = sum(len(s.runs) for s in settings)
    optimizers = list(dict.fromkeys(s.options["optimizer"] for s in settings))
    named = _listed([s.dataset for s in settings])
    return (
        f"{count(runs, 'run')} of {count(len(settings), 'setting')} on {named}, with {', '.join(optimizers)}. "
        f"A setting is all runs that differ in their seed only.{f' And {measured}.' if diagnoses else ''}"
    )


def _listed(names: list[str]) -> str:
    """The first ten of the names, each once, and how many more there are.

    >>> _listed(["a", "b", "a"])
    'a, b'
    """
    each = list(dict.fromkeys(names))
    return ", ".join(each[:10]) + (f" and {len(each) - 10} more" if len(each) > 10 else "")


def _warnings(settings: list[Setting], older: int, skipped: tuple[str, ...]) -> list[str]:
    words = []
    for state, meaning in (("unfinished", "shown with the epochs they have, and not counted in tables"),
                           ("failed", "not counted in tables; the reasons are in the table of all runs")):  # fmt: skip
        number = sum(run.state == state for s in settings for run in s.runs)
        if number:
            words.append(f"{count(number, 'run')} {state}: {meaning}.")
    if older:
        words.append(f"{count(older, 'run')} left out: an equal one, with the same options and seed, is newer.")
    return words + [f"Left out: {sentence}." for sentence in skipped]
