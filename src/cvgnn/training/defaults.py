"""Defaults for a graph of the user's: a short rule that picks the options from the size and the labels of the graph."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal, get_args

from cvgnn.config import TrainConfig
from cvgnn.data import Graph, SparseFeatures
from cvgnn.errors import require_known
from cvgnn.training.tasks import is_of_pairs

_log = logging.getLogger(__name__)
Defaults = Literal["fixed", "auto", "paper"]

FEW_LABELS = 50
"""Training nodes per class below which a graph has few labels."""

MODEL_OF = {"symmetric": "gcn", "random-walk": "gcn", "mean": "sage", "sum": "gin"}
"""The model that aggregates with a matrix, of which `P X` may be stored."""

_STEPS = 4000  # training steps that a run may take before it ends; early stopping ends most runs sooner

# The paper's settings for ogbn-arxiv (Table 4 and Appendix B, Adam).
_PAPER: dict[str, Any] = {
    "estimator": "cv", "model": "gcn", "layers": 2, "hidden": 256, "norm": "layer", "dropout": 0.0, "lr": 0.005,
    "batch_size": 1000, "num_neighbors": (2,), "weight_decay": 1e-5, "epochs": 150,
}  # fmt: skip


def default_options(graph: Graph, defaults: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options that `defaults` chooses for a graph; those that it does not name keep the values of `TrainConfig`.

    `auto`, measured in docs/estimators.md:

    - Few labels (fewer than 50 training nodes a class): the fixed defaults, a GCN of width 64 without norm, with ten
      times their weight decay. A larger network learns the few labels by heart. Sparse features, mostly bags of words,
      are divided by their norms, without which the effect of a weight decay depends on their scale.
    - Else GraphSAGE with two layers of width 256 and LayerNorm: its own weight for the node itself is worth several
      points where a node's own features say more than its neighbors'.
    - Batches of 512, or 1,024 from 20,000 training nodes on. Epochs for 4,000 steps, at least 20 and at most 300, and a
      fifth of them as patience.

    Tasks of pairs have the values of `TrainConfig` for `auto`, too: nothing was measured for them.

    Args:
        graph: its training nodes and classes count.
        defaults: `fixed` (the values of `TrainConfig`), `auto` or `paper`.
        given: the options that the user gave, unchecked; the number of epochs follows from a given batch size.
    """
    require_known("defaults", defaults, get_args(Defaults))
    if defaults == "paper":
        return dict(_PAPER)
    num_train, given = graph.train_ids.numel(), given or {}
    if defaults == "fixed" or num_train == 0 or is_of_pairs(given.get("task", "auto")):
        return {}
    if num_train < FEW_LABELS * graph.num_classes:
        return {"weight_decay": 5e-3, **({"feature_norm": "l2"} if isinstance(graph.x, SparseFeatures) else {})}
    batch_size = 512 if num_train < 20_000 else 1024
    if isinstance(size := given.get("batch_size"), int):
        batch_size = size
    epochs = min(300, max(20, _STEPS * batch_size // num_train))
    return {
        "model": "sage", "layers": 2, "norm": "layer", "dropout": 0.5, "weight_decay": 0.0, "lr": 0.003,
        **({"label_smoothing": 0.1} if graph.label_kind == "classes" else {}),
        # The histories take num_nodes * hidden numbers.
        "hidden": 256 if graph.num_nodes <= 2_000_000 else 128,
        "num_neighbors": (5,), "batch_size": batch_size, "epochs": epochs,
        **({"patience": max(5, epochs // 5)} if graph.val_ids.numel() > 0 else {}),
    }  # fmt: skip


def choose_options(graph: Graph, defaults: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a run: those that the user gave, and for the others what `defaults` chooses.

    With `auto` a stored `P X` decides on the model and excludes a norm of the features, of which it knows nothing: the
    same graph without it may get other options. The log says so.
    """
    chosen, because = default_options(graph, defaults, given), ""
    if "normalization" in given:
        chosen.pop("model", None)  # SAGE takes the mean of the neighbors: this is a wish for a GCN
    if defaults == "auto" and (stored := graph.PX_normalization) is not None:
        chosen.pop("feature_norm", None)
        if given.keys().isdisjoint(("model", "normalization")):
            chosen |= {"model": MODEL_OF[stored], **({"normalization": stored} if stored == "random-walk" else {})}
        because = f"; P X is stored for {stored!r}, of features without a norm: hence the model and no feature_norm"
    if not takes_label_smoothing(graph, given):
        chosen.pop("label_smoothing", None)
    chosen = {name: value for name, value in chosen.items() if name not in given}
    if chosen:
        values = ", ".join(f"{name}={value}" for name, value in chosen.items())
        _log.info("options chosen for this graph: %s%s", values, because)
    return {**chosen, **given}


def takes_label_smoothing(graph: Graph, given: Mapping[str, Any]) -> bool:
    """Whether the loss is the cross entropy of one class a node or graph, to which label smoothing belongs."""
    classes = graph.label_kind == "classes" and given.get("task", "auto") in ("auto", "node", "graph")
    return classes and "loss" not in given


def choose_config(graph: Graph, defaults: str, given: dict[str, Any]) -> TrainConfig:
    """The config with the options of `choose_options`."""
    return TrainConfig(**choose_options(graph, defaults, given))
