"""Tables of accuracies in Markdown, LaTeX and JSON, and the files of a sweep."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cvgnn.lab.sweep.jobs import format_value, varying_options
from cvgnn.lab.sweep.pool import Outcome
from cvgnn.lab.sweep.summary import Choice, SeedResults, SweepSetting, group_by_setting, highest
from cvgnn.utils import atomic_files
from cvgnn.utils.formatting import align_columns

_TEX = str.maketrans({c: rf"\{c}" for c in "_%&#${}"} | {c: rf"\char{ord(c)}{{}}" for c in "\\~^"})

Columns = Mapping[str, Callable[[SweepSetting], str]]
"""The columns of a table: for each heading, the text of a setting's cell."""

Mean = tuple[float, float | None]
"""An accuracy in percent and its standard deviation, None for a single run."""

CHOICES: dict[Choice, str] = {
    "validation": "chosen by validation accuracy",
    "test": "chosen by test accuracy (the paper's protocol, which selects on the test set)",
}


def accuracy(key: str) -> Callable[[SeedResults], str]:
    """A column: mean and deviation of the accuracy `key` over seeds."""
    return lambda setting: setting.percent(key)


def seconds(setting: SweepSetting) -> str:
    """A column: seconds per run."""
    return "-" if setting.seconds is None else f"{setting.seconds:.1f}"


def progress(setting: SweepSetting) -> str:
    """A column: how many of the runs have ended."""
    failed = len(setting.failures)
    return f"{len(setting.results) + failed}/{setting.planned}" + (f" ({failed} failed)" if failed else "")


def sweep_columns(settings: Sequence[SweepSetting]) -> Columns:
    """The columns of a sweep's table: the options in which its settings differ, runs and accuracies."""
    names = varying_options([setting.options for setting in settings])
    return {
        "dataset": lambda s: s.dataset,
        **{name: lambda s, name=name: format_value(s.options[name]) for name in names},  # type: ignore[misc]
        "runs": lambda s: str(len(s.results)) + (f" ({len(s.failures)} failed)" if s.failures else ""),
        "validation": accuracy("val_accuracy"),
        "test at best validation": accuracy("test_accuracy"),
        "highest test (paper's protocol)": accuracy("max_test_accuracy"),
    }


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


def percent_mean(setting: SeedResults, key: str) -> Mean | None:
    """Mean and deviation of an accuracy over seeds, in percent."""
    mean, deviation = setting.mean(key), setting.deviation(key)
    return None if mean is None else (100 * mean, None if deviation is None else 100 * deviation)


def marked(values: Mapping[str, Mean | None]) -> dict[str, str]:
    r"""Accuracies as LaTeX, as in the paper's Table 5: the best bold, the second best underlined.

    >>> print(*marked({"a": (70.0, 0.5), "b": (71.0, None), "c": None}).values(), sep=", ")
    \underline{70.00} $\pm$ 0.50, \textbf{71.00}, --
    """
    places = ranks({name: value[0] for name, value in values.items() if value is not None})
    return {name: as_tex(value, places.get(name, 0)) for name, value in values.items()}


def as_tex(value: Mean | None, rank: int = 0) -> str:
    """An accuracy as LaTeX, `--` for None; bold if its rank is 1, underlined if it is 2."""
    if value is None:
        return "--"
    mean, deviation = f"{value[0]:.2f}", "" if value[1] is None else rf" $\pm$ {value[1]:.2f}"
    return {1: rf"\textbf{{{mean}}}", 2: rf"\underline{{{mean}}}"}.get(rank, mean) + deviation


def ranks(values: Mapping[str, float]) -> dict[str, int]:
    """The names of the highest (1) and the second highest (2) value, rounded as printed; equal values share a rank.

    >>> ranks({"a": 3.0, "b": 5.0, "c": 5.001})
    {'a': 2, 'b': 1, 'c': 1}
    """
    printed = {name: round(value, 2) for name, value in values.items()}
    order = sorted(set(printed.values()), reverse=True)[:2]
    return {name: order.index(value) + 1 for name, value in printed.items() if value in order}


def as_json(setting: SweepSetting) -> dict[str, Any]:
    """A setting for table.json: options, means and deviations; seeds, names and numbers of the finished runs, in the
    same order; and the reasons of the failed ones."""
    keys = ("val_accuracy", "test_accuracy", "max_test_accuracy", "train_seconds", "eval_seconds")
    return {
        "dataset": setting.dataset,
        "options": setting.options,
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


def chosen(settings: Sequence[SweepSetting], *, by: Choice) -> list[SweepSetting]:
    """The best setting for each data set and optimizer; settings with a failed run are not chosen."""
    groups: dict[tuple[str, str], list[SweepSetting]] = {}
    for setting in settings:
        group = groups.setdefault((setting.dataset, setting.optimizer), [])
        group += [] if setting.failures else [setting]
    return [best for group in groups.values() if (best := highest(group, by=by)) is not None]


def sweep_files(outcomes: Sequence[Outcome], about: Mapping[str, Any]) -> dict[str, Any]:
    """`table.md` and the content of `table.json`.

    Args:
        outcomes: of all runs.
        about: the `command` and the `machine` behind the numbers.
    """
    settings, failed = group_by_setting(outcomes), failures(outcomes)
    columns = sweep_columns(settings)
    best = {choice: chosen(settings, by=choice) for choice in CHOICES}
    tables = {CHOICES[choice].capitalize(): several for choice, several in best.items()} | {"All settings": settings}
    sections: dict[str, str | Sequence[str]] = {
        heading: markdown(list(columns), rows(columns, several)) for heading, several in tables.items()
    }
    content = {
        **about,
        "settings": [as_json(setting) for setting in settings],
        "chosen": {choice: [as_json(setting) for setting in several] for choice, several in best.items()},
        "failures": failed,
    }
    note = "Mean ± standard deviation over seeds, in %."
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
