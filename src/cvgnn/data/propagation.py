"""The propagation matrix `P`; nothing else in the package computes its weights.

Legend: `A` adjacency without self loops; `D~ = diag((A + I) 1)`; `P = D~^-1/2 (A + I) D~^-1/2` (symmetric, the
paper's) or `P = D~^-1 (A + I)` (random-walk); for layers with a separate weight for the node itself, no self loop:
`P = D^-1 A` (mean; 0 for a node without neighbors) or `P = A` (sum). All are separable,
`P[v, u] = left[v] (A + I)[v, u] right[u]`, so no weight is stored for an edge of an unweighted graph.
"""

from __future__ import annotations

import copy
from typing import Literal, final, get_args

import numpy as np
import torch
from torch import Tensor

from cvgnn.data.graph import Graph
from cvgnn.data.sparse_features import SparseFeatures
from cvgnn.errors import require_known
from cvgnn.ops.backend import use_compiled
from cvgnn.ops.line_sum import LINE, MOST_ROWS, sum_lines
from cvgnn.ops.row_sum import Rows, row_blocks, weighted_sum
from cvgnn.ops.sparse_propagation import product_rows
from cvgnn.ops.threads import WORTH_SHARING
from cvgnn.utils.progress import ProgressCallback, ProgressReporter, no_progress

Normalization = Literal["symmetric", "random-walk"]
NORMALIZATIONS: tuple[str, ...] = get_args(Normalization)
Aggregation = Literal["symmetric", "random-walk", "mean", "sum"]
AGGREGATIONS: tuple[str, ...] = get_args(Aggregation)

_ENTRIES_PER_CHUNK = 1 << 24  # of a block of rows, whose offsets must fit int32
_ELEMENTS_PER_PIECE = 1 << 25  # of a block of columns of H: 128 MiB in float32


