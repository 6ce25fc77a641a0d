"""Features, labels and splits in every supported form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from cvgnn.data import RandomSplit, SparseFeatures, from_arrays
from cvgnn.errors import CvgnnError

PATH = [[0, 1, 2], [1, 2, 3]]
DENSE = np.array([[1.0, 0], [0, 2], [0, 0], [3, 0]], dtype=np.float32)
WIDE = np.zeros((4, 30), dtype=np.float32)
WIDE[1, 4], WIDE[1, 2], WIDE[3, 29] = 5, 6, 7


def forms(x: np.ndarray) -> dict[str, Any]:
    csr = sparse.csr_array(x)
    unordered = sparse.coo_array(
        (np.r_[csr.data, 0.0][::-1], np.c_[csr.nonzero()[0:2], [[0], [1]]][:, ::-1]), shape=x.shape
    )
    tensor = torch.from_numpy(x.copy())
    return {
        "numpy": x.copy(),
        "list": x.tolist(),
        "tensor": tensor,
        "tensor, not contiguous": tensor.t().contiguous().t(),
        "read-only": np.lib.stride_tricks.as_strided(x, writeable=False),
        "csr": csr,
        "csc": csr.tocsc(),
        "dok": csr.todok(),
        "coo with an explicit zero": unordered.astype(np.float32),
        "matrix": sparse.csr_matrix(x),
        "torch coo": tensor.to_sparse_coo(),
        "torch coo, not coalesced": torch.sparse_coo_tensor(
            torch.cat([tensor.nonzero().t()] * 2, dim=1), torch.cat([tensor[tensor != 0] / 2] * 2), x.shape, check_invariants=True
        ),
        "half": torch.from_numpy(x.copy()).half(),
        "bfloat16": torch.from_numpy(x.copy()).bfloat16(),
        "sparse bfloat16": tensor.to_sparse_coo().bfloat16(),
        "integers": x.astype(np.int64),
    }  # fmt: skip


@pytest.mark.parametrize("x", [DENSE, WIDE], ids=["dense", "sparse"])
def test_features_in_every_form_are_the_same(x: np.ndarray) -> None:
    for form, given in forms(x).items():
        features = from_arrays(PATH, x=given, y=[0, 1, 0, 1]).x
        wanted = torch.float64 if form == "list" else torch.float32
        assert features.dtype == wanted, form
        if x is DENSE:
            assert isinstance(features, torch.Tensor), form
            assert torch.equal(features.float(), torch.from_numpy(x)), form
        else:
            assert isinstance(features, SparseFeatures), form
            assert features.indptr.tolist() == [0, 0, 2, 2, 3], form
            assert features.indices.tolist() == [2, 4, 29], form
            assert features.values.tolist() == [6, 5, 7], form
            again = from_arrays(PATH, x=features, y=[0, 1, 0, 1]).x
            assert isinstance(again, SparseFeatures)
            assert again.values.tolist() == [6, 5, 7]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_torch_csr_features() -> None:
    features = from_arrays(PATH, x=torch.from_numpy(WIDE).to_sparse_csr(), y=[0, 1, 0, 1]).x
    assert torch.equal(features.to_dense(), torch.from_numpy(WIDE))


def test_arguments_are_not_changed() -> None:
    x = sparse.coo_array(([1.0, 2.0, 0.0], ([0, 0, 1], [1, 1, 0])), shape=(4, 2)).tocsr()
    before = (x.data.copy(), x.indices.copy(), x.indptr.copy())
    from_arrays(PATH, x=x, y=[0, 1, 0, 1])
    assert all((a == b).all() for a, b in zip(before, (x.data, x.indices, x.indptr), strict=True))


def test_the_threshold_is_the_same_for_dense_and_sparse_features() -> None:
    """Exactly 5 %, where 0.05 * 6 * 10 is rounded to more than 3."""
    x = np.zeros((6, 10), dtype=np.float32)
    x[0, :3] = 1
    for form in (x, sparse.csr_array(x)):
        assert isinstance(from_arrays(PATH, x=form, y=[0] * 6).x, torch.Tensor)


def test_float64_stays() -> None:
    assert from_arrays(PATH, x=DENSE.astype(np.float64), y=[0, 1, 0, 1]).x.dtype == torch.float64
    assert from_arrays(PATH, x=sparse.csr_array(WIDE.astype(np.float64)), y=[0, 1, 0, 1]).x.dtype == torch.float64


def test_splits() -> None:
    given = from_arrays(PATH, x=DENSE, y=[0, 1, 0, 1], train_ids=[0], test_ids=np.array([0, 0, 0, 1], bool))
    assert (given.split, given.train_ids.tolist(), given.val_ids.tolist(), given.test_ids.tolist()) == (
        "given",
        [0],
        [],
        [3],
    )
    drawn = from_arrays(PATH, x=DENSE, y=[0, 1, -1, 1], split=RandomSplit(seed=5, per_class=1))
    train, val, test = RandomSplit(seed=5, per_class=1).ids(np.array([0, 1, -1, 1]))
    assert drawn.split == RandomSplit(seed=5, per_class=1).describe()
    assert (drawn.train_ids.tolist(), drawn.val_ids.tolist(), drawn.test_ids.tolist()) == (
        train.tolist(),
        val.tolist(),
        test.tolist(),
    )


REFUSED = [
    ({"x": [[1, 2], [3]]}, "x is ragged: its rows differ in length"),
    ({"x": None}, "x must be a matrix [N, F]; it has shape []"),
    ({"x": np.ones((4, 2, 2))}, "x must be a matrix [N, F]; it has shape [4, 2, 2]"),
    ({"x": np.ones((3, 2))}, "x has 3 rows but y has 4 labels"),
    ({"x": [["a"]] * 4}, "x must hold numbers, not <U1"),
    ({"x": np.array([[None]] * 4)}, "x must hold numbers, not object"),
    ({"x": torch.sparse_coo_tensor(torch.tensor([[9], [0]]), torch.ones(1), (4, 2), check_invariants=False)}, "x is not a sparse matrix of shape [4, 2]"),
    ({"x": torch.sparse_coo_tensor(torch.tensor([[0], [0]]), torch.ones(1), (2**40, 2), check_invariants=True)}, "x has 1099511627776 rows but y has 4 labels"),
    ({"x": sparse.coo_array((4, 2**31))}, "x has 2147483648 columns"),
    ({"y": [0, 1, None, 1]}, "y must hold numbers or strings, not object"),
    ({"y": [[0], [1, 2]]}, "y must be an array, not a ragged or mixed list"),
    ({"edge_weight": [[0], [1, 2]]}, "edge_weight must be an array, not a ragged or mixed list"),
    ({"y": []}, "the graph has no nodes: y is empty"),
    ({"num_classes": 2.5}, "num_classes must be a whole number of at least 1, not 2.5"),
    ({"class_names": ["a", "b", "c"], "num_classes": 2}, "class_names has 3 names for 2 classes"),
    ({"node_names": [1, None, 2, 3]}, "node_names must be 4 integers or strings; it is object of shape [4]"),
    ({"node_names": [1, 2, 3, 1]}, "node_names holds 1 twice"),
    ({"val_ids": [0]}, "val_ids is given without train_ids"),
    ({"edge_weight": ["a"] * 3}, "edge_weight must hold numbers, not <U1"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CvgnnError) as caught:
        from_arrays(PATH, **({"x": DENSE, "y": [0, 1, 0, 1]} | changes))
    assert message in str(caught.value)
