"""How much memory a run is said to take, and how much it does."""

from __future__ import annotations

import dataclasses
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cvgnn
from cvgnn.config import TrainConfig
from cvgnn.data import Graph, SparseFeatures, from_edges
from cvgnn.errors import CvgnnError
from cvgnn.training import machine as memory
from cvgnn.training.machine import check_memory, estimate_memory
from tests.data.store.cases import make_graph

GIB = 2**30
needs_linux = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs Linux and its C library")

# The measurement, in a process of its own: RssAnon beyond the loaded graph, sampled every millisecond.
MEASURE = """
import ctypes, gc, json
import cvgnn
from tests.training.test_machine_memory import GRAPHS, RUNS
from tests.data.store.cases import make_graph
from tests.data.store.memory_run import Peak, status
cvgnn.fit(make_graph(n=60), epochs=1, layers=3, threads=1)  # imports and compiled code are not the run's
cvgnn.fit(make_graph(n=60), epochs=1, layers=3, threads=1, history_dtype="bfloat16")
cvgnn.fit(make_graph(n=60, sparse=True), epochs=1, threads=1)
peak, told = Peak(), {}
graphs = {kind: make() for kind, make in GRAPHS.items()}
for name, (kind, options) in RUNS.items():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not be there to be taken again
    before = status("RssAnon")
    peak()
    cvgnn.fit(graphs[kind], defaults="fixed", epochs=1, threads=1, **options)
    told[name] = peak() - before
print(json.dumps(told))
"""


def random_graph(n: int, x: torch.Tensor | SparseFeatures) -> Graph:
    """Of degree about 10."""
    rng = np.random.default_rng(0)
    order = rng.permutation(n)
    return from_edges(
        rng.integers(0, n, size=(2, 5 * n)),
        x=x,
        y=rng.integers(0, 10, size=n),
        num_classes=10,
        train_ids=order[:2000],
        val_ids=order[2000:3000],
        test_ids=order[3000:],
    )


def dense_graph() -> Graph:
    return random_graph(50_000, torch.rand(50_000, 256, generator=torch.Generator().manual_seed(0)))


def sparse_graph() -> Graph:
    """Twenty of 5,000 columns in each row."""
    n, entries = 30_000, 20
    columns = np.random.default_rng(0).integers(0, 250, size=(n, entries)) + 250 * np.arange(entries)
    indices = torch.from_numpy(columns.astype(np.int32).reshape(-1))
    values = torch.rand(n * entries, generator=torch.Generator().manual_seed(0))
    return random_graph(n, SparseFeatures(entries * torch.arange(n + 1), indices, values, 5000))


def few_labels_graph() -> Graph:
    """Of 50,000 nodes 300 are trained on or evaluated, by their neighborhoods."""
    graph = dense_graph()
    split = {f"{part}_ids": torch.arange(100 * i, 100 * (i + 1)) for i, part in enumerate(("train", "val", "test"))}
    return dataclasses.replace(graph, **split, validated=True)


GRAPHS = {"few labels": few_labels_graph, "dense": dense_graph, "sparse": sparse_graph}
SMALL: dict[str, Any] = {"batch_size": 512, "output": "last"}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "cv": ("dense", {**SMALL, "hidden": 256}),
    "cv, bfloat16": ("dense", {**SMALL, "hidden": 256, "history_dtype": "bfloat16"}),
    "cv, all bfloat16": ("dense", {**SMALL, "hidden": 64, "history_dtype": "bfloat16", "feature_dtype": "bfloat16"}),
    "cv, 3 layers": ("dense", {**SMALL, "hidden": 128, "layers": 3}),
    "few labels": ("few labels", {**SMALL, "hidden": 256}),
    "sparse": ("sparse", {**SMALL, "hidden": 64}),
}


def shaped(n: int, features: int, *, classes: int = 10, **fields: Any) -> Graph:
    """A graph of any size that takes no memory: all rows are one. All nodes are evaluated."""
    return dataclasses.replace(
        make_graph(),
        indptr=torch.zeros(1, dtype=torch.int64).expand(n + 1),
        indices=torch.zeros(0, dtype=torch.int32),
        x=torch.zeros(1, 1).expand(n, features),
        y=torch.zeros(1, dtype=torch.int64).expand(n),
        val_ids=torch.zeros(1, dtype=torch.int64).expand(n),
        num_classes=classes,
        validated=True,
        **fields,
    )


