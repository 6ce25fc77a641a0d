"""The control variate in a training script of PyTorch Geometric: `ControlVariateLoader` in place of `NeighborLoader`,
and `HistoryConv` around each of its layers. See docs/pyg.md.

A layer with a fixed linear aggregation is a function of two rows of each node, the aggregated one `S` and the node's
own. PyG's layers compute that function themselves, on a graph in which each node's only message is its row of `S`.
So nothing of a layer is written again here: `S` comes from `ControlVariate.aggregate`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop_out
from torch.nn.parameter import is_lazy

from cvgnn.data import AGGREGATIONS, Aggregation, Propagation, RandomSplit, from_pyg
from cvgnn.errors import CvgnnError, require, require_number
from cvgnn.nn.estimators import ControlVariate
from cvgnn.ops.dropout import Dropout
from cvgnn.sampling import Batch, BatchLoader, NeighborSampler
from cvgnn.sampling.features import DenseSource
from cvgnn.sampling.schemes import Scheme
from cvgnn.utils.optional_import import import_optional

_KINDS = (
    "HistoryConv needs a layer with a fixed linear aggregation: GCNConv, SAGEConv(aggr='mean'), GINConv, GraphConv and "
    "the like. Attention has weights that depend on x, a maximum is not linear, and cached=True holds one graph"
)


class Adjacency(ABC):
    """What a batch has as `edge_index`: the edges of all of its layers, which only `HistoryConv` can read.

    Args:
        weighted: whether the edges have weights; then it is the batch's `edge_weight`, too.
    """

    weighted: bool

    @abstractmethod
    def convolve(self, layer: HistoryConv, x: Tensor) -> Tensor:
        """The output of a layer."""


@final
class HistoryConv(nn.Module):
    """A convolution of PyG that is computed with the control variate where its edges come from a
    `ControlVariateLoader`, and as it is on a whole graph.

    Args:
        conv: a `torch_geometric.nn.MessagePassing` layer whose aggregation is linear and fixed.
        dropout: what to drop of `x` in training. Better than dropout before the layer: the history keeps `x` as it was,
            and the mask's variance is that of exact aggregation (estimator `cvd`).

    >>> from torch_geometric.nn import SAGEConv
    >>> HistoryConv(SAGEConv(16, 7), dropout=0.5)
    HistoryConv(
      dropout=0.5
      (conv): SAGEConv(16, 7, aggr=mean)
    )
    """

    def __init__(self, conv: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        require_number("dropout", dropout, "a number in [0, 1)", at_least=0.0, below=1.0)
        self.conv = conv
        self.dropout = dropout

    def extra_repr(self) -> str:
        """See `torch.nn.Module`."""
        return f"dropout={self.dropout}"

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Any = None) -> Tensor:
        """The layer's output: for each node of the graph, or for those nodes of the batch that the layer above reads.

        Args:
            x: `[n, d]`.
            edge_index: of a whole graph, `[2, m]`; or `batch.edge_index` of a `ControlVariateLoader`.
            edge_weight: `[m]`; or `batch.edge_weight`.
        """
        if isinstance(edge_index, Adjacency):
            ours = edge_index if edge_index.weighted else None
            require(
                edge_weight is ours,
                "the graph has edge weights: give the layer batch.edge_weight as it is"
                if edge_index.weighted
                else "the loader's graph has no edge_weight, so a layer takes none; set data.edge_weight first",
            )
            return edge_index.convolve(self, x)
        weight = () if edge_weight is None else (edge_weight,)
        return self.conv(drop_out(x, self.dropout, self.training), edge_index, *weight)  # type: ignore[no-any-return]


class Form(NamedTuple):
    """How a layer aggregates.

    Args:
        aggregation: which matrix it multiplies with.
        bipartite: whether it takes the aggregated and the own rows as a pair.
    """

    aggregation: Aggregation
    bipartite: bool


def apply_conv(conv: nn.Module, S: Tensor, own: Tensor, bipartite: bool) -> Tensor:
    """The layer's output for nodes whose only message is their row of `S`.

    Args:
        conv: of PyG.
        S: the aggregated rows, `[m, d]`.
        own: the nodes' own rows, `[m, d]`.
        bipartite: see `Form`.
    """
    nodes = torch.arange(len(S))
    return conv((S, own) if bipartite else S, torch.stack([nodes, nodes]))  # type: ignore[no-any-return]


@torch.no_grad()
def find_form(conv: nn.Module, width: int, *, weighted: bool = False, dtype: torch.dtype = torch.float32) -> Form:
    """How a layer aggregates, found by what it computes on a small graph; an error if no fixed matrix explains it.

    Args:
        conv: a layer of PyG.
        width: of its input.
        weighted: whether edges have weights.
        dtype: of its input.

    >>> from torch_geometric.nn import GCNConv
    >>> find_form(GCNConv(3, 2), 3)
    Form(aggregation='symmetric', bipartite=False)
    """
    generator = torch.Generator().manual_seed(0)
    n = 12
    edges = (torch.rand(n, n, generator=generator) < 0.3).fill_diagonal_(False)
    edges[:, -1] = edges[-1] = False  # a node without neighbors
    edge_index = edges.nonzero().T.contiguous()
    x = torch.randn(n, width, generator=generator, dtype=dtype)
    weight = torch.rand(edge_index.shape[1], generator=generator, dtype=dtype) + 0.5 if weighted else None
    # Weights that are drawn anew: attention that starts at zero is a mean at the first step alone.
    probe = copy.deepcopy(conv).eval()
    for parameter in probe.parameters():
        nn.init.normal_(parameter, generator=generator)
    exact = probe(x, edge_index) if weight is None else probe(x, edge_index, weight)
    fields = {"edge_index": edge_index, "x": x, "edge_weight": weight}
    graph = from_pyg(fields, split=RandomSplit(allow_unlabelled=True), directed=True)
    for aggregation in AGGREGATIONS:
        S = Propagation(graph, normalization=aggregation, dtype=dtype).product(x)  # type: ignore[arg-type]
        for bipartite in (True, False):
            try:
                found = apply_conv(probe, S, x, bipartite)
            except Exception:  # a layer may refuse a pair, or anything else, in its own way
                continue
            if found.shape == exact.shape and torch.allclose(found, exact, rtol=1e-3, atol=1e-4):
                return Form(aggregation, bipartite)  # type: ignore[arg-type]
    raise CvgnnError(f"{conv} is none of the layers that can be estimated with histories. {_KINDS}")


@final
class ControlVariateLoader:
    """Batches for a training script of PyG, whose sampled neighbors are corrected by histories.

    A batch has what `NeighborLoader` gives it: `x`, `y` and the other fields of nodes for the nodes `n_id`, of which
    the first `batch_size` are the batch's own, and `edge_index`, which the layers, each a `HistoryConv`, take as they
    would take PyG's. A layer returns the rows that the next one reads, so the last returns `batch_size` rows.

    The first layer is exact if its input is `batch.x`: `P X` is computed once, and nothing is sampled for it. So `K`
    layers sample at `K - 1` hops. Histories of the inputs of the other layers start from an exact pass of the model,
    which the constructor makes, and are written when the loop asks for the next batch: after the optimizer's step.

    Args:
        data: `torch_geometric.data.Data` with dense `x`, on the CPU.
        model: whose layers are `HistoryConv`s.
        num_neighbors: a number, or one for each of the `K - 1` hops, the batch's own first; -1 for all.
        batch_size: nodes in a batch.
        input_nodes: ids or a mask of the nodes that batches are drawn from; all nodes if not given.
        forward: calls the model on a batch, for another signature than `model(batch.x, batch.edge_index)`, with
            `batch.edge_weight` at the end where `data` has weights.
        shuffle: batches come in a random order, so it cannot be False.
        scheme: see `cvgnn.NeighborSampler`.
        seed: of the order, the neighbors and dropout.

    Attributes:
        estimator: the `ControlVariate` with the histories.
    """

    def __init__(
        self,
        data: Any,
        model: nn.Module,
        num_neighbors: int | list[int] = 2,
        *,
        batch_size: int = 512,
        input_nodes: Any = None,
        forward: Callable[[Any], Any] | None = None,
        shuffle: bool = True,
        scheme: Scheme = "without-replacement",
        seed: int = 0,
    ) -> None:
        require(shuffle, "batches come in a random order; to evaluate, call the model on the whole graph")
        pyg = import_optional("torch_geometric.data", extra="pyg", purpose="ControlVariateLoader")
        require(isinstance(data, pyg.Data), f"data must be a torch_geometric.data.Data, not {type(data).__name__}")
        x = data.x
        dense = isinstance(x, Tensor) and x.layout is torch.strided and x.device.type == "cpu"
        require(dense, f"data.x must be a dense tensor on the CPU, not {getattr(x, 'layout', None)} on "
                f"{getattr(x, 'device', None)}; batches are drawn and computed there")  # fmt: skip
        self.data, self.model = data, model
        self._new_data = pyg.Data
        self._weighted = data.edge_weight is not None
        self._forward = forward or (
            (lambda batch: model(batch.x, batch.edge_index, batch.edge_weight))
            if self._weighted
            else (lambda batch: model(batch.x, batch.edge_index))
        )
        self._check_layers()
        nodes = ("x", "edge_index", *(("edge_weight",) if self._weighted else ()))
        fields = {name: data[name] for name in nodes}
        self.graph = from_pyg(fields, split=RandomSplit(allow_unlabelled=True), directed=True)
        self._seed = seed
        self._fields = [name for name in data.keys() if name not in nodes and not data.is_edge_attr(name)]  # noqa: SIM118
        traced = self._trace()
        self.propagation, self.layers = traced.propagation, traced.layers
        self._check_edges()
        self.features = DenseSource(x if traced.PX is None else traced.PX)
        self.exact_input = traced.PX is not None
        widths = [H.shape[1] for H in traced.hidden]
        self.estimator = ControlVariate(self.features, widths)
        self.estimator.initialize(traced.hidden)
        sampler = NeighborSampler(
            self.propagation, num_neighbors=num_neighbors, num_layers=len(widths) + 1, scheme=scheme, seed=seed
        )
        self._loader = BatchLoader(self._input_ids(input_nodes), sampler, batch_size=batch_size, seed=seed)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch, each a `torch_geometric.data.Data`."""
        self.estimator.discard()  # of an epoch that was left before its end
        for batch in self._loader:
            yield self._pyg_batch(batch)
            # Here the body of the loop is over, and its step is made: both terms of eq. 5 have read the old history.
            self.estimator.commit(batch.step)

    def refresh(self) -> None:
        """Compute the histories anew, by an exact pass with the present weights."""
        self.estimator.initialize(self._trace().hidden)

    def _pyg_batch(self, batch: Batch) -> Any:
        x = self.data.x.index_select(0, batch.inputs)
        edges = SampledAdjacency(self, batch, x)
        weight = {"edge_weight": edges} if self._weighted else {}
        made = self._new_data(x=x, edge_index=edges, n_id=batch.inputs, batch_size=batch.ids.numel(), **weight)
        for name in self._fields:
            value = self.data[name]
            made[name] = value[batch.inputs] if self.data.is_node_attr(name) else value
        return made

    @torch.no_grad()
    def _trace(self) -> _Trace:
        """An exact pass of the model over all nodes, which finds its layers and their inputs."""
        trace = _Trace(self)
        modes = {module: module.training for module in self.model.modules()}
        weight = {"edge_weight": trace} if self._weighted else {}
        fields = {name: self.data[name] for name in self._fields}
        self.model.eval()
        try:
            self._forward(self._new_data(x=self.data.x, edge_index=trace, **fields, **weight))
        finally:
            for module, mode in modes.items():
                module.training = mode
        require(bool(trace.layers), "the model called no HistoryConv; put each of its convolutions into one")
        return trace

    def _check_layers(self) -> None:
        """Refuse layers of PyG that would be given edges that they cannot read."""
        lazy = any(is_lazy(parameter) for parameter in self.model.parameters())
        require(not lazy, "the model has layers of unknown width; call it once on the whole graph before")
        base = import_optional("torch_geometric.nn", extra="pyg", purpose="ControlVariateLoader").MessagePassing
        inside = {
            id(part) for layer in self.model.modules() if isinstance(layer, HistoryConv) for part in layer.modules()
        }
        for name, module in self.model.named_modules():
            outside = isinstance(module, base) and id(module) not in inside
            require(
                not outside, f"{name}, {module}, is not in a HistoryConv: HistoryConv({type(module).__name__}(...))"
            )

    def _check_edges(self) -> None:
        """Refuse edges that PyG's layers count otherwise than `Propagation`."""
        row, column = self.data.edge_index
        loops = int((row == column).sum())
        harmless = self.propagation.self_loop and not self._weighted  # GCNConv adds those that are missing
        require(
            loops == 0 or harmless,
            f"data.edge_index has {loops} self loops; remove them (torch_geometric.utils.remove_self_loops)",
        )
        twice = self.data.edge_index.shape[1] - loops - self.graph.num_edges
        require(twice == 0, f"data.edge_index names {twice} edges twice; use data.coalesce()")

    def _input_ids(self, given: Any) -> Tensor:
        ids = torch.arange(self.graph.num_nodes) if given is None else torch.as_tensor(given)
        return ids.nonzero().flatten() if ids.dtype == torch.bool else ids.long()


