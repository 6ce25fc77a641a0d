"""Exact inference for all nodes, layer by layer: the network's own forward pass with full neighborhoods.

No sampling, no dropout, no state; memory of two or three hidden matrices.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor

from cvgnn.data import Propagation
from cvgnn.errors import CvgnnError, require
from cvgnn.nn.estimators import SampledSum
from cvgnn.nn.network import Network
from cvgnn.ops.affine import Affine
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.fused_layer import HiddenLayer, Sigma, activate_in_place, affine
from cvgnn.ops.row_input import ELEMENTS_PER_CHUNK, DenseRows, LazyRows, RowInput
from cvgnn.sampling import Batch, FeatureSource, NeighborSampler
from cvgnn.sampling.features import RowSpan
from cvgnn.utils.progress import ProgressCallback, no_progress

ROWS_PER_BLOCK = 1 << 17
"""Rows of `P X` that are read at a time where results are computed block by block."""

_COMPARED = 8  # nodes for which `require_exact` runs both protocols


@final
class PropagatedRows(LazyRows):
    """`P H` for all nodes, not computed yet: `(P H) W` is `P (H W)` where that propagates the narrower matrix.

    Args:
        propagation: `P`.
        H: `[N, d]`.
    """

    def __init__(self, propagation: Propagation, H: Tensor) -> None:
        self.shape = H.shape[0], H.shape[1]
        self._P = propagation
        self._H = H

    def read(self, first: int, last: int) -> Tensor:
        """See `LazyRows.read`; a product of all rows, too, because exact inference reads them all at once."""
        return self._P.product(self._H)[first:last]

    def matmul(self, other: Tensor, /) -> Tensor:
        """`(P H) W`, without gradient: that over all nodes is the gradient of a batch of all nodes."""
        if torch.is_grad_enabled() and other.requires_grad:
            raise CvgnnError("exact inference has no gradient; train with estimator 'exact' for that")
        # (P H) W = P (H W): a pass over the edges costs as many columns as the matrix that it propagates has.
        if other.shape[1] <= other.shape[0]:
            return self._P.product(self._H @ other)
        return self._P.product(self._H) @ other


@final
class FullGraph(SampledSum):
    """The exact aggregation for all nodes at once; for `Network.trace` without a batch.

    Args:
        features: rows of `P X` and of `X`.
        propagation: `P`.
        hidden: gets `H^(k)` by `k`, if given.
    """

    def __init__(
        self, features: FeatureSource, propagation: Propagation, *, hidden: dict[int, Tensor] | None = None
    ) -> None:
        super().__init__(features)
        self._P = propagation
        self._hidden = hidden

    def _record(self, k: int, H: Tensor) -> None:
        if self._hidden is not None:
            self._hidden[k] = H

    def rows_of(self, source: FeatureSource, batch: Batch | None) -> RowInput:
        """All rows of a source, read in chunks."""
        if source.sparse:
            return source.span(0, source.num_nodes)  # type: ignore[return-value]
        # Rows stored in bfloat16 are widened: inference multiplies in the model's dtype, a chunk at a time.
        return DenseRows(
            lambda first, last: source.span(first, last).to(source.dtype),  # type: ignore[union-attr]
            (source.num_nodes, source.num_features),
        )

    def aggregate(self, k: int, batch: Batch | None, H: Tensor, *, drop: Dropout | None = None) -> Tensor:
        """`P H^(k)` of all nodes, for a forward pass of the user's own."""
        self._record(k, H)
        return self._P.product(H)

    def propagate(
        self, k: int, batch: Batch | None, Z: Affine, sigma: Sigma, *, drop: Dropout | None, own: bool,
        lazy: bool = False,
    ) -> HiddenLayer:  # fmt: skip
        """`H^(k)` of all nodes, and `P H^(k)`."""
        # In place: of N rows a second matrix may not fit. A tensor alone is the layer's own, hence the clone.
        (_, W), *others = Z.terms
        alone = W is None and not others and Z.bias is None
        H = activate_in_place(affine(Z).clone() if alone else affine(Z), sigma)
        self._record(k, H)
        return HiddenLayer(H, H, PropagatedRows(self._P, H))


