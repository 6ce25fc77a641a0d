"""Exact inference for all nodes, layer by layer: no sampling, no state, memory of two hidden matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from cvgnn.errors import require
from cvgnn.graph import Propagation
from cvgnn.model.gcn import GCN, GCNLayer
from cvgnn.model.hidden import activate_in_place
from cvgnn.ops.matmul import product
from cvgnn.sampling import FeatureSource

_ROWS_PER_CHUNK = 1 << 14
ELEMENTS_PER_CHUNK = 1 << 23
"""Of the features that a chunk reads: a chunk that is converted takes as much memory."""


def exact_hidden(model: GCN, features: FeatureSource, propagation: Propagation) -> list[Tensor]:
    """`H^(1)..H^(K-1)` for all nodes, without dropout, each `[N, d_k]`; empty for `K = 1`."""
    return list(each_hidden(model, features, propagation))


def each_hidden(model: GCN, features: FeatureSource, propagation: Propagation) -> Iterator[Tensor]:
    """`exact_hidden`, one by one: no more than three of the matrices exist at a time."""
    H: Tensor | None = None
    for k in range(model.num_layers - 1):
        with torch.no_grad():
            H = _next_hidden(model.layer(k), features, propagation, H)
        yield H


@torch.no_grad()
def exact_embedding(model: GCN, features: FeatureSource, propagation: Propagation, *, layer: int) -> Tensor:
    """`H^(layer)` for all nodes; `layer = K` gives the logits.

    Args:
        model: the network.
        features: rows of `P X`.
        propagation: `P`.
        layer: `1 <= layer <= K`.

    Returns:
        `[N, d_layer]`, in node order.
    """
    K = model.num_layers
    require(1 <= layer <= K, f"layer must lie in 1..{K} (1 is the first hidden layer, {K} the logits), not {layer}")
    H: Tensor | None = None
    for k in range(min(layer, K - 1)):
        H = _next_hidden(model.layer(k), features, propagation, H)
    if layer < K:
        assert H is not None
        return H
    last = model.layer(K - 1)
    if H is None:  # K = 1
        return _by_chunks(features.num_nodes, last, lambda a, b: product(features.span(a, b), last.weight, last.bias))
    Z = _aggregate_and_multiply(last, H, propagation)
    return Z if last.bias is None else Z.add_(last.bias)


def exact_logits(model: GCN, features: FeatureSource, propagation: Propagation) -> Tensor:
    """`Z^(K)` for all nodes, `[N, C]`."""
    return exact_embedding(model, features, propagation, layer=model.num_layers)


def _next_hidden(layer: GCNLayer, features: FeatureSource, propagation: Propagation, H: Tensor | None) -> Tensor:
    """`sigma((P H) W + b)`, or `sigma((P X) W + b)` for the first layer."""
    if H is None:
        Z = _by_chunks(features.num_nodes, layer, lambda a, b: product(features.span(a, b), layer.weight))
    else:
        Z = _aggregate_and_multiply(layer, H, propagation)
    return activate_in_place(Z, layer.sigma)


def _aggregate_and_multiply(layer: GCNLayer, H: Tensor, propagation: Propagation) -> Tensor:
    """`(P H) W`; `P (H W)` where that propagates the narrower matrix."""
    d_in, d_out = layer.weight.shape
    return propagation.product(H @ layer.weight) if d_out <= d_in else propagation.product(H) @ layer.weight


def _by_chunks(num_rows: int, layer: GCNLayer, compute: Callable[[int, int], Tensor]) -> Tensor:
    """Rows `0..num_rows-1` of `layer`'s output, computed in bounded pieces into one matrix."""
    out = torch.empty(num_rows, layer.weight.shape[1], dtype=layer.weight.dtype)
    step = max(1, min(_ROWS_PER_CHUNK, ELEMENTS_PER_CHUNK // layer.weight.shape[0]))
    for first in range(0, num_rows, step):
        last = min(num_rows, first + step)
        out[first:last] = compute(first, last)
    return out
