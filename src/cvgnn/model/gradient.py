"""The cross entropy of a batch and its gradient, chained by hand, because autograd's bookkeeping takes a while too.

The pieces are those that `GCN.forward` lets autograd chain, so the numbers are the same. What autograd could do and
this cannot (other losses, hooks, frozen or shared parameters) is autograd's: `ByHand.of` tells.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.modules import module as torch_modules

from cvgnn.errors import CvgnnError, require
from cvgnn.estimator import Estimator
from cvgnn.model import small
from cvgnn.model.gcn import GCN
from cvgnn.model.passes import HiddenLayer, Rows, last_layer
from cvgnn.model.small import Layers, Loss, TwoLayers
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.input_dropout import dropped_dense, dropped_sparse
from cvgnn.ops.threads import MEMORY_COST, row_ranges
from cvgnn.sampling import Batch, SparseInput


@final
class ByHand:
    """A model whose gradient is chained by hand.

    Args:
        model: the network.
        layers: the weight of each layer, and its other parameters, first to last.
    """

    def __init__(self, model: GCN, layers: Layers) -> None:
        self.model = model
        self.layers = layers
        self._entries = _entries(model)
        self._parameters = _parameters(layers)
        self._small = TwoLayers.of(layers)

    @staticmethod
    def of(model: nn.Module) -> ByHand | None:
        """A model for which this does what autograd would: a GCN as built, without hooks or parametrizations; None for
        any other."""
        if type(model) is not GCN:
            return None
        layers = layers_of(model)
        parameters = _parameters(layers)
        as_built = all(type(p) is Parameter for p in parameters) and len(set(map(id, parameters))) == len(parameters)
        return ByHand(model, layers) if as_built and _unhooked(model, parameters) else None

    def holds(self) -> bool:
        """Whether that is still so."""
        for owner, name, value in self._entries:
            if owner.get(name) is not value:
                return False
        if len(self.model.layers._modules) != len(self.layers) or not _unhooked(self.model, self._parameters):
            return False
        return self._small is None or self._small.holds()

    @torch.no_grad()
    def loss_and_gradient(self, batch: Batch, estimator: Estimator, labels: Tensor, smoothing: float = 0.0) -> Loss:
        """See `loss_and_gradient`; the next call may overwrite the gradients in place."""
        model, drops = self.model, [self.model.dropout_at(batch.step, k) for k in range(len(self.layers))]
        model.check_batch(batch)
        *hiddens, (W, last) = self.layers
        rows = self._features(batch, estimator, drops[0])
        if self._small is not None and isinstance(rows, SparseInput):
            loss = self._small.loss_and_gradient(rows, drops[1], estimator, batch, labels, smoothing)
            if loss is not None:
                return loss
        done: list[HiddenLayer] = []
        for k, (weight, sigma) in enumerate(hiddens, start=1):
            done.append(HiddenLayer(rows, weight, sigma, drops[k], batch.block(k)))
            estimator.keep(k, batch, done[-1].H)
            rows = _aggregate(done[-1], k, batch, estimator)
        value, dA = _top(rows, W, last.bias, batch, labels, smoothing, wanted=bool(hiddens))
        while done:
            dA = done.pop().backward(dA, wanted=bool(done))
        return Loss(value)

    def _features(self, batch: Batch, estimator: Estimator, drop: Dropout | None) -> Rows | SparseInput:
        """The input of layer 0 after dropout: sparse rows, or a function that makes dense ones."""
        n = batch.inputs.numel()
        if batch.blocks and batch.block(1).transposed.num_rows != n:
            raise CvgnnError(
                f"the batch has {n} inputs, but its first block {batch.block(1).transposed.num_rows} sources: one "
                "sampler must have drawn both"
            )
        if estimator.features.sparse:
            A = estimator.input(batch)
            if not isinstance(A, SparseInput):
                raise CvgnnError(f"features with sparse = True must give rows as a SparseInput, not {type(A).__name__}")
            return dropped_sparse(A, drop)

        def rows(first: int, last: int) -> Tensor:
            A = estimator.input(batch, first, last)
            if not isinstance(A, Tensor) or A.shape[0] != last - first:
                shape = list(A.shape) if isinstance(A, Tensor) else type(A).__name__
                raise CvgnnError(
                    f"rows {first} to {last - 1} of the input must be a tensor of {last - first} rows, not {shape} "
                    "(a source of sparse rows says so by sparse = True)"
                )
            return dropped_dense(A, drop, first)

        return rows


def _aggregate(layer: HiddenLayer, k: int, batch: Batch, estimator: Estimator) -> Rows:
    return lambda first, last: layer.aggregate(estimator.correction(k, batch, first, last), first, last)


def layers_of(model: GCN) -> Layers:
    """The weight of each layer, and its other parameters, first to last."""
    return [(layer.weight, layer.sigma) for layer in model.in_order]


def _parameters(layers: Layers) -> list[Tensor]:
    return [p for weight, sigma in layers for p in (weight, *sigma) if p is not None]


def _unhooked(model: GCN, parameters: list[Tensor]) -> bool:
    """Whether nobody wants to be called, and every parameter wants a gradient."""
    if "forward" in model.__dict__ or torch_modules._has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    if model._forward_hooks or model._forward_pre_hooks or model._backward_hooks or model._backward_pre_hooks:
        return False
    hooked = any(p._backward_hooks or p._post_accumulate_grad_hooks for p in parameters)
    return not hooked and all(p.requires_grad for p in parameters)


def _entries(model: GCN) -> list[tuple[dict[str, Any], str, object]]:
    """Where a model keeps its layers and their parameters, and what stands there."""
    owners: list[Any] = [model._modules, model.layers._modules]
    for layer in model.in_order:
        owners += [layer._modules, layer._parameters]
        if layer.norm is not None:
            owners.append(layer.norm._parameters)
    found = [(owner, name, value) for owner in owners for name, value in owner.items()]
    norms = [layer.norm for layer in model.in_order if layer.norm is not None]
    return found + [(norm.__dict__, "eps", norm.eps) for norm in norms]


def loss_and_gradient(
    model: GCN, batch: Batch, estimator: Estimator, labels: Tensor, *, smoothing: float = 0.0
) -> Loss:
    """The mean cross entropy of `model` on a batch (Algorithm 1, lines 6 to 11); its gradient replaces the `.grad`s.

    Args:
        model: the network.
        batch: the step's ids, receptive fields and sampled matrices.
        estimator: gives the aggregated inputs and stages history writes.
        labels: int64 `[N]`.
        smoothing: share of each label that is spread over all classes.
    """
    return ByHand(model, layers_of(model)).loss_and_gradient(batch, estimator, labels, smoothing)


def check_labels(labels: Tensor, num_nodes: int) -> None:
    """Refuse labels that compiled code, which checks nothing, must not see."""
    require(
        isinstance(labels, Tensor) and labels.dtype == torch.int64 and labels.shape == (num_nodes,),
        f"labels must be an int64 vector with one entry for each of the {num_nodes} nodes, training nodes or not",
    )


def _top(
    A: Rows | SparseInput, W: Tensor, bias: Tensor | None, batch: Batch, labels: Tensor, smoothing: float,
    *, wanted: bool,
) -> tuple[float, Tensor]:  # fmt: skip
    """The loss; the last layer's gradients are set, and that of its input `A` is returned, empty if not `wanted`."""
    m = batch.blocks[-1].sampled.num_rows if batch.blocks else batch.inputs.numel()
    if wanted and not isinstance(A, SparseInput) and m * W.numel() <= small.LARGEST:
        return small.last_layer(A(0, m), W, bias, batch, labels, smoothing)
    remainder = batch.blocks[-1].remainder if batch.blocks else None
    entries = 0 if remainder is None else remainder.indices.numel() // max(1, m)
    work = 3 * W.numel() + MEMORY_COST * (entries + 1) * W.shape[0]
    ranges = [(0, m)] if isinstance(A, SparseInput) else row_ranges(m, work)
    return last_layer(A, W, bias, batch, labels, smoothing, ranges, wanted=wanted)
