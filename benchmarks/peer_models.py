"""The contestants of `peers.py`: this library, PyTorch Geometric and DGL, all training the same two-layer GCN.

A contestant takes one step at a time, drawing its batch included, and gives its weights in this library's layout. All
begin at the same weights. What is made of a graph (`P X`, another library's graph object) is made once and shared;
its seconds count in the set-up of each contestant that uses it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import os
import sys
import time
import types
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cvgnn import Graph, NodeClassification, Propagation, SparseFeatures, TrainConfig, propagate_features
from cvgnn.nn import Network as OurNetwork
from cvgnn.training.trainer_builder import build_model, build_trainer

INSTALL = {
    "torch_geometric": "pip install torch_geometric",
    "torch_sparse": "pip install --no-build-isolation torch-scatter torch-sparse  (compiles, some ten minutes)",
    "dgl": "pip install --no-deps dgl==2.1.0 && pip install pandas networkx psutil requests tqdm",
}
_SPARSE_TENSOR_FROM = 500_000  # entries of A, see `pyg_data`


class Contestant(ABC):
    """A training run that is taken step by step."""

    lead = 1  # untimed steps at the head of a timed block: a batch may have been drawn in the pause before it
    setup = 0.0  # seconds
    steps_per_epoch: int

    @abstractmethod
    def step(self) -> None: ...

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """The weights, as views in the order and the shapes of `tensors_of`."""

    def snapshot(self) -> list[Tensor]:
        return [t.detach().clone() for t in self.tensors()]


def our_network(graph: Graph, config: TrainConfig) -> OurNetwork:
    return build_model(NodeClassification(graph), config, dtype=graph.x.dtype)


def tensors_of(model: OurNetwork) -> list[Tensor]:
    first, last = model.layers
    return [first.weight, first.bias, first.norm.weight, first.norm.bias, last.weight, last.bias]


@torch.no_grad()
def copy(source: list[Tensor], target: list[Tensor]) -> None:
    for a, b in zip(source, target, strict=True):
        b.copy_(a)


class Ours(Contestant):
    def __init__(self, data: Graph, graph: Graph, config: TrainConfig, **options: Any) -> None:
        self.trainer = build_trainer(data, dataclasses.replace(config, **options))
        self.trainer.model.train()
        self.steps_per_epoch = self.trainer.loader.steps_per_epoch
        self.batches = endless(lambda: self.trainer.loader.epoch(next(self.epochs)))
        self.epochs = iter(range(1, sys.maxsize))

    def step(self) -> None:
        self.trainer.step(next(self.batches))

    def tensors(self) -> list[Tensor]:
        model, average = self.trainer.model, self.trainer.average
        if average is None:
            return tensors_of(model)
        names = {id(p): name for name, p in model.named_parameters()}
        return [average.weights[names[id(p)]] for p in tensors_of(model)]


def endless(epoch: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    while True:
        yield from epoch()


class Network(nn.Module):
    """Convolution, LayerNorm, ReLU, dropout, convolution: `cvgnn.GCN` from another library's convolutions."""

    def __init__(self, conv: Callable[[int, int], nn.Module], graph: Graph, config: TrainConfig) -> None:
        super().__init__()
        self.first = conv(graph.num_features, config.hidden)
        self.norm = nn.LayerNorm(config.hidden)
        self.last = conv(config.hidden, graph.num_classes)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, first: Any, last: Any) -> Tensor:
        H = self.dropout(self.norm(self.convolve(self.first, x, first)).relu())
        return self.convolve(self.last, H, last)

    def convolve(self, conv: Any, x: Tensor, adjacency: Any) -> Tensor:
        return conv(x, adjacency)

    def weight(self, conv: Any) -> Tensor:
        return conv.lin.weight.t()

    def tensors(self) -> list[Tensor]:
        first, norm, last = self.first, self.norm, self.last
        return [self.weight(first), first.bias, norm.weight, norm.bias, self.weight(last), last.bias]


class DglNetwork(Network):
    def convolve(self, conv: Any, x: Tensor, adjacency: Any) -> Tensor:
        return conv(adjacency, x)

    def weight(self, conv: Any) -> Tensor:
        return conv.weight


