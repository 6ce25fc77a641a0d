"""Tables of accuracies for people and for papers: Markdown, LaTeX, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cvgnn import disk
from cvgnn.errors import CvgnnError
from cvgnn.sweeps.summary import Setting

_TEX = str.maketrans({"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#"})


def percent(mean: float | None, deviation: float | None = None) -> str:
    """An accuracy with its standard deviation, in percent.

    >>> percent(0.7105, 0.004), percent(None)
    ('71.05 ± 0.40', '-')
    """
    if mean is None:
        return "-"
    return f"{100 * mean:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}")


def cell(setting: Setting | None, key: str) -> str:
    """Mean and deviation of a number over a setting's runs."""
    return "-" if setting is None else percent(setting.mean(key), setting.deviation(key))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [header, ["-" * w for w in widths], *rows]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def booktabs(columns: Sequence[str], rows: Mapping[str, Mapping[str, float]], *, caption: str, label: str) -> str:
    """A LaTeX table as the paper's Table 5: the best of each row bold, the second best underlined.

    Args:
        columns: names of the columns.
        rows: for each row its values by column, in percent; what is missing is a dash.
        caption, label: of the table.
    """
    lines = [
        r"\begin{table}[h]",
        rf"\caption{{{caption}}}\label{{{label}}}%",
        rf"\begin{{tabular}}{{@{{}}l{'l' * len(columns)}@{{}}}}",
        r"\toprule",
        " & ".join(["Dataset", *(c.translate(_TEX) for c in columns)]) + r"\\",
        r"\midrule",
    ]
    for name, values in rows.items():
        marks = ranks(values)
        cells = [_marked(values.get(c), marks.get(c, 0)) for c in columns]
        lines.append(" & ".join([name.translate(_TEX), *cells]) + r"\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def ranks(values: Mapping[str, float]) -> dict[str, int]:
    """Which columns hold the highest (1) and the second highest (2) value, as printed; ties share a rank.

    >>> ranks({"a": 3.0, "b": 5.0, "c": 5.001})
    {'a': 2, 'b': 1, 'c': 1}
    """
    printed = {name: round(value, 2) for name, value in values.items()}
    order = sorted(set(printed.values()), reverse=True)[:2]
    return {name: order.index(value) + 1 for name, value in printed.items() if value in order}


def _marked(value: float | None, rank: int) -> str:
    if value is None:
        return "--"
    return {1: rf"\textbf{{{value:.2f}}}", 2: rf"\underline{{{value:.2f}}}"}.get(rank, f"{value:.2f}")


def as_json(setting: Setting) -> dict[str, Any]:
    """A setting for table.json: options, seeds, every run's accuracies, means and deviations."""
    keys = ("val_accuracy", "test_accuracy", "max_test_accuracy", "train_seconds")
    return {
        "dataset": setting.dataset,
        "options": setting.options,
        "seeds": [job.config.seed for job in setting.jobs],
        "runs": [job.name for job in setting.jobs],
        "failures": list(setting.failures),
        **{key: setting.values(key) for key in keys},
        **{f"{key}_mean": setting.mean(key) for key in keys},
        **{f"{key}_std": setting.deviation(key) for key in keys},
    }


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Write texts, and other values as JSON, under their names."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
            disk.write_file(folder / name, text.encode())
    except OSError as error:
        raise CvgnnError(f"cannot write to {folder}: {disk.reason(error)}; the runs in it are kept") from None
