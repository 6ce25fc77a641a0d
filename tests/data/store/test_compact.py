"""A compact store: what it keeps, that training on it ends with the same bits, and what it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cvgnn
from cvgnn.data import Graph
from cvgnn.data.named.synthetic import SyntheticSpec, generate
from cvgnn.data.store import compact_store, open_store, write_store
from cvgnn.errors import CvgnnError
from tests.data.store.cases import sparse_features


def few_labels(*, sparse: bool = False, weighted: bool = False) -> Graph:
    """3,000 nodes of which 90 have a split, so that most are far from all of these."""
    spec = SyntheticSpec(
        num_nodes=3000, num_edges=9000, num_features=12, num_classes=4, train=40, val=20, test=30, degree_exponent=2.5,
    )  # fmt: skip
    graph = generate(spec)
    if weighted:
        reverse = torch.repeat_interleave(torch.arange(3000), graph.degree)
        weight = 1.0 + ((graph.indices + reverse) % 7) / 7  # the same in both directions
        graph = dataclasses.replace(graph, edge_weight=weight.float(), validated=True)
    if sparse:
        x = torch.where(graph.x.abs() > 0.9, graph.x, 0.0)  # type: ignore[union-attr]
        graph = dataclasses.replace(graph, x=sparse_features(x), validated=True)
    return graph


def trained(graph: Graph, **options: Any) -> cvgnn.Run:
    options = {"epochs": 3, "batch_size": 16, "hidden": 8, "num_neighbors": 2, "norm": "layer", "seed": 3} | options
    return cvgnn.fit(graph, **options)


CASES: list[tuple[dict[str, Any], dict[str, Any], str, int]] = [
    ({}, {}, "symmetric", 1),
    ({}, {"estimator": "cv", "layers": 3, "dropout": 0.2}, "symmetric", 2),
    ({"weighted": True}, {"estimator": "ns"}, "symmetric", 1),
    ({"weighted": True}, {"model": "sage", "residual": True}, "mean", 1),
    ({"sparse": True}, {"model": "gin"}, "sum", 1),
    ({"sparse": True}, {"estimator": "exact"}, "symmetric", 1),
    ({}, {"model": "gcnii", "layers": 2}, "symmetric", 2),
    ({}, {"layers": 1}, "symmetric", 0),
]


@pytest.mark.parametrize(("kind", "options", "propagate", "hops"), CASES)
def test_training_ends_with_the_same_bits(
    tmp_path: Path, kind: dict[str, Any], options: dict[str, Any], propagate: Any, hops: int
) -> None:
    whole = few_labels(**kind)
    compact_store(whole, tmp_path / "compact", hops=hops, propagate=propagate)
    part = open_store(tmp_path / "compact")
    assert part.num_nodes < 0.8 * whole.num_nodes
    expected, run = trained(whole, **options), trained(part, **options)
    for name, weight in expected.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], weight), name
    assert [r.metrics for r in run.records] == [r.metrics for r in expected.records]
    assert part.cutout is not None
    ids = part.test_ids
    assert part.cutout.ids[ids].tolist() == whole.test_ids.tolist()
    torch.testing.assert_close(run.predict_proba(ids), expected.predict_proba(whole.test_ids))


def test_the_product_does_not_depend_on_the_columns_in_memory(tmp_path: Path) -> None:
    whole = few_labels()
    for name, memory in (("all", 1 << 30), ("few", 5 * 3000 * 4)):
        compact_store(whole, tmp_path / name, memory=memory)
    write_store(whole, tmp_path / "whole", propagate="symmetric")
    compact_store(open_store(tmp_path / "whole"), tmp_path / "stored")
    graphs = [open_store(tmp_path / name) for name in ("all", "few", "stored")]
    assert all(torch.equal(graph.PX, graphs[0].PX) for graph in graphs)  # type: ignore[arg-type]


def test_what_is_kept(tmp_path: Path) -> None:
    """The path 0-1-2-3-4-5 with node 0 in training and node 1 in test."""
    edges = [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]
    path = cvgnn.from_edges(edges, x=torch.eye(6), y=[0, 1] * 3, train_ids=[0], test_ids=[1])
    compact_store(path, tmp_path / "a", splits=["train"])
    compact_store(path, tmp_path / "b", hops=2)
    a, b = open_store(tmp_path / "a"), open_store(tmp_path / "b")
    assert a.indptr.tolist() == [0, 1, 1]  # row 0 is complete, row 1 is at the border
    assert b.indptr.tolist() == [0, 1, 3, 5, 5]
    assert (a.train_ids.tolist(), a.test_ids.tolist(), b.test_ids.tolist()) == ([0], [], [1])
    assert a.cutout is not None
    assert a.cutout.row_sums.tolist() == [1.0, 2.0]
    assert a.node_names.tolist() == [0, 1]  # type: ignore[union-attr]
    np.testing.assert_allclose(a.PX[0].tolist(), [0.5, 6**-0.5, 0, 0, 0, 0], rtol=1e-6)  # type: ignore[index]


def test_what_is_refused(tmp_path: Path) -> None:
    whole = few_labels()
    compact_store(whole, tmp_path / "compact")
    part = open_store(tmp_path / "compact")
    for options, message in [
        ({"layers": 3}, "has the rows of 1 hops, and a network of 3 layers samples at 2"),
        ({"model": "sage"}, "has P X for 'symmetric', and the model needs 'mean'"),
        ({"normalization": "random-walk"}, "the model needs 'random-walk'"),
        ({"feature_norm": "row"}, "feature_norm needs the features of the whole graph"),
        ({"inductive": True}, "not with inductive"),
        ({"task": "link"}, "labels at nodes"),
    ]:
        with pytest.raises(CvgnnError, match=message):
            trained(part, **options)
    run = trained(part, epochs=1)
    border = (part.degree == 0).nonzero().flatten()[:1]
    for call in (run.predict, lambda: run.predict(border), run.embed, lambda: run.predict_new(part.x[:1], [[0], [1]])):
        with pytest.raises(CvgnnError, match="predict on the whole graph"):
            call()
    with pytest.raises(CvgnnError, match="compact already"):
        compact_store(part, tmp_path / "again")
    with pytest.raises(CvgnnError, match="must name train"):
        compact_store(whole, tmp_path / "again", splits=["val"])
    with pytest.raises(CvgnnError, match="is not written again"):
        write_store(part, tmp_path / "again")
