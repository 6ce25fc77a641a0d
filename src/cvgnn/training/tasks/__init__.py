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
    graph. Where only pairs of nodes have labels, a class a pair; where they have only a split, links. An error where
    both nodes and pairs have them: only the user knows which are to be learned."""
    if graph.graph_ids is not None:
        return "graph"
    of_nodes = "regression" if graph.y.is_floating_point() else "multilabel" if graph.y.dim() == 2 else "node"
    if graph.edge_label is None:
        return of_nodes
    are_classes, at_nodes = bool((graph.edge_label >= 0).any()), bool(labelled(graph.y.numpy()).any())
    if not are_classes and graph.edge_split is None:
        require(
            at_nodes, "neither a node nor an edge has a label, so there is nothing to learn; task 'link' needs none"
        )
        return of_nodes
    of_pairs, what = ("edge", "labels at edges") if are_classes else ("link", "a split of its edges")
    require(
        not at_nodes,
        f"{graph.name!r} has labels at nodes and {what}, so the task is not clear: give task {of_nodes!r} for those of "
        f"nodes, or {of_pairs!r}",
    )
    return of_pairs


def check_options(task: str, config: TrainConfig) -> None:
    """Refuse options of other tasks, which would do nothing.

    Args:
        task: the name of a task in `TASKS`.
        config: of a run that begins.
    """
    for option, tasks in _OPTIONS.items():
        used = task in tasks or getattr(config, option) == getattr(TrainConfig, option)
        require(used, f"{option} has no use with task {task!r}; leave it out")


_OF_PAIRS = ("edge", "link")
_OPTIONS = {
    "pool": ("graph",),
    **dict.fromkeys(("head", "val_edges", "test_edges", "edge_seed"), _OF_PAIRS),
    **dict.fromkeys(("negatives", "hits_k"), ("link",)),
}
"""Options that are not of all tasks, and the tasks that have them."""


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
    require(
        graph.graph_ids is None or name not in ("node", "multilabel", "regression"),
        f"task {name!r} needs labels at nodes, and {graph.name!r} is a set of graphs, with labels at graphs; use task "
        "'graph'",
    )
    return TASKS[name].from_config(graph, config, num_outputs=num_outputs, loss=loss)
