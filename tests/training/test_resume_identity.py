"""Two runs have the same identity exactly if they compute the same."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cvgnn
from cvgnn.config import GraphSource, TrainConfig
from cvgnn.data import Graph, SparseFeatures, from_edges
from cvgnn.data.store import write_store
from cvgnn.training import resume as module
from cvgnn.training.checkpoint import Checkpoint
from cvgnn.training.machine import code_digest
from cvgnn.training.resume import differences, graph_digest, identity
from tests.data.store.cases import KINDS, edit_header, make_graph

GRAPH = make_graph()
SOURCE = GraphSource()

OTHER: dict[str, Any] = {
    "estimator": "cv", "scheme": "paper", "num_neighbors": (3,), "optimizer": "sgd", "form": "paper", "lr": 0.02,
    "beta1": 0.5, "beta2": 0.5, "nu_min": 1e-6, "weight_decay": 0.0, "batch_size": 7, "batches": "replacement",
    "layers": 3, "hidden": 65, "norm": "layer", "bias": False, "dropout": 0.25, "normalization": "random-walk",
    "history_dtype": "bfloat16", "output": "last", "eval_every": 2, "seed": 1, "clip_norm": 1.0, "bad_step": "skip",
    "input_dropout": 0.5, "feature_norm": "row", "init": "glorot", "label_smoothing": 0.1,
    "feature_dtype": "bfloat16", "model": "gcnii", "residual": True, "activation": "elu", "jk": "concat",
    "input_layer": True, "norm_every": 7, "device": "cuda", "control": 0.5, "ema": 0.9,
    "loss": "custom:f", "task": "multilabel", "calibrate": True, "metric": "macro_f1", "class_weight": "balanced",
    "head": "dot", "negatives": "degree", "val_edges": 0.2, "test_edges": 0.2, "edge_seed": 4, "hits_k": 20,
    "inductive": True,
    "pool": "sum", "sampled_start": 5,
}  # fmt: skip
TOGETHER = {name: value for name, value in OTHER.items() if name != "sampled_start"}  # which excludes input_layer
FREE = {"epochs": 7, "patience": 5, "threads": 2, "histories": "disk"}
"""What may change; the threads that are used are given apart."""


@pytest.fixture(autouse=True)
def one_code(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The digest of the code is computed once; it has its own tests."""
    if "code_digest" not in request.node.name:
        monkeypatch.setattr(module, "code_digest", lambda: "code")


def of(graph: Graph = GRAPH, *, used_threads: int = 1, **options: Any) -> dict[str, Any]:
    return identity(graph, SOURCE, TrainConfig(**options), threads=used_threads)


def test_the_table_names_every_option() -> None:
    """A new field of the config must be thought about here."""
    assert OTHER.keys() | FREE.keys() | {"schedule"} == {field.name for field in dataclasses.fields(TrainConfig)}
    defaults = TrainConfig()
    assert all(getattr(defaults, name) != value for name, value in {**OTHER, **FREE}.items())


def test_equal_runs_are_equal() -> None:
    assert of() == of()
    assert of(make_graph()) == of(make_graph())
    assert of(**TOGETHER) == of(**TOGETHER)
    assert differences(of(), of()) == []


def test_it_survives_json() -> None:
    for mine in (of(), of(**{**TOGETHER, "num_neighbors": (3, 2, 2), "lr": 0.1 + 0.2})):
        assert json.loads(json.dumps(mine, allow_nan=False)) == mine


def test_a_schedule_counts_with_its_epochs() -> None:
    """With one the learning rate of an epoch depends on how many there will be."""
    falling = of(schedule="cosine")
    assert differences(of(), falling) == ["schedule was 'constant' and is 'cosine over 100 epochs'"]
    changes = differences(falling, of(schedule="cosine", epochs=200))
    assert changes == ["schedule was 'cosine over 100 epochs' and is 'cosine over 200 epochs'"]


