"""The graph a model is trained on: structure, features, labels and split, checked once and never changed."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from cvgnn.errors import CvgnnError, require, require_integer
from cvgnn.graph.sparse_features import SparseFeatures

MAX_NODES = 2**31 - 1
_PIECE = 1 << 22


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Graph:
    """An immutable, validated graph for node classification. Most people build one with `cvgnn.from_edges`.

    Args:
        indptr: int64 `[N + 1]`, CSR offsets; the neighbors of `v` are `indices[indptr[v]:indptr[v+1]]`.
        indices: int32 `[E]`, neighbors, ascending within a row, without `v` itself and without duplicates.
        edge_weight: float `[E]`, positive, or None for weight 1 everywhere.
        x: features, dense float `[N, F]` or `SparseFeatures`.
        y: int64 `[N]`, class of each node; -1 where unknown (allowed outside the split only).
        num_classes: `C`; labels lie in `0..C-1`.
        train_ids, val_ids, test_ids: int64, node ids, disjoint; `train_ids` is not empty.
        directed: whether `indices` may miss the reverse of an edge (then `N_v` are the sources of messages to `v`).
        name: for messages and records.
        node_names: int64 or string `[N]`, the user's own node ids; None where they are `0..N-1`.
        class_names: `C` strings, the user's own labels; None where they are `0..C-1`.
        split: how the split came about, for the record: `"given"`, or the seed and sizes of a random one.
        PX: `P X` if it was computed before, in `x`'s form, for the normalization named by `PX_normalization`.
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
    PX: Tensor | SparseFeatures | None = None
    PX_normalization: str | None = None
    validated: InitVar[bool] = False
    built: InitVar[bool] = False

    def __post_init__(self, validated: bool, built: bool) -> None:
        if validated:
            return
        set_field = object.__setattr__
        for name in ("indptr", "indices", "y"):
            _require_integers(getattr(self, name), name)
        require_integer("num_classes", self.num_classes, at_least=1)
        if not built:
            self.check_structure()
        set_field(self, "indptr", self.indptr.to(torch.int64).contiguous())
        set_field(self, "indices", self.indices.to(torch.int32).contiguous())
        for split in ("train_ids", "val_ids", "test_ids"):
            set_field(self, split, _checked_ids(getattr(self, split), split, self.num_nodes))
        set_field(self, "y", self.y.to(torch.int64).contiguous())
        self._check_features()
        self._check_labels_and_split()
        self._check_names()

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

    def __repr__(self) -> str:
        kind = "sparse" if isinstance(self.x, SparseFeatures) else "dense"
        sizes = "/".join(str(ids.numel()) for ids in (self.train_ids, self.val_ids, self.test_ids))
        edges = f"{self.num_edges} directed edges" if self.directed else f"{self.num_edges // 2} edges"
        return (
            f"Graph({self.name}: {self.num_nodes} nodes, {edges}, {self.num_features} {kind} features, "
            f"{self.num_classes} classes, split {sizes})"
        )

    def check_structure(self) -> None:
        """Refuse offsets, neighbors or weights that no graph has; compiled code relies on them."""
        n, e = self.num_nodes, self.num_edges
        require(0 < n <= MAX_NODES, f"a graph needs 1 to {MAX_NODES} nodes; this one has {n}")
        require(
            int(self.indptr[0]) == 0 and int(self.indptr[-1]) == e and bool((self.indptr.diff() >= 0).all()),
            f"indptr must rise from 0 to the number of edge entries, {e}; it does not",
        )
        if e:
            low, high = int(self.indices.min()), int(self.indices.max())
            require(
                low >= 0 and high < n,
                f"edges must name nodes in 0..{n - 1}; found {low if low < 0 else high}",
            )
            row = torch.repeat_interleave(torch.arange(n, dtype=torch.int32), self.indptr.diff())
            require(
                not bool((row == self.indices).any()),
                "indices holds self loops; leave them out (P adds its own) or use cvgnn.from_edges",
            )
            # Within a row the columns must rise strictly; a fall is allowed only where a new row starts.
            falls = (self.indices.diff() <= 0) & (row[1:] == row[:-1])
            require(
                not bool(falls.any()),
                "indices must be ascending and without duplicates in each row; cvgnn.from_edges does that",
            )
        if self.edge_weight is not None:
            w = self.edge_weight
            require(
                w.shape == self.indices.shape and w.is_floating_point(),
                f"edge_weight must be floating point of shape [{e}]; it is {w.dtype} of shape {list(w.shape)}",
            )
            require(
                bool(torch.isfinite(w).all()) and bool((w > 0).all()),
                "edge_weight must be positive and finite everywhere",
            )
        if e and not self.directed:
            require(
                symmetric(row, self.indices, self.edge_weight),
                "the edges are not symmetric: some edge lacks its reverse, or has another weight there; pass "
                "directed=True, or use cvgnn.from_edges, which adds the reverse edges",
            )

    def _check_features(self) -> None:
        values = self.x.values if isinstance(self.x, SparseFeatures) else self.x
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
        # One pass without a mask of the matrix's size: a sum is finite only if every entry is (or on overflow).
        if not bool(torch.isfinite(values.sum())):
            _refuse_non_finite(self.x)

    def _check_labels_and_split(self) -> None:
        n, c = self.num_nodes, self.num_classes
        require(self.y.shape == (n,), f"y must have one label per node, [{n}]; it has shape {list(self.y.shape)}")
        low, high = int(self.y.min()), int(self.y.max())
        require(
            low >= -1 and high < c,
            f"labels must lie in 0..{c - 1} (or be -1 for unknown); found {low if low < -1 else high} "
            f"at node {int(self.y.argmin() if low < -1 else self.y.argmax())}",
        )
        require(self.train_ids.numel() > 0, "the training split is empty; name at least one training node")
        splits = {"train": self.train_ids, "val": self.val_ids, "test": self.test_ids}
        owner = torch.zeros(n, dtype=torch.uint8)
        for number, (split, ids) in enumerate(splits.items(), start=1):
            taken = owner[ids]
            if bool(taken.any()):
                first = int(taken.nonzero()[0])
                other = list(splits)[int(taken[first]) - 1]
                raise CvgnnError(
                    f"node {int(ids[first])} is in both the {other} and the {split} split; splits must be disjoint"
                )
            owner[ids] = number
            unlabelled = ids[self.y[ids] < 0].tolist()
            if unlabelled:
                raise CvgnnError(
                    f"node {unlabelled[0]} of the {split} split has no label (-1); leave it out of the split"
                )

    def _check_names(self) -> None:
        n, c = self.num_nodes, self.num_classes
        if self.node_names is not None:
            shape = self.node_names.shape
            require(shape == (n,), f"node_names must name every node, [{n}]; it has shape {list(shape)}")
        if self.class_names is not None:
            require(len(self.class_names) == c, f"class_names has {len(self.class_names)} names for {c} classes")


