"""What `diagnose bias-vs-lr`, `rate` and `bound` share: defaults made for the theory, and processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cvgnn.cli.diagnosing import DiagnoseCommand, given, say_left_out
from cvgnn.config import TrainConfig
from cvgnn.errors import require_integer

if TYPE_CHECKING:
    from cvgnn.graph import Graph

_FIELDS = tuple(field.name for field in dataclasses.fields(TrainConfig))
_LARGEST_TO_COPY = 1 << 28  # bytes of features up to which every process gets its own graph


def theory_config() -> TrainConfig:
    """The paper's width and batches drawn with replacement, no dropout; the rest is as in `cvgnn train`."""
    return TrainConfig(hidden=32, batches="replacement", dropout=0.0)


def with_batch_size(config: TrainConfig, graph: Graph, command: DiagnoseCommand, words: Sequence[str]) -> TrainConfig:
    """A tenth of the training nodes in a batch, 256 at most, where neither a run nor a word says how many."""
    if command.run is not None or given(words, "--batch-size"):
        return config
    return dataclasses.replace(config, batch_size=max(1, min(256, graph.train_ids.numel() // 10)))


def say_unused(config: TrainConfig, words: Sequence[str], *, optimizers: Sequence[str] | None = None) -> None:
    """Say once which options among the words have no use.

    Args:
        config: with the words in it.
        words: what was given.
        optimizers: whose runs are Algorithm 1's to the letter, for `rate` and `bound`.
    """
    from cvgnn.diagnose.theory import as_in_theory, with_optimizer

    used = as_in_theory(config)
    idle = {"epochs", "eval_every"} | {name for name in _FIELDS if getattr(used, name) != getattr(config, name)}
    if optimizers is not None:
        configs = [with_optimizer(used, name, used.lr) for name in optimizers]
        idle |= {"optimizer", "form", "lr"} | ({"batches"} if config.batches != "replacement" else set())
        idle |= {n for n in ("beta1", "beta2", "nu_min") if all(getattr(c, n) is None for c in configs)}
    names = [f"--{name.replace('_', '-')}" for name in _FIELDS if name in idle]
    say_left_out([name for name in names if given(words, name)])


def processes(workers: int | None, graph: Graph) -> int:
    """As asked for; else one for each core, or one in all where copies of the graph would take much memory."""
    if workers is not None:
        return require_integer("workers", workers, at_least=1)
    from cvgnn.experiments.machine import cores

    return cores() if 8 * graph.num_nodes * min(graph.num_features, 1000) < _LARGEST_TO_COPY else 1
