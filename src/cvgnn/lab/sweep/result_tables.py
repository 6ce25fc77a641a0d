"""Tables of results in Markdown, LaTeX and JSON, and the files of a sweep."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cvgnn.lab.sweep.jobs import format_value, varying_options
from cvgnn.lab.sweep.pool import Outcome
from cvgnn.lab.sweep.summary import KEYS, Choice, SeedResults, SweepSetting, best_first, group_by_setting
from cvgnn.training.tasks import METRICS, result_keys
from cvgnn.utils import atomic_files
from cvgnn.utils.formatting import align_columns

_TEX = str.maketrans({c: rf"\{c}" for c in "_%&#${}"} | {c: rf"\char{ord(c)}{{}}" for c in "\\~^"})

Columns = Mapping[str, Callable[[SweepSetting], str]]
"""The columns of a table: for each heading, the text of a setting's cell."""


def column(name: str) -> Callable[[SeedResults], str]:
    """A column: mean and deviation over seeds of a value that is compared, see `result_keys`."""
    return lambda setting: setting.text(name)


def choice_text(by: Choice, metrics: Iterable[str]) -> str:
    """How the best settings are chosen.

    >>> choice_text("validation", ["mse"]), choice_text("validation", ["mse", "mae"])
    ('chosen by validation mse', 'chosen by the validation metric')
    """
    names = set(metrics)
    name = f"{by} {names.pop()}" if len(names) == 1 else f"the {by} metric"
    return f"chosen by {name}" + " (the paper's protocol, which selects on the test set)" * (by == "test")


def mean_note(metrics: Iterable[str]) -> str:
    """What the numbers of a table are.

    >>> mean_note(["mse"]), mean_note(["accuracy"])
    ('mean ± standard deviation over seeds; smaller is better', 'mean ± standard deviation over seeds, in %')
    """
    kinds = [METRICS[metric] for metric in metrics]
    percent = ", in %" if all(k.share for k in kinds) else ", shares in %" if any(k.share for k in kinds) else ""
    smaller = "" if any(k.larger_is_better for k in kinds) else "; smaller is better"
    return f"mean ± standard deviation over seeds{percent}{smaller}"


def seconds(setting: SweepSetting) -> str:
    """A column: seconds per run."""
    return "-" if setting.seconds is None else f"{setting.seconds:.1f}"


def progress(setting: SweepSetting) -> str:
    """A column: how many of the runs have ended."""
    failed = len(setting.failures)
    return f"{len(setting.results) + failed}/{setting.planned}" + (f" ({failed} failed)" if failed else "")


def sweep_columns(settings: Sequence[SweepSetting]) -> Columns:
    """The columns of a sweep's table: the options in which its settings differ, runs and accuracies."""
    names, metrics = varying_options([setting.options for setting in settings]), metrics_of(settings)
    return {
        "dataset": lambda s: s.dataset,
        **{name: lambda s, name=name: format_value(s.options[name]) for name in names},  # type: ignore[misc]
        "runs": lambda s: str(len(s.results)) + (f" ({len(s.failures)} failed)" if s.failures else ""),
        **({"metric": lambda s: s.metric} if metrics != {"accuracy"} and "metric" not in names else {}),
        "validation": column("val"),
        "test at best validation": column("test"),
        f"{top_name(metrics)} test (paper's protocol)": column("top_test"),
    }


def top_name(metrics: Iterable[str]) -> str:
    """Highest or lowest, whichever is the best; both may be in one table."""
    directions = {METRICS[metric].larger_is_better for metric in metrics}
    return "best" if len(directions) > 1 else "highest" if directions.pop() else "lowest"


