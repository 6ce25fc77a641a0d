"""A run of a sweep: graph, config, and the name of its folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.data import Graph
from cvgnn.training.graph_source import load_source
from cvgnn.training.resume import identity
from cvgnn.utils.checked_json import digest


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


def make_jobs(source: GraphSource, configs: Iterable[TrainConfig], *, graph: Graph | None = None) -> list[Job]:
    """A job for each different config, in order; equal configs share one job.

    Args:
        source: of the graph, which is loaded once, for its hash.
        configs: with `threads` set.
        graph: the graph, if the caller has loaded it.
    """
    configs = list(configs)
    graph = load_source(source, task=configs[0].task if configs else "auto") if graph is None else graph
    common = data_and_code(graph, source) if configs else {}
    varying = varying_options([config.to_dict() for config in configs])
    jobs = [make_job(source, config, common, graph.name, varying) for config in configs]
    return list({job.name: job for job in jobs}.values())


def make_job(
    source: GraphSource, config: TrainConfig, common: dict[str, Any], graph: str, options: Iterable[str]
) -> Job:
    """A job.

    Args:
        source, config: of the run.
        common: see `data_and_code`.
        graph, options: the graph's name and the names of the options in the label.
    """
    # The name is a function of what is computed: a second sweep that has the same run finds its result.
    name = digest({**common, **config.to_dict()})[:16]
    return Job(source, config, name, " ".join([graph, *(f"{o}={format_value(getattr(config, o))}" for o in options)]))


def data_and_code(graph: Graph, source: GraphSource) -> dict[str, Any]:
    """What all runs on a graph have in common: hashes of its content and of the code, and the versions."""
    plain = TrainConfig()
    return {k: v for k, v in identity(graph, source, plain, threads=1).items() if k not in plain.to_dict()}


def non_default(options: GraphSource | TrainConfig) -> dict[str, Any]:
    """The options that differ from their defaults.

    >>> non_default(GraphSource(split_seed=3))
    {'split_seed': 3}
    """
    return {name: value for name, value in vars(options).items() if value != getattr(type(options)(), name)}


def train_argv(options: Mapping[str, Any]) -> list[str]:
    """Options as arguments of `cvgnn train`.

    >>> train_argv({"num_neighbors": (10, 5), "lr": 0.5})
    ['--num-neighbors', '10', '5', '--lr', '0.5']
    """
    values = {name: value if isinstance(value, tuple) else (value,) for name, value in options.items()}
    return [text for name, several in values.items() for text in (f"--{name.replace('_', '-')}", *map(str, several))]


def varying_options(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The options that do not have the same value in all rows.

    >>> varying_options([{"lr": 1, "seed": 0}, {"lr": 2, "seed": 0}])
    ['lr']
    """
    return [name for name in rows[0] if any(row[name] != rows[0][name] for row in rows)] if rows else []


def format_value(value: Any) -> str:
    """A config's value as short as it can be.

    >>> format_value((10, 5)), format_value(0.05), format_value("adam")
    ('10+5', '0.05', 'adam')
    """
    if isinstance(value, list | tuple):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
