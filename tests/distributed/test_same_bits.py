"""The number of ranks changes no bit: weights, histories and metrics under torchrun, beside those of one process."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.messages import epoch_messages

from cvgnn.config import TrainConfig
from cvgnn.distributed.cost import sent_bytes
from cvgnn.distributed.partition import Partition, partition_graph
from cvgnn.distributed.ranks import Ranks
from tests.distributed.rank_main import COUNTED, STEPS, train_cases
from tests.distributed.test_sharded_trainer import small_graph

BASE = {"epochs": 2, "batch_size": 32, "hidden": 6, "num_neighbors": 2, "norm": "layer"}
FEW: list[dict[str, Any]] = [
    {**BASE},
    {**BASE, "estimator": "cv", "layers": 3, "optimizer": "amsgrad"},
    {**BASE, "estimator": "ns", "layers": 3, "optimizer": "sgd", "ema": 0.9},
    {**BASE, "estimator": "exact", "layers": 1, "optimizer": "adagrad"},
    {**BASE, "model": "sage", "residual": True, "history_dtype": "bfloat16"},
]
OPTIMIZERS = ("sgd", "heavy-ball", "adam", "amsgrad", "adagrad", "adamw", "nadam")
ALL = [
    *({**BASE, "estimator": e, "layers": K} for e in ("cvd", "cv", "ns", "exact") for K in (1, 2, 3)),
    *({**BASE, "optimizer": name} for name in OPTIMIZERS),
]


def torchrun(ranks: int, *arguments: str) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--rdzv-backend", "c10d"]
    return [sys.executable, *launcher, "--rdzv-endpoint", "localhost:0", "-m", *arguments]


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


def on_ranks(ranks: int, folder: Path, cases: list[dict[str, Any]]) -> list[Any]:
    command = torchrun(ranks, "tests.distributed.rank_main", str(folder), json.dumps(cases))
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (sent,) = [json.loads(line)["sent"] for line in done.stdout.splitlines() if line.startswith("{")]
    compare_messages(ranks, Partition(folder / "gcn"), sent)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def compare_messages(ranks: int, partition: Partition, sent: list[list[int]]) -> None:
    """Bytes and messages that the ranks have counted are those of the simulation, and their mean that of the model."""
    for case, counted_bytes, counted_messages in zip(COUNTED, sent[::2], sent[1::2], strict=True):
        config, vote = TrainConfig(**case), STEPS * (ranks - 1)  # of a run in a folder: in a step, whether to save
        simulated = epoch_messages(partition, config, [ranks])[ranks]
        assert simulated.sum(axis=(0, 1, 3)).tolist() == [each + 8 * vote for each in counted_bytes]
        assert np.count_nonzero(simulated, axis=(0, 1, 3)).tolist() == [each + vote for each in counted_messages]
        if config.layers < 3:  # the model knows no targets that several nodes have drawn
            assert simulated.sum() / STEPS / ranks == pytest.approx(sent_bytes(partition, config, ranks), rel=0.05)


def compare(tmp_path: Path, cases: list[dict[str, Any]], counts: tuple[int, ...], **kind: Any) -> None:
    graph = small_graph(**kind)
    if not kind:
        graph = dataclasses.replace(graph, x=graph.x.float(), validated=True)  # type: ignore[union-attr]
    partition_graph(graph, tmp_path / "gcn", shards=8, method="stream")
    partition_graph(graph, tmp_path / "sage", shards=8, method="stream", propagate="mean")
    alone = json.loads(json.dumps(list(train_cases(tmp_path, cases, Ranks()))))
    # The cases differ, so equality says something; one layer is the same for every estimator, and Adam is the default.
    same = {json.dumps(case.get("estimator")) for case in cases if case.get("layers") == 1}
    distinct = len({json.dumps(result[0]) for result in alone})
    assert distinct >= len(cases) - max(0, len(same) - 1) - 1
    for ranks in counts:
        assert on_ranks(ranks, tmp_path, cases) == alone


def test_two_and_four_ranks_end_with_the_bits_of_one(tmp_path: Path) -> None:
    compare(tmp_path, FEW, (2, 4))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [{}, {"sparse": True}, {"weighted": True}])
def test_every_estimator_depth_and_optimizer_on_two_four_and_eight_ranks(tmp_path: Path, kind: dict[str, Any]) -> None:
    compare(tmp_path, ALL if not kind else FEW, (2, 4, 8), **kind)
