"""Group runs: a setting is all runs that differ only in their seed, a method is all settings that share a curve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final, get_args, get_type_hints

from cvgnn.config import TrainConfig
from cvgnn.lab.recipes import PAPER_DATASETS, PAPER_OPTIMIZERS, paper_recipe
from cvgnn.lab.report.run_reader import RunData
from cvgnn.lab.report.typesetting import option_name
from cvgnn.lab.sweep.jobs import format_value
from cvgnn.lab.sweep.summary import KEYS as KEYS
from cvgnn.lab.sweep.summary import Choice as Choice
from cvgnn.lab.sweep.summary import Setting, best_first, options_without_seed
from cvgnn.training.tasks import METRICS

TUNED = ("lr", "num_neighbors", "batch_size")
"""The options that the paper tuned (Appendix B)."""

_HINTS = get_type_hints(TrainConfig).items()
# Options that make another method, such as the estimator, and not another value of a tuned number.
_CATEGORICAL = [
    n for n, kind in _HINTS if kind is bool or isinstance((*get_args(kind), 0)[0], str) or str in get_args(kind)
] + ["layers"]


@final
@dataclass(frozen=True, eq=False)
class RunGroup(Setting):
    """A setting with the folders of its runs.

    Args:
        results, dataset, options: see `Setting`.
        runs: in the order of their seeds, also those that are not finished.
    """

    runs: tuple[RunData, ...]

    @classmethod
    def of(cls, runs: Sequence[RunData]) -> RunGroup:
        """The setting of some runs that differ in their seed only; only the finished ones count in tables."""
        results = [run.result for run in runs if run.result is not None]
        return cls(results, runs[0].dataset, options_without_seed(runs[0].config), tuple(runs))

    @property
    def metric(self) -> str:
        """See `SeedResults`; that of unfinished runs is in their records."""
        return self.runs[0].metric if self.runs else super().metric

    @property
    def unit(self) -> str:
        """`percent` if the metric is a share, else `number`: the kind of a panel with its values."""
        return "percent" if METRICS[self.metric].share else "number"

    @property
    def complete(self) -> bool:
        """Whether all runs are finished."""
        return len(self.results) == len(self.runs)

    def describe(self, names: Iterable[str]) -> str:
        """Some of the options as text.

        >>> RunGroup((), "cora", {"lr": 0.05, "num_neighbors": (10, 5)}, ()).describe(["lr", "num_neighbors"])
        'learning rate 0.05, neighbors 10+5'
        """
        return ", ".join(_in_words(name, self.options[name]) for name in names)

    def method(self, variants: Iterable[str]) -> str:
        """The optimizer, and the options that `variant_options` gives."""
        return ", ".join(filter(None, (self.optimizer, self.describe(variants))))

    @property
    def recipe(self) -> dict[str, Any] | None:
        """The paper's options for this data set and optimizer; None if the paper has no such experiment."""
        known = self.dataset in PAPER_DATASETS and self.optimizer in PAPER_OPTIMIZERS
        return paper_recipe(self.dataset, self.optimizer).to_dict() if known else None

    @property
    def changes_to_paper(self) -> dict[str, Any]:
        """The paper's values of the options that differ from them; without the tuned ones, the seed and the threads."""
        ignored = (*TUNED, "threads", "seed", "optimizer")
        recipe = self.recipe or {}
        return {n: value for n, value in recipe.items() if n not in ignored and self.options[n] != value}

    @property
    def as_in_paper(self) -> bool:
        """Whether the setting is one of the paper's experiment, up to the options that the paper tuned."""
        return self.recipe is not None and not self.changes_to_paper


def _in_words(name: str, value: Any) -> str:
    """An option with its value; `residual` or `no residual` for one that is on or off."""
    if isinstance(value, bool):
        return option_name(name) if value else f"no {option_name(name)}"
    return f"{option_name(name)} {format_value(value)}"


