"""One rank of a run, for the tests: trains on a partition and prints the SHA-256 of weights and histories."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from cvgnn.config import TrainConfig
from cvgnn.distributed.partition import Partition
from cvgnn.distributed.ranks import Ranks
from cvgnn.distributed.sharded_trainer import build_sharded_trainer
from cvgnn.training.machine import thread_count
from cvgnn.training.resume import tensor_bytes
from cvgnn.utils.process_end import end_process

STEPS = 3
"""Equal batches in an epoch of `COUNTED`."""
COUNTED: list[dict[str, Any]] = [
    {"epochs": 1, "batch_size": 30, "hidden": 6, "num_neighbors": 2, "layers": K} for K in (1, 2, 3)
]
"""Runs whose messages are counted."""


def train_cases(folder: Path, cases: list[dict[str, Any]], ranks: Ranks) -> Iterator[list[Any]]:
    """For each case the SHA-256 of the weights and of the histories of all shards, and the metrics."""
    for case in cases:
        config = TrainConfig(**case)
        with thread_count(1):
            trainer = build_sharded_trainer(Partition(folder / case.get("model", "gcn")), config, ranks)
            metrics = [record.metrics for record in trainer.epochs(config.epochs)]
        weights, histories = (_digests(m.state_dict()) for m in (trainer.model, trainer.estimator))
        yield [weights, sorted(h for each in ranks.exchange(histories) for h in each), metrics]


def epoch_bytes(folder: Path, ranks: Ranks) -> list[list[int]]:
    """Bytes and messages that each rank sends in the epoch of each of `COUNTED`."""
    counted = []
    for case in COUNTED:
        trainer = build_sharded_trainer(Partition(folder / "gcn"), TrainConfig(**case), ranks)
        before = ranks.bytes_sent, ranks.messages
        trainer.train_epoch(1)
        sent = ranks.bytes_sent - before[0], ranks.messages - before[1]
        counted += [ranks.counts(number) for number in sent]
    return counted


def _digests(tensors: dict[str, torch.Tensor]) -> list[str]:
    return [f"{name} {hashlib.sha256(b''.join(tensor_bytes(t))).hexdigest()}" for name, t in tensors.items()]


def main(folder: str, cases: str) -> None:
    ranks = Ranks(timeout=120)
    if ranks.size > 1:
        sent = epoch_bytes(Path(folder), ranks)  # the same on every rank; two that print at once mix their lines
        if ranks.rank == 0:
            print(json.dumps({"sent": sent}), flush=True)
    for result in train_cases(Path(folder), json.loads(cases), ranks):
        if ranks.rank == 0:
            print(json.dumps(result), flush=True)
    ranks.close()
    end_process(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
