"""The control variate in PyG's layers: unbiased by enumeration, and the same numbers as our own networks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cvgnn.data import to_pyg
from cvgnn.errors import CvgnnError
from cvgnn.nn import MODELS, ControlVariate, Network, exact_hidden
from cvgnn.nn.history_conv import ControlVariateLoader, HistoryConv, SampledAdjacency, apply_conv, find_form
from cvgnn.ops.row_sum import Rows
from cvgnn.sampling import Batch, Block, propagate_features
from tests.build import graph_from_dense, random_adjacency
from tests.nn.test_pyg import convolution, pyg

GRAPH = graph_from_dense(random_adjacency(40, mean_degree=5, weighted=False, seed=2), features=7)
WEIGHTED = graph_from_dense(random_adjacency(40, mean_degree=5, weighted=True, seed=3), features=7)
DIRECTED = graph_from_dense(
    torch.rand(20, 20, generator=torch.Generator().manual_seed(1)).lt(0.2).fill_diagonal_(False).numpy(), directed=True
)


def identity(width: int) -> nn.Module:
    layer = nn.Linear(width, 2, dtype=torch.float64)
    return pyg.GINConv(layer, train_eps=True).double()


CONVS: dict[str, Callable[[int], nn.Module]] = {
    "GCNConv": lambda width: pyg.GCNConv(width, 2).double(),
    "SAGEConv": lambda width: pyg.SAGEConv(width, 2).double(),
    "SAGEConv without own rows": lambda width: pyg.SAGEConv(width, 2, root_weight=False).double(),
    "GINConv": identity,
    "GraphConv": lambda width: pyg.GraphConv(width, 2).double(),
    "GraphConv, mean": lambda width: pyg.GraphConv(width, 2, aggr="mean").double(),
}


class Net(nn.Module):
    """Convolutions with ReLU between them."""

    def __init__(self, *convs: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Tensor, edge_index: Any, *weight: Any) -> Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index, *weight).relu()
        return self.convs[-1](x, edge_index, *weight)  # type: ignore[no-any-return]


def data_of(graph: Any) -> Any:
    data = to_pyg(graph)
    data.x = data.x.double()
    return data


def sparse(M: Tensor) -> Rows:
    """All entries of a matrix, zeros too."""
    m, n = M.shape
    return Rows(torch.arange(0, m * n + 1, n), torch.arange(n).repeat(m), M.reshape(-1).contiguous())


@pytest.mark.parametrize("graph", [GRAPH, DIRECTED], ids=["undirected", "directed"])
@pytest.mark.parametrize("kind", list(CONVS))
def test_output_and_gradient_are_unbiased_by_enumeration(kind: str, graph: Any) -> None:
    """The mean over all draws of two neighbors is what PyG's layer computes on the whole graph."""
    torch.manual_seed(0)
    conv, data = CONVS[kind](5), data_of(graph)
    layer = HistoryConv(conv)
    first = nn.Linear(data.num_features, 5, dtype=torch.float64)
    model = nn.Sequential()  # a linear layer first, so that the convolution has a history
    model.append(first).append(layer)
    loader = ControlVariateLoader(
        data, model, num_neighbors=2, input_nodes=[0], forward=lambda b: layer(first(b.x), b.edge_index)
    )
    v = int((graph.degree == 4).nonzero()[0])
    order = torch.cat([torch.tensor([v]), torch.arange(graph.num_nodes)[torch.arange(graph.num_nodes) != v]])
    H = torch.randn(graph.num_nodes, 5, dtype=torch.float64, requires_grad=True)
    exact = conv(H, data.edge_index)[v]
    (expected,) = torch.autograd.grad(exact.sum(), H)
    row = loader.propagation.dense()[v]
    neighbors = graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()
    outputs, gradients = [], []
    for drawn in itertools.combinations(neighbors, 2):
        sampled = torch.zeros_like(row)
        sampled[v], sampled[list(drawn)] = row[v], row[list(drawn)] * len(neighbors) / 2
        mine = sampled[order][None]
        block = Block(order, sparse(mine), sparse(mine.T), sparse((row - sampled)[None]))
        batch = Batch(step=1, ids=order[:1], place=None, blocks=(block,), inputs=order)
        adjacency = SampledAdjacency(loader, batch, data.x)
        out = layer(H[order], adjacency)
        S = loader.estimator.aggregate(1, batch, H[order])  # the same number
        bipartite = loader.layers[layer][1].bipartite
        assert torch.equal(out, apply_conv(conv, S, H[order][:1], bipartite))
        outputs.append(out[0].detach())
        gradients.append(torch.autograd.grad(out.sum(), H)[0])
    assert torch.stack(outputs).std(dim=0).max() > 1e-3  # it is an estimate
    torch.testing.assert_close(torch.stack(outputs).mean(dim=0), exact.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.stack(gradients).mean(dim=0), expected, rtol=0, atol=1e-10)


