"""Training on shards equals training on the whole graph, whatever the shards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from cvgnn.config import TrainConfig
from cvgnn.data import Graph
from cvgnn.data.named.synthetic import SyntheticSpec, generate
from cvgnn.distributed.partition import Partition, partition_graph
from cvgnn.distributed.ranks import Ranks
from cvgnn.distributed.sharded_trainer import build_sharded_trainer
from cvgnn.training.trainer import Trainer
from cvgnn.training.trainer_builder import build_trainer
from tests.data.store.cases import sparse_features


def small_graph(*, sparse: bool = False, weighted: bool = False) -> Graph:
    import dataclasses

    spec = SyntheticSpec(num_nodes=200, num_edges=1600, num_features=10, num_classes=4, train=90, val=40, test=70)
    graph = generate(spec)
    assert isinstance(graph.x, torch.Tensor)
    x: Any = graph.x.double()
    if sparse:
        x = sparse_features(torch.where(x.abs() > 0.8, x, 0.0))
    weight = None
    if weighted:
        row = torch.repeat_interleave(torch.arange(200), graph.degree)
        weight = (1.0 + ((graph.indices + row) % 5)).double()
    return dataclasses.replace(graph, x=x, edge_weight=weight, validated=True)


CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({}, {"estimator": "cv", "layers": 3}),
    ({}, {"estimator": "ns", "layers": 3, "residual": True}),
    ({}, {"estimator": "exact", "layers": 2}),
    ({}, {"layers": 1}),
    ({"weighted": True}, {"model": "sage", "layers": 3, "jk": "concat"}),
    ({"sparse": True}, {"input_dropout": 0.3}),
    ({"sparse": True, "weighted": True}, {"model": "gin"}),
    ({}, {"model": "gcnii", "layers": 3}),
    ({}, {"optimizer": "heavy-ball", "form": "paper", "scheme": "with-replacement", "batches": "replacement"}),
]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_shards_equal_the_whole_graph(
    tmp_path: Path, kind: dict[str, Any], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = small_graph(**kind)
    config = TrainConfig(**{"epochs": 3, "batch_size": 32, "hidden": 6, "num_neighbors": 2, "norm": "layer", **options})
    normalization = {"sage": "mean", "gin": "sum"}.get(config.model, "symmetric")
    partition_graph(graph, tmp_path / "p", shards=8, method="range", propagate=normalization)  # type: ignore[arg-type]
    sharded = build_sharded_trainer(Partition(tmp_path / "p"), config, Ranks())
    sharded_records = list(sharded.epochs(3))

    def node_ids(estimator: Any, k: int, batch: Any) -> torch.Tensor:
        if k == 0:
            return batch.inputs
        return (
            batch.blocks[k - 1].sources
            if k <= len(batch.blocks)
            else (batch.blocks[-1].targets if batch.blocks else batch.inputs)
        )

    whole = build_trainer(graph, config)
    monkeypatch.setattr(type(whole.estimator), "row_numbers", node_ids)  # masks by node id, as with shards
    records = list(whole.epochs(3))
    close(sharded, whole)
    assert [r.metrics for r in sharded_records] == [r.metrics for r in records]


def test_a_rank_imports_no_sympy(tmp_path: Path) -> None:
    code = """
import sys
from cvgnn.cli.main import main
assert main(["train", "--graph", "p", "--out", "r", "--quiet", "--model", "sage", "--epochs", "1"]) == 0
print(*{"sympy", "torch._dynamo"} & set(sys.modules))
"""
    partition_graph(small_graph(), tmp_path / "p", shards=2, method="range", propagate="mean")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""  # sympy and what imports it would take 35 MiB of each rank


def close(a: Trainer, b: Trainer) -> None:
    for (name, mine), theirs in zip(a.model.state_dict().items(), b.model.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10, msg=name)