@pytest.fixture(scope="module")
def measured() -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@needs_linux
@pytest.mark.parametrize("name", list(RUNS))
def test_the_estimate_is_about_what_a_run_takes(name: str, measured: dict[str, int]) -> None:
    kind, options = RUNS[name]
    told = sum(estimate_memory(GRAPHS[kind](), TrainConfig(**options)).values())
    print(f"{name}: said {told >> 20} MiB, measured {measured[name] >> 20}, {told / measured[name]:.2f}")
    assert 0.6 <= told / measured[name] <= 1.8


# The estimate's parts


def parts(graph: Graph, **options: Any) -> dict[str, int]:
    return estimate_memory(graph, TrainConfig(**options))


def test_the_parts_and_their_order() -> None:
    found = parts(shaped(1_000_000, 100), hidden=64)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    names = {"P X", "P", "histories", "evaluation", "a batch", "weights and optimizer", "computing P X"}
    assert found.keys() == names
    assert found["P X"] == 1_000_000 * 100 * 4
    assert found["histories"] == 1_000_000 * (64 * 4 + 8)


def test_features_in_bfloat16_are_kept_beside_the_graphs() -> None:
    graph = shaped(1_000_000, 100)
    held = dataclasses.replace(graph, PX=graph.x, PX_normalization="symmetric", validated=True)
    for each in (graph, held):
        assert parts(each, feature_dtype="bfloat16")["P X"] == 1_000_000 * 100 * 2
    assert parts(held)["P X"] == 0


@pytest.mark.parametrize("layers", [2, 3, 5])
def test_bfloat16_halves_the_histories(layers: int) -> None:
    whole, half = (parts(shaped(10_000, 8), layers=layers, history_dtype=d) for d in ("float32", "bfloat16"))
    ages = 10_000 * 8 * (layers - 1)
    assert 2 * (half["histories"] - ages) == whole["histories"] - ages > 0
    assert {k: v for k, v in half.items() if k != "histories"} == {k: v for k, v in whole.items() if k != "histories"}


@pytest.mark.parametrize("estimator", ["ns", "exact"])
def test_no_control_variate_no_histories(estimator: str) -> None:
    assert parts(shaped(10_000, 8), estimator=estimator)["histories"] == 0


def test_one_layer_has_nothing_hidden() -> None:
    found = parts(shaped(10_000, 8, classes=5), layers=1)
    assert found["histories"] == 0
    # The rows of logits, those of the split again, and rows of X.
    assert found["evaluation"] == 4 * (10_000 * 5 + 10_022 * 5 + 10_000 * 8)


def test_float64_takes_twice_as_much() -> None:
    single, double = (
        dataclasses.replace(shaped(10_000, 8), x=torch.zeros(1, 1, dtype=d).expand(10_000, 8), validated=True)
        for d in (torch.float32, torch.float64)
    )
    assert parts(double)["P X"] == 2 * parts(single)["P X"]
    assert parts(double)["evaluation"] == 2 * parts(single)["evaluation"]


def test_link_prediction_has_wider_outputs_more_nodes_and_a_split() -> None:
    graph = make_graph(n=60)
    nodes, links = (parts(graph, batch_size=5, hidden=128, task=task) for task in ("node", "link"))
    assert "split of the edges" not in nodes
    assert links["split of the edges"] == 25 * graph.num_edges
    assert links["evaluation"] > nodes["evaluation"]  # embeddings are wider than classes are many
    assert links["a batch"] > 3 * nodes["a batch"]


@pytest.mark.parametrize(("normalization", "needed"), [("symmetric", False), ("random-walk", True)])
def test_a_product_that_the_graph_holds_already(normalization: str, needed: bool) -> None:
    x = torch.zeros(1, 1).expand(1000, 8)
    graph = shaped(1000, 8, PX=x, PX_normalization="symmetric")
    assert (parts(graph, normalization=normalization)["P X"] > 0) == needed


def test_sparse_features_count_by_their_entries() -> None:
    """Not less than the sparse product has, and never more than a full one takes while it is computed."""
    graph = make_graph(n=60, sparse=True)
    assert isinstance(graph.x, SparseFeatures)
    found = parts(graph)["P X"]
    from cvgnn.data import Propagation

    product = Propagation(graph).product_sparse(graph.x)
    assert product.values.numel() * 8 <= found <= 60 * 7 * 24


