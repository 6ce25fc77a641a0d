"""The cross entropy of a batch and its gradient, chained by hand, because autograd's bookkeeping takes a while too.

The pieces are those that `GCN.forward` lets autograd chain, so the numbers are the same. What autograd could do and
this cannot (other losses, hooks, frozen or shared parameters) is autograd's: `is_plain` tells.
"""

from __future__ import annotations

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
from cvgnn.model.linear import input_gradient, product, weight_gradient
from cvgnn.sampling import Batch


def is_plain(model: torch.nn.Module) -> bool:
    """Whether `loss_and_gradient` does what autograd would: a GCN as built, without hooks or parametrizations."""
    if type(model) is not GCN or "forward" in model.__dict__ or torch_modules._has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    if model._forward_hooks or model._forward_pre_hooks or model._backward_hooks or model._backward_pre_hooks:
        return False
    seen = set()
    for layer in model.in_order:
        for p in (layer.weight, *layer.sigma):
            if p is None:
                continue
            if type(p) is not Parameter or not p.requires_grad or p._backward_hooks or p._post_accumulate_grad_hooks:
                return False
            if p in seen:  # by identity: tensors hash so
                return False
            seen.add(p)
    return True


@torch.no_grad()
def loss_and_gradient(model: GCN, batch: Batch, estimator: Estimator, labels: Tensor) -> Tensor:
    """The mean cross entropy of `model` on a batch (Algorithm 1, lines 6 to 11); its gradient replaces the `.grad`s.

    Args:
        model: the network.
        batch: the step's ids, receptive fields and sampled matrices.
        estimator: gives the aggregated inputs and stages history writes.
        labels: int64 `[N]`.

    Returns:
        A scalar.
    """
    *layers, (W, last) = [(layer.weight, layer.sigma) for layer in model.in_order]
    model.check_batch(batch)
    A = dropped(estimator.input(batch), model.dropout_at(batch.step, 0))
    passes = []
    for k, (weight, sigma) in enumerate(layers, start=1):
        drop, correction = model.dropout_at(batch.step, k), estimator.correction(k, batch)
        out, H, done = hidden.forward(product(A, weight), sigma, drop, batch.block(k), correction)
        estimator.keep(k, batch, H)
        passes.append((A, done))
        A = out
    value, dZ = _loss_of_logits(product(A, W, last.bias), batch, labels)
    W.grad = weight_gradient(A, dZ)
    if last.bias is not None:
        last.bias.grad = dZ.sum(dim=0)
    for (weight, sigma), (A, done) in zip(reversed(layers), reversed(passes), strict=True):
        dZ, gradients = hidden.backward(input_gradient(dZ, W), done)
        weight.grad = weight_gradient(A, dZ)
        for parameter, gradient in zip(sigma, gradients, strict=True):
            if parameter is not None:
                parameter.grad = gradient
        W = weight
    return value


def check_labels(labels: Tensor, num_nodes: int) -> None:
    """Refuse labels that compiled code, which checks nothing, must not see."""
    require(
        isinstance(labels, Tensor) and labels.dtype == torch.int64 and labels.shape == (num_nodes,),
        f"labels must be an int64 vector with one entry for each of the {num_nodes} nodes, training nodes or not",
    )


def _loss_of_logits(Z: Tensor, batch: Batch, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient with respect to the logits of the batch's distinct nodes."""
    log_p = torch.log_softmax(Z.contiguous(), dim=1)
    dZ = torch.zeros_like(log_p)
    ids = batch.ids.numpy()
    place = ids if batch.place is None else batch.place.numpy()
    placed = batch.place is not None
    mean, bad = kernels.cross_entropy(
        log_p.numpy(), log_p.exp().numpy(), labels.numpy(), ids, place, placed, dZ.numpy()
    )
    if bad >= 0:
        raise CvgnnError(
            f"node {ids[bad]} has no label in 0..{Z.shape[1] - 1}, the classes the model knows (labels has "
            f"{labels.numel()} entries)"
        )
    return torch.from_numpy(np.array(mean, log_p.numpy().dtype)), dZ
