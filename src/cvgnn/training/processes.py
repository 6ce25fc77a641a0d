"""The processes that train one run together: one, or the ranks of `cvgnn.distributed`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.data import Graph
from cvgnn.data.store import is_store, verify_store
from cvgnn.training.machine import default_threads
from cvgnn.training.parts import Parts
from cvgnn.training.resume import graph_digest
from cvgnn.training.trainer import Trainer
from cvgnn.training.trainer_builder import build_trainer

T = TypeVar("T")


class Processes:
    """This process alone. What differs where several train one run is here, and every run goes through it.

    Args:
        rank: of this process; rank 0 writes the run's files and prints.
        shards: of the graph, whose histories this process keeps; none if it has the whole graph.
    """

    rank: int = 0
    shards: Sequence[int] = ()

    def exchange(self, value: Any) -> list[Any]:
        """A JSON value of every process, by rank."""
        # As JSON and not as objects: ranks exchange it over a socket, and nothing of ours is pickled.
        return [value]

    def most(self, number: int) -> int:
        """The largest number of any process."""
        return number

    def together(self, action: Callable[[], T]) -> list[T]:
        """Do something in every process; returns the results, JSON values. An `OSError` of one is raised by all."""
        return [action()]

    def threads(self, graph: Graph, config: TrainConfig) -> int:
        """How many threads to use where the config does not say."""
        return default_threads(graph, config)

    def digest(self, graph: Graph, source: GraphSource) -> str:
        """SHA-256 of the graph."""
        return graph_digest(graph, source)

    def verify(self, source: GraphSource) -> None:
        """Check the bytes on disk of a graph of which `digest` has read the header alone."""
        # A store's identity is the hash in its header, so that a run starts at once; the bytes are checked
        # beside that.
        if source.graph is not None and is_store(source.graph):
            verify_store(source.graph)

    def build_trainer(
        self, graph: Graph, config: TrainConfig, *, parts: Parts, initialize: bool, scratch: Path | None
    ) -> Trainer:
        """See `cvgnn.training.trainer_builder.build_trainer`."""
        return build_trainer(graph, config, parts=parts, initialize=initialize, scratch=scratch, all_rows=False)


ONE = Processes()