@pytest.mark.parametrize("name", ["hidden", "layers", "batch_size"])
def test_more_takes_more(name: str) -> None:
    graph = make_graph(n=60)
    smaller, larger = (sum(parts(graph, **{name: value}).values()) for value in (2, 4))
    assert smaller < larger


# What is refused


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_to(num_bytes: int | None) -> None:
        monkeypatch.setattr(memory, "available_memory", lambda: num_bytes)

    return set_to


def test_a_run_that_does_not_fit_is_refused(free: Any) -> None:
    free(GIB)
    with pytest.raises(CvgnnError) as caught:
        check_memory(shaped(10_000_000, 100), TrainConfig(hidden=256))
    sentence = str(caught.value)
    total = sum(parts(shaped(10_000_000, 100), hidden=256).values())
    assert sentence.startswith(f"this run needs about {total / GIB:.1f} GiB of memory beside the graph (")
    assert f"{10_000_000 * (256 * 4 + 8) / GIB:.1f} GiB histories" in sentence
    assert "3.7 GiB P X" in sentence
    assert ", and 1.0 GiB are free; " in sentence
    assert "history_dtype=bfloat16 halves the histories, " in sentence
    assert "a smaller hidden than 256 lowers the rest, " in sentence
    assert sentence.endswith("or train anyway with check_memory=False")
    assert "weights and optimizer" not in sentence  # too little to be told


@pytest.mark.parametrize(
    ("graph", "options", "there", "not_there"),
    [
        (shaped(10_000_000, 8), {"hidden": 256}, ["bfloat16"], ["propagate", "batch_size"]),
        (shaped(10_000_000, 8), {"hidden": 256, "history_dtype": "bfloat16"}, ["hidden than 256"], ["bfloat16"]),
        (shaped(10_000_000, 8), {"hidden": 256, "estimator": "ns"}, ["hidden than 256"], ["bfloat16"]),
        (
            shaped(10_000_000, 800),
            {"hidden": 8},
            ["'cvgnn convert --propagate' keeps P X on disk", "feature_dtype=bfloat16 makes P X smaller"],
            ["batch_size"],
        ),
        (
            shaped(10_000_000, 800),
            {"hidden": 8, "feature_dtype": "bfloat16"},
            ["'cvgnn convert --propagate' and feature_dtype=float32 keep P X on disk"],
            ["makes P X smaller"],
        ),
    ],
    ids=["histories", "half of them", "none", "P X", "half of it"],
)
def test_the_advice_fits(
    graph: Graph, options: dict[str, Any], there: list[str], not_there: list[str], free: Any
) -> None:
    free(GIB)
    with pytest.raises(CvgnnError) as caught:
        check_memory(graph, TrainConfig(**options))
    assert all(words in str(caught.value) for words in there)
    assert not any(words in str(caught.value) for words in not_there)


def test_a_batch_that_is_too_large(free: Any) -> None:
    free(1000)
    graph = dataclasses.replace(make_graph(n=60), x=torch.zeros(1, 1).expand(60, 10_000), validated=True)
    PX = dataclasses.replace(graph, PX=graph.x, PX_normalization="symmetric", validated=True)
    with pytest.raises(CvgnnError, match="a smaller batch_size or num_neighbors makes batches smaller"):
        check_memory(PX, TrainConfig(hidden=4))


def test_the_limit_itself_fits(free: Any) -> None:
    graph, config = make_graph(n=60), TrainConfig()
    needed = sum(estimate_memory(graph, config).values())
    free(needed)
    check_memory(graph, config)
    free(needed - 1)
    with pytest.raises(CvgnnError, match="this run needs about"):
        check_memory(graph, config)
    free(None)  # nothing is known
    check_memory(graph, config)


def test_fit_looks_before_it_begins(free: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    free(10)
    options: dict[str, Any] = {"epochs": 1, "hidden": 4, "threads": 1}
    with pytest.raises(CvgnnError, match="or train anyway with check_memory=False"):
        cvgnn.fit(make_graph(n=60), **options)
    run = cvgnn.fit(make_graph(n=60), check_memory=False, **options)
    assert len(run.records) == 1
    monkeypatch.setattr(memory, "check_memory", pytest.fail)
    cvgnn.fit(make_graph(n=60), check_memory=False, **options)
