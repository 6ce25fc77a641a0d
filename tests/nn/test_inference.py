from __future__ import annotations

import numpy as np
import pytest
import torch

from cvgnn.data import Propagation
from cvgnn.errors import CvgnnError
from cvgnn.nn import GCN, exact_embedding, exact_hidden, exact_logits
from cvgnn.nn.inference import PropagatedRows
from cvgnn.ops import row_input
from cvgnn.reference import dense_P, exact_forward
from cvgnn.sampling import propagate_features
from tests.build import graph_from_dense, random_adjacency

N = 25
A = random_adjacency(N, mean_degree=5, weighted=True, seed=9)
GRAPH = graph_from_dense(A, features=6)
PROPAGATION = Propagation(GRAPH)
FEATURES = propagate_features(GRAPH, PROPAGATION)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("hidden", [2, 8])
@pytest.mark.parametrize(("norm", "bias"), [("layer", True), ("none", False), ("none", True)])
@pytest.mark.parametrize("K", [1, 2, 3])
def test_equals_the_reference(
    K: int, norm: str, bias: bool, hidden: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All layers, in whatever pieces, narrowing and widening (so that `P (H W)` and `(P H) W` are both taken)."""
    monkeypatch.setattr(row_input, "_ROWS_PER_CHUNK", chunk)
    net = GCN(
        in_channels=6, hidden_channels=hidden, out_channels=4, num_layers=K, norm=norm, bias=bias, dropout=0.5,  # type: ignore[arg-type]
        dtype=torch.float64,
    )  # fmt: skip
    params = {name: p.detach().numpy() for name, p in net.named_parameters()}
    H, logits = exact_forward(params, dense_P(A), GRAPH.x.numpy(), K)  # type: ignore[union-attr]
    np.testing.assert_allclose(exact_logits(net, FEATURES, PROPAGATION).numpy(), logits, rtol=0, atol=1e-12)
    hidden_layers = exact_hidden(net, FEATURES, PROPAGATION)
    assert len(hidden_layers) == K - 1
    for k, mine in enumerate(hidden_layers, start=1):
        np.testing.assert_allclose(mine.numpy(), H[k], rtol=0, atol=1e-12)
        assert torch.equal(exact_embedding(net, FEATURES, PROPAGATION, layer=k), mine)


def test_changes_nothing() -> None:
    net = GCN(in_channels=6, hidden_channels=3, out_channels=4, norm="layer", dropout=0.5, dtype=torch.float64).train()
    before = [p.detach().clone() for p in net.parameters()]
    first = exact_logits(net, FEATURES, PROPAGATION)
    assert torch.equal(first, exact_logits(net, FEATURES, PROPAGATION))  # no dropout, although in training mode
    assert net.training
    assert not first.requires_grad
    assert all(torch.equal(p, b) for p, b in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("layer", [0, 3, -1])
def test_a_layer_that_does_not_exist(layer: int) -> None:
    net = GCN(in_channels=6, hidden_channels=3, out_channels=4, dtype=torch.float64)
    with pytest.raises(CvgnnError, match=rf"layer must lie in 1..2 .* not {layer}"):
        exact_embedding(net, FEATURES, PROPAGATION, layer=layer)


def test_rows_of_a_product_with_the_whole_graph() -> None:
    H, P = torch.linspace(-1, 1, 3 * GRAPH.num_nodes).double().view(-1, 3), torch.from_numpy(dense_P(A))
    rows, W = PropagatedRows(PROPAGATION, H), torch.ones(3, 5, dtype=torch.float64)
    torch.testing.assert_close(rows.read(2, 7), (P @ H)[2:7], rtol=0, atol=1e-12)
    for weight in (W, W[:, :2]):  # wider and narrower than H
        torch.testing.assert_close(rows @ weight, P @ H @ weight, rtol=0, atol=1e-12)
    with pytest.raises(CvgnnError, match="exact inference has no gradient"):
        rows @ W.clone().requires_grad_()
