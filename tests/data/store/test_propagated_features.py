from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cvgnn
from cvgnn.data import Propagation, SparseFeatures
from cvgnn.data.store import StoreWriter, add_product, open_store, write_store
from cvgnn.data.store import propagated_features as propagate
from cvgnn.errors import CvgnnError
from tests.data.store.cases import make_graph, same_matrix

NORMALIZATIONS: list[Any] = ["symmetric", "random-walk"]


@pytest.mark.parametrize("pieces", [1, 40, 1 << 21])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_stored_product_is_the_product(
    sparse: bool, weighted: bool, normalization: Any, pieces: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = make_graph(sparse=sparse, weighted=weighted, directed=weighted, features=11)
    P = Propagation(g, normalization=normalization)
    expected = P.product_sparse(g.x) if isinstance(g.x, SparseFeatures) else P.product(g.x)
    for limit in ("_ELEMENTS_PER_PIECE", "_ENTRIES_PER_BLOCK", "_ENTRIES_PER_COUNT"):
        monkeypatch.setattr(propagate, limit, pieces)
    write_store(g, tmp_path / "a", propagate=normalization)
    opened = open_store(tmp_path / "a")
    assert opened.PX_normalization == normalization
    same_matrix(opened.PX, expected)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("kind", ["dense", "sparse", "sparse, weighted"])
def test_training_from_a_store_is_bit_identical(kind: str, normalization: Any, tmp_path: Path) -> None:
    g = make_graph(n=300, features=37, sparse="sparse" in kind, weighted="weighted" in kind)
    other = NORMALIZATIONS[1 - NORMALIZATIONS.index(normalization)]
    runs = []
    for stored in (None, normalization, other):
        write_store(g, tmp_path / str(stored), propagate=stored)
    for graph in (g, *(open_store(tmp_path / str(stored)) for stored in (None, normalization, other))):
        run = cvgnn.fit(
            graph,
            defaults="fixed",
            epochs=4,
            output="last",
            batch_size=16,
            num_neighbors=2,
            normalization=normalization,
        )
        runs.append((run.model.state_dict(), run.predict_proba()))
    for weights, probabilities in runs[1:]:
        assert torch.equal(probabilities, runs[0][1])
        for name, value in runs[0][0].items():
            assert torch.equal(weights[name], value)


def test_the_stored_product_is_used(tmp_path: Path) -> None:
    g = make_graph()
    write_store(g, tmp_path / "a", propagate="symmetric")
    opened = open_store(tmp_path / "a")
    features = cvgnn.propagate_features(opened, Propagation(opened))
    assert isinstance(opened.PX, torch.Tensor)
    span = features.span(0, 1)
    assert isinstance(span, torch.Tensor)
    assert span.data_ptr() == opened.PX.data_ptr()


def test_product_of_streamed_features(tmp_path: Path) -> None:
    """Arrays that are still being written are enough, streams among them."""
    g = make_graph(sparse=True)
    assert isinstance(g.x, SparseFeatures)
    with StoreWriter(tmp_path / "a") as writer:
        for name in ("indptr", "y", "train_ids", "val_ids", "test_ids"):
            writer.write(name, getattr(g, name).numpy())
        neighbors = writer.stream("indices", np.int32)
        for piece in np.array_split(g.indices.numpy(), 5):
            neighbors.append(piece)
        writer.write("x_indptr", g.x.indptr.numpy())
        for name, values in (("x_indices", g.x.indices.numpy()), ("x_values", g.x.values.numpy())):
            stream = writer.stream(name, values.dtype)
            stream.append(values[:9])
            stream.append(values[9:])
        with pytest.raises(CvgnnError, match="P X of sparse features needs num_features"):
            add_product(writer, "symmetric")
        add_product(writer, "symmetric", num_features=7)
        writer.finish({"num_classes": 3, "num_features": 7, "PX_normalization": "symmetric"})
    opened = open_store(tmp_path / "a")
    same_matrix(opened.PX, Propagation(g).product_sparse(g.x))
    same_matrix(opened.indices, g.indices)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "P X needs the array 'indptr', which was not written yet"),
        ({"indptr": np.array([0, 0]), "indices": np.array([], np.int32)}, "P X needs the array 'x_indptr'"),
        ({"indptr": np.array([0, 0]), "indices": np.array([], np.int32), "x": np.ones((2, 1), np.float32)}, "x has 2 rows for 1 nodes"),
        ({"indptr": np.array([0, 1]), "indices": np.array([9], np.int32), "x": np.ones((1, 1), np.float32)}, r"cannot write the store .*a: indices.npy gives node 0 a node outside 0..0 as neighbor"),
    ],
)  # fmt: skip
def test_nothing_is_computed_from_bad_arrays(arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a") as writer:
        for name, array in arrays.items():
            writer.write(name, array)
        with pytest.raises(CvgnnError, match=message):
            add_product(writer, "symmetric")
    assert list(tmp_path.iterdir()) == []
