"""Products with bfloat16 rows: half the bytes, and half the time where the processor multiplies bfloat16.

Both factors have 8 significant bits, sums are taken in float32, and the result is rounded to 8 bits again, as in the
mixed precision that torch calls autocast. Where the processor cannot, the same is computed from float32 matrices.

oneDNN, by which torch multiplies bfloat16, compiles code for each new shape and keeps it. Batches have new numbers of
rows all the time, so rows are multiplied in a few shapes only: most of them, and the rest with rows of zeros below.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

MOST, REST = 256, 32
"""As many rows as the first divides are multiplied as they are; the rest is filled up to a multiple of the second."""


@functools.cache
def is_native() -> bool:
    """Whether this processor multiplies bfloat16 matrices itself; torch without it takes many times longer."""
    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def bf16_product(A: Tensor, W: Tensor) -> Tensor:
    """`A W`, `W` rounded to bfloat16, and so is the result, a bfloat16 tensor.

    Args:
        A: bfloat16 `[n, d_in]`.
        W: `[d_in, d]`.

    >>> one = torch.ones(1, 1)
    >>> bf16_product(one.bfloat16(), one + 1 / 1024).item()
    1.0
    """
    n, b = len(A), W.bfloat16()
    if not (A.is_cpu and is_native()):
        return torch.mm(A.float(), b.float()).bfloat16()
    Z = torch.empty(n, W.shape[1], dtype=torch.bfloat16)
    whole = n - n % MOST
    if whole:
        torch.mm(A[:whole], b, out=Z[:whole])
    if whole < n:
        Z[whole:] = torch.mm(_padded(A[whole:]), b)[: n - whole]
    return Z


def bf16_gradient(A: Tensor, dZ: Tensor, dtype: torch.dtype) -> Tensor:
    """`A^T dZ`, `dZ` rounded to bfloat16, and so is the result; of many rows it is the sum of two that are.

    Args:
        A: bfloat16 `[n, d_in]`.
        dZ: `[n, d]`.
        dtype: of the sum and the result.
    """
    n, b = len(A), dZ.bfloat16()
    whole = n - n % MOST
    parts = [(A[:whole], b[:whole])] if whole else []
    if whole < n or not whole:
        parts.append((_padded(A[whole:]), _padded(b[whole:])))
    first, *others = [
        (torch.mm(x.t(), y) if A.is_cpu and is_native() else torch.mm(x.float().t(), y.float()).bfloat16()).to(dtype)
        for x, y in parts
    ]
    return first.add_(others[0]) if others else first


def _padded(rows: Tensor) -> Tensor:
    """With rows of zeros below, up to a multiple of `REST`."""
    n = len(rows)
    padded = rows.new_zeros(n + -n % REST, rows.shape[1])
    padded[:n] = rows
    return padded