def seeds(runs: Iterable[RunData]) -> str:
    """The seeds of runs as text."""
    return ", ".join(str(run.config.seed) for run in runs)


def group_runs(runs: Iterable[RunData]) -> tuple[list[RunGroup], int]:
    """The settings, in a fixed order, and the number of runs that were left out as older duplicates.

    Of runs with the same options and seed, as a sweep leaves them when the code has changed, one counts: a finished one
    before the others, then the newest.
    """
    by_key: dict[str, dict[int, RunData]] = {}
    duplicates = 0
    for run in sorted(runs, key=lambda r: (r.result is not None, r.changed), reverse=True):
        by_seed = by_key.setdefault(repr((run.dataset, run.source.graph, options_without_seed(run.config))), {})
        duplicates += run.config.seed in by_seed
        by_seed.setdefault(run.config.seed, run)
    groups = [RunGroup.of([by_seed[seed] for seed in sorted(by_seed)]) for by_seed in by_key.values()]
    return sorted(groups, key=_order), duplicates


def _order(group: RunGroup) -> tuple[Any, ...]:
    """Data sets by name, optimizers as in the paper, then by the values of the options."""
    values = [(v is not None, str(type(v)), 0 if v is None else v) for v in group.options.values()]
    return group.dataset, position(group.optimizer, PAPER_OPTIMIZERS), values


def position(name: str, order: Sequence[str]) -> int:
    """The position of a name in a fixed order; names that are not in it come last."""
    return order.index(name) if name in order else len(order)


def varying(groups: Sequence[RunGroup]) -> list[str]:
    """The options in which settings on one data set differ."""
    names = groups[0].options if groups else {}
    return [n for n in names if any(len({repr(g.options[n]) for g in part}) > 1 for part in by_dataset(groups))]


def numeric_options(groups: Sequence[RunGroup]) -> list[str]:
    """The options that vary and are numbers to be tuned."""
    return [name for name in varying(groups) if name not in _CATEGORICAL]


def variant_options(groups: Sequence[RunGroup]) -> list[str]:
    """The other options that vary, such as the estimator; without the optimizer."""
    return [name for name in varying(groups) if name in _CATEGORICAL and name != "optimizer"]


def levels(groups: Sequence[RunGroup], name: str) -> list[Any]:
    """The values of an option, from the smallest to the largest; [None] without a name."""
    values = {repr(g.options[name]): g.options[name] for g in groups} if name else {"": None}
    return sorted(values.values(), key=lambda v: (v is not None, 0 if v is None else v))


def metric_word(groups: Iterable[RunGroup]) -> str:
    """What titles call the metric that is compared: accuracy if no other is."""
    return "accuracy" if {group.metric for group in groups} <= {"accuracy"} else "metric"


def by_dataset(groups: Iterable[RunGroup]) -> list[list[RunGroup]]:
    """The settings of each data set."""
    return partition(groups, lambda group: group.dataset)


def partition(groups: Iterable[RunGroup], key: Callable[[RunGroup], object]) -> list[list[RunGroup]]:
    """Lists of the settings that have the same key, in the order of their first."""
    parts: dict[object, list[RunGroup]] = {}
    for group in groups:
        parts.setdefault(key(group), []).append(group)
    return list(parts.values())


def best(candidates: Sequence[RunGroup], *, by: Choice) -> RunGroup | None:
    """The setting with the best mean; settings with unfinished runs count only if there are no others. The
    first wins a tie.

    Args:
        candidates: the settings to choose from.
        by: a key of `KEYS`.
    """
    order = best_first((g for g in candidates if g.complete), by=by) or best_first(candidates, by=by)
    return order[0] if order else None


def ties(candidates: Sequence[RunGroup], *, by: Choice) -> int:
    """The number of settings that are as good as the best one."""
    group = best(candidates, by=by)
    return 0 if group is None else sum(g.score(by) == group.score(by) for g in candidates) - 1


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "run"), count(3, "run")
    ('1 run', '3 runs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