@final
class Propagation:
    """`P` of one graph: exact products with it, and the separable weights that samplers need.

    Args:
        graph: gives `A`.
        normalization: `"symmetric"` or `"random-walk"`, with self loops; `"mean"` or `"sum"`, without.
        dtype: of the weights and products; the features' dtype if not given.

    >>> from cvgnn.data.edges import from_edges
    >>> g = from_edges([[0], [1]], x=torch.eye(3), y=[0, 0, 0], train_ids=[0])
    >>> Propagation(g).product(torch.eye(3)).round(decimals=4).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """

    def __init__(
        self, graph: Graph, *, normalization: Aggregation = "symmetric", dtype: torch.dtype | None = None
    ) -> None:
        require_known("normalization", normalization, AGGREGATIONS)
        self.normalization = normalization
        self.self_loop = normalization in NORMALIZATIONS
        self.dtype = dtype or graph.x.dtype
        self.indptr = graph.indptr
        self.indices = graph.indices
        self.edge_weight = None if graph.edge_weight is None else graph.edge_weight.to(self.dtype)
        self.draw_ids = None if graph.cutout is None else graph.cutout.ids  # what a node's draws are functions of
        left, right = scales(row_sums(graph), normalization)
        self.left = left.to(self.dtype)
        self.right = self.left if right is left else right.to(self.dtype)

    def to(self, device: torch.device) -> Propagation:
        """The same matrix on another device, for exact inference there; `self` if it is on that device."""
        if self.left.device == device:
            return self
        moved = copy.copy(self)
        for name in ("indptr", "indices", "edge_weight", "left", "right"):
            tensor = getattr(self, name)
            setattr(moved, name, None if tensor is None else tensor.to(device))
        return moved

    @property
    def num_nodes(self) -> int:
        """`N`."""
        return self.indptr.numel() - 1

    def product(self, H: Tensor, *, row_scale: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
        """`P diag(row_scale) H` for all nodes; `P H` if there is no scale.

        Args:
            H: `[N, d]`, in node order.
            row_scale: `[N]`.
            dtype: of the result, to which sums are rounded; that of `P` if not given.

        Returns:
            `[N, d]`.
        """
        out = torch.empty(H.shape, dtype=dtype or self.dtype, device=H.device)
        with ProgressReporter("product with P") as progress:
            self.product_into(out, H, row_scale=row_scale, progress=progress)
        return out

    def product_into(
        self, out: Tensor, H: Tensor, *, row_scale: Tensor | None = None, progress: ProgressCallback = no_progress
    ) -> None:
        """Compute `out = P diag(row_scale) H`, some columns at a time.

        `out` and `H` may be memory-mapped files: the rest of the memory is two matrices of `N` rows and few columns.
        The result does not depend on how many columns.
        """
        right = self._right(row_scale)[:, None]
        if self.multiplies_by_lines(H):
            self._product_by_lines(out, H, right, progress)
            return
        width = max(1, _ELEMENTS_PER_PIECE // self.num_nodes)
        blocks = list(row_blocks(self.indptr.cpu().numpy(), _ENTRIES_PER_CHUNK))
        for left_column in range(0, H.shape[1], width):
            columns = slice(left_column, left_column + width)
            scaled = H[:, columns] * right
            for first, last in blocks:
                piece = weighted_sum(self._adjacency_rows(first, last), scaled)
                if self.self_loop:
                    piece.add_(scaled[first:last])
                out[first:last, columns] = piece.mul_(self.left[first:last, None])
                done = left_column + last / self.num_nodes * min(width, H.shape[1] - left_column)
                progress("columns", done / H.shape[1])

    def multiplies_by_lines(self, H: Tensor) -> bool:
        """Whether `P H` is computed a cache line of columns at a time: its memory does not depend on their number.

        A large product of few nodes: its table of one cache line a node stays in the cache. Bits are the same.
        """
        small = self.num_nodes <= MOST_ROWS and self.indices.numel() * H.shape[1] >= WORTH_SHARING
        return small and self.edge_weight is None and self.dtype == torch.float32 and use_compiled(H)

    def _product_by_lines(self, out: Tensor, H: Tensor, right: Tensor, progress: ProgressCallback) -> None:
        # torch aligns them to cache lines. From NumPy's arrays the sums take 1.7 times as long.
        scaled, total = (torch.zeros(self.num_nodes, LINE, dtype=self.dtype) for _ in range(2))
        for left_column in range(0, H.shape[1], LINE):
            columns = H[:, left_column : left_column + LINE]
            d = columns.shape[1]  # of the last piece fewer: what the others hold then is not used
            torch.mul(columns, right, out=scaled[:, :d])
            sum_lines(self.indptr.numpy(), self.indices.numpy(), scaled, total.zero_())
            if self.self_loop:
                total.add_(scaled)
            out[:, left_column : left_column + d] = total.mul_(self.left[:, None])[:, :d]
            progress("columns", (left_column + d) / H.shape[1])

    def product_sparse(
        self, X: SparseFeatures, *, row_scale: Tensor | None = None, needed: Tensor | None = None
    ) -> SparseFeatures:
        """`P diag(row_scale) X` for sparse features, as sparse features.

        Args:
            X: `[N, F]`.
            row_scale: `[N]`.
            needed: bool `[N]`; rows that are not needed are not computed, and hold a NaN.
        """
        with ProgressReporter("before training") as progress:
            rows = self.sparse_product_rows(X, 0, self.num_nodes, row_scale=row_scale, needed=needed, progress=progress)
        indptr, indices, values = map(torch.from_numpy, rows)
        return SparseFeatures(indptr, indices, values, X.num_columns, validated=True)

    def sparse_product_rows(
        self,
        X: SparseFeatures,
        first: int,
        last: int,
        *,
        row_scale: Tensor | None = None,
        needed: Tensor | None = None,
        progress: ProgressCallback = no_progress,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`(P diag(row_scale) X)[first:last]` in CSR: offsets, columns and values.

        Sums are in float64. Only the rows of `X` that enter are read. They keep their order, and so do the entries of
        `P`: a row has the same bits in whatever block it is computed.
        """
        left, weight = self.left.numpy(), self.edge_weight
        return product_rows(
            (
                self.indptr.numpy(), self.indices.numpy(), left[:0] if weight is None else weight.numpy(), left,
                self._right(row_scale).numpy(), self.self_loop,
            ),
            (X.indptr.numpy(), X.indices.numpy(), X.values.numpy()),
            X.num_columns,
            (first, last),
            needed=None if needed is None else needed.numpy(),
            progress=progress,
        )  # fmt: skip

    def dense(self) -> Tensor:
        """`P` as a dense matrix `[N, N]`, for tests and tiny graphs."""
        return self.product(torch.eye(self.num_nodes, dtype=self.dtype, device=self.left.device))

    def _right(self, row_scale: Tensor | None) -> Tensor:
        return self.right if row_scale is None else self.right * row_scale.to(self.dtype)

    def _adjacency_rows(self, first: int, last: int) -> Rows:
        a, b = int(self.indptr[first]), int(self.indptr[last])
        offsets = (self.indptr[first : last + 1] - a).to(torch.int32)
        weight = None if self.edge_weight is None else self.edge_weight[a:b]
        return Rows(offsets, self.indices[a:b], weight)


def scales(row_sums: Tensor, normalization: Aggregation) -> tuple[Tensor, Tensor]:
    """`left` and `right` of the nodes whose rows of `A` have these sums.

    Args:
        row_sums: float64 `[n]`.
        normalization: see `Propagation`.

    >>> scales(torch.tensor([0.0, 3.0], dtype=torch.float64), "symmetric")[0].tolist()
    [1.0, 0.5]
    """
    degree = row_sums + float(normalization in NORMALIZATIONS)  # D~ or D
    if normalization == "symmetric":
        left = degree.rsqrt()
        return left, left
    left = torch.ones_like(degree) if normalization == "sum" else degree.reciprocal()
    return torch.where(degree > 0, left, 0.0), torch.ones_like(left)


def row_sums(graph: Graph) -> Tensor:
    """float64 `[N]`, the sums of the rows of `A`; of the whole graph, where this is a part of one."""
    if graph.cutout is not None:
        return graph.cutout.row_sums
    if graph.edge_weight is None:
        return graph.degree.to(torch.float64)
    sums = np.add.reduceat(np.append(graph.edge_weight.numpy().astype(np.float64), 0.0), graph.indptr[:-1].numpy())
    sums[graph.degree.numpy() == 0] = 0.0  # reduceat returns the next entry for an empty row
    return torch.from_numpy(sums)
