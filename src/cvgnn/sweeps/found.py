"""The files and the table of a search: every trial, the best ones, and the best setting as a file to train with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cvgnn.errors import CvgnnError
from cvgnn.sweeps.jobs import shown
from cvgnn.sweeps.plan import Plan
from cvgnn.sweeps.space import options_of
from cvgnn.sweeps.tables import markdown, percent
from cvgnn.sweeps.trials import Trial, ended, ranked

NOTE = "mean ± standard deviation over seeds, in %; chosen by validation accuracy, test accuracy had no part in it"
_MOST_SHOWN = 10


def table(plan: Plan, trials: Sequence[Trial]) -> str:
    """The best trials for people."""
    header = ["trial", *plan.space, "runs", "validation", "test at best validation"]
    rows = [
        [
            str(trial.number),
            *(shown(value) for value in options_of(plan.space, trial.params).values()),
            str(len(trial.results)),
            *(percent(trial.mean(key), trial.deviation(key)) for key in ("val_accuracy", "test_accuracy")),
        ]
        for trial in ranked(trials)[:_MOST_SHOWN]
    ]
    return markdown(header, rows)


def files(
    plan: Plan, trials: Sequence[Trial], *, study: str, storage: str, command: str, machine: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of `search.json`, and `best.toml` if there is a best trial.

    Args:
        plan, trials: what was searched, and what came of it.
        study, storage: where the study is, as it may be shown.
        command, machine: for the record.
    """
    order = ranked(trials)
    content = {
        "command": command,
        "machine": dict(machine),
        "study": study,
        "storage": storage,
        "note": NOTE,
        "setting": plan.setting,
        "best": _as_json(plan, order[0]) if order else None,
        "trials": [_as_json(plan, trial) for trial in trials],
    }
    return {"search.json": content, **({"best.toml": settings(plan, order[0], study=study)} if order else {})}


def settings(plan: Plan, trial: Trial, *, study: str) -> str:
    """A trial's setting as `cvgnn train --settings` takes it; what is None is left out, because it is the default."""
    value = percent(trial.mean("val_accuracy"), trial.deviation("val_accuracy"))
    head = f"trial {trial.number} of the study {study}: validation accuracy {value} % over {len(trial.results)} seeds"
    options = {**plan.source.to_dict(), **plan.config(trial.params).to_dict()}
    lines = [f"{name} = {_toml(option)}" for name, option in options.items() if option is not None]
    return "\n".join([f"# {' '.join(head.split())}", *lines]) + "\n"


def failures(trials: Sequence[Trial]) -> list[str]:
    """A sentence for each trial that failed."""
    return [f"trial {trial.number}: {trial.reason}" for trial in ended(trials) if trial.state == "failed"]


def _as_json(plan: Plan, trial: Trial) -> dict[str, Any]:
    try:
        options = options_of(plan.space, trial.params)
    except (KeyError, CvgnnError):  # it has not begun
        options = {}
    keys = ("val_accuracy", "test_accuracy")
    return {
        "number": trial.number,
        "state": trial.state,
        "options": options,
        **{f"{key}_mean": trial.mean(key) for key in keys},
        **{f"{key}_std": trial.deviation(key) for key in keys},
        "runs": list(trial.results),
        "reason": trial.reason,
    }


def _toml(value: Any) -> str:
    """A value as TOML spells it; JSON does so too but for what is no ASCII.

    >>> _toml([1, 2]), _toml(True), _toml("ä"), _toml(1e-05)
    ('[1, 2]', 'true', '"ä"', '1e-05')
    """
    return json.dumps(value, ensure_ascii=False)