def symmetric(row: Tensor, column: Tensor, weight: Tensor | None) -> bool:
    """Whether the entries `(row, column, weight)` are the entries `(column, row, weight)`.

    Compares the sums of a 64-bit hash of each entry: one pass, no sort; different sets agree with a chance of 2^-64.
    """
    total = [0, 0]
    for first in range(0, row.numel(), _PIECE):
        r, c = (t[first : first + _PIECE].numpy().astype(np.uint64) for t in (row, column))
        w = np.uint64(0) if weight is None else weight[first : first + _PIECE].double().numpy().view(np.uint64)
        for side, (a, b) in enumerate(((r, c), (c, r))):
            total[side] += int(_mix(_mix((a << np.uint64(32)) | b) ^ w).sum(dtype=np.uint64))
    return (total[0] - total[1]) % 2**64 == 0


def _mix(z: np.ndarray) -> np.ndarray:
    """`cvgnn.rng.mix` on arrays of uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = z ^ (z >> np.uint64(31))
    return mixed


def _require_integers(values: object, what: str) -> None:
    kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
    whole = isinstance(values, Tensor) and not values.is_floating_point() and values.dtype != torch.bool
    require(whole, f"{what} must be a tensor of integers, not {kind}")
    require(isinstance(values, Tensor) and values.dim() == 1, f"{what} must be a vector")


def _checked_ids(ids: Tensor, what: str, num_nodes: int) -> Tensor:
    require(
        ids.dim() == 1 and not ids.is_floating_point() and ids.dtype != torch.bool,
        f"{what} must be a vector of node ids; it is {ids.dtype} of shape {list(ids.shape)} "
        "(turn a mask into ids with mask.nonzero().flatten())",
    )
    ids = ids.to(torch.int64).sort().values  # a copy
    if ids.numel():
        low, high = int(ids[0]), int(ids[-1])
        require(
            low >= 0 and high < num_nodes,
            f"{what} must lie in 0..{num_nodes - 1}; found {low if low < 0 else high}",
        )
        twice = ids[1:][ids[1:] == ids[:-1]].tolist()
        if twice:
            raise CvgnnError(f"{what} names node {twice[0]} twice")
    return ids


def _refuse_non_finite(x: Tensor | SparseFeatures) -> None:
    """Name the first bad entry; a finite matrix whose sum overflows passes."""
    if isinstance(x, SparseFeatures):
        bad = (~torch.isfinite(x.values)).nonzero().flatten()
        if bad.numel():
            row = int(torch.searchsorted(x.indptr, bad[0], right=True)) - 1
            raise CvgnnError(f"x has a NaN or infinite value at node {row}, column {int(x.indices[bad[0]])}")
    else:
        rows = (~torch.isfinite(x)).nonzero()
        if rows.numel():
            require(False, f"x has a NaN or infinite value at node {int(rows[0, 0])}, column {int(rows[0, 1])}")
