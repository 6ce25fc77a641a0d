"""The graph a model is trained on: structure, features, labels and split, checked once and never changed."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from cvgnn.data.labels import to_labels
from cvgnn.data.sparse_features import SparseFeatures
from cvgnn.data.split import SPLITS
from cvgnn.data.structure_check import check_split, check_structure, first_bad
from cvgnn.errors import CvgnnError, error_context, require, require_integer

MAX_NODES = 2**31 - 1
IDS = tuple(f"{part}_ids" for part in SPLITS)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Cutout:
    """What a part of a graph needs of the whole to train to the same bits; see `cvgnn.data.store.compact_store`.

    Args:
        ids: int32 `[N]`, ascending, the nodes' ids in the whole graph: neighbor draws are functions of them.
        row_sums: float64 `[N]`, row sums of the whole `A`, from which `P` has its weights.
        hops: the rows of `A` of nodes less than `hops` hops from the split are complete, and all others are empty. So a
            network that samples at `hops` hops never reads a row that is missing.
        num_nodes: of the whole graph.
    """

    ids: Tensor
    row_sums: Tensor
    hops: int
    num_nodes: int


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Graph:
    """An immutable, validated graph with labels and a split; see `cvgnn.from_edges` to build one.

    Args:
        indptr: int64 `[N + 1]`, CSR offsets; the neighbors of `v` are `indices[indptr[v]:indptr[v+1]]`.
        indices: int32 `[E]`, neighbors, ascending within a row, without `v` itself and without duplicates.
        edge_weight: float `[E]`, positive, or None for weight 1 everywhere.
        x: features, dense float `[N, F]` or `SparseFeatures`.
        y: int64 `[N]`, class of each node; -1 where unknown (allowed outside the split only). Or several labels a node,
            int8 `[N, L]`, 0 or 1; or numbers, floating point `[N, T]`. See `cvgnn.data.labels`. With `graph_ids`, one
            row a graph instead of one a node.
        num_classes: `C`; classes lie in `0..C-1`. The number of columns of a matrix.
        train_ids, val_ids, test_ids: int64, node ids, disjoint; `train_ids` is not empty. Numbers of graphs with
            `graph_ids`.
        directed: whether the reverse of an edge may be missing (then `N_v` are the sources of messages to `v`).
        name: for messages and records.
        node_names: int64 or string `[N]`, the user's own node ids; None where they are `0..N-1`.
        class_names: `C` strings, the user's own labels or names of columns; None where they are `0..C-1`.
        preprocessing: how `x` was made from the columns of a table, as JSON; None for other graphs.
        split: the origin of the split, for the record: `"given"`, or the seed and sizes of a random one.
        edge_label_index: int64 `[2, M]`, labelled pairs of nodes, for task `edge`; see `cvgnn.data.with_edge_labels`.
        edge_label: int64 `[M]`, their classes from 0; -1 where unknown.
        edge_split: int8 `[M]`, the user's own split of these pairs, for tasks `edge` and `link`: positions in `SPLITS`,
            -1 for none of them. None for a random one.
        edge_class_names: the user's own labels of pairs; None where they are numbers from 0.
        graph_ids: int64 `[N]`, the graph of each node where this is a set of graphs without edges between them, as
            `batch` in PyG: ascending from 0, each graph with at least one node. None for one graph.
        graph_names: int64 or string `[G]`, the user's own ids of the graphs; None where they are `0..G-1`.
        PX: `P X` where it is precomputed, in `x`'s form, for the normalization named by `PX_normalization`.
        cutout: for a part of a larger graph; None for a whole one.
        validated: skip all checks, for a graph whose arrays were checked when they were written.
        built: skip the check of the structure, for one that `from_edges` made.
    """

    indptr: Tensor
    indices: Tensor
    edge_weight: Tensor | None = None
    x: Tensor | SparseFeatures
    y: Tensor
    num_classes: int
    train_ids: Tensor
    val_ids: Tensor
    test_ids: Tensor
    directed: bool = False
    name: str = "graph"
    node_names: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    split: str = "given"
    preprocessing: dict[str, Any] | None = None
    edge_label_index: Tensor | None = None
    edge_label: Tensor | None = None
    edge_split: Tensor | None = None
    edge_class_names: tuple[str, ...] | None = None
    graph_ids: Tensor | None = None
    graph_names: np.ndarray | None = None
    PX: Tensor | SparseFeatures | None = None
    PX_normalization: str | None = None
    cutout: Cutout | None = None
    validated: InitVar[bool] = False
    built: InitVar[bool] = False

    def __post_init__(self, validated: bool, built: bool) -> None:
        if validated:
            return
        graph_ids = () if self.graph_ids is None else ("graph_ids",)
        for name in ("indptr", "indices", *IDS, *graph_ids):
            _require_integers(getattr(self, name), name)
        require_integer("num_classes", self.num_classes, at_least=1)
        if not built:
            self.check_structure()
        dtypes = {"indptr": torch.int64, "indices": torch.int32, **dict.fromkeys(graph_ids, torch.int64)}
        for name, dtype in dtypes.items():
            object.__setattr__(self, name, getattr(self, name).to(dtype).contiguous())
        self._check_features()
        require(isinstance(self.y, Tensor), f"y must be a tensor, not {type(self.y).__name__}")
        y = to_labels(self.y.numpy())
        object.__setattr__(self, "y", torch.from_numpy(y))
        n, item = (self.num_nodes, "node") if self.graph_ids is None else (self.check_graph_ids(), "graph")
        require(len(y) == n, f"y must have one label per {item}, [{n}]; it has shape {list(self.y.shape)}")
        for name in IDS:
            object.__setattr__(self, name, _sorted_ids(getattr(self, name), name, n, item))
        count = self.num_classes
        require(y.ndim == 1 or y.shape[1] == count, f"y has {y.shape[-1]} columns, but num_classes is {count}")
        check_split({name: getattr(self, name).numpy() for name in IDS}, y, self.num_classes, item=item)
        self._check_names()
        self.check_edge_labels()

    def __deepcopy__(self, memo: object) -> Graph:
        """The graph itself, which does not change: scikit-learn copies an estimator's parameters for every fit."""
        return self

    @property
    def num_nodes(self) -> int:
        """`N`."""
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """Entries of `A`: each undirected edge counts twice, self loops not at all."""
        return self.indices.numel()

    @property
    def num_features(self) -> int:
        """`F`, the width of `x`."""
        return self.x.shape[1]

    @property
    def degree(self) -> Tensor:
        """int64 `[N]`, number of neighbors of each node."""
        return self.indptr.diff()

    @property
    def is_symmetric(self) -> bool:
        """Whether every entry of `A` has its reverse; a part of a graph has no rows at its border."""
        return not self.directed and self.cutout is None

    @property
    def label_kind(self) -> str:
        """What `y` holds: `"classes"`, `"labels"` or `"targets"`."""
        return "targets" if self.y.is_floating_point() else "labels" if self.y.dim() == 2 else "classes"

    @property
    def train_nodes(self) -> Tensor:
        """int64, the training nodes: `train_ids`, or the nodes of these graphs."""
        if self.graph_ids is None:
            return self.train_ids
        return torch.isin(self.graph_ids, self.train_ids).nonzero().flatten()

    def __repr__(self) -> str:
        kind = "sparse" if isinstance(self.x, SparseFeatures) else "dense"
        sizes = "/".join(str(ids.numel()) for ids in (self.train_ids, self.val_ids, self.test_ids))
        edges = f"{self.num_edges} directed edges" if self.directed else f"{self.num_edges // 2} edges"
        if self.cutout is not None:
            edges = f"{self.num_edges} entries of the rows within {self.cutout.hops} hops"
        graphs = "" if self.graph_ids is None else f"{len(self.y)} graphs, "
        labels = f"{self.num_classes} {self.label_kind}, split {sizes}" if self.train_ids.numel() else "no labels"
        pairs = "" if self.edge_label is None else f", {self.edge_label.numel()} pairs"
        return (
            f"Graph({self.name}: {graphs}{self.num_nodes} nodes, {edges}, {self.num_features} {kind} features, "
            f"{labels}{pairs})"
        )

    def check_structure(self) -> None:
        """Refuse invalid offsets, neighbors or weights; compiled code relies on them."""
        n, weight = self.num_nodes, self.edge_weight
        require(0 < n <= MAX_NODES, f"a graph needs 1 to {MAX_NODES} nodes; this one has {n}")
        if weight is not None:
            require(
                weight.shape == self.indices.shape and weight.is_floating_point(),
                f"edge_weight must be floating point of shape [{self.num_edges}]; it is {weight.dtype} of shape "
                f"{list(weight.shape)}",
            )
        weights = None if weight is None else weight.double().numpy()
        with error_context(after="; cvgnn.from_edges makes a graph from edges in any order"):
            check_structure(self.indptr.numpy(), self.indices.numpy(), weights, directed=not self.is_symmetric)

    def _check_features(self) -> None:
        require(
            len(self.x.shape) == 2 and self.x.shape[0] == self.num_nodes,
            f"x must have one row per node, [{self.num_nodes}, F]; it has shape {list(self.x.shape)}",
        )
        require(self.x.shape[1] > 0, "x has no columns; a model needs at least one feature")
        require(
            self.x.dtype in (torch.float32, torch.float64),
            f"x must be float32 or float64, not {self.x.dtype}; convert it with .float()",
        )
        require(
            self.PX is None or (tuple(self.PX.shape) == tuple(self.x.shape) and self.PX_normalization is not None),
            "PX must have the shape of x, and PX_normalization must name the normalization it was made with",
        )
        check_finite("x", self.x)

    def check_graph_ids(self) -> int:
        """Refuse graph ids that are not those of separate graphs; returns the number of graphs."""
        assert self.graph_ids is not None
        ids, n = self.graph_ids, self.num_nodes
        require(len(ids) == n, f"graph_ids must name the graph of every node, [{n}]; it has shape {list(ids.shape)}")
        steps = ids.diff(prepend=ids.new_tensor([-1]))
        bad = ((steps < 0) | (steps > 1)).nonzero().flatten().tolist()
        if bad or int(steps[0]) != 1:
            node = bad[0] if bad else 0
            raise CvgnnError(
                f"graph_ids must ascend from 0 without a gap, the nodes of a graph one after another; node {node} has "
                f"{int(ids[node])} after {int(ids[node - 1]) if node else 'nothing'}"
            )
        # The nodes of a graph are one range and rows ascend: the first and the last neighbor tell of all.
        rows = (self.degree > 0).nonzero().flatten()
        for entries in (self.indptr[rows], self.indptr[rows + 1] - 1):
            neighbors = self.indices[entries].long()
            between = (ids[rows] != ids[neighbors]).nonzero().flatten().tolist()
            if between:
                v, u = int(rows[between[0]]), int(neighbors[between[0]])
                raise CvgnnError(
                    f"nodes {u} and {v} have an edge, but graph_ids puts them into graphs {int(ids[u])} and "
                    f"{int(ids[v])}"
                )
        count, names = int(ids[-1]) + 1, self.graph_names
        given = None if names is None else names.shape
        require(given in (None, (count,)), f"graph_names must name every graph, [{count}]; it has shape {given}")
        return count

    def _check_names(self) -> None:
        n, c = self.num_nodes, self.num_classes
        if self.node_names is not None:
            shape = self.node_names.shape
            require(shape == (n,), f"node_names must name every node, [{n}]; it has shape {list(shape)}")
        if self.class_names is not None:
            require(len(self.class_names) == c, f"class_names has {len(self.class_names)} names for {c} classes")

    def check_edge_labels(self) -> None:
        """Refuse labels or a split of pairs that do not fit each other or the graph."""
        index, label, n = self.edge_label_index, self.edge_label, self.num_nodes
        split, names = self.edge_split, self.edge_class_names
        if index is None or label is None:
            alone = index is label and split is None
            require(alone, "edge_label_index and edge_label go together; give both, or neither")
            return
        count = label.numel()
        require(
            index.shape == (2, count) and label.dim() == 1,
            f"edge_label_index must have shape [2, M] and edge_label [M]; they have {list(index.shape)} and "
            f"{list(label.shape)}",
        )
        bad = ((index < 0) | (index >= n)).any(dim=0).nonzero().flatten().tolist()
        if bad:
            raise CvgnnError(
                f"pair {bad[0]} of edge_label_index, {tuple(index[:, bad[0]].tolist())}, names a node that does not "
                f"exist; ids must lie in 0..{n - 1}"
            )
        low, high = (int(label.min()), int(label.max())) if count else (0, 0)
        require(
            low >= -1 and high < max(count, 2),
            f"edge_label must hold classes numbered from 0, or -1 where unknown; found {low} to {high}",
        )
        require(names is None or high < len(names), f"edge_label holds {high}, and edge_class_names has no such class")
        if split is not None:
            fits = split.shape == (count,) and not bool(((split < -1) | (split >= len(SPLITS))).any())
            require(fits, f"edge_split must be [{count}], 0, 1 or 2 for train, val and test, or -1; it is not")


