"""Standardises dense features that come without names of columns: from `.npz` and `.pt` files.

They are left as they are unless their scales differ by more than a factor of 100: bags of words and features that
somebody has normalised stay what they are.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cvgnn.data.graph import Graph
from cvgnn.errors import require

if TYPE_CHECKING:
    from cvgnn.data.io.preprocessing import Preprocessing

MAX_RATIO = 100.0
_ROWS_LOOKED_AT = 10_000
_log = logging.getLogger(__name__)


def scale_ratio(graph: Graph) -> float:
    """The largest root mean square of a dense column over the smallest, among the training nodes; 1 for sparse ones.

    Words and indicators are mostly 0 and differ in scale by their frequency alone, so they do not count.
    """
    if not isinstance(graph.x, torch.Tensor):
        return 1.0
    x = graph.x[graph.train_nodes[:_ROWS_LOOKED_AT]].double()
    scale = (x * x).mean(dim=0).sqrt()[(x != 0).double().mean(dim=0) > 0.5]
    return float(scale.max() / scale.min()) if scale.numel() > 1 else 1.0


def standardize(graph: Graph, preprocessing: dict[str, Any] | None = None) -> Graph:
    """The graph with its dense columns standardised, each as a column of a table is, fitted on the training nodes.

    Args:
        graph: with features as they are in the file; returned as it is where their scales are alike.
        preprocessing: fitted before, on the graph that a model was trained on; then it is applied in any case.
    """
    ratio = scale_ratio(graph) if preprocessing is None else 0.0
    if preprocessing is None and ratio <= MAX_RATIO:
        return graph
    from cvgnn.data.io.preprocessing import Preprocessing  # imports pyarrow

    names = [f"x{j}" for j in range(graph.num_features)]
    x = (graph.x if isinstance(graph.x, torch.Tensor) else graph.x.to_dense()).numpy()
    if preprocessing is None:
        train = x[graph.train_nodes.numpy()].astype(np.float64)
        cells = {name: train[:, j] for j, name in enumerate(names)}
        fitted = Preprocessing.fit(cells, np.arange(len(train)), _no_mistake)
        _log.info("columns of %s differ in scale by a factor of %.0f, so they are standardised", graph.name, ratio)
    else:
        fitted = Preprocessing.from_dict(preprocessing)
        theirs = [column["name"] for column in fitted.columns]
        require(
            theirs == names,
            f"the model was trained on {len(theirs)} columns ({', '.join(theirs[:3])}, ...), and this graph has "
            f"{len(names)} without names; give the same form of data that the model was trained on",
        )
    features = torch.from_numpy(_apply(fitted, x))
    return dataclasses.replace(graph, x=features, preprocessing=fitted.to_dict(), validated=True)


def _apply(fitted: Preprocessing, x: np.ndarray) -> np.ndarray:
    # Column by column, so that only one of them is there in float64.
    parts = [
        type(fitted)((column,)).apply({column["name"]: x[:, j].astype(np.float64)}, len(x), _no_mistake)
        for j, column in enumerate(fitted.columns)
    ]
    return np.concatenate(parts, axis=1)


def _no_mistake(column: str, rows: np.ndarray, what: Any) -> None:
    """Every cell is a finite number: `Graph` has checked it."""