@pytest.mark.parametrize("name", OTHER)
def test_every_option_counts(name: str) -> None:
    changed = of(**{name: OTHER[name]})
    assert [key for key, value in of().items() if changed[key] != value] == [name]
    (sentence,) = differences(of(), changed)
    shown = [list(v) if isinstance(v, tuple) else v for v in (getattr(TrainConfig(), name), OTHER[name])]
    assert sentence == f"{name} was {shown[0]!r} and is {shown[1]!r}"


@pytest.mark.parametrize("name", FREE)
def test_what_may_change(name: str) -> None:
    assert of(**{name: FREE[name]}) == of()


def test_the_threads_that_are_used_count() -> None:
    assert differences(of(used_threads=1), of(used_threads=2)) == ["threads was 1 and is 2"]


@pytest.mark.parametrize("library", ["torch", "numpy", "numba"])
def test_the_libraries_count(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = of()
    monkeypatch.setattr(module, "version", lambda name: "0.0.1" if name == library else before[name])
    assert differences(before, of()) == [f"{library} was {before[library]!r} and is '0.0.1'"]


def test_a_library_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise module.PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", missing)
    assert of()["numba"] == "unknown"


# The graph


def changed_tensor(name: str, place: int = 0, by: float = 1) -> Callable[[Graph], Graph]:
    def change(graph: Graph) -> Graph:
        value = getattr(graph, name)
        if isinstance(value, SparseFeatures):
            values = value.values.clone()
            values[place] += by
            return dataclasses.replace(
                graph, x=SparseFeatures(value.indptr, value.indices, values, value.num_columns), validated=True
            )
        value = value.clone()
        value.view(-1)[place] += by
        return dataclasses.replace(graph, **{name: value}, validated=True)

    return change


def rewired(graph: Graph) -> Graph:
    """One edge leads elsewhere; as many as before."""
    A = np.zeros((graph.num_nodes, graph.num_nodes))
    row = np.repeat(np.arange(graph.num_nodes), graph.degree.numpy())
    A[row, graph.indices.numpy()] = 1
    a, b = np.argwhere(np.triu(A))[3]
    c = next(c for c in range(graph.num_nodes - 1, 0, -1) if c not in (a, b) and not A[a, c])
    A[a, b] = A[b, a] = 0
    A[a, c] = A[c, a] = 1
    target, source = np.nonzero(A)
    ids = {name: getattr(graph, name) for name in ("train_ids", "val_ids", "test_ids")}
    return from_edges(np.stack([source, target]), x=graph.x, y=graph.y, num_classes=3, **ids)


def moved(split: str, other: str) -> Callable[[Graph], Graph]:
    """A node changes from one part of the split to another."""

    def change(graph: Graph) -> Graph:
        mine, theirs = getattr(graph, split), getattr(graph, other)
        fields = {split: mine[1:], other: torch.cat([theirs, mine[:1]]).sort().values}
        return dataclasses.replace(graph, **fields, validated=True)

    return change


def sparse_columns(graph: Graph) -> Graph:
    x = graph.x
    assert isinstance(x, SparseFeatures)
    indices = x.indices.clone()
    indices[0] = (indices[0] + 1) % x.num_columns
    return dataclasses.replace(graph, x=SparseFeatures(x.indptr, indices, x.values, x.num_columns), validated=True)


def sparse_rows(graph: Graph) -> Graph:
    x = graph.x
    assert isinstance(x, SparseFeatures)
    indptr = x.indptr.clone()
    place = int((indptr.diff() > 0).nonzero()[0]) + 1
    indptr[place] -= 1
    return dataclasses.replace(graph, x=SparseFeatures(indptr, x.indices, x.values, x.num_columns), validated=True)


CHANGES: dict[str, tuple[str, Callable[[Graph], Graph]]] = {
    "the first feature": ("dense", changed_tensor("x", 0, 1e-6)),
    "the last feature": ("dense", changed_tensor("x", -1, 1e-6)),
    "the features' dtype": ("dense", lambda g: dataclasses.replace(g, x=g.x.double(), validated=True)),  # type: ignore[union-attr]
    "a sparse value": ("sparse", changed_tensor("x", 0, 1e-6)),
    "a sparse column": ("sparse", sparse_columns),
    "a sparse row": ("sparse", sparse_rows),
    "dense for sparse": ("sparse", lambda g: dataclasses.replace(g, x=g.x.to_dense(), validated=True)),
    "a label": ("dense", changed_tensor("y", 4, 1)),
    "the last label": ("dense", changed_tensor("y", -1, -1)),
    "an edge": ("dense", rewired),
    "a weight": ("weighted", changed_tensor("edge_weight", 2, 1e-6)),
    "no weights": ("weighted", lambda g: dataclasses.replace(g, edge_weight=None, validated=True)),
    "training to validation": ("dense", moved("train_ids", "val_ids")),
    "validation to test": ("dense", moved("val_ids", "test_ids")),
    "a test node less": ("dense", lambda g: dataclasses.replace(g, test_ids=g.test_ids[1:], validated=True)),
    "a class more": ("dense", lambda g: dataclasses.replace(g, num_classes=4, validated=True)),
    "directed": ("dense", lambda g: dataclasses.replace(g, directed=True, validated=True)),
    "P X, which is then taken from the graph": ("dense", lambda g: dataclasses.replace(g, PX=g.x, PX_normalization="symmetric", validated=True)),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "change"), CHANGES.values(), ids=CHANGES)
