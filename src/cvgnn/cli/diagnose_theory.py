"""What `diagnose bias-vs-lr`, `rate` and `bound` share: defaults made for the theory, and processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cvgnn.cli.diagnosing import DiagnoseCommand
from cvgnn.cli.options import option
from cvgnn.config import TrainConfig
from cvgnn.errors import require_integer

if TYPE_CHECKING:
    from cvgnn.graph import Graph

_LARGEST_TO_COPY = 1 << 28  # bytes of features up to which every process gets its own graph


def theory_config() -> TrainConfig:
    """The paper's width and batches drawn with replacement, no dropout; the rest is as in `cvgnn train`."""
    return TrainConfig(hidden=32, batches="replacement", dropout=0.0)


def with_batch_size(config: TrainConfig, graph: Graph, command: DiagnoseCommand, words: Sequence[str]) -> TrainConfig:
    """A tenth of the training nodes in a batch, 256 at most, where neither a run nor a word says how many."""
    if command.run is not None or option(words, "--batch-size") is not None:
        return config
    return dataclasses.replace(config, batch_size=max(1, min(256, graph.train_ids.numel() // 10)))


def processes(workers: int | None, graph: Graph) -> int:
    """As asked for; else one for each core, or one in all where copies of the graph would take much memory."""
    if workers is not None:
        return require_integer("workers", workers, at_least=1)
    from cvgnn.experiments.machine import cores

    return cores() if 8 * graph.num_nodes * min(graph.num_features, 1000) < _LARGEST_TO_COPY else 1