def weights_of(conv: nn.Module, kind: str) -> list[nn.Parameter]:
    """Of PyG's layer, in the order of `own_weights`."""
    parts = {"gcn": ("lin",), "sage": ("lin_l", "lin_r"), "gin": ("nn.0", "nn.2")}[kind]
    return [conv.get_submodule(part).weight for part in parts]


def own_weights(layer: nn.Module, kind: str) -> list[nn.Parameter]:
    names = {"gcn": ("weight",), "sage": ("weight", "own_weight"), "gin": ("weight", "out_weight")}[kind]
    return [getattr(layer, name) for name in names]


def twins(kind: str, K: int, graph: Any, p: float) -> tuple[Network, ControlVariate, Net, ControlVariateLoader]:
    """Our network and its estimator; the same weights in PyG's layers and their loader."""
    ours = MODELS[kind](in_channels=7, hidden_channels=6, out_channels=3, num_layers=K, dropout=p, seed=3).double()
    theirs = Net(*(HistoryConv(convolution(ours.layer(k), kind), dropout=p if k else 0.0) for k in range(K)))
    loader = ControlVariateLoader(
        data_of(graph), theirs, num_neighbors=2, batch_size=8, input_nodes=graph.train_ids, seed=3
    )
    aggregated, own = ours.reads
    features = propagate_features(graph, loader.propagation, aggregated=aggregated, own=own)
    estimator = ControlVariate(features, ours.hidden_widths)
    estimator.initialize(exact_hidden(ours, features, loader.propagation))
    return ours, estimator, theirs, loader


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gin"])
def test_the_same_steps_as_our_network(kind: str, K: int, p: float) -> None:
    """Logits, gradients and histories over two epochs, each a step of both."""
    ours, estimator, theirs, loader = twins(kind, K, GRAPH, p)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs)]
    steps = 0
    for _ in range(2):
        for made in loader:
            batch = made.edge_index._batch
            losses = []
            for optimizer, logits in zip(
                optimizers, (ours(batch, estimator), theirs(made.x, made.edge_index)), strict=True
            ):
                losses.append(cross_entropy(logits, made.y[: made.batch_size]))
                optimizer.zero_grad()
                losses[-1].backward()
            torch.testing.assert_close(*losses, rtol=0, atol=1e-10)
            for k in range(K):
                pairs = zip(weights_of(theirs.convs[k].conv, kind), own_weights(ours.layer(k), kind), strict=True)
                for their, our in pairs:
                    torch.testing.assert_close(their.grad, our.grad.T, rtol=0, atol=1e-10)
            for optimizer in optimizers:
                optimizer.step()
            estimator.commit(batch.step)
            steps += 1
        for our, their in zip(estimator.histories, loader.estimator.histories, strict=True):
            torch.testing.assert_close(our.values, their.values, rtol=0, atol=1e-10)
            assert torch.equal(our.written, their.written)
    assert steps == 2 * len(loader) == 6


@pytest.mark.parametrize("graph", [GRAPH, WEIGHTED, DIRECTED], ids=["plain", "weighted", "directed"])
@pytest.mark.parametrize("K", [2, 3])
def test_all_neighbors_and_fresh_histories_are_exact(graph: Any, K: int) -> None:
    data = data_of(graph)
    weight = [] if graph.edge_weight is None else ["edge_weight"]
    widths = [data.num_features, *[4] * K]
    model = Net(*(HistoryConv(pyg.GCNConv(a, b).double(), dropout=0.5) for a, b in itertools.pairwise(widths))).eval()
    exact = model(data.x, data.edge_index, *(data[name] for name in weight))
    for num_neighbors in (-1, 1):
        loader = ControlVariateLoader(data, model, num_neighbors=num_neighbors, batch_size=7)
        batch = next(iter(loader))
        out = model(batch.x, batch.edge_index, *(batch[name] for name in weight))
        torch.testing.assert_close(out, exact[batch.n_id[: batch.batch_size]], rtol=0, atol=1e-10)


