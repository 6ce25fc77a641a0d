"""A trainer on the shards of a rank: the same training loop, whose gradient and evaluation meet the other ranks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from cvgnn.config import TrainConfig
from cvgnn.data import SparseFeatures
from cvgnn.distributed.partition import Partition
from cvgnn.distributed.ranks import Ranks
from cvgnn.distributed.shard_sampler import ShardSampler
from cvgnn.distributed.sharded_network import ShardedNetwork, ShardEstimator
from cvgnn.errors import require
from cvgnn.nn import ControlVariate, Estimator, Network, SampledSum
from cvgnn.nn.inference import has_own_forward
from cvgnn.sampling import Batch, BatchLoader, FeatureSource
from cvgnn.sampling.features import DenseSource, SparseSource
from cvgnn.training.evaluation import Evaluator
from cvgnn.training.guard import Guard
from cvgnn.training.parts import Parts
from cvgnn.training.schedules import make_schedule
from cvgnn.training.tasks import Task
from cvgnn.training.trainer import Trainer
from cvgnn.training.trainer_builder import NO_PARTS, build_model, build_optimizer, build_task
from cvgnn.utils.mapped_memory import mapped_zeros


@final
class ShardedEstimators(Estimator):
    """The estimators of the own shards, for the trainer.

    Args:
        estimators: by shard.
        numbers: of the shards.
    """

    def __init__(self, estimators: Sequence[ShardEstimator], numbers: Sequence[int]) -> None:
        super().__init__(estimators[0].features)
        self.shards = nn.ModuleDict({str(s): each.estimator for s, each in zip(numbers, estimators, strict=True)})
        self._each = [each.estimator for each in estimators]

    def commit(self, step: int) -> None:
        """See `Estimator.commit`."""
        for each in self._each:
            each.commit(step)

    def discard(self) -> None:
        """See `Estimator.discard`."""
        for each in self._each:
            each.discard()


@dataclass(frozen=True, eq=False)
class ShardedEvaluator(Evaluator):
    """Exact metrics: every rank computes the outputs of its own nodes, and gets those of the split."""

    network: ShardedNetwork | None = None

    def outputs(self, model: Network) -> Tensor:
        """`[N, out_channels]`; only the rows of the split are computed for the others to see."""
        network = self.network
        assert network is not None
        with network.weights_of(model):
            *_, (_, outputs) = network.exact()
        graph = self.task.graph
        split = torch.cat([graph.train_ids, graph.val_ids, graph.test_ids]).sort().values
        starts = torch.from_numpy(network.sampler.partition.starts)
        ends = torch.searchsorted(split, starts).tolist()
        mine = [
            rows[split[ends[shard.number] : ends[shard.number + 1]] - shard.low]
            for shard, rows in zip(network.shards, outputs, strict=True)
        ]
        counts = network._by_rank([b - a for a, b in itertools.pairwise(ends)])
        gathered = network.ranks.gather(torch.cat(mine), counts)
        # Not torch.zeros, which writes the zeros: so only the pages with rows of the split take memory.
        table = torch.from_numpy(np.zeros((graph.num_nodes, gathered.shape[1]), dtype=gathered.numpy().dtype))
        table[split] = gathered
        return table


def build_sharded_trainer(
    partition: Partition, config: TrainConfig, ranks: Ranks, *, parts: Parts = NO_PARTS, initialize: bool = True,
    scratch: Path | None = None,
) -> Trainer:  # fmt: skip
    """A trainer before its first step, its histories computed.

    Args:
        partition: the graph.
        config: of the run.
        ranks: the processes.
        parts: see `build_trainer`.
        initialize: whether to compute the histories at `W_1`.
        scratch: see `build_trainer`.
    """
    task = build_task(partition.graph, config, parts)
    model = build_model(task, config, dtype=partition.graph.x.dtype, parts=parts)
    check_sharded(partition, config, model, task, parts)
    network = build_sharded_network(partition, config, model, ranks, scratch=scratch)
    estimators, sampler = network.estimators, network.sampler
    if initialize and sampler.control:
        for k, (_, hidden) in zip(range(1, model.num_layers), network.exact(), strict=False):
            for each, H in zip(estimators, hidden, strict=True):
                assert isinstance(each.estimator, ControlVariate)
                each.estimator.history(k).fill(H, step=0)
    draws: Any = sampler  # has what a loader uses of a NeighborSampler
    loader = BatchLoader(
        task.items, draws, batch_size=config.batch_size, mode=config.batches, seed=config.seed, on_signal=True
    )  # fmt: skip
    optimizer = build_optimizer(model, config, parts=parts)

    def gradient(batch: Batch) -> float:
        optimizer.zero_grad(set_to_none=True)
        rows, outputs = network.forward(batch, loader.draw_ahead)
        # Every rank has the rows of the whole batch and computes the same loss: any task works, as in one process.
        loss = task.loss(rows, batch, model.readout)
        loss.backward()  # type: ignore[no-untyped-call]
        network.backward(batch, rows, outputs)
        return float(loss.item())

    return Trainer(
        model=model,
        estimator=ShardedEstimators(estimators, [shard.number for shard in network.shards]),
        loader=loader,
        optimizer=optimizer,
        task=task,
        evaluator=ShardedEvaluator(task, estimators[0].features, None, network),  # type: ignore[arg-type]
        seed=config.seed,
        keep_tau=config.output == "tau",
        ema=config.ema,
        guard=Guard(clip_norm=config.clip_norm, skip_bad=config.bad_step == "skip"),
        schedule=make_schedule(config.schedule, epochs=config.epochs),
        gradient=gradient,
    )


def build_sharded_network(
    partition: Partition, config: TrainConfig, model: Network, ranks: Ranks, *, scratch: Path | None = None,
    histories: bool = True,
) -> ShardedNetwork:  # fmt: skip
    """A network on the own shards of a rank.

    Args:
        partition, config, model, ranks, scratch: see `build_sharded_trainer`.
        histories: whether it will train.
    """
    normalization: Any = model.normalization or config.normalization
    shards = [partition.shard(s) for s in partition.own_numbers(ranks.rank, ranks.size)]
    sampler = ShardSampler(
        partition,
        shards,
        ranks,
        normalization=normalization,
        num_neighbors=-1 if config.estimator == "exact" else config.fan_out,
        num_layers=model.num_layers,
        scheme=config.scheme,
        control=config.estimator not in ("ns", "exact"),
        seed=config.seed,
    )
    estimators = []
    for shard in shards:
        aggregated, own = model.reads
        sources = [_source(matrix, config) for matrix in (shard.PX, shard.x)]
        features = sources[0] if aggregated else sources[1]
        features.own = sources[1] if own or not aggregated else None
        made = _estimator(features, model, config, scratch) if histories else SampledSum(features)
        estimators.append(ShardEstimator(shard, made))
    return ShardedNetwork(model, shards, estimators, sampler, ranks)


def check_sharded(partition: Partition, config: TrainConfig, model: Network, task: Task, parts: Parts) -> None:
    """Refuse, before any work, what a partitioned graph cannot do."""
    normalization, stored = model.normalization or config.normalization, partition.fields["PX_normalization"]
    require(
        not model.reads[0] or stored == normalization,
        f"the partition has P X for {stored!r}, and the model needs {normalization!r}; partition the graph again with "
        f"--propagate {normalization}",
    )
    for refused, what in (
        (config.norm == "batch", "norm 'batch', whose statistics are of all nodes; use norm 'layer'"),
        (has_own_forward(model), "a network with a forward of its own"),
        (parts.find("estimator", config) is not None, "an estimator of your own"),
        (task.items.kind != "node", f"task {task.name!r}, whose items are not nodes"),
        (config.inductive, "inductive"),
        (config.sampled_start != 0, "sampled_start: its shards have P X already"),
        (
            config.feature_norm != partition.feature_norm,
            f"feature_norm {config.feature_norm!r}: it was made with {partition.feature_norm!r}; partition the graph "
            f"again with --feature-norm {config.feature_norm}",
        ),
        (config.device != "cpu", f"device {config.device!r}"),
    ):
        require(not refused, f"a partitioned graph cannot be trained with {what}")


def _source(matrix: Tensor | SparseFeatures, config: TrainConfig) -> FeatureSource:
    if isinstance(matrix, SparseFeatures):
        return SparseSource(matrix)
    return DenseSource(matrix.to(torch.bfloat16) if config.feature_dtype == "bfloat16" else matrix, matrix.dtype)


def _estimator(features: FeatureSource, model: Network, config: TrainConfig, scratch: Path | None) -> Estimator:
    if config.estimator in ("ns", "exact"):
        return SampledSum(features)
    return ControlVariate(
        features,
        model.hidden_widths,
        separate_dropout=config.estimator == "cvd",
        control=config.control,
        dtype=features.dtype,
        storage=torch.bfloat16 if config.history_dtype == "bfloat16" else features.dtype,
        zeros=functools.partial(mapped_zeros, folder=scratch) if config.histories == "disk" else None,
    )