def rows(columns: Columns, settings: Sequence[SweepSetting]) -> list[list[str]]:
    """A table's cells, one row for each setting."""
    return [[text(setting) for text in columns.values()] for setting in settings]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    header, *body = align_columns([header, *rows])
    lines = [header, ["-" * len(cell) for cell in header], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tex(text: str) -> str:
    r"""A text with LaTeX's special characters escaped.

    >>> print(tex("50 % of a_b"))
    50 \% of a\_b
    """
    return text.translate(_TEX)


def booktabs(header: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str, label: str) -> str:
    """A LaTeX table in the style of the paper's.

    Args:
        header: names of the columns, as plain text.
        rows: cells as LaTeX; an empty row is a rule.
        caption, label: of the table, as LaTeX.
    """
    lines = [
        r"\begin{table}[h]",
        rf"\caption{{{caption}}}\label{{{label}}}%",
        rf"\begin{{tabular}}{{@{{}}{'l' * len(header)}@{{}}}}",
        r"\toprule",
        " & ".join(map(tex, header)) + r"\\",
        r"\midrule",
        *(" & ".join(row) + r"\\" if row else r"\midrule" for row in rows),
    ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def marked(values: Mapping[str, str]) -> dict[str, str]:
    r"""Numbers as printed, `-` for none, as LaTeX as in the paper's Table 5: the best bold, the second best underlined.

    >>> print(*marked({"a": "70.00 ± 0.50", "b": "71.00", "c": "-"}).values(), sep=", ")
    \underline{70.00} $\pm$ 0.50, \textbf{71.00}, --
    """
    places = ranks({name: text for name, text in values.items() if text != "-"})
    return {name: as_tex(text, places.get(name, 0)) for name, text in values.items()}


def as_tex(text: str, rank: int = 0) -> str:
    """A number as printed, as LaTeX; bold if its rank is 1, underlined if it is 2."""
    mean, _, deviation = ("--" if text == "-" else text).partition(" ± ")
    mean = {1: rf"\textbf{{{mean}}}", 2: rf"\underline{{{mean}}}"}.get(rank, mean)
    return mean + (rf" $\pm$ {deviation}" if deviation else "")


def ranks(printed: Mapping[str, str], *, larger_is_better: bool = True) -> dict[str, int]:
    """The rank of the best (1) and the second best (2) number as printed, 0 of the others; equal ones share a rank.

    >>> ranks({"a": "3.00", "b": "5.00 ± 0.10", "c": "5.00", "d": "1.00"})
    {'a': 2, 'b': 1, 'c': 1, 'd': 0}
    """
    values = {name: float(text.split()[0]) for name, text in printed.items()}
    order = sorted(set(values.values()), reverse=larger_is_better)[:2]
    return {name: order.index(value) + 1 if value in order else 0 for name, value in values.items()}


def as_json(setting: SweepSetting) -> dict[str, Any]:
    """A setting for table.json: options, means and deviations; seeds, names and numbers of the finished runs, in the
    same order; and the reasons of the failed ones."""
    keys = (*result_keys(setting.metric).values(), "train_seconds", "eval_seconds")
    return {
        "dataset": setting.dataset,
        "options": setting.options,
        "metric": setting.metric,
        "seeds": [job.config.seed for job in setting.jobs],
        "runs": [job.name for job in setting.jobs],
        "failures": list(setting.failures),
        **{key: [result.get(key) for result in setting.results] for key in keys},
        **{f"{key}_mean": setting.mean(key) for key in keys},
        **{f"{key}_std": setting.deviation(key) for key in keys},
    }


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    """One line per failed run, with the reason."""
    return [f"{outcome.job.label}: {outcome.reason}" for outcome in outcomes if outcome.result is None]


def document(title: str, note: str, sections: Mapping[str, str | Sequence[str]], about: Mapping[str, Any]) -> str:
    """A page in Markdown.

    Args:
        title, note: of the page.
        sections: the text, or the list, below each heading; empty lists are left out, and an empty heading is none.
        about: the `command` and the `machine` behind the numbers.
    """
    parts = [f"# {title}", note]
    for heading, body in sections.items():
        if body:
            parts += [f"## {heading}"] if heading else []
            parts.append(body if isinstance(body, str) else "\n".join(f"- {line}" for line in body))
    machine = ", ".join(f"{name} {value}" for name, value in about["machine"].items())
    return "\n\n".join([*parts, f"Command: `{about['command']}`", f"Machine: {machine}."]) + "\n"


def metrics_of(settings: Sequence[SeedResults]) -> set[str]:
    """The metrics of the settings that have results; accuracy if none has."""
    return {setting.metric for setting in settings if setting.results} or {"accuracy"}


def chosen(settings: Sequence[SweepSetting], *, by: Choice) -> list[SweepSetting]:
    """The best setting for each data set, metric and optimizer; settings with a failed run are not chosen."""
    groups: dict[tuple[str, ...], list[SweepSetting]] = {}
    for setting in settings:
        if not setting.failures:
            groups.setdefault((setting.dataset, setting.metric, setting.optimizer), []).append(setting)
    return [best for group in groups.values() for best in best_first(group, by=by)[:1]]


def sweep_files(outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> dict[str, Any]:
    """`table.md` and the content of `table.json`.

    Args:
        outcomes: of all runs.
        about: the `command` and the `machine` behind the numbers.
    """
    settings, failed = group_by_setting(outcomes), failures(outcomes)
    columns, metrics = sweep_columns(settings), metrics_of(settings)
    best = {choice: chosen(settings, by=choice) for choice in KEYS}
    tables = {choice_text(choice, metrics).capitalize(): several for choice, several in best.items()}
    sections: dict[str, str | Sequence[str]] = {
        heading: markdown(list(columns), rows(columns, several))
        for heading, several in {**tables, "All settings": settings}.items()
    }
    content = {
        **about,
        "settings": [as_json(setting) for setting in settings],
        "chosen": {choice: [as_json(setting) for setting in several] for choice, several in best.items()},
        "failures": failed,
    }
    note = f"{mean_note(metrics).capitalize()}."
    return {"table.md": document("Sweep", note, sections | {"Failed": failed}, about), "table.json": content}


def prepare(folder: Path, *subfolders: str) -> None:
    """Make an output folder with its subfolders and check that they are writable, before anything runs."""
    with atomic_files.report_errors(f"cannot use {folder} as output folder", "choose another --out"):
        for place in (*(folder / name for name in subfolders), folder):
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                pass


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Write texts, and other values as JSON, under their names."""
    with atomic_files.report_errors(f"cannot write to {folder}, whose runs are kept"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
            atomic_files.write_file(folder / name, text.encode())