def check_finite(name: str, matrix: Tensor | SparseFeatures) -> None:
    """Refuse a NaN or infinite value; the memory does not grow with the matrix, which may be a mapped file."""
    rows = (matrix.values[:, None] if isinstance(matrix, SparseFeatures) else matrix).detach().numpy()
    at = first_bad(rows, lambda part: ~np.isfinite(part).all(axis=1))
    if at is not None:
        node, column = at, int(np.isfinite(rows[at]).argmin())
        if isinstance(matrix, SparseFeatures):
            node, column = int(np.searchsorted(matrix.indptr.numpy(), at, side="right")) - 1, int(matrix.indices[at])
        raise CvgnnError(f"{name} has a NaN or infinite value at node {node}, column {column}")


def _require_integers(values: object, what: str) -> None:
    kind = f"{values.dtype} of shape {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
    mask = isinstance(values, Tensor) and values.dtype == torch.bool
    hint = " (turn a mask into ids with mask.nonzero().flatten())" if mask else ""
    require(
        isinstance(values, Tensor) and values.dim() == 1 and not values.is_floating_point() and not mask,
        f"{what} must be a tensor of integers, one-dimensional; it is {kind}{hint}",
    )


def _sorted_ids(ids: Tensor, what: str, count: int, item: str) -> Tensor:
    ids = ids.to(torch.int64).sort().values  # a copy
    for node in ids[[0, -1]].tolist() if ids.numel() else ():
        require(0 <= node < count, f"{what} must lie in 0..{count - 1}; found {node}")
    twice = ids[1:][ids[1:] == ids[:-1]].tolist()
    if twice:
        raise CvgnnError(f"{what} names {item} {twice[0]} twice")
    return ids
