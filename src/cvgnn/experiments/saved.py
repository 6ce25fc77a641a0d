"""A run read back from its folder: the graph it was trained on, and the model with its weights."""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.errors import CvgnnError, require
from cvgnn.experiments.run import Run, build_features, build_model
from cvgnn.experiments.settings import read_object, read_settings
from cvgnn.experiments.source import load_source
from cvgnn.graph import Graph, Propagation
from cvgnn.graph.names import shown
from cvgnn.sealed import short

_SMALL = 2**20


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedRun:
    """What a run folder says: where the graph came from and how the model was trained."""

    path: Path
    source: GraphSource
    config: TrainConfig
    result: dict[str, Any]
    trusted: bool = False
    """Whether the user named the source, not config.json."""

    def restore(self, graph: Graph | None = None) -> Run:
        """The run with its weights, on the graph it was trained on (or on another one with the same features)."""
        graph = load_source(self.source, trusted=self.trusted) if graph is None else graph
        propagation = Propagation(graph, normalization=self.config.aggregation)
        classes = self.result.get("num_classes", graph.num_classes)
        require(
            type(classes) is int and classes >= 1,
            f"{self.path / 'result.json'}: num_classes must be a whole number of at least 1, not {short(classes)}",
        )
        file = self.path / "weights.safetensors"
        weights = _read_weights(file)
        _refuse_larger_model(file, graph, self.config, classes, weights)
        model = build_model(graph, self.config, dtype=propagation.dtype, num_classes=classes)
        mine = model.state_dict()
        for name in sorted(mine.keys() | weights.keys()):
            here = "nothing" if name not in mine else f"{list(mine[name].shape)}"
            there = "nothing" if name not in weights else f"{list(weights[name].shape)}"
            if here != there:
                raise CvgnnError(
                    f"{file} does not fit the graph {graph.name!r}: {shown([name[:80]])} is {there} in the file, "
                    f"but the graph and config.json ask for {here}; give the graph that the run was trained on"
                )
            if not bool(weights[name].isfinite().all()):
                raise CvgnnError(f"{file} holds NaN or infinite values in {name}: the run diverged, or it is damaged")
        model.load_state_dict(weights)
        model.eval()
        return Run(
            graph=graph,
            config=self.config,
            model=model,
            features=build_features(graph, propagation, self.config, model),
            propagation=propagation,
            records=[],
            result=self.result,
        )


def read_run(path: Path, *, source: GraphSource | None = None) -> SavedRun:
    """Read config.json and result.json of a finished run.

    Args:
        path: the folder given to `cvgnn train --out`.
        source: where the graph is now, if not where config.json says.
    """
    if not path.is_dir():
        raise CvgnnError(f"no run folder at {path}; give a folder that cvgnn train --out has written")
    where, config = read_settings(path / "config.json")
    result = read_object(path / "result.json")
    return SavedRun(path=path, source=source or where, config=config, result=result, trusted=source is not None)


def _refuse_larger_model(
    file: Path, graph: Graph, config: TrainConfig, num_classes: int, weights: dict[str, Tensor]
) -> None:
    """Refuse a config that asks for far more weights than there are, before it takes memory for them."""
    widths = [graph.num_features, *([config.hidden] if config.layers > 1 else []), num_classes]
    asked = sum(a * b for a, b in itertools.pairwise(widths)) + max(0, config.layers - 2) * config.hidden**2
    there = sum(tensor.numel() for tensor in weights.values())
    require(
        asked <= there + _SMALL and config.layers <= len(weights) + 10,
        f"{file} does not fit the graph {graph.name!r}: it holds {there} weights in {len(weights)} matrices and "
        f"vectors, but the graph and config.json ask for {short(asked)} in {short(config.layers)} layers; give the "
        "graph that the run was trained on",
    )


def _read_weights(file: Path) -> dict[str, Tensor]:
    try:
        with file.open("rb") as opened:
            header = int.from_bytes(opened.read(8), "little")
            require(header <= os.fstat(opened.fileno()).st_size, f"cannot read {file}: it is damaged (its header)")
        weights: dict[str, Tensor] = load_file(file)
    except FileNotFoundError:
        raise CvgnnError(f"{file} is missing: the run is not finished, or this is not a run folder") from None
    except (SafetensorError, OSError) as error:
        raise CvgnnError(f"cannot read {file}: it is damaged ({shown([str(error)[:200]])})") from None
    for name, tensor in weights.items():
        require(
            tensor.dtype in (torch.float32, torch.float64),
            f"{file} holds {short(name)} as {tensor.dtype}; weights are float32 or float64",
        )
    return weights
