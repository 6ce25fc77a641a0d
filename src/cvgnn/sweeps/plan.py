"""What a search is over: a graph, the options of every run, the space, and the runs of a trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

from cvgnn.config import GraphSource, TrainConfig, make_config
from cvgnn.errors import require
from cvgnn.graph import Graph
from cvgnn.sweeps.jobs import Job, data_and_code, run_name, shown
from cvgnn.sweeps.space import Space, check_space, options_of
from cvgnn.sweeps.trials import Trial


@final
class Plan:
    """What is searched.

    Args:
        graph, source: what to train on, and where it came from.
        base: options of every run.
        space: what is tried.
        runs: seeds of a trial, from the base's seed on.
        threads: of a run, unless the base says how many.
    """

    def __init__(
        self,
        graph: Graph,
        source: GraphSource,
        base: Mapping[str, Any],
        space: Space,
        *,
        runs: int,
        threads: int,
    ) -> None:
        check_space(space, base)
        require(
            graph.val_ids.numel() > 0, "a search chooses by validation accuracy, and this graph has no validation nodes"
        )
        self.source = source
        self.base = {"threads": threads, **base}
        self.space = space
        self.runs = runs
        self._graph_name = graph.name
        self._common = data_and_code(graph, source)

    @property
    def setting(self) -> dict[str, Any]:
        """What all trials of a study have in common, as flat JSON values; not threads, which change last bits only."""
        fixed = {k: v for k, v in {**TrainConfig().to_dict(), **self.base}.items() if k != "threads"}
        hops = fixed["num_neighbors"]
        fixed["num_neighbors"] = list(hops) if isinstance(hops, list | tuple) else [hops]
        spelled = {name: values.spelled() for name, values in self.space.items()}
        return {**fixed, **spelled, "runs": self.runs, "graph": self._common["graph"]}

    @property
    def most_threads(self) -> int:
        """Of a run of any trial."""
        tried = self.space["threads"].samples if "threads" in self.space else [self.base["threads"]]
        return max(int(number or 1) for number in tried)

    @property
    def code(self) -> dict[str, Any]:
        """What computes: hash of the code, and versions."""
        return {name: value for name, value in self._common.items() if name != "graph"}

    def config(self, params: Mapping[str, Any]) -> TrainConfig:
        """The config of a trial's first run."""
        return make_config(**{**self.base, **options_of(self.space, params)})

    def jobs(self, trial: Trial) -> list[Job]:
        """The runs of a trial."""
        first = self.config(trial.params)
        words = [f"{name}={shown(value)}" for name, value in options_of(self.space, trial.params).items()]
        configs = [dataclasses.replace(first, seed=first.seed + i) for i in range(self.runs)]
        return [
            Job(self.source, c, run_name(c, self._common), " ".join([self._graph_name, *words, f"seed={c.seed}"]))
            for c in configs
        ]