def test_a_batch_has_what_neighbor_loader_gives() -> None:
    data = data_of(GRAPH)
    data.name = "small"
    model = Net(HistoryConv(pyg.SAGEConv(7, 4).double()), HistoryConv(pyg.SAGEConv(4, 3).double())).train()
    model.convs[0].eval()  # the exact pass leaves the modes as they are
    loader = ControlVariateLoader(data, model, [2], batch_size=6, input_nodes=data.train_mask)
    assert model.training
    assert model.convs[1].training
    assert not model.convs[0].training
    seen = []
    for batch in loader:
        ids = batch.n_id
        assert torch.equal(batch.x, data.x[ids])
        assert torch.equal(batch.y, data.y[ids])
        assert torch.equal(batch.train_mask, data.train_mask[ids])
        assert batch.name == "small"
        seen += ids[: batch.batch_size].tolist()
        assert batch.to("cpu").edge_index is batch.edge_index
        assert model(batch.x, batch.edge_index).shape == (batch.batch_size, 3)
    assert sorted(seen) == GRAPH.train_ids.tolist()
    assert len(loader) == 4


def test_histories_move_when_the_next_batch_is_asked_for() -> None:
    data = data_of(GRAPH)
    model = Net(HistoryConv(pyg.GCNConv(7, 4).double()), HistoryConv(pyg.GCNConv(4, 3).double()))
    loader = ControlVariateLoader(data, model, 1, batch_size=10)
    history = loader.estimator.history(1)
    before = history.values.clone()
    with torch.no_grad():
        model.convs[0].conv.bias.add_(1.0)
    batches = iter(loader)
    batch = next(batches)
    model(batch.x, batch.edge_index)
    assert torch.equal(history.values, before)
    next(batches)
    changed = (history.values != before).any(dim=1).nonzero().flatten()
    assert set(changed.tolist()) <= set(batch.n_id.tolist())
    assert len(changed) > 10
    loader.refresh()
    exact = model.convs[0](data.x, data.edge_index).relu().detach()
    torch.testing.assert_close(history.values, exact, rtol=0, atol=1e-10)


def test_forms() -> None:
    assert [tuple(find_form(make(3), 3, dtype=torch.float64)) for make in CONVS.values()] == [
        ("symmetric", False), ("mean", True), ("mean", True), ("sum", True), ("sum", True), ("mean", True),
    ]  # fmt: skip
    assert find_form(pyg.GCNConv(3, 2), 3, weighted=True).aggregation == "symmetric"
    with pytest.raises(CvgnnError, match="none of the layers"):  # self loops of weight 2, where edges have weights
        find_form(pyg.GCNConv(3, 2, improved=True), 3, weighted=True)


REFUSED: list[Callable[[], nn.Module]] = [
    lambda: pyg.GATConv(7, 3),
    lambda: pyg.GATv2Conv(7, 3),
    lambda: pyg.TransformerConv(7, 3),
    lambda: pyg.SAGEConv(7, 3, aggr="max"),
    lambda: pyg.SAGEConv(7, 3, project=True),
    lambda: pyg.GCNConv(7, 3, cached=True),
    lambda: pyg.GCNConv(7, 3, add_self_loops=False),
]


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: str(make()))
def test_layers_without_a_fixed_linear_aggregation_are_refused(make: Callable[[], nn.Module]) -> None:
    data = to_pyg(GRAPH)
    data.x = data.x.float()
    with pytest.raises(CvgnnError, match="none of the layers that can be estimated with histories"):
        ControlVariateLoader(data, Net(HistoryConv(make())))


def changed(**fields: Any) -> Any:
    data = data_of(GRAPH)
    for name, value in fields.items():
        data[name] = value
    return data


def net(dropout: float = 0.0) -> Net:
    return Net(HistoryConv(pyg.GCNConv(7, 4).double()), HistoryConv(pyg.GCNConv(4, 3).double(), dropout=dropout))


