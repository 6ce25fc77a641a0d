"""The files and tables of a sweep: every setting, and the ones that a choice would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cvgnn.sweeps.jobs import shown
from cvgnn.sweeps.pool import Outcome
from cvgnn.sweeps.summary import Choice, Setting, best, settings
from cvgnn.sweeps.tables import as_json, cell, markdown

CHOICES: dict[Choice, str] = {
    "validation": "chosen by validation accuracy",
    "test": "chosen by test accuracy (the paper's way, which looks at the answers)",
}


def varying(found: Sequence[Setting]) -> list[str]:
    """The options in which settings differ."""
    if not found:
        return []
    first = found[0].options
    return [name for name in first if any(s.options[name] != first[name] for s in found)]


def rows(found: Sequence[Setting], names: Sequence[str]) -> list[list[str]]:
    """A line for each setting: its varying options, runs and accuracies."""
    return [
        [
            s.dataset,
            *(shown(s.options[name]) for name in names),
            str(len(s.results)) + (f" ({len(s.failures)} failed)" if s.failures else ""),
            *(cell(s, key) for key in ("val_accuracy", "test_accuracy", "max_test_accuracy")),
        ]
        for s in found
    ]


def header(names: Sequence[str]) -> list[str]:
    """The columns of `rows`."""
    return ["dataset", *names, "runs", "validation", "test at best validation", "highest test (paper's protocol)"]


def chosen(found: Sequence[Setting], *, by: Choice) -> list[Setting]:
    """The best setting for each data set and optimizer."""
    groups: dict[tuple[str, str], list[Setting]] = {}
    for setting in found:
        groups.setdefault((setting.dataset, setting.options["optimizer"]), []).append(setting)
    picked = [best(group, by=by) for group in groups.values()]
    return [setting for setting in picked if setting is not None]


def files(outcomes: Sequence[Outcome], *, command: str, machine: Mapping[str, Any]) -> dict[str, Any]:
    """`table.md` and the content of `table.json`."""
    found = settings(outcomes)
    names = varying(found)
    failures = [f"{o.job.label}: {o.reason}" for o in outcomes if o.result is None]
    text = ["# Sweep\n", "Mean ± standard deviation over seeds, in %.\n"]
    for choice, words in CHOICES.items():
        text += [f"## {words.capitalize()}\n", markdown(header(names), rows(chosen(found, by=choice), names)), ""]
    text += ["## All settings\n", markdown(header(names), rows(found, names)), ""]
    if failures:
        text += ["## Failed\n", *(f"- {failure}" for failure in failures), ""]
    text.append(f"Command: `{command}`\n\nMachine: {', '.join(f'{k} {v}' for k, v in machine.items())}.")
    return {
        "table.md": "\n".join(text) + "\n",
        "table.json": {
            "command": command,
            "machine": dict(machine),
            "settings": [as_json(s) for s in found],
            "chosen": {choice: [as_json(s) for s in chosen(found, by=choice)] for choice in CHOICES},
            "failures": failures,
        },
    }