def test_every_array_of_the_graph_counts(kind: str, change: Callable[[Graph], Graph]) -> None:
    graph = make_graph(**KINDS[kind])
    assert differences(of(graph), of(change(graph))) == ["the graph's content has changed"]


def test_every_bit_of_a_number_counts() -> None:
    plus, minus = (dataclasses.replace(GRAPH, x=torch.full((30, 7), x), validated=True) for x in (0.0, -0.0))
    assert of(plus) != of(minus)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"split": "said otherwise"},
        {"node_names": np.arange(30) * 2},
        {"class_names": ("a", "b", "c")},
    ],
    ids=str,
)
def test_names_do_not_count(change: dict[str, Any]) -> None:
    assert of(dataclasses.replace(GRAPH, **change, validated=True)) == of()


def test_how_a_tensor_lies_does_not_count() -> None:
    assert isinstance(GRAPH.x, torch.Tensor)
    turned = GRAPH.x.t().contiguous().t()
    assert not turned.is_contiguous()
    assert of(dataclasses.replace(GRAPH, x=turned, validated=True)) == of()


def test_pieces_of_any_size_give_the_same_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph_digest(GRAPH, SOURCE)
    monkeypatch.setattr(module, "_PIECE", 7)
    assert graph_digest(GRAPH, SOURCE) == before


def test_all_kinds_of_graphs_differ() -> None:
    kinds = {name: graph_digest(make_graph(**kind), SOURCE) for name, kind in KINDS.items() if "named" not in name}
    assert len(set(kinds.values())) == len(kinds)


