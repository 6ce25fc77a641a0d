"""Dense features without names of columns: are their scales alike, and standardising them where not."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import numpy as np
import torch

from cvgnn.data.graph import Graph
from cvgnn.errors import require

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
        graph: with features as the user has them; returned as it is where their scales are alike, or where
            `Graph.preprocessing` says that its features were made from columns.
        preprocessing: fitted before, on the graph that a model was trained on; then it is applied in any case.
    """
    ratio = 0.0 if preprocessing is not None or graph.preprocessing is not None else scale_ratio(graph)
    if preprocessing is None and ratio <= MAX_RATIO:
        return graph
    x = graph.x if isinstance(graph.x, torch.Tensor) else graph.x.to_dense()
    if preprocessing is None:
        from cvgnn.data.io.preprocessing import Preprocessing  # imports pyarrow

        train = x[graph.train_nodes].double().numpy()
        cells = {f"x{j}": column for j, column in enumerate(train.T)}
        preprocessing = {**Preprocessing.fit(cells, np.arange(len(train)), _no_mistake).to_dict(), "arrays": True}
        _log.info("columns of %s differ in scale by a factor of %.0f, so they are standardised", graph.name, ratio)
    features = torch.from_numpy(standardize_rows(x.numpy(), preprocessing)).to(x.dtype)
    # A stored P X is of the old features.
    return dataclasses.replace(graph, x=features, PX=None, preprocessing=preprocessing, validated=True)


def standardize_rows(x: np.ndarray, preprocessing: dict[str, Any]) -> np.ndarray:
    """Rows of features `[n, F]`, standardised as those of the graph that `preprocessing` was fitted on; float32."""
    from cvgnn.data.io.preprocessing import Preprocessing

    columns = Preprocessing.from_dict(preprocessing).columns
    require(
        is_of_arrays(preprocessing) and len(columns) == x.shape[1],
        f"the model was trained on {len(columns)} columns ({', '.join(c['name'] for c in columns[:3])}, ...), and this "
        f"graph has {x.shape[1]} without names; give the same form of data that the model was trained on",
    )
    # Column by column, so that only one of them is there in float64.
    parts = [
        Preprocessing((column,)).apply({column["name"]: x[:, j].astype(np.float64)}, len(x), _no_mistake)
        for j, column in enumerate(columns)
    ]
    return np.concatenate(parts, axis=1)


def is_of_arrays(preprocessing: dict[str, Any] | None) -> bool:
    """Whether a preprocessing was fitted on an array, whose columns have no names."""
    return preprocessing is not None and preprocessing.get("arrays") is True


def features_of_run(graph: Graph, preprocessing: dict[str, Any] | None) -> Graph:
    """A graph that is not read from tables, with features made as those of the graph that a model was trained on.

    Args:
        graph: in memory, or a store.
        preprocessing: of the run; None where its features are as the user gave them.
    """
    if preprocessing is None:
        return graph
    if graph.preprocessing is not None:
        require(
            graph.preprocessing.get("columns") == preprocessing.get("columns"),
            f"the features of {graph.name} were fitted on other data than the run's; give the data that they were made "
            "from",
        )
        return graph
    if is_of_arrays(preprocessing):
        return standardize(graph, preprocessing)
    _log.warning("%s does not say how its features were made; they must be made as for the run's graph", graph.name)
    return graph


def _no_mistake(column: str, rows: np.ndarray, what: Any) -> None:
    """Every cell is a finite number: `Graph` has checked it."""
