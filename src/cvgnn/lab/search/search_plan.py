"""The plan of a search (graph, options of every run, space, runs of a trial), and the files with its results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any, final

from cvgnn.config import GraphSource, TrainConfig, make_config
from cvgnn.data import Graph
from cvgnn.errors import require
from cvgnn.lab.search.search_space import Space, as_text, check_space, endpoints, options_of
from cvgnn.lab.search.study import Trial, ranked
from cvgnn.lab.sweep.accuracy_tables import accuracy, markdown
from cvgnn.lab.sweep.jobs import Job, data_and_code, format_value, make_job

NOTE = "mean ± standard deviation over seeds, in %; chosen by validation accuracy, test accuracy had no part in it"
_MOST_SHOWN = 10
_KEYS = ("val_accuracy", "test_accuracy")


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
        known = graph.val_ids.numel() > 0
        require(known, "a search chooses by validation accuracy, and this graph has no validation nodes")
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

    def config(self, params: Mapping[str, Any]) -> TrainConfig:
        """The config of a trial's first run."""
        return make_config(**{"threads": self.threads, **self.base, **options_of(self.space, params)})

    def jobs(self, trial: Trial) -> list[Job]:
        """The runs of a trial."""
        first = self.config(trial.params)
        configs = [replace(first, seed=first.seed + i) for i in range(self.runs)]
        return [make_job(self.source, c, self._common, self._graph_name, (*self.space, "seed")) for c in configs]


def table(plan: SearchPlan, trials: Sequence[Trial]) -> str:
    """The best trials."""
    header = ["trial", *plan.space, "runs", "validation", "test at best validation"]
    rows = []
    for trial in ranked(trials)[:_MOST_SHOWN]:
        options = map(format_value, options_of(plan.space, trial.params).values())
        rows.append([str(trial.number), *options, str(len(trial.results)), *(accuracy(key)(trial) for key in _KEYS)])
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
        "note": NOTE,
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
    value = accuracy("val_accuracy")(trial)
    head = f"trial {trial.number} of the study {study}: validation accuracy {value} % over {len(trial.results)} seeds"
    options = {**plan.source.to_dict(), **plan.config(trial.params).to_dict()}
    # Strings, numbers, booleans and lists are the same in JSON and TOML, but for JSON's escapes of non-ASCII.
    lines = [f"{name} = {json.dumps(v, ensure_ascii=False)}" for name, v in options.items() if v is not None]
    return "\n".join([f"# {' '.join(head.split())}", *lines]) + "\n"


def _as_json(plan: SearchPlan, trial: Trial) -> dict[str, Any]:
    started = trial.params.keys() >= plan.space.keys()
    return {
        "number": trial.number,
        "state": trial.state,
        "options": options_of(plan.space, trial.params) if started else {},
        **{f"{key}_mean": trial.mean(key) for key in _KEYS},
        **{f"{key}_std": trial.deviation(key) for key in _KEYS},
        "runs": list(trial.results),
        "reason": trial.reason,
    }
