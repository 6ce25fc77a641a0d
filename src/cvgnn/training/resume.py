"""Resume: which run a checkpoint belongs to, and whether the present one may continue it.

Other data or other options would make the result wrong and are refused. Other versions or another processor compute
the same up to rounding: they are a logged warning, and an error with `exact`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cvgnn._version import __version__
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.data import Graph, SparseFeatures
from cvgnn.data.store import describe_store, is_store
from cvgnn.errors import CvgnnError, require
from cvgnn.registry import plugins_digest
from cvgnn.training.machine import code_digest, processor
from cvgnn.utils.checked_json import digest, short

if TYPE_CHECKING:
    from cvgnn.training.checkpoint import Checkpoint

_log = logging.getLogger(__name__)
_PIECE = 1 << 22  # bytes hashed or written at a time: a mapped array must not be read into memory at once
_LIBRARIES = ("torch", "numpy", "numba", "scipy")
_MAY_CHANGE_BITS = ("cvgnn", "code", "plugins", "processor", *_LIBRARIES)
_MAX_SHOWN = 20
_NOT_IDENTITY = ("epochs", "patience", "threads", "histories")
_EDGE_LABELS = ("edge_label_index", "edge_label", "edge_split")


def identity(
    graph: Graph, source: GraphSource, config: TrainConfig, *, threads: int, digest: str | None = None
) -> dict[str, Any]:
    """Flat JSON values that are equal for two runs exactly if they compute the same, epoch by epoch.

    Args:
        graph, source: the graph, and where it came from.
        config: all of it counts but for when training ends: `patience`, and `epochs`, on which a schedule depends;
            and where `histories` are.
        threads: as used.
        digest: of the graph, if it is known.
    """
    options = {k: v for k, v in config.to_dict().items() if k not in _NOT_IDENTITY}
    # A schedule falls to zero at the last epoch, so with one the number of epochs changes every step.
    if config.schedule != "constant":
        options["schedule"] = f"{config.schedule} over {config.epochs} epochs"
    libraries = {name: _version_of(name) for name in _LIBRARIES}
    code = {"cvgnn": __version__, "code": code_digest(), **libraries}
    if (plugins := plugins_digest()) is not None:
        code["plugins"] = plugins
    return {**options, "threads": threads, "graph": digest or graph_digest(graph, source), **code}


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between two identities, for an error message.

    >>> differences({"lr": 0.1, "seed": 0}, {"lr": 0.2, "seed": 0})
    ['lr was 0.1 and is 0.2']
    """
    messages = {
        "graph": "the graph's content has changed",
        "code": "cvgnn's own code has changed",
        "plugins": "the plugins have changed",
    }
    names = [name for name in sorted(then.keys() | now.keys()) if then.get(name, ...) != now.get(name, ...)]
    # A checkpoint may come from anybody: names and values are escaped and shortened before they are printed.
    shown = [
        messages.get(name) or f"{_escaped(name)} was {_value(then, name)} and is {_value(now, name)}"
        for name in names[:_MAX_SHOWN]
    ]
    return shown + ([f"and {len(names) - _MAX_SHOWN} more"] if len(names) > _MAX_SHOWN else [])


def check_resume_options(then: dict[str, Any], now: dict[str, Any], *, folder: Path) -> None:
    """Refuse options that differ from those of the run, but for the graph's path and for when training ends."""
    # The path may change because folders move: the graph's content is compared with the checkpoint's.
    may_change = ("epochs", "patience", "histories", "root", "graph")
    free: dict[str, Any] = {name: now[name] for name in may_change if name in now}
    changes = differences({**then, **free}, now)
    require(
        not changes,
        f"cannot resume {folder}: {'; '.join(changes)}. Leave these options out, or start a new run in another folder "
        "(epochs alone may grow)",
    )
    require(
        now["epochs"] >= then["epochs"],
        f"epochs must be at least {then['epochs']} as in the run that is resumed, not {now['epochs']}",
    )


def check_same_run(checkpoint: Checkpoint, now: dict[str, Any], *, exact: bool = False) -> None:
    """Refuse to resume from a checkpoint of other data or other options, with the differences.

    Args:
        checkpoint: of the earlier process.
        now: identity of the present run.
        exact: refuse also what may change the last bits: other versions, other code, another processor.
    """
    path, then = checkpoint.path, checkpoint.body.get("identity")
    if not isinstance(then, dict):
        raise CvgnnError(f"the checkpoint {path} does not name the run it belongs to")
    # An option that did not exist then had, in effect, the default that it has now.
    added = {name: value for name, value in TrainConfig().to_dict().items() if name in now}
    then, now = {**added, **then, "processor": checkpoint.body.get("processor")}, {**now, "processor": processor()}
    (options_then, versions_then), (options_now, versions_now) = _split(then), _split(now)
    wrong = differences(options_then, options_now)
    require(
        not wrong,
        f"cannot resume from {path}: {'; '.join(wrong)}. Use what was used then, or start a new run in another folder "
        "(epochs alone may grow)",
    )
    inexact = "; ".join(differences(versions_then, versions_now))
    require(not (inexact and exact), f"cannot resume from {path} to the same bits: {inexact}. Leave exact out")
    if inexact:
        _log.warning("the run continues, but its last bits may differ: %s", inexact)


def graph_digest(graph: Graph, source: GraphSource) -> str:
    """SHA-256 over everything in a graph that training reads; a store's header has it already."""
    if source.graph is not None and is_store(source.graph):
        return digest(describe_store(source.graph))  # the arrays may be larger than memory
    total = hashlib.sha256(repr((graph.num_nodes, graph.num_features, graph.num_classes, graph.directed)).encode())
    # Names and class names do not count: they change no number.
    arrays = ("indptr", "indices", "edge_weight", "x", "y", "train_ids", "val_ids", "test_ids", "graph_ids", "PX")
    for name in (*arrays, *_EDGE_LABELS):
        value = getattr(graph, name)
        parts = (value.indptr, value.indices, value.values) if isinstance(value, SparseFeatures) else (value,)
        for part in parts:
            if part is not None:
                total.update(f"{name} {part.dtype} {list(part.shape)}".encode())
                for piece in tensor_bytes(part):
                    total.update(piece)
    return total.hexdigest()


def tensor_bytes(tensor: Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor on the CPU, piece by piece; a contiguous one is not copied."""
    if tensor.numel():  # an empty tensor may have stride 0, which torch does not view as bytes
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
        for first in range(0, len(data), _PIECE):
            yield data[first : first + _PIECE]


def _split(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What decides the result, and what decides only its last bits."""
    rounding = {name: value for name, value in values.items() if name in _MAY_CHANGE_BITS}
    return {name: value for name, value in values.items() if name not in rounding}, rounding


def _escaped(name: str) -> str:
    return name if name.isidentifier() and len(name) < 80 else short(name)


def _value(values: dict[str, Any], name: str) -> str:
    return short(values[name]) if name in values else "not set"


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
