"""The messages between sampler, estimator and model: what one training step works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from cvgnn.errors import CvgnnError
from cvgnn.ops.fused_layer import MaskWeights
from cvgnn.ops.row_sum import Rows
from cvgnn.utils.optional_import import import_optional


@final
@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """One sampled layer: the rows `r^(k+1)` of `P^(k)` and of `P - P^(k)`.

    Args:
        sources: int64 `[s]`, node ids of `r^(k)`; the first `sampled.num_rows` are `r^(k+1)`, in the same order.
        sampled: `P^`, `[|r^(k+1)|, s]`; columns are positions in `sources`.
        transposed: `P^` transposed, `[s, |r^(k+1)|]`, for the backward pass.
        remainder: `P - P^`, `[|r^(k+1)|, N]`; columns are node ids. None without control variate.
        mask: the weights of the dropout mask in estimator `cvd`. None without control variate.
    """

    sources: Tensor
    sampled: Rows
    transposed: Rows
    remainder: Rows | None = None
    mask: MaskWeights | None = None

    def to(self, device: torch.device) -> Block:
        """The same block on a device."""
        remainder = None if self.remainder is None else self.remainder.to(device)
        mask = None if self.mask is None else MaskWeights(*(rows.to(device) for rows in self.mask))
        return Block(self.sources.to(device), self.sampled.to(device), self.transposed.to(device), remainder, mask)

    @property
    def targets(self) -> Tensor:
        """int64, node ids of `r^(k+1)`."""
        # A view, because r^(k+1) stands first in r^(k): the sampler appends the new neighbors.
        return self.sources[: self.sampled.num_rows]


@final
@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """Everything that a training step draws at random, for step `step` of a run.

    Args:
        step: `t`, counted from 1.
        ids: int64 `[B]`, the drawn training items `V_t`, node ids unless the task has other items; repeats are possible
            in `replacement` mode.
        place: int64, positions in `r^(K)` of the nodes that the items name, see `Targets`; None where `ids` is `r^(K)`.
        blocks: `blocks[k-1]` is layer `k`'s, `k = 1..K-1`; layer 0 is exact and has none.
        inputs: int64, node ids of `r^(1)`, whose rows of `P X` the step reads.
    """

    step: int
    ids: Tensor
    place: Tensor | None
    blocks: tuple[Block, ...]
    inputs: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device; itself where it is there already."""
        if self.ids.device == device:
            return self
        blocks = tuple(block.to(device) for block in self.blocks)
        place = None if self.place is None else self.place.to(device)
        # r^(1) is the first block's sources: one copy to the device serves both.
        inputs = blocks[0].sources if blocks else self.inputs.to(device)
        return Batch(step=self.step, ids=self.ids.to(device), place=place, blocks=blocks, inputs=inputs)

    def block(self, k: int) -> Block:
        """Layer `k`'s block, `1 <= k < K`."""
        if not 1 <= k <= len(self.blocks):
            raise CvgnnError(f"layer {k} is not sampled; layers 1..{len(self.blocks)} are (layer 0 is exact)")
        return self.blocks[k - 1]

    def to_pyg(self) -> Any:
        """The sampled edges as `torch_geometric.data.Data`, for layers of PyG that take weights and add no edges, such
        as `GCNConv(d, c, normalize=False)`.

        `n_id` are the ids of its nodes, of which the first `batch_size` are `r^(K)`. `edge_index` are the entries of
        all `P^`, the batch's own hop first, `edge_weight` their values, self loops included. Every layer has its own
        draws: layer `k` reads the `num_sampled_edges[K - 1 - k]` edges of its hop.

        >>> import cvgnn
        >>> graph = cvgnn.load("citeseer")
        >>> sampler = cvgnn.NeighborSampler(cvgnn.Propagation(graph), num_neighbors=1)
        >>> next(iter(cvgnn.BatchLoader(graph.train_ids, sampler, batch_size=4))).to_pyg().batch_size
        4
        """
        data = import_optional("torch_geometric.data", extra="pyg", purpose="Batch.to_pyg")
        matrices = [block.sampled for block in reversed(self.blocks)]
        rows = [torch.arange(m.num_rows).repeat_interleave(m.indptr.diff().long()) for m in matrices]
        nothing = torch.empty(0, dtype=torch.int64)
        sources = torch.cat([nothing, *(m.indices.long() for m in matrices)])
        return data.Data(
            edge_index=torch.stack([sources, torch.cat([nothing, *rows])]),
            edge_weight=torch.cat([m.weight for m in matrices]) if matrices else None,  # type: ignore[misc]
            n_id=self.inputs,
            num_nodes=self.inputs.numel(),
            batch_size=matrices[0].num_rows if matrices else self.inputs.numel(),
            num_sampled_edges=[m.num_entries for m in matrices],
        )

    def select(self, rows: Tensor) -> Tensor:
        """Rows computed for `r^(K)`, `[*place.shape, d]`: one for each entry of `place` (repeats repeated)."""
        # Algorithm 1 averages the loss over V_t with repeats; the forward pass computes each node once.
        if self.place is None:
            return rows
        return rows.index_select(0, self.place.flatten()).view(*self.place.shape, rows.shape[1])
