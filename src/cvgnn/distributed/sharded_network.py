"""The network on shards: the same forward pass on each, which meet where a layer's sums cross between them.

A layer's aggregate is `sum over shards of P^[v, own u] H[u] + (P - P^)[v, own u] Hbar[u]`. Each shard sums its own part
for the targets of all shards; one exchange brings the parts to the owners of the targets, who add them pairwise in the
order of the shards. Backward, one exchange brings the gradients of the targets back to all ranks. A shard computes with
its own rows only, whoever has it, so the number of ranks changes no bit.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from cvgnn.data import Rows
from cvgnn.distributed.partition import Shard
from cvgnn.distributed.ranks import Ranks, nothing, tree_sum
from cvgnn.distributed.shard_sampler import ShardedBlock, ShardSampler
from cvgnn.nn import Estimator, Network
from cvgnn.ops.affine import Affine
from cvgnn.ops.dropout import Dropout
from cvgnn.ops.fused_layer import HiddenLayer, NeighborSum, Sigma, activate_in_place, affine, hidden_layer
from cvgnn.ops.row_input import DenseRows, RowInput
from cvgnn.ops.row_sum import weighted_sum
from cvgnn.sampling import Batch, FeatureSource

_ELEMENTS_PER_EXCHANGE = 1 << 22
"""Of a block of targets in exact inference: bounds what a rank holds of other ranks' sums."""


@dataclass(eq=False)
class _Stage:
    """What a hidden layer of one shard gave, and the leaves that stand for it in the layers above.

    Args:
        part: `[m, d]`, the shard's part of the sums of all targets; differentiable.
        own: the rows of the shard's own targets, differentiable, or None.
        total: `[m_s, d]`, the sums of the own targets: a leaf, filled by the exchange.
        own_leaf: the values of `own`, a leaf.
    """

    part: Tensor
    own: Tensor | None
    total: Tensor
    own_leaf: Tensor | None


@final
class ShardEstimator(Estimator):
    """What one shard adds to the estimates of all targets.

    Args:
        shard: the shard.
        estimator: of its own nodes: its features and histories.
    """

    def __init__(self, shard: Shard, estimator: Estimator) -> None:
        super().__init__(estimator.features)
        self.estimator, self.low = estimator, shard.low
        self.stages: dict[int, _Stage] = {}

    def row_numbers(self, k: int, batch: Batch | None) -> Tensor | None:
        """Node ids: positions in a batch depend on the shards."""
        assert batch is not None
        if k == 0:
            return self.low + batch.inputs
        return self.low + (batch.blocks[k - 1].sources if k <= len(batch.blocks) else batch.ids)

    def propagate(
        self, k: int, batch: Batch | None, Z: Affine, sigma: Sigma, *, drop: Dropout | None, own: bool,
        lazy: bool = False,
    ) -> HiddenLayer:  # fmt: skip
        """`H^(k)` of the own sources; the aggregate is a leaf that the exchange fills."""
        assert batch is not None
        if k > len(batch.blocks):
            return hidden_layer(Z, sigma, drop=drop, own=own)
        block, above = batch.blocks[k - 1], batch.blocks[k].sources if k < len(batch.blocks) else batch.ids
        correction = functools.partial(self.estimator.correction, k, batch)
        summed = NeighborSum(block.sampled, block.transposed, self.estimator.mask_weights(k, batch), correction)
        out = hidden_layer(Z, sigma, drop=drop, summed=summed, own=own, own_rows=(m := above.numel()))
        self.estimator.keep(k, batch, out.H)
        assert isinstance(out.aggregate, Tensor)
        mine = out.own
        total = torch.zeros(m, out.H.shape[1], dtype=out.H.dtype).requires_grad_()
        stage = _Stage(out.aggregate, mine, total, None if mine is None else mine.detach().requires_grad_())
        self.stages[k] = stage
        return HiddenLayer(out.H, stage.own_leaf, stage.total)


@final
class FullShard(Estimator):
    """Exact aggregation of all nodes of one shard, without gradient; the aggregate is filled by the exchange."""

    def __init__(self, features: FeatureSource) -> None:
        super().__init__(features)
        self.hidden: Tensor | None = None
        self.total: Tensor | None = None

    def rows_of(self, source: FeatureSource, batch: Batch | None) -> RowInput:
        """All rows of the shard, read in chunks."""
        if source.sparse:
            return source.span(0, source.num_nodes)  # type: ignore[return-value]
        shape = source.num_nodes, source.num_features
        return DenseRows(lambda first, last: source.span(first, last).to(source.dtype), shape)  # type: ignore[union-attr]

    def propagate(
        self, k: int, batch: Batch | None, Z: Affine, sigma: Sigma, *, drop: Dropout | None, own: bool,
        lazy: bool = False,
    ) -> HiddenLayer:  # fmt: skip
        """`H^(k)` of the shard's nodes."""
        (_, W), *others = Z.terms
        alone = W is None and not others and Z.bias is None
        self.hidden = activate_in_place(affine(Z).clone() if alone else affine(Z), sigma)
        self.total = torch.zeros_like(self.hidden)
        return HiddenLayer(self.hidden, self.hidden, self.total)