class Peer(Contestant):
    """Another library's network, with our initial weights and torch's Adam."""

    def __init__(self, network: Network, graph: Graph, config: TrainConfig) -> None:
        torch.manual_seed(config.seed)
        self.graph, self.network = graph, network.train()
        self.x = graph.x.to_dense() if isinstance(graph.x, SparseFeatures) else graph.x
        copy(tensors_of(our_network(graph, config)), network.tensors())
        self.optimizer = torch.optim.Adam(network.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self.steps_per_epoch = -(-graph.train_ids.numel() // config.batch_size)

    @abstractmethod
    def exact(self, ids: Tensor) -> Tensor:
        """Logits of `ids` as this library computes them from full neighborhoods, to compare networks by."""

    def tensors(self) -> list[Tensor]:
        return self.network.tensors()

    def update(self, logits: Tensor, labels: Tensor) -> None:
        loss = cross_entropy(logits, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class PygFull(Peer):
    """All training nodes in every step; `P` was normalised once."""

    lead = 0

    def __init__(self, data: Any, graph: Graph, config: TrainConfig) -> None:
        conv = functools.partial(pyg("nn").GCNConv, normalize=False)
        super().__init__(Network(conv, graph, config), graph, config)
        self.P, self.labels = data, graph.y[graph.train_ids]
        self.steps_per_epoch = 1

    def step(self) -> None:
        self.update(self.network(self.x, self.P, self.P)[self.graph.train_ids], self.labels)

    def exact(self, ids: Tensor) -> Tensor:
        return self.network(self.x, self.P, self.P)[ids]


class PygSampled(Peer):
    """`NeighborLoader` and plain `GCNConv`, which normalises by the degrees in the sampled subgraph."""

    def __init__(self, data: Any, graph: Graph, config: TrainConfig, *, fan_out: list[int]) -> None:
        super().__init__(Network(pyg("nn").GCNConv, graph, config), graph, config)
        self.data = data
        loader = self.loader(fan_out, graph.train_ids, config.batch_size, shuffle=True)
        self.batches = endless(lambda: iter(loader))

    def loader(self, fan_out: list[int], ids: Tensor, size: int, *, shuffle: bool) -> Any:
        options = {"batch_size": size, "shuffle": shuffle, "num_workers": 0, "is_sorted": True}
        return pyg("loader").NeighborLoader(self.data, num_neighbors=fan_out, input_nodes=ids, **options)

    def logits(self, batch: Any) -> Tensor:
        adjacency = batch.adj_t if "adj_t" in batch else batch.edge_index
        return self.network(batch.x, adjacency, adjacency)[: batch.batch_size]

    def step(self) -> None:
        batch = next(self.batches)
        self.update(self.logits(batch), batch.y[: batch.batch_size])

    def exact(self, ids: Tensor) -> Tensor:
        """Three full hops: two layers read the degrees of nodes two hops away, which takes the third."""
        (batch,) = self.loader([-1, -1, -1], ids, ids.numel(), shuffle=False)
        return self.logits(batch)


class DglSampled(Peer):
    """`NeighborSampler`, `DataLoader` and `GraphConv`, which normalises by the degrees in the sampled block."""

    def __init__(self, data: Any, graph: Graph, config: TrainConfig, *, fan_out: list[int]) -> None:
        dgl = import_dgl()
        dgl.seed(config.seed)
        dgl.utils.set_num_threads(torch.get_num_threads())
        super().__init__(DglNetwork(dgl.nn.GraphConv, graph, config), graph, config)
        self.data, load = data, dgl.dataloading
        options = {"batch_size": config.batch_size, "shuffle": True, "num_workers": 0}
        loader = load.DataLoader(data, graph.train_ids, load.NeighborSampler(fan_out), **options)
        self.batches = endless(lambda: iter(loader))

    def step(self) -> None:
        inputs, ids, (first, last) = next(self.batches)
        self.update(self.network(self.x[inputs], first, last), self.graph.y[ids])

    def exact(self, ids: Tensor) -> Tensor:
        whole = self.data.formats(["coo", "csr", "csc"])
        return self.network(self.x, whole, whole)[ids]


def with_features(graph: Graph) -> Graph:
    """The graph with `P X`."""
    source: Any = propagate_features(graph, Propagation(graph))
    return dataclasses.replace(graph, PX=source.PX, PX_normalization="symmetric", validated=True)


def as_it_is(graph: Graph) -> Graph:
    """The graph, without `P X`."""
    return graph


def pyg_data(graph: Graph) -> Any:
    """PyG's `Data`, with the faster of its two forms of a graph.

    A `SparseTensor` is twice as fast on flickr's and arxiv's sizes at fan-outs 10,10, and as fast at 2,2; `edge_index`
    is faster by a tenth on PubMed and Photo with their narrow layers.
    """
    x = graph.x.to_dense() if isinstance(graph.x, SparseFeatures) else graph.x
    if graph.num_edges > _SPARSE_TENSOR_FROM:
        return pyg("data").Data(x=x, y=graph.y, adj_t=_sparse_tensor(graph))
    targets = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree)
    return pyg("data").Data(x=x, y=graph.y, edge_index=torch.stack([graph.indices.long(), targets]))


def pyg_matrix(graph: Graph) -> Any:
    """`P` by PyG's `gcn_norm`: a `SparseTensor` where torch-sparse is installed, else torch's CSR."""
    n, gcn_norm = graph.num_nodes, pyg("nn.conv.gcn_conv").gcn_norm
    if importlib.util.find_spec("torch_sparse"):
        A = _sparse_tensor(graph)
    else:
        A = torch.sparse_csr_tensor(graph.indptr, graph.indices.long(), torch.ones(graph.num_edges), (n, n))
    P = gcn_norm(A)
    return P[0] if isinstance(P, tuple) else P


def dgl_graph(graph: Graph) -> Any:
    """DGL's graph with self loops, in the format that its sampler reads."""
    dgl = import_dgl()
    none = torch.empty(0, dtype=torch.int64)
    return dgl.add_self_loop(dgl.graph(("csc", (graph.indptr, graph.indices.long(), none)))).formats("csc")


def _sparse_tensor(graph: Graph) -> Any:
    make = importlib.import_module("torch_sparse").SparseTensor
    n = graph.num_nodes
    return make(rowptr=graph.indptr, col=graph.indices.long(), sparse_sizes=(n, n), is_sorted=True, trust_data=True)


def pyg(module: str) -> Any:
    # The label says that torch-sparse samples; torch says of CSR tensors that they are new and not checked.
    for message in (r".*pyg-lib.*", r"Sparse CSR tensor support.*", r"Sparse invariant checks.*"):
        warnings.filterwarnings("ignore", message=message)
    return importlib.import_module(f"torch_geometric.{module}")


def import_dgl() -> Any:
    """DGL with a torch that is newer than it.

    `import dgl` imports its part for clusters, and that `dgl.graphbolt`, which loads a library built for one version
    of torch (2.0 to 2.2 in DGL 2.1.0, the newest on PyPI) and fails with others. Samplers, loaders and convolutions do
    without it, so an empty module takes its place.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")
    sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt"))
    warnings.filterwarnings("ignore", message=r".*CPU affinity.*")
    return importlib.import_module("dgl")


@dataclass(frozen=True)
class Kind:
    """How a contestant is named, what it needs, and how it is made."""

    label: str
    needs: tuple[str, ...]
    prepare: Callable[[Graph], Any]
    make: Callable[[Any, Graph, TrainConfig], Contestant]


def _kinds() -> dict[str, Kind]:
    sampler = "pyg-lib" if importlib.util.find_spec("pyg_lib") else "torch-sparse fallback"
    kinds = {
        name: Kind(f"cvgnn {name}", (), with_features, functools.partial(Ours, estimator=name))
        for name in ("cv", "ns", "exact")
    }
    rounded = functools.partial(Ours, feature_dtype="bfloat16", history_dtype="bfloat16")
    kinds["cv-bfloat16"] = Kind("cvgnn cv, bfloat16 features and histories", (), with_features, rounded)
    start = functools.partial(Ours, estimator="cv", sampled_start=10, control=0.7, ema=0.99)
    kinds["cv-start"] = Kind("cvgnn cv, sampled start, control 0.7, averaged weights", (), as_it_is, start)
    kinds["pyg-full"] = Kind("PyG full batch", ("torch_geometric",), pyg_matrix, PygFull)
    for fan_out in ([10, 10], [25, 10], [2, 2], [5, 5]):
        label = f"PyG NeighborLoader {fan_out[0]},{fan_out[1]} ({sampler})"
        make = functools.partial(PygSampled, fan_out=fan_out)
        kinds[f"pyg-{fan_out[0]}-{fan_out[1]}"] = Kind(label, ("torch_geometric", "torch_sparse"), pyg_data, make)
    make = functools.partial(DglSampled, fan_out=[10, 10])
    kinds["dgl-10-10"] = Kind("DGL NeighborSampler 10,10", ("dgl",), dgl_graph, make)
    return kinds


KINDS = _kinds()
OURS = ("cv", "cv-start", "cv-bfloat16", "ns", "exact")


@functools.cache
def problem(package: str) -> str | None:
    """Import a package; a sentence if that fails."""
    try:
        import_dgl() if package == "dgl" else importlib.import_module(package)
    except (ImportError, OSError) as error:
        return f"{package} cannot be used ({error}); install it with: {INSTALL[package]}"
    return None


def available(names: list[str]) -> tuple[list[str], list[str]]:
    """The contestants that can take part, what they need imported; a sentence for each package others lack."""
    lacking = {p: told for name in names for p in KINDS[name].needs if (told := problem(p))}
    return [name for name in names if not lacking.keys() & set(KINDS[name].needs)], list(lacking.values())


class Field:
    """A graph and what contestants share on it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._made: dict[Callable[[Graph], Any], tuple[Any, float]] = {}

    def prepared(self, make: Callable[[Graph], Any]) -> tuple[Any, float]:
        """What `make` makes of the graph, and the seconds that took."""
        if make not in self._made:
            start = time.perf_counter()
            made = make(self.graph)
            self._made[make] = made, time.perf_counter() - start
        return self._made[make]

    def build(self, name: str, config: TrainConfig) -> Contestant:
        """A contestant before its first step."""
        kind = KINDS[name]
        data, seconds = self.prepared(kind.prepare)
        start = time.perf_counter()
        contestant = kind.make(data, self.graph, config)
        contestant.setup = seconds + time.perf_counter() - start
        return contestant
