"""`A W [+ b]`: torch's product with the right threads, the right way round for few classes, and for sparse `A`.

Each function has its gradient beside it: `linear` is differentiable by autograd, and `cvgnn.model.gradient` chains the
same pieces by hand.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cvgnn.ops.bf16_matmul import rounded_gradient, rounded_product
from cvgnn.ops.sparse_matmul import LayerInput
from cvgnn.ops.threads import torch_threads

# Up to here MKL multiplies by a narrow matrix faster when it is given the transposed product, up to five times with 8
# columns; from 16 on nothing is gained (docs/benchmarks/kernels.md).
_NARROW = 15


def linear(A: LayerInput, W: Tensor, bias: Tensor | None = None) -> Tensor:
    """`A W [+ b]`, differentiable in all.

    Args:
        A: `[n, d_in]`, a tensor or sparse rows; a bfloat16 tensor is a constant, see `cvgnn.ops.bf16_matmul`.
        W: `[d_in, d_out]`.
        bias: `[d_out]`, or None.

    Returns:
        `[n, d_out]`.
    """
    return _Linear.apply(A, W, bias)  # type: ignore[no-untyped-call, no-any-return]


def product(A: LayerInput, W: Tensor, bias: Tensor | None = None) -> Tensor:
    """`A W [+ b]`."""
    if not isinstance(A, Tensor):
        Z = A.product(W)
    else:
        with torch_threads(A.shape[0] * W.numel()):
            if A.dtype == torch.bfloat16:
                Z = rounded_product(A, W).to(W.dtype)
            else:
                Z = torch.mm(W.t().contiguous(), A.t()).t() if W.shape[1] <= _NARROW else torch.mm(A, W)
    return Z if bias is None else Z.add_(bias)


def product_into(Z: Tensor, A: Tensor, W: Tensor) -> None:
    """`Z = A W`."""
    with torch_threads(A.shape[0] * W.numel()):
        if A.dtype == torch.bfloat16:
            Z.copy_(rounded_product(A, W))
        elif W.shape[1] <= _NARROW:
            Z.copy_(product(A, W))
        else:
            torch.mm(A, W, out=Z)


def weight_gradient(A: LayerInput, dZ: Tensor) -> Tensor:
    """`A^T dZ`, the gradient of `W`."""
    if not isinstance(A, Tensor):
        return A.transposed_product(dZ)
    with torch_threads(A.numel() * dZ.shape[1]):
        if A.dtype == torch.bfloat16:
            return rounded_gradient(A, dZ)
        return torch.mm(dZ.t(), A).t().contiguous() if dZ.shape[1] <= _NARROW else torch.mm(A.t(), dZ)


def input_gradient(dZ: Tensor, W: Tensor) -> Tensor:
    """`dZ W^T`, the gradient of `A`."""
    dA = torch.empty(dZ.shape[0], W.shape[0], dtype=dZ.dtype)
    input_gradient_into(dA, dZ, W)
    return dA


def input_gradient_into(dA: Tensor, dZ: Tensor, W: Tensor) -> None:
    """`dA = dZ W^T`."""
    with torch_threads(dZ.shape[0] * W.numel()):
        torch.mm(dZ, W.t(), out=dA)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, A: LayerInput, W: Tensor, bias: Tensor | None) -> Tensor:
        ctx.A = None if isinstance(A, Tensor) else A
        ctx.save_for_backward(A if isinstance(A, Tensor) else None, W)
        return product(A, W, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        A, W = ctx.saved_tensors
        (dZ,) = grads
        needs_A, needs_W, needs_bias = ctx.needs_input_grad
        return (
            input_gradient(dZ, W) if needs_A else None,
            weight_gradient(A if ctx.A is None else ctx.A, dZ) if needs_W else None,
            dZ.sum(dim=0) if needs_bias else None,
        )
