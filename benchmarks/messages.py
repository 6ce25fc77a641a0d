"""What each rank sends to each other in a training step, counted on real partitions without training.

    python benchmarks/messages.py PARTITION ... [--layers 2 3] [--epoch 1] [--out DIR]

Draws the batches of an epoch as a run with the graph's default options does, and adds up what `cvgnn.distributed`
sends for them (docs/distributed.md, "How it works"), with 2, 4, 8, ... ranks. Bytes are those of the payload of a step.
`sent` is the mean over ranks and steps; `largest` is the most that one rank sends or receives in one step; `uneven` is
the rank that sends the most in the epoch, over the mean; `model` is that of `cvgnn.distributed.cost`. `ms` is the
longest step on a network of 10 or 100 Gbit/s without latency: one exchange follows the other, and each takes as long as
the rank that sends or receives the most in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cvgnn.config import TrainConfig
from cvgnn.distributed.cost import sent_bytes
from cvgnn.distributed.partition import Partition
from cvgnn.distributed.ranks import Ranks
from cvgnn.distributed.sharded_network import network_parameters
from cvgnn.distributed.sharded_trainer import build_sharded_network
from cvgnn.sampling import BatchLoader
from cvgnn.training.defaults import choose_config
from cvgnn.training.trainer_builder import build_model, build_task


def epoch_messages(
    partition: Partition, config: TrainConfig, counts: Sequence[int], epoch: int = 1
) -> dict[int, np.ndarray]:
    """For each number of ranks, the bytes of the messages of an epoch: `[steps, exchanges, sender, receiver]`.

    Args:
        partition, config: of the run.
        counts: numbers of ranks.
        epoch: which one.
    """
    task = build_task(partition.graph, config)
    model = build_model(task, config, dtype=partition.graph.x.dtype)
    # One rank has all shards, and draws what any number of ranks would draw together.
    sampler: Any = build_sharded_network(partition, config, model, Ranks(), histories=False).sampler
    loader = BatchLoader(
        task.items, sampler, batch_size=config.batch_size, mode=config.batches, seed=config.seed, on_signal=True
    )
    weights = sum(parameter.numel() for parameter in network_parameters(model))
    sizes = {"widths": model.hidden_widths, "outputs": task.out_channels, "weights": weights}
    steps: dict[int, list[np.ndarray]] = {ranks: [] for ranks in counts}
    for batch in loader.epoch(epoch):
        targets = [block.counts for block in batch.blocks] or [sampler.by_shard(batch.inputs)[1]]  # type: ignore[attr-defined]
        for ranks in counts:
            by_rank = np.array(targets).reshape(len(targets), ranks, -1).sum(axis=2)
            steps[ranks].append(
                step_messages(by_rank, partition.num_shards, itemsize=partition.graph.x.dtype.itemsize, **sizes)
            )
    return {ranks: np.stack(each) for ranks, each in steps.items()}


def step_messages(
    targets: np.ndarray, shards: int, *, widths: Sequence[int], outputs: int, weights: int, itemsize: int
) -> np.ndarray:
    """The bytes of the messages of a step: `[exchanges, sender, receiver]`.

    Args:
        targets: `[sampled layers, ranks]`, the targets that each rank owns, the batch last.
        shards: of the partition.
        widths: of the sampled layers.
        outputs: width of the last layer.
        weights: how many.
        itemsize: bytes of a number.
    """
    ranks = targets.shape[1]
    every = np.ones((ranks, ranks), dtype=np.int64)
    sent = [8 * every, outputs * itemsize * targets[-1][:, None] * every]  # whether to save; outputs of the batch
    for m, width in zip(targets, widths, strict=False):  # none with one layer, which has no sampled one
        sent += [width * itemsize * m * every, width * itemsize * m[:, None] * every]  # sums; their gradients
    for m in targets[:-1]:
        sent += [8 * shards // ranks * every, 8 * m[:, None] * every]  # targets of a lower layer: number, ids
    if ranks == 2:
        sent.append(weights * itemsize * every)
    else:  # each adds a part of the gradient of the weights
        part = np.diff(np.arange(ranks + 1) * weights // ranks) * itemsize
        sent += [part * every, part[:, None] * every]
    return np.stack(sent) * (1 - np.eye(ranks, dtype=np.int64))


def summary(steps: np.ndarray) -> dict[str, Any]:
    """A row of the table, of the messages of an epoch."""
    ranks = steps.shape[-1]
    sent, received = steps.sum(axis=3), steps.sum(axis=2)  # [steps, exchanges, ranks]
    by_rank = sent.sum(axis=(0, 1)) / len(steps)
    seconds = 8 * np.maximum(sent, received).max(axis=2).sum(axis=1).max() / 1e9
    return {
        "messages": round(np.count_nonzero(steps) / len(steps) / ranks, 1),
        "sent": round(by_rank.mean()),
        "largest": int(max(sent.sum(axis=1).max(), received.sum(axis=1).max())),
        "uneven": round(by_rank.max() / by_rank.mean(), 3),
        "ms at 10": round(1e3 * seconds / 10, 2),
        "ms at 100": round(1e3 * seconds / 100, 2),
    }


def main() -> None:
    import common  # here, because a test imports this module from another folder

    arguments = common.parser(__doc__ or "", "messages")
    arguments.add_argument("partitions", type=Path, nargs="+")
    arguments.add_argument("--layers", type=int, nargs="+", default=[2, 3])
    arguments.add_argument("--epoch", type=int, default=1)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    epochs: list[dict[str, Any]] = []
    for path in options.partitions:
        partition = Partition(path)
        counts = [2**k for k in range(1, partition.num_shards.bit_length())]
        for layers in options.layers:
            config = choose_config(partition.graph, "auto", {"layers": layers})
            for ranks, steps in epoch_messages(partition, config, counts, options.epoch).items():
                case = {"partition": path.name, "K": layers, "ranks": ranks}
                rows.append({**case, **summary(steps), "model": round(sent_bytes(partition, config, ranks))})
                epochs.append({**case, "sent by rank": " ".join(map(str, steps.sum(axis=(0, 1, 3))))})
    tables = {"A step": rows, f"Epoch {options.epoch}": epochs}
    common.report("messages", "Messages of a training step", __doc__ or "", tables, options.out)


if __name__ == "__main__":
    main()
