"""Histories: the last computed value of every node's hidden representation, `Hbar^(k)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from cvgnn.errors import require, require_integer
from cvgnn.ops.history_write import touch_rows, write_rows
from cvgnn.ops.row_sum import Rows, weighted_sum


@final
class History(nn.Module):
    """`Hbar^(k)` of one hidden layer, `[N, d_k]`, and the step at which each row was written; both are buffers.

    Args:
        num_nodes: `N`.
        width: `d_k`.
        dtype: what `pull` and `weighted_sum` return.
        storage: what is kept in memory; bfloat16 halves it, and rounds each value to 8 significant bits.
        zeros: allocates a table of zeros from a shape and a dtype; `torch.zeros`, or a function that maps a file.

    >>> h = History(3, 2)
    >>> h.push(torch.tensor([2]), torch.tensor([[1.0, 2.0]]), step=5)
    >>> h.pull(torch.tensor([0, 2])).tolist(), h.age(step=7).tolist()
    ([[0.0, 0.0], [1.0, 2.0]], [7, 7, 2])
    """

    values: Tensor
    written: Tensor

    def __init__(
        self,
        num_nodes: int,
        width: int,
        *,
        dtype: torch.dtype = torch.float32,
        storage: torch.dtype | None = None,
        zeros: Callable[[tuple[int, ...], torch.dtype], Tensor] | None = None,
    ) -> None:
        super().__init__()
        require_integer("num_nodes", num_nodes, at_least=1)
        require_integer("width", width, at_least=1)
        allowed = (dtype, torch.bfloat16)
        require(storage is None or storage in allowed, f"storage must be one of {allowed}, not {storage}")
        self.dtype = dtype
        zeros = zeros or _zeros_in_memory
        self.register_buffer("values", zeros((num_nodes, width), storage or dtype))
        self.register_buffer("written", zeros((num_nodes,), torch.int64))

    def pull(self, ids: Tensor) -> Tensor:
        """`Hbar[ids]`, a copy `[len(ids), d_k]`."""
        return self.values.index_select(0, ids).to(self.dtype)

    def push(self, ids: Tensor, values: Tensor, *, step: int) -> None:
        """`Hbar[ids] = values`, written at `step`.

        Args:
            ids: int64 `[n]`, distinct.
            values: `[n, d_k]`.
            step: `t`.
        """
        write_rows(self.values, ids, values.detach(), self.written, step)

    def fill(self, values: Tensor, *, step: int) -> None:
        """`Hbar = values` for all nodes."""
        require(
            values.shape == self.values.shape,
            f"a history of shape {list(self.values.shape)} cannot take values of shape {list(values.shape)}",
        )
        self.values.copy_(values.detach())
        self.written.fill_(step)

    def fill_rows(self, first: int, values: Tensor) -> None:
        """`Hbar[first:first + n] = values`, at step 0."""
        self.values[first : first + len(values)] = values

    def warm_up(self) -> None:
        """Write a row as it is: changes nothing, but compiles before a step is timed."""
        first = torch.zeros(1, dtype=torch.int64, device=self.values.device)
        self.push(first, self.pull(first), step=0)

    def age(self, step: int) -> Tensor:
        """int64 `[N]`: how many steps ago each row was written."""
        return step - self.written

    def read_ahead(self, ids: np.ndarray) -> None:
        """Read the rows of a table that is a mapped file into memory; from another thread, before a step needs them."""
        table = self.values.view(torch.uint8).numpy()
        touch_rows(table, ids)

    def weighted_sum(self, rows: Rows) -> Tensor:
        """`S Hbar` for sparse rows `S` over node ids, `[S.num_rows, d_k]`; sums are taken in `dtype`."""
        return weighted_sum(rows, self.values)


def _zeros_in_memory(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.zeros(shape, dtype=dtype)
