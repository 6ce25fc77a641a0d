"""Must show 5: the same seed gives the same batches and draws always, and the same weights where torch allows it."""

from __future__ import annotations

import pytest
import torch

import cvgnn
from cvgnn.ops import threads as parallel
from cvgnn.sampling import Batch
from cvgnn.training.machine import thread_count

GRAPH = cvgnn.load("citeseer")


def weights(threads: int, **options: object) -> dict[str, torch.Tensor]:
    return cvgnn.fit(GRAPH, epochs=3, threads=threads, output="last", batch_size=50, **options).model.state_dict()


CASES = [
    {"dropout": 0.3},
    {"norm": "layer", "dropout": 0.3},
    {"norm": "layer", "history_dtype": "bfloat16", "layers": 3},
    {"estimator": "ns", "layers": 3},
    {"estimator": "exact"},
    {"optimizer": "adagrad", "form": "paper"},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_threads_and_drawing_ahead_do_not_change_a_bit(options: dict[str, object]) -> None:
    """On two threads the next batch is drawn ahead. (No product is large enough here to be split: see below.)"""
    one, two = weights(1, **options), weights(2, **options)
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("options", CASES, ids=str)
def test_products_that_are_split_are_repeatable_and_close(
    options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every operation shared, however small: BLAS may add in another order, our kernels may not."""
    one = weights(1, **options)
    monkeypatch.setattr(parallel, "WORTH_SHARING", 1)
    two, again = weights(2, **options), weights(2, **options)
    for name in one:
        assert torch.equal(two[name], again[name])
        torch.testing.assert_close(one[name], two[name], rtol=0, atol=1e-4)


def test_batches_and_draws_never_depend_on_threads() -> None:
    def draw(threads: int) -> list[Batch]:
        with thread_count(threads):
            P = cvgnn.Propagation(GRAPH)
            sampler = cvgnn.NeighborSampler(P, num_neighbors=2, num_layers=3, seed=4)
            return list(cvgnn.BatchLoader(GRAPH.train_ids, sampler, batch_size=50, seed=4).epoch(2))

    for a, b in zip(draw(1), draw(2), strict=True):
        assert torch.equal(a.ids, b.ids)
        for k in (1, 2):
            assert torch.equal(a.block(k).sources, b.block(k).sources)
            for part in ("sampled", "transposed", "remainder"):
                for field in ("indptr", "indices", "weight"):
                    assert torch.equal(
                        getattr(getattr(a.block(k), part), field), getattr(getattr(b.block(k), part), field)
                    )


def test_nothing_draws_from_torchs_or_numpys_global_state() -> None:
    import numpy as np

    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    first = weights(1, dropout=0.5)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    second = weights(1, dropout=0.5)
    assert all(torch.equal(first[name], second[name]) for name in first)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)
