"""The content of a report (its sections, a summary and warnings, from runs and diagnoses), and its page.

The page is one HTML file: styles, script and data are inside, and it makes no requests.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cvgnn._version import __version__
from cvgnn.lab.diagnose.record import Diagnosis
from cvgnn.lab.recipes import paper_accuracy, paper_runs
from cvgnn.lab.report import colors
from cvgnn.lab.report.charts import Chart, diagnosis_charts, unique_key
from cvgnn.lab.report.evaluation_charts import evaluation_charts
from cvgnn.lab.report.option_charts import HeatMapSet, heat_maps, search_charts
from cvgnn.lab.report.report_tables import AccuracyTable, AppendixTable, accuracy_table, appendix_b
from cvgnn.lab.report.run_groups import KEYS, RunGroup, best, count, group_runs, metric_word, ties, varying
from cvgnn.lab.report.run_reader import RunCollection
from cvgnn.lab.report.training_charts import training_charts
from cvgnn.lab.report.typesetting import as_html, option_name
from cvgnn.lab.sweep.jobs import format_value
from cvgnn.lab.sweep.result_tables import mean_note, metrics_of, top_name
from cvgnn.lab.sweep.summary import format_metric
from cvgnn.training.tasks import result_keys

_DIAGNOSES = {
    "estimator": "Bias and variance of the gradient",
    "history": "Age and error of the histories",
    "bias-vs-lr": "Bias against the learning rate",
    "rate": "Rate of convergence",
    "bound": "The bound of Theorem 1",
}

# What templates use besides the report.
_GLOBALS = {"KEYS": KEYS, "best": best, "paper_accuracy": paper_accuracy, "paper_runs": paper_runs,
            "format_metric": format_metric, "format_value": format_value, "mean_note": mean_note,
            "metrics_of": metrics_of, "result_keys": result_keys, "ties": ties, "top_name": top_name,
            "varying": varying}  # fmt: skip
_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("scale", "dom", "chart", "zoom", "parallel", "report")


@final
@dataclass(frozen=True, kw_only=True)
class ReportSection:
    """A section of a report.

    Args:
        key: its anchor in the page.
        title: its heading.
        charts, heat_maps, accuracies, appendix, diagnosis: the content; of one kind, a diagnosis also has charts.
        folder: where the diagnosis was read.
        groups: the settings whose origin the section shows.
    """

    key: str
    title: str
    charts: Sequence[Chart] = ()
    heat_maps: Sequence[HeatMapSet] = ()
    accuracies: AccuracyTable | None = None
    appendix: Sequence[AppendixTable] = ()
    groups: Sequence[RunGroup] = ()
    diagnosis: Diagnosis | None = None
    folder: Path | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a report shows.

    Args:
        title: a default title.
        summary: a few sentences.
        warnings: about runs that are skipped or not finished.
        sections: the sections that have content.
    """

    title: str
    summary: str
    warnings: Sequence[str]
    sections: Sequence[ReportSection]


def build(collected: RunCollection) -> Report:
    """Group the runs, choose the best settings, and make the charts and tables."""
    groups, duplicates = group_runs(collected.runs)
    word, others = metric_word(groups), accuracy_table(groups, False)
    charts = [ReportSection(key=chart.key, title=chart.title, charts=[chart]) for chart in training_charts(groups)]
    sections = [
        *(section for section in charts if section.key == "accuracy"),
        ReportSection(key="table5", title="Table 5, by both protocols", accuracies=accuracy_table(groups, True)),
        ReportSection(key="accuracies", title=f"Test {word}, by both protocols", accuracies=others),
        *(section for section in charts if section.key != "accuracy"),
        ReportSection(key="appendix-b", title="Best settings (Appendix B)", appendix=appendix_b(groups)),
        ReportSection(key="heat", title="Hyperparameter heat maps", heat_maps=heat_maps(groups)),
        ReportSection(key="evaluated", title="Classes and calibration", charts=evaluation_charts(groups)),
        ReportSection(key="searched", title="Random search", charts=search_charts(groups)),
        *_diagnosis_sections(collected.diagnoses),
        ReportSection(key="origin", title="Where every number comes from", groups=groups),
    ]
    return Report(
        title="Training runs of cvgnn" if groups else "Diagnosis of training with cvgnn",
        summary=_summary(groups, sorted(_dataset(d) for _, d in collected.diagnoses)),
        warnings=_warnings(groups, duplicates, collected.skipped),
        sections=[s for s in sections if any((s.charts, s.accuracies, s.appendix, s.heat_maps, s.groups, s.diagnosis))],
    )


