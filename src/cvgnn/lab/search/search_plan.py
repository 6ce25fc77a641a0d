"""The plan of a search (graph, options of every run, space, runs of a trial), and the files with its results."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any, final

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.data import Graph
from cvgnn.errors import CvgnnError, require
from cvgnn.lab.search.search_space import Space, as_text, check_space, endpoints, options_of
from cvgnn.lab.search.study import Trial, ranked
from cvgnn.lab.sweep.jobs import Job, data_and_code, format_value, make_job
from cvgnn.lab.sweep.result_tables import markdown, mean_note
from cvgnn.training.run_folder import toml_line
from cvgnn.training.tasks import METRICS, result_keys
from cvgnn.training.trainer_builder import build_task

_MOST_SHOWN = 10
_MOST_TRIED = 1000  # combinations of the space's ends, to find one that is possible
_COMPARED = {"val": "validation", "test": "test at best validation"}


@final
@dataclass
class SearchPlan:
    """What is searched.

    Args:
        graph, source: what to train on, and where it came from.
        base: options of every run.
        space: what is tried.
        runs: seeds of a trial, from the base's seed on.
        threads: of a run, unless `base` or the space has them.
    """

    graph: InitVar[Graph]
    source: GraphSource
    base: Mapping[str, Any]
    space: Space
    runs: int
    threads: int

    def __post_init__(self, graph: Graph) -> None:
        check_space(self.space, self.base)
        task = build_task(graph, self._possible_config())
        self.metric, kind = task.metric, task.items.kind
        known = task.sizes()["val"] > 0
        require(known, f"a search chooses by validation {self.metric}, and this graph has no validation {kind}s")
        self._graph_name = graph.name
        self._common = data_and_code(graph, self.source)

    @property
    def setting(self) -> dict[str, Any]:
        """What all trials of a study have in common, as flat JSON values; not threads, which change last bits only."""
        fixed = {**TrainConfig().to_dict(), **self.base}
        del fixed["threads"]
        hops = fixed["num_neighbors"]
        fixed["num_neighbors"] = list(hops) if isinstance(hops, list | tuple) else [hops]
        space = {name: as_text(distribution) for name, distribution in self.space.items()}
        return {**fixed, **space, "runs": self.runs, "graph": self._common["graph"]}

    @property
    def max_threads(self) -> int:
        """The most threads of a run."""
        fixed = [self.base.get("threads", self.threads)]
        tried = endpoints("threads", self.space["threads"]) if "threads" in self.space else fixed
        return max(number or 1 for number in tried)

    @property
    def code(self) -> dict[str, Any]:
        """Hash of the code, and versions of the libraries."""
        return {name: value for name, value in self._common.items() if name != "graph"}

    @property
    def maximize(self) -> bool:
        """Whether the largest value of the metric is the best."""
        return METRICS[self.metric].larger_is_better

    @property
    def note(self) -> str:
        """What the numbers of the table are."""
        chosen = f"chosen by validation {self.metric}, test {self.metric} had no part in it"
        return f"{mean_note([self.metric])}; {chosen}"

    def kept(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """What a study keeps of the result of a run."""
        names = (*result_keys(self.metric).values(), "best_epoch", "train_seconds")
        return {"metric": self.metric, **{name: result.get(name) for name in names}}

    def _possible_config(self) -> TrainConfig:
        """A config of the space, to find out what is learned; tasks and metrics are the same for all of them."""
        ends = itertools.product(*(endpoints(name, distribution) for name, distribution in self.space.items()))
        for values in itertools.islice(ends, _MOST_TRIED):
            with contextlib.suppress(CvgnnError):
                return TrainConfig(**{**self.base, **dict(zip(self.space, values, strict=True))})
        raise CvgnnError("no setting of the space is possible: its values do not go together; change --space")

    def config(self, params: Mapping[str, Any]) -> TrainConfig:
        """The config of a trial's first run."""
        return TrainConfig(**{"threads": self.threads, **self.base, **options_of(self.space, params)})

    def jobs(self, trial: Trial) -> list[Job]:
        """The runs of a trial."""
        first = self.config(trial.params)
        configs = [replace(first, seed=first.seed + i) for i in range(self.runs)]
        return [make_job(self.source, c, self._common, self._graph_name, (*self.space, "seed")) for c in configs]


def table(plan: SearchPlan, trials: Sequence[Trial]) -> str:
    """The best trials."""
    header = ["trial", *plan.space, "runs", *_COMPARED.values()]
    rows = []
    for trial in ranked(trials)[:_MOST_SHOWN]:
        options = map(format_value, options_of(plan.space, trial.params).values())
        rows.append([str(trial.number), *options, str(len(trial.results)), *map(trial.text, _COMPARED)])
    return markdown(header, rows)


def files(
    plan: SearchPlan, trials: Sequence[Trial], *, study: str, storage: str, about: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of `search.json`, and `best.toml` if there is a best trial.

    Args:
        plan, trials: of the search.
        study, storage: name and place of the study, without password.
        about: the `command` and the `machine` behind the numbers.
    """
    best = next(iter(ranked(trials)), None)
    content = {
        **about,
        "study": study,
        "storage": storage,
        "note": plan.note,
        "setting": plan.setting,
        "best": None if best is None else _as_json(plan, best),
        "trials": [_as_json(plan, trial) for trial in trials],
    }
    return {"search.json": content} | ({} if best is None else {"best.toml": _settings(plan, best, study)})


def failures(trials: Sequence[Trial]) -> list[str]:
    """One line per failed trial, with the reason."""
    return [f"trial {trial.number}: {trial.reason}" for trial in trials if trial.state == "failed"]


def _settings(plan: SearchPlan, trial: Trial, study: str) -> str:
    """A trial's setting as `cvgnn train --settings` takes it; None is left out, because it is the default."""
    value = f"validation {plan.metric} {trial.text('val', unit=' %')}"
    head = f"trial {trial.number} of the study {study}: {value} over {len(trial.results)} seeds"
    options = {**plan.source.to_dict(), **plan.config(trial.params).to_dict()}
    lines = [toml_line(name, value) for name, value in options.items() if value is not None]
    return "\n".join([f"# {' '.join(head.split())}", *lines]) + "\n"


def _as_json(plan: SearchPlan, trial: Trial) -> dict[str, Any]:
    keys = [result_keys(plan.metric)[name] for name in _COMPARED]
    started = trial.params.keys() >= plan.space.keys()
    return {
        "number": trial.number,
        "state": trial.state,
        "options": options_of(plan.space, trial.params) if started else {},
        **{f"{key}_mean": trial.mean(key) for key in keys},
        **{f"{key}_std": trial.deviation(key) for key in keys},
        "runs": list(trial.results),
        "reason": trial.reason,
    }