@final
class ShardedNetwork:
    """A network on the own shards of a rank.

    Args:
        model: the network, the same on every rank.
        shards: the own ones.
        estimators: of these shards.
        sampler: their draws.
        ranks: the processes.
    """

    def __init__(
        self,
        model: Network,
        shards: Sequence[Shard],
        estimators: Sequence[ShardEstimator],
        sampler: ShardSampler,
        ranks: Ranks,
    ) -> None:
        self.model, self.shards, self.estimators, self.sampler, self.ranks = model, shards, estimators, sampler, ranks
        self._features = [estimator.features for estimator in estimators]
        # A copy for each shard whose parameters share the model's memory: so each has a gradient of its own.
        self._copies = [copy.deepcopy(model) for _ in shards]
        for each in self._copies:
            each.readout = None
        self._parameters = network_parameters(model)
        self._copied = [list(each.parameters()) for each in self._copies]
        self._share(self._parameters)

    @contextmanager
    def weights_of(self, model: Network) -> Iterator[None]:
        """Compute with the weights that another network has now, such as their average."""
        try:
            self._share(network_parameters(model))
            yield
        finally:
            self._share(self._parameters)

    def _share(self, weights: Sequence[nn.Parameter]) -> None:
        for copied in self._copied:
            for parameter, weight in zip(copied, weights, strict=True):
                parameter.data = weight.data

    def forward(self, batch: Batch, meanwhile: Callable[[], object]) -> tuple[Tensor, list[Tensor]]:
        """The outputs of the batch's distinct nodes, a leaf on every rank; and those of each own shard.

        Args:
            batch: of the step.
            meanwhile: called while the ranks send each other sums.
        """
        blocks: tuple[ShardedBlock, ...] = batch.blocks  # type: ignore[assignment]
        if blocks:
            targets, counts, order = blocks[-1].targets, blocks[-1].counts, blocks[-1].order
        else:
            targets, counts, order = self.sampler.by_shard(batch.inputs)
        assert order is not None
        batches = list(self._own_batches(batch, targets, counts))
        for each in self._copies:
            each.train(self.model.training)
        outputs: list[Tensor] = []
        traces = [
            copied.trace(part, estimator)
            for copied, part, estimator in zip(self._copies, batches, self.estimators, strict=True)
        ]
        for values in zip(*traces, strict=True):
            name = values[0][0]
            outputs = [value for _, value in values]
            if name.startswith("H^("):
                k = int(name[3:-1])
                if k <= len(blocks):
                    self._exchange([each.stages[k] for each in self.estimators], blocks[k - 1].counts, meanwhile)
        by_rank = self._by_rank(counts)
        rows = self.ranks.gather(torch.cat([output.detach() for output in outputs]), by_rank)
        return rows[order].requires_grad_(), outputs

    def backward(self, batch: Batch, rows: Tensor, outputs: Sequence[Tensor]) -> None:
        """The gradients of the parameters, from that of the rows that `forward` gave."""
        blocks: tuple[ShardedBlock, ...] = batch.blocks  # type: ignore[assignment]
        if blocks:
            counts, order = blocks[-1].counts, blocks[-1].order
        else:
            _, counts, order = self.sampler.by_shard(batch.inputs)
        assert order is not None
        assert rows.grad is not None
        gradient = torch.empty_like(rows)
        gradient[order] = rows.grad
        for output, mine in zip(outputs, self._own_rows(gradient, counts), strict=True):
            _backward([output], [mine])
        for k in range(len(blocks), 0, -1):
            stages, counts = [estimator.stages.pop(k) for estimator in self.estimators], blocks[k - 1].counts
            totals = torch.cat([_gradient(stage.total) for stage in stages])
            d_parts = self.ranks.gather(totals, self._by_rank(counts))
            for stage in stages:
                roots, gradients = [stage.part], [d_parts]
                if stage.own is not None and stage.own_leaf is not None:
                    roots, gradients = [stage.part, stage.own], [d_parts, _gradient(stage.own_leaf)]
                _backward(roots, gradients)
        self._sum_gradients()

    def _sum_gradients(self) -> None:
        """The sum of the shards' gradients, pairwise in their order, on every rank."""
        flat = tree_sum([torch.cat([_gradient(p).flatten() for p in copied]) for copied in self._copied])
        for copied in self._copied:
            for parameter in copied:
                parameter.grad = None
        total, start = self.ranks.sum(flat), 0
        for parameter in self._parameters:
            size = parameter.numel()
            if parameter.requires_grad:
                parameter.grad = total[start : start + size].view_as(parameter)
            start += size

    def exact(self) -> Iterator[tuple[str, list[Tensor]]]:
        """An exact forward pass: the name and the own shards' rows of each `H^(k)`, and at last of the outputs."""
        estimators = [FullShard(features) for features in self._features]
        traces = [copied.trace(None, estimator) for copied, estimator in zip(self._copies, estimators, strict=True)]
        for each in self._copies:
            each.eval()
        while True:
            with torch.no_grad():
                values = [next(trace, None) for trace in traces]
                if values[0] is None:
                    return
                name = values[0][0]
                if name.startswith("H^(") and estimators[0].total is not None:
                    self._propagate(estimators)
            if not name.startswith("S^("):
                yield name, [value[1] for value in values if value is not None]

    def _propagate(self, estimators: Sequence[FullShard]) -> None:
        """`P H`, for blocks of targets of all shards, into the estimators' totals."""
        sampler, starts = self.sampler, self.sampler.partition.starts
        left, right = torch.from_numpy(sampler.left), torch.from_numpy(sampler.right)
        scaled = []
        for shard, estimator in zip(self.shards, estimators, strict=True):
            assert estimator.hidden is not None
            scaled.append(estimator.hidden * right[shard.low : shard.high, None])
        width = scaled[0].shape[1]
        # The same number of rows of every shard at a time, so that each exchange has all owners.
        rows = max(1, _ELEMENTS_PER_EXCHANGE // (width * len(starts)))
        for first in range(0, int((starts[1:] - starts[:-1]).max()), rows):
            spans = [(min(a + first, b), min(a + first + rows, b)) for a, b in itertools.pairwise(starts.tolist())]
            parts = [
                torch.cat([weighted_sum(_columns(shard, a, b), table) for a, b in spans])
                for shard, table in zip(self.shards, scaled, strict=True)
            ]
            counts = tuple(b - a for a, b in spans)
            sums = self._own_rows(self._to_owners(parts, counts), counts, local=True)
            for shard, estimator, table, total in zip(self.shards, estimators, scaled, sums, strict=True):
                a, b = (end - shard.low for end in spans[shard.number])
                if sampler.self_loop:
                    total = total + table[a:b]
                assert estimator.total is not None
                estimator.total[a:b] = total * left[shard.low + a : shard.low + b, None]

    def _own_batches(self, batch: Batch, targets: Tensor, counts: Sequence[int]) -> Iterator[Batch]:
        """The batch of each own shard: node ids counted from its first node."""
        ends = torch.tensor(counts).cumsum(0).tolist()
        for i, shard in enumerate(self.shards):
            last = ends[shard.number]
            own = targets[last - counts[shard.number] : last] - shard.low
            parts = tuple(block.parts[i] for block in batch.blocks)  # type: ignore[attr-defined]
            yield Batch(step=batch.step, ids=own, place=None, blocks=parts, inputs=parts[0].sources if parts else own)

    def _exchange(self, stages: Sequence[_Stage], counts: Sequence[int], meanwhile: Callable[[], object]) -> None:
        """Add the parts of all shards and fill the leaves of the own targets."""
        with torch.no_grad():
            totals = self._to_owners([stage.part for stage in stages], counts, meanwhile)
            for stage, total in zip(stages, self._own_rows(totals, counts, local=True), strict=True):
                stage.total.copy_(total)

    def _to_owners(
        self, parts: Sequence[Tensor], counts: Sequence[int], meanwhile: Callable[[], object] = nothing
    ) -> Tensor:
        """The sums over all shards of rows that are ordered by shard, for this rank's rows."""
        return tree_sum(self.ranks.to_owners(tree_sum(parts), self._by_rank(counts), meanwhile))

    def _by_rank(self, counts: Sequence[int]) -> list[int]:
        return torch.tensor(counts).view(self.ranks.size, -1).sum(dim=1).tolist()

    def _own_rows(self, rows: Tensor, counts: Sequence[int], *, local: bool = False) -> list[Tensor]:
        """The rows of each own shard, of rows ordered by shard: of all shards, or of the own ones (`local`)."""
        mine = [counts[shard.number] for shard in self.shards]
        if not local:
            first = sum(counts[: self.shards[0].number])
            rows = rows[first : first + sum(mine)]
        return list(torch.split(rows, mine))


class _WithGradients(torch.autograd.Function):
    """A scalar that has the given gradients with respect to some tensors."""

    @staticmethod
    def forward(ctx: Any, gradients: Sequence[Tensor], *roots: Tensor) -> Tensor:
        ctx.gradients = gradients
        return roots[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gradients


def _backward(roots: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """`torch.autograd.backward`, which imports sympy where it gets gradients: 35 MiB of each rank."""
    _WithGradients.apply(gradients, *roots).backward()  # type: ignore[no-untyped-call]


def network_parameters(model: Network) -> list[nn.Parameter]:
    """Those of the network itself, without its readout."""
    others = set() if model.readout is None else {id(parameter) for parameter in model.readout.parameters()}
    return [parameter for parameter in model.parameters() if id(parameter) not in others]


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def _columns(shard: Shard, first: int, last: int) -> Rows:
    """Rows `first..last-1` of `A` in the columns of a shard."""
    indptr, indices, weight = shard.columns
    a, b = int(indptr[first]), int(indptr[last])
    offsets = torch.from_numpy((indptr[first : last + 1] - a).astype("int32"))
    values: Any = torch.from_numpy(weight[a:b]) if weight.size else None
    return Rows(offsets, torch.from_numpy(indices[a:b]), values)