def test_a_store_is_known_by_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arrays, which may be larger than memory, are not read."""
    folders = [tmp_path / name for name in "abc"]
    write_store(GRAPH, folders[0])
    write_store(make_graph(seed=1), folders[1])
    shutil.copytree(folders[0], folders[2])

    def refuse(*args: object) -> None:
        raise AssertionError("an array is read")

    monkeypatch.setattr(torch.Tensor, "contiguous", refuse)
    a, b, c = (graph_digest(GRAPH, GraphSource(graph=folder)) for folder in folders)
    assert a == c  # wherever it lies
    assert a != b
    for file in folders[0].glob("*.npy"):
        file.write_bytes(b"")
    assert graph_digest(GRAPH, GraphSource(graph=folders[0])) == a
    with pytest.raises(AssertionError, match="an array is read"):
        graph_digest(GRAPH, GraphSource(graph=tmp_path / "no store"))


def test_a_store_whose_array_has_changed(tmp_path: Path) -> None:
    write_store(GRAPH, tmp_path / "s")
    source = GraphSource(graph=tmp_path / "s")
    before = graph_digest(GRAPH, source)
    edit_header(tmp_path / "s", lambda body: body["arrays"]["x"].update(sha256="0" * 64))
    assert graph_digest(GRAPH, source) != before


# The code


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this package's source files, taken for it."""
    folder = tmp_path / "cvgnn"
    root = Path(cvgnn.__file__).parent
    for file in root.rglob("*.py"):
        copy = folder / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    monkeypatch.setattr(cvgnn, "__file__", str(folder / "__init__.py"))
    return folder


CODE_CHANGES: dict[str, Callable[[Path], object]] = {
    "a line more": lambda p: (p / "rng.py").write_text((p / "rng.py").read_text() + "\n"),
    "another letter": lambda p: (p / "rng.py").write_text((p / "rng.py").read_text().replace("e", "E", 1)),
    "a file more": lambda p: (p / "new.py").write_text(""),
    "a file less": lambda p: (p / "ops" / "dropout.py").unlink(),
    "a file of another name": lambda p: (p / "rng.py").rename(p / "gnr.py"),
}


def test_code_digest_is_that_of_the_files(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = code_digest()
    monkeypatch.undo()
    assert code_digest() == copied


@pytest.mark.parametrize("change", CODE_CHANGES.values(), ids=CODE_CHANGES)
def test_code_digest_changes_with_any_file(package: Path, change: Callable[[Path], object]) -> None:
    before = identity(GRAPH, SOURCE, TrainConfig(), threads=1)
    change(package)
    after = identity(GRAPH, SOURCE, TrainConfig(), threads=1)
    assert differences(before, after) == ["cvgnn's own code has changed"]


def test_code_digest_does_not_look_at_other_files(package: Path) -> None:
    before = code_digest()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "rng.cpython-311.pyc").write_bytes(b"x")
    (package / "notes.txt").write_text("x")
    assert code_digest() == before


# Words


@pytest.mark.parametrize(
    ("then", "now", "sentences"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1.0}, []),
        ({"lr": 0.1}, {}, ["lr was 0.1 and is not set"]),
        ({}, {"lr": None}, ["lr was not set and is None"]),
        ({"b": 1, "a": 1}, {"b": 2, "a": 2}, ["a was 1 and is 2", "b was 1 and is 2"]),
        ({"graph": "x"}, {"graph": "y"}, ["the graph's content has changed"]),
        ({"code": "x"}, {}, ["cvgnn's own code has changed"]),
        ({"torch": "2.6"}, {"torch": "2.7"}, ["torch was '2.6' and is '2.7'"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a was [1, 2] and is [2, 1]"]),
    ],
    ids=str,
)
def test_differences(then: dict[str, Any], now: dict[str, Any], sentences: list[str]) -> None:
    assert differences(then, now) == sentences


def test_long_values_are_shortened() -> None:
    (sentence,) = differences({"a": "x" * 1000}, {"a": 1})
    assert sentence == "a was '" + 37 * "x" + "..." + 38 * "x" + "' and is 1"


def test_a_checkpoint_from_before_an_option_existed(tmp_path: Path) -> None:
    """An option that was added later had its default then."""
    then = of()
    del then["class_weight"]
    old = Checkpoint(tmp_path, {"identity": then, "processor": module.processor()}, {})
    module.check_same_run(old, of())
    with pytest.raises(cvgnn.CvgnnError, match="class_weight was None and is 'balanced'"):
        module.check_same_run(old, of(class_weight="balanced"))
