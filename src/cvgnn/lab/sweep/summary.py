"""Results of a sweep: means over seeds for each setting, and the setting with the highest accuracy."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, final

from cvgnn.config import TrainConfig
from cvgnn.lab.sweep.jobs import Job
from cvgnn.lab.sweep.pool import Outcome
from cvgnn.utils.formatting import format_percent

Choice = Literal["validation", "test"]
KEYS: dict[Choice, str] = {"validation": "val_accuracy", "test": "max_test_accuracy"}
"""The number in a result by which a choice is made. `"test"` is the paper's protocol: the maximum over epochs of the
test accuracy, which selects on the test set."""


@dataclass(frozen=True, eq=False)
class SeedResults:
    """Results of runs that differ in their seed only.

    Args:
        results: of the finished runs, in the order of their seeds.
    """

    results: Sequence[dict[str, Any]]

    def mean(self, key: str) -> float | None:
        """Mean over the finished runs; None if one of them has no such number, or if there are no runs.

        >>> SeedResults([{"a": 1}, {"a": 3}]).mean("a"), SeedResults([{"a": 1}, {"a": None}]).mean("a")
        (2.0, None)
        """
        values = self._values(key)
        return statistics.fmean(values) if values and len(values) == len(self.results) else None

    def deviation(self, key: str) -> float | None:
        """Standard deviation over the finished runs; None for fewer than two."""
        values = self._values(key)
        return statistics.stdev(values) if len(values) > 1 else None

    def percent(self, key: str) -> str:
        """Mean and standard deviation of an accuracy over the finished runs, in percent."""
        return format_percent(self.mean(key), self.deviation(key))

    def _values(self, key: str) -> list[float]:
        return [float(result[key]) for result in self.results if result.get(key) is not None]


S = TypeVar("S", bound=SeedResults)


def highest(candidates: Iterable[S], *, by: Choice) -> S | None:
    """The candidate with the highest mean accuracy, the first of equal ones; None if no candidate has a mean."""
    ranked = [(mean, s) for s in candidates if (mean := s.mean(KEYS[by])) is not None]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


@dataclass(frozen=True, eq=False)
class Setting(SeedResults):
    """A setting: all runs on a graph that differ in their seed only.

    Args:
        results: of the finished runs, in the order of their seeds.
        dataset: the graph's name.
        options: the config without the seed.
    """

    dataset: str
    options: dict[str, Any]

    @property
    def optimizer(self) -> str:
        """The optimizer's name."""
        return str(self.options["optimizer"])


@final
@dataclass(frozen=True)
class SweepSetting(Setting):
    """A setting of a sweep.

    Args:
        results, dataset, options: see `Setting`.
        jobs: of the finished runs, in the order of their seeds.
        failures: reasons of the failed runs.
        planned: number of runs, also of those that have not ended.
    """

    jobs: tuple[Job, ...]
    failures: tuple[str, ...]
    planned: int

    @property
    def seconds(self) -> float | None:
        """Mean over the runs of the time for training and evaluation; None if there are no runs."""
        times = [sum(r.get(k) or 0.0 for k in ("train_seconds", "eval_seconds")) for r in self.results]
        return statistics.fmean(times) if times else None


def group_by_setting(outcomes: Sequence[Outcome], planned: Sequence[Job] = ()) -> list[SweepSetting]:
    """The settings of a sweep, in the order in which they first appear.

    Args:
        outcomes: of the runs that have ended.
        planned: all runs, if some have not ended yet.
    """
    groups: dict[str, tuple[list[Job], list[Outcome]]] = {}
    for job in planned or [outcome.job for outcome in outcomes]:
        groups.setdefault(_key(job), ([], []))[0].append(job)
    for outcome in sorted(outcomes, key=lambda o: o.job.config.seed):
        groups[_key(outcome.job)][1].append(outcome)
    settings = []
    for jobs, ended in groups.values():
        finished = [(o.job, o.result) for o in ended if o.result is not None]
        source = jobs[0].source
        setting = SweepSetting(
            results=tuple(result for _, result in finished),
            jobs=tuple(job for job, _ in finished),
            dataset=str(finished[0][1]["dataset"]) if finished else source.name or str(source.graph),
            options=options_without_seed(jobs[0].config),
            failures=tuple(o.reason or "unknown" for o in ended if o.result is None),
            planned=len(jobs),
        )
        settings.append(setting)
    return settings


def options_without_seed(config: TrainConfig) -> dict[str, Any]:
    """The options that the runs of a setting share."""
    return {name: value for name, value in config.to_dict().items() if name != "seed"}


def _key(job: Job) -> str:
    return repr((job.source, options_without_seed(job.config)))
