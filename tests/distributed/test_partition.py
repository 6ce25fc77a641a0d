from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cvgnn.data import Graph, Propagation
from cvgnn.distributed.partition import METHODS, Partition, partition_graph
from cvgnn.errors import CvgnnError
from tests.distributed.test_sharded_trainer import small_graph


@pytest.mark.parametrize("method", METHODS)
def test_shards_hold_the_graph(tmp_path: Path, method: Any) -> None:
    if method == "metis":
        pytest.importorskip("pymetis", reason="pymetis is not installed")
    graph = small_graph(weighted=True)
    balance = partition_graph(graph, tmp_path / "p", shards=4, method=method)
    partition = Partition(tmp_path / "p")
    n, order = graph.num_nodes, np.asarray(partition.graph.node_names)
    assert sorted(order) == list(range(n))
    A, PX = np.zeros((n, n)), Propagation(graph).product(graph.x)  # type: ignore[arg-type]
    seen = np.zeros(n, dtype=int)
    for s in range(4):
        shard = partition.shard(s)
        indptr, indices, weight = shard.columns
        rows = np.repeat(np.arange(n), np.diff(indptr))
        A[rows, shard.low + indices] = weight
        assert np.array_equal(shard.before, seen)
        seen += np.diff(indptr)
        ids = torch.from_numpy(order[shard.low : shard.high].astype(np.int64))
        assert isinstance(shard.x, torch.Tensor)
        assert isinstance(shard.PX, torch.Tensor)
        assert torch.equal(shard.x, graph.x[ids])  # type: ignore[index]
        assert torch.equal(shard.PX, PX[ids])
    assert np.array_equal(A, dense(graph)[np.ix_(order, order)])
    assert np.array_equal(partition.graph.degree, graph.degree[order])
    assert torch.equal(partition.graph.y, graph.y[order])
    for split in ("train_ids", "val_ids", "test_ids"):
        mine, theirs = getattr(partition.graph, split), getattr(graph, split)
        assert sorted(order[mine]) == theirs.sort().values.tolist()
    owner = np.searchsorted(partition.starts, np.arange(n), side="right")
    rows, columns = A.nonzero()
    assert balance.edge_cut == (owner[rows] != owner[columns]).mean()
    assert max(balance.nodes, balance.edges, balance.train) < 1.6
    partition.verify(range(4))


def dense(graph: Graph) -> np.ndarray:
    A = np.zeros((graph.num_nodes, graph.num_nodes))
    assert graph.edge_weight is not None
    A[np.repeat(np.arange(graph.num_nodes), graph.degree), graph.indices] = graph.edge_weight
    return A


def test_stream_joins_neighbors() -> None:
    """Two cliques whose nodes alternate: one pass puts each into a shard of its own, `range` cuts half the edges."""
    from cvgnn.ops.shard_kernels import stream_partition

    n = 40
    neighbors = [[u for u in range(n) if u % 2 == v % 2 and u != v] for v in range(n)]
    indptr = np.arange(n + 1, dtype=np.int64) * (n // 2 - 1)
    part = np.full(n, -1, dtype=np.int32)
    stream_partition(indptr, np.concatenate(neighbors).astype(np.int32), np.ones(n), 2, 1.05 * n / 2, part)
    assert np.array_equal(part, np.arange(n) % 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 6}, "shards must be a power of two, such as 8, not 6"),
        ({"shards": 256}, "shards must be at most the number of nodes, 200, not 256"),
        ({"method": "luck"}, "unknown method 'luck'"),
        ({"propagate": "max"}, "unknown propagate 'max'"),
    ],
)
def test_what_cannot_be_partitioned_is_refused(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
        partition_graph(small_graph(), tmp_path / "p", **options)
    assert not (tmp_path / "p").exists()


def test_a_used_folder_and_a_damaged_header_are_refused(tmp_path: Path) -> None:
    graph = small_graph()
    partition_graph(graph, tmp_path / "p", shards=2)
    with pytest.raises(CvgnnError, match="is not empty; choose another"):
        partition_graph(graph, tmp_path / "p", shards=2)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]  # nothing is left of the attempt
    with pytest.raises(CvgnnError, match="3 ranks cannot share 2 shards"):
        Partition(tmp_path / "p").own_numbers(0, 3)
    file = tmp_path / "p" / "shard-0001" / "PX.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CvgnnError, match=r"the SHA-256 of shard-0001/PX\.npy"):
        Partition(tmp_path / "p").verify([1])
    Partition(tmp_path / "p").verify([0])
    header = tmp_path / "p" / "partition.json"
    header.write_text(header.read_text().replace('"stream"', '"range"'))
    with pytest.raises(CvgnnError, match=r"partition.json is damaged"):
        Partition(tmp_path / "p")
    with pytest.raises(CvgnnError, match="is no partitioned graph; make one with 'cvgnn partition'"):
        Partition(tmp_path)


def test_metis_without_pymetis_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pymetis", None)
    with pytest.raises(CvgnnError, match=r"pip install 'cvgnn\[partition\]', or use method 'stream'"):
        partition_graph(small_graph(), tmp_path / "p", shards=2, method="metis")


def test_labels_elsewhere_are_refused(tmp_path: Path) -> None:
    graph = dataclasses.replace(small_graph(), graph_ids=torch.zeros(200, dtype=torch.int64), validated=True)
    with pytest.raises(CvgnnError, match="only graphs with labels at nodes are partitioned"):
        partition_graph(graph, tmp_path / "p")
