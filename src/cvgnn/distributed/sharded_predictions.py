"""Exact outputs of a finished run for all nodes of a partitioned graph, computed by all ranks."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import torch

from cvgnn.config import GraphSource
from cvgnn.distributed.partition import Partition
from cvgnn.distributed.ranks import Ranks
from cvgnn.distributed.sharded_run import ShardedProcesses
from cvgnn.distributed.sharded_trainer import build_sharded_network, check_sharded
from cvgnn.training.machine import thread_count
from cvgnn.training.run import Outputs, Run, read_run
from cvgnn.training.trainer_builder import NO_PARTS


def read_sharded_run(path: Path, partition: Partition, ranks: Ranks) -> Run:
    """A finished run on a partitioned graph. On rank 0 it has the outputs for all nodes, in the order of the partition.

    No rank holds more than its own nodes' hidden representations; rank 0 holds `[N, out_channels]`.

    Args:
        path: folder of the run, trained on this graph, partitioned or not.
        partition: the graph.
        ranks: the processes.
    """
    run = read_run(path, partition.graph, source=GraphSource(graph=partition.path))
    check_sharded(partition, run.config, run.model, run.task, NO_PARTS)
    weights = hashlib.sha256((path / "weights.safetensors").read_bytes()).hexdigest()
    ShardedProcesses(partition, ranks).require_equal({**run.config.to_dict(), "weights": weights})
    network = build_sharded_network(partition, run.config, run.model, ranks, histories=False)
    with thread_count(1):  # as in training: the bits of a product depend on the threads
        *_, (_, outputs) = network.exact()
    counts = np.diff(partition.starts).reshape(ranks.size, -1).sum(axis=1).tolist()
    return dataclasses.replace(run, known=Outputs([], ranks.collect(torch.cat(outputs), counts)))
