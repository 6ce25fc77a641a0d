from __future__ import annotations

import pytest
import torch

from cvgnn.data import SparseFeatures
from cvgnn.errors import CvgnnError


def make(indptr: list[int], indices: list[int], values: list[float], columns: int = 3) -> SparseFeatures:
    return SparseFeatures(torch.tensor(indptr), torch.tensor(indices), torch.tensor(values), columns)


def test_round_trip() -> None:
    X = make([0, 2, 2, 3], [2, 0, 1], [1.5, 2.0, -1.0])
    assert X.to_dense().tolist() == [[2.0, 0.0, 1.5], [0.0, 0.0, 0.0], [0.0, -1.0, 0.0]]
    assert X.to(torch.float64).dtype == torch.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 2], [0], [1.0]), "x.indptr must rise from 0 to the number of entries, 1"),
        (([1, 1], [0], [1.0]), "x.indptr must rise from 0"),
        (([0, 2, 1, 3], [0, 1, 2], [1.0, 1.0, 1.0]), "x.indptr must rise from 0"),
        (([0, 1], [3], [1.0]), r"x.indices must lie in 0..2; found 3"),
        (([0, 1], [-1], [1.0]), r"x.indices must lie in 0..2; found -1"),
        (([0, 1], [0], [1.0, 2.0]), "x.values has shape"),
        (([0, 1], [0], [1]), "x.values must be floating point, not torch.int64"),
    ],
)
def test_refused(arguments: tuple[list[int], list[int], list[float]], message: str) -> None:
    with pytest.raises(CvgnnError, match=message):
        make(*arguments)
