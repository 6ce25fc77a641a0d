from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cvgnn.errors import CvgnnError
from cvgnn.store import layout, open_store
from tests.store.cases import edit_header

Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b["arrays"].pop("y"), "header.json lists no array 'y', which such a store needs"),
        (lambda b: b["arrays"].update(z=b["arrays"]["x"]), "header.json lists an array 'z' that does not belong to such a store"),
        (lambda b: b["arrays"].update({"a\nb" * 100: b["arrays"]["x"]}), r"header.json lists an array 'a\\nba"),
        (lambda b: b["graph"].update(num_nodes=29), r"says that indptr has shape \[31\]; its other numbers ask for \[30\]"),
        (lambda b: b["graph"].update(num_edges=7), r"says that indices has shape \[\d+\]; its other numbers ask for \[7\]"),
        (lambda b: b["graph"].update(num_features=8), r"says that x has shape \[30, 7\]; its other numbers ask for \[30, 8\]"),
        (lambda b: b["graph"].update(weighted=True), "header.json lists no array 'edge_weight'"),
        (lambda b: b["graph"].update(named=False), "header.json lists an array 'node_names' that does not belong"),
        (lambda b: b["graph"].update(features="sparse"), "header.json lists an array 'x' that does not belong"),
        (lambda b: b["graph"].update(PX_normalization=None), "header.json lists an array 'PX' that does not belong"),
        (lambda b: b["graph"].update(num_classes=4), "header.json has 3 class names for 4 classes"),
        (lambda b: b["arrays"]["train_ids"].update(shape=[5, 2]), r"says that train_ids has shape \[5, 2\]; its other numbers ask for \[any\]"),
        (lambda b: b["arrays"]["x"].update(dtype="<f2"), "says that x has dtype '<f2'; it must be <f4 or <f8"),
        (lambda b: b["arrays"]["x"].update(dtype="O"), "says that x has dtype 'O'"),
        (lambda b: b["arrays"]["x"].update(dtype="<f4,(9999999999)f8"), "says that x has dtype '<f4,"),
        (lambda b: b["arrays"]["indices"].update(dtype="<i8"), "says that indices has dtype '<i8'; it must be <i4"),
        (lambda b: b["arrays"]["node_names"].update(dtype="|O"), r"says that node_names has dtype '\|O'; it must be <i8 or Unicode"),
        (lambda b: b["arrays"]["node_names"].update(dtype="<U0"), "says that node_names has dtype '<U0'"),
        (lambda b: b["arrays"]["y"].update(file="x.npy"), "header.json names one file for two arrays"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_the_fields(change: Change, said: str, dense: Path) -> None:
    edit_header(dense, change)  # type: ignore[arg-type]
    with pytest.raises(CvgnnError, match=said):
        open_store(dense)


def test_sparse_parts_of_different_length(sparse: Path) -> None:
    edit_header(sparse, lambda b: b["arrays"]["x_values"].update(shape=[3]))
    with pytest.raises(CvgnnError, match=r"header.json says that x_indices and x_values differ in length"):
        open_store(sparse)


def test_unknown_array() -> None:
    with pytest.raises(CvgnnError, match=r"unknown array 'xx'; known: indptr.* \(did you mean 'x'\?\)"):
        layout.may_be("xx", "<f4")
