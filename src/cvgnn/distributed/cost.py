"""What a rank needs in memory and sends in a step, by the sizes of the graph and of the network."""

from __future__ import annotations

import torch

from cvgnn.config import TrainConfig
from cvgnn.distributed.partition import Partition
from cvgnn.distributed.sharded_network import network_parameters
from cvgnn.training.trainer_builder import build_model, build_task


def targets_of_layers(partition: Partition, config: TrainConfig) -> list[int]:
    """At most so many nodes have a sum in each sampled layer, from the last down; in the last, a batch has."""
    n, mean = partition.graph.num_nodes, partition.graph.num_edges / partition.graph.num_nodes
    sizes = [min(config.batch_size, partition.graph.train_ids.numel())]
    fan_outs = list(config.num_neighbors) * (config.layers if len(config.num_neighbors) == 1 else 1)
    for k in range(config.layers - 2, 0, -1):
        drawn = mean if config.estimator == "exact" or fan_outs[k] == -1 else min(mean, fan_outs[k])
        sizes.append(min(n, int(sizes[-1] * (1 + drawn))))
    return sizes[: max(0, config.layers - 1)]


def sent_bytes(partition: Partition, config: TrainConfig, ranks: int, targets: list[int] | None = None) -> float:
    """Bytes that a rank sends in a step, on average over the ranks.

    `(R-1)/R ((2 sum_k m_k d + B C + 2 |W|) s + 8 (sum over the lower m_k))`, with `s` bytes a number:
    partial sums to the owners of the targets and their gradients back, the outputs of the batch, the gradient of the
    weights, and the ids of the targets of the lower layers.

    Args:
        partition, config: of the run.
        ranks: `R`.
        targets: `m_k` from the last layer down, if they were counted.
    """
    if ranks == 1:
        return 0.0
    graph, m = partition.graph, targets or targets_of_layers(partition, config)
    task = build_task(graph, config)
    with torch.device("meta"):
        model = build_model(task, config, dtype=graph.x.dtype)
    weights = sum(parameter.numel() for parameter in network_parameters(model))
    batch, s = min(config.batch_size, graph.train_ids.numel()), graph.x.dtype.itemsize
    shared = (2 * sum(m) * config.hidden + batch * task.out_channels + 2 * weights) * s + 8 * sum(m[1:])
    control = 8 + 8 * partition.num_shards / ranks * len(m[1:])  # whether to save, and counts of the lower targets
    return (ranks - 1) * (shared / ranks + control)


def exchanges(config: TrainConfig, ranks: int) -> int:
    """Exchanges in a step, each of which is a message to every other rank."""
    sampled = max(0, config.layers - 1)
    return 2 * sampled + 2 * max(0, sampled - 1) + (3 if ranks == 2 else 4)


def rank_bytes(partition: Partition, config: TrainConfig, ranks: int) -> dict[str, int]:
    """Bytes that a rank holds, by purpose. Those of the shards are mapped: the system keeps what is used."""
    graph, s = partition.graph, partition.graph.x.dtype.itemsize
    n, shards = graph.num_nodes, partition.num_shards // ranks
    own, split = n / ranks, sum(ids.numel() for ids in (graph.train_ids, graph.val_ids, graph.test_ids))
    histories = 0 if config.estimator in ("ns", "exact") else config.hidden * (config.layers - 1)
    stored = 2 if config.history_dtype == "bfloat16" else s
    return {
        "shards": round(partition.shard_bytes() / ranks),
        "vectors of all nodes": n * (8 + 4 + 8 + 8 + 2 * s + 8),
        "histories": round(own * (histories * stored + 8 * bool(histories))),
        "scratch": round(own * 4),
        "evaluation": round(own * config.hidden * 3 * s + split * graph.num_classes * s),
        "exchange": shards * s * min(1 << 22, n * config.hidden),
    }
