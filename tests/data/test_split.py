from __future__ import annotations

import numpy as np
import pytest

from cvgnn.data import RandomSplit
from cvgnn.errors import CvgnnError

Y = np.array([0, 1, 1, -1, 2, 0, 1, 2, 0, 0, -1, 1] * 10)


def test_fractions() -> None:
    train, val, test = RandomSplit(seed=3, train=0.5, val=0.3).ids(Y)
    assert (len(train), len(val), len(test)) == (50, 30, 20)
    everything = np.concatenate([train, val, test])
    assert sorted(everything) == np.flatnonzero(Y >= 0).tolist()
    assert all((np.diff(ids) > 0).all() for ids in (train, val, test))


def test_per_class() -> None:
    train, val, test = RandomSplit(seed=3, per_class=5, train=0.2, val=0.4).ids(Y)
    assert np.bincount(Y[train]).tolist() == [5, 5, 5]
    assert abs(len(val) - len(test)) <= 1
    assert len(set(train) | set(val) | set(test)) == 100


def test_a_pure_function_of_the_seed() -> None:
    a, b, c = (RandomSplit(seed=s).ids(Y)[0].tolist() for s in (1, 1, 2))
    assert a == b != c


@pytest.mark.parametrize("options", [{"train": 0.0}, {"train": 0.8, "val": 0.3}, {"per_class": 0}, {"val": -0.1}])
def test_refused(options: dict[str, float]) -> None:
    with pytest.raises(CvgnnError, match=r"split fractions must|per_class must"):
        RandomSplit(**options)  # type: ignore[arg-type]


def test_nothing_labelled() -> None:
    with pytest.raises(CvgnnError, match="no node has a label"):
        RandomSplit().ids(np.full(4, -1))