def exact_hidden(model: Network, features: FeatureSource, propagation: Propagation) -> list[Tensor]:
    """`H^(1)..H^(K-1)` for all nodes, without dropout, each `[N, d_k]`; empty for `K = 1`."""
    return list(each_hidden(model, features, propagation))


def each_hidden(model: Network, features: FeatureSource, propagation: Propagation) -> Iterator[Tensor]:
    """`exact_hidden`, one by one: no more than three of the matrices exist at a time."""
    if has_own_forward(model):
        yield from _recorded_hidden(model, features, propagation)
        return
    for _, H in itertools.islice(exact_trace(model, features, propagation), model.num_layers - 1):
        yield H
        del H  # or the caller's matrix would outlive the next layer


def first_hidden(
    model: Network, features: FeatureSource, propagation: Propagation, *, progress: ProgressCallback = no_progress
) -> Iterator[tuple[int, Tensor]]:
    """`H^(1)` in blocks of rows, each with its first row; no matrix of all nodes exists."""
    for first in range(0, features.num_nodes, ROWS_PER_BLOCK):
        last = min(features.num_nodes, first + ROWS_PER_BLOCK)
        yield first, next(exact_trace(model, RowSpan(features, first, last), propagation))[1]
        progress("histories", last / features.num_nodes)


