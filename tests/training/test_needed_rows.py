"""Rows of a sparse `P X` that neither training nor evaluation reads: left out, and computed when they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import cvgnn
from cvgnn.config import TrainConfig
from cvgnn.data import Propagation
from cvgnn.data.subgraph import within
from cvgnn.lab.diagnose.trainers import trainer_of_run
from cvgnn.sampling import FeatureSource
from cvgnn.sampling.features import PartialSource
from cvgnn.training import trainer_builder
from cvgnn.training.trainer_builder import build_model, build_task, build_trainer, needed_rows
from cvgnn.utils.progress import ProgressReporter
from tests.data.store.test_compact import few_labels, trained


def rows_are_all_there(features: FeatureSource) -> bool:
    part = features.incomplete.span(0, features.num_nodes)
    return not part.matrix.tensors[2].isnan().any()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"estimator": "cv", "layers": 3, "dropout": 0.2, "feature_norm": "row"},
        {"model": "sage", "estimator": "ns", "residual": True},
        {"model": "gin", "estimator": "exact", "output": "tau"},
    ],
)
def test_training_ends_with_the_same_bits(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    graph = few_labels(sparse=True)
    part = trained(graph, **options)
    assert isinstance(part.features, PartialSource)
    assert not rows_are_all_there(part.features)  # after training and evaluation
    some = graph.test_ids[:5]
    assert torch.equal(part.predict(some), part.predict()[some])  # all nodes: now every row is asked for
    assert rows_are_all_there(part.features)
    monkeypatch.setattr(trainer_builder, "_FEW_ROWS", 0.0)
    whole = trained(graph, **options)
    assert not isinstance(whole.features, PartialSource)
    for mine, other in zip(part.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert [r.metrics for r in part.records] == [r.metrics for r in whole.records]
    assert torch.equal(part.outputs(), whole.outputs())
    assert torch.equal(part.embed(1), whole.embed(1))


def test_a_run_is_resumed_and_its_checkpoint_diagnosed(tmp_path: Path) -> None:
    graph = few_labels(sparse=True)
    whole = trained(graph, epochs=4)
    trained(graph, epochs=2, out=tmp_path / "run")
    trainer = trainer_of_run(tmp_path / "run", graph)
    assert all(values.isfinite().all() for values in trainer.estimator.state_dict().values())
    again = trained(graph, epochs=4, resume=tmp_path / "run")
    for mine, other in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert torch.equal(cvgnn.load_run(tmp_path / "run", graph).outputs(), whole.outputs())


def test_which_rows_are_needed() -> None:
    graph = few_labels(sparse=True)
    config = TrainConfig(layers=3, num_neighbors=(2,))
    task = build_task(graph, config)
    model = build_model(task, config, dtype=graph.x.dtype)
    split = torch.cat([graph.train_ids, graph.val_ids, graph.test_ids])
    A = Propagation(graph).dense() != 0  # with self loops
    reached = torch.zeros(graph.num_nodes, dtype=torch.bool)
    reached[split] = True
    expected = A[:, A[:, reached].any(dim=1)].any(dim=1)
    needed = needed_rows(task, config, model)
    assert needed is not None
    assert torch.equal(needed, expected)
    assert torch.equal(torch.from_numpy(within(graph, split.numpy(), 2)[0]), expected)


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (few_labels(), {}),  # dense features
        (few_labels(sparse=True), {"layers": 4}),  # nearly all nodes are reached
        (few_labels(sparse=True), {"norm": "batch"}),  # statistics of all nodes
        (few_labels(sparse=True), {"inductive": True}),
    ],
)
def test_where_all_rows_are_computed(graph: cvgnn.Graph, options: dict[str, Any]) -> None:
    assert not isinstance(trained(graph, epochs=1, **options).features, PartialSource)


def test_trainers_built_by_hand_have_all_rows() -> None:
    assert not isinstance(build_trainer(few_labels(sparse=True), TrainConfig()).estimator.features, PartialSource)


def test_the_exact_pass_of_the_histories_and_products_show_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, float] = {}
    monkeypatch.setattr(ProgressReporter, "__call__", lambda self, stage, share: seen.update({stage: share}))
    trained(few_labels(sparse=True), epochs=1)
    assert seen["P X"] == seen["histories"] == 1.0
    trained(few_labels(), epochs=1, layers=3)
    assert seen["columns"] == 1.0
