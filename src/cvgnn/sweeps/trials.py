"""The trials of a search: settings that were tried, what came of them, and which is the best by validation accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from cvgnn.sweeps.summary import KEYS, deviation_of, mean_of

State = Literal["complete", "failed", "running", "waiting", "interrupted"]


@final
@dataclass(frozen=True, kw_only=True)
class Trial:
    """A setting that a study has tried, is trying or is to try.

    Args:
        number: in the study.
        state: `"interrupted"`: it was stopped or killed, and goes on as another trial.
        params: the study's own parameters; all of the space's if the trial has begun.
        results: for each seed, its run and accuracies; empty unless complete.
        reason: why it failed, or None.
        owner: the search that is or was at it, or None.
    """

    number: int
    state: State
    params: dict[str, Any]
    results: tuple[dict[str, Any], ...] = ()
    reason: str | None = None
    owner: str | None = None

    def mean(self, key: str) -> float | None:
        """Mean over the seeds."""
        return mean_of(self.results, key)

    def deviation(self, key: str) -> float | None:
        """Standard deviation over the seeds; None for fewer than two."""
        return deviation_of(self.results, key)


def ended(trials: Iterable[Trial]) -> list[Trial]:
    """Those that count: complete or failed."""
    return [trial for trial in trials if trial.state in ("complete", "failed")]


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """The complete trials by mean validation accuracy, best first; of a setting that was tried twice, the first."""
    first: dict[str, Trial] = {}
    for trial in trials:
        if trial.state == "complete" and trial.mean(KEYS["validation"]) is not None:
            first.setdefault(repr(sorted(trial.params.items())), trial)
    return sorted(first.values(), key=lambda trial: -(trial.mean(KEYS["validation"]) or 0.0))
