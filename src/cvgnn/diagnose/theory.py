"""Configs and graphs as the paper's theory knows them: what `bias-vs-lr`, `rate` and `bound` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from cvgnn.config import TrainConfig
from cvgnn.diagnose.subject import in_float64
from cvgnn.errors import require, require_integer, unknown_name
from cvgnn.graph import Graph, Propagation
from cvgnn.optim import OPTIMIZERS
from cvgnn.sampling import propagate_features
from cvgnn.sampling.features import DenseSource, SparseSource

_MOST = {"seeds": 1000, "draws": 10_000, "points": 10_000}


def known_optimizers(names: Sequence[str]) -> list[str]:
    """The optimizers that are named, each once; one that there is not is refused, and no name at all.

    >>> known_optimizers(["sgd", "adam", "sgd"])
    ['sgd', 'adam']
    """
    require(len(names) > 0, f"name at least one optimizer: {', '.join(OPTIMIZERS)}")
    for name in names:
        if name not in OPTIMIZERS:
            raise unknown_name("optimizer", name, OPTIMIZERS)
    return list(dict.fromkeys(names))


def require_count(what: str, number: int, *, at_least: int = 1) -> int:
    """The number of seeds, draws or points if it is one that can be waited for; a sentence says what is allowed.

    >>> require_count("seeds", 5)
    5
    """
    return require_integer(what, number, at_least=at_least, at_most=_MOST[what])


def as_in_theory(config: TrainConfig) -> TrainConfig:
    """The config without what the paper's theory does not know: dropout, schedules, shortened gradients, rounding,
    steps that are left out; and without smoothed labels, so that `F` is the plain cross entropy."""
    return dataclasses.replace(
        config,
        dropout=0.0,
        input_dropout=0.0,
        schedule="constant",
        patience=0,
        clip_norm=None,
        bad_step="stop",
        label_smoothing=0.0,
        history_dtype="float32",
        feature_dtype="float32",
        output="last",
    )


def prepared(graph: Graph, config: TrainConfig) -> Graph:
    """The graph in float64, with `P X`, so that many runs on it need not compute that each."""
    graph = in_float64(graph)
    if config.feature_norm != "none":
        return graph  # what a graph can hold is `P X` of its plain features
    features = propagate_features(graph, Propagation(graph, normalization=config.aggregation))
    assert isinstance(features, DenseSource | SparseSource)
    return dataclasses.replace(graph, PX=features.PX, PX_normalization=config.aggregation, validated=True)


def with_optimizer(config: TrainConfig, name: str, lr: float) -> TrainConfig:
    """The config with an optimizer in the paper's form, and those of its numbers that the optimizer has."""
    floor = config.nu_min if name not in ("sgd", "heavy-ball") else None
    return dataclasses.replace(
        config,
        optimizer=name,  # type: ignore[arg-type]
        form="paper",
        lr=lr,
        beta1=config.beta1 if name != "sgd" else None,
        beta2=config.beta2 if name in ("adam", "amsgrad") else None,
        nu_min=floor,
    )
