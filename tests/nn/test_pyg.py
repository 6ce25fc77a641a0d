"""Must show 2 of the engine: weights copied into `torch_geometric.nn` give the same outputs as our exact inference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cvgnn.data import Graph, Propagation
from cvgnn.nn import MODELS, BatchNorm, Network, exact_logits, refresh_statistics
from cvgnn.sampling import propagate_features
from tests.build import graph_from_dense, random_adjacency

pyg = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")

GRAPH = graph_from_dense(random_adjacency(40, mean_degree=5, weighted=False, seed=2), features=7)
WEIGHTED = graph_from_dense(random_adjacency(40, mean_degree=5, weighted=True, seed=3), features=7)
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-10}


def edges(graph: Graph) -> tuple[Tensor, Tensor | None]:
    """PyG's edge_index (sources first) and edge weights."""
    target = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.indptr.diff())
    return torch.stack([graph.indices.long(), target]), graph.edge_weight


def linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    made = nn.Linear(*weight.shape, bias=bias is not None, dtype=weight.dtype)
    made.weight.data = weight.detach().t().clone()
    if bias is not None:
        made.bias.data = bias.detach().clone()
    return made


def convolution(layer: nn.Module, kind: str) -> nn.Module:
    """PyG's layer with our weights."""
    W, b = layer.weight.detach(), layer.bias
    d_in, d_out = W.shape
    if kind == "gcn":
        conv = pyg.GCNConv(d_in, d_out, bias=b is not None).to(W.dtype)
        conv.lin.weight.data = W.t().clone()
        if b is not None:
            conv.bias.data = b.detach().clone()
    elif kind == "sage":
        conv = pyg.SAGEConv(d_in, d_out, bias=b is not None).to(W.dtype)
        conv.lin_l = linear(W, b)
        conv.lin_r = linear(layer.own_weight, None)
    elif kind == "gin":
        inner = nn.Sequential(linear(W, b), nn.ReLU(), linear(layer.out_weight, layer.out_bias))
        conv = pyg.GINConv(nn.Identity(), train_eps=True).to(W.dtype)
        conv.nn = inner  # not before: the constructor draws new weights
        conv.eps.data = layer.eps.detach().clone()
    else:
        conv = pyg.GCN2Conv(d_in, alpha=layer.alpha, theta=0.5, layer=layer.position).to(W.dtype)
        conv.weight1.data = W.clone()
    return conv


def pyg_logits(model: Network, kind: str, graph: Graph, dtype: torch.dtype) -> Tensor:
    """The network in PyG's layers, with norms and linear layers of torch."""
    edge_index, weight = edges(graph)
    args = [edge_index] if weight is None or kind in ("sage", "gin") else [edge_index, weight.to(dtype)]
    H, H_0, outputs = graph.x.to(dtype), None, []
    for k in range(model.num_layers):
        layer = model.layer(k)
        if not layer.uses_aggregate:
            Z = linear(layer.weight, layer.bias)(H)
        elif kind == "gcnii":
            Z = convolution(layer, kind)(H, H_0, *args)
        else:
            Z = convolution(layer, kind)(H, *args)
        if layer.residual_weight is not None:
            Z = Z + H @ layer.residual_weight
        if k == model.num_layers - 1 and model.head is None:
            return Z
        if isinstance(layer.norm, BatchNorm):
            norm = nn.BatchNorm1d(Z.shape[1], dtype=dtype)
            norm.load_state_dict({
                "weight": layer.norm.weight, "bias": layer.norm.bias, "running_mean": layer.norm.mean,
                "running_var": layer.norm.var, "num_batches_tracked": torch.tensor(1),
            })  # fmt: skip
            Z = norm.eval()(Z)
        elif layer.norm is not None:
            Z = layer.norm(Z)
        H = torch.relu(Z)
        H_0 = H if k == 0 else H_0
        if layer.uses_aggregate:
            outputs.append(H)
    assert model.head is not None
    jumped = pyg.JumpingKnowledge("cat")(outputs) if model.jk == "concat" else H
    return linear(model.head.weight, model.head.bias)(jumped)


def network(kind: str, dtype: torch.dtype, graph: Graph, **options: object) -> tuple[Network, Tensor]:
    """A network with parameters that are all different from their start, and its logits by exact inference."""
    model = MODELS[kind](in_channels=7, hidden_channels=16, out_channels=4, seed=3, dtype=dtype, **options)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator, dtype=dtype))
    propagation = Propagation(graph, normalization=model.normalization or "symmetric", dtype=dtype)
    aggregated, own = model.reads
    features = propagate_features(graph, propagation, aggregated=aggregated, own=own)
    if model.has_statistics:
        refresh_statistics(model, features, propagation)
    return model, exact_logits(model, features, propagation)


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 1},
        {"num_layers": 2},
        {"num_layers": 3, "norm": "layer", "residual": True},
        {"num_layers": 2, "norm": "batch", "jk": "concat"},
        {"num_layers": 4, "input_layer": True, "bias": False, "norm": "layer", "jk": "concat", "residual": True},
    ],
    ids=str,
)
@torch.no_grad()
def test_whole_networks(kind: str, options: dict[str, object], dtype: torch.dtype) -> None:
    model, logits = network(kind, dtype, GRAPH, **options)
    expected = pyg_logits(model, kind, GRAPH, dtype)
    scale = max(1.0, float(expected.abs().max()))  # sums over neighbors, four deep, reach thousands
    torch.testing.assert_close(logits / scale, expected / scale, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("kind", ["gcn", "gcnii"])
@torch.no_grad()
def test_weights_on_edges(kind: str, dtype: torch.dtype) -> None:
    model, logits = network(kind, dtype, WEIGHTED, num_layers=3)
    torch.testing.assert_close(logits, pyg_logits(model, kind, WEIGHTED, dtype), rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("jk", [None, "cat"])
@pytest.mark.parametrize(("kind", "theirs"), [("gcn", "GCN"), ("sage", "GraphSAGE")])
@torch.no_grad()
def test_the_models_of_pyg(kind: str, theirs: str, jk: str | None) -> None:
    """The same architecture as `torch_geometric.nn.models`, not only the same layers."""
    model, logits = network(kind, torch.float64, GRAPH, num_layers=3, jk="concat" if jk else "last")
    other = getattr(pyg.models, theirs)(7, 16, 3, 4, jk=jk).double().eval()
    for k, conv in enumerate(other.convs):
        conv.load_state_dict(convolution(model.layer(k), kind).state_dict())
    if jk:
        assert model.head is not None
        other.lin.load_state_dict(linear(model.head.weight, model.head.bias).state_dict())
    torch.testing.assert_close(logits, other(GRAPH.x.double(), edges(GRAPH)[0]), rtol=0, atol=1e-10)
