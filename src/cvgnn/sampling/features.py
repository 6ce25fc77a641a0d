"""The feature source: rows of `P X`, computed once, because layer 0 is exact (`Hbar^(0) = X`)."""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, TypeVar, final, get_args

import numpy as np
import torch
from torch import Tensor

from cvgnn.data import Graph, Propagation, SparseFeatures
from cvgnn.errors import CvgnnError, require, require_known
from cvgnn.ops.history_write import row_reader
from cvgnn.ops.row_input import DenseRows, RowInput, SparseInput
from cvgnn.ops.row_sum import Array, Rows, weighted_sum
from cvgnn.ops.sparse_propagation import product_rows
from cvgnn.ops.threads import WORTH_SHARING

FeatureNorm = Literal["none", "row", "l2"]
FEATURE_NORMS: tuple[str, ...] = get_args(FeatureNorm)
_ORDER = {"row": 1, "l2": 2}

_DENSE_FROM = 0.4
"""Share of entries from which `P X` of sparse features is kept dense, in a graph where it matters.

A step's two products with 20 % took 0.6 to 0.8 times as long as with a dense matrix, with 30 % 1.0 to 1.1 times, with
40 % 1.4 times (500 columns, 64 and 128 hidden, one thread); in memory both are equal at 50 %.
"""

_ROWS_PER_PIECE = 1 << 14  # the rows of one float64 copy, instead of all of X

T = TypeVar("T", bound="FeatureSource")


class FeatureSource(ABC):
    """Rows of `P X` by node id: tensors, or objects of `SparseInput` where `sparse` is true.

    `own` is the source of the rows of `X` itself, for networks whose first layer reads them; None where none does.
    """

    num_features: int
    num_nodes: int
    dtype: torch.dtype
    sparse = False
    own: FeatureSource | None = None

    @property
    def incomplete(self) -> FeatureSource:
        """The rows that are there now: one that no training batch and no evaluation reads may be NaN."""
        return self

    @abstractmethod
    def rows(self, ids: Tensor) -> Tensor | SparseInput:
        """`(P X)[ids]`, `[len(ids), F]`; a tensor is the caller's own, who may overwrite it."""

    def reader(self, ids: Tensor) -> Callable[[int, int], Tensor]:
        """What reads rows `first..last-1` of a dense `rows(ids)`, given these two; several threads call it."""
        return lambda first, last: self.rows(ids[first:last])  # type: ignore[return-value]

    @abstractmethod
    def span(self, first: int, last: int) -> Tensor | SparseInput:
        """`(P X)[first:last]`, `[last - first, F]`."""

    def sums(self, matrix: Rows) -> RowInput:
        """`S (P X)`, for a sparse matrix `S` `[n, N]` with weights."""
        raise CvgnnError(f"features of type {type(self).__name__} have no sums of rows, which sampled_start needs")

    def to(self, device: torch.device) -> FeatureSource:
        """The same rows on a device, and `own`'s."""
        raise CvgnnError(f"features of type {type(self).__name__} stay on the CPU; use device='cpu'")


def propagate_features(
    graph: Graph,
    propagation: Propagation,
    *,
    feature_norm: FeatureNorm = "none",
    storage: torch.dtype | None = None,
    aggregated: bool = True,
    own: bool = False,
    needed: Tensor | None = None,
) -> FeatureSource:
    """`P X` of a graph, dense or sparse as its features are; taken from the graph if it holds it already.

    Args:
        graph: gives `X`.
        propagation: `P`.
        feature_norm: `"row"` divides each row of `X` by the sum of its absolute values first, `"l2"` by its Euclidean
            norm; a row of zeros stays.
        storage: what a dense `P X` is kept in: `propagation`'s dtype if not given, or bfloat16; see `DenseSource`.
        aggregated: whether `P X` is needed; a network with a linear input layer reads `X` alone.
        own: whether the result's `own` shall give rows of `X`.
        needed: bool `[N]`; rows of sparse features that are not needed are left out until somebody asks for one, see
            `PartialSource`. None for all.
    """
    allowed = (propagation.dtype, torch.bfloat16)
    require(storage is None or storage in allowed, f"storage must be one of {allowed}, not {storage}")
    require_known("feature_norm", feature_norm, FEATURE_NORMS)
    x, dtype = graph.x, propagation.dtype
    # For P X the product takes diag(row_scale) as an argument: no scaled copy of X is made.
    row_scale = None if feature_norm == "none" else _one_over_row_norms(x, _ORDER[feature_norm])
    X = _source(_scaled(x.to(dtype), row_scale), dtype, storage) if own or not aggregated else None
    same = (graph.PX_normalization, None if graph.PX is None else graph.PX.dtype)
    if not aggregated:
        # A linear input layer reads X alone, so the pass over all edges that P X takes is saved.
        assert X is not None
        source = X
    # A store holds P X of the features as they are, for one normalization and dtype; any other is computed.
    elif row_scale is None and graph.PX is not None and same == (propagation.normalization, dtype):
        source = _source(graph.PX, dtype, storage)
    elif isinstance(x, SparseFeatures):

        def product(needed: Tensor | None = None) -> FeatureSource:
            PX = propagation.product_sparse(x.to(dtype), row_scale=row_scale, needed=needed)
            # By the rows that training reads, which are the same whatever else is left out.
            entries = float(PX.indptr.diff()[graph.train_ids].double().mean()) if graph.train_ids.numel() else 0.0
            dense = entries >= _DENSE_FROM * PX.num_columns and graph.num_nodes * PX.num_columns >= WORTH_SHARING
            return _source(PX.to_dense() if dense else PX, dtype, storage)

        source = product() if needed is None else PartialSource(product(needed), needed, product)
    else:
        source = DenseSource(propagation.product(x.to(dtype), row_scale=row_scale, dtype=storage), dtype)
    source.own = source.incomplete.own = X
    return source


