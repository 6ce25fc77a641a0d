"""A run of a sweep: what to train on, how, and the name of its folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.experiments.identity import identity
from cvgnn.experiments.source import load_source
from cvgnn.graph import Graph
from cvgnn.sealed import digest


@final
@dataclass(frozen=True)
class Job:
    """One run.

    Args:
        source, config: of the run; `config.threads` is a number, so that the result does not depend on the machine.
        name: of its folder: a hash of config, content of the graph and code.
        label: for people.
    """

    source: GraphSource
    config: TrainConfig
    name: str
    label: str

    def to_json(self) -> str:
        """Source and config, as a worker process gets them."""
        return json.dumps({"source": self.source.to_dict(), "config": self.config.to_dict()})


def make_jobs(source: GraphSource, configs: Iterable[TrainConfig], *, graph: Graph | None = None) -> list[Job]:
    """A job for each different config, in order; a config that stands there twice is run once.

    Args:
        source: of the graph, which is loaded once, for its hash.
        configs: with `threads` set.
        graph: if it is at hand.
    """
    graph = load_source(source) if graph is None else graph
    configs = list(configs)
    common = data_and_code(graph, source) if configs else {}
    varying = _varying(configs)
    jobs: dict[str, Job] = {}
    for config in configs:
        words = [graph.name, *(f"{field}={shown(getattr(config, field))}" for field in varying)]
        job = Job(source, config, run_name(config, common), " ".join(words))
        jobs.setdefault(job.name, job)
    return list(jobs.values())


def data_and_code(graph: Graph, source: GraphSource) -> dict[str, Any]:
    """What all runs on a graph have in common: hashes of its content and of the code, and the versions."""
    plain = TrainConfig()
    return {k: v for k, v in identity(graph, source, plain, threads=1).items() if k not in plain.to_dict()}


def run_name(config: TrainConfig, common: dict[str, Any]) -> str:
    """The name of a run's folder.

    Args:
        config: with `threads` set.
        common: see `data_and_code`.
    """
    return digest({**common, **config.to_dict()})[:16]


def _varying(configs: list[TrainConfig]) -> list[str]:
    """The fields in which the configs differ."""
    rows = [config.to_dict() for config in configs]
    return [name for name in rows[0] if any(row[name] != rows[0][name] for row in rows)] if rows else []


def shown(value: Any) -> str:
    """A config's value as short as it can be.

    >>> shown((10, 5)), shown(0.05), shown("adam")
    ('10+5', '0.05', 'adam')
    """
    if isinstance(value, list | tuple):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
