"""Must show 6: the paper's Table 5 on Cora and CiteSeer, by its own protocol (maximum over epochs, mean of 3 runs)."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path

import pytest

from cvgnn.data.named import load
from cvgnn.lab.recipes import PAPER_OPTIMIZERS, paper_accuracy, paper_recipe, paper_runs
from cvgnn.training.run import train


@pytest.mark.slow
def test_table_5_on_cora_and_citeseer(shared_data: Path) -> None:
    """The tuned settings of Appendix B with the neighbor draw that the published code ran."""
    difference = {}
    for dataset in ("cora", "citeseer"):
        graph = load(dataset, shared_data)
        for optimizer in PAPER_OPTIMIZERS:
            configs = [paper_recipe(dataset, optimizer, run=run) for run in range(paper_runs(dataset))]
            results = [train(graph, dataclasses.replace(config, scheme="released")).result for config in configs]
            ours = 100 * statistics.mean(result["max_test_accuracy"] for result in results)
            difference[dataset, optimizer] = ours - paper_accuracy(dataset, optimizer)
    assert max(abs(d) for d in difference.values()) < 1.5, difference
    assert abs(statistics.mean(difference.values())) < 0.6, difference
    assert statistics.mean(abs(d) for d in difference.values()) < 0.6, difference
