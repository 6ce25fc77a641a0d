"""The feature source: rows of `P X`, computed once, because layer 0 is exact (`Hbar^(0) = X`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, final, get_args

import torch
from torch import Tensor

from cvgnn.errors import require, unknown_name
from cvgnn.graph import Graph, Propagation, SparseFeatures
from cvgnn.ops.sparse_matmul import LayerInput, SparseInput
from cvgnn.ops.threads import MEMORY_COST, torch_threads

FeatureNorm = Literal["none", "row", "l2"]
FEATURE_NORMS: tuple[str, ...] = get_args(FeatureNorm)
_ORDER = {"row": 1, "l2": 2}

_ROWS_PER_PIECE = 1 << 14


class FeatureSource(ABC):
    """Rows of `P X` by node id: tensors, or, where `sparse` is true, `SparseInput`s."""

    num_features: int
    num_nodes: int
    dtype: torch.dtype
    sparse = False

    @abstractmethod
    def rows(self, ids: Tensor) -> LayerInput:
        """`(P X)[ids]`, `[len(ids), F]`; a tensor is the caller's own, who may overwrite it."""

    @abstractmethod
    def span(self, first: int, last: int) -> LayerInput:
        """`(P X)[first:last]`, `[last - first, F]`."""


def propagate_features(
    graph: Graph,
    propagation: Propagation,
    *,
    feature_norm: FeatureNorm = "none",
    storage: torch.dtype | None = None,
) -> FeatureSource:
    """`P X` of a graph, dense or sparse as its features are; taken from the graph if it holds it already.

    Args:
        graph: gives `X`.
        propagation: `P`.
        feature_norm: `"row"` divides each row of `X` by the sum of its absolute values first, `"l2"` by its Euclidean
            norm; a row of zeros stays.
        storage: what a dense `P X` is kept in: `propagation`'s dtype if not given, or bfloat16; see `DenseSource`.
    """
    allowed = (propagation.dtype, torch.bfloat16)
    require(storage is None or storage in allowed, f"storage must be one of {allowed}, not {storage}")
    if feature_norm not in FEATURE_NORMS:
        raise unknown_name("feature_norm", feature_norm, FEATURE_NORMS)
    x, row_scale = graph.x, None
    same = (graph.PX_normalization, None if graph.PX is None else graph.PX.dtype)
    if feature_norm != "none":
        row_scale = _one_over_row_norms(x, _ORDER[feature_norm])
    elif graph.PX is not None and same == (propagation.normalization, propagation.dtype):
        if isinstance(graph.PX, SparseFeatures):
            return SparseSource(graph.PX)
        return DenseSource(graph.PX.to(storage or propagation.dtype), propagation.dtype)
    if isinstance(x, SparseFeatures):
        return SparseSource(propagation.product_sparse(x.to(propagation.dtype), row_scale=row_scale))
    PX = propagation.product(x.to(propagation.dtype), row_scale=row_scale, dtype=storage)
    return DenseSource(PX, propagation.dtype)


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
        PX: `P X`, of the model's dtype or in bfloat16, which has 8 significant bits. `rows` are of this dtype, and a
            product with bfloat16 rows rounds the other factor and the result too (`cvgnn.ops.bf16_matmul`).
        dtype: the model's, that of `PX` if not given. A `span`, which exact inference reads, has it.
    """

    def __init__(self, PX: Tensor, dtype: torch.dtype | None = None) -> None:
        self.PX = PX
        self.num_nodes, self.num_features = PX.shape
        self.dtype = dtype or PX.dtype

    def rows(self, ids: Tensor) -> Tensor:
        """See `FeatureSource.rows`."""
        with torch_threads(MEMORY_COST * ids.numel() * self.num_features):
            return self.PX.index_select(0, ids)

    def span(self, first: int, last: int) -> Tensor:
        """See `FeatureSource.span`."""
        return self.PX[first:last].to(self.dtype)


@final
class SparseSource(FeatureSource):
    """A sparse `P X`; its product with `W` is a weighted sum of rows of `W`, so nothing dense of width `F` exists."""

    sparse = True

    def __init__(self, PX: SparseFeatures) -> None:
        self.PX = PX
        self.num_nodes, self.num_features = PX.shape
        self.dtype = PX.dtype
        self._arrays = (PX.indptr.numpy(), PX.indices.numpy(), PX.values.numpy())

    def rows(self, ids: Tensor) -> SparseInput:
        """See `FeatureSource.rows`."""
        return SparseInput(self._arrays, ids, num_columns=self.num_features)

    def span(self, first: int, last: int) -> SparseInput:
        """See `FeatureSource.span`."""
        return SparseInput(self._arrays, range(first, last), num_columns=self.num_features)