def _diagnosis_sections(diagnoses: Sequence[tuple[Path, Diagnosis]]) -> Iterator[ReportSection]:
    """A section for each diagnosis, in the order of the graphs; its title has the folder if it is one of several."""
    kinds = list(_DIAGNOSES)
    taken: set[str] = set()
    several = Counter((diagnosis.kind, diagnosis.dataset) for _, diagnosis in diagnoses)
    for path, diagnosis in sorted(diagnoses, key=lambda d: (d[1].dataset, kinds.index(d[1].kind), str(d[0]))):
        key = unique_key(diagnosis.kind, diagnosis.dataset, taken)
        taken.add(key)
        where = f" ({path})" if several[diagnosis.kind, diagnosis.dataset] > 1 else ""
        title = f"{_DIAGNOSES[diagnosis.kind]}: {_dataset(diagnosis)}{where}"
        charts = diagnosis_charts(key, diagnosis)
        yield ReportSection(key=key, title=title, charts=charts, diagnosis=diagnosis, folder=path)


def _dataset(diagnosis: Diagnosis) -> str:
    name = diagnosis.dataset
    return name[:100] if name.isprintable() else repr(name[:100])


def _summary(groups: Sequence[RunGroup], diagnosed: Sequence[str]) -> str:
    diagnoses = "1 diagnosis" if len(diagnosed) == 1 else f"{len(diagnosed)} diagnoses"
    if not groups:
        return f"{diagnoses} of training on {_listed(diagnosed)}."
    runs, settings = count(sum(len(group.runs) for group in groups), "run"), count(len(groups), "setting")
    optimizers = ", ".join(dict.fromkeys(group.optimizer for group in groups))
    return (
        f"{runs} of {settings} on {_listed(group.dataset for group in groups)}, with {optimizers}. "
        f"A setting is all runs that differ in their seed only.{f' And {diagnoses}.' if diagnosed else ''}"
    )


def _listed(names: Iterable[str]) -> str:
    """The first ten different names, and how many more there are.

    >>> _listed(["a", "b", "a"])
    'a, b'
    """
    different = list(dict.fromkeys(names))
    return ", ".join(different[:10]) + (f" and {len(different) - 10} more" if len(different) > 10 else "")


def _warnings(groups: Sequence[RunGroup], duplicates: int, skipped: Sequence[str]) -> list[str]:
    states = [run.state for group in groups for run in group.runs]
    numbers = {
        "unfinished: shown with the epochs they have, and not counted in tables": states.count("unfinished"),
        "failed: not counted in tables; the reasons are in the table of all runs": states.count("failed"),
        "left out: an equal one, with the same options and seed, is newer": duplicates,
    }
    warnings = [f"{count(number, 'run')} {meaning}." for meaning, number in numbers.items() if number]
    return warnings + [f"Left out: {message}." for message in skipped]


@functools.cache
def _environment() -> Environment:
    """The templates, with all texts escaped: names in run folders may come from anybody."""
    loader = FileSystemLoader(_ASSETS)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.globals.update(_GLOBALS)
    environment.filters.update(typeset=as_html, option_name=option_name)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def render(report: Report, *, title: str, command: str) -> str:
    """The page.

    Args:
        report: the content.
        title: of the page.
        command: the command that writes it, for the footer.
    """
    script = "".join((_ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    charts = [asdict(chart) for section in report.sections for chart in section.charts]
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            title=title,
            command=command,
            version=__version__,
            palettes={"light": colors.COLORS, "dark": colors.DARK_COLORS},
            data={"charts": charts, "dashes": [*colors.DASHES, *colors.REFERENCE_DASHES]},
            script=Markup(script),
            # The policy allows only this script, and no request at all, even if a name got past the escaping.
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )
