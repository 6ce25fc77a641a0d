"""The cross entropy of a batch and its gradient, chained by hand, because autograd's bookkeeping takes a while too.

The pieces are those that `GCN.forward` lets autograd chain, so the numbers are the same. What autograd could do and
this cannot (other losses, hooks, frozen or shared parameters) is autograd's: `is_plain` tells.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.modules import module as torch_modules

from cvgnn.errors import CvgnnError, require
from cvgnn.estimator import Estimator
from cvgnn.model import hidden, kernels
from cvgnn.model.gcn import GCN
from cvgnn.model.linear import input_gradient, product, weight_gradient
from cvgnn.sampling import Batch


def is_plain(model: torch.nn.Module) -> bool:
    """Whether `loss_and_gradient` does what autograd would: a GCN as built, without hooks or parametrizations."""
    if type(model) is not GCN or "forward" in model.__dict__ or torch_modules._has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    if model._forward_hooks or model._forward_pre_hooks or model._backward_hooks or model._backward_pre_hooks:
        return False
    parameters = [p for layer in model.in_order for p in (layer.weight, *layer.activation_parameters) if p is not None]
    if len({id(p) for p in parameters}) < len(parameters):
        return False
    return all(
        type(p) is Parameter and p.requires_grad and not p._backward_hooks and not p._post_accumulate_grad_hooks
        for p in parameters
    )


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
    layers = model.in_order
    model.check_batch(batch)
    A = estimator.input(batch)
    passes = []
    for k, layer in enumerate(layers[:-1], start=1):
        out, H, done = hidden.forward(
            product(A, layer.weight),
            *layer.activation_parameters,
            model.dropout_at(batch.step, k),
            batch.block(k),
            estimator.correction(k, batch),
        )
        estimator.keep(k, batch, H)
        passes.append((A, done))
        A = out
    last = layers[-1]
    value, dZ = _loss_of_logits(product(A, last.weight, last.bias), batch, labels)
    last.weight.grad = weight_gradient(A, dZ)
    if last.bias is not None:
        last.bias.grad = dZ.sum(dim=0)
    above = last
    for layer, (A, done) in zip(reversed(layers[:-1]), reversed(passes), strict=True):
        dZ, sums = hidden.backward(input_gradient(dZ, above.weight), done)
        layer.weight.grad = weight_gradient(A, dZ)
        for parameter, gradient in zip(layer.activation_parameters, sums, strict=True):
            if parameter is not None:
                parameter.grad = gradient
        above = layer
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
    return torch.tensor(mean, dtype=Z.dtype), dZ
