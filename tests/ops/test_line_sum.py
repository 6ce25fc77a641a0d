from __future__ import annotations

import numpy as np
import pytest
import torch

from cvgnn.data import AGGREGATIONS, Propagation, from_edges, propagation
from cvgnn.ops.line_sum import LINE, sum_lines
from cvgnn.ops.row_sum import Rows, weighted_sum
from cvgnn.training.machine import thread_count

N = 50
EDGES = np.random.default_rng(0).integers(0, N - 1, (2, 400))  # the last node has no neighbor


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_it_has_the_bits_of_embedding_bag(threads: int) -> None:
    g = from_edges(EDGES, x=torch.ones(N, 1), y=np.zeros(N, int), train_ids=[0])
    table = torch.randn(N, LINE, generator=torch.Generator().manual_seed(0))
    out = torch.zeros(N, LINE)
    with thread_count(threads):
        sum_lines(g.indptr.numpy(), g.indices.numpy(), table, out)
    assert torch.equal(out, weighted_sum(Rows(g.indptr.int(), g.indices, None), table))
    exact = weighted_sum(Rows(g.indptr.int(), g.indices, None), table.double())
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("normalization", AGGREGATIONS)
@pytest.mark.parametrize("F", [1, 15, 16, 33])
def test_the_product_with_P_has_the_same_bits_either_way(
    normalization: str, F: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = from_edges(EDGES, x=torch.ones(N, 1), y=np.zeros(N, int), train_ids=[0])
    P = Propagation(g, normalization=normalization)  # type: ignore[arg-type]
    H = torch.randn(N, F, generator=torch.Generator().manual_seed(1))
    scale = torch.linspace(0.5, 2, N)
    plain = P.product(H, row_scale=scale), P.product(H, dtype=torch.bfloat16)
    calls = []
    monkeypatch.setattr(propagation, "WORTH_SHARING", 0)
    monkeypatch.setattr(propagation, "sum_lines", lambda *given: (calls.append(1), sum_lines(*given)))
    assert torch.equal(P.product(H, row_scale=scale), plain[0])
    assert torch.equal(P.product(H, dtype=torch.bfloat16), plain[1])
    assert len(calls) == 2 * -(-F // LINE)
