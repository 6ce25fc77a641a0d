"""What a sweep found: means over seeds for each setting, and which setting a choice by validation accuracy takes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, final

from cvgnn.sweeps.jobs import Job
from cvgnn.sweeps.pool import Outcome

Choice = Literal["validation", "test"]
KEYS: dict[Choice, str] = {"validation": "val_accuracy", "test": "max_test_accuracy"}
"""Of a result: what a choice goes by. `"test"` is the paper's way: the maximum over epochs of the test accuracy, which
looks at the answers."""

Results = Sequence[dict[str, Any]]


def values_of(results: Results, key: str) -> list[float]:
    """A number of each result, where it has one."""
    return [float(result[key]) for result in results if result.get(key) is not None]


def mean_of(results: Results, key: str) -> float | None:
    """Mean over the results; None if one has no such number, or if there is none.

    >>> mean_of([{"a": 1}, {"a": 3}], "a"), mean_of([{"a": 1}, {"a": None}], "a")
    (2.0, None)
    """
    values = values_of(results, key)
    return statistics.fmean(values) if values and len(values) == len(results) else None


def deviation_of(results: Results, key: str) -> float | None:
    """Standard deviation over the results; None for fewer than two."""
    values = values_of(results, key)
    return statistics.stdev(values) if len(values) > 1 else None


class HasMean(Protocol):
    """What `highest` ranks."""

    def mean(self, key: str) -> float | None:
        """Mean over runs."""


S = TypeVar("S", bound=HasMean)


def highest(candidates: Iterable[S], *, by: Choice) -> S | None:
    """The one with the highest mean accuracy; the first wins a tie; None if none has one."""
    ranked = [(mean, s) for s in candidates if (mean := s.mean(KEYS[by])) is not None]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


@final
@dataclass(frozen=True)
class Setting:
    """All runs that differ in their seed only.

    Args:
        dataset: the graph's name.
        options: the config without seed.
        jobs, results: of the runs that ended well, in the order of their seeds.
        failures: reasons of the others.
    """

    dataset: str
    options: dict[str, Any]
    jobs: tuple[Job, ...]
    results: tuple[dict[str, Any], ...]
    failures: tuple[str, ...]

    def values(self, key: str) -> list[float]:
        """A number of each run's result, where it has one."""
        return values_of(self.results, key)

    def mean(self, key: str) -> float | None:
        """Mean over the runs; None if one has no such number, or if there is none."""
        return mean_of(self.results, key)

    def deviation(self, key: str) -> float | None:
        """Standard deviation over the runs; None for fewer than two."""
        return deviation_of(self.results, key)

    @property
    def seconds(self) -> float | None:
        """Mean over the runs of the time for training and evaluation; None if there is no run."""
        each = [sum(r.get(k) or 0.0 for k in ("train_seconds", "eval_seconds")) for r in self.results]
        return statistics.fmean(each) if each else None


def settings(outcomes: Sequence[Outcome]) -> list[Setting]:
    """The outcomes of a sweep, grouped by everything but the seed, in the order in which settings first appear."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        options = {k: v for k, v in outcome.job.config.to_dict().items() if k != "seed"}
        groups.setdefault(repr((outcome.job.source, options)), []).append(outcome)
    return [_setting(sorted(group, key=lambda o: o.job.config.seed)) for group in groups.values()]


def _setting(group: Sequence[Outcome]) -> Setting:
    good = [outcome for outcome in group if outcome.result is not None]
    source = group[0].job.source
    return Setting(
        dataset=str(good[0].result["dataset"]) if good and good[0].result else source.name or str(source.graph),
        options={k: v for k, v in group[0].job.config.to_dict().items() if k != "seed"},
        jobs=tuple(outcome.job for outcome in good),
        results=tuple(outcome.result for outcome in good if outcome.result is not None),
        failures=tuple(outcome.reason or "unknown" for outcome in group if outcome.result is None),
    )


def best(candidates: Sequence[Setting], *, by: Choice = "validation") -> Setting | None:
    """The setting with the highest mean accuracy; settings with a failed run are not chosen.

    Args:
        candidates: to choose among; the first wins a tie.
        by: see `KEYS`.
    """
    return highest((s for s in candidates if not s.failures), by=by)
