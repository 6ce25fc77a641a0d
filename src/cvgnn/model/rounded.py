"""Products with a bfloat16 matrix: half the bytes, and half the time where the processor multiplies bfloat16.

Both factors have 8 significant bits, sums are taken in float32, and the result is rounded to 8 bits again, as in the
mixed precision that torch calls autocast. Where the processor cannot, the same is computed from float32 matrices.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor


@functools.cache
def is_native() -> bool:
    """Whether this processor multiplies bfloat16 matrices itself; torch without it takes many times longer."""
    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def rounded_product(A: Tensor, B: Tensor) -> Tensor:
    """`A B`, both rounded to bfloat16, and so is the result, a bfloat16 tensor.

    >>> one = torch.ones(1, 1)
    >>> rounded_product(one.bfloat16(), one + 1 / 1024).item()
    1.0
    """
    a, b = A.bfloat16(), B.bfloat16()
    return torch.mm(a, b) if is_native() else torch.mm(a.float(), b.float()).bfloat16()