@torch.no_grad()
def exact_outputs(model: Network, features: FeatureSource, propagation: Propagation, ids: Tensor) -> Tensor:
    """The outputs of `ids`, from their own neighborhoods, block by block: memory does not grow with the graph.

    Args:
        model: the network.
        features: rows of `P X`.
        propagation: `P`.
        ids: int64, distinct.

    Returns:
        `[len(ids), C]`.
    """
    sampler = NeighborSampler(propagation, num_neighbors=-1, num_layers=model.num_layers, control=False)
    estimator, outputs = SampledSum(features), []
    with evaluation_mode(model):
        rows = min(ROWS_PER_BLOCK, ELEMENTS_PER_CHUNK // (2 * max(1, features.num_features)))
        for part in torch.split(ids, max(1, rows // max(1, sampler.entries(1)))):
            blocks = sampler.sample_unchecked(part, step=1)
            batch = Batch(1, part, None, blocks, blocks[0].sources if blocks else part)
            outputs.append(model(batch, estimator))
    return torch.cat(outputs)


def exact_trace(
    model: Network, features: FeatureSource, propagation: Propagation, *, linear: bool = False, refresh: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an exact forward pass with their names, see `Network.trace`; without gradient."""
    trace = model.trace(None, FullGraph(features, propagation), linear=linear, refresh=refresh)
    while True:
        # Not around a yield: the modes must not leak to the caller. A layer of the user's own may have a dropout.
        with torch.no_grad(), evaluation_mode(model):
            item = next(trace, None)
        if item is None:
            return
        yield item
        del item  # or the caller's matrix would outlive the next layer


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
    require(
        not has_own_forward(model),
        f"{type(model).__name__} has its own forward or a hook, so its hidden layers are not known; it can predict",
    )
    K = model.num_layers
    require(1 <= layer <= K, f"layer must lie in 1..{K} (1 is the first hidden layer, {K} the last), not {layer}")
    return next(itertools.islice(exact_trace(model, features, propagation), layer - 1, None))[1]


def exact_logits(model: Network, features: FeatureSource, propagation: Propagation) -> Tensor:
    """The logits of all nodes, `[N, C]`."""
    if has_own_forward(model):
        with torch.no_grad(), evaluation_mode(model):
            return model(None, FullGraph(features, propagation))  # type: ignore[no-any-return]
    return collections.deque(exact_trace(model, features, propagation), maxlen=1)[0][1]


def refresh_statistics(model: Network, features: FeatureSource, propagation: Propagation) -> None:
    """Give every `BatchNorm` the statistics of an exact pass at the present weights, layer by layer."""
    collections.deque(exact_trace(model, features, propagation, refresh=True), maxlen=0)


@contextmanager
def evaluation_mode(model: Network) -> Iterator[None]:
    """Put the model and its layers into evaluation mode inside the block."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def has_own_forward(model: Network) -> bool:
    """Whether calling the model is more than `Network.trace`: a forward of its own, or hooks."""
    return (
        type(model).forward is not Network.forward
        or "forward" in vars(model)
        or bool(model._forward_hooks or model._forward_pre_hooks)
    )


def require_exact(model: Network, features: FeatureSource, propagation: Propagation, ids: Tensor) -> None:
    """Refuse a network that exact inference computes differently from the forward pass that trains.

    Both are run once, without dropout and with all neighbors, and compared for a few nodes. The networks of this
    package are equal by construction, and cost nothing here.

    Args:
        model: the network; it stays as it is.
        features: rows of `P X`.
        propagation: `P`, on the CPU.
        ids: int64, the nodes to choose from.
    """
    kinds = {type(model), *(type(model.layer(k)) for k in range(model.num_layers))}
    if all(kind.__module__.startswith("cvgnn.nn.") for kind in kinds) and not has_own_forward(model):
        return
    name = type(model).__name__
    # Few neighbors make a small receptive field; a node without any would compare too little.
    degree = propagation.indptr.diff()[ids]
    ids = ids[torch.where(degree > 0, degree, degree.max() + 1).argsort(stable=True)[:_COMPARED]]
    sampler = NeighborSampler(propagation, num_neighbors=-1, num_layers=model.num_layers, control=True)
    blocks = sampler.sample(ids, step=1)
    batch = Batch(1, ids, None, blocks, blocks[0].sources if blocks else ids)
    device = next(model.parameters(), torch.empty(0)).device
    with torch.no_grad(), evaluation_mode(model):
        trained = model(batch.to(device), SampledSum(features))
    advice = "compute it from its arguments as Network.forward does, see docs/custom.md"
    try:
        exact = exact_logits(model, features, propagation.to(device))
    except Exception as error:  # the user's own code
        raise CvgnnError(
            f"{name} cannot be evaluated exactly: its forward pass fails for all nodes at once, where batch is None "
            f"({type(error).__name__}: {error}); {advice}"
        ) from error
    shapes = [list(value.shape) if isinstance(value, Tensor) else value for value in (trained, exact)]
    expected = [[len(ids), model.out_channels], [propagation.num_nodes, model.out_channels]]
    require(shapes == expected, f"{name} must return logits of shape {expected[0]} for this batch, not {shapes[0]}")
    rows = exact[ids.to(device)]
    # bfloat16 features are multiplied in bfloat16 in training, and in the model's dtype here.
    tolerance = 1e-3 if features.sparse or features.span(0, 1).dtype == exact.dtype else 5e-2  # type: ignore[union-attr]
    difference = float((rows - trained).abs().max() / rows.abs().max().clamp(min=1e-12))
    if not difference <= tolerance:  # a NaN is different
        raise CvgnnError(
            f"{name} cannot be evaluated exactly: with all neighbors and without dropout, its logits of node "
            f"{int(ids[0])} and others in a batch differ by {difference:.1%} from those of the same nodes among all "
            f"nodes. It reads more of a batch than sums over neighbors (such as the mean over the batch's rows), or "
            f"draws at random; {advice}"
        )


def _recorded_hidden(model: Network, features: FeatureSource, propagation: Propagation) -> Iterator[Tensor]:
    """`H^(1)..H^(K-1)` that a forward pass of the user's own gives to the estimator."""
    hidden: dict[int, Tensor] = {}
    with torch.no_grad(), evaluation_mode(model):
        model(None, FullGraph(features, propagation, hidden=hidden))
    for k, width in enumerate(model.hidden_widths, start=1):
        found = hidden[k].shape[1] if k in hidden else "nothing"
        require(
            found == width,
            f"{type(model).__name__} aggregates {found} at layer {k}; its hidden_widths say {width}",
        )
        yield hidden.pop(k)
