"""The ranks of a run and what they exchange; every sum is taken in an order that their number does not change."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from cvgnn.errors import CvgnnError, require


def tree_sum(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors, two and two, then these sums two and two, and so on.

    A rank that adds its own shards and then the ranks that add theirs make the same additions as one rank that has all
    shards, as long as both numbers are powers of two. A running sum from left to right would not.

    >>> tree_sum([torch.tensor(float(i)) for i in range(4)])
    tensor(6.)
    """
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


@final
class Ranks:
    """This process among those of the run.

    Args:
        timeout: seconds after which a rank that does not answer ends the run.
    """

    def __init__(self, timeout: float = 300.0) -> None:
        self.rank, self.size = 0, 1
        self.bytes_sent = 0
        self.messages = 0
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from torchrun, or from Slurm through its variables.
            if not dist.is_initialized():
                dist.init_process_group("gloo", timeout=timedelta(seconds=timeout))
            self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def to_owners(self, rows: Tensor, counts: Sequence[int]) -> list[Tensor]:
        """Send to each rank its rows; returns this rank's rows from every rank, in the order of the ranks.

        Args:
            rows: `[sum(counts), d]`, ordered by rank.
            counts: rows of each rank.
        """
        if self.size == 1:
            return [rows]
        mine, d = counts[self.rank], rows.shape[1:]
        received = rows.new_empty((self.size * mine, *d))
        self._count(rows.numel() - mine * d.numel(), rows)
        with self._naming_the_failure():
            dist.all_to_all_single(received, rows.contiguous(), [mine] * self.size, list(counts))
        return list(torch.split(received, mine)) if mine else [received] * self.size

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of every rank, in the order of the ranks, on every rank."""
        if self.size == 1:
            return rows
        received = rows.new_empty((sum(counts), *rows.shape[1:]))
        self._count(rows.numel() * (self.size - 1), rows)
        copies = rows.contiguous().repeat(self.size, *[1] * (rows.dim() - 1))
        with self._naming_the_failure():
            dist.all_to_all_single(received, copies, list(counts), [rows.shape[0]] * self.size)
        return received

    def gather_equal(self, tensor: Tensor) -> list[Tensor]:
        """A tensor of the same shape from every rank."""
        return list(self.gather(tensor.reshape(1, -1), [1] * self.size).view(self.size, *tensor.shape))

    def counts(self, number: int) -> list[int]:
        """A number from every rank."""
        return torch.cat(self.gather_equal(torch.tensor([number]))).tolist()

    def agree(self, ok: bool) -> bool:
        """Whether all ranks say yes."""
        return all(self.counts(int(ok)))

    def require_equal(self, what: dict[str, Any]) -> None:
        """Refuse a rank that has other data, options or versions than rank 0, naming the difference."""
        if self.size == 1:
            return
        everybody: list[Any] = [None] * self.size
        dist.all_gather_object(everybody, what)
        for rank, theirs in enumerate(everybody):
            different = [name for name in what if theirs.get(name) != everybody[0].get(name)]
            require(
                not different,
                f"rank {rank} ({theirs.get('host')}) differs from rank 0 ({everybody[0].get('host')}): "
                + "; ".join(f"{name} is {theirs.get(name)!r}, not {everybody[0].get(name)!r}" for name in different),
            )

    def _count(self, elements: int, like: Tensor) -> None:
        self.bytes_sent += elements * like.element_size()
        self.messages += self.size - 1

    def _naming_the_failure(self) -> _Failure:
        return _Failure(self)


class _Failure:
    """Raises errors of the network as a `CvgnnError` with this rank and what to do."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError):
            raise CvgnnError(
                f"rank {self._ranks.rank} lost another rank, which died, hangs or cannot be reached "
                f"({str(error).splitlines()[0][:200]}); resume the run from its last checkpoint"
            ) from None
