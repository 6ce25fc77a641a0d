"""A run on several ranks: what its processes tell each other, and the log file of each."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, final

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from cvgnn.config import GraphSource, TrainConfig
from cvgnn.data import Graph
from cvgnn.distributed.partition import Partition
from cvgnn.distributed.ranks import Ranks, world_size
from cvgnn.distributed.sharded_trainer import build_sharded_trainer, check_sharded
from cvgnn.errors import CvgnnError, require
from cvgnn.training.callbacks import Callback, line
from cvgnn.training.machine import describe_machine, peak_rss_bytes
from cvgnn.training.parts import Parts
from cvgnn.training.processes import Processes
from cvgnn.training.trainer import EpochRecord, Trainer
from cvgnn.training.trainer_builder import NO_PARTS, build_model, build_task
from cvgnn.utils.formatting import format_bytes
from cvgnn.utils.stop_signals import handling

T = TypeVar("T")
_log = logging.getLogger("cvgnn")
_AFTER_A_FAILURE = 60.0  # seconds after which the last of the others has ended, or hangs


@final
class ShardedProcesses(Processes):
    """The ranks that train on a partitioned graph.

    Args:
        partition: the graph.
        ranks: the processes.
    """

    def __init__(self, partition: Partition, ranks: Ranks) -> None:
        self._partition, self.ranks, self.rank = partition, ranks, ranks.rank
        self.shards = partition.own_numbers(ranks.rank, ranks.size)

    def graph(self, source: GraphSource, task: str) -> Graph:
        """The graph without its edges and features, which are in the shards. A task that needs these is refused."""
        require(
            task not in ("edge", "link", "graph"),
            f"a partitioned graph cannot be trained with task {task!r}, whose items are not nodes",
        )
        default = GraphSource(graph=source.graph)
        given = [name for name, value in source.to_dict().items() if value != default.to_dict()[name]]
        require(not given, f"a partitioned graph is as it was partitioned, so {', '.join(given)} would do nothing")
        return self._partition.graph

    def check(self, config: TrainConfig, *, ranks: int) -> None:
        """Refuse, before any work, what cannot be trained on shards or on so many ranks."""
        self._partition.own_numbers(0, ranks)
        task = build_task(self._partition.graph, config)
        with torch.device("meta"):
            model = build_model(task, config, dtype=self._partition.graph.x.dtype)
        check_sharded(self._partition, config, model, task, NO_PARTS)

    def require_equal(self, options: dict[str, Any]) -> None:
        """Refuse, before any work, a rank with other data, options or versions."""
        machine = describe_machine()
        versions = {name: machine[name] for name in ("python", "torch", "numpy", "numba", "cvgnn", "code")}
        self.ranks.require_equal({**versions, "partition": self._partition.sha256, **options})

    def exchange(self, value: Any) -> list[Any]:
        """See `Processes.exchange`."""
        return self.ranks.exchange(value)

    def most(self, number: int) -> int:
        """See `Processes.most`."""
        return max(self.ranks.counts(number))

    def together(self, action: Callable[[], T]) -> list[T]:
        """See `Processes.together`."""
        if self.ranks.size == 1:
            return [action()]
        result, failure = None, ""
        try:
            result = action()
        except (OSError, ValueError) as error:
            failure = f"rank {self.rank} on {self.ranks.hosts[self.rank]}: {error}"
        everybody = self.ranks.exchange([result, failure])
        if failures := [failure for _, failure in everybody if failure]:
            raise OSError("; ".join(failures))
        return [result for result, _ in everybody]

    def threads(self, graph: Graph, config: TrainConfig) -> int:
        """One: ranks share the cores of a machine."""
        return 1

    def digest(self, graph: Graph, source: GraphSource) -> str:
        """SHA-256 of the partition, with the number of its shards; the number of ranks does not count."""
        return self._partition.sha256

    def verify(self, source: GraphSource) -> None:
        """Check the bytes of the own shards on disk."""
        self._partition.verify(self.shards)

    def build_trainer(
        self, graph: Graph, config: TrainConfig, *, parts: Parts, initialize: bool, scratch: Path | None
    ) -> Trainer:
        """See `build_sharded_trainer`."""
        return build_sharded_trainer(
            self._partition, config, self.ranks, parts=parts, initialize=initialize, scratch=scratch
        )


class _LogFile(logging.FileHandler):
    """A log file whose lines are lost on a full disk: that must not end the run."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing."""


