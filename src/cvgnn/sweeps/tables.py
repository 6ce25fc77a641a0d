"""Tables of accuracies for people and for papers: Markdown, LaTeX, JSON."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cvgnn import disk
from cvgnn.errors import CvgnnError
from cvgnn.sweeps.summary import Setting

_TEX = str.maketrans({c: rf"\{c}" for c in "_%&#${}"} | {c: rf"\char{ord(c)}{{}}" for c in "\\~^"})


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


Mean = tuple[float, float | None]
"""An accuracy in percent and its standard deviation, None for a single run."""


def mean_of(setting: Setting, key: str) -> Mean | None:
    """Mean and deviation of an accuracy over a setting's runs, in percent."""
    mean, deviation = setting.mean(key), setting.deviation(key)
    return None if mean is None else (100 * mean, None if deviation is None else 100 * deviation)


def tex(text: str) -> str:
    r"""A text as LaTeX prints it.

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


def marked(values: Mapping[str, Mean]) -> dict[str, str]:
    r"""Accuracies as LaTeX, as in the paper's Table 5: the best bold, the second best underlined.

    >>> print(*marked({"a": (70.0, 0.5), "b": (71.0, None)}).values(), sep=", ")
    \underline{70.00} $\pm$ 0.50, \textbf{71.00}
    """
    places = ranks({name: mean for name, (mean, _) in values.items()})
    return {name: as_tex(mean, places.get(name, 0)) for name, mean in values.items()}


def ranks(values: Mapping[str, float]) -> dict[str, int]:
    """Which columns hold the highest (1) and the second highest (2) value, as printed; ties share a rank.

    >>> ranks({"a": 3.0, "b": 5.0, "c": 5.001})
    {'a': 2, 'b': 1, 'c': 1}
    """
    printed = {name: round(value, 2) for name, value in values.items()}
    order = sorted(set(printed.values()), reverse=True)[:2]
    return {name: order.index(value) + 1 for name, value in printed.items() if value in order}


def as_tex(value: Mean, rank: int = 0) -> str:
    """An accuracy as LaTeX; bold if its rank is 1, underlined if it is 2."""
    mean, deviation = f"{value[0]:.2f}", "" if value[1] is None else rf" $\pm$ {value[1]:.2f}"
    return {1: rf"\textbf{{{mean}}}", 2: rf"\underline{{{mean}}}"}.get(rank, mean) + deviation


def as_json(setting: Setting) -> dict[str, Any]:
    """A setting for table.json: options, means and deviations; seeds, names and numbers of the runs that ended well, in
    the same order; and why the others did not."""
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


def prepare(folder: Path) -> None:
    """Make the folder of a sweep and see that runs can be kept in it, before there is one."""
    try:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        for place in (folder, folder / "runs"):
            with tempfile.TemporaryFile(dir=place):
                pass
    except OSError as error:
        raise CvgnnError(f"cannot use {folder} as output folder: {error.strerror}; choose another --out") from None


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Write texts, and other values as JSON, under their names."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
            disk.write_file(folder / name, text.encode())
    except OSError as error:
        raise CvgnnError(f"cannot write to {folder}: {disk.reason(error)}; the runs in it are kept") from None