EDGES = data_of(GRAPH).edge_index
SHARED = HistoryConv(pyg.GCNConv(7, 7).double())
CASES: dict[str, tuple[Any, nn.Module, dict[str, Any], str]] = {
    "no data": ({"x": 1}, net(), {}, "data must be a torch_geometric.data.Data, not dict"),
    "meta": (data_of(GRAPH).to("meta"), net(), {}, "dense tensor on the CPU"),
    "sparse": (to_pyg(GRAPH).update({"x": data_of(GRAPH).x.to_sparse()}), net(), {}, "dense tensor on the CPU"),
    "no layer": (data_of(GRAPH), nn.Linear(7, 3).double(), {"forward": lambda b: None}, "called no HistoryConv"),
    "outside": (data_of(GRAPH), Net(SHARED, pyg.GATConv(7, 3)), {}, "convs.1, GATConv(7, 3, heads=1), is not in a HistoryConv"),
    "lazy": (data_of(GRAPH), Net(HistoryConv(pyg.SAGEConv(-1, 3))), {}, "call it once on the whole graph"),
    "twice": (data_of(GRAPH), Net(SHARED, SHARED), {}, "calls a HistoryConv twice"),
    "mixed": (data_of(GRAPH), Net(SHARED, HistoryConv(pyg.SAGEConv(7, 3).double())), {}, "by 'mean' and the layers before it by 'symmetric'"),
    "duplicates": (changed(edge_index=torch.cat([EDGES, EDGES[:, :3]], dim=1)), net(), {}, "names 3 edges twice"),
    "loops": (changed(edge_index=torch.cat([EDGES, torch.tensor([[1], [1]])], dim=1)), Net(HistoryConv(pyg.SAGEConv(7, 3).double())), {}, "has 1 self loops"),
    "fan-outs": (data_of(GRAPH), net(), {"num_neighbors": [10, 10]}, "num_neighbors has 2 entries, but 2 layers sample at 1 hops"),
    "order": (data_of(GRAPH), net(), {"shuffle": False}, "random order"),
    "weights": (to_pyg(WEIGHTED).update({"x": data_of(WEIGHTED).x}), net(), {"forward": lambda b: net()(b.x, b.edge_index)}, "give the layer batch.edge_weight as it is"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
def test_refused(case: str) -> None:
    data, model, options, said = CASES[case]
    with pytest.raises(CvgnnError, match=re.escape(said)):
        ControlVariateLoader(data, model, **options)


def test_self_loops_do_not_change_a_gcn() -> None:
    loops = torch.arange(5).repeat(2, 1)
    data = changed(edge_index=torch.cat([EDGES, loops], dim=1))
    model = net().eval()
    batch = next(iter(ControlVariateLoader(data, model, -1, batch_size=40)))
    exact = model(data.x, data.edge_index)[batch.n_id]
    torch.testing.assert_close(model(batch.x, batch.edge_index), exact, rtol=0, atol=1e-10)


def test_misuse_of_a_batch() -> None:
    model, other = net(), net()
    batch = next(iter(ControlVariateLoader(data_of(GRAPH), model, batch_size=5)))
    with pytest.raises(CvgnnError, match="first layer's input"):
        model(batch.x * 2, batch.edge_index)
    with pytest.raises(CvgnnError, match="the input has 3 rows"):
        model.convs[1](torch.ones(3, 4, dtype=torch.float64), batch.edge_index)
    with pytest.raises(CvgnnError, match="was not called when the loader was made"):
        other(batch.x, batch.edge_index)
    with pytest.raises(CvgnnError, match="has no edge_weight"):
        model(batch.x, batch.edge_index, torch.ones(3))
    with pytest.raises(CvgnnError, match="dropout must be"):
        HistoryConv(nn.Identity(), dropout=1.0)


def test_dropout_of_the_input() -> None:
    """At layer 0, of the rows of P X and of X; before a layer of a whole graph, of its input."""
    conv = pyg.GCNConv(7, 7, bias=False).double()
    conv.lin.weight.data = torch.eye(7, dtype=torch.float64)
    data, layer = data_of(GRAPH), HistoryConv(conv, dropout=0.5)
    PX = conv(data.x, data.edge_index)
    batch = next(iter(ControlVariateLoader(data, Net(layer), batch_size=40)))
    assert batch.edge_index._batch.blocks == ()
    out, exact = layer(batch.x, batch.edge_index), PX[batch.n_id]
    dropped = out == 0
    assert 0.3 < dropped.double().mean() < 0.7
    torch.testing.assert_close(out[~dropped], 2 * exact[~dropped])
    assert not torch.equal(layer(data.x, data.edge_index), PX)
    torch.testing.assert_close(layer.eval()(batch.x, batch.edge_index), exact)


def test_two_uses_of_one_conv_are_two_layers() -> None:
    conv = pyg.GCNConv(7, 7).double()
    data, model = data_of(GRAPH), Net(HistoryConv(conv), HistoryConv(conv)).eval()
    batch = next(iter(ControlVariateLoader(data, model, 1, batch_size=9)))
    exact = model(data.x, data.edge_index)[batch.n_id[:9]]
    torch.testing.assert_close(model(batch.x, batch.edge_index), exact, rtol=0, atol=1e-10)
