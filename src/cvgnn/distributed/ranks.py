"""The ranks of a run and what they exchange; every sum is taken in an order that their number does not change."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from cvgnn.errors import CvgnnError, require

_SURVIVORS_REPORT = 10.0  # seconds within which the other ranks have noticed the same loss
_AFTER_THE_LAST = 2.0  # seconds after one has said so within which the next does
_MORE_THAN_THE_TIMEOUT = 10.0  # seconds after which a call of torch that has this time-out must have returned
RESUME = "continue the run from its last checkpoint with --resume, on any number of ranks that divides the shards"
T = TypeVar("T")


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


def nothing() -> None:
    """There is nothing to do while the ranks send."""


@final
class Ranks:
    """This process among those of the run.

    RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from torchrun. Under `srun` the user exports the last two, and
    Slurm's own variables give the others.

    Args:
        timeout: seconds after which a rank that does not answer ends the run.
        advice: what to do where a rank is lost.
    """

    def __init__(self, timeout: float = 300.0, *, advice: str = RESUME) -> None:
        self.rank, self.size, self._advice = 0, 1, advice
        self.bytes_sent = 0
        self.messages = 0
        self.hosts = [socket.gethostname()]
        self._store: Any = None
        self._peer = 0  # the rank to which the present operation sends, or from which it receives
        self._pending: list[list[tuple[int, Any]]] = []  # operations that were begun, with their peers
        if world_size() > 1:
            limit = timedelta(seconds=timeout)
            _keep_to_own_cores()
            try:
                # A port that another program listens at accepts the connection and never answers.
                store, self.rank, self.size = _within(
                    timeout + _MORE_THAN_THE_TIMEOUT, lambda: next(rendezvous("env://", timeout=limit))
                )
                store.set_timeout(limit)
                self._store = _store_of_attempt(store, self.rank, self.size, timeout)
                dist.init_process_group("gloo", store=self._store, rank=self.rank, world_size=self.size, timeout=limit)
            except (RuntimeError, ValueError, TimeoutError) as error:
                at = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
                raise CvgnnError(
                    f"rank {os.environ.get('RANK')} on {self.hosts[0]} did not meet the other ranks at {at} within "
                    f"{timeout:g} s ({_first_line(error)}); check that all of them run and reach this address"
                ) from None
            _let_gloo_wait()
            self.hosts = self.exchange(self.hosts[0])

    def close(self) -> None:
        """Leave the group."""
        if self.size > 1 and dist.is_initialized():
            with suppress(RuntimeError):  # a broken connection has been reported
                if sys.exc_info()[0] is None:
                    dist.barrier()  # nobody leaves while another still reads
                dist.destroy_process_group()

    def to_owners(self, rows: Tensor, counts: Sequence[int], meanwhile: Callable[[], object] = nothing) -> list[Tensor]:
        """Send to each rank its rows; returns this rank's rows from every rank, in the order of the ranks.

        Args:
            rows: `[sum(counts), d]`, ordered by rank.
            counts: rows of each rank.
            meanwhile: called while the ranks send.
        """
        parts = list(torch.split(rows.contiguous(), list(counts)))
        mine = parts[self.rank]
        received = [mine if rank == self.rank else torch.empty_like(mine) for rank in range(self.size)]
        arrived = self._swap(parts, received)
        meanwhile()
        arrived()
        return received

    def gather(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of every rank, in the order of the ranks, on every rank."""
        if self.size == 1:
            return rows
        everything = rows.new_empty((sum(counts), *rows.shape[1:]))
        received = list(torch.split(everything, list(counts)))
        received[self.rank].copy_(rows)
        self._swap([rows.contiguous()] * self.size, received)()
        return everything

    def collect(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of every rank, in the order of the ranks, on rank 0; on the others their own rows."""
        none, first = [rows[:0]] * self.size, self.rank == 0
        everything = rows.new_empty((sum(counts), *rows.shape[1:])) if first and self.size > 1 else rows
        received = list(torch.split(everything, list(counts))) if first else none
        if first and self.size > 1:
            received[0].copy_(rows)
        self._swap(none if first else [rows.contiguous(), *none[1:]], received)()
        return everything

    def sum(self, vector: Tensor) -> Tensor:
        """The sum over the ranks of a vector, as `tree_sum` adds, on every rank."""
        n = vector.numel()
        if self.size <= 2:
            return tree_sum(torch.split(self.gather(vector, [n] * self.size), n))
        # Each rank adds a part of the vector: 2 (R-1)/R n numbers are sent and not n.
        counts = [(rank + 1) * n // self.size - rank * n // self.size for rank in range(self.size)]
        return self.gather(tree_sum(self.to_owners(vector, counts)), counts)

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

    def _swap(self, sent: Sequence[Tensor], received: Sequence[Tensor]) -> Callable[[], None]:
        """Send a tensor to each other rank and receive one from each, in the background; returns what waits for them.

        Point to point, because gloo's collectives take two and a half times as long for such messages.
        """
        works: list[tuple[int, Any]] = []
        self._pending.append(works)
        others = [rank for rank in range(self.size) if rank != self.rank]
        with self._naming_the_failure():
            for rank in others:
                self._peer = rank
                if received[rank].numel():
                    works.append((rank, dist.irecv(received[rank], rank)))
            for rank in others:
                self._peer = rank
                if sent[rank].numel():
                    works.append((rank, dist.isend(sent[rank], rank)))
                    self.bytes_sent += sent[rank].nbytes
                    self.messages += 1

        def wait() -> None:
            with self._naming_the_failure():
                while works:
                    self._peer = works[0][0]
                    works[0][1].wait()
                    del works[0]
            self._pending.remove(works)
            sent, received  # noqa: B018  # alive until here: gloo reads and writes their memory

        return wait

    @contextmanager
    def _naming_the_failure(self) -> Iterator[None]:
        """Raise errors of the network as a `CvgnnError` that names the lost ranks and their hosts."""
        try:
            yield
        except RuntimeError as error:
            raise CvgnnError(
                f"{self._named(self.rank)} lost {self._lost(error)}, which "
                f"failed, died, hangs or cannot be reached ({_first_line(error)}); {self._advice}"
            ) from None

    def _lost(self, error: Exception) -> str:
        """The ranks that are lost, with their hosts."""
        if self.size == 2:
            return self._named(1 - self.rank)
        try:
            # Where the store's host is gone, a call of the store waits without a limit.
            lost = _within(_SURVIVORS_REPORT + 2 * _AFTER_THE_LAST, lambda: self._find_lost(error))
            if self.rank == 0 and not _torchrun_has_the_store():
                self._wait_for_the_others(lost)
        except (RuntimeError, TimeoutError):
            if _torchrun_has_the_store():
                return f"the host of torchrun's store, {os.environ['MASTER_ADDR']}"
            lost = [0]  # whose process has the store
        return " and ".join(map(self._named, lost)) or "another rank"

    def _named(self, rank: int) -> str:
        return f"rank {rank} on {self.hosts[rank]}" if len(self.hosts) == self.size else f"rank {rank}"

    def _find_lost(self, error: Exception) -> list[int]:
        """The ranks that are lost. Each survivor writes its answer into the store before it ends."""
        own = f"survivor/{self.rank}"
        self._store.set(own, "")
        if "Timed out" in str(error):
            lost = self._silent()
        else:  # the peer has closed the connection: it died, or it has lost another rank itself
            end = time.monotonic() + _AFTER_THE_LAST
            while (answer := self._answer(self._peer)) is None and time.monotonic() < end:
                time.sleep(0.05)
            lost = [self._peer] if answer is None else json.loads(answer) if answer else self._silent()
        self._store.set(own, json.dumps(lost))
        return lost

    def _wait_for_the_others(self, lost: Sequence[int]) -> None:
        """Keep the store, which ends with this process, until the survivors have asked it."""
        for works in self._pending:
            works.clear()  # or the connections would stay open
        dist.destroy_process_group()  # wakes those that wait for this rank
        left, end = [r for r in range(1, self.size) if r not in lost], time.monotonic() + _SURVIVORS_REPORT
        while not all(self._answer(rank) for rank in left) and time.monotonic() < end:
            time.sleep(0.05)

    def _answer(self, rank: int) -> str | None:
        """What a rank has written about lost ranks: empty as long as it asks, None before it has noticed."""
        key = f"survivor/{rank}"
        return self._store.get(key).decode() if self._store.check([key]) else None

    def _silent(self) -> list[int]:
        """The ranks that do not say, within some seconds, that they have lost somebody."""
        lost, start = list(range(self.size)), time.monotonic()
        last = start
        while lost and time.monotonic() < min(start + _SURVIVORS_REPORT, last + _AFTER_THE_LAST):
            silent = [rank for rank in lost if self._answer(rank) is None]
            if silent != lost:
                lost, last = silent, time.monotonic()
            time.sleep(0.1)
        return lost


def _store_of_attempt(store: Any, rank: int, size: int, timeout: float) -> Any:
    """The part of the store that only the present processes of the ranks use.

    torchrun keeps one store for all its restarts, in which a rank would find the addresses of processes that are gone
    (https://github.com/pytorch/pytorch/issues/135712); its count of restarts may differ between hosts. So each rank
    writes a random number, and rank 0 answers these numbers until all ranks have its own.
    """
    own, end = secrets.token_hex(8), time.monotonic() + timeout
    store.set(f"cvgnn/hello/{rank}", own)
    if rank > 0:
        first = store.get(f"cvgnn/welcome/{own}").decode()
        store.set(f"cvgnn/met/{first}/{rank}", "")
        return dist.PrefixStore(first, store)  # type: ignore[attr-defined]
    absent = set(range(1, size))
    while absent:
        for other in sorted(absent):
            if store.check([f"cvgnn/met/{own}/{other}"]):
                absent.remove(other)
            elif store.check([f"cvgnn/hello/{other}"]):  # perhaps that of an earlier process: asked again
                store.set(f"cvgnn/welcome/{store.get(f'cvgnn/hello/{other}').decode()}", own)
        if time.monotonic() > end:
            raise TimeoutError(f"ranks {sorted(absent)} are missing")
        time.sleep(0.01)
    return dist.PrefixStore(own, store)  # type: ignore[attr-defined]


def _torchrun_has_the_store() -> bool:
    """Whether the store is in a process of torchrun; else it is in that of rank 0."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)


def _within(seconds: float, action: Callable[[], T]) -> T:
    """What `action` returns; `TimeoutError` if that takes longer."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(action())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)


def _keep_to_own_cores() -> None:
    """Keep to this rank's share of the cores of its host, if there is at least one for each rank.

    Else the threads that receive would take the core of another rank while their own core is idle.
    """
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if sys.platform == "linux" and local > 1:
        cores = sorted(os.sched_getaffinity(0))
        if each := len(cores) // local:
            first = int(os.environ["LOCAL_RANK"]) * each
            os.sched_setaffinity(0, cores[first : first + each])


def _let_gloo_wait() -> None:
    """Let gloo's thread run when the core is free, instead of interrupting the thread that computes.

    While a thread sends, gloo's own polls for its lock without a pause. One that has interrupted the sender polls until
    its time slice ends, 3 ms later: a step of two ranks took 33 ms, and takes 22 ms this way.
    """
    if sys.platform == "linux":
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # a thread that has ended
                if (thread / "comm").read_text().startswith("gloo"):
                    os.sched_setscheduler(int(thread.name), os.SCHED_BATCH, os.sched_param(0))


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
    text = re.sub(r"^\[[^]]*\] ", "", (str(error).splitlines() or ["no answer"])[0])
    return text.partition(". ")[0][:200].rstrip(".")