def _source(x: Tensor | SparseFeatures, dtype: torch.dtype, storage: torch.dtype | None) -> FeatureSource:
    return SparseSource(x) if isinstance(x, SparseFeatures) else DenseSource(x.to(storage or dtype), dtype)


def normalized(x: Tensor | SparseFeatures, feature_norm: FeatureNorm) -> Tensor | SparseFeatures:
    """`X` divided as `feature_norm` says, see `propagate_features`."""
    return x if feature_norm == "none" else _scaled(x, _one_over_row_norms(x, _ORDER[feature_norm]))


def _scaled(x: Tensor | SparseFeatures, row_scale: Tensor | None) -> Tensor | SparseFeatures:
    """`diag(row_scale) X`."""
    if row_scale is None:
        return x
    if isinstance(x, SparseFeatures):
        return dataclasses.replace(x, values=x.values * row_scale.to(x.dtype).repeat_interleave(x.indptr.diff()))
    return x * row_scale.to(x.dtype)[:, None]


def _one_over_row_norms(x: Tensor | SparseFeatures, order: int) -> Tensor:
    """float64 `[N]`: one over the 1-norm or the 2-norm of each row; 1 for a row of zeros."""
    if isinstance(x, SparseFeatures):
        norms = x.row_norms(order)
    else:
        pieces = torch.split(x, _ROWS_PER_PIECE)
        norms = torch.cat([torch.linalg.vector_norm(rows, order, dim=1, dtype=torch.float64) for rows in pieces])
    return torch.where(norms > 0, norms, 1.0).reciprocal()


@final
class DenseSource(FeatureSource):
    """A dense `P X`, `[N, F]`.

    Args:
        PX: `P X`, of the model's dtype or in bfloat16, which has 8 significant bits. `rows` and `span` are of this
            dtype, and a product with bfloat16 rows rounds the other factor and the result too (`ops.bf16_matmul`).
        dtype: the model's, that of `PX` if not given. Exact inference converts what it reads to it.
    """

    def __init__(self, PX: Tensor, dtype: torch.dtype | None = None) -> None:
        self.PX = PX
        self.num_nodes, self.num_features = PX.shape
        self.dtype = dtype or PX.dtype

    def rows(self, ids: Tensor) -> Tensor:
        """See `FeatureSource.rows`."""
        return self.reader(ids)(0, ids.numel())

    def reader(self, ids: Tensor) -> Callable[[int, int], Tensor]:
        """See `FeatureSource.reader`."""
        return row_reader(self.PX, ids)

    def span(self, first: int, last: int) -> Tensor:
        """See `FeatureSource.span`."""
        # A view: exact inference reads the rows in order and must not copy P X.
        return self.PX[first:last]

    def sums(self, matrix: Rows) -> DenseRows:
        """See `FeatureSource.sums`; each thread sums the rows of its own range."""
        shape = matrix.num_rows, self.num_features
        return DenseRows(lambda first, last: weighted_sum(matrix.between(first, last), self.PX), shape)

    def to(self, device: torch.device) -> DenseSource:
        """See `FeatureSource.to`."""
        return _with_own(DenseSource(self.PX.to(device), self.dtype), self, device)