@final
class RankLog(Callback):
    """The log of one rank, in a file of its own in the folder of the run.

    Args:
        folder: of the run.
        processes: the ranks.
    """

    def __init__(self, folder: Path, processes: ShardedProcesses) -> None:
        ranks = processes.ranks
        self._file, self._ranks = folder / f"rank-{ranks.rank}.log", ranks
        self._handler: logging.Handler = logging.NullHandler()

    def on_start(self, trainer: Trainer, records: Sequence[EpochRecord]) -> None:
        """Open the file."""
        try:
            self._handler = _LogFile(self._file, encoding="utf-8")
        except OSError as error:
            raise CvgnnError(
                f"rank {self._ranks.rank} on {self._ranks.hosts[self._ranks.rank]} cannot write {self._file}: "
                f"{error.strerror}; the folder of a run must be on a file system that all ranks see"
            ) from None
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        _log.addHandler(self._handler)
        ranks = self._ranks
        self._write(f"rank {ranks.rank} of {ranks.size} on {ranks.hosts[ranks.rank]}, step {trainer.iterations}")

    def on_epoch(self, trainer: Trainer, record: EpochRecord) -> None:
        """Write a line."""
        self._write(f"epoch {record.epoch}  {line(record)}  {self._ranks.bytes_sent} bytes sent")

    def on_end(self, trainer: Trainer, error: BaseException | None) -> None:
        """Write how the run ended, and close the file."""
        peak = f"peak memory {format_bytes(peak_rss_bytes())}"
        self._write(f"ended after step {trainer.iterations}, {peak}" + ("" if error is None else f": {error}"))
        _log.removeHandler(self._handler)
        with suppress(OSError):
            self._handler.close()

    def _write(self, text: str) -> None:
        self._handler.handle(logging.LogRecord("cvgnn", logging.INFO, "", 0, text, None, None))


def check_ranks(path: Path | None, wanted: int) -> None:
    """Refuse several ranks without a partitioned graph, and `--ranks` that are not those which run."""
    found = world_size()
    require(
        path is not None or max(wanted, found) == 1,
        "several ranks work on a partitioned graph; make one with 'cvgnn partition' and name it with --graph",
    )
    require(1 in (found, wanted) or found == wanted, f"{found} ranks run; leave --ranks out")


def launch(ranks: int, arguments: Sequence[str]) -> int:
    """Start `cvgnn ARGUMENTS` on several ranks of this machine; returns the exit code of the first that failed, or 0.

    Not by torchrun, which prints a traceback of its own where a rank fails or a signal stops the run, and kills ranks
    that take more than 30 s to save.
    """
    # In this process, as torchrun's store is in its own: so the system chooses a port that is free.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {
        # One thread a rank, and no spinning: ranks that wait must not take the cores of those that compute.
        "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", **os.environ,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": str(True),
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
    }  # fmt: skip
    command = [sys.executable, "-m", "cvgnn", *arguments]
    processes: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: FrameType | None) -> None:
        for process in processes:
            process.send_signal(number)

    with handling(forward):
        for rank in map(str, range(ranks)):
            own = {**environment, "RANK": rank, "LOCAL_RANK": rank}
            # In a session of its own: Ctrl-C comes from here, and not from the terminal, too.
            processes.append(subprocess.Popen(command, env=own, start_new_session=True))
        end = math.inf
        while None in (codes := [process.poll() for process in processes]):
            if any(codes):  # the others notice, but for one that hangs
                end = min(end, time.monotonic() + _AFTER_A_FAILURE)
            if time.monotonic() > end:
                forward(signal.SIGKILL, None)
            time.sleep(0.1)
    return next((code if code > 0 else 128 - code for code in codes if code), 0)
