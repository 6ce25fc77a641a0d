"""Exact inference for all nodes, layer by layer: the network's own forward pass with full neighborhoods.

No sampling, no dropout, no state; memory of two or three hidden matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor

from cvgnn.errors import CvgnnError, require
from cvgnn.graph import Propagation
from cvgnn.nn.estimators import SampledSum
from cvgnn.nn.network import Network
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.fused_layer import Affine, HiddenLayer, Sigma, activate_in_place, affine
from cvgnn.ops.row_input import DenseRows, RowInput
from cvgnn.sampling import Batch, FeatureSource


@final
class PropagatedRows(RowInput):
    """`P H` for all nodes, not computed yet: `(P H) W` is `P (H W)` where that propagates the narrower matrix.

    Args:
        propagation: `P`.
        H: `[N, d]`.
    """

    def __init__(self, propagation: Propagation, H: Tensor) -> None:
        self.num_rows, self.num_columns = H.shape
        self._P = propagation
        self._H = H

    def product(self, W: Tensor) -> Tensor:
        """See `RowInput.product`."""
        if W.shape[1] <= W.shape[0]:
            return self._P.product(self._H @ W)
        return self._P.product(self._H) @ W

    def dropped(self, drop: Dropout | None) -> PropagatedRows:
        """Exact inference drops nothing."""
        assert drop is None
        return self

    def read(self, first: int, last: int) -> Tensor:
        """Not by ranges: use `product`."""
        raise NotImplementedError

    def weight_gradient(self, dZ: Tensor) -> Tensor:
        """Not differentiable: a gradient over all nodes is that of a batch of all nodes with all neighbors."""
        raise CvgnnError("exact inference has no gradient; train with estimator 'exact' for that")


@final
class FullGraph(SampledSum):
    """The exact aggregation for all nodes at once; for `Network.trace` without a batch.

    Args:
        features: rows of `P X` and of `X`.
        propagation: `P`.
    """

    def __init__(self, features: FeatureSource, propagation: Propagation) -> None:
        super().__init__(features)
        self._P = propagation

    def rows_of(self, source: FeatureSource, batch: Batch | None) -> RowInput:
        """All rows of a source, read in chunks."""
        if source.sparse:
            return source.span(0, source.num_nodes)  # type: ignore[return-value]
        return DenseRows(source.span, (source.num_nodes, source.num_features))  # type: ignore[arg-type]

    def propagate(
        self, k: int, batch: Batch | None, Z: Affine | Tensor, sigma: Sigma, *, drop: Dropout | None, own: bool
    ) -> HiddenLayer:
        """`H^(k)` of all nodes, and `P H^(k)`."""
        H = activate_in_place(Z.clone() if isinstance(Z, Tensor) else affine(Z), sigma)
        return HiddenLayer(H, H, PropagatedRows(self._P, H))


def exact_hidden(model: Network, features: FeatureSource, propagation: Propagation) -> list[Tensor]:
    """`H^(1)..H^(K-1)` for all nodes, without dropout, each `[N, d_k]`; empty for `K = 1`."""
    return list(each_hidden(model, features, propagation))


def each_hidden(model: Network, features: FeatureSource, propagation: Propagation) -> Iterator[Tensor]:
    """`exact_hidden`, one by one: no more than three of the matrices exist at a time."""
    trace = exact_trace(model, features, propagation)
    for _ in range(model.num_layers - 1):
        yield next(trace)[1]


def exact_trace(
    model: Network, features: FeatureSource, propagation: Propagation, *, linear: bool = False, refresh: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an exact forward pass with their names, see `Network.trace`; without gradient."""
    trace = model.trace(None, FullGraph(features, propagation), linear=linear, refresh=refresh)
    while True:
        with torch.no_grad():  # not around a yield: the mode must not leak to the caller
            found = next(trace, None)
        if found is None:
            return
        yield found
        del found  # or the caller's matrix would outlive the next layer


def exact_embedding(model: Network, features: FeatureSource, propagation: Propagation, *, layer: int) -> Tensor:
    """`H^(layer)` for all nodes; `layer = K` gives the last layer's output: the logits, or what a head makes them of.

    Args:
        model: the network.
        features: rows of `P X`.
        propagation: `P`.
        layer: `1 <= layer <= K`.

    Returns:
        `[N, d_layer]`, in node order.
    """
    K = model.num_layers
    require(1 <= layer <= K, f"layer must lie in 1..{K} (1 is the first hidden layer, {K} the last), not {layer}")
    for done, (_, value) in enumerate(exact_trace(model, features, propagation), start=1):  # noqa: B007
        if done == layer:
            break
    return value


def exact_logits(model: Network, features: FeatureSource, propagation: Propagation) -> Tensor:
    """The logits of all nodes, `[N, C]`."""
    for _, value in exact_trace(model, features, propagation):  # noqa: B007
        pass
    return value


def refresh_statistics(model: Network, features: FeatureSource, propagation: Propagation) -> None:
    """Give every `BatchNorm` the statistics of an exact pass at the present weights, layer by layer."""
    for _ in exact_trace(model, features, propagation, refresh=True):
        pass
