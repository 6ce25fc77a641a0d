"""The cross entropy of a batch and its gradient, chained by hand, because autograd's bookkeeping takes a while too.

The pieces are those that `GCN.forward` lets autograd chain, so the numbers are the same. What autograd could do and
this cannot (other losses, hooks, frozen or shared parameters) is autograd's: `plain_layers` tells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.modules import module as torch_modules

from cvgnn.errors import CvgnnError, require
from cvgnn.estimator import Estimator
from cvgnn.model import hidden, kernels
from cvgnn.model.dropped import dropped
from cvgnn.model.gcn import GCN
from cvgnn.model.hidden import Sigma
from cvgnn.model.linear import input_gradient, product, weight_gradient
from cvgnn.sampling import Batch, LayerInput

_SMALL = 1 << 15
"""Multiply-adds of the last layer up to which one compiled call beats torch's dozen (docs/benchmarks/kernels.md)."""


Layers = list[tuple[Tensor, Sigma]]
"""The weight of each layer, and its other parameters."""


def plain_layers(model: torch.nn.Module) -> Layers | None:
    """The layers of a model for which `loss_and_gradient` does what autograd would: a GCN as built, without hooks or
    parametrizations; None for any other."""
    if type(model) is not GCN or "forward" in model.__dict__ or torch_modules._has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    if model._forward_hooks or model._forward_pre_hooks or model._backward_hooks or model._backward_pre_hooks:
        return None
    layers = layers_of(model)
    parameters = [p for weight, sigma in layers for p in (weight, *sigma) if p is not None]
    for p in parameters:
        if type(p) is not Parameter or not p.requires_grad or p._backward_hooks or p._post_accumulate_grad_hooks:
            return None
    shared = len(set(map(id, parameters))) < len(parameters)
    return None if shared else layers


def layers_of(model: GCN) -> Layers:
    """The weight of each layer, and its other parameters, first to last."""
    return [(layer.weight, layer.sigma) for layer in model.in_order]


@torch.no_grad()
def loss_and_gradient(
    model: GCN,
    batch: Batch,
    estimator: Estimator,
    labels: Tensor,
    layers: Layers | None = None,
    *,
    smoothing: float = 0.0,
) -> Tensor:
    """The mean cross entropy of `model` on a batch (Algorithm 1, lines 6 to 11); its gradient replaces the `.grad`s.

    Args:
        model: the network.
        batch: the step's ids, receptive fields and sampled matrices.
        estimator: gives the aggregated inputs and stages history writes.
        labels: int64 `[N]`.
        layers: the model's, where they are at hand.
        smoothing: share of each label that is spread over all classes.

    Returns:
        A scalar.
    """
    *hiddens, (W, last) = layers or layers_of(model)
    model.check_batch(batch)
    A = dropped(estimator.input(batch), model.dropout_at(batch.step, 0))
    passes = []
    for k, (weight, sigma) in enumerate(hiddens, start=1):
        drop, correction = model.dropout_at(batch.step, k), estimator.correction(k, batch)
        out, H, done = hidden.forward(product(A, weight), sigma, drop, batch.block(k), correction)
        estimator.keep(k, batch, H)
        passes.append((A, done))
        A = out
    value, dA = _top(A, W, last.bias, batch, labels, smoothing, wanted=bool(hiddens))
    for (weight, sigma), (A, done) in zip(reversed(hiddens), reversed(passes), strict=True):
        dZ, gradients = hidden.backward(dA, done)
        weight.grad = weight_gradient(A, dZ)
        for parameter, gradient in zip(sigma, gradients, strict=True):
            if parameter is not None:
                parameter.grad = gradient
        if weight is not hiddens[0][0]:
            dA = input_gradient(dZ, weight)
    return value


def check_labels(labels: Tensor, num_nodes: int) -> None:
    """Refuse labels that compiled code, which checks nothing, must not see."""
    require(
        isinstance(labels, Tensor) and labels.dtype == torch.int64 and labels.shape == (num_nodes,),
        f"labels must be an int64 vector with one entry for each of the {num_nodes} nodes, training nodes or not",
    )


def _top(
    A: LayerInput, W: Tensor, bias: Tensor | None, batch: Batch, labels: Tensor, smoothing: float, *, wanted: bool
) -> tuple[Tensor, Tensor]:
    """The loss; the last layer's gradients are set, and that of its input `A` is returned, empty if not `wanted`."""
    if isinstance(A, Tensor) and wanted and A.shape[0] * W.numel() <= _SMALL:
        return _small_top(A, W, bias, batch, labels, smoothing)
    return _wide_top(A, W, bias, batch, labels, smoothing, wanted=wanted)


def _wide_top(
    A: LayerInput, W: Tensor, bias: Tensor | None, batch: Batch, labels: Tensor, smoothing: float, *, wanted: bool
) -> tuple[Tensor, Tensor]:
    """`_top` by torch's operations."""
    value, dZ = _loss_of_logits(product(A, W, bias), batch, labels, smoothing)
    W.grad = weight_gradient(A, dZ)
    if bias is not None:
        bias.grad = dZ.sum(dim=0)
    return value, input_gradient(dZ, W) if wanted else dZ[:0]


def _small_top(
    A: Tensor, W: Tensor, bias: Tensor | None, batch: Batch, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """`_top` in one compiled call."""
    a, w = A.contiguous().numpy(), W.detach().numpy()
    n, C = a.shape[0], w.shape[1]
    if w.dtype != a.dtype or w.shape[0] != a.shape[1]:
        raise CvgnnError(f"the aggregate is {A.dtype} {list(A.shape)}, the last weight {W.dtype} {list(W.shape)}")
    b = np.zeros(C, a.dtype) if bias is None else bias.detach().numpy()
    dW, d_bias, dA, scratch = (np.empty(s, a.dtype) for s in (w.shape, C, a.shape, (n, C)))
    ids = batch.ids.numpy()
    place, placed = (ids, False) if batch.place is None else (batch.place.numpy(), True)
    mean, bad = kernels.top(a, w, b, labels.numpy(), ids, place, placed, smoothing, scratch, dW, d_bias, dA)
    _refuse_label(bad, ids, labels, C)
    W.grad = torch.from_numpy(dW)
    if bias is not None:
        bias.grad = torch.from_numpy(d_bias)
    return torch.from_numpy(np.array(mean, a.dtype)), torch.from_numpy(dA)


def _refuse_label(bad: int, ids: np.ndarray[Any, np.dtype[Any]], labels: Tensor, num_classes: int) -> None:
    if bad >= 0:
        raise CvgnnError(
            f"node {ids[bad]} has no label in 0..{num_classes - 1}, the classes the model knows (labels has "
            f"{labels.numel()} entries)"
        )


def _loss_of_logits(Z: Tensor, batch: Batch, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The loss and its gradient with respect to the logits of the batch's distinct nodes."""
    log_p = torch.log_softmax(Z.contiguous(), dim=1)
    dZ = torch.zeros_like(log_p)
    ids = batch.ids.numpy()
    place = ids if batch.place is None else batch.place.numpy()
    placed = batch.place is not None
    mean, bad = kernels.cross_entropy(
        log_p.numpy(), log_p.exp().numpy(), labels.numpy(), ids, place, placed, smoothing, dZ.numpy()
    )
    _refuse_label(bad, ids, labels, Z.shape[1])
    return torch.from_numpy(np.array(mean, log_p.numpy().dtype)), dZ
