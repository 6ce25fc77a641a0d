"""`A W` and its two gradients: torch's products with the right threads, the right way round, in the right precision."""

from __future__ import annotations

import torch
from torch import Tensor

from cvgnn.ops.bf16_matmul import bf16_gradient, bf16_product
from cvgnn.ops.threads import torch_threads

# Up to here MKL multiplies by a narrow matrix faster when it is given the transposed product, up to five times with 8
# columns; from 16 on nothing is gained (docs/benchmarks/kernels.md).
NARROW = 15
# The same for `A^T dZ` with `A` wider than `dZ`: 199 instead of 245 µs with 1000 rows, 256 and 40 columns.
_NARROW_GRADIENT = 48


def product(A: Tensor, W: Tensor) -> Tensor:
    """`A W`, `[n, d]`, in the dtype of `W`.

    Args:
        A: `[n, d_in]`; a bfloat16 one is multiplied as `bf16_matmul` says.
        W: `[d_in, d]`.
    """
    with torch_threads(A.shape[0] * W.numel()):
        if A.dtype == torch.bfloat16:
            return bf16_product(A, W).to(W.dtype)
        return torch.mm(W.t().contiguous(), A.t()).t() if W.shape[1] <= NARROW else torch.mm(A, W)


def product_into(Z: Tensor, A: Tensor, W: Tensor, *, add: bool) -> None:
    """`Z = A W`, or `Z += A W`."""
    with torch_threads(A.shape[0] * W.numel()):
        if A.dtype == torch.bfloat16 or W.shape[1] <= NARROW:
            # A bfloat16 product is widened while it is copied: converting it first would be a pass more.
            Y = bf16_product(A, W) if A.dtype == torch.bfloat16 else product(A, W)
            Z.add_(Y) if add else Z.copy_(Y)
        else:
            torch.addmm(Z, A, W, beta=int(add), out=Z)  # beta = 0 ignores what Z holds, NaN included


def weight_gradient(A: Tensor, dZ: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """`A^T dZ`, the gradient of `W`; beside a bfloat16 `A` in the given dtype, that of `dZ` if there is none."""
    with torch_threads(A.numel() * dZ.shape[1]):
        if A.dtype == torch.bfloat16:
            return bf16_gradient(A, dZ, dtype or dZ.dtype)
        return torch.mm(dZ.t(), A).t().contiguous() if dZ.shape[1] <= _NARROW_GRADIENT else torch.mm(A.t(), dZ)


def input_gradient_into(dA: Tensor, dZ: Tensor, W: Tensor) -> None:
    """`dA = dZ W^T`."""
    with torch_threads(dZ.shape[0] * W.numel()):
        torch.mm(dZ, W.t(), out=dA)