@final
class SparseSource(FeatureSource):
    """A sparse `P X`; its product with `W` is a weighted sum of rows of `W`, so nothing dense of width `F` exists."""

    sparse = True

    def __init__(self, PX: SparseFeatures) -> None:
        self.PX = PX
        self.num_nodes, self.num_features = PX.shape
        self.dtype = PX.dtype
        self._matrix = Rows(PX.indptr, PX.indices, PX.values)

    def rows(self, ids: Tensor) -> SparseInput:
        """See `FeatureSource.rows`."""
        return SparseInput(self._matrix, ids, num_columns=self.num_features)

    def span(self, first: int, last: int) -> SparseInput:
        """See `FeatureSource.span`."""
        return SparseInput(self._matrix, range(first, last), num_columns=self.num_features)

    def sums(self, matrix: Rows) -> SparseInput:
        """See `FeatureSource.sums`."""
        (indptr, indices, weight), n = matrix.arrays, matrix.num_rows
        # The kernel multiplies the weights by factors of rows and columns, which are 1 here.
        S = (indptr.astype(np.int64), indices, weight, np.ones(n, weight.dtype), self._ones, False)
        made = product_rows(S, self._matrix.arrays, self.num_features, (0, n))
        return SparseInput(Rows.of(*made), range(n), num_columns=self.num_features)

    @functools.cached_property
    def _ones(self) -> Array:
        return np.ones(self.num_nodes, self.PX.values.numpy().dtype)

    def to(self, device: torch.device) -> SparseSource:
        """See `FeatureSource.to`."""
        # A step reads the CSR arrays only, so PX itself is not copied.
        moved = SparseSource(self.PX)
        moved._matrix = self._matrix.to(device)
        return _with_own(moved, self, device)


@final
class PartialSource(FeatureSource):
    """Rows of `P X` of which only some are computed; all of them, as soon as somebody asks for another.

    Args:
        part: holds the rows that are needed.
        needed: bool `[N]`.
        complete: computes a source of all rows.
    """

    def __init__(self, part: FeatureSource, needed: Tensor, complete: Callable[[], FeatureSource]) -> None:
        self.num_nodes, self.num_features, self.dtype = part.num_nodes, part.num_features, part.dtype
        self.sparse = part.sparse
        self._source, self._needed, self._complete = part, needed, complete

    @property
    def incomplete(self) -> FeatureSource:
        """See `FeatureSource.incomplete`."""
        return self._source

    def rows(self, ids: Tensor) -> Tensor | SparseInput:
        """See `FeatureSource.rows`."""
        return self._with(ids).rows(ids)

    def reader(self, ids: Tensor) -> Callable[[int, int], Tensor]:
        """See `FeatureSource.reader`."""
        return self._with(ids).reader(ids)

    def span(self, first: int, last: int) -> Tensor | SparseInput:
        """See `FeatureSource.span`."""
        return self._with(slice(first, last)).span(first, last)

    def _with(self, rows: Tensor | slice) -> FeatureSource:
        if not self._needed[rows].all():
            self._source, self._needed = self._complete(), torch.ones_like(self._needed)
        return self._source


@final
class LateSource(FeatureSource):
    """A source that is computed when its first row is asked for.

    Args:
        own: rows of `X`, which are there from the start.
        compute: makes the source.
    """

    def __init__(self, own: FeatureSource, compute: Callable[[], FeatureSource]) -> None:
        self.num_nodes, self.num_features, self.dtype = own.num_nodes, own.num_features, own.dtype
        self.own, self._compute = own, compute

    @functools.cached_property
    def _source(self) -> FeatureSource:
        source = self._compute()
        self.own = source.own  # what training reads from now on may be rounded to bfloat16
        return source

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """See `FeatureSource`."""
        return self._source.sparse

    @property
    def incomplete(self) -> FeatureSource:
        """See `FeatureSource.incomplete`."""
        return self._source.incomplete

    def rows(self, ids: Tensor) -> Tensor | SparseInput:
        """See `FeatureSource.rows`."""
        return self._source.rows(ids)

    def reader(self, ids: Tensor) -> Callable[[int, int], Tensor]:
        """See `FeatureSource.reader`."""
        return self._source.reader(ids)

    def span(self, first: int, last: int) -> Tensor | SparseInput:
        """See `FeatureSource.span`."""
        return self._source.span(first, last)


@final
class RowSpan(FeatureSource):
    """Rows `first..last-1` of another source, counted from 0."""

    def __init__(self, source: FeatureSource, first: int, last: int) -> None:
        self._source, self._first = source, first
        self.num_nodes, self.num_features, self.dtype = last - first, source.num_features, source.dtype
        self.sparse = source.sparse
        own = source.own
        self.own = None if own is None else self if own is source else RowSpan(own, first, last)

    def rows(self, ids: Tensor) -> Tensor | SparseInput:
        """See `FeatureSource.rows`."""
        return self._source.rows(ids + self._first)

    def span(self, first: int, last: int) -> Tensor | SparseInput:
        """See `FeatureSource.span`."""
        return self._source.span(self._first + first, self._first + last)


def _with_own(moved: T, source: FeatureSource, device: torch.device) -> T:
    """`moved` with the `own` of `source`, moved too; a source may be its own."""
    moved.own = moved if source.own is source else None if source.own is None else source.own.to(device)
    return moved
