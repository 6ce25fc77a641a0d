"""Ages and errors of histories, beside a record of every write and exact representations."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from cvgnn.config import TrainConfig
from cvgnn.errors import CvgnnError
from cvgnn.lab.diagnose import diagnose_history
from cvgnn.lab.diagnose.trainers import fresh_trainer, train_until
from cvgnn.nn import ControlVariate, exact_hidden
from tests.build import graph_from_dense, random_adjacency

GRAPH = graph_from_dense(random_adjacency(40, mean_degree=2, weighted=False, seed=3))
CONFIG = TrainConfig(hidden=4, batch_size=3, layers=3, num_neighbors=[1, 2], lr=0.05)
STEPS = (0, 2, 9)


def test_ages_and_errors_layer_by_layer() -> None:
    found = diagnose_history(GRAPH, CONFIG, steps=STEPS)
    rows = {(row["step"], row["layer"]): row for row in found.data["moments"]}
    assert list(rows) == [(step, k) for step in STEPS for k in (1, 2)]

    A = torch.zeros(40, 40, dtype=torch.bool)
    A[torch.repeat_interleave(torch.arange(40), GRAPH.degree), GRAPH.indices.long()] = True
    near = torch.zeros(40, dtype=torch.bool)
    near[GRAPH.train_ids] = True
    one_hop = near | A[near].any(dim=0)
    read = {2: one_hop, 1: one_hop | A[one_hop].any(dim=0)}

    trainer = fresh_trainer(GRAPH, CONFIG)
    assert isinstance(trainer.estimator, ControlVariate)
    written = {1: torch.zeros(40), 2: torch.zeros(40)}
    batches = [batch for epoch in (1, 2) for batch in trainer.loader.epoch(epoch)]
    for step in train_until(trainer, STEPS):
        for batch in batches[:step]:
            for k in (1, 2):
                written[k][batch.block(k).sources] = batch.step
        exact = exact_hidden(trainer.model, trainer.estimator.features, trainer.loader.sampler.propagation)
        for k in (1, 2):
            row, H, Hbar = rows[step, k], exact[k - 1], trainer.estimator.history(k).values
            ages = np.sort((step - written[k][read[k]]).numpy())
            n = len(ages)
            assert row["rows"] == n
            assert row["ages"] == [ages[max(0, int(np.ceil(q * n)) - 1)] for q in (0.1, 0.5, 0.9, 1.0)]
            assert row["mean_age"] == pytest.approx(ages.mean())
            assert row["never"] == pytest.approx(float((written[k][read[k]] == 0).double().mean()))
            for name, rows_of in (("error", read[k]), ("error_of_all", torch.ones(40, dtype=torch.bool))):
                ratio = torch.linalg.norm((H - Hbar)[rows_of]) / torch.linalg.norm(H[rows_of])
                assert row[name] == pytest.approx(float(ratio), abs=1e-12)
    assert rows[0, 1]["error"] == rows[0, 2]["error"] == 0
    assert {k: sum(counts) for k, counts in found.data["last_ages"].items()} == {
        "1": int(read[1].sum()),
        "2": int(read[2].sum()),
    }


def test_what_is_shown() -> None:
    found = diagnose_history(GRAPH, CONFIG, steps=STEPS)
    json.loads(found.to_json())
    assert [figure.key for figure in found.figures] == ["error", "age", "ages"]
    assert [len(figure.lines) for figure in found.figures] == [4, 3, 2]
    for line in found.figures[2].lines:
        assert sum(line.y[::2]) == pytest.approx(1.0)  # all rows have a bar
    assert len(found.tables[0].rows) == 6
    assert found.verdict.startswith("After step 9, the history of layer 1 is off by ")
    assert [figure.key for figure in diagnose_history(GRAPH, CONFIG, steps=(3,)).figures] == ["ages"]


def test_moments_before_training_diverged_are_kept() -> None:
    config = TrainConfig(hidden=4, batch_size=3, optimizer="sgd", lr=1e80, norm="none", bad_step="skip")
    found = diagnose_history(GRAPH, config, steps=(0, 50))
    alone = diagnose_history(GRAPH, config, steps=(0,))
    assert (found.data, found.figures) == (alone.data, alone.figures)
    assert 1 <= found.settings["diverged"] <= 50
    assert f"Training diverged at step {found.settings['diverged']}: " in found.verdict
    assert found.verdict.startswith("After step 0, ")
    with pytest.raises(CvgnnError, match=r"training diverged at step \d+: .*; choose a smaller lr"):
        diagnose_history(GRAPH, config, steps=(50,))


def test_without_histories() -> None:
    with pytest.raises(CvgnnError, match="keeps no histories; train with --estimator cv"):
        diagnose_history(GRAPH, TrainConfig(estimator="ns", hidden=4))
    with pytest.raises(CvgnnError, match="a network of one layer keeps no histories"):
        diagnose_history(GRAPH, TrainConfig(layers=1))
