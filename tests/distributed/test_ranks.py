from __future__ import annotations

from typing import Any

import pytest
import torch

from cvgnn.distributed.ranks import Ranks, tree_sum, world_size
from cvgnn.errors import CvgnnError


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_ranks_that_add_their_own_shards_first_make_the_same_additions(ranks: int) -> None:
    shards = list(torch.randn(8, 5, 3, generator=torch.Generator().manual_seed(1)).unbind())
    each = 8 // ranks
    partial = [tree_sum(shards[r * each : (r + 1) * each]) for r in range(ranks)]
    assert torch.equal(tree_sum(partial), tree_sum(shards))


def test_a_rank_with_other_options_is_refused_with_its_name_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks()
    ranks.hosts = ["one", "two"]
    others: list[dict[str, Any]] = [{"lr": 0.1, "torch": "2"}, {"lr": 0.2, "torch": "2"}]
    monkeypatch.setattr(ranks, "exchange", lambda what: others)
    with pytest.raises(CvgnnError, match=r"rank 1 on two differs from rank 0 on one: lr is 0\.2, not 0\.1$"):
        ranks.require_equal({"lr": 0.1, "torch": "2"})


def test_slurm_counts_only_with_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert world_size() == 1
    monkeypatch.setenv("MASTER_ADDR", "node7")
    assert world_size() == 4


def test_a_rank_that_nobody_meets_says_so_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "9")):
        monkeypatch.setenv(name, value)
    with pytest.raises(CvgnnError, match=r"rank 1 on .* did not meet the other ranks at 127\.0\.0\.1:9 within 1 s"):
        Ranks(timeout=1)
