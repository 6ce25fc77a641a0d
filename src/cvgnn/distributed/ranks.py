"""The ranks of a run and what they exchange; every sum is taken in an order that their number does not change."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from cvgnn.errors import CvgnnError, require

_SURVIVORS_REPORT = 10.0  # seconds within which the other ranks have noticed the same loss


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


def end_process(code: int) -> None:
    """End this process at once if it is one of several ranks; its work must be done and its files closed.

    An orderly exit of Python aborts now and then in a thread of torch ("terminate called without an active exception",
    3 of 16 runs of two ranks on a busy machine), and torchrun would call the finished run failed.
    """
    if world_size() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@final
class Ranks:
    """This process among those of the run.

    RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from torchrun. Under `srun` the user exports the last two, and
    Slurm's own variables give the others.

    Args:
        timeout: seconds after which a rank that does not answer ends the run.
    """

    def __init__(self, timeout: float = 300.0) -> None:
        self.rank, self.size = 0, 1
        self.bytes_sent = 0
        self.messages = 0
        self.hosts = [socket.gethostname()]
        self._store: Any = None
        if world_size() > 1:
            limit = timedelta(seconds=timeout)
            try:
                self._store, self.rank, self.size = next(rendezvous("env://", timeout=limit))
                self._store.set_timeout(limit)
                dist.init_process_group("gloo", store=self._store, rank=self.rank, world_size=self.size, timeout=limit)
            except (RuntimeError, ValueError) as error:
                at = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
                raise CvgnnError(
                    f"rank {os.environ.get('RANK')} on {self.hosts[0]} did not meet the other ranks at {at} within "
                    f"{timeout:g} s ({_first_line(error)}); check that all of them run and reach this address"
                ) from None
            self.hosts = self.exchange(self.hosts[0])

    def close(self) -> None:
        """Leave the group."""
        if self.size > 1:
            with suppress(RuntimeError):  # a broken connection has been reported
                if sys.exc_info()[0] is None:
                    dist.barrier()  # nobody leaves while another still reads
                dist.destroy_process_group()

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

    def exchange(self, value: Any) -> list[Any]:
        """A JSON value of every rank. (Not torch's `all_gather_object`, which unpickles what it receives.)"""
        if self.size == 1:
            return [value]
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        counts = self.counts(data.numel())
        return [json.loads(bytes(part.tolist())) for part in torch.split(self.gather(data, counts), counts)]

    def require_equal(self, what: dict[str, Any]) -> None:
        """Refuse a rank that has other data, options or versions than rank 0, naming the difference."""
        everybody = self.exchange(what)
        for rank, theirs in enumerate(everybody):
            different = [name for name in what if theirs.get(name) != everybody[0].get(name)]
            require(
                not different,
                f"rank {rank} on {self.hosts[rank]} differs from rank 0 on {self.hosts[0]}: "
                + "; ".join(f"{name} is {theirs.get(name)!r}, not {everybody[0].get(name)!r}" for name in different),
            )

    def _count(self, elements: int, like: Tensor) -> None:
        self.bytes_sent += elements * like.element_size()
        self.messages += self.size - 1

    @contextmanager
    def _naming_the_failure(self) -> Iterator[None]:
        """Raise errors of the network as a `CvgnnError` that names the lost ranks and their hosts."""
        try:
            yield
        except RuntimeError as error:
            raise CvgnnError(
                f"rank {self.rank} on {self.hosts[min(self.rank, len(self.hosts) - 1)]} lost {self._lost()}, which "
                f"died, hangs or cannot be reached ({_first_line(error)}); continue the run from its last checkpoint "
                "with --resume, on any number of ranks that divides the shards"
            ) from None

    def _lost(self) -> str:
        """The ranks that do not say, within some seconds, that they have lost somebody."""
        lost = list(range(self.size))
        try:
            self._store.set(f"survivor/{self.rank}", "")
            deadline = time.monotonic() + _SURVIVORS_REPORT
            while lost and time.monotonic() < deadline:
                lost = [rank for rank in lost if not self._store.check([f"survivor/{rank}"])]
                time.sleep(0.1)
        except RuntimeError:  # the host of the store is gone
            return "another rank"
        names = [f"rank {rank} on {self.hosts[rank]}" for rank in lost if rank < len(self.hosts)]
        return " and ".join(names) if 0 < len(names) < self.size else "another rank"


def world_size() -> int:
    """How many ranks the launcher started; 1 without one."""
    environment = os.environ
    # Slurm sets its variables also where no rank is meant to meet others: an address says that they are.
    if "RANK" not in environment and "SLURM_PROCID" in environment and "MASTER_ADDR" in environment:
        environment["RANK"], environment["WORLD_SIZE"] = environment["SLURM_PROCID"], environment["SLURM_NTASKS"]
        environment.setdefault("MASTER_PORT", "29500")
    return int(environment.get("WORLD_SIZE", "1"))


def _first_line(error: Exception) -> str:
    """The first sentence of an error of gloo, which begins with a line of its source."""
    text = re.sub(r"^\[[^]]*\] ", "", (str(error).splitlines() or [type(error).__name__])[0])
    return text.partition(". ")[0][:200].rstrip(".")
