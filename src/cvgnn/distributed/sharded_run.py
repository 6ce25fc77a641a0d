"""A run on several ranks: what its processes tell each other, and the log file of each."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, final

import torch

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

T = TypeVar("T")
_log = logging.getLogger("cvgnn")


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
    """Refuse several ranks without a partitioned graph, and `--ranks` that are not those which torchrun started."""
    found = world_size()
    require(
        path is not None or max(wanted, found) == 1,
        "several ranks work on a partitioned graph; make one with 'cvgnn partition' and name it with --graph",
    )
    require(1 in (found, wanted) or found == wanted, f"{found} ranks run; leave --ranks out")


def launch(ranks: int, arguments: Sequence[str]) -> int:
    """Start `cvgnn ARGUMENTS` on several ranks of this machine, by torchrun; returns its exit code."""
    # One thread a rank, and no spinning: ranks that wait for each other must not take the cores of those that compute.
    quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    # torchrun asks every 0.1 s whether the ranks run, and takes 5 % of their time for that.
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--monitor-interval", "1"]
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command = [sys.executable, *torchrun, *rendezvous, "-m", "cvgnn", *arguments]
    process = subprocess.Popen(command, env={**quiet, **os.environ})
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the ranks got it too: they save and stop
            continue
