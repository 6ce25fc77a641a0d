"""The loss of a batch and its gradient, chained by hand: autograd's bookkeeping costs as much as a small batch.

The pieces are those that `GCN.forward` lets autograd chain, so the numbers are the same. What autograd could do and
this cannot (hooks, frozen parameters) is told by `is_plain`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import cross_entropy

from cvgnn.errors import CvgnnError
from cvgnn.estimator import Estimator
from cvgnn.model import hidden, kernels
from cvgnn.model.gcn import GCN
from cvgnn.model.linear import input_gradient, product, weight_gradient
from cvgnn.sampling import Batch

Loss = Callable[[Tensor, Tensor], Tensor]


def is_plain(model: torch.nn.Module) -> bool:
    """Whether `loss_and_gradient` does what autograd would: a GCN as built, without hooks or parametrizations."""
    if type(model) is not GCN or model._forward_hooks or model._forward_pre_hooks or model._backward_hooks:
        return False
    parameters = (p for layer in model.in_order for p in (layer.weight, *layer.activation_parameters) if p is not None)
    return all(type(p) is Parameter and p.requires_grad and not p._backward_hooks for p in parameters)


@torch.no_grad()
def loss_and_gradient(
    model: GCN, batch: Batch, estimator: Estimator, labels: Tensor, loss: Loss = cross_entropy
) -> Tensor:
    """The loss of `model` on a batch (Algorithm 1, lines 6 to 11); its gradient replaces the parameters' `.grad`.

    Args:
        model: the network.
        batch: the step's ids, receptive fields and sampled matrices.
        estimator: gives the aggregated inputs and stages history writes.
        labels: int64 `[N]`.
        loss: of logits `[B, C]` and labels `[B]`.

    Returns:
        A scalar.
    """
    layers = model.in_order
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
    value, dZ = _loss_of_logits(product(A, last.weight, last.bias), batch, labels, loss)
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


def _loss_of_logits(Z: Tensor, batch: Batch, labels: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """The loss and its gradient with respect to the logits of the batch's distinct nodes."""
    if loss is not cross_entropy:
        with torch.enable_grad():
            leaf = Z.requires_grad_()
            value = loss(batch.select(leaf), labels[batch.ids])
            (dZ,) = torch.autograd.grad(value, leaf)
        return value.detach(), dZ
    log_p = torch.log_softmax(Z.contiguous(), dim=1)
    dZ = torch.zeros_like(log_p)
    ids = batch.ids.numpy()
    place = ids if batch.place is None else batch.place.numpy()
    placed = batch.place is not None
    mean = kernels.cross_entropy(log_p.numpy(), log_p.exp().numpy(), labels.numpy(), ids, place, placed, dZ.numpy())
    if mean < 0:
        raise CvgnnError(f"a label of the batch is outside of 0..{Z.shape[1] - 1}, the classes the model knows")
    return torch.tensor(mean, dtype=Z.dtype), dZ
