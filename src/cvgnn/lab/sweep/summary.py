"""Results over seeds: means of the metric by which a task is compared, and the best of several settings."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, final

from cvgnn.config import TrainConfig
from cvgnn.lab.sweep.jobs import Job
from cvgnn.lab.sweep.pool import Outcome, metric_of
from cvgnn.training.tasks import METRICS, result_keys
from cvgnn.utils.formatting import format_percent

Choice = Literal["validation", "test"]
KEYS: dict[Choice, str] = {"validation": "val", "test": "top_test"}
"""The value by which a choice is made, see `result_keys`. `"test"` is the paper's protocol: the best of any epoch,
which selects on the test set."""


def format_metric(metric: str, mean: float | None, deviation: float | None = None, *, unit: str = "") -> str:
    """The value of a metric with its standard deviation: shares in percent, with a unit if there is one.

    >>> format_metric("accuracy", 0.71, 0.004), format_metric("mse", 0.01234567, 0.004), format_metric("mse", None)
    ('71.00 ± 0.40', '0.01235 ± 0.004', '-')
    """
    if mean is None or METRICS[metric].share:
        return format_percent(mean, deviation, unit=unit)
    return f"{mean:.4g}" + ("" if deviation is None else f" ± {deviation:.2g}")


@dataclass(frozen=True, eq=False)
class SeedResults:
    """Results of runs that differ in their seed only.

    Args:
        results: of the finished runs, in the order of their seeds.
    """

    results: Sequence[dict[str, Any]]

    @property
    def metric(self) -> str:
        """The metric by which they are compared."""
        return metric_of(self.results[0]) if self.results else "accuracy"

    def values(self, name: str) -> list[float]:
        """The known numbers of the finished runs; the name is a key of result.json, or one of `result_keys`."""
        key = result_keys(self.metric).get(name, name)
        return [float(result[key]) for result in self.results if result.get(key) is not None]

    def mean(self, name: str) -> float | None:
        """Mean over the finished runs; None if one of them has no such number, or if there are no runs.

        >>> SeedResults([{"a": 1}, {"a": 3}]).mean("a"), SeedResults([{"a": 1}, {"a": None}]).mean("a")
        (2.0, None)
        """
        values = self.values(name)
        return statistics.fmean(values) if values and len(values) == len(self.results) else None

    def deviation(self, name: str) -> float | None:
        """Standard deviation over the finished runs; None for fewer than two."""
        values = self.values(name)
        return statistics.stdev(values) if len(values) > 1 else None

    def text(self, name: str, *, unit: str = "") -> str:
        """Mean and standard deviation of the metric over the finished runs; shares in percent."""
        return format_metric(self.metric, self.mean(name), self.deviation(name), unit=unit)

    def score(self, by: Choice) -> float | None:
        """The mean by which settings are chosen, negative if smaller is better: the best setting has the highest."""
        mean = self.mean(KEYS[by])
        return mean if mean is None or METRICS[self.metric].larger_is_better else -mean


S = TypeVar("S", bound=SeedResults)


def best_first(candidates: Iterable[S], *, by: Choice) -> list[S]:
    """The candidates that have a mean, from the best to the worst; of equal ones, the first comes first."""
    scores = [(score, s) for s in candidates if (score := s.score(by)) is not None]
    return [s for _, s in sorted(scores, key=lambda pair: -pair[0])]


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
