"""The layers of a step forward and back, in parts of their rows that threads share.

A layer's rows depend on each other only through `P^`. So a thread takes its rows through a whole layer (reading them,
the product, `sigma`) before it waits for the others, and `K` layers take `2 K - 1` such passes: each hidden layer
forward, the last one forward and back, each hidden layer back. The gradient of a weight is summed part by part, in the
order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from cvgnn.model import small
from cvgnn.model.hidden import Back, Pass, Sigma
from cvgnn.ops import layer_kernels as kernels
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.matmul import input_gradient_into, product, product_into, weight_gradient
from cvgnn.ops.threads import MEMORY_COST, row_ranges, run_ranges
from cvgnn.sampling import Batch, Block, LayerInput, SparseInput

Rows = Callable[[int, int], Tensor]
"""Makes rows `first..last-1` of a layer's aggregated input `A`; several threads may ask at the same time."""


@final
class HiddenLayer:
    """A hidden layer on `n` nodes: `Z = A W`, `H = sigma(Z)` and `P^ dropout(H)`, forward and back.

    Args:
        A: the aggregated input, `[n, d_in]`: sparse rows, or a function that makes them.
        weight: `W`, `[d_in, d]`.
        sigma: the layer's other parameters.
        drop: what to drop, or None.
        block: holds `P^`, `[m, n]`, and its transpose.
    """

    def __init__(self, A: Rows | SparseInput, weight: Tensor, sigma: Sigma, drop: Dropout | None, block: Block) -> None:
        n, (d_in, d) = block.transposed.num_rows, weight.shape
        self._A = A
        self._weight = weight
        self._sigma = sigma
        dense = not isinstance(A, SparseInput)
        self._Z = torch.empty(n, d, dtype=weight.dtype) if dense else product(A, weight)  # type: ignore[arg-type]
        self._pass = Pass(self._Z, sigma, drop, block)
        self._ranges = row_ranges(n, d * (d_in * dense + MEMORY_COST), multiple=kernels.rows_in_part(n))
        self._read: list[Tensor] = [self._Z] * len(self._ranges)
        run_ranges(self._forward, self._ranges)

    @property
    def H(self) -> Tensor:
        """`H`, `[n, d]`, before dropout."""
        return self._pass.H

    def aggregate(self, correction: Tensor | None, first: int, last: int) -> Tensor:
        """See `hidden.Pass.aggregate`."""
        return self._pass.aggregate(correction, first, last)

    def _forward(self, i: int, first: int, last: int) -> None:
        if not isinstance(self._A, SparseInput):
            self._read[i] = A = self._A(first, last)
            product_into(self._Z[first:last], A, self._weight)
        self._pass.activate(first, last)

    def backward(self, d_out: Tensor, *, wanted: bool) -> Tensor:
        """Set the parameters' gradients, given the aggregate's, `[m, d]`; that of `A`, empty if not `wanted`."""
        W, back = self._weight, Back(self._pass, d_out)
        dA = torch.empty(len(back.dZ) * wanted, len(W), dtype=W.dtype)
        dW: list[Tensor] = [W] * len(self._ranges)

        def part(i: int, first: int, last: int) -> None:
            dZ = back.rows(first, last)
            if not isinstance(self._A, SparseInput):
                dW[i] = weight_gradient(self._read[i], dZ)
            if wanted:
                input_gradient_into(dA[first:last], dZ, W)

        run_ranges(part, self._ranges)
        W.grad = weight_gradient(self._A, back.dZ) if isinstance(self._A, SparseInput) else _sum(dW)
        for parameter, gradient in zip(self._sigma, back.parameters(), strict=True):
            if parameter is not None:
                parameter.grad = gradient
        return dA


def last_layer(
    A: Rows | SparseInput, W: Tensor, bias: Tensor | None, batch: Batch, labels: Tensor, smoothing: float,
    ranges: list[tuple[int, int]], *, wanted: bool,
) -> tuple[float, Tensor]:  # fmt: skip
    """Logits `A W + b`, the mean cross entropy, and its gradients; those of the parameters are set.

    Args:
        A: the aggregated input, `[|r^(K)|, d]`: a function that makes its rows, or all of them, sparse.
        W, bias: `[d, C]`, and `[C]` or None.
        batch: the step's ids.
        labels: int64 `[N]`.
        smoothing: share of each label that is spread over all classes.
        ranges: the rows' parts, one for sparse rows.
        wanted: whether the gradient of `A` is.

    Returns:
        The loss, and the gradient of `A`, empty if not `wanted`.
    """
    m = ranges[-1][1]
    dA = torch.empty(m * wanted, len(W), dtype=W.dtype)
    means, bad = [0.0] * len(ranges), [-1] * len(ranges)
    dW, d_bias = [W] * len(ranges), [W] * len(ranges)
    ids, place, placed = small.places(batch)

    def part(i: int, first: int, last: int) -> None:
        rows: LayerInput = A if isinstance(A, SparseInput) else A(first, last)
        log_p = torch.log_softmax(product(rows, W, bias).contiguous(), dim=1)
        dZ = torch.zeros_like(log_p)
        means[i], bad[i] = kernels.cross_entropy(
            log_p.numpy(), log_p.exp().numpy(), labels.numpy(), ids, place, placed, smoothing, dZ.numpy(), first
        )
        dW[i], d_bias[i] = weight_gradient(rows, dZ), dZ.sum(dim=0)
        if wanted:
            input_gradient_into(dA[first:last], dZ, W)

    run_ranges(part, ranges)
    small.refuse_label(min((b for b in bad if b >= 0), default=-1), ids, labels, W.shape[1])
    W.grad = _sum(dW)
    if bias is not None:
        bias.grad = _sum(d_bias)
    return sum(means), dA


def _sum(terms: list[Tensor]) -> Tensor:
    """The sum, in order; the first is overwritten."""
    for term in terms[1:]:
        terms[0].add_(term)
    return terms[0]