@final
class SampledAdjacency(Adjacency):
    """The edges of one batch.

    Args:
        loader: that drew it.
        batch: the drawn blocks.
        x: `batch.x` of PyG's batch.
    """

    def __init__(self, loader: ControlVariateLoader, batch: Batch, x: Tensor) -> None:
        self.weighted = loader._weighted
        self._loader, self._batch, self._x = loader, batch, x

    def __repr__(self) -> str:
        edges = sum(block.sampled.num_entries for block in self._batch.blocks)
        return f"SampledAdjacency({len(self._batch.blocks)} hops, {edges} entries)"

    def convolve(self, layer: HistoryConv, x: Tensor) -> Tensor:
        """See `Adjacency`."""
        loader, batch = self._loader, self._batch
        require(
            layer in loader.layers, "this layer was not called when the loader was made; make the loader for this model"
        )
        position, form = loader.layers[layer]
        k, p = position + (not loader.exact_input), layer.dropout if layer.training else 0.0
        if k == 0:
            require(
                x is self._x,
                "the first layer's input is not batch.x itself: of P X, which is computed once, nothing else can be "
                "computed. For dropout of the input use HistoryConv(conv, dropout=p)",
            )
            S, own = (drop_out(rows, p, p > 0) for rows in (loader.features.rows(batch.inputs), x))
            return apply_conv(layer.conv, S, own, form.bipartite)
        block = batch.block(k)
        require(
            x.shape[0] == len(block.sources),
            f"the input has {x.shape[0]} rows, and the layer reads {len(block.sources)}: give it all rows that the "
            "layer below returned",
        )
        drop = Dropout.at(p, seed=loader._seed, step=batch.step, k=k) if p > 0 else None
        S = loader.estimator.aggregate(k, batch, x, drop=drop)
        own = x[: len(S)]
        if drop is not None and form.bipartite:
            own = own * drop.mask((own.shape[0], own.shape[1]), own.dtype)
        return apply_conv(layer.conv, S, own, form.bipartite)


