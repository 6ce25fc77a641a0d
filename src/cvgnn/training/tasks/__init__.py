"""Tasks: what a network learns, behind one protocol (`base.Task`). docs/tasks.md is the user's side.

A new task is a module with a subclass of `Task` and an entry in `TASKS`.
"""

from __future__ import annotations

from typing import Any

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.labels import labelled
from cvgnn.errors import require
from cvgnn.training.tasks.base import Metrics as Metrics
from cvgnn.training.tasks.base import Task as Task
from cvgnn.training.tasks.base import is_share as is_share
from cvgnn.training.tasks.base import metric_keys as metric_keys
from cvgnn.training.tasks.base import result_keys as result_keys
from cvgnn.training.tasks.edge_tasks import EdgeClassification as EdgeClassification
from cvgnn.training.tasks.edge_tasks import LinkPrediction as LinkPrediction
from cvgnn.training.tasks.graph_tasks import GraphClassification as GraphClassification
from cvgnn.training.tasks.metrics import METRICS as METRICS
from cvgnn.training.tasks.node_tasks import LossFunction as LossFunction
from cvgnn.training.tasks.node_tasks import MultiLabelClassification as MultiLabelClassification
from cvgnn.training.tasks.node_tasks import NodeClassification as NodeClassification
from cvgnn.training.tasks.node_tasks import NodeRegression as NodeRegression

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        NodeClassification,
        MultiLabelClassification,
        NodeRegression,
        EdgeClassification,
        LinkPrediction,
        GraphClassification,
    )
}
"""The built-in tasks by name."""


def is_of_pairs(task: str) -> bool:
    """Whether a task is one of pairs of nodes, which needs no labels at nodes."""
    return task in TASKS and TASKS[task].of_pairs


def task_of(graph: Graph) -> str:
    """The task that the labels of a graph are for: a class a node, a 0/1 matrix, floating point numbers, or a class a
    graph. Where only pairs of nodes have labels, a class a pair; where they have only a split, links."""
    if graph.graph_ids is not None:
        return "graph"
    # Labels at nodes win over labels at edges, so a graph that has both keeps the task it had before edges were
    # labelled.
    if graph.edge_label is not None and not labelled(graph.y.numpy()).any():
        return "edge" if bool((graph.edge_label >= 0).any()) else "link"
    if graph.y.is_floating_point():
        return "regression"
    return "multilabel" if graph.y.dim() == 2 else "node"


def describe_choice(graph: Graph) -> str | None:
    """What `task_of` chose where nodes and pairs of nodes have labels; None where there is nothing to choose."""
    name = task_of(graph)
    if name in ("edge", "link", "graph") or graph.edge_label is None or not bool((graph.edge_label >= 0).any()):
        return None
    return f"nodes and edges have labels: task {name!r} learns those of nodes; for those of edges give task 'edge'"


def make_task(
    graph: Graph, config: TrainConfig, *, name: str | None = None, num_outputs: int | None = None, loss: Any = None
) -> Task:
    """The task of a run, on the CPU.

    Args:
        graph, config: of the run.
        name: of the task; the config's if None, and where that is `"auto"`, the one that the labels are for.
        num_outputs: classes, labels or targets; those of the graph if None.
        loss: a function of the user's own.
    """
    name = name or (task_of(graph) if config.task == "auto" else config.task)
    require(name == "graph" or config.pool == "mean", f"pool has no use with task {name!r}; leave it out")
    require(
        graph.graph_ids is None or name not in ("node", "multilabel", "regression"),
        f"task {name!r} needs labels at nodes, and {graph.name!r} is a set of graphs, with labels at graphs; use task "
        "'graph'",
    )
    return TASKS[name].from_config(graph, config, num_outputs=num_outputs, loss=loss)
