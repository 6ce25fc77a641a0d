"""Runs put together: a setting is all runs that differ in their seed only, a method is what gets a curve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final, get_args, get_type_hints

from cvgnn.config import TrainConfig
from cvgnn.experiments.recipes import PAPER_OPTIMIZERS
from cvgnn.report.reading import RunData
from cvgnn.sweeps.jobs import shown
from cvgnn.sweeps.summary import KEYS as KEYS
from cvgnn.sweeps.summary import Choice as Choice
from cvgnn.sweeps.summary import deviation_of, highest, mean_of

_KINDS = {name: get_args(hint) for name, hint in get_type_hints(TrainConfig).items()}
WORDS = [name for name, kind in _KINDS.items() if kind and isinstance(kind[0], str)] + ["bias", "layers"]


@final
@dataclass(frozen=True, eq=False)
class Setting:
    """Runs with the same options but for the seed.

    Args:
        dataset: what they were trained on.
        options: their config without the seed.
        runs: in the order of their seeds.
    """

    dataset: str
    options: dict[str, Any]
    runs: tuple[RunData, ...]

    @property
    def finished(self) -> list[RunData]:
        """The runs that have a result; only they count in tables."""
        return [run for run in self.runs if run.result is not None]

    @property
    def complete(self) -> bool:
        """Whether all runs are finished."""
        return len(self.finished) == len(self.runs)

    @property
    def results(self) -> list[dict[str, Any]]:
        """Of the finished runs."""
        return [run.result for run in self.runs if run.result is not None]

    def mean(self, key: str) -> float | None:
        """Mean over the finished runs; None if one of them has no such number, or if there is none."""
        return mean_of(self.results, key)

    def deviation(self, key: str) -> float | None:
        """Standard deviation over the finished runs; None for fewer than two."""
        return deviation_of(self.results, key)


def group(runs: Iterable[RunData]) -> tuple[list[Setting], int]:
    """The settings, in the order in which data sets and options first appear, and how many runs are older ones.

    Of runs with the same options and seed, as a sweep leaves them when the code has changed, one counts: a finished one
    before the others, then the newest.
    """
    found: dict[str, dict[int, RunData]] = {}
    options_of: dict[str, dict[str, Any]] = {}
    older = 0
    for run in sorted(runs, key=lambda r: (r.result is not None, r.changed), reverse=True):
        options = {name: value for name, value in run.config.to_dict().items() if name != "seed"}
        key = repr((run.dataset, run.source.graph, options))
        options_of[key] = options
        older += run.config.seed in found.setdefault(key, {})
        found[key].setdefault(run.config.seed, run)
    settings = []
    for key, by_seed in found.items():
        several = tuple(by_seed[seed] for seed in sorted(by_seed))
        settings.append(Setting(several[0].dataset, options_of[key], several))
    return sorted(settings, key=_order), older


def _order(setting: Setting) -> tuple[Any, ...]:
    """Data sets by name, optimizers as in the paper, then by the values of the options."""
    optimizer = setting.options["optimizer"]
    place = PAPER_OPTIMIZERS.index(optimizer) if optimizer in PAPER_OPTIMIZERS else len(PAPER_OPTIMIZERS)
    values = [(value is not None, value) for value in setting.options.values()]
    return setting.dataset, place, [(known, str(type(v)), v if known else 0) for known, v in values]


def varying(settings: Sequence[Setting]) -> list[str]:
    """The options in which settings on one data set differ."""
    options = settings[0].options if settings else {}
    return [name for name in options if any(len(_values(part, name)) > 1 for part in by_dataset(settings))]


def by_dataset(settings: Sequence[Setting]) -> list[list[Setting]]:
    """The settings of each data set."""
    return partition(settings, lambda setting: setting.dataset)


def partition(settings: Iterable[Setting], key: Callable[[Setting], object]) -> list[list[Setting]]:
    """Settings with the same key, together, in the order of their first."""
    parts: dict[object, list[Setting]] = {}
    for setting in settings:
        parts.setdefault(key(setting), []).append(setting)
    return list(parts.values())


def method(setting: Setting, names: Sequence[str]) -> str:
    """The optimizer, and what else varies and is not a number to be tuned, such as the estimator.

    Args:
        setting: of which.
        names: the options that vary, as `varying` gives them.
    """
    others = [f"{name}={shown(setting.options[name])}" for name in names if name in WORDS and name != "optimizer"]
    return ", ".join([setting.options["optimizer"], *others])


def in_words(setting: Setting, names: Iterable[str]) -> str:
    """Some of a setting's options.

    >>> in_words(Setting("cora", {"lr": 0.05, "num_neighbors": (10, 5)}, ()), ["lr", "num_neighbors"])
    'lr=0.05, num_neighbors=10+5'
    """
    return ", ".join(f"{name}={shown(setting.options[name])}" for name in names)


def best(candidates: Sequence[Setting], *, by: Choice) -> Setting | None:
    """The setting with the highest mean accuracy, among those without unfinished runs if there are any; the first wins
    a tie.

    Args:
        candidates: to choose among.
        by: see `KEYS`.
    """
    return highest((s for s in candidates if s.complete), by=by) or highest(candidates, by=by)


def _values(settings: Iterable[Setting], name: str) -> set[str]:
    return {repr(setting.options[name]) for setting in settings}