@final
class _Trace(Adjacency):
    """All edges, in the exact pass that finds a model's layers: in which order they are called, and on what."""

    def __init__(self, loader: ControlVariateLoader) -> None:
        self.weighted = loader._weighted
        self._loader = loader
        self.layers: dict[HistoryConv, tuple[int, Form]] = {}
        self.hidden: list[Tensor] = []
        self.PX: Tensor | None = None
        self.propagation: Propagation

    def convolve(self, layer: HistoryConv, x: Tensor) -> Tensor:
        """See `Adjacency`."""
        require(layer not in self.layers, "the model calls a HistoryConv twice; make another one around the same conv")
        form = find_form(layer.conv, x.shape[1], weighted=self.weighted, dtype=x.dtype)
        if not self.layers:
            self.propagation = Propagation(self._loader.graph, normalization=form.aggregation, dtype=x.dtype)
        mine = self.propagation.normalization
        require(
            form.aggregation == mine,
            f"{layer.conv} aggregates by {form.aggregation!r} and the layers before it by {mine!r}; use one kind",
        )
        S = self.propagation.product(x)
        if x is self._loader.data.x:
            require(not self.layers, "only the first layer may read batch.x")
            self.PX = S
        else:
            self.hidden.append(x)
        self.layers[layer] = len(self.layers), form
        return apply_conv(layer.conv, S, x, form.bipartite)
