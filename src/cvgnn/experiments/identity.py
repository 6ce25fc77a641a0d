"""What must be the same for a run to be continued: its config, its graph and the code that computes."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import cvgnn
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.graph import Graph, SparseFeatures
from cvgnn.sealed import digest, short
from cvgnn.store import describe_store, is_store

_PIECE = 1 << 24
_LIBRARIES = ("torch", "numpy", "numba", "scipy")
_MOST_TOLD = 20


def identity(graph: Graph, source: GraphSource, config: TrainConfig, *, threads: int) -> dict[str, Any]:
    """Flat JSON values that are equal for two runs exactly if they compute the same, epoch by epoch.

    Args:
        graph, source: what is trained on, and where it came from.
        config: all of it counts but for when training ends: `patience`, and `epochs`, on which a schedule depends.
        threads: as used.
    """
    settings = {k: v for k, v in config.to_dict().items() if k not in ("epochs", "patience", "threads")}
    if config.schedule != "constant":
        settings["schedule"] = f"{config.schedule} over {config.epochs} epochs"
    libraries = {name: _version_of(name) for name in _LIBRARIES}
    code = {"cvgnn": cvgnn.__version__, "code": code_digest(), **libraries}
    return {**settings, "threads": threads, "graph": graph_digest(graph, source), **code}


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between two identities, in words.

    >>> differences({"lr": 0.1, "seed": 0}, {"lr": 0.2, "seed": 0})
    ['lr was 0.1 and is 0.2']
    """
    words = {"graph": "the graph's content has changed", "code": "cvgnn's own code has changed"}
    names = [name for name in sorted(then.keys() | now.keys()) if then.get(name, ...) != now.get(name, ...)]
    told = [
        words.get(name) or f"{_readable(name)} was {_shown(then, name)} and is {_shown(now, name)}"
        for name in names[:_MOST_TOLD]
    ]
    return told + ([f"and {len(names) - _MOST_TOLD} more"] if len(names) > _MOST_TOLD else [])


def graph_digest(graph: Graph, source: GraphSource) -> str:
    """SHA-256 over everything in a graph that training reads; a store's header has it already."""
    if source.graph is not None and is_store(source.graph):
        return digest(_as_json(describe_store(source.graph)))
    total = hashlib.sha256(repr((graph.num_nodes, graph.num_features, graph.num_classes, graph.directed)).encode())
    for name in ("indptr", "indices", "edge_weight", "x", "y", "train_ids", "val_ids", "test_ids", "PX"):
        value = getattr(graph, name)
        parts = (value.indptr, value.indices, value.values) if isinstance(value, SparseFeatures) else (value,)
        for part in parts:
            if part is not None:
                total.update(f"{name} {part.dtype} {list(part.shape)}".encode())
                _update(total, part)
    return total.hexdigest()


def code_digest() -> str:
    """SHA-256 over the source files of this package, but for those that no run computes with."""
    root = Path(cvgnn.__file__).parent
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root)
        if name.parts[0] not in ("cli", "diagnose", "report", "sweeps"):
            total.update(str(name).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def _update(total: Any, tensor: Tensor) -> None:
    rows = tensor.contiguous().reshape(-1)
    for first in range(0, rows.numel(), _PIECE):
        total.update(rows[first : first + _PIECE].view(torch.uint8).numpy().data)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_json(v) for key, v in value.items()}
    return list(map(_as_json, value)) if isinstance(value, list | tuple) else value


def _readable(name: str) -> str:
    return name if name.isidentifier() and len(name) < 80 else short(name)  # a checkpoint may be anybody's


def _shown(values: dict[str, Any], name: str) -> str:
    return short(values[name]) if name in values else "not set"


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
